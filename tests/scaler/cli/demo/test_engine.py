"""The simulated engine equals a slow one that simulates every step."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.cli.demo.engine import EngineProfile, Request, SimulatedEngine

PROFILE = EngineProfile()
# Arrivals are multiples of this. No sum of step times is, so an arrival is always clearly before or after a step.
TICK_S = math.sqrt(2) / 100


def naive(profile: EngineProfile, requests: list[Request]) -> dict[int, tuple[float, float]]:
    """Computes the first token and the end of each request step by step and token by token."""
    queue, prefilling, decoding, done = list(requests), [], [], {}
    now = 0.0
    while queue or prefilling or decoding:
        if not prefilling and not decoding:
            now = max(now, queue[0].arrived_at)
        while queue and queue[0].arrived_at <= now and len(prefilling) + len(decoding) < profile.max_sequences:
            admitted = [entry["request"] for entry in (*prefilling, *decoding)] + [queue[0]]
            if sum(request.prompt_tokens + request.output_tokens for request in admitted) > profile.kv_tokens:
                break
            request = queue.pop(0)
            prefilling.append({"request": request, "left": request.prompt_tokens, "generated": 0})
        context = sum(entry["request"].prompt_tokens + entry["generated"] for entry in decoding)
        budget = profile.chunk_tokens - len(decoding)
        step_s = profile.step_s + profile.per_sequence_s * len(decoding) + profile.per_context_token_s * context
        finished_prompts = []
        for entry in prefilling:
            read = min(entry["left"], budget)
            entry["left"] -= read
            budget -= read
            step_s += read / profile.prefill_tokens_per_s
            if entry["left"] == 0:
                finished_prompts.append(entry)
        now += step_s
        for entry in decoding:
            entry["generated"] += 1
        for entry in finished_prompts:
            prefilling.remove(entry)
            entry["first"], entry["generated"] = now, 1
            decoding.append(entry)
        for entry in [entry for entry in decoding if entry["generated"] >= entry["request"].output_tokens]:
            decoding.remove(entry)
            done[entry["request"].number] = (entry["first"], now)
    return done


def live(
    profile: EngineProfile, requests: list[Request], looks: list[float]
) -> tuple[SimulatedEngine, dict[int, tuple[float, float]]]:
    """Runs the engine; advances it at each request and at `looks`."""
    engine, answers = SimulatedEngine(profile), []
    events = sorted([(request.arrived_at, request) for request in requests], key=lambda event: event[0])
    for at, request in sorted([*events, *((at, None) for at in looks)], key=lambda event: event[0]):
        answers += engine.advance(at)
        if request is not None:
            engine.submit(request, at)
    answers += engine.advance(1e6)
    return engine, {answer.request.number: (answer.first_token_at, answer.finished_at) for answer in answers}


@st.composite
def loads(draw):
    gaps = draw(st.lists(st.integers(0, 60), min_size=1, max_size=12))
    ticks, requests = 1, []
    for number, gap in enumerate(gaps):
        ticks += gap
        prompt, output = draw(st.integers(1, 6000)), draw(st.integers(1, 80))
        requests.append(Request(number, ticks * TICK_S, prompt, output))
    return requests


@settings(max_examples=60, deadline=None)
@given(loads(), st.lists(st.floats(0, 20), max_size=5), st.sampled_from([256, 3]), st.sampled_from([412_000, 9000]))
def test_closed_form_equals_the_sum_of_steps(requests, looks, sequences, kv_tokens):
    profile = replace(PROFILE, max_sequences=sequences, kv_tokens=kv_tokens)
    expected = naive(profile, requests)
    engine, actual = live(profile, requests, looks)
    assert actual.keys() == expected.keys()
    for number, times in expected.items():
        assert actual[number] == pytest.approx(times, abs=1e-6)
    assert engine.finished == len(requests)
    assert engine.prompt_tokens == sum(request.prompt_tokens for request in requests)
    assert engine.generated_tokens == sum(request.output_tokens for request in requests)


@settings(max_examples=40, deadline=None)
@given(loads(), st.lists(st.floats(0, 20), min_size=1, max_size=20))
def test_result_does_not_depend_on_when_it_is_advanced(requests, looks):
    engine, sent, done, before_s = SimulatedEngine(PROFILE), 0, 0, 0.0
    for at, request in sorted(
        [*((r.arrived_at, r) for r in requests), *((at, None) for at in looks)], key=lambda e: e[0]
    ):
        done += len(engine.advance(at))
        if request is not None:
            engine.submit(request, at)
            sent += 1
        assert sent == done + engine.unfinished == engine.finished + engine.waiting + engine.running
        assert 0.0 <= engine.kv_used <= 1.0
        assert 0.0 <= engine.busy_s(at) <= at
        assert engine.busy_s(at) >= before_s - 1e-9
        before_s = engine.busy_s(at)


def test_engine_without_requests_is_empty():
    engine, _ = live(PROFILE, [Request(n, n * TICK_S, 700, 20) for n in range(30)], [])
    busy_s = engine.busy_s(1e6)
    assert (engine.unfinished, engine.kv_used, engine.pending_prompt_tokens) == (0, 0.0, 0)
    assert engine.busy_s(2e6) == busy_s


def test_single_request_takes_the_time_of_the_docstring():
    _, times = live(PROFILE, [Request(0, 0.0, 1200, 3)], [])
    first = 0.0115 + 1200 / 12000
    assert times[0] == pytest.approx((first, first + 2 * 0.0116 + 6.5e-8 * (1201 + 1202)))


def test_request_larger_than_the_cache_is_refused():
    with pytest.raises(ValueError, match=r"request 7 is larger than the cache of 412000 tokens"):
        SimulatedEngine(PROFILE).submit(Request(7, 0.0, 412_000, 1), 0.0)


def test_request_waits_for_a_full_cache():
    engine = SimulatedEngine(replace(PROFILE, kv_tokens=5000))
    for number in range(2):
        engine.submit(Request(number, 0.0, 2500, 500), 0.0)
    engine.advance(0.001)
    assert (engine.running, engine.waiting) == (1, 1)
