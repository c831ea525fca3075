"""Compares the engine with exact results of queueing theory."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scaler.replay.columns import FINISHED, PROMPT_TOKENS, TOKENS
from scaler.replay.metric_pages import AT_GATE, RUNNING, WAITING, look

TICK = 1e-3  # one token of work: an exponential service time in whole tokens of a millisecond


def erlang_c(servers, offered):
    """The probability of waiting in M/M/c (Erlang, 1917). offered: arrival rate times mean service time."""
    last = offered**servers / factorial(servers) * servers / (servers - offered)
    return last / (sum(offered**k / factorial(k) for k in range(servers)) + last)


@pytest.mark.parametrize(("servers", "rate"), [(1, 0.7), (2, 1.4), (5, 4.0), (10, 8.5)])
def test_waiting_times_are_those_of_an_m_m_c_queue(deployment, server, servers, rate):
    runs = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        count = 40_000
        at = np.cumsum(rng.exponential(1.0 / rate, count))
        work = np.maximum(1, np.round(rng.exponential(1.0 / TICK, count)).astype(int))
        queue = deployment(server(step=TICK, prompt_rate=1e15, slots=1), list(zip(at, work * 0 + 1, work, strict=True)))
        queue.scale(servers).until(at[-1] + 1000)
        runs.append(np.mean((queue.first - TICK - queue.at)[2000:]))
    expected = erlang_c(servers, rate) / (servers - rate)

    # Eight independent runs: their mean is within 3.5 standard errors (Student's t, 7 degrees: 99 %).
    assert np.mean(runs) == pytest.approx(expected, abs=3.5 * np.std(runs, ddof=1) / np.sqrt(len(runs)))


def test_littles_law_holds(deployment, server):
    rng = np.random.default_rng(1)
    count, rate = 20_000, 20.0
    at = np.cumsum(rng.exponential(1.0 / rate, count))
    load = list(zip(at, rng.integers(1, 800, count), rng.integers(1, 120, count), strict=True))
    fleet = deployment(server(0.01, 1e-4, 1e-7, 8000.0), load).scale(4)
    moments = np.arange(0.0, at[-1] + 60, 0.5)
    inside = []
    for moment in moments:
        observation = look(fleet.until(moment).world, fleet.server)
        inside.append(observation[WAITING] + observation[RUNNING] + observation[AT_GATE])

    # L = lambda W over the whole span, at the end of which no request is in the system: both are the same area.
    assert inside[-1] == 0.0
    assert np.mean(inside) * moments[-1] == pytest.approx((fleet.done - fleet.at).sum(), rel=0.01)


requests = st.lists(
    st.tuples(st.floats(0.0, 20.0), st.integers(1, 3000), st.integers(1, 200)), min_size=1, max_size=60
).map(sorted)
scale_changes = st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(0, 6), st.floats(0.0, 5.0)), max_size=12)


# The fixture is a class: no state is shared between examples.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(requests, scale_changes, st.integers(1, 8), st.sampled_from([0, 1, 3]))
def test_every_request_and_token_is_served_once_under_any_scaling(
    deployment, server, load, scale_changes, batch, slots
):
    fleet = deployment(server(0.01, 1e-4, 1e-6, 5000.0, chunk=256, batch=batch, kv=4000, slots=slots), load)
    fleet.scale(1)
    at = 0.0
    for wait, replicas, start_s in scale_changes:
        at += wait
        fleet.until(at).scale(replicas, start_s)
    fleet.until(at + 20.0).scale(2).until(at + 2000.0)

    assert fleet.world.counts[FINISHED] == len(load)
    assert fleet.world.counts[PROMPT_TOKENS] == sum(prompt for _, prompt, _ in load)
    assert fleet.world.counts[TOKENS] == sum(output for _, _, output in load)
    assert (fleet.at < fleet.first).all()
    assert (fleet.first <= fleet.done).all()
    shortest = 0.01 * np.array([output for _, _, output in load])
    assert (fleet.done - fleet.at >= shortest - 1e-6).all()
