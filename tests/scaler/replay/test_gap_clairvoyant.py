"""Tests the lower bound for policies that start on a request. Unless a test says so, numbers are computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.replay.columns import ServerColumns, Trace
from scaler.replay.gap_clairvoyant import alone_s, gap_clairvoyant_gpu_hours
from scaler.replay.policies import parse
from scaler.replay.run import run, score
from scaler.replay.servers import ReplaySlo, ServerProfile
from tests.budget import examples

# A step of 0.01 s and 100 prompt tokens at 1000/s: the first token after 0.11 s, the third and last after 0.13 s.
REQUEST = (100, 3)


def slo(share):
    return ReplaySlo(1.0, 0.0, share=share)


def pod_s(load, profile):
    return 3600 * gap_clairvoyant_gpu_hours(load, profile)


def test_request_alone_takes_its_prompt_and_then_a_step_per_token(load, profile, deployment):
    one = load([(0.0, 100, 3), (1.0, 5, 1), (2.0, 50, 200)])
    server = profile(per_sequence=0.001, per_token=1e-5)
    played = deployment(server.server, [(0.0, 100, 3), (1.0, 5, 1), (2.0, 50, 200)]).scale(1).until(100)
    assert alone_s(one, server) == pytest.approx(played.done - played.at)


def test_starts_that_no_slo_feels_are_slept_through_whatever_they_delay(load, profile):
    each = load([(1000.0 * index, *REQUEST) for index in range(1, 12)])
    # Ready half a second after the request, which then takes 0.13 s; the last one arrives at the end.
    assert pod_s(each, profile(start_s=0.5, slo=slo(0.99))) == pytest.approx(10 * 0.63)


def test_without_allowed_misses_every_judged_gap_is_kept_warm(load, profile):
    each = load([(1000.0 * index, *REQUEST) for index in range(1, 12)])
    # The load begins with a gap of its own, whose request is judged too.
    assert pod_s(each, profile(start_s=60.0, slo=slo(1.0))) == pytest.approx(11_000.0)


def test_gaps_are_slept_through_as_far_as_misses_are_allowed_and_the_longest_first(load, profile):
    gaps = [500.0] * 8 + [2000.0, 3000.0]
    at = 400.0 + np.concatenate([[0.0], np.cumsum(gaps)])
    each = load([(one, *REQUEST) for one in (*at, at[-1])])
    # 12 requests are judged, 3 may miss: the last two are one period, whose gap of 3000 s costs two. A slept gap saves
    # all but the start and the request, 60.13 s; the last one all but the 0.13 s that are before the end of the load.
    # 3000 s for two misses, then 2000 s for one.
    saved = (3000.0 - 0.13) + (2000.0 - 60.13)
    assert pod_s(each, profile(start_s=60.0, slo=slo(0.75))) == pytest.approx(at[-1] - saved)


def test_requests_that_arrive_during_a_start_wait_for_it_and_miss_too(load, profile):
    # Three requests in 40 s, a gap of 2000 s, and the same again, twice.
    each = load([(400.0 + 2040.0 * turn + 20.0 * index, *REQUEST) for turn in range(3) for index in range(3)])
    # Nine requests, six may miss: two gaps. Awake for the start of 60 s and the first request of each period; the gaps
    # of 20 s are within the start. The first gap, of 400 s, costs as many misses and saves less.
    starts = 60.13 + 40.0
    assert pod_s(each, profile(start_s=60.0, slo=slo(1 / 3))) == pytest.approx(440.13 + starts, abs=0.01)


def test_requests_of_the_first_minutes_are_not_judged(load, profile):
    each = load([(250.0, *REQUEST), (10_000.0, *REQUEST)])
    # The gap before the first is slept through, the other one is kept warm from the start on.
    assert pod_s(each, profile(start_s=60.0, slo=slo(1.0))) == pytest.approx(9750.0)


def test_bound_counts_every_gpu_of_a_replica(load, profile):
    each = load([(1000.0 * index, *REQUEST) for index in range(1, 12)])
    one, four = (gap_clairvoyant_gpu_hours(each, profile(start_s=60.0, gpus=gpus, slo=slo(0.9))) for gpus in (1, 4))
    assert four == pytest.approx(4 * one)


def test_single_request_at_the_very_beginning_costs_nothing(load, profile):
    assert gap_clairvoyant_gpu_hours(load([(0.0, *REQUEST)]), profile(start_s=60.0)) == 0.0


@given(
    st.lists(st.floats(0.0, 900.0), min_size=1, max_size=40),
    st.sampled_from(["knative", "tidegate:keep-warm=60", "keda-waiting+running:min=0,threshold=1", "static"]),
    st.sampled_from([0.5, 0.8, 0.95]),
    st.sampled_from([0.0, 20.0, 90.0]),
)
@settings(max_examples=examples(40))
def test_no_policy_that_starts_on_a_request_and_meets_the_slo_is_below_the_bound(
    profile_of, gaps, policy, share, start_s
):
    at = np.cumsum(gaps)
    each, server = Trace("random", at, np.full(len(at), 100), np.full(len(at), 30)), profile_of(start_s, share)
    scored = score(run(each, server, parse(policy).baseline()))
    if scored.slo_met_ratio >= share:
        assert gap_clairvoyant_gpu_hours(each, server) <= scored.gpu_hours + 1e-9


@pytest.fixture(scope="module")
def profile_of():
    engine = ServerColumns(0.01, 0.0, 0.0, 1000.0, chunk=2048, batch=256, kv_tokens=1e9, slots=0)
    return lambda start_s, share: ServerProfile("P", engine, start_s, 1, slo(share))
