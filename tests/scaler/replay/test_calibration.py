"""A profile is fitted from counters: a simulated server whose truth is known gets it back."""

import numpy as np
import pytest

from exporter.textformat import parse
from scaler.replay.calibration import (
    Calibrated,
    EngineCounters,
    NotCalibrated,
    calibrate,
    engine_counters,
    kv_tokens,
    profile_text,
)
from scaler.replay.columns import AT, CONTEXT, DECODE_S, DECODING, FIRST, READ_TOKENS, STEPS, TOKENS
from scaler.replay.servers import parse_profile

PHASE_S = 60.0


def load(generator, concurrency, prompt, output):
    """About `concurrency` requests in progress in each phase, at regular times, as (at, prompt, output)."""
    requests = []
    for phase, (together, tokens, answer) in enumerate(zip(concurrency, prompt, output, strict=True)):
        took_s = answer * (0.010 + 0.0005 * together) + tokens / 5000.0
        times = np.arange(phase * PHASE_S, (phase + 0.9) * PHASE_S, took_s / together)
        requests += [(at, int(generator.integers(tokens // 2, tokens * 3 // 2)), answer) for at in times]
    return requests


def reads(simulated, phases):
    """Counters after each phase, as an engine has them."""
    counters, steps, contexts = [EngineCounters(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)], 0.0, []
    for moment in np.arange(0.05, phases * PHASE_S + 0.01, 0.05):
        simulated.until(moment)
        world = simulated.world
        if world.replica_counts[0, DECODING]:
            contexts.append(world.replicas[0, CONTEXT])
        if abs(moment % PHASE_S) < 0.01 or abs(moment % PHASE_S - PHASE_S) < 0.01:
            first, at = world.request_times[:, FIRST], world.request_times[:, AT]
            known = ~np.isnan(first)
            steps = float(world.replica_counts[0, STEPS])
            gaps = float(world.counts[TOKENS] - known.sum())
            counters.append(
                EngineCounters(
                    float(world.counts[READ_TOKENS]),
                    float((first - at)[known].sum()),
                    gaps,
                    float(world.numbers[DECODE_S]),
                    steps,
                    gaps,
                    float(np.mean(contexts)),
                    float(known.sum()),
                )
            )
            contexts.clear()
    return counters


@pytest.mark.parametrize("per_token", [0.0, 5e-7])
def test_simulated_server_gets_its_own_profile_back(deployment, server, per_token):
    truth = server(step=0.010, per_sequence=0.0005, per_token=per_token, prompt_rate=5000.0)
    generator = np.random.default_rng(1)
    concurrency, prompt, output = (1, 1, 2, 4, 8, 16), (400, 1600, 100, 200, 100, 100), (200, 100, 200, 150, 100, 150)
    simulated = deployment(truth, load(generator, concurrency, prompt, output)).scale(1)

    found = calibrate(reads(simulated, len(concurrency)))

    # The time of a token at so many sequences, each with a context of 200 tokens: within 10 %.
    for sequences in (1, 4, 16):
        wanted = truth.step + truth.per_sequence * sequences + per_token * 200 * sequences
        fitted = found.step + found.per_sequence * sequences + found.per_token * 200 * sequences
        assert fitted == pytest.approx(wanted, rel=0.1)
    assert found.prompt_rate == pytest.approx(5000.0, rel=0.05)
    assert found.error < 0.05


def test_constant_concurrency_is_all_step():
    one = EngineCounters(1000.0, 1.0, 1000.0, 12.0, 1000.0, 1000.0)
    found = calibrate([EngineCounters(*(0.0,) * 6), one, EngineCounters(*(2 * value for value in one[:6]))])
    assert (found.step, found.per_sequence, found.per_token) == (pytest.approx(0.012), 0.0, 0.0)
    assert found.prompt_rate == 1000.0


def test_restarted_or_idle_engine_is_no_window():
    one = EngineCounters(1000.0, 1.0, 1000.0, 12.0, 1000.0, 1000.0)
    with pytest.raises(NotCalibrated, match="needs two reads with 100 generated tokens"):
        calibrate([one, one])
    with pytest.raises(NotCalibrated, match="needs two reads"):
        calibrate([one, EngineCounters(*(0.0,) * 6)])
    with pytest.raises(NotCalibrated, match="needs two reads"):
        calibrate([one])
    with pytest.raises(NotCalibrated, match="and prompts"):  # all prompts came from a cache
        calibrate([EngineCounters(*(0.0,) * 6), one._replace(prompt_tokens=0.0)])


LLAMACPP = b"""\
llamacpp:prompt_tokens_total 600
llamacpp:prompt_seconds_total 0.5
llamacpp:tokens_predicted_total 4000
llamacpp:tokens_predicted_seconds_total 8
llamacpp:n_decode_total 2000
llamacpp:n_busy_slots_per_decode 2.5
"""
VLLM = b"""\
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:prompt_tokens_total{engine="0",model_name="m"} 600.0
vllm:generation_tokens_total{engine="0",model_name="m"} 5000.0
vllm:request_prefill_time_seconds_sum{engine="0",model_name="m"} 0.5
vllm:request_prefill_time_seconds_count{engine="0",model_name="m"} 3.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 4000.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 8.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 2000.0
"""


def test_counters_are_those_of_llamacpp_and_of_vllm():
    assert engine_counters(parse(LLAMACPP), 300.0) == (600.0, 0.5, 4000.0, 8.0, 2000.0, 5000.0, 300.0, 0.0)
    assert engine_counters(parse(VLLM)) == (600.0, 0.5, 4000.0, 8.0, 2000.0, 5000.0, 4000.0, 3.0)


def test_prompt_tokens_that_a_cache_had_are_not_read():
    sources = "".join(
        f'vllm:prompt_tokens_by_source_total{{engine="0",model_name="m",source="{source}"}} {tokens}\n'
        for source, tokens in (("local_cache_hit", 450.0), ("local_compute", 150.0))
    )
    assert engine_counters(parse(VLLM + sources.encode())).prompt_tokens == 150.0
    assert kv_tokens(parse(VLLM)) == 16_000.0
    assert kv_tokens(parse(LLAMACPP)) is None
    with pytest.raises(NotCalibrated, match=r"needs the metrics of vLLM or llama\.cpp"):
        engine_counters(parse(b"up 1\n"))


@pytest.mark.parametrize(("batch", "kv"), [(None, None), (4, 16_384.0), (4096, 1e6)])
def test_printed_profile_is_one_that_replay_reads(batch, kv):
    text = profile_text(Calibrated(0.01, 0.0005, 1e-7, 5000.0, 0.02, 7), "calibrated", batch, kv)
    profile, warnings = parse_profile(text, "mine.yaml")
    assert warnings == []
    assert profile.server[:4] == (0.01, 0.0005, 1e-7, 5000.0)
    assert profile.server.batch == (batch or 256)
