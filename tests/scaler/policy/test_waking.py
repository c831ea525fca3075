"""A woken workload is not scaled down while it starts, nor one without state before its windows are filled."""

import math

import pytest

from scaler.model import Reason
from scaler.policy.columns import Signal, Spec

ASLEEP = {"pods": 0, "wanted": 0.0, "ready": 0.0}
STARTING = {"pods": 0, "wanted": 1.0, "ready": 0.0}


@pytest.fixture
def brief(workload):
    """Kept warm for 15 s only."""
    return workload(Spec(0, 8, ((Signal.WORK, 16.0),), keep_warm=15.0, gateway=True))


def test_request_that_gives_up_does_not_undo_the_wake(brief, fresh):
    brief.step(**fresh(**ASLEEP))
    assert brief.step(after=1, **fresh(held=1, **ASLEEP)) == (1, True, Reason.QUEUED)

    # KEDA has not written a 1 yet, and no request waits any more.
    assert brief.step(after=1, **fresh(**ASLEEP)) == (1, True, Reason.LOADING)
    assert brief.step(after=20, **fresh(**ASLEEP)) == (1, True, Reason.LOADING)


def test_slow_start_is_never_cut_down(brief, fresh):
    brief.step(**fresh(**ASLEEP))
    brief.step(after=1, **fresh(held=1, **ASLEEP))

    assert {brief.step(after=5, **fresh(**STARTING)) for _ in range(110)} == {(1, True, Reason.LOADING)}


def test_start_up_grace_ends_with_the_first_ready_replica(brief, fresh):
    brief.step(**fresh(**ASLEEP))
    brief.step(after=1, **fresh(held=1, **ASLEEP))
    ready = fresh(pods=1, wanted=1.0, ready=1.0)

    assert brief.step(after=60, **ready) == (1, True, Reason.WARM)
    assert brief.step(after=14, **ready) == (1, True, Reason.WARM)
    assert brief.step(after=1, **ready) == (0, False, Reason.ASLEEP)


def test_request_that_waits_for_the_first_replica_is_served_by_it(brief, fresh):
    brief.step(**fresh(**ASLEEP))
    brief.step(after=1, **fresh(held=1, **ASLEEP))

    assert brief.step(after=60, **fresh(held=1, pods=1, wanted=1.0, ready=1.0)) == (1, True, Reason.QUEUED)
    assert brief.step(after=1, **fresh(running=1, pods=1, wanted=1.0, ready=1.0)) == (1, True, Reason.SERVING)


def test_start_up_grace_is_limited(brief, fresh):
    brief.step(**fresh(**ASLEEP))
    grace = {"lease": 100.0}
    brief.step(after=1, overrides=grace, **fresh(held=1, **ASLEEP))

    assert brief.step(after=99, overrides=grace, **fresh(**ASLEEP)) == (1, True, Reason.LOADING)
    assert brief.step(after=1, overrides=grace, **fresh(**ASLEEP)) == (0, False, Reason.ASLEEP)


def test_hanging_start_without_requests_ends_after_grace_and_keep_warm_time(brief, fresh):
    brief.step(**fresh(**ASLEEP))
    grace = {"lease": 100.0}
    brief.step(after=1, overrides=grace, **fresh(held=1, **ASLEEP))
    assert brief.step(after=99, overrides=grace, **fresh(**STARTING)) == (1, True, Reason.LOADING)

    assert brief.step(after=1, overrides=grace, **fresh(**STARTING)) == (1, True, Reason.WARM)
    assert brief.step(after=14, overrides=grace, **fresh(**STARTING)) == (1, True, Reason.WARM)
    assert brief.step(after=1, overrides=grace, **fresh(**STARTING)) == (0, False, Reason.ASLEEP)


def test_pod_of_an_ended_start_wakes_no_workload_and_a_new_scale_up_does(brief, fresh):
    brief.step(**fresh(**ASLEEP))
    grace = {"lease": 100.0}
    brief.step(after=1, overrides=grace, **fresh(held=1, **ASLEEP))
    brief.step(after=100, overrides=grace, **fresh(existing=1.0, **STARTING))
    brief.step(after=15, overrides=grace, **fresh(existing=1.0, **STARTING))

    # Until KEDA has cooled down the pod is still there.
    assert brief.step(after=30, overrides=grace, **fresh(existing=1.0, **STARTING)) == (0, False, Reason.ASLEEP)
    assert brief.step(after=5, overrides=grace, **fresh(existing=0.0, **ASLEEP)) == (0, False, Reason.ASLEEP)
    assert brief.step(after=5, overrides=grace, **fresh(existing=1.0, **STARTING)) == (1, True, Reason.LOADING)


def test_response_after_the_start_up_grace_does_not_restart_it(brief, fresh):
    brief.step(**fresh(**ASLEEP))
    grace = {"lease": 100.0}
    brief.step(after=1, overrides=grace, **fresh(held=1, **ASLEEP))
    assert brief.step(after=100, overrides=grace, **fresh(**STARTING)) == (1, True, Reason.WARM)

    # Between ticks nothing falls; the next tick takes it down.
    assert brief.step(after=15, overrides=grace, raise_only=True, **fresh(**STARTING)) == (1, True, Reason.WARM)
    assert brief.step(after=1, overrides=grace, **fresh(**STARTING)) == (0, False, Reason.ASLEEP)


def test_response_that_shows_no_replica_does_not_restart_the_start_up_grace(brief, fresh):
    brief.step(**fresh(**ASLEEP))
    grace = {"lease": 100.0}
    brief.step(after=1, overrides=grace, **fresh(held=1, **ASLEEP))

    # Between ticks nothing falls, so it stays woken, though the cluster has not begun the start.
    assert brief.step(after=100, overrides=grace, raise_only=True, **fresh(**ASLEEP))[:2] == (1, True)
    assert brief.step(after=1, overrides=grace, **fresh(**STARTING)) == (1, True, Reason.WARM)
    assert brief.step(after=15, overrides=grace, **fresh(**STARTING)) == (0, False, Reason.ASLEEP)


def test_hanging_start_continues_while_a_request_waits(brief, fresh):
    brief.step(**fresh(**ASLEEP))
    grace = {"lease": 100.0}
    brief.step(after=1, overrides=grace, **fresh(held=1, **ASLEEP))

    assert brief.step(after=7200, overrides=grace, **fresh(held=1, **STARTING)) == (1, True, Reason.LOADING)


def test_next_request_restarts_the_grace_of_an_ended_start(brief, fresh):
    brief.step(**fresh(**ASLEEP))
    grace = {"lease": 100.0}
    brief.step(after=1, overrides=grace, **fresh(held=1, **ASLEEP))
    brief.step(after=100, overrides=grace, **fresh(**STARTING))
    assert brief.step(after=15, overrides=grace, **fresh(**STARTING)) == (0, False, Reason.ASLEEP)
    brief.step(after=1, overrides=grace, **fresh(held=1, **STARTING))

    assert brief.step(after=99, overrides=grace, **fresh(**STARTING)) == (1, True, Reason.LOADING)


def test_workload_found_at_zero_and_woken_has_a_start_up_grace(brief, fresh):
    brief.step(**fresh(held=1, **ASLEEP))

    assert brief.step(after=1, **fresh(**ASLEEP)) == (1, True, Reason.LOADING)


def test_second_sleep_does_not_wait_for_the_first_grace(brief, fresh):
    brief.step(**fresh(**ASLEEP))
    brief.step(after=1, **fresh(held=1, **ASLEEP))
    brief.step(after=30, **fresh(running=1, pods=1, wanted=1.0, ready=1.0))
    brief.step(after=1, **fresh(pods=1, wanted=1.0, ready=1.0))
    assert brief.step(after=15, **fresh(pods=1, wanted=1.0, ready=1.0)) == (0, False, Reason.ASLEEP)
    assert brief.step(after=1, **fresh(**ASLEEP)) == (0, False, Reason.ASLEEP)


def test_start_without_state_holds_the_replicas_until_the_windows_are_filled(workload, fresh):
    chat = workload(Spec(0, 8, ((Signal.WORK, 16.0),), gateway=True, young=120.0))
    six = {"pods": 6, "wanted": 6.0, "ready": 6.0}

    assert chat.step(**fresh(running=1, **six)) == (6, True, Reason.SERVING)
    assert chat.step(after=119, **fresh(running=1, **six)) == (6, True, Reason.SERVING)
    assert chat.step(after=1, **fresh(running=1, **six)) == (1, True, Reason.SERVING)


def test_demand_may_raise_a_workload_without_state(workload, fresh):
    chat = workload(Spec(0, 8, ((Signal.WORK, 16.0),), gateway=True, young=120.0))

    assert chat.step(**fresh(running=100, pods=2, wanted=2.0, ready=2.0)) == (7, True, Reason.SERVING)


def test_windows_fill_from_the_first_readings_on(workload, fresh):
    chat = workload(Spec(0, 8, ((Signal.WORK, 16.0),), gateway=True, young=120.0))
    six = {"wanted": 6.0, "ready": 6.0}

    assert chat.step(pods_listed=6.0, **six) == (6, True, Reason.HELD)
    assert chat.step(after=200, **fresh(running=1, pods=6, **six)) == (6, True, Reason.SERVING)
    assert chat.step(after=119, **fresh(running=1, pods=6, **six)) == (6, True, Reason.SERVING)


def test_idle_workload_without_state_does_not_sleep_before_the_windows_are_filled(workload, fresh):
    chat = workload(Spec(0, 8, ((Signal.WORK, 16.0),), keep_warm=15.0, gateway=True, young=120.0))
    two = {"pods": 2, "wanted": 2.0, "ready": 2.0}

    assert chat.step(**fresh(**two)) == (2, True, Reason.WARM)
    assert chat.step(after=119, **fresh(**two)) == (2, True, Reason.WARM)
    assert chat.step(after=1, **fresh(**two)) == (0, False, Reason.ASLEEP)


def test_replicas_above_the_maximum_are_not_held(workload, fresh):
    chat = workload(Spec(0, 4, ((Signal.WORK, 16.0),), gateway=True, young=120.0))

    assert chat.step(**fresh(running=1, pods=6, wanted=6.0, ready=6.0))[0] == 4


NO_READINGS = {"pods_listed": 0.0, "wanted": 0.0, "ready": 0.0}


def test_sleeping_workload_without_readings_stays_asleep(chat, fresh):
    chat.step(**fresh(**ASLEEP))

    assert chat.step(after=1, **NO_READINGS) == (0, False, Reason.HELD)
    assert chat.step(after=86400, **NO_READINGS) == (0, False, Reason.HELD)


def test_sleeping_workload_is_woken_by_a_refused_request_whatever_else_is_missing(workload, fresh):
    listed = workload(Spec(0, 8, ((Signal.WORK, 16.0),), keep_warm=15.0, gateway=True, fixed=True))
    listed.step(**fresh())
    assert listed.step(after=15, **fresh()) == (0, False, Reason.ASLEEP)
    # The engine has ended and is still in the static list, and no cluster counts replicas. The gateway answers.
    missing = fresh(waiting=math.nan, running=math.nan) | {"pods_fresh": 0}
    assert listed.step(after=15, **missing)[:2] == (0, False)
    refused = listed.now + 1
    assert listed.step(after=1, **missing, refused_at=refused) == (1, True, Reason.QUEUED)
    assert listed.step(after=1, **missing, refused_at=refused)[:2] == (1, True)


def test_sleeping_workload_is_woken_by_a_refused_request_at_an_incomplete_target(brief, fresh):
    brief.step(**fresh(**ASLEEP))
    incomplete = fresh(**ASLEEP) | {"gateway_partial": True}
    assert brief.step(after=1, **incomplete)[:2] == (0, False)
    assert brief.step(after=1, **incomplete, refused_at=brief.now + 1) == (1, True, Reason.QUEUED)


def test_sleeping_workload_without_readings_is_woken_if_configured(workload, fresh):
    chat = workload(Spec(0, 8, ((Signal.WORK, 16.0),), hold=300.0, gateway=True, wakes_blind=True))
    chat.step(**fresh(**ASLEEP))

    assert chat.step(after=1, **NO_READINGS) == (0, False, Reason.HELD)
    assert chat.step(after=300, **NO_READINGS) == (0, False, Reason.HELD)
    assert chat.step(after=1, **NO_READINGS) == (1, True, Reason.HELD)
    assert chat.step(after=60, **NO_READINGS) == (1, True, Reason.HELD)
    # Now that KEDA has written a 1 an error leaves it there.
    assert chat.step(after=1, pods_listed=1.0, wanted=1.0, ready=1.0) == (None, True, Reason.UNKNOWN)
