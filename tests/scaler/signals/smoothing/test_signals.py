"""Tests rings and smoothing: one value per interval, fast up, slow down, and no value of another workload."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy.capacity import WorkRate
from scaler.policy.columns import SMOOTHED, Readings, Signal
from scaler.signals.aggregate import Aggregate
from scaler.signals.kernels import ewma_fast_slow
from scaler.signals.smoothing import LENGTH, HalfLives, Smoother

NAN = float("nan")


def totals(*work, kv=NAN, gpu=NAN, finished=NAN):
    """The aggregate of as many workloads as there are `work`s."""
    rows = len(work)
    latest = np.full((rows, len(Signal)), NAN)
    latest[:, Signal.WORK] = work
    latest[:, Signal.KV_CACHE], latest[:, Signal.GPU_ENGINE] = kv, gpu
    counted = np.broadcast_to(np.array(finished, dtype=float), rows).copy()
    unknown = np.full(rows, NAN)
    rates = np.full((rows, len(WorkRate)), NAN)
    readings = Readings.unknown(rows)
    return Aggregate(readings, unknown, unknown, unknown, latest, rates, unknown, counted, *[unknown] * 4)


class One:
    """The signals of one workload, with a scrape every 5 s."""

    def __init__(self, up=0.0, down=60.0, interval=5.0):
        self.signals, self.rows = Smoother([HalfLives(up, down)], interval), np.array([0])

    def observe(self, at, work, **more):
        self.signals.observe(self.rows, totals(work, **more), np.array([True]), np.array([at]))

    def work(self, now):
        return float(self.signals.smooth(self.rows, now)[0, Signal.WORK])

    def rate(self, now):
        return float(self.signals.rates(self.rows, now)[0])


def test_signals_without_samples_are_unknown():
    one = One()
    assert np.isnan(one.signals.smooth(one.rows, 1000.0)).all()
    assert np.isnan(one.rate(1000.0))


def test_rise_is_followed_fast_and_a_fall_slowly():
    one = One(up=5.0, down=60.0)
    one.observe(0.0, 0.0)
    one.observe(5.0, 100.0)
    assert one.work(5.0) == 0.0  # it has no duration yet
    assert one.work(10.0) == pytest.approx(50.0)
    assert one.work(15.0) == pytest.approx(75.0)
    one.observe(65.0, 0.0)  # after a minute at 100: 100 x (1 - 2**-12)
    assert one.work(65.0) == pytest.approx(100.0, rel=1e-3)
    assert one.work(125.0) == pytest.approx(50.0, rel=1e-3)
    assert one.work(185.0) == pytest.approx(25.0, rel=1e-3)


def test_rise_without_a_half_life_applies_at_once():
    one = One(up=0.0, down=60.0)
    one.observe(0.0, 1.0)
    one.observe(5.0, 90.0)
    assert one.work(5.0) == 90.0


def test_each_signal_is_smoothed_separately():
    one = One(up=0.0, down=60.0)
    one.observe(0.0, 10.0, kv=0.5, gpu=NAN)
    one.observe(5.0, 20.0, kv=0.25, gpu=0.75)
    work, kv, gpu = one.signals.smooth(one.rows, 65.0)[0]
    assert (work, kv, gpu) == (20.0, pytest.approx(0.375), 0.75)


def test_gap_changes_no_smoothed_value():
    one = One(down=60.0)
    one.observe(0.0, 100.0)
    one.observe(5.0, 0.0)
    for second in range(10, 60, 5):
        one.observe(float(second), NAN)
    assert one.work(65.0) == pytest.approx(50.0)


def test_highest_value_of_an_interval_counts():
    one = One(down=0.0)
    for at, work in ((0.0, 1.0), (5.0, 7.0), (5.5, 90.0), (6.0, 3.0), (6.5, NAN)):
        one.observe(at, work)
    assert one.work(7.0) == 90.0
    one.observe(10.0, 2.0)
    assert one.work(10.0) == 2.0


def test_early_scrape_counts_as_the_next_one():
    one = One(down=0.0)
    one.observe(0.0, 90.0)
    one.observe(4.0, 10.0)
    assert one.work(4.0) == 10.0


@pytest.mark.parametrize("pods", [1, 7, 100])
def test_ring_spans_minutes_for_any_number_of_scrapes(pods):
    # 60 intervals are 5 minutes: five half-lives of the default fall, and the value before it is still in the ring.
    one = One(down=60.0)
    one.observe(0.0, 1024.0)
    for step in range(60 * pods):
        one.observe(5.0 + step * 5.0 / pods, 0.0)
    assert one.work(305.0) == pytest.approx(32.0), "1024 halved five times"


def test_incomplete_sum_is_never_stored_in_a_ring():
    signals, rows = Smoother([HalfLives(0.0, 0.0)] * 2, 5.0), np.array([0, 1])
    signals.observe(rows, totals(10.0, 10.0, finished=5.0), np.array([True, True]), np.full(len(rows), 0.0))
    signals.observe(rows, totals(3.0, 3.0, finished=6.0), np.array([True, False]), np.full(len(rows), 5.0))
    assert signals.smooth(rows, 5.0)[:, Signal.WORK].tolist() == [3.0, 10.0]
    assert np.isnan(signals.rates(rows, 5.0)).tolist() == [False, True]


def test_rates_come_from_scrape_times():
    one = One()
    for at, finished in ((0.0, 0.0), (5.0, 10.0), (10.0, 30.0)):
        one.observe(at, 1.0, finished=finished)
    assert [one.rate(now) for now in (10.0, 14.0, 50.0)] == [3.0, 3.0, 3.0]


def test_rate_covers_the_last_minute():
    # 10 a second for 200 s, then none: half a minute later half of the window is left.
    one, rates = One(), {}
    for second in range(0, 305, 5):
        one.observe(float(second), 1.0, finished=float(min(second, 200) * 10))
        rates[second] = one.rate(float(second))
    assert [rates[second] for second in (5, 100, 200, 230, 260, 300)] == [10.0, 10.0, 10.0, 5.0, 0.0, 0.0]
    assert np.isnan(one.rate(400.0)), "nothing was scraped in the last minute"


def test_scrape_processed_after_its_successor_is_not_dated_back():
    one = One(down=0.0)
    one.observe(10.0, 5.0)
    one.observe(20.0, 6.0)
    one.observe(12.0, 50.0)  # the highest value counts, at the newest time
    assert one.work(20.0) == 50.0
    one.observe(25.0, 1.0)
    assert one.work(25.0) == 1.0


def test_new_configuration_takes_over_rings_by_workload():
    old = Smoother([HalfLives(0.0, 60.0)] * 3, 5.0)
    rows = np.arange(3)
    old.observe(
        rows, totals(10.0, 20.0, 30.0, kv=0.5, gpu=0.25, finished=0.0), np.ones(3, dtype=bool), np.full(len(rows), 0.0)
    )
    old.observe(
        rows, totals(10.0, 20.0, 30.0, kv=0.5, gpu=0.25, finished=50.0), np.ones(3, dtype=bool), np.full(len(rows), 5.0)
    )
    new = Smoother([HalfLives(0.0, 60.0)] * 2, 5.0)
    new.take(old.columns(), np.array([0]), np.array([2]))
    assert new.smooth(np.array([0, 1]), 5.0).tolist()[0] == [30.0, 0.5, 0.25]
    assert np.isnan(new.smooth(np.array([0, 1]), 5.0)[1]).all()
    assert new.rates(np.array([0, 1]), 5.0)[0] == 10.0
    new.observe(np.array([0]), totals(1.0, finished=60.0), np.array([True]), np.array([10.0]))
    assert old.smooth(rows, 10.0)[2, Signal.WORK] == 30.0, "it is a copy"


def smoother_of_two_samples():
    """One workload, 8 requests at 0 s and 16 at 5 s; 0 and 50 finished."""
    old = Smoother([HalfLives(0.0, 60.0)], 5.0)
    for at, work in ((0.0, 8.0), (5.0, 16.0)):
        old.observe(np.array([0]), totals(work, finished=10.0 * at), np.array([True]), np.array([at]))
    return old


def copied(columns, now=5.0):
    new = Smoother([HalfLives(0.0, 60.0)], 5.0)
    new.take(columns, np.array([0]), np.array([0]), now)
    return new


def test_samples_outside_the_window_and_from_the_future_are_not_restored():
    rows, columns = np.array([0]), smoother_of_two_samples().columns()
    assert copied(columns).smooth(rows, 5.0)[0, Signal.WORK] == 16.0
    # 128 slots of 5 s are 640 s: at 642 s the 8 of second 0 is out of the window, and at 646 s the 16 as well.
    assert copied(columns, 642.0).columns()["windows.times"][0][np.array([0, 1])].tolist()[1:] == [5.0]
    assert np.isnan(copied(columns, 646.0).smooth(rows, 646.0)).all()
    assert copied(columns, 3.0).smooth(rows, 3.0)[0, Signal.WORK] == 8.0


def test_next_sample_counts_after_dropped_samples_of_the_future():
    new, rows = copied(smoother_of_two_samples().columns(), 3.0), np.array([0])
    new.observe(rows, totals(32.0, finished=0.0), np.array([True]), np.full(len(rows), 4.0))
    assert new.smooth(rows, 4.0)[0, Signal.WORK] == 32.0


def test_missing_signal_of_another_version_is_unknown_and_the_others_are_kept():
    columns = {
        name: column for name, column in smoother_of_two_samples().columns().items() if name != "windows.finished"
    }
    new, rows = copied(columns | {"windows.from_tomorrow": np.zeros((1, 128))}), np.array([0])
    assert new.smooth(rows, 5.0)[0, Signal.WORK] == 16.0
    assert np.isnan(new.rates(rows, 5.0)).all()


@pytest.mark.parametrize("now", [5.0, inf], ids=["restored", "reloaded"])
def test_missing_signal_does_not_move_the_others_into_its_place(now):
    old, rows = Smoother([HalfLives(0.0, 60.0)], 5.0), np.array([0])
    old.observe(rows, totals(8.0, kv=0.5, gpu=0.25, finished=0.0), np.array([True]), np.array([5.0]))
    new = copied({name: column for name, column in old.columns().items() if name != "windows.kv_cache"}, now)
    np.testing.assert_array_equal(new.smooth(rows, 5.0), [[8.0, NAN, 0.25]])


@pytest.mark.parametrize(
    ("name", "highest"), [("work", 2.0**53), ("kv_cache", 1.0), ("gpu_engine", 1.0), ("finished", 2.0**53)]
)
def test_restored_value_above_the_highest_possible_one_is_a_gap(name, highest):
    columns = smoother_of_two_samples().columns()
    columns[f"windows.{name}"] = np.full((1, LENGTH), np.nextafter(highest, inf))
    columns[f"windows.{name}"][0, 0] = highest
    np.testing.assert_array_equal(copied(columns).columns()[f"windows.{name}"][0, :2], [highest, NAN])


@pytest.mark.parametrize("name", ["work", "kv_cache", "gpu_engine", "finished"])
def test_restored_zero_is_a_value_and_less_is_a_gap(name):
    columns = smoother_of_two_samples().columns()
    columns[f"windows.{name}"] = np.full((1, LENGTH), -1e-9)
    columns[f"windows.{name}"][0, 0] = 0.0
    np.testing.assert_array_equal(copied(columns).columns()[f"windows.{name}"][0, :2], [0.0, NAN])


def test_restored_ring_whose_times_step_back_is_empty():
    columns = smoother_of_two_samples().columns()
    columns["windows.times"] = columns["windows.times"].copy()
    columns["windows.times"][0, [0, 1]] = 5.0, 0.0
    assert np.isnan(copied(columns).smooth(np.array([0]), 5.0)).all()


@pytest.mark.parametrize(
    ("rows", "source_rows"),
    [
        ([0, 1, 2], [0, 1, 2]),
        ([0, 2, 3], [0, 1, 2]),  # a new workload between two
        ([0, 1, 2], [0, 2, 3]),  # one is gone
        ([0, 2, 4], [1, 3, 5]),
        ([2, 1, 0], [0, 1, 2]),
        ([*range(100)], [*range(99, -1, -1)]),  # more than MOST_STRETCHES
    ],
)
def test_rings_are_copied_pairwise_in_any_order(rows, source_rows):
    old, new = (Smoother([HalfLives(0.0, 0.0)] * 100, 5.0) for _ in range(2))
    every = np.arange(100)
    old.observe(every, totals(*every, finished=0.0), np.ones(100, dtype=bool), np.full(100, 5.0))
    new.take(old.columns(), np.array(rows), np.array(source_rows))
    expected = np.full(100, NAN)
    expected[rows] = source_rows
    np.testing.assert_array_equal(new.smooth(every, 5.0)[:, Signal.WORK], expected)


@pytest.mark.parametrize(
    "change",
    [
        {"windows.times": np.zeros(1)},
        {"windows.head": np.zeros((1, 2), np.int64)},
        {"windows.head": np.zeros(1)},
        {"windows.head": np.array([128])},
        {"windows.work": np.zeros((1, 127))},
        {"windows.times": np.zeros((1, 2), dtype=np.int64)},
    ],
)
def test_invalid_columns_count_as_missing(change):
    new = copied(smoother_of_two_samples().columns() | change)
    assert np.isnan(new.smooth(np.array([0]), 5.0)[0, Signal.WORK])


def test_some_workloads_alone_are_smoothed_as_all_together():
    signals, rows = Smoother([HalfLives(float(n), 10.0 * n) for n in range(5)], 5.0), np.arange(5)
    for second in range(0, 50, 5):
        signals.observe(
            rows,
            totals(*(float((second * (n + 3)) % 17) for n in rows)),
            np.ones(5, dtype=bool),
            np.full(len(rows), float(second)),
        )
    together = signals.smooth(rows, 52.0)
    for some in ([0], [4], [1, 3], [0, 2, 4]):
        np.testing.assert_array_equal(signals.smooth(np.array(some), 52.0), together[some])


@settings(max_examples=60, deadline=None)
@given(
    up=st.sampled_from([0.0, 5.0, 30.0]),
    down=st.sampled_from([0.0, 60.0, 300.0]),
    pages=st.lists(st.tuples(st.floats(0.1, 20.0), st.one_of(st.just(NAN), st.floats(0.0, 1000.0))), max_size=30),
)
def test_smoothed_value_lies_between_the_samples(up, down, pages):
    one, now, values = One(up, down), 0.0, []
    for after, work in pages:
        now += after
        one.observe(now, work)
        values += [] if np.isnan(work) else [work]
        value = one.work(now)
        assert np.isnan(value) if not values else min(values) - 1e-9 <= value <= max(values) + 1e-9


ROWS = 3
WORK = st.one_of(st.integers(0, 4).map(float), st.floats(0.0, 1e6), st.just(NAN))
# Seconds since the last step: scrapes, clocks that step back, and a whole ring later.
STEPS_S = st.one_of(st.sampled_from([0.0, 0.5, 1.0, 5.0, -3.0, -40.0, 700.0]), st.floats(0.0, 60.0))
OBSERVED = st.tuples(st.just("observe"), STEPS_S, st.sets(st.integers(0, ROWS - 1), min_size=1), WORK)
ANOTHER = st.tuples(st.just("take"), STEPS_S, st.sets(st.integers(0, ROWS - 1), min_size=1), WORK)
REPLANNED = st.tuples(st.just("replan"), STEPS_S, st.sets(st.integers(0, ROWS - 1), min_size=1), st.floats(1.0, 90.0))
SWEPT = st.tuples(st.just("sweep"), STEPS_S, st.just({0}), st.just(0.0))


def anew(signals, now):
    """The smoothed signals as from all rings, without anything that was remembered."""
    rings, series = signals._windows, signals._rows * SMOOTHED
    windows = rings.times[:series].copy(), rings.values[:series].copy(), rings.head[:series].copy()
    return ewma_fast_slow(*windows, signals._up, signals._down, now).reshape(SMOOTHED, signals._rows).T


@settings(max_examples=150)
@given(st.lists(st.one_of(OBSERVED, OBSERVED, SWEPT, SWEPT, ANOTHER, REPLANNED), max_size=30))
def test_sweep_that_goes_on_from_the_last_one_smooths_bit_for_bit_as_one_from_the_whole_rings(steps):
    signals, now = Smoother([HalfLives(5.0, 60.0)] * ROWS, 5.0), 1e9
    every = np.arange(ROWS)
    for step, passed_s, chosen, value in steps:
        now += passed_s
        rows = np.array(sorted(chosen))
        if step == "observe":
            signals.observe(rows, totals(*[value] * len(rows), kv=0.5), np.full(len(rows), fill_value=True), rows + now)
        elif step == "take":
            other = Smoother([HalfLives()] * ROWS, 5.0)
            other.observe(every, totals(*[value] * ROWS), np.full(ROWS, fill_value=True), every + now - 10.0)
            signals.take(other.columns(), rows, rows)
        elif step == "replan":
            signals.replan(rows, Smoother([HalfLives(value, 2 * value)] * len(rows), 5.0))
        np.testing.assert_array_equal(signals.smooth(every, now), anew(signals, now))


def test_ring_in_which_nothing_was_written_is_not_read_again():
    one = One(up=5.0, down=60.0)
    for at, work in ((0.0, 4.0), (5.0, 8.0), (10.0, 2.0)):
        one.observe(at, work)
    before = one.work(15.0)
    one.signals._windows.values[0, 0] = 1e6  # not the newest: only a pass over the whole ring would see it
    assert one.work(15.0) == before
    assert one.work(20.0) < before
    one.observe(15.0, 2.0)
    assert one.work(20.0) > 100.0


def test_ring_that_is_replaced_is_read_again_though_it_ends_alike():
    one, other = One(), One()
    for work, each in ((4.0, one), (90.0, other)):
        each.observe(0.0, work)
        each.observe(5.0, 2.0)
        each.work(10.0)
    one.signals.take(other.signals.columns(), one.rows, one.rows)
    assert one.work(10.0) == other.work(10.0)


def test_ring_with_other_half_lives_is_read_again():
    one = One(up=5.0, down=60.0)
    for at, work in ((0.0, 4.0), (5.0, 8.0), (10.0, 2.0)):
        one.observe(at, work)
    one.work(15.0)
    one.signals.replan(one.rows, Smoother([HalfLives(20.0, 20.0)], 5.0))
    np.testing.assert_array_equal(one.signals.smooth(one.rows, 15.0), anew(one.signals, 15.0))
