"""People's orders stand above what is read: the brake above all."""

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


def test_a_frozen_workload_keeps_its_last_answer_whatever_is_read(chat, fresh):
    chat.step(**fresh(running=40))  # 2.5, so 3
    frozen = {"frozen": True}

    assert chat.step(after=1, orders=frozen, **fresh(running=100)) == (3, True, Reason.FROZEN)
    assert chat.step(after=900, orders=frozen, **fresh()) == (3, True, Reason.FROZEN)
    assert chat.step(after=900, orders=frozen, **GONE) == (3, True, Reason.FROZEN)
    assert chat.step(after=1, **fresh(running=100)) == (7, True, Reason.SERVING)


def test_a_workload_frozen_at_zero_stays_there(chat, fresh):
    chat.step(**fresh(wanted=0.0, pods=0))

    assert chat.step(after=1, orders={"frozen": True}, **fresh(held=5, wanted=0.0, pods=0)) == (0, False, Reason.FROZEN)
    assert chat.step(after=1, **fresh(held=5, wanted=0.0, pods=0)) == (1, True, Reason.QUEUED)


def test_what_is_frozen_before_anything_was_decided_stays_what_the_cluster_has(chat, fresh):
    assert chat.step(orders={"frozen": True}, **fresh(running=100, wanted=2.0)) == (2, True, Reason.FROZEN)


def test_frozen_with_nothing_known_is_still_an_error(chat):
    assert chat.step(orders={"frozen": True}) == (None, True, Reason.UNKNOWN)


def test_never_down_goes_up_and_never_down(chat, fresh):
    never_down = {"never_down": True}

    assert chat.step(orders=never_down, **fresh(running=20)) == (2, True, Reason.SERVING)
    assert chat.step(after=1, orders=never_down, **fresh(running=100)) == (7, True, Reason.SERVING)
    assert chat.step(after=1, orders=never_down, **fresh(running=1)) == (7, True, Reason.FROZEN)
    assert chat.step(after=1, orders=never_down, **fresh()) == (7, True, Reason.FROZEN)
    assert chat.step(after=900, orders=never_down, **fresh()) == (7, True, Reason.FROZEN)  # nor to zero
    assert chat.step(after=1, **fresh()) == (0, False, Reason.ASLEEP)


def test_a_floor_wakes_a_workload_and_shows_its_reason(chat, fresh):
    chat.step(**fresh(wanted=0.0, pods=0))

    assert chat.step(after=1, orders=floor(2), **fresh(wanted=0.0, pods=0)) == (2, True, Reason.SCHEDULED)
    assert chat.step(after=1, orders=floor(2, FROZEN), **fresh(wanted=2.0, pods=2)) == (2, True, Reason.FROZEN)


def test_a_floor_that_decides_nothing_leaves_the_reason(chat, fresh):
    assert chat.step(orders=floor(2), **fresh(running=100)) == (7, True, Reason.SERVING)


def test_a_floor_of_its_group_leaves_its_own_reason(chat, fresh):
    assert chat.step(orders=floor(3, NO_REASON), **fresh(running=1)) == (3, True, Reason.SERVING)
    assert chat.step(after=900, orders=floor(3, NO_REASON), **fresh()) == (3, True, Reason.WARM)


def test_what_was_kept_up_by_a_floor_sleeps_when_it_ends_if_it_has_long_been_idle(chat, fresh):
    chat.step(**fresh())
    assert chat.step(after=900, orders=floor(1, WARM), **fresh()) == (1, True, Reason.WARM)
    assert chat.step(after=1, **fresh()) == (0, False, Reason.ASLEEP)


def test_no_floor_lifts_above_the_maximum(chat, fresh):
    assert chat.step(orders=floor(20), **fresh(running=1)) == (8, True, Reason.SCHEDULED)


def test_a_floor_makes_no_answer_of_nothing_known(chat):
    # Five may run: "at least 2" would be an order to stop three of them.
    assert chat.step(orders=floor(2)) == (None, True, Reason.UNKNOWN)


def test_a_ceiling_holds_down_and_never_to_zero(chat, fresh):
    assert chat.step(orders={"ceiling": 3.0}, **fresh(running=100)) == (3, True, Reason.SCHEDULED)
    assert chat.step(after=1, orders={"ceiling": 0.0}, **fresh(running=100)) == (1, True, Reason.SCHEDULED)


def test_a_floor_above_a_ceiling_wins(chat, fresh):
    assert chat.step(orders={"ceiling": 2.0, **floor(4)}, **fresh(running=100)) == (4, True, Reason.SCHEDULED)


def test_a_ceiling_does_not_take_down_what_must_never_fall(chat, fresh):
    chat.step(**fresh(running=100))
    orders = {"ceiling": 2.0, "never_down": True}

    assert chat.step(after=1, orders=orders, **fresh(running=10)) == (7, True, Reason.FROZEN)


@given(
    running=st.floats(0, 1000),
    last=st.integers(0, 8),
    lowest=st.integers(0, 12),
    highest=st.one_of(st.just(math.inf), st.integers(0, 12)),
    never_down=st.booleans(),
)
@pytest.mark.parametrize("least", [0, 2])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_ordered_the_maximum_stands_and_zero_is_inactive(
    workload, fresh, least, running, last, lowest, highest, never_down
):
    chat = workload(Spec(least, 8, ((Signal.WORK, 16.0),), sleeps=True, gateway=True))
    chat.memory.replicas[0], chat.memory.active[0], chat.memory.reason[0] = last, last > 0, 0
    orders = {**floor(lowest), "ceiling": float(highest), "never_down": never_down}

    replicas, active, _ = chat.step(orders=orders, **fresh(running=running, pods=3, wanted=3.0, ready=3.0))

    assert active == (replicas > 0)
    assert min(lowest, 8) <= replicas <= 8
    assert not never_down or replicas >= last
