"""Tests which requests are in the queue: those without a first token, though an engine calls them running."""

from __future__ import annotations

from math import nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy.capacity import Estimate
from tests.budget import examples

RATES = st.floats(-10.0, 100.0)
IN_HAND = st.integers(0, 300).map(float) | st.just(nan)


def test_requests_whose_prompts_are_read_are_backlog_though_they_run(sized, rates):
    # For 40 s no prompt is read to its end.
    stuck, queued, read = sized(), sized(), sized()
    for chat in (stuck, queued, read):
        chat.during(60.0, rates(4.0, gaps=0.0))
    unread = rates(4.0, gaps=0.0, first_tokens=0.0, prompt=0.0)
    running = stuck.during(40.0, unread, running=170.0)[-1]
    assert stuck[Estimate.UNREAD] == pytest.approx(160.0)
    assert running == pytest.approx(queued.during(40.0, unread, waiting=160.0)[-1])
    assert running > read.during(40.0, rates(4.0, gaps=0.0), running=170.0)[-1] * 1.1
    assert read[Estimate.UNREAD] == pytest.approx(0.0)


def test_first_tokens_end_the_backlog(sized, rates):
    chat = sized()
    chat.during(20.0, rates(4.0, first_tokens=0.0), running=90.0)
    chat.during(20.0, rates(4.0, first_tokens=6.0), running=90.0)
    assert chat[Estimate.UNREAD] == pytest.approx(40.0)
    chat.during(60.0, rates(4.0, first_tokens=6.0), running=90.0)
    assert chat[Estimate.UNREAD] == 0.0


@given(st.lists(st.tuples(st.floats(0.1, 600.0), RATES, RATES, IN_HAND, IN_HAND), min_size=1, max_size=12))
@settings(max_examples=examples(100))
def test_unread_requests_are_those_waiting_at_least_and_those_in_hand_at_most(sized, rates, moments):
    chat = sized()
    for step, arrived, firsts, waiting, running in moments:
        chat.after(step, rates(arrived, first_tokens=firsts), waiting=waiting, running=running)
        least, most = (0.0 if each != each else each for each in (waiting, running))  # noqa: PLR0124 - NaN
        assert least <= chat[Estimate.UNREAD] <= least + most


def test_requests_that_end_without_a_first_token_do_not_add_up(sized, rates):
    aborted, never = sized(), sized()
    for turn in range(50):
        # Ten come, none is read, and all are gone at the next update.
        aborted.after(5.0, rates(2.0, first_tokens=0.0), running=10.0)
        aborted.after(5.0, rates(0.0), running=0.0)
        assert aborted[Estimate.UNREAD] == 0.0, turn
        never.after(5.0, rates(2.0), running=10.0)
        never.after(5.0, rates(0.0), running=0.0)
    # Of a request in hand whose prompt was read nothing is unread.
    aborted.after(5.0, rates(2.0), running=10.0)
    assert aborted[Estimate.UNREAD] == pytest.approx(0.0)


def test_backlog_within_half_the_time_to_first_token_adds_nothing(sized, rates):
    # 0.157 replica-seconds each: 6 are 0.94 s of one replica, 7 are 1.1; the SLO is 2 s.
    sizes = []
    for waiting in (0.0, 6.0, 7.0):
        chat = sized(ttft=2.0)
        chat.during(600.0, rates(4.0, gaps=0.0))
        sizes.append(chat.after(5.0, rates(4.0, gaps=0.0), waiting=waiting, running=50.0))
    # A backlog of seven drains within a start of 75 s: 0.015 replicas, less than the headroom.
    assert sizes[0] == sizes[1] == sizes[2]
    assert chat[Estimate.LATE_AT] == chat.now
    chat = sized(ttft=2.0)
    chat.during(600.0, rates(4.0, gaps=0.0))
    assert chat.after(5.0, rates(4.0, gaps=0.0), waiting=70.0, running=50.0) > sizes[0]


def test_workload_that_wakes_orders_what_also_drains_the_queue_of_the_first_start(sized, rates):
    chat = sized(start=75.0)
    # 0.13 s of 15 ms steps each, at a room of 0.62: 5 requests per second are 1.06 replicas.
    alone = chat.during(60.0, rates(5.0, gaps=0.0), ready=1.0)[-1]
    woken = chat.during(
        60.0, rates(5.0, gaps=0.0, first_tokens=0.0, prompt=0.0, finished=0.0), waiting=300.0, ready=0.0
    )
    assert alone < 1.5
    assert woken[-1] >= 2.0


def test_replicas_that_are_not_known_add_nothing_for_a_queue(sized, rates):
    known, unknown = sized(), sized()
    inputs = rates(5.0, gaps=0.0)
    assert known.during(60.0, inputs, ready=2.0)[-1] == unknown.during(60.0, inputs, ready=2.0)[-1]
    assert unknown.after(5.0, inputs, waiting=400.0, ready=nan) < known.after(5.0, inputs, waiting=400.0, ready=0.0)
