"""Invariant 1: a missing reading is never a zero; the decision is held, then an error."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scaler.model import Reason
from scaler.policy.columns import Signal, Spec

GONE = {"pods_listed": 1.0, "pods_fresh": 0.0}


def test_unknown_readings_are_an_error_and_no_zero(chat):
    assert chat.step() == (None, True, Reason.UNKNOWN)


def test_stale_reading_never_scales_down(chat, fresh):
    # 100 requests at 16 each: 6.25, so 7
    assert chat.step(**fresh(running=100, pods=7)) == (7, True, Reason.SERVING)
    assert chat.step(after=1, **GONE) == (7, True, Reason.HELD)
    assert chat.step(after=299, **GONE) == (7, True, Reason.HELD)


def test_held_decision_becomes_an_error_after_the_hold(chat, fresh):
    chat.step(**fresh(running=100, pods=7))
    chat.step(after=1, **GONE)
    assert chat.step(after=300, **GONE) == (7, True, Reason.HELD)
    assert chat.step(after=1, **GONE) == (None, True, Reason.UNKNOWN)


def test_held_decision_is_a_floor_that_fresh_demand_may_raise(chat, fresh):
    chat.step(**fresh(running=20, pods=2))  # 20/16 = 1.25, so 2
    # The engines stop answering; the gateway still answers and holds 60: 60/16 = 3.75, so 4 at least.
    blind = {**GONE, "gateway_fresh": True, "waker_fresh": True, "held": 60.0}
    assert chat.step(after=1, **blind) == (4, True, Reason.HELD)
    assert chat.step(after=1, **{**blind, "held": 1.0}) == (4, True, Reason.HELD)


def test_fresh_demand_raises_even_after_the_hold(chat, fresh):
    chat.step(**fresh(running=20, pods=2))
    chat.step(after=1, **GONE)
    assert chat.step(after=301, **GONE) == (None, True, Reason.UNKNOWN)
    blind = {**GONE, "gateway_fresh": True, "waker_fresh": True, "held": 60.0}
    assert chat.step(after=1, **blind) == (4, True, Reason.HELD)


def test_decision_raised_after_the_hold_is_held_anew(chat, fresh):
    chat.step(**fresh(running=20, pods=2))
    chat.step(after=1, **GONE)
    blind = {**GONE, "gateway_fresh": True, "waker_fresh": True}
    # 60 held at 16 each: 3.75, so 4. Published for one tick only, no poll would read it.
    assert chat.step(after=301, **blind, held=60.0) == (4, True, Reason.HELD)
    assert chat.step(after=1, **blind, held=60.0) == (4, True, Reason.HELD)
    assert chat.step(after=299, **blind, held=10.0) == (4, True, Reason.HELD)
    assert chat.step(after=1, **blind, held=60.0) == (None, True, Reason.UNKNOWN)
    assert chat.step(after=1, **blind, held=70.0) == (5, True, Reason.HELD)


def test_partial_demand_does_not_reduce_replicas_set_by_hand_in_an_outage(chat, fresh):
    chat.step(**fresh(running=20, pods=2, wanted=2.0, ready=2.0))
    chat.step(after=1, **GONE, wanted=2.0, ready=2.0)
    blind = {**GONE, "gateway_fresh": True, "waker_fresh": True, "held": 60.0, "ready": 2.0}
    assert chat.step(after=301, **blind, wanted=6.0) == (None, True, Reason.UNKNOWN)
    assert chat.step(after=1, **blind, wanted=4.0) == (4, True, Reason.HELD)


def test_held_decision_is_never_inactive(chat, fresh):
    # Asleep by proof, and the cluster still runs a replica: then the gateway falls silent.
    chat.step(**fresh(wanted=1, ready=1))
    assert chat.step(after=300, **fresh(wanted=1, ready=1)) == (0, False, Reason.ASLEEP)
    silent = {"pods_listed": 1.0, "pods_fresh": 1.0, "waiting": 0.0, "running": 0.0, "wanted": 1.0, "ready": 1.0}
    assert chat.step(after=1, **silent) == (1, True, Reason.HELD)


def test_workload_at_zero_stays_asleep_in_an_outage(chat, fresh):
    chat.step(**fresh(wanted=1, ready=1))
    chat.step(after=300, **fresh(wanted=1, ready=1))
    dark = {"wanted": 0.0, "ready": 0.0, "pods_listed": 0.0}
    assert chat.step(after=1, **dark) == (0, False, Reason.HELD)
    # An error here would let KEDA's fallback wake every sleeper: an hour later it still sleeps.
    assert chat.step(after=3600, **dark) == (0, False, Reason.HELD)


def test_start_without_state_holds_the_replicas_of_the_cluster(chat):
    assert chat.step(**GONE, wanted=3.0, ready=3.0) == (3, True, Reason.HELD)
    assert chat.step(after=301, **GONE, wanted=3.0, ready=3.0) == (None, True, Reason.UNKNOWN)


def test_start_without_state_wakes_no_sleeping_workload(chat):
    assert chat.step(wanted=0.0, ready=0.0) == (0, False, Reason.HELD)


def test_demand_in_pods_is_zero_only_if_the_replicas_are(chat, fresh):
    chat.step(**fresh(running=5))
    gateway = {"held": 0.0, "gateway_fresh": True, "waker_fresh": True}
    assert chat.step(after=1, **GONE, **gateway) == (1, True, Reason.HELD)
    assert chat.step(after=1, wanted=0.0, ready=0.0, pods_listed=0.0, **gateway) == (0, False, Reason.ASLEEP)


def test_missing_pods_never_scale_down(chat, fresh):
    chat.step(**fresh(running=64, pods=4))
    partial = {**fresh(running=48, pods=4), "pods_fresh": 3.0}
    assert chat.step(after=1, **partial) == (4, True, Reason.HELD)


def test_unknown_list_of_pods_is_not_an_empty_one(chat, fresh):
    chat.step(**fresh(running=40, pods=3))
    assert chat.step(after=1, **fresh(pods=math.nan)) == (3, True, Reason.HELD)


def test_target_that_returns_counts_at_once(chat, fresh):
    chat.step(**fresh(running=100, pods=7))
    chat.step(after=1, **GONE)
    chat.step(after=301, **GONE)
    assert chat.step(after=1, **fresh(running=28, pods=7)) == (2, True, Reason.SERVING)
    assert math.isnan(chat.memory.held_since[0])


def test_unknown_objective_of_gpu_activity_holds(workload):
    batch = workload(Spec(0, 4, ((Signal.GPU_ENGINE, 0.8),), pods=False))
    assert batch.step(ready=2.0) == (None, True, Reason.UNKNOWN)


reading = st.one_of(st.just(math.nan), st.floats(0, 1000))
flag = st.booleans()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    moments=st.lists(
        st.fixed_dictionaries(
            {
                "after": st.floats(0, 400),
                "waiting": reading, "running": reading, "held": reading, "busiest_gpu": reading,
                "pods_listed": st.sampled_from([math.nan, 0.0, 1.0, 3.0]),
                "pods_fresh": st.sampled_from([0.0, 1.0, 3.0]),
                "gateway_fresh": flag, "waker_fresh": flag, "gpus_stale": flag,
                "wanted": st.sampled_from([math.nan, 0.0, 1.0, 5.0]),
                "ready": st.sampled_from([math.nan, 0.0, 1.0, 5.0]),
                "raise_only": flag,
            }
        ),
        max_size=12,
    ),
    minimum=st.sampled_from([0, 1, 2]),
    gateway=flag,
)  # fmt: skip
def test_every_decision_keeps_its_bounds_and_zero_is_always_inactive(workload, moments, minimum, gateway):
    subject = workload(Spec(minimum, 8, ((Signal.WORK, 16.0),), gateway=gateway))
    before = None
    for moment in moments:
        replicas, active, reason = subject.step(**moment)
        if replicas is None:
            assert reason is Reason.UNKNOWN
        else:
            assert (replicas == 0) == (not active)
            assert minimum <= replicas <= 8
            blind = math.isnan(moment["wanted"]) and not moment["gateway_fresh"] and moment["pods_fresh"] == 0
            if before not in (None, 0) and blind and not (moment["pods_listed"] == 0.0 and not gateway):
                assert replicas >= before, "an outage scaled something down"
        before = replicas if replicas is not None else before


@pytest.mark.parametrize("missing", ["waiting", "running", "held"])
def test_missing_part_of_the_work_does_not_lower_the_rest(chat, fresh, missing):
    everything = {"waiting": 16, "running": 16, "held": 16}
    everything[missing] = math.nan
    # Two known parts of 16 ask for 2 whatever the third is.
    decision = chat.step(**fresh(pods=2, **everything), work=32.0)
    assert decision[0] == 2


def test_stale_gpu_activity_sizes_no_workload(workload):
    batch = workload(Spec(0, 4, ((Signal.GPU_ENGINE, 0.5),), pods=False))
    busy = {"wanted": 2.0, "ready": 2.0, "busiest_gpu": 0.9, "gpu_engine": 0.9}
    # 2 replicas at 0.9 of a target of 0.5: 3.6, so 4.
    assert batch.step(**busy) == (4, True, Reason.GPU_BUSY)
    assert batch.step(after=1, **{**busy, "gpus_stale": True, "gpu_engine": 0.1}) == (4, True, Reason.HELD)
    assert batch.step(after=301, **{**busy, "gpus_stale": True, "gpu_engine": 0.1}) == (None, True, Reason.UNKNOWN)


def asleep(chat, fresh):
    chat.step(**fresh(wanted=1, ready=1))
    assert chat.step(after=300, **fresh(wanted=1, ready=1)) == (0, False, Reason.ASLEEP)
    assert chat.step(after=1, **fresh(pods=0, wanted=0, ready=0)) == (0, False, Reason.ASLEEP)


SILENT_CLUSTER = {"pods_listed": math.nan, "pods_fresh": 0.0, "wanted": math.nan, "ready": math.nan}


@pytest.mark.parametrize("wake_source", [True, False])
def test_silent_cluster_wakes_no_sleeping_workload(chat, fresh, wake_source):
    asleep(chat, fresh)
    reason = Reason.ASLEEP if wake_source else Reason.NO_WAKE_SOURCE
    dark = {**fresh(), **SILENT_CLUSTER, "waker_fresh": wake_source}
    assert chat.step(after=1, **dark) == (0, False, reason)
    assert chat.step(after=3600, **dark) == (0, False, reason)


def test_total_outage_wakes_no_sleeping_workload(chat, fresh):
    asleep(chat, fresh)
    assert chat.step(after=1, **SILENT_CLUSTER) == (0, False, Reason.HELD)
    assert chat.step(after=3600, **SILENT_CLUSTER) == (0, False, Reason.HELD)


def test_listed_pod_proves_that_a_sleeping_workload_is_not_at_zero(chat, fresh):
    asleep(chat, fresh)
    assert chat.step(after=1, **{**SILENT_CLUSTER, "pods_listed": 1.0}) == (1, True, Reason.HELD)


def test_static_address_is_no_pod(workload, fresh):
    """Without a replica count, engine and gateway stop answering: nothing shows a replica."""
    chat = workload(Spec(0, 8, ((Signal.WORK, 16.0),), hold=300.0, settle=8.0, gateway=True, fixed=True))
    asleep(chat, fresh)
    listed = {**SILENT_CLUSTER, "pods_listed": 1.0}
    assert chat.step(after=1, **listed) == (0, False, Reason.ASLEEP)
    assert chat.step(after=8, **listed) == (0, False, Reason.HELD)
    # A target that answers is a replica.
    assert chat.step(after=1, **{**listed, "pods_fresh": 1.0}) == (1, True, Reason.HELD)
    asleep(chat, fresh)
    chat.step(after=1, **listed)
    assert chat.step(after=3600, **listed) == (0, False, Reason.HELD)


def test_workload_without_state_pods_and_replica_count_is_not_decided(chat, fresh):
    no_pods = fresh(pods=0)
    assert chat.step(**no_pods) == (None, True, Reason.UNKNOWN)
    assert chat.step(after=3600, **no_pods) == (None, True, Reason.UNKNOWN)
    assert chat.step(after=1, **fresh(held=1, pods=0)) == (1, True, Reason.LOADING)  # a request wakes it


def test_new_pod_is_scraped_before_a_sleeping_workload_counts_as_awake(workload, fresh):
    """After a start the list is known before the first response: a static address is no pod yet."""
    chat = workload(Spec(0, 8, ((Signal.WORK, 16.0),), hold=300.0, settle=8.0, gateway=True))
    asleep(chat, fresh)
    listed = {**SILENT_CLUSTER, "pods_listed": 1.0}
    assert chat.step(after=1, **listed) == (0, False, Reason.ASLEEP)
    assert chat.step(after=7, **listed) == (0, False, Reason.ASLEEP)
    assert chat.step(after=1, **listed) == (1, True, Reason.HELD)
