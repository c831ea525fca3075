"""Invariants 6 and 7: idleness needs proof, zero a wake source; loading is neither idleness nor capacity."""

import math

from scaler.model import Reason
from scaler.policy.columns import Signal, Spec

IDLE = {"wanted": 1.0, "ready": 1.0}


def test_workload_idle_for_the_keep_warm_time_falls_asleep(chat, fresh):
    assert chat.step(**fresh(running=1, **IDLE)) == (1, True, Reason.SERVING)
    assert chat.step(after=5, **fresh(**IDLE)) == (1, True, Reason.WARM)
    assert chat.step(after=299, **fresh(**IDLE)) == (1, True, Reason.WARM)
    assert chat.step(after=1, **fresh(**IDLE)) == (0, False, Reason.ASLEEP)


def test_counter_shows_a_request_between_two_scrapes(chat, fresh):
    chat.step(**fresh(**IDLE))
    # At 200 s a counter rises although no request was ever visible: the keep-warm time starts again from there.
    chat.step(after=200, **fresh(**IDLE, active_at=1200.0))
    assert chat.step(after=299, **fresh(**IDLE, active_at=1200.0)) == (1, True, Reason.WARM)
    assert chat.step(after=1, **fresh(**IDLE, active_at=1200.0)) == (0, False, Reason.ASLEEP)


def test_batch_job_on_the_gpu_without_requests_is_not_idle(chat, fresh):
    chat.step(**fresh(**IDLE))
    assert chat.step(after=299, **fresh(**IDLE, busiest_gpu=0.9)) == (1, True, Reason.GPU_BUSY)
    assert chat.step(after=300, **fresh(**IDLE, busiest_gpu=0.0)) == (1, True, Reason.WARM)
    assert chat.step(after=300, **fresh(**IDLE, busiest_gpu=0.0)) == (0, False, Reason.ASLEEP)


def test_stale_gpus_do_not_prove_idleness(chat, fresh):
    for _ in range(5):
        assert chat.step(after=300, **fresh(**IDLE, gpus_stale=True)) == (1, True, Reason.WARM)


def test_without_a_gateway_one_replica_is_kept(workload, fresh):
    lonely = workload(Spec(0, 8, ((Signal.WORK, 16.0),)))
    lonely.step(**fresh(**IDLE))
    decision = lonely.step(after=300, **{**fresh(**IDLE), "gateway_fresh": False, "waker_fresh": False})
    assert decision == (1, True, Reason.NO_WAKE_SOURCE)


def test_gateway_without_a_queue_is_no_wake_source(chat, fresh):
    mute = {**fresh(**IDLE), "waker_fresh": False, "held": math.nan}
    chat.step(**mute)
    assert chat.step(after=300, **mute) == (1, True, Reason.NO_WAKE_SOURCE)


def test_workload_with_a_minimum_stays_warm(workload, fresh):
    always = workload(Spec(2, 8, ((Signal.WORK, 16.0),), gateway=True))
    always.step(**fresh(pods=2, wanted=2.0, ready=2.0))
    assert always.step(after=9999, **fresh(pods=2, wanted=2.0, ready=2.0)) == (2, True, Reason.WARM)


def test_request_held_at_zero_wakes(chat, fresh):
    chat.step(**fresh(**IDLE))
    chat.step(after=300, **fresh(**IDLE))
    asleep = {"wanted": 0.0, "ready": 0.0, "pods": 0}
    assert chat.step(after=60, **fresh(**asleep)) == (0, False, Reason.ASLEEP)
    assert chat.step(after=1, **fresh(held=1, **asleep)) == (1, True, Reason.QUEUED)


def test_gateway_wakes_a_sleeping_workload_without_targets_and_count(chat, fresh):
    # Without Kubernetes, targets that vanish after a decision of zero are the sign of zero.
    chat.step(**fresh())
    assert chat.step(after=300, **fresh()) == (0, False, Reason.ASLEEP)
    gone = {**fresh(waiting=math.nan, running=math.nan), "pods_fresh": 0.0}
    assert chat.step(after=60, **gone) == (0, False, Reason.ASLEEP)
    assert chat.step(after=1, **{**gone, "held": 3.0}) == (1, True, Reason.QUEUED)


def test_loading_replica_is_neither_idle_nor_capacity(chat, fresh):
    loading = {"wanted": 1.0, "ready": 0.0, "pods": 0}
    for _ in range(10):  # ten minutes of loading; the request has timed out
        assert chat.step(after=60, **fresh(**loading)) == (1, True, Reason.LOADING)
    # Ready at last: only now does the keep-warm time begin.
    chat.step(after=1, **fresh(**IDLE))
    assert chat.step(after=299, **fresh(**IDLE)) == (1, True, Reason.WARM)
    assert chat.step(after=1, **fresh(**IDLE)) == (0, False, Reason.ASLEEP)


def test_loading_is_not_mistaken_for_an_outage(chat, fresh):
    loading = {"wanted": 2.0, "ready": 0.0, "pods": 0}
    # The gateway's queue is known, and what has never been ready holds no request: 40/16 = 2.5, so 3.
    assert chat.step(**fresh(held=40, **loading)) == (3, True, Reason.LOADING)


def test_missing_target_of_a_ready_pod_is_an_outage(chat, fresh):
    chat.step(**fresh(running=40, pods=3, wanted=3.0, ready=3.0))
    assert chat.step(after=1, **fresh(pods=0, wanted=3.0, ready=3.0)) == (3, True, Reason.HELD)


def test_idle_workload_found_at_zero_is_not_woken(chat, fresh):
    assert chat.step(**fresh(wanted=0.0, ready=0.0, pods=0)) == (0, False, Reason.ASLEEP)


def test_workload_at_zero_without_a_wake_source_stays_with_that_reason(workload, fresh):
    lonely = workload(Spec(0, 8, ((Signal.WORK, 16.0),)))
    idle = {**fresh(wanted=0.0, ready=0.0, pods=0), "gateway_fresh": False, "waker_fresh": False}
    assert lonely.step(**idle) == (0, False, Reason.NO_WAKE_SOURCE)


def test_workload_decided_at_zero_stays_asleep_until_the_cluster_follows(chat, fresh):
    chat.step(**fresh(**IDLE))
    assert chat.step(after=300, **fresh(**IDLE)) == (0, False, Reason.ASLEEP)
    # KEDA's cooldown: the replica is still there, and idle.
    assert chat.step(after=1, **fresh(**IDLE)) == (0, False, Reason.ASLEEP)
    assert chat.step(after=1, **fresh(running=1, **IDLE)) == (1, True, Reason.SERVING)


def test_missing_gateway_at_zero_wakes_no_workload(chat, fresh):
    # An endpoint picker may publish no queue while it has no backend: that is no request.
    chat.step(**fresh(**IDLE))
    chat.step(after=300, **fresh(**IDLE))
    mute = {**fresh(waiting=math.nan, running=math.nan, held=math.nan, pods=0), "waker_fresh": False}
    assert chat.step(after=60, **mute, wanted=0.0, ready=0.0) == (0, False, Reason.NO_WAKE_SOURCE)
    assert chat.step(after=60, **mute) == (0, False, Reason.NO_WAKE_SOURCE), "a listing that says none is enough"


def test_workload_at_zero_without_a_source_of_demand_stays(workload):
    lonely = workload(Spec(0, 8, ((Signal.WORK, 16.0),)))
    assert lonely.step(wanted=0.0, ready=0.0, pods_listed=0.0) == (0, False, Reason.NO_WAKE_SOURCE)


def test_pod_that_ends_before_its_count_falls_wakes_no_workload(chat, fresh):
    chat.step(**fresh(**IDLE))
    assert chat.step(after=300, **fresh(**IDLE)) == (0, False, Reason.ASLEEP)
    # KEDA has set zero: the end of the pod is reported first, the Deployment's count later.
    going = fresh(pods=0, wanted=1.0, ready=0.0, existing=0.0)
    assert chat.step(after=1, **going) == (0, False, Reason.ASLEEP)
    # A replica that a person starts by hand loads, and is not removed.
    assert chat.step(after=1, **{**going, "existing": 1.0}) == (1, True, Reason.LOADING)


def test_wanted_replica_that_does_not_exist_yet_is_loading(chat, fresh):
    chat.step(**fresh(held=1.0, pods=0, wanted=0.0, ready=0.0, existing=0.0))
    assert chat.step(after=1, **fresh(pods=0, wanted=1.0, ready=0.0, existing=0.0)) == (1, True, Reason.LOADING)
