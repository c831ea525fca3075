"""The model of KEDA's operator repeats what a real cluster did with an external scaler: one test per fact."""

from __future__ import annotations

import dataclasses

import pytest

from scaler.controllers.keda import (
    FallbackSpec,
    KedaMemory,
    Poll,
    PollResult,
    Push,
    Read,
    ScaledObjectSpec,
    fallback_value,
    has_hpa,
    hpa_min_replicas,
    step,
)

AWAKE = KedaMemory(created_at=0.0, last_active_at=1000.0)
FRESH = KedaMemory(created_at=0.0)


def ordered_replicas(spec, memory, event, replicas, now):
    return step(spec, memory, event, replicas, now)[0]


def test_active_poll_wakes_with_the_minimum_or_one():
    assert ordered_replicas(ScaledObjectSpec(), FRESH, Poll(PollResult.ACTIVE), 0, 5.0) == 1
    assert ordered_replicas(ScaledObjectSpec(min_replicas=3), FRESH, Poll(PollResult.ACTIVE), 0, 5.0) == 3


def test_active_poll_above_zero_only_stores_its_time():
    replicas, memory, _ = step(ScaledObjectSpec(), AWAKE, Poll(PollResult.ACTIVE), 4, 1500.0)
    assert (replicas, memory.last_active_at) == (None, 1500.0)


def test_push_wakes_at_once_and_push_of_inactivity_is_ignored():
    assert ordered_replicas(ScaledObjectSpec(polling_interval_s=300.0), FRESH, Push(active=True), 0, 0.15) == 1
    assert step(ScaledObjectSpec(), AWAKE, Push(active=False), 4, 9999.0)[:2] == (None, AWAKE)


def test_scale_to_zero_follows_the_cooldown_at_any_number_of_replicas():
    assert ordered_replicas(ScaledObjectSpec(), AWAKE, Poll(PollResult.INACTIVE), 7, 1300.0) is None
    assert ordered_replicas(ScaledObjectSpec(), AWAKE, Poll(PollResult.INACTIVE), 7, 1300.1) == 0
    assert step(ScaledObjectSpec(), AWAKE, Poll(PollResult.INACTIVE), 7, 1200.0)[2] == "cooling down for 100 s more"


def test_active_poll_or_push_restarts_the_cooldown():
    for event in (Poll(PollResult.ACTIVE), Push(active=True)):
        _, memory, _ = step(ScaledObjectSpec(), AWAKE, event, 2, 1250.0)
        assert ordered_replicas(ScaledObjectSpec(), memory, Poll(PollResult.INACTIVE), 2, 1500.0) is None


def test_never_active_target_goes_to_zero_after_the_initial_cooldown():
    assert ordered_replicas(ScaledObjectSpec(), FRESH, Poll(PollResult.INACTIVE), 3, 0.1) == 0
    assert (
        ordered_replicas(ScaledObjectSpec(initial_cooldown_s=60.0), FRESH, Poll(PollResult.INACTIVE), 3, 60.0) is None
    )
    assert ordered_replicas(ScaledObjectSpec(initial_cooldown_s=60.0), FRESH, Poll(PollResult.INACTIVE), 3, 60.1) == 0


def test_minimum_above_zero_is_kept_and_restored():
    assert ordered_replicas(ScaledObjectSpec(min_replicas=2), AWAKE, Poll(PollResult.INACTIVE), 2, 9999.0) is None
    assert ordered_replicas(ScaledObjectSpec(min_replicas=2), AWAKE, Poll(PollResult.INACTIVE), 1, 9999.0) == 2


def test_idle_replicas_replace_the_minimum_while_inactive():
    spec = ScaledObjectSpec(min_replicas=2, idle_replicas=0)
    assert ordered_replicas(spec, AWAKE, Poll(PollResult.INACTIVE), 2, 9999.0) == 0
    assert ordered_replicas(spec, AWAKE, Poll(PollResult.INACTIVE), 0, 9999.0) is None
    assert ordered_replicas(spec, AWAKE, Poll(PollResult.ACTIVE), 0, 9999.0) == 2


@pytest.mark.parametrize("result", [PollResult.ERROR, PollResult.DOWN])
def test_error_without_fallback_keeps_the_replicas(result):
    memory, replicas = AWAKE, 4
    for poll in range(20):
        ordered, memory, _ = step(ScaledObjectSpec(), memory, Poll(result), replicas, 2000.0 + 30.0 * poll)
        assert ordered is None


def test_fallback_engages_after_its_threshold_and_wakes_from_zero():
    spec = ScaledObjectSpec(fallback=FallbackSpec(failure_threshold=3, replicas=6))
    memory, orders = AWAKE, []
    for poll in range(4):
        ordered, memory, _ = step(spec, memory, Poll(PollResult.ERROR), 0, 2000.0 + 30.0 * poll)
        orders.append(ordered)
    assert orders == [None, None, None, 1]
    assert fallback_value(spec, memory, target=1.0) == 6.0


def test_failed_reads_of_the_hpa_count_as_failures():
    spec = ScaledObjectSpec(fallback=FallbackSpec(failure_threshold=3, replicas=6))
    memory = AWAKE
    for event in (Poll(PollResult.ERROR), Read(answered=False), Read(answered=False)):
        _, memory, _ = step(spec, memory, event, 2, 2000.0)
        assert fallback_value(spec, memory, target=1.0) is None
    _, memory, _ = step(spec, memory, Read(answered=False), 2, 2000.0)
    assert fallback_value(spec, memory, target=1.0) == 6.0
    _, memory, _ = step(spec, memory, Read(answered=True), 2, 2000.0)
    assert fallback_value(spec, memory, target=1.0) is None


def test_fallback_does_not_engage_while_the_scaler_is_down():
    spec, memory = ScaledObjectSpec(fallback=FallbackSpec(failure_threshold=1, replicas=6)), AWAKE
    for poll in range(10):
        ordered, memory, _ = step(spec, memory, Poll(PollResult.DOWN), 0, 2000.0 + 30.0 * poll)
        assert ordered is None
    assert fallback_value(spec, memory, target=1.0) is None


def test_fallback_of_zero_replicas_lets_an_error_scale_to_zero():
    spec = ScaledObjectSpec(fallback=FallbackSpec(failure_threshold=3, replicas=0))
    assert ordered_replicas(spec, AWAKE, Poll(PollResult.ERROR), 4, 1200.0) is None
    assert ordered_replicas(spec, AWAKE, Poll(PollResult.ERROR), 4, 1301.0) == 0


def test_paused_scaled_object_keeps_the_replicas_and_has_no_hpa():
    spec = ScaledObjectSpec(paused=True)
    for event in (Poll(PollResult.INACTIVE), Poll(PollResult.ACTIVE), Push(active=True)):
        assert ordered_replicas(spec, AWAKE, event, 0, 9999.0) is None
    assert not has_hpa(spec)
    # On unpausing, an expired cooldown takes effect at once.
    assert ordered_replicas(dataclasses.replace(spec, paused=False), AWAKE, Poll(PollResult.INACTIVE), 3, 9999.0) == 0


def test_paused_replicas_apply_whatever_the_trigger_returns():
    spec = ScaledObjectSpec(paused_replicas=2)
    assert ordered_replicas(spec, AWAKE, Poll(PollResult.INACTIVE), 5, 9999.0) == 2
    assert ordered_replicas(spec, AWAKE, Push(active=True), 2, 9999.0) is None
    assert not has_hpa(spec)


def test_paused_direction_blocks_only_that_direction():
    assert ordered_replicas(ScaledObjectSpec(pause_scale_in=True), AWAKE, Poll(PollResult.INACTIVE), 4, 9999.0) is None
    assert ordered_replicas(ScaledObjectSpec(pause_scale_in=True), AWAKE, Push(active=True), 0, 9999.0) == 1
    assert ordered_replicas(ScaledObjectSpec(pause_scale_out=True), AWAKE, Push(active=True), 0, 9999.0) is None
    assert ordered_replicas(ScaledObjectSpec(pause_scale_out=True), AWAKE, Poll(PollResult.INACTIVE), 4, 9999.0) == 0


def test_minimum_of_the_hpa_is_never_zero():
    assert [hpa_min_replicas(ScaledObjectSpec(min_replicas=n)) for n in (0, 1, 4)] == [1, 1, 4]
