"""Tests what is counted of an SLO: requests, misses, and the error budget, over an hour and three days."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy import attainment
from scaler.policy.attainment import DAYS, HOUR, SLOTS, SPREAD, WIDTH, WINDOWS, attained, blank, update
from scaler.policy.capacity import WorkRate
from tests.budget import examples

START = 1.7e9 - 1.7e9 % DAYS.slot_s  # a slot of both windows begins
LONGEST_S = 15.0
ITL = np.array([0.05])


def rates(requests=0.0, late=0.0, times=None, late_times=0.0, around=0.0, mean=nan):
    """One workload's rates. times: per output token; None: one per request. around: within `around` of both misses.

    mean: seconds between two tokens.
    """
    row = np.full((1, len(WorkRate)), nan)
    each = requests if times is None else times
    row[0, WorkRate.TTFT :] = (
        *(requests, late, late - around, late + around),
        *(each, late_times, late_times - around, late_times + around),
    )
    row[0, [WorkRate.GAPS, WorkRate.GAP_SECONDS]] = 100.0, 100.0 * mean
    return row


class Workload:
    """One workload that is updated every 5 s."""

    def __init__(self):
        self.counts, self.now = blank(1), START
        update(self.counts, rates(), ITL, self.now, LONGEST_S)

    def serve(self, seconds, **given):
        """Serves at these rates for so long. Returns the misses of all updates."""
        misses = 0.0
        for _ in range(round(seconds / 5.0)):
            self.now += 5.0
            misses += float(update(self.counts, rates(**given), ITL, self.now, LONGEST_S).misses[0])
        return misses

    def of(self, window, name="ratio"):
        return float(getattr(attained(self.counts, window), name)[0])


@pytest.fixture
def chat():
    return Workload()


def test_worked_example_of_the_module(chat):
    assert chat.serve(10, requests=10.0, late=0.2, times=1990.0, late_times=19.9) == pytest.approx(3.0)
    assert (chat.of(HOUR), chat.of(HOUR, "budget")) == (pytest.approx(0.97), pytest.approx(-2.0))


def test_workload_without_requests_has_neither_ratio_nor_budget(chat):
    chat.serve(600)
    for window in WINDOWS:
        assert chat.of(window, "requests") == 0.0
        assert np.isnan([chat.of(window, name) for name in ("ratio", "least", "most", "budget")]).all()


@pytest.mark.parametrize("missing", [WorkRate.TTFT, WorkRate.TPOT])
def test_update_without_one_of_the_latencies_is_unknown_and_counts_nothing(chat, missing):
    chat.serve(60, requests=10.0, late=1.0)
    before = [each.copy() for each in chat.counts[1:]]
    unknown = rates(requests=10.0)
    unknown[0, missing : missing + 4] = nan
    found = update(chat.counts, unknown, ITL, chat.now + 5.0, LONGEST_S)
    assert np.isnan([*found.requests, *found.misses]).all()
    for mine, other in zip(chat.counts[1:], before, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_late_time_of_an_engine_that_counts_each_token_weighs_as_its_part_of_a_request(chat):
    per_token, per_request = chat, Workload()
    per_token.serve(600, requests=2.0, times=398.0, late_times=39.8)
    per_request.serve(600, requests=2.0, times=2.0, late_times=0.2)
    assert per_token.of(HOUR) == pytest.approx(per_request.of(HOUR)) == pytest.approx(0.9)


def test_request_that_misses_both_latencies_counts_twice_and_never_more_than_all_miss(chat):
    chat.serve(60, requests=1.0, late=0.3, late_times=0.3)
    assert chat.of(HOUR) == pytest.approx(0.4)
    chat.serve(6000, requests=1.0, late=1.0, late_times=1.0)
    assert (chat.of(HOUR), chat.of(HOUR, "least"), chat.of(HOUR, "most")) == (0.0, 0.0, 0.0)


def test_bounds_of_the_buckets_bound_the_ratio(chat):
    chat.serve(600, requests=10.0, late=0.5, around=0.2)
    assert chat.of(HOUR, "least") == pytest.approx(0.91)  # 0.7 late first tokens and 0.2 late times of 10
    assert chat.of(HOUR) == pytest.approx(0.95)
    assert chat.of(HOUR, "most") >= chat.of(HOUR)
    assert chat.counts.totals[0].tolist() == pytest.approx([6000.0, 300.0])


@pytest.mark.parametrize(
    ("mean", "late"),
    [
        (0.040, 0.2),  # 20 % below the SLO: none of the bucket
        (0.0425, 0.2),  # 15 % below: half of the 30 % within which times differ
        (0.050, 0.5),  # at the SLO: half of it
        (0.0575, 0.8),
        (0.060, 0.8),  # 20 % above: all
        (nan, 0.3),  # without a mean: as interpolated
    ],
)
def test_times_in_the_bucket_of_the_slo_are_divided_by_the_mean_between_tokens(mean, late):
    chat = Workload()
    served = rates(requests=1.0, mean=mean)
    # Two tenths of the times are above the bucket, six in it, of which one is late by interpolation.
    served[0, WorkRate.TPOT_LATE : WorkRate.TPOT_LATE_MOST + 1] = 0.3, 0.2, 0.8
    before = served.copy()
    found = update(chat.counts, served, ITL, chat.now + 10.0, LONGEST_S)
    assert (float(found.requests[0]), float(found.misses[0])) == (10.0, pytest.approx(10.0 * late))
    np.testing.assert_array_equal(served, before)


def test_mean_of_an_engine_that_makes_no_token_divides_nothing():
    chat = Workload()
    served = rates(requests=1.0, late_times=0.3, around=0.2)
    served[0, [WorkRate.GAPS, WorkRate.GAP_SECONDS]] = 0.0
    assert update(chat.counts, served, ITL, chat.now + 10.0, LONGEST_S).misses.tolist() == [pytest.approx(3.0)]


@given(st.floats(0.0, 10.0), st.floats(0.0, 10.0), st.floats(0.0, 1e3), st.floats(0.0, 1e3), st.floats(1e-3, 1.0))
@settings(max_examples=examples(100))
def test_division_of_the_bucket_stays_within_its_bounds(least, inside, gaps, gap_seconds, itl):
    chat, served = Workload(), rates(requests=30.0)
    served[0, WorkRate.TPOT_LATE : WorkRate.TPOT_LATE_MOST + 1] = least + 0.5 * inside, least, least + inside
    served[0, [WorkRate.GAPS, WorkRate.GAP_SECONDS]] = gaps, gap_seconds
    misses = float(update(chat.counts, served, np.array([itl]), chat.now + 1.0, LONGEST_S).misses[0])
    assert least * (1 - 1e-9) <= misses <= (least + inside) * (1 + 1e-9)


SMALL = st.floats(0.0, 1e3) | st.sampled_from([nan, 1e-309, 1e300])
NEAR = st.floats(0.7, 1.3)  # the mean over the SLO, where the bucket is divided


@given(st.lists(st.tuples(SMALL, NEAR | SMALL, SMALL, SMALL, SMALL, st.floats(1e-3, 1.0)), min_size=1, max_size=4))
@settings(max_examples=examples(100))
def test_kernel_divides_the_bucket_exactly_as_numpy_does(given_rows):
    gaps, ratio, interpolated, least, inside, itl = np.array(given_rows).T.copy()
    gap_seconds = np.minimum(ratio, 1e6) * itl * gaps
    served = np.repeat(rates(requests=1.0), len(itl), axis=0)
    served[:, [WorkRate.GAPS, WorkRate.GAP_SECONDS]] = np.column_stack([gaps, gap_seconds])
    served[:, WorkRate.TPOT_LATE : WorkRate.TPOT_LATE_MOST + 1] = np.column_stack([interpolated, least, least + inside])
    counts = blank(len(itl))
    update(counts, served, itl, START, LONGEST_S)
    misses = update(counts, served, itl, START + 1.0, LONGEST_S).misses
    with np.errstate(over="ignore"):
        mean = gap_seconds / np.where(gaps > 0.0, gaps, nan)
        share = np.clip((mean / itl - 1.0) / SPREAD + 0.5, 0.0, 1.0)
        late = least + share * ((least + inside) - least)
    np.testing.assert_array_equal(misses, np.where(np.isnan(late), interpolated, late))


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: window.name)
def test_misses_leave_the_window_after_its_time(window):
    chat, step = Workload(), window.slot_s / 10.0
    chat.now += 5.0
    update(chat.counts, rates(requests=10.0, late=10.0), ITL, chat.now, LONGEST_S)
    moments = []
    while not moments or moments[-1][1] > 0.0:
        chat.now += step
        update(chat.counts, rates(), ITL, chat.now, LONGEST_S)
        moments.append((chat.now - START, chat.of(window, "requests")))
    for age, left in moments:  # the oldest slot counts as far as it is still in the window
        assert left == pytest.approx(50.0 * np.clip(SLOTS + 1 - age / window.slot_s, 0.0, 1.0), abs=1e-6), age
    assert moments[-1][0] == pytest.approx((SLOTS + 1) * window.slot_s, abs=step)
    assert chat.of(window, "ratio") != 0.0  # unknown, not missed


def test_steady_traffic_counts_as_much_as_the_window_is_long(chat):
    for _ in range(3):
        chat.serve(5000, requests=3.0, late=0.3)
        # At the start of a window the slots are not full yet.
    assert chat.of(HOUR, "requests") == pytest.approx(3.0 * 3600.0, rel=0.01)
    assert chat.of(HOUR) == pytest.approx(0.9)


def test_rates_hold_for_so_long_at_most_and_not_over_a_clock_that_is_set_back(chat):
    chat.serve(5, requests=1.0)
    assert update(chat.counts, rates(requests=1.0), ITL, chat.now + 1000.0, LONGEST_S).requests.tolist() == [15.0]
    assert np.isnan(update(chat.counts, rates(requests=1.0), ITL, chat.now - 1000.0, LONGEST_S).requests).all()
    assert update(chat.counts, rates(requests=1.0), ITL, chat.now - 995.0, LONGEST_S).requests.tolist() == [5.0]


MOMENTS = st.lists(
    st.tuples(st.floats(0.1, 1e6), st.floats(0.0, 1e4), st.floats(0.0, 1.0), st.floats(0.0, 1.0)), max_size=12
)


@given(MOMENTS)
@settings(max_examples=examples(150))
def test_ratio_is_between_its_bounds_and_totals_never_fall(moments):
    chat, before = Workload(), np.zeros(2)
    for after, requests, late, late_times in moments:
        chat.now += after
        served = rates(requests=requests, late=late * requests, late_times=late_times * requests)
        update(chat.counts, served, ITL, chat.now, LONGEST_S)
        assert (chat.counts.totals[0] >= before).all()
        before = chat.counts.totals[0].copy()
        for window in WINDOWS:
            found = attained(chat.counts, window)
            ratio = float(found.ratio[0])
            assert np.isnan(ratio) == (found.requests[0] < 1.0)
            assert np.isnan(ratio) or 0.0 <= found.least[0] <= ratio + 1e-9 <= found.most[0] + 2e-9 <= 1.0 + 2e-9
    assert attainment.made_sound(chat.counts._asdict()).all()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(1, 4))
@settings(max_examples=examples(50))
def test_workloads_do_not_change_each_others_counts(late, rows):
    together, alone = blank(rows), [blank(1) for _ in range(rows)]
    for step, missed in enumerate(late):
        now = START + 400.0 * step
        served = np.concatenate([rates(requests=10.0, late=float(missed if row % 2 else 0)) for row in range(rows)])
        update(together, served, np.full(rows, 0.05), now, LONGEST_S)
        for row, each in enumerate(alone):
            update(each, served[row : row + 1], ITL, now, LONGEST_S)
    for column, parts in zip(together, zip(*alone, strict=True), strict=True):
        np.testing.assert_array_equal(column, np.concatenate(parts))


def test_empty_fleet_has_a_sound_state():
    counts = blank(0)
    none = np.empty(0)
    assert update(counts, np.empty((0, len(WorkRate))), none, START, LONGEST_S).requests.tolist() == []
    assert attainment.made_sound(counts._asdict()).tolist() == []


def test_state_has_so_many_floats_per_workload():
    assert sum(column[0].size for column in blank(1)) == WIDTH == 109


@pytest.mark.parametrize(("name", "value"), [("totals", -1.0), ("hour", nan), ("days", 1e300), ("weights", -0.5)])
def test_counts_that_this_version_could_not_have_written_are_unsound(chat, name, value):
    chat.serve(60, requests=10.0, late=1.0)
    columns = {key: column.copy() for key, column in chat.counts._asdict().items()}
    assert attainment.made_sound(columns).all()
    columns[name].flat[0] = value
    assert not attainment.made_sound(columns).any()
