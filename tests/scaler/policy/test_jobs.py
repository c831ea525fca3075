"""A number of Jobs is the work in hand, and nothing keeps it above that, because Jobs end by themselves."""

import math

import pytest

from scaler.model import Reason
from scaler.policy.columns import Signal, Spec

OF_JOBS = {"keep_warm": 0.0, "band": 0.0, "lease_max": 0.0, "jobs": True}
ASLEEP, NO_WAKE_SOURCE = (0, False, Reason.ASLEEP), (0, False, Reason.NO_WAKE_SOURCE)
UNKNOWN = (None, True, Reason.UNKNOWN)


def of_jobs(*, pods=True, **more):
    return Spec(0, 8, ((Signal.WORK, 1.0),), pods=pods, gateway=True, **{**OF_JOBS, **more})


@pytest.fixture
def queue(workload):
    """One Job for each entry of a queue; its Jobs have no targets."""
    return workload(of_jobs(pods=False))


@pytest.fixture
def engines(workload):
    """Jobs that are engines with targets of their own, behind a gateway."""
    return workload(of_jobs())


def test_decision_is_the_work_in_hand_and_zero_at_once(queue, fresh):
    assert queue.step(**fresh(waiting=3)) == (3, True, Reason.QUEUED)
    assert queue.step(after=5, **fresh(waiting=1, running=1)) == (2, True, Reason.SERVING)
    assert queue.step(after=5, **fresh(running=1)) == (1, True, Reason.SERVING)
    assert queue.step(after=5, **fresh()) == ASLEEP


def test_after_the_last_job_none_is_loading(engines, fresh):
    assert engines.step(**fresh(held=1, pods=0)) == (1, True, Reason.QUEUED)
    assert engines.step(after=5, **fresh(running=1)) == (1, True, Reason.SERVING)
    assert engines.step(after=5, **fresh(pods=0)) == ASLEEP


def test_request_that_went_away_starts_no_job(engines, fresh):
    assert engines.step(**fresh(pods=0)) == ASLEEP
    assert engines.step(after=1, **fresh(held=1, pods=0)) == (1, True, Reason.QUEUED)
    assert engines.step(after=1, **fresh(pods=0)) == ASLEEP


def test_gpu_that_is_busy_starts_no_job(queue, fresh):
    queue.step(**fresh(running=1, busiest_gpu=0.9))
    assert queue.step(after=5, **fresh(busiest_gpu=0.9)) == ASLEEP


@pytest.mark.parametrize("spec", [{}, {"hold": 0.0}, {"settle": 20.0}])
def test_number_of_jobs_is_never_held(workload, fresh, spec):
    queue = workload(of_jobs(pods=False, **spec))
    assert queue.step(**fresh(waiting=3)) == (3, True, Reason.QUEUED)
    blind = fresh(waiting=math.nan, gateway_fresh=False, waker_fresh=False)
    assert [queue.step(after=5, **blind) for _ in range(100)] == [UNKNOWN] * 100


def test_error_ends_with_the_next_reading(queue, fresh):
    unseen = {"waiting": math.nan, "running": math.nan, "held": math.nan, "pods": math.nan}
    blind = fresh(**unseen, gateway_fresh=False, waker_fresh=False)
    assert queue.step(**blind) == UNKNOWN
    assert queue.step(after=5, **fresh(pods=math.nan)) == ASLEEP
    assert queue.step(after=5, **blind) == (0, False, Reason.HELD)
    assert queue.step(after=600, **blind) == (0, False, Reason.HELD)
    assert queue.step(after=5, **fresh(waiting=2)) == (2, True, Reason.QUEUED)


def test_known_requests_count_while_a_target_is_stale(engines, fresh):
    silent = {"pods_fresh": 1}
    for _ in range(100):  # however long: missing pods are never imputed
        assert engines.step(after=5, **fresh(pods=2, waiting=3, running=1, **silent)) == (4, True, Reason.HELD)
    assert engines.step(after=5, **fresh(pods=2, running=1, **silent)) == (1, True, Reason.HELD)
    assert engines.step(after=5, **fresh(pods=2, **silent)) == UNKNOWN


def test_no_job_is_kept_as_a_wake_source(engines, fresh):
    unseen = {"waker_fresh": False}
    assert engines.step(**fresh(running=1, **unseen)) == (1, True, Reason.SERVING)
    assert engines.step(after=5, **fresh(**unseen)) == NO_WAKE_SOURCE


def test_freeze_starts_no_job_and_never_down_keeps_none(queue, fresh):
    assert queue.step(**fresh(waiting=3)) == (3, True, Reason.QUEUED)
    assert queue.step(after=5, overrides={"frozen": True}, **fresh(waiting=3)) == (0, False, Reason.FROZEN)
    assert queue.step(after=5, **fresh(waiting=3)) == (3, True, Reason.QUEUED)
    assert queue.step(after=5, overrides={"never_down": True}, **fresh()) == ASLEEP
    assert queue.step(after=5, **fresh(waiting=3)) == (3, True, Reason.QUEUED)


def test_floor_and_ceiling_hold_for_jobs(queue, fresh):
    assert queue.step(overrides={"floor": 2.0}, **fresh()) == (2, True, Reason.WARM)
    assert queue.step(after=5, overrides={"ceiling": 2.0}, **fresh(waiting=5)) == (2, True, Reason.SCHEDULED)


def test_configured_keep_warm_time_holds_for_jobs(workload, fresh):
    queue = workload(of_jobs(pods=False, keep_warm=60.0))
    assert queue.step(**fresh(waiting=1)) == (1, True, Reason.QUEUED)
    assert queue.step(after=5, **fresh()) == (1, True, Reason.WARM)
    assert queue.step(after=60, **fresh()) == ASLEEP
