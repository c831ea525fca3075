"""Tests the error budget of the sizing: misses while work is late widen the headroom, and nothing else does."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy.capacity import (
    DEFAULTS,
    Estimate,
    WorkRate,
)
from scaler.policy.sizing import (
    BUDGET,
    BUDGET_GAIN,
    MEMORY_S,
    capacity,
)
from tests.budget import examples

START_S = 75.0
# The capacity stays as assumed, and the first minute is no burst, so that only the headroom changes a size.
FIXED = DEFAULTS._replace(sharpest=np.inf, lowest_factor=1.0, highest_factor=1.0, burst_share=np.inf, rounded_down=0.0)


@pytest.fixture
def served(sized, rates):
    """A workload after 20 minutes of 10 requests per second on two replicas, of which no misses are known."""

    def make(constants=FIXED):
        chat = sized(start=START_S, constants=constants)
        chat.during(1200.0, calm(rates), ready=2.0)
        assert chat[Estimate.STRETCH] == 0.0
        return chat

    return make


def calm(rates):
    """10 requests per second; the mean time between tokens is 20 ms."""
    return rates(10.0, gaps=1990.0, sequences=1990 * 0.020)


def slow(rates):
    """The same with 46 ms, above nine tenths of the SLO of 50 ms."""
    return rates(10.0, gaps=1990.0, sequences=1990 * 0.046)


def late(chat, rates):
    """Makes the steps of the last minute slow."""
    chat.during(300.0, slow(rates), ready=2.0)
    assert chat[Estimate.LATE_AT] == chat.now
    return chat


def step(chat, traffic, misses, **inputs):
    """By how much one update changes the stretch."""
    before = chat[Estimate.STRETCH]
    chat.after(5.0, traffic, ready=2.0, misses=misses, **inputs)
    return chat[Estimate.STRETCH] - before


def test_misses_beyond_the_budget_stretch_the_headroom_by_their_share_of_the_requests(served, rates):
    chat = late(served(), rates)
    # 50 requests, of which 0.45 may miss; 3 times the rest, as a share of the requests of two hours.
    changed = step(chat, slow(rates), 2.0)
    assert changed == pytest.approx(3.0 * (2.0 - 0.45) / chat[Estimate.REQUESTS])
    assert chat[Estimate.REQUESTS] == pytest.approx(10.0 * 1505.0, rel=0.12)
    assert step(chat, slow(rates), 0.45) == pytest.approx(0.0, abs=1e-12)


def test_shown_headroom_is_what_the_stretch_multiplies_it_by(served):
    chat = served()
    for stretch, times in ((0.0, 1.0), (0.5, 2.5), (1.0, 4.0)):
        chat.estimates[0, Estimate.STRETCH] = stretch
        assert capacity(chat.estimates, np.array([0.05]), chat.now).headroom_times.tolist() == [times]


def test_queue_is_late_as_slow_steps_are(served, rates):
    chat = served()
    # 13 requests of 0.157 replica-seconds are more than half the 2 s of the SLO on two replicas.
    assert step(chat, calm(rates), 2.0, waiting=12.0) == 0.0
    assert step(chat, calm(rates), 2.0, waiting=13.0) > 0.0


def test_headroom_becomes_four_times_as_wide_and_no_wider(served, rates):
    usual, stretched = late(served(), rates), late(served(), rates)
    before = stretched[Estimate.SIZE]
    sizes = stretched.during(1800.0, slow(rates), ready=2.0, misses=50.0)
    usual.during(1800.0, slow(rates), ready=2.0)
    assert stretched[Estimate.STRETCH] == 1.0
    assert (np.diff(sizes) >= -1e-9).all()
    work = usual[Estimate.WORK]
    assert stretched[Estimate.WORK] == work
    assert usual[Estimate.SIZE] == pytest.approx(before, rel=1e-3)
    assert sizes[-1] - work == pytest.approx((1.0 + 3.0) * (usual[Estimate.SIZE] - work), rel=1e-3)


def test_hours_without_misses_release_the_headroom_at_the_speed_of_the_budget(served, rates):
    chat = served()
    chat.during(3 * MEMORY_S, calm(rates), ready=2.0, misses=0.0)
    chat.estimates[0, Estimate.STRETCH] = 0.5
    chat.during(3600.0, calm(rates), ready=2.0, misses=0.0)
    # As many requests as two hours have: an hour releases 3 * 0.009 / 2, all of it takes three days.
    assert chat[Estimate.STRETCH] == pytest.approx(0.5 - BUDGET_GAIN * BUDGET * 3600.0 / MEMORY_S, abs=1e-3)
    chat.during(2 * 86_400.0, calm(rates), every=15.0, ready=2.0, misses=0.0)
    assert chat[Estimate.STRETCH] == 0.0


def test_misses_while_nothing_is_late_change_nothing(served, rates):
    # As those of long prompts, which more replicas would not read faster.
    missed, met = served(), served()
    for chat in (missed, met):
        chat.estimates[0, Estimate.STRETCH] = 0.5
    missed.during(600.0, calm(rates), ready=2.0, misses=50.0)
    met.during(600.0, calm(rates), ready=2.0, misses=0.0)
    np.testing.assert_array_equal(missed.estimates, met.estimates)


def test_misses_count_for_a_minute_after_work_was_late(served, rates):
    chat = served()
    chat.after(5.0, calm(rates), ready=2.0, waiting=100.0)
    changes = [step(chat, calm(rates), 2.0) for _ in range(14)]
    assert [change > 0.0 for change in changes] == [True] * 12 + [False] * 2


def test_misses_at_first_sight_change_nothing_for_three_starts(sized, rates):
    chat = sized(start=START_S, constants=FIXED)
    chat.after(5.0, slow(rates), ready=2.0)  # here it begins
    early = [step(chat, slow(rates), 50.0) for _ in range(round(3 * START_S / 5.0))]
    assert set(early) == {0.0}
    assert step(chat, slow(rates), 50.0) > 0.0


def test_misses_after_a_cold_start_change_nothing_for_three_starts(served, rates):
    chat = late(served(), rates)
    chat.after(5.0, slow(rates), ready=0.0, misses=50.0)
    early = [step(chat, slow(rates), 50.0) for _ in range(round(3 * START_S / 5.0))]
    assert set(early) == {0.0}
    assert step(chat, slow(rates), 50.0) > 0.0


def test_misses_at_a_cold_start_come_out_of_the_budget_of_the_next_hours(served, rates):
    apart = FIXED._replace(least_budget=BUDGET)
    shared, separate = (late(served(constants), rates) for constants in (FIXED, apart))
    for chat in (shared, separate):
        chat.after(5.0, slow(rates), ready=0.0, misses=50.0)
        chat.during(900.0, slow(rates), ready=2.0, misses=0.0)
        chat.estimates[0, Estimate.STRETCH] = 0.5
    # 44 of the 50 are left after 15 minutes, of some 20,000 requests: 0.2 of the 0.9 %.
    assert shared[Estimate.COLD] == pytest.approx(50.0 * np.exp(-900.0 / MEMORY_S))
    left = BUDGET - shared[Estimate.COLD] / shared[Estimate.REQUESTS]
    assert left == pytest.approx(0.007, abs=0.0005)
    assert step(shared, slow(rates), 50.0 * left) == pytest.approx(0.0, abs=1e-5)
    assert step(separate, slow(rates), 50.0 * BUDGET) == pytest.approx(0.0, abs=1e-9)


def test_some_of_the_budget_is_left_however_many_missed_at_a_cold_start(served, rates):
    chat = late(served(), rates)
    chat.after(5.0, slow(rates), ready=0.0, misses=5000.0)
    chat.during(900.0, slow(rates), ready=2.0, misses=0.0)
    chat.estimates[0, Estimate.STRETCH] = 0.5
    assert step(chat, slow(rates), 50.0 * DEFAULTS.least_budget) == pytest.approx(0.0, abs=1e-9)


def test_misses_of_a_workload_that_never_was_without_a_replica_are_of_no_cold_start(served, rates):
    assert np.isnan(late(served(), rates)[Estimate.COLD])


def test_unknown_misses_change_nothing_and_are_not_zero(served, rates):
    chat = late(served(), rates)
    chat.estimates[0, Estimate.STRETCH] = 0.5
    assert step(chat, slow(rates), nan) == 0.0
    assert step(chat, slow(rates), 0.0) < 0.0


def test_few_misses_of_few_requests_are_not_many(sized, rates):
    chat = sized(start=1.0, constants=FIXED)
    chat.during(60.0, rates(0.2, gaps=0.0))
    # One of 12 requests, counted as one of 100; one more arrives meanwhile.
    chat.after(5.0, rates(0.2, gaps=0.0), waiting=50.0, misses=1.0)
    assert chat[Estimate.STRETCH] == pytest.approx(3.0 * (1.0 - BUDGET) / 100.0)


AMOUNTS = st.floats(0.0, 1e9) | st.sampled_from([0.0, 1.0])
MOMENTS = st.tuples(
    st.floats(-1e4, 1e6) | st.just(5.0),
    st.tuples(st.floats(-1e6, 1e6), *([AMOUNTS] * (len(WorkRate) - 1))).map(np.array),
    st.fixed_dictionaries({"waiting": AMOUNTS, "ready": st.integers(0, 50), "misses": AMOUNTS | st.just(nan)}),
)


@given(st.lists(MOMENTS, min_size=1, max_size=15))
@settings(max_examples=examples(150))
def test_stretch_is_between_none_and_all_after_any_history(sized, moments):
    chat = sized(start=1.0)
    for seconds, rates, inputs in moments:
        chat.after(seconds, rates, **inputs)
        assert 0.0 <= chat[Estimate.STRETCH] <= 1.0


@given(st.lists(MOMENTS, min_size=1, max_size=15))
@settings(max_examples=examples(100))
def test_misses_never_make_a_size_smaller(sized, moments):
    # Without the guard, which compares with the replicas that the size has.
    constants = DEFAULTS._replace(burst_share=np.inf)
    missed, met = sized(start=1.0, constants=constants), sized(start=1.0, constants=constants)
    for seconds, rates, inputs in moments:
        unmissed = {**inputs, "misses": inputs["misses"] * 0.0}
        size = missed.after(seconds, rates, **inputs)
        assert not size < met.after(seconds, rates, **unmissed)
