"""Overrides come after the readings, and the freeze before every other override."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scaler.model import Reason
from scaler.policy.columns import NO_REASON, REASONS, Signal, Spec

GONE = {"pods_listed": 1.0, "pods_fresh": 0.0}
SCHEDULED, WARM, FROZEN = (REASONS.index(reason) for reason in (Reason.SCHEDULED, Reason.WARM, Reason.FROZEN))


def floor(replicas, reason=SCHEDULED):
    return {"floor": float(replicas), "floor_reason": reason}


def test_frozen_workload_keeps_its_last_decision(chat, fresh):
    chat.step(**fresh(running=40))  # 2.5, so 3
    frozen = {"frozen": True}

    assert chat.step(after=1, overrides=frozen, **fresh(running=100)) == (3, True, Reason.FROZEN)
    assert chat.step(after=900, overrides=frozen, **fresh()) == (3, True, Reason.FROZEN)
    assert chat.step(after=900, overrides=frozen, **GONE) == (3, True, Reason.FROZEN)
    assert chat.step(after=1, **fresh(running=100)) == (7, True, Reason.SERVING)


def test_workload_frozen_at_zero_stays_at_zero(chat, fresh):
    chat.step(**fresh(wanted=0.0, pods=0))

    assert chat.step(after=1, overrides={"frozen": True}, **fresh(held=5, wanted=0.0, pods=0)) == (
        0,
        False,
        Reason.FROZEN,
    )
    assert chat.step(after=1, **fresh(held=5, wanted=0.0, pods=0)) == (1, True, Reason.QUEUED)


def test_frozen_workload_without_state_keeps_the_replicas_of_the_cluster(chat, fresh):
    assert chat.step(overrides={"frozen": True}, **fresh(running=100, wanted=2.0)) == (2, True, Reason.FROZEN)


def test_frozen_workload_without_readings_is_an_error(chat):
    assert chat.step(overrides={"frozen": True}) == (None, True, Reason.UNKNOWN)


def test_never_down_allows_scale_up_only(chat, fresh):
    never_down = {"never_down": True}

    assert chat.step(overrides=never_down, **fresh(running=20)) == (2, True, Reason.SERVING)
    assert chat.step(after=1, overrides=never_down, **fresh(running=100)) == (7, True, Reason.SERVING)
    assert chat.step(after=1, overrides=never_down, **fresh(running=1)) == (7, True, Reason.FROZEN)
    assert chat.step(after=1, overrides=never_down, **fresh()) == (7, True, Reason.FROZEN)
    assert chat.step(after=900, overrides=never_down, **fresh()) == (7, True, Reason.FROZEN)  # nor to zero
    assert chat.step(after=1, **fresh()) == (0, False, Reason.ASLEEP)


def test_floor_wakes_a_workload_and_shows_its_reason(chat, fresh):
    chat.step(**fresh(wanted=0.0, pods=0))

    assert chat.step(after=1, overrides=floor(2), **fresh(wanted=0.0, pods=0)) == (2, True, Reason.SCHEDULED)
    assert chat.step(after=1, overrides=floor(2, FROZEN), **fresh(wanted=2.0, pods=2)) == (2, True, Reason.FROZEN)


def test_floor_below_the_demand_leaves_the_reason(chat, fresh):
    assert chat.step(overrides=floor(2), **fresh(running=100)) == (7, True, Reason.SERVING)


def test_floor_of_a_group_leaves_the_reason_of_the_workload(chat, fresh):
    assert chat.step(overrides=floor(3, NO_REASON), **fresh(running=1)) == (3, True, Reason.SERVING)
    assert chat.step(after=900, overrides=floor(3, NO_REASON), **fresh()) == (3, True, Reason.WARM)


def test_idle_workload_sleeps_when_its_floor_ends(chat, fresh):
    chat.step(**fresh())
    assert chat.step(after=900, overrides=floor(1, WARM), **fresh()) == (1, True, Reason.WARM)
    assert chat.step(after=1, **fresh()) == (0, False, Reason.ASLEEP)


def test_floor_never_exceeds_the_maximum(chat, fresh):
    assert chat.step(overrides=floor(20), **fresh(running=1)) == (8, True, Reason.SCHEDULED)


def test_floor_makes_no_decision_of_unknown_readings(chat):
    # Five may run: "at least 2" would stop three of them.
    assert chat.step(overrides=floor(2)) == (None, True, Reason.UNKNOWN)


def test_ceiling_limits_replicas_and_never_to_zero(chat, fresh):
    assert chat.step(overrides={"ceiling": 3.0}, **fresh(running=100)) == (3, True, Reason.SCHEDULED)
    assert chat.step(after=1, overrides={"ceiling": 0.0}, **fresh(running=100)) == (1, True, Reason.SCHEDULED)


def test_floor_above_a_ceiling_wins(chat, fresh):
    assert chat.step(overrides={"ceiling": 2.0, **floor(4)}, **fresh(running=100)) == (4, True, Reason.SCHEDULED)


def test_ceiling_does_not_lower_a_workload_with_never_down(chat, fresh):
    chat.step(**fresh(running=100))
    overrides = {"ceiling": 2.0, "never_down": True}

    assert chat.step(after=1, overrides=overrides, **fresh(running=10)) == (7, True, Reason.FROZEN)


@given(
    running=st.floats(0, 1000),
    last=st.integers(0, 8),
    lowest=st.integers(0, 12),
    highest=st.one_of(st.just(math.inf), st.integers(0, 12)),
    never_down=st.booleans(),
)
@pytest.mark.parametrize("least", [0, 2])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_overrides_keep_the_maximum_and_zero_is_inactive(
    workload, fresh, least, running, last, lowest, highest, never_down
):
    chat = workload(Spec(least, 8, ((Signal.WORK, 16.0),), sleeps=True, gateway=True))
    chat.memory.replicas[0], chat.memory.active[0], chat.memory.reason[0] = last, last > 0, 0
    overrides = {**floor(lowest), "ceiling": float(highest), "never_down": never_down}

    replicas, active, _ = chat.step(overrides=overrides, **fresh(running=running, pods=3, wanted=3.0, ready=3.0))

    assert active == (replicas > 0)
    assert min(lowest, 8) <= replicas <= 8
    assert not never_down or replicas >= last
