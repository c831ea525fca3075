"""Reads each engine's response end to end: what arrives, its tokens, and how many requests met the SLO.

The responses are derived from the engines' own sources, which each names, but for NIM's, which was recorded; the
numbers are those of steady traffic. Lines that are not read are left out, but for those that must not be.
"""

from __future__ import annotations

from functools import partial
from math import exp
from typing import NamedTuple

import pytest

from exporter.catalog import KINDS
from scaler.config import Config, Endpoint, Objectives, Workload
from scaler.config.workload import Slo
from scaler.explain.document import DecisionExplainer
from scaler.model import Board
from scaler.policy.capacity import Estimate
from scaler.policy.sizing import MEMORY_S
from scaler.workloads import targets

RATE, PROMPT, OUTPUT, GAP_S = 8.0, 500, 200, 0.02


class Traffic(NamedTuple):
    """Requests so far: all, and those with a first token later than 2.5 s and times between tokens of 80 ms."""

    served: float
    slow: float


def buckets(name, labels, bounds, fast, slow, fast_s, slow_s):
    """The histogram of `fast` observations of `fast_s` seconds and `slow` ones of `slow_s`."""
    lines = [
        f'{name}_bucket{{{labels}le="{bound}"}} {fast * (fast_s <= float(bound)) + slow * (slow_s <= float(bound))}'
        for bound in (*bounds, "+Inf")
    ]
    total = fast * fast_s + slow * slow_s
    return "\n".join([*lines, f"{name}_count{{{labels[:-1]}}} {fast + slow}", f"{name}_sum{{{labels[:-1]}}} {total}"])


TTFT_BOUNDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TPOT_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)


def latencies(ttft, tpot, labels, traffic, times):
    """Both histograms. times: per output token, of each request."""
    fast = traffic.served - traffic.slow
    first = buckets(ttft, labels, TTFT_BOUNDS, fast, traffic.slow, 0.2, 3.0)
    return f"{first}\n{buckets(tpot, labels, TPOT_BOUNDS, times * fast, times * traffic.slow, GAP_S, 0.08)}"


def nim(traffic):
    """NIM 1.x: names, labels and buckets of a recorded response (DataDog/integrations-core
    nvidia_nim/tests/fixtures/nim_metrics.txt); its time per output token is that between two tokens.
    """
    served, labels = traffic.served, 'model_name="m",'
    return f"""
process_start_time_seconds 1.7303128549e+09
num_requests_running{{model_name="m"}} 30.0
num_requests_waiting{{model_name="m"}} 0.0
num_request_max{{model_name="m"}} 64.0
gpu_cache_usage_perc{{model_name="m"}} 0.1
prompt_tokens_total{{model_name="m"}} {served * PROMPT}
generation_tokens_total{{model_name="m"}} {served * OUTPUT}
{latencies("time_to_first_token_seconds", "time_per_output_token_seconds", labels, traffic, OUTPUT - 1)}
request_finish_total{{finished_reason="length",model_name="m"}} {served}
request_success_total{{model_name="m"}} {served}
request_failure_total{{model_name="m"}} 0.0
"""


def lmdeploy(traffic, running=30.0):
    """LMDeploy 0.18: derived from lmdeploy/metrics/loggers.py and stats.py. One request in eight is cancelled; it is
    counted by the gauge of failed requests alone.
    """
    served, labels, prefix = traffic.served, 'engine="0",model_name="m",', "lmdeploy:"
    step = buckets(f"{prefix}iter_token_latency", labels, TPOT_BOUNDS, served * (OUTPUT - 1), 0, GAP_S, 0.08)
    ttft, tpot = f"{prefix}time_to_first_token_seconds", f"{prefix}time_per_output_token_seconds"
    return f"""
lmdeploy:num_requests_succeeded{{engine="0",model_name="m"}} {0.875 * served}
lmdeploy:num_requests_failed{{engine="0",model_name="m"}} {0.125 * served}
lmdeploy:num_api_requests_routed{{engine="0",model_name="m"}} {running}
lmdeploy:num_api_requests_waiting{{engine="0",model_name="m"}} 0.0
lmdeploy:num_requests_running{{engine="0",model_name="m"}} {running}
lmdeploy:num_requests_waiting{{engine="0",model_name="m"}} 0.0
lmdeploy:gpu_cache_usage_perc{{engine="0",model_name="m"}} 0.1
lmdeploy:prompt_tokens_total{{engine="0",model_name="m"}} {served * PROMPT}
lmdeploy:generation_tokens_total{{engine="0",model_name="m"}} {served * OUTPUT}
lmdeploy:request_success_total{{engine="0",finished_reason="ResponseType.FINISH",model_name="m"}} {0.875 * served}
lmdeploy:cached_tokens_total{{engine="0",model_name="m"}} {served * 100}
{latencies(ttft, tpot, labels, traffic, OUTPUT - 1)}
{step}
"""


def vllm(traffic, cached=None):
    """vLLM 0.28: derived from vllm/v1/metrics/loggers.py. cached: the share of the prompts that the prefix cache has;
    None: a release that does not count them.
    """
    served, labels = traffic.served, 'engine="0",model_name="m",'
    gaps = buckets("vllm:inter_token_latency_seconds", labels, TPOT_BOUNDS, served * (OUTPUT - 1), 0, GAP_S, 0.08)
    tokens = served * PROMPT
    sources = (
        ""
        if cached is None
        else f"""
vllm:prompt_tokens_by_source_total{{{labels}source="local_compute"}} {(1.0 - cached) * tokens}
vllm:prompt_tokens_by_source_total{{{labels}source="local_cache_hit"}} {cached * tokens}
vllm:prompt_tokens_by_source_total{{{labels}source="external_kv_transfer"}} 0.0"""
    )
    return f"""
vllm:num_requests_running{{engine="0",model_name="m"}} 30.0
vllm:num_requests_waiting{{engine="0",model_name="m"}} 0.0
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.1
vllm:prompt_tokens_total{{engine="0",model_name="m"}} {tokens}{sources}
vllm:generation_tokens_total{{engine="0",model_name="m"}} {served * OUTPUT}
vllm:request_success_total{{engine="0",finished_reason="length",model_name="m"}} {served}
{buckets("vllm:time_to_first_token_seconds", labels, TTFT_BOUNDS, served, 0, 0.2, 3.0)}
{gaps}
"""


def triton(traffic):
    """Triton with its vLLM backend: derived from triton-inference-server/vllm_backend src/utils/metrics.py and the
    example of its README. No gauge shows running requests.
    """
    served, labels = traffic.served, 'model="m",version="1",'
    ttft, tpot = "vllm:time_to_first_token_seconds", "vllm:time_per_output_token_seconds"
    return f"""
nv_inference_request_success{{model="m",version="1"}} {served}
nv_inference_request_failure{{model="m",reason="OTHER",version="1"}} 0
nv_inference_pending_request_count{{model="m",version="1"}} 30
vllm:prompt_tokens_total{{model="m",version="1"}} {served * PROMPT}
vllm:generation_tokens_total{{model="m",version="1"}} {served * OUTPUT}
{latencies(ttft, tpot, labels, traffic, OUTPUT - 1)}
vllm:request_params_n_count{{model="m",version="1"}} {served}
"""


def trtllm(traffic):
    """trtllm-serve 1.3: derived from tensorrt_llm/metrics/collector.py. One time per output token of each request."""
    served, labels = traffic.served, 'engine_type="trtllm",model_name="m",'
    ttft, tpot = "trtllm_time_to_first_token_seconds", "trtllm_time_per_output_token_seconds"
    return f"""
trtllm_num_requests_running{{engine_type="trtllm",model_name="m"}} 30.0
trtllm_num_requests_waiting{{engine_type="trtllm",model_name="m"}} 0.0
trtllm_kv_cache_utilization{{engine_type="trtllm",model_name="m"}} 0.1
trtllm_request_success_total{{engine_type="trtllm",finished_reason="stop",model_name="m"}} {served}
trtllm_num_requests_completed_total{{engine_type="trtllm",model_name="m"}} {served}
trtllm_prompt_tokens_total{{engine_type="trtllm",model_name="m"}} {served * PROMPT}
trtllm_generation_tokens_total{{engine_type="trtllm",model_name="m"}} {served * OUTPUT}
trtllm_prompt_cached_tokens_total{{engine_type="trtllm",model_name="m"}} {served * 100}
{latencies(ttft, tpot, labels, traffic, 1)}
"""


SIZED = {"nim": nim, "lmdeploy": lmdeploy}
MEASURED = {"triton": triton, "trtllm": trtllm}


class Engine:
    """One engine of `chat` that serves 8 requests per second, of which a part is slow."""

    def __init__(self, stage, pod, text):
        self.stage, self.pod, self.text = stage, pod, text
        self.traffic = Traffic(0.0, 0.0)
        self.stage.has(pods=[pod], wanted=1)

    def run(self, seconds, slow=0.0):
        for _ in range(round(seconds / 5.0)):
            served, late = self.traffic
            self.traffic = Traffic(served + 5.0 * RATE, late + 5.0 * RATE * slow)
            self.stage.round({self.pod: self.text(self.traffic).lstrip("\n")})
        return self

    @property
    def evidence(self):
        return self.stage.decision().evidence

    def estimate(self, column):
        return float(self.stage.decider.columns()["sizing.estimates"][0, column])


@pytest.fixture
def engine(scene, pod):
    """`engine("nim", nim)`: an engine of this kind in the workload `ai/chat`, as the configuration plans it."""

    def make(kind, text, slo=None, **keys):
        endpoint = Endpoint(url="http://10.0.0.1:8000")
        workload = Workload(namespace="ai", name="chat", engine=kind, pods=endpoint, slo=slo, **keys)
        (plan,) = targets.Plans(Config(workloads=(workload,))).take([workload])
        return Engine(scene(plan), pod(kind=kind), text)

    return make


@pytest.mark.parametrize("kind", SIZED)
def test_engine_with_all_counters_is_sized_by_the_default_slo(engine, kind):
    chat = engine(kind, SIZED[kind]).run(600)
    # Arrivals of 595 s; those of before count less.
    arrived = RATE * MEMORY_S * (1.0 - exp(-595.0 / MEMORY_S))
    assert chat.estimate(Estimate.REQUESTS) == pytest.approx(arrived, rel=0.01)
    assert chat.estimate(Estimate.PROMPT_SUM) / chat.estimate(Estimate.PROMPTS) == pytest.approx(PROMPT)
    assert chat.estimate(Estimate.GAP_SECONDS) / chat.estimate(Estimate.GAPS) == pytest.approx(GAP_S)
    (objective,) = chat.evidence.objectives
    assert objective.name == "slo"
    assert chat.evidence.request_replica_s * RATE == pytest.approx(objective.value, rel=0.01)
    assert chat.evidence.slo.endswith("; 100 % of the error budget is left")


def test_prompt_tokens_that_the_prefix_cache_had_are_no_work_of_vllm(engine):
    cold, warm, old = (engine("vllm", partial(vllm, cached=cached)).run(600) for cached in (0.0, 0.8, None))
    of_prompts = [chat.estimate(Estimate.PREFILL) for chat in (cold, warm, old)]
    assert of_prompts[0] == of_prompts[2] > 0.0
    # A fifth of the tokens; the same steps with less in them are slower, so each costs a little more.
    assert 0.2 * of_prompts[0] < of_prompts[1] < 0.4 * of_prompts[0]
    assert warm.evidence.request_replica_s < 0.75 * cold.evidence.request_replica_s
    # A cached token is in the context all the same.
    assert warm.estimate(Estimate.PROMPT_SUM) == cold.estimate(Estimate.PROMPT_SUM)


@pytest.mark.parametrize("kind", SIZED)
def test_tokens_of_an_engine_are_those_of_its_finished_requests(engine, kind):
    chat = engine(kind, SIZED[kind]).run(600)
    assert chat.estimate(Estimate.OUTPUT_SUM) / chat.estimate(Estimate.OUTPUTS) == pytest.approx(OUTPUT, rel=0.02)


@pytest.mark.parametrize("kind", [*SIZED, *MEASURED])
def test_attainment_of_an_slo_is_that_of_the_engines_histograms(engine, kind):
    chat = engine(kind, (SIZED | MEASURED)[kind], Slo(ttft=1.0, itl=0.1)).run(600, slow=0.02)
    assert chat.evidence.slo_attainment == pytest.approx(0.98, abs=1e-3)
    assert chat.evidence.slo_error_budget == pytest.approx(-1.0, abs=0.1)
    assert chat.evidence.slo_requests_total == pytest.approx(RATE * 595.0, rel=0.01)
    assert chat.evidence.slo_misses_total == pytest.approx(0.02 * RATE * 595.0, rel=0.01)


@pytest.mark.parametrize("kind", MEASURED)
def test_slo_that_is_only_measured_changes_no_decision_and_says_so(engine, kind):
    with_slo, without = engine(kind, MEASURED[kind], Slo()), engine(kind, MEASURED[kind])
    for chat in (with_slo, without):
        chat.run(600, slow=0.5)
    assert with_slo.stage.outcome() == without.stage.outcome()
    assert with_slo.evidence.objectives == without.evidence.objectives
    assert with_slo.evidence.request_replica_s == without.evidence.request_replica_s
    assert without.evidence.slo is None
    stage, sentence = with_slo.stage, f" It is not used for sizing: {KINDS[kind].unsized}."
    board = Board(1, stage.now, {stage.decision().workload: stage.decision()})
    explainer = DecisionExplainer(stage.decider)
    document = explainer.explain(stage.decision().workload, board, stage.now, None, None, None)()
    (step,) = [step for step in document["chain"] if step["step"] == "objectives"]
    (told,) = [each for each in step["sentences"] if "met the SLO" in each]
    assert told.endswith(f"times the error budget is used.{sentence}")


def test_mean_time_between_tokens_divides_the_bucket_of_an_slo_that_is_only_measured(engine):
    """Interpolation between 10 and 25 ms would make 7 % of Triton's times of 20 ms late for an SLO of 24 ms."""
    chat = engine("triton", triton, Slo(ttft=1.0, itl=0.024)).run(600)
    assert chat.evidence.slo_attainment == pytest.approx(1.0)


def test_engine_of_a_release_without_its_counters_falls_back_and_says_so(engine):
    """LMDeploy's first releases counted no finished requests."""

    def early(traffic):
        return "\n".join(line for line in lmdeploy(traffic).splitlines() if "request_success" not in line)

    chat = engine("lmdeploy", early, Slo(ttft=1.0, itl=0.1)).run(600, slow=0.02)
    (work,) = [each for each in chat.evidence.objectives if each.name == "work"]
    assert work.replicas == pytest.approx(30.0 / KINDS["lmdeploy"].work)
    assert chat.evidence.slo_attainment == pytest.approx(0.98, abs=1e-3)
    reason = "an engine exposes no counters of requests and tokens"
    assert chat.evidence.slo.endswith(f". It is not used for sizing: {reason}")


def test_gauges_that_are_refreshed_late_make_no_request_without_a_first_token(engine):
    """LMDeploy's gauges are those of every tenth second: here 60 and 5 requests, by turns."""
    chat = engine("lmdeploy", lambda traffic: lmdeploy(traffic, running=60.0 if traffic.served % 160 < 80 else 5.0))
    chat.run(900)
    assert chat.estimate(Estimate.UNREAD) == 0.0


def test_configured_work_and_an_slo_size_nim_together(engine):
    chat = engine("nim", nim, Slo(), objectives=Objectives(work=10.0)).run(300)
    assert {each.name for each in chat.evidence.objectives} == {"work", "kv_cache", "slo"}
