"""Fresh readings that are lower bounds, as of an engine without one of its metrics, raise decisions and lower none."""

from __future__ import annotations

import math

import pytest

from scaler.model import Reason
from scaler.policy.columns import Signal, Spec

WORK = ((Signal.WORK, 16.0),)
ASLEEP = {"pods": 0, "wanted": 0.0, "ready": 0.0}
GATEWAY_PARTIAL, PODS_PARTIAL = {"gateway_partial": True}, {"pods_partial": 1}


@pytest.fixture
def fleet(workload):
    """16 requests per replica, 0 to 8 replicas, a keep-warm time, a bound for pods and a hold of one, two and five
    minutes."""
    return workload(Spec(0, 8, WORK, keep_warm=60.0, impute_after=120.0, hold=300.0, gateway=True))


@pytest.mark.parametrize("incomplete", [GATEWAY_PARTIAL, PODS_PARTIAL])
def test_incomplete_readings_raise_at_once_and_lower_nothing(fleet, fresh, incomplete):
    assert fleet.step(**fresh(running=60, pods=4)) == (4, True, Reason.SERVING)
    assert fleet.step(after=1, **fresh(running=1, pods=4, **incomplete)) == (4, True, Reason.INCOMPLETE)
    assert fleet.step(after=1, **fresh(running=100, pods=4, **incomplete)) == (7, True, Reason.INCOMPLETE)
    assert fleet.step(after=1, **fresh(running=1, pods=4, **incomplete)) == (7, True, Reason.INCOMPLETE)
    assert fleet.step(after=1, **fresh(running=1, pods=4)) == (1, True, Reason.SERVING)


def test_requests_that_an_incomplete_gateway_hides_keep_a_workload_awake(fleet, fresh):
    fleet.step(**fresh(running=1))
    for _ in range(10):
        assert fleet.step(after=60, **fresh(**GATEWAY_PARTIAL)) == (1, True, Reason.INCOMPLETE)
    # The keep-warm time begins with the first reading that can prove idleness.
    assert fleet.step(after=1, **fresh()) == (1, True, Reason.WARM)
    assert fleet.step(after=60, **fresh()) == (0, False, Reason.ASLEEP)


def test_incomplete_pods_are_taken_to_be_like_the_others_after_their_time(fleet, fresh):
    fleet.step(**fresh(running=60, pods=4))
    assert fleet.step(after=1, **fresh(running=28, pods=4, pods_partial=2)) == (4, True, Reason.INCOMPLETE)
    assert fleet.step(after=119, **fresh(running=28, pods=4, pods_partial=2)) == (4, True, Reason.INCOMPLETE)
    assert fleet.step(after=1, **fresh(running=28, pods=4, pods_partial=2)) == (2, True, Reason.SERVING)
    # Fewer than half say nothing about the rest, and neither do pods about what a gateway hides.
    assert fleet.step(after=1, **fresh(running=1, pods=4, pods_partial=3)) == (2, True, Reason.INCOMPLETE)
    hidden = fresh(running=1, pods=4, pods_partial=2, **GATEWAY_PARTIAL)
    assert fleet.step(after=1, **hidden) == (2, True, Reason.INCOMPLETE)


def test_incomplete_reading_is_reported_after_its_time(workload, fresh):
    chat = workload(Spec(0, 8, WORK, hold=300.0, settle=5.0, gateway=True))
    chat.step(**fresh(running=20, pods=2))
    assert chat.step(after=1, **fresh(running=1, pods=2, **PODS_PARTIAL)) == (2, True, Reason.SERVING)
    assert chat.step(after=4.9, **fresh(running=1, pods=2, **PODS_PARTIAL)) == (2, True, Reason.SERVING)
    assert chat.step(after=0.1, **fresh(running=1, pods=2, **PODS_PARTIAL)) == (2, True, Reason.INCOMPLETE)


def test_sleeping_workload_keeps_its_reason_until_an_incomplete_reading_is_reported(workload, fresh):
    spec = Spec(0, 8, WORK, hold=300.0, settle=5.0, gateway=True)
    known, unknown = workload(spec), workload(spec)
    assert known.step(**fresh(**ASLEEP)) == (0, False, Reason.ASLEEP)
    assert known.step(after=1, **fresh(**ASLEEP, **GATEWAY_PARTIAL)) == (0, False, Reason.ASLEEP)
    assert known.step(after=4.9, **fresh(**ASLEEP, **GATEWAY_PARTIAL)) == (0, False, Reason.ASLEEP)
    assert known.step(after=0.1, **fresh(**ASLEEP, **GATEWAY_PARTIAL)) == (0, False, Reason.INCOMPLETE)
    # Without an earlier decision there is no reason to keep.
    assert unknown.step(**fresh(**ASLEEP, **GATEWAY_PARTIAL)) == (0, False, Reason.INCOMPLETE)


@pytest.mark.parametrize("wanted", [0.0, math.nan])
def test_sleeping_workload_whose_gateway_stays_incomplete_is_woken_if_configured(workload, fresh, wanted):
    spec = Spec(0, 8, WORK, hold=300.0, gateway=True)
    careful, careless = workload(spec), workload(Spec(0, 8, WORK, hold=300.0, gateway=True, wakes_blind=True))
    asleep = {"pods": 0, "wanted": wanted}
    for chat in (careful, careless):
        chat.step(**fresh(**ASLEEP))
        assert chat.step(after=1, **fresh(**asleep, **GATEWAY_PARTIAL)) == (0, False, Reason.INCOMPLETE)
        assert chat.step(after=300, **fresh(**asleep, **GATEWAY_PARTIAL)) == (0, False, Reason.INCOMPLETE)
    assert careful.step(after=0.1, **fresh(**asleep, **GATEWAY_PARTIAL)) == (0, False, Reason.INCOMPLETE)
    assert careless.step(after=0.1, **fresh(**asleep, **GATEWAY_PARTIAL)) == (1, True, Reason.INCOMPLETE)


def test_wake_by_incomplete_readings_is_for_the_requests_that_are_known(fleet, fresh):
    fleet.step(**fresh(**ASLEEP))
    # The smoothed work is of an earlier time: it wakes nothing, and sizes no wake.
    asleep = fresh(**ASLEEP, **GATEWAY_PARTIAL)
    assert fleet.step(after=1, work=40.0, **asleep) == (0, False, Reason.INCOMPLETE)
    assert fleet.step(after=1, work=40.0, **{**asleep, "held": 1.0}) == (1, True, Reason.INCOMPLETE)
    # Awake, it counts.
    assert fleet.step(after=1, work=40.0, **fresh(held=1, **GATEWAY_PARTIAL)) == (3, True, Reason.INCOMPLETE)


def test_first_decision_waits_for_complete_readings_for_the_hold(workload, fresh):
    chat = workload(Spec(0, 8, WORK, hold=300.0, gateway=True))
    assert chat.step(**fresh(**PODS_PARTIAL)) == (None, True, Reason.UNKNOWN)
    assert chat.step(after=300, **fresh(**PODS_PARTIAL)) == (None, True, Reason.UNKNOWN)
    assert chat.step(after=0.1, **fresh(**PODS_PARTIAL)) == (1, True, Reason.INCOMPLETE)


def test_known_jobs_run_and_a_number_of_jobs_is_never_held(workload, fresh):
    jobs = workload(Spec(0, 8, ((Signal.WORK, 1.0),), hold=300.0, gateway=True, jobs=True))
    assert jobs.step(**fresh(waiting=3, pods=0)) == (3, True, Reason.QUEUED)
    assert jobs.step(after=1, **fresh(waiting=2, pods=0, **GATEWAY_PARTIAL)) == (2, True, Reason.INCOMPLETE)
    for after in (1, 301):
        assert jobs.step(after=after, **fresh(pods=0, **GATEWAY_PARTIAL)) == (None, True, Reason.UNKNOWN)


def test_mean_over_a_part_of_the_engines_lowers_nothing(workload, fresh):
    chat = workload(Spec(0, 8, ((Signal.WORK, 16.0), (Signal.KV_CACHE, 0.5)), gateway=True))
    busy = fresh(running=60, pods=4, wanted=4.0, ready=4.0)
    idle = {**busy, "running": 1}
    assert chat.step(**busy) == (4, True, Reason.SERVING)
    assert chat.step(after=1, **idle, kv_partial=True) == (4, True, Reason.INCOMPLETE)
    assert chat.step(after=1, **idle) == (1, True, Reason.SERVING)


def test_arrivals_raise_a_held_decision_only_while_a_request_is_known_to_be_in_hand(workload, fresh):
    spec = Spec(0, 8, ((Signal.WORK, 16.0), (Signal.SLO, 1.0)), hold=300.0, gateway=True, falls_back=True)
    silent = {**fresh(), "pods_fresh": 0}

    def needing(replicas):
        return {"signals": (math.nan, math.nan, math.nan, replicas)}

    awake, asleep = workload(spec), workload(spec)
    assert awake.step(**fresh(running=1), **needing(2.5)) == (3, True, Reason.SERVING)
    assert awake.step(after=1, **silent, **needing(5.0)) == (3, True, Reason.HELD)
    assert awake.step(after=1, **{**silent, "held": 1}, **needing(5.0)) == (5, True, Reason.HELD)
    asleep.step(**fresh(**ASLEEP), **needing(0.0))
    stale = fresh(**ASLEEP) | {"gateway_fresh": False}
    assert asleep.step(after=1, **stale, **needing(0.5)) == (0, False, Reason.HELD)


def test_refused_request_wakes_a_sleeping_workload_without_readings(workload):
    chat = workload(Spec(2, 8, WORK, sleeps=True, keep_warm=15.0, gateway=True))
    asleep = {"pods_listed": 0.0, "wanted": 0.0}
    assert chat.step(**asleep) == (0, False, Reason.HELD)
    assert chat.step(after=1, **asleep, refused_at=chat.now) == (2, True, Reason.QUEUED)
