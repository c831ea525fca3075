"""Tests how long the largest size counts, and what a clock that is set back does to it."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy.capacity import (
    DEFAULTS,
    PEAK_COUNT,
    Estimate,
)
from tests.budget import examples
from tests.scaler.policy.sizing.reference_sizing import whole

BURST = 400.0  # requests per second, for one update
# The hold alone: the guard would keep replicas for the next burst, and rounding takes a part of the size.
HOLD = DEFAULTS._replace(burst_share=inf, rounded_down=0.0, reversals_a_day=inf)
LONGER = HOLD._replace(reversals_a_day=DEFAULTS.reversals_a_day)
# Of 500 prompt and 200 output tokens at steps of 15 ms and a room of 1 - 15/40.
REQUEST_S = 0.015 * (500 / 115 + 200 * (1 / 118 + 4e-6 * 620)) / 0.625


def held_s(chat, rates, every, at_most):
    """Seconds from a burst until the size is below that of the burst."""
    peak = chat.after(every, rates(BURST, gaps=0.0))
    passed = 0.0
    while passed < at_most:
        passed += every
        if chat.after(every, rates(0.0)) < peak:
            return passed
    return passed


@pytest.mark.parametrize("every", [1.0, 5.0, 7.0])
@pytest.mark.parametrize("start", [1.0, 50.0, 75.0, 120.0, 299.0, 300.0, 3600.0])
def test_largest_size_is_held_for_its_starts_and_for_no_more_than_one_part_longer(sized, rates, start, every):
    hold = min(max(DEFAULTS.hold_starts * start, DEFAULTS.shortest_hold_s), DEFAULTS.longest_hold_s)
    part = hold / (PEAK_COUNT - 1)
    for before in (0.0, 0.3 * part, 0.99 * part):  # the burst comes at any moment of a part
        chat = sized(start=start, constants=HOLD)
        chat.after(5.0, rates(0.0))
        if before:
            chat.after(before, rates(0.0))
        # It is seen at an update: the first at or after the end.
        assert hold <= held_s(chat, rates, every, 2 * hold) <= hold + part + every


def test_size_within_the_hold_never_falls_and_a_larger_one_counts_at_once(sized, rates):
    chat = sized(start=75.0, constants=HOLD)
    first = chat.during(60.0, rates(10.0, gaps=0.0))[-1]
    sizes = chat.during(120.0, rates(2.0, gaps=0.0))
    assert min(sizes) == max(sizes) == first
    assert chat.after(5.0, rates(BURST, gaps=0.0)) > first


@given(st.lists(st.tuples(st.floats(0.5, 400.0), st.floats(0.0, 100.0)), min_size=1, max_size=40), st.floats(10, 400))
@settings(max_examples=examples(100))
def test_size_is_at_least_every_size_of_the_hold_and_at_most_the_largest_of_one_part_more(sized, rates, turns, start):
    chat, past = sized(start=start, constants=HOLD), []
    hold = min(max(DEFAULTS.hold_starts * start, DEFAULTS.shortest_hold_s), DEFAULTS.longest_hold_s)
    for step, requests in turns:
        size = chat.after(step, rates(requests, gaps=0.0))
        # Without a queue, the size of this moment follows from its work.
        work = chat[Estimate.WORK]
        spread = (work * REQUEST_S / 10.0) ** 0.5
        level = 2.0 * chat[Estimate.SLOW] - chat[Estimate.SLOWER]
        lasting = max(min(work, level), work - 2.0 * spread, 0.0)
        headroom = ((0.7 * spread) ** 2 + 0.1**2 * lasting) ** 0.5
        past.append((chat.now, lasting + (start / 75.0) ** 0.25 * headroom))
        least = max(each for at, each in past if chat.now - at <= hold * (1 - 1e-9))
        most = max(each for at, each in past if chat.now - at <= hold * (1 + 1 / (PEAK_COUNT - 1)) * (1 + 1e-9))
        assert least * (1 - 1e-9) <= size <= most * (1 + 1e-9)


@pytest.mark.parametrize(("a_day", "times"), [(0.0, 1.0), (10.0, 1.0), (15.0, 1.5), (20.0, 2.0), (500.0, 2.0)])
def test_sizes_that_reverse_more_than_ten_times_a_day_are_held_longer_and_at_most_twice_as_long(
    sized, rates, a_day, times
):
    chat = sized(start=100.0, constants=LONGER)
    chat.estimates[0, Estimate.REVERSALS] = a_day / 4.0  # as many as six hours have
    hold = times * DEFAULTS.hold_starts * 100.0
    # A few minutes of the six hours pass, and a thirtieth of the reversals is forgotten.
    assert 0.95 * hold <= held_s(chat, rates, 5.0, 3 * hold) <= hold * (1 + 1 / (PEAK_COUNT - 1)) + 5.0


@pytest.mark.parametrize(("rest", "reversals"), [(5.0, 1.0), (295.0, 1.0), (1200.0, 0.0), (3600.0, 0.0)])
def test_rise_within_five_minutes_of_a_fall_is_a_reversal(sized, rates, rest, reversals):
    chat = sized(constants=LONGER)
    held_s(chat, rates, 5.0, 3600.0)
    assert chat[Estimate.FELL_AT] == chat.now
    assert chat[Estimate.REVERSALS] == 0.0
    chat.during(rest - 5.0, rates(0.0))
    chat.after(5.0, rates(BURST, gaps=0.0))
    assert chat[Estimate.REVERSALS] == reversals
    # Half of them are forgotten in four hours.
    chat.during(14_972.0, rates(0.0), every=14.972)
    assert chat[Estimate.REVERSALS] == pytest.approx(reversals / 2.0, rel=0.01)


def test_fall_within_the_band_of_a_whole_number_is_none(sized, rates):
    chat = sized(constants=LONGER._replace(shortest_hold_s=1.0, longest_hold_s=1.0, headroom=0.0, drift=0.0))
    fallen = []
    for work in (1.05, 0.95, 0.85, 0.75):
        chat.during(900.0, rates(work / REQUEST_S, gaps=0.0))
        fallen.append(chat[Estimate.WHOLE])
    assert fallen == [2.0, 2.0, 2.0, 1.0]


def test_workload_that_was_asleep_wakes_with_what_arrives_and_not_with_its_last_peak(sized, rates):
    awake, asleep = sized(constants=HOLD), sized(constants=HOLD)
    for chat, ready in ((awake, 2.0), (asleep, 0.0)):
        chat.during(300.0, rates(20.0, gaps=0.0), ready=2.0)
        chat.during(60.0, rates(0.0), ready=ready)
        chat.during(15.0, rates(0.1, gaps=0.0), ready=ready, waiting=1.0)
    assert whole(awake[Estimate.SIZE]) == 4
    assert whole(asleep[Estimate.SIZE]) == 1


@pytest.mark.parametrize(("requests", "waiting"), [(1.0, 0.0), (0.1, 0.0), (0.0, 1.0)])
def test_hold_outlasts_a_failure_of_all_replicas_while_requests_arrive_or_wait(sized, rates, requests, waiting):
    chat = sized(constants=HOLD)
    before = chat.during(300.0, rates(20.0, gaps=0.0), ready=2.0)[-1]
    assert min(chat.during(60.0, rates(requests, gaps=0.0), ready=0.0, waiting=waiting)) >= before


def test_rise_without_a_fall_before_is_no_reversal(sized, rates):
    chat = sized(constants=LONGER)
    for requests in (1.0, 20.0, 60.0):
        chat.during(60.0, rates(requests, gaps=0.0))
    assert chat[Estimate.WHOLE] > 5.0
    assert chat[Estimate.REVERSALS] == 0.0


def test_clock_set_back_does_not_stop_updates(sized, rates):
    chat = sized()
    high = chat.during(300.0, rates(20.0, gaps=0.0))[-1]
    chat.after(-86_400.0, rates(1.0, gaps=0.0))
    assert chat[Estimate.AT] == chat.now
    assert chat.after(5.0, rates(100.0, gaps=0.0)) > high, "a rise counts from the second update on"
    sizes = chat.during(2400.0, rates(1.0, gaps=0.0))
    assert sizes[-1] < 1.0, "and so does a fall, once the hold is over"


def test_clock_set_forward_does_not_count_the_leap_as_traffic(sized, rates):
    chat = sized()
    chat.during(300.0, rates(1.0, prompt=500.0, output=200.0))
    prompts, before = chat[Estimate.PROMPTS], chat[Estimate.WORK]
    chat.after(86_400.0, rates(1.0, prompt=500.0, output=200.0))
    assert chat[Estimate.PROMPTS] <= prompts + 15.0, "rates hold for three intervals at most"
    assert chat[Estimate.WORK] == pytest.approx(before, rel=0.05)
