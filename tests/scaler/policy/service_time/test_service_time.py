"""Tests what the time of a request says about replicas."""

from __future__ import annotations

from math import isnan, nan

import numpy as np
import pytest

from scaler.policy import capacity, service_time
from scaler.policy.capacity import Estimate
from scaler.policy.service_time import FULL_STRETCH, MOST_FULL, RequestTime, TimeInputs


def test_worked_example_of_the_module(timed):
    chat = timed()
    chat.during(60.0, 2.0, in_hand=10.0, ready=2.0)
    shown = chat.shown
    assert shown["request_s"] == pytest.approx(5.0)
    assert shown["replica_requests"] == pytest.approx(5.0)
    assert shown["request_slowdown"] == pytest.approx(0.25)
    assert shown["replica_full"] == pytest.approx(10.0)
    assert shown["request_replica_s"] == pytest.approx(0.778, abs=1e-3)
    chat.during(600.0, 2.0, in_hand=10.0, ready=2.0)
    assert chat[Estimate.WORK] == pytest.approx(1.556, abs=1e-3)


def test_size_is_unknown_until_a_request_has_come_and_gone(timed):
    chat = timed()
    assert isnan(chat.after(15.0, 0.0, in_hand=3.0))
    assert isnan(chat.after(15.0, 0.03, in_hand=3.0))
    assert all(isnan(value) for value in chat.shown.values())
    assert chat.after(15.0, 1.0, in_hand=3.0) > 0.0


def test_requests_of_which_none_has_finished_yet_have_no_time(timed):
    chat = timed()
    chat.after(15.0, 20.0 / 15.0, finished=0.0, in_hand=20.0)
    assert isnan(chat.during(3600.0, 0.0, in_hand=20.0)[-1])
    assert chat.after(15.0, 0.0, finished=10.0 / 15.0, in_hand=10.0) >= 0.0


def test_request_that_hangs_makes_no_other_longer(timed):
    chat = timed()
    chat.during(3600.0, 1.0, in_hand=5.0)
    chat.during(86400.0, 0.0, in_hand=1.0)
    # 75 s in hand of the one that hangs, among 200 requests of 5 s.
    assert chat.shown["request_s"] == pytest.approx(5.0 + 75.0 / 200.0, rel=0.01)
    chat.during(15.0, 1.0, in_hand=6.0)
    assert chat.shown["request_s"] == pytest.approx(5.4, rel=0.05)


def test_requests_that_take_minutes_are_timed(timed):
    chat = timed()
    for _ in range(200):
        chat.after(15.0, 1.0 / 15.0, finished=0.0, in_hand=1.0)
        chat.during(285.0, 0.0, in_hand=1.0)
        chat.after(15.0, 0.0, finished=1.0 / 15.0, in_hand=0.0)
    assert chat.shown["request_s"] == pytest.approx(300.0, rel=0.05)


@pytest.mark.parametrize("unknown", [{"rate": nan}, {"finished": nan}, {"in_hand": nan}])
def test_unknown_reading_changes_nothing(timed, unknown):
    chat = timed()
    chat.during(600.0, 2.0, in_hand=10.0)
    times, estimates = chat.times.copy(), chat.estimates.copy()
    chat.after(15.0, **{"rate": 2.0, "in_hand": 10.0, **unknown})
    np.testing.assert_array_equal(chat.times, times)
    np.testing.assert_array_equal(chat.estimates, estimates)


def test_workload_that_is_not_chosen_stays_as_it_is(timed):
    chat = timed()
    chat.during(600.0, 2.0, in_hand=10.0)
    estimates = chat.estimates.copy()
    chat.after(15.0, 9.0, in_hand=90.0, chosen=False)
    np.testing.assert_array_equal(chat.estimates, estimates)


def test_more_requests_at_the_same_speed_fill_more_replicas(timed):
    """Three times the requests, on three times the replicas: a request takes as long as before."""
    chat = timed()
    before = chat.serves(3600.0, 1.0, alone_s=4.0, slower=0.05)[-1]
    after = chat.serves(7200.0, 3.0, alone_s=4.0, slower=0.05, ready=3.0)[-1]
    assert 2.0 * before < after < 3.2 * before


def test_slope_of_the_server_is_learned_from_a_load_that_changes(timed):
    """A server on which each further request adds 8 % is full at 2.5 / 0.08 = 31 requests, not at 10.

    A deviation is added to what is learned.
    """
    chat = timed()
    for _ in range(48):
        chat.serves(1800.0, 4.0, alone_s=2.0, slower=0.08, ready=2.0)
        chat.serves(1800.0, 6.0, alone_s=2.0, slower=0.08, ready=2.0)
    assert chat.shown["request_slowdown"] == pytest.approx(0.08, rel=0.2)
    assert chat.shown["replica_full"] == pytest.approx(2.5 / chat.shown["request_slowdown"])


def test_server_that_never_slows_down_is_full_at_the_most_requests(timed):
    chat = timed()
    for _ in range(24):
        chat.serves(1800.0, 2.0, alone_s=2.0, slower=0.0, ready=2.0)
        chat.serves(1800.0, 8.0, alone_s=2.0, slower=0.0, ready=2.0)
    assert chat.shown["replica_full"] == pytest.approx(MOST_FULL)


def test_steady_load_teaches_no_slope(timed):
    chat = timed()
    chat.serves(86400.0, 4.0, alone_s=2.0, slower=0.02)
    assert chat.shown["replica_full"] == pytest.approx(10.0, rel=0.01)


def test_full_replica_makes_requests_slower_by_the_stretch(timed):
    """So many requests as fill a replica take FULL_STRETCH times as long as one alone, and are one replica of work."""
    chat = timed()
    chat.during(600.0, 2.0, in_hand=10.0, ready=2.0)
    shown = chat.shown
    alone_s = shown["request_s"] / (1.0 + shown["request_slowdown"] * shown["replica_requests"])
    per_second = shown["replica_full"] / (FULL_STRETCH * alone_s)
    assert per_second * shown["request_replica_s"] == pytest.approx(1.0)


def test_requests_that_wait_teach_nothing_and_add_replicas(timed):
    chat = timed()
    calm = chat.during(3600.0, 2.0, in_hand=10.0)[-1]
    times = chat.times.copy()
    crowded = chat.during(60.0, 2.0, in_hand=210.0, waiting=200.0)[-1]
    np.testing.assert_array_equal(chat.times, times)
    assert crowded > calm


def test_longer_requests_need_more_replicas(timed):
    """Four times as long, at as many requests per replica."""
    short = timed().during(3600.0, 2.0, in_hand=4.0)[-1]
    long = timed().during(3600.0, 2.0, in_hand=16.0, ready=4.0)[-1]
    assert long > 2.0 * short


def test_without_replicas_nothing_is_learned_and_what_arrives_counts(timed):
    chat = timed()
    chat.during(3600.0, 2.0, in_hand=10.0)
    times = chat.times.copy()
    sizes = chat.during(60.0, 4.0, in_hand=20.0, waiting=20.0, finished=0.0, ready=0.0)
    np.testing.assert_array_equal(chat.times, times)
    assert sizes[-1] > 1.0


def test_size_falls_to_nothing_when_nothing_arrives(timed):
    chat = timed()
    chat.during(3600.0, 2.0, in_hand=10.0)
    assert chat.during(7200.0, 0.0, in_hand=0.0)[-1] == pytest.approx(0.0, abs=1e-6)


def test_clock_that_is_set_back_changes_no_time(timed):
    chat = timed()
    chat.during(3600.0, 2.0, in_hand=10.0)
    times = chat.times.copy()
    chat.after(-3000.0, 2.0, in_hand=100.0)
    np.testing.assert_array_equal(chat.times, times)
    assert chat.during(60.0, 2.0, in_hand=10.0)[-1] > 0.0


def test_rates_hold_for_a_reading_and_not_for_the_gap_before_it(timed):
    chat = timed()
    chat.during(600.0, 2.0, in_hand=10.0)
    before = chat.times[0, RequestTime.MINUTES_REQUESTS]
    chat.after(3600.0, 2.0, in_hand=10.0)
    assert chat.times[0, RequestTime.MINUTES_REQUESTS] <= before + 2.0 * 45.0


def test_workloads_are_sized_each_by_its_own_row():
    times, estimates = service_time.blank(3), capacity.blank(3)
    rate, in_hand = np.array([1.0, 2.0, 4.0]), np.array([5.0, 10.0, 20.0])
    ones, nothing = np.ones(3), np.zeros(3)
    for step in range(40):
        inputs = TimeInputs(rate, rate, in_hand, nothing, ones, np.full(3, nan), 75.0 * ones)
        service_time.update(times, estimates, np.ones(3, dtype=np.bool_), inputs, 1.7e9 + 15.0 * step, 45.0)
    shown = service_time.request_times(times, estimates, 1.7e9 + 600.0)
    np.testing.assert_allclose(shown.request_s, 5.0)
    np.testing.assert_allclose(shown.replica_requests, in_hand)
