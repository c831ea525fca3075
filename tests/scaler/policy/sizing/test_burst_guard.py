"""Tests the guard for the next burst: replicas stay for two hours after one that no new replica could have met."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy.capacity import (
    DEFAULTS,
    Estimate,
)
from scaler.policy.sizing import MEMORY_S
from tests.budget import examples

START_S, HOLD_S = 75.0, 375.0
# Requests per second, of 0.157 replica-seconds each: 0.05 replicas of work, and 3.1.
QUIET, HIGH = 0.3, 20.0
MARGIN = DEFAULTS.burst_margin


@pytest.fixture
def quiet(sized, rates):
    """A workload after an hour of little traffic on one replica."""

    def make(start=START_S, constants=DEFAULTS, **slo):
        chat = sized(start=start, constants=constants, **slo)
        chat.during(3600.0, rates(QUIET, gaps=0.0))
        return chat

    return make


def burst(chat, rates, seconds=30.0, requests=HIGH, **inputs):
    """A burst, and then little traffic until its queue is gone. Returns the most work."""
    works = []
    for _ in range(round(seconds / 5.0)):
        chat.after(5.0, rates(requests, gaps=0.0), **inputs)
        works.append(chat[Estimate.WORK])
    assert chat[Estimate.QUEUE] > 0.0, "no burst"
    while chat[Estimate.QUEUE] > 0.0:
        chat.after(5.0, rates(QUIET, gaps=0.0), **inputs)
    return max(works)


def test_burst_shorter_than_a_start_keeps_more_than_its_most_work_for_two_hours(quiet, rates):
    chat = quiet()
    most = burst(chat, rates)
    assert chat[Estimate.BURST] == most > 2.0
    assert chat[Estimate.BURST_AT] == chat.now
    sizes = chat.during(MEMORY_S - 5.0, rates(QUIET, gaps=0.0))
    assert min(sizes) == pytest.approx(1.3 * most)
    # Meanwhile the hold has ended.
    assert sizes[-1] == pytest.approx(1.3 * most)
    assert chat.after(5.0, rates(QUIET, gaps=0.0)) < 0.2


def test_guard_is_renewed_while_bursts_come_back_though_its_replicas_suffice(quiet, rates):
    chat = quiet()
    burst(chat, rates)
    for _ in range(4):
        chat.during(0.75 * MEMORY_S, rates(QUIET, gaps=0.0), ready=5.0)
        most = burst(chat, rates, ready=5.0)
        assert chat[Estimate.BURST_AT] == chat.now, "five replicas have no queue; without the guard there is one"
        assert chat[Estimate.SIZE] >= MARGIN * most
    sizes = chat.during(MEMORY_S + 5.0, rates(QUIET, gaps=0.0), ready=5.0)
    assert sizes[-3] > 2.0
    assert sizes[-1] < 0.2, "the last of them was not followed by another"


def test_smaller_burst_does_not_make_the_guard_smaller_until_two_hours_after_the_last(quiet, rates):
    chat = quiet()
    most = burst(chat, rates)
    chat.during(0.5 * MEMORY_S, rates(QUIET, gaps=0.0))
    burst(chat, rates, requests=0.75 * HIGH)
    assert chat[Estimate.BURST] == most
    chat.during(MEMORY_S, rates(QUIET, gaps=0.0))
    smaller = burst(chat, rates, requests=0.75 * HIGH)
    assert chat[Estimate.BURST] == smaller < most


@pytest.mark.parametrize(("seconds", "is_burst"), [(30.0, True), (70.0, True), (75.0, False), (150.0, False)])
def test_work_that_lasts_for_a_start_is_no_burst(quiet, rates, seconds, is_burst):
    chat = quiet()
    burst(chat, rates, seconds=seconds)
    assert (not np.isnan(chat[Estimate.BURST_AT])) == is_burst
    # What is longer is served by new replicas; the seconds in which its queue drains are not counted.
    chat.during(HOLD_S + 120.0, rates(QUIET, gaps=0.0))
    assert (chat[Estimate.SIZE] > 1.0) == is_burst


def test_ramp_is_no_burst(quiet, rates):
    chat = quiet()
    for requests in np.linspace(QUIET, HIGH, 120):
        chat.after(5.0, rates(float(requests), gaps=0.0))
    assert chat[Estimate.QUEUE] > 0.0
    chat.during(2 * 3600.0, rates(QUIET, gaps=0.0))
    assert chat[Estimate.QUEUE] == 0.0
    assert np.isnan(chat[Estimate.BURST_AT])
    assert chat[Estimate.SIZE] < 0.2


@pytest.mark.parametrize(("requests", "is_burst"), [(10.0, False), (12.0, True)])
def test_burst_of_a_few_requests_is_none(sized, rates, requests, is_burst):
    # At the least room a request takes 0.98 replica-seconds. Of fewer than 100 requests a tenth is 10.
    chat = sized(itl=0.02, start=START_S)
    chat.after(5.0, rates(requests / 5.0, gaps=0.0))
    assert chat[Estimate.SPELL_LATE] == pytest.approx(requests)
    chat.during(60.0, rates(0.0))
    assert (chat[Estimate.QUEUE], chat[Estimate.SPELL_LATE]) == (0.0, 0.0)
    assert (not np.isnan(chat[Estimate.BURST_AT])) == is_burst


def test_burst_that_is_less_than_a_tenth_of_the_requests_of_two_hours_is_none(quiet, rates):
    little, much = quiet(), quiet()
    # 4 requests per second are 0.63 replicas and 18,000 requests of the last two hours.
    much.during(2 * MEMORY_S, rates(4.0, gaps=0.0))
    for chat in (little, much):
        burst(chat, rates)
    assert not np.isnan(little[Estimate.BURST_AT])
    assert np.isnan(much[Estimate.BURST_AT])


def test_queue_within_the_time_to_first_token_is_no_burst(quiet, rates):
    # One replica has a queue of (3.1 - 1) * 30 = 64 s at most.
    chat = quiet(ttft=70.0)
    burst(chat, rates)
    assert np.isnan(chat[Estimate.BURST_AT])


def test_without_a_known_number_of_ready_replicas_nothing_is_counted(quiet, rates):
    chat = quiet()
    spell = [Estimate.QUEUE, Estimate.SPELL_S, Estimate.SPELL_LATE, Estimate.SPELL_PEAK, Estimate.BURST]
    chat.during(30.0, rates(HIGH, gaps=0.0), ready=nan)
    assert chat.estimates[0, spell].tolist() == [0.0] * 5
    assert np.isnan(chat[Estimate.BURST_AT])


@pytest.mark.parametrize("ramp", [False, True], ids=["all_at_once", "one_after_another"])
def test_queue_of_a_cold_start_is_no_burst(quiet, rates, ramp):
    chat = quiet()
    chat.during(3600.0, rates(0.0), ready=0.0)
    # Shorter than was learned.
    chat.during(START_S - 15.0, rates(HIGH, gaps=0.0), ready=0.0)
    for ready in (1.0, 2.0, 3.0, 4.0) if ramp else (4.0,):
        chat.during(15.0, rates(HIGH, gaps=0.0), ready=ready)
    assert chat[Estimate.QUEUE] > 0.0
    chat.during(1200.0, rates(HIGH, gaps=0.0), ready=5.0)
    assert chat[Estimate.QUEUE] == 0.0
    assert np.isnan(chat[Estimate.BURST_AT])
    # A burst after it counts.
    chat.during(3 * MEMORY_S, rates(QUIET, gaps=0.0))
    burst(chat, rates)
    assert chat[Estimate.BURST_AT] == chat.now


def test_clock_set_back_ends_the_guard(quiet, rates):
    chat = quiet()
    burst(chat, rates)
    assert chat.after(5.0, rates(QUIET, gaps=0.0)) > 2.0
    chat.after(-86_400.0, rates(QUIET, gaps=0.0))
    chat.during(HOLD_S, rates(QUIET, gaps=0.0))
    assert chat[Estimate.SIZE] < 0.2
    most = burst(chat, rates)
    assert chat[Estimate.BURST_AT] == chat.now
    assert chat[Estimate.SIZE] >= MARGIN * most


RATES = st.floats(0.0, 400.0) | st.sampled_from([0.0, QUIET, HIGH])
MOMENTS = st.tuples(st.floats(-100.0, 5000.0) | st.just(5.0), RATES, st.integers(0, 10).map(float), st.floats(0, 50))


@given(st.lists(MOMENTS, min_size=1, max_size=40))
@settings(max_examples=examples(150))
def test_size_is_the_larger_of_that_without_the_guard_and_of_what_it_keeps(sized, rates, moments):
    constants = DEFAULTS._replace(burst_share=0.0)
    guarded, free = sized(constants=constants), sized(constants=constants._replace(burst_share=inf))
    for seconds, requests, ready, waiting in moments:
        traffic = rates(requests, gaps=0.0)
        size = guarded.after(seconds, traffic, ready=ready, waiting=waiting)
        without = free.after(seconds, traffic, ready=ready, waiting=waiting)
        assert size in {without, MARGIN * guarded[Estimate.BURST]} or np.isnan(size)
        assert not size < without
