"""Which streams of requests are taken for probes: clocks, one to three of them, and nothing that comes by chance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.probes import KEPT, MANY_RISES, RISES, Probes, band
from scaler.state import copy_into

SCRAPE_S = 5.0


def activity(times, period=60.0, until=None, probes=None, scrape=SCRAPE_S):
    """At which scrapes requests that came at `times` counted as activity. Scrapes are at 0.3 s past each 5."""
    probes = probes or Probes(np.array([period]), 1)
    times, seen, counted = np.sort(np.asarray(times, dtype=float)), 0, []
    for at in np.arange(0.3, until or times[-1] + scrape, scrape):
        count = int(np.searchsorted(times, at))
        if probes.count(0, 0, float(count - seen), at):
            counted.append(at)
        seen = count
    return counted


def clock(period, start=0.0, count=200):
    return start + period * np.arange(count)


@pytest.mark.parametrize("period", [5.0, 7.3, 10.0, 15.0, 30.0, 60.0])
def test_one_clock_is_known_after_thirty_rises_and_counts_no_more(period):
    counted = activity(clock(period))
    assert len(counted) == RISES - 1
    assert counted[-1] <= RISES * period + SCRAPE_S


@pytest.mark.parametrize(
    "periods", [(10.0, 15.0), (10.0, 10.0), (10.0, 30.0, 15.0), (60.0, 45.0, 30.0), (7.0, 7.0, 7.0)]
)
def test_several_probers_at_once_are_a_sum_of_clocks_and_stay_near_a_line(periods):
    times = np.concatenate([clock(period, start=3.1 * n, count=400) for n, period in enumerate(periods)])
    counted = activity(times, until=min(periods) * 390)
    assert RISES - 1 <= len(counted) <= MANY_RISES


def test_one_request_each_7_minutes_always_counts():
    assert len(activity(clock(420.0))) == 200
    assert len(activity(clock(61.0))) == 200


def test_requests_more_often_than_one_a_second_always_count():
    assert len(activity(clock(0.5, count=2000), until=1000.0)) == 200


def test_a_period_of_0_turns_it_off():
    assert len(activity(clock(10.0), period=0.0)) == 200


@pytest.mark.parametrize("gap", [3.0, 5.0, 10.0, 30.0, 59.0])
def test_requests_that_come_by_chance_count(gap):
    quiet = []
    for seed in range(10):
        times = np.cumsum(np.random.default_rng(seed).exponential(gap, 150))
        rises = len(np.unique(np.floor((times - 0.3) / SCRAPE_S)))
        quiet.append(rises - len(activity(times)))
    assert max(quiet) <= 2, "the first requests are a baseline or begin within the last scrape"


@pytest.mark.parametrize("phase", [0.1, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("period", [7.3, 10.0, 13.0, 22.0, 30.0, 45.0])
def test_one_request_beside_a_prober_counts_and_then_the_prober_does_not_again(period, phase):
    probes = clock(period, count=120)
    request = probes[70] + phase * period
    extra = sorted(set(activity(np.append(probes, request))) - set(activity(probes)))
    # At its scrape where no probe was due, else at the next rise, which comes too early. Where the two cannot be told
    # apart, all count until the prober is known anew.
    assert 0.0 <= extra[0] - request <= period + SCRAPE_S
    assert len(extra) <= RISES + 1
    assert extra[-1] < probes[110]


def test_a_client_beside_a_prober_keeps_counting():
    rng = np.random.default_rng(7)
    client = 1000.0 + np.cumsum(rng.exponential(40.0, 40))
    counted = [at for at in activity(np.append(clock(10.0, count=300), client), until=2900) if 1000 < at < client[-1]]
    # Each of its requests counts before the prober's second question after it.
    missed = [at for at in client[:-1] if not any(0 <= seen - at <= 20.0 for seen in counted)]
    assert missed == []


def test_a_prober_that_pauses_is_looked_at_anew():
    counted = activity(np.append(clock(10.0, count=60), clock(10.0, start=1000.0, count=60)))
    assert len([at for at in counted if at > 900]) == RISES


def test_a_scrape_or_two_that_fail_change_nothing():
    probes, seen, counted = Probes(np.array([60.0]), 1), 0, []
    for n, at in enumerate(np.arange(0.3, 1500, SCRAPE_S)):
        if n % 7 == 3:
            continue
        count = int(at // 10.0) + 1
        if probes.count(0, 0, float(count - seen), at):
            counted.append(at)
        seen = count
    assert len(counted) == RISES - 1


def test_work_that_is_seen_makes_it_begin_anew():
    probes = Probes(np.array([60.0]), 1)
    assert len(activity(clock(10.0, count=50), probes=probes)) == RISES - 1
    probes.worked(0, 500.0)
    assert len(activity(clock(10.0, start=510.0, count=50), probes=probes, until=1000.0)) >= RISES - 1
    assert np.isfinite(probes.period[0])


def asleep(probes, now, there=False, woken=False):
    still = not woken
    probes.answered(np.array([0]), np.array([still]), np.array([there]), np.array([woken]), now, slack_s=15.0)


@pytest.mark.parametrize(("woken_after", "counts"), [(30.0, True), (36.0, False)])
def test_who_wakes_it_within_two_periods_was_a_client_and_counts_from_then_on(woken_after, counts):
    probes = Probes(np.array([60.0]), 1)
    activity(clock(10.0, count=50), probes=probes)
    asleep(probes, 500.0, there=True)
    asleep(probes, 600.0, there=True)  # its last replica is still there, and answers
    asleep(probes, 605.0)
    asleep(probes, 600.0 + woken_after, woken=True)
    assert probes.regular_counts.tolist() == [counts]
    begun = 2000.0
    later = activity(clock(10.0, start=begun, count=50), probes=probes, until=begun + 500)
    assert (len([at for at in later if at > begun]) == 50) is counts


def test_whom_nobody_took_for_a_prober_was_not_put_to_sleep_wrongly():
    probes = Probes(np.array([60.0]), 1)
    asleep(probes, 500.0)
    asleep(probes, 501.0, woken=True)
    assert probes.regular_counts.tolist() == [False]


def test_what_was_learned_is_handed_on_by_name_and_strangers_names_are_ignored():
    old, new = Probes(np.array([60.0, 60.0]), 1), Probes(np.array([60.0, 60.0]), 1)
    old.regular_counts[1] = True
    copy_into(new.columns(), {**old.columns(), "probes.unheard_of": np.zeros(9)}, np.array([0]), np.array([1]))
    assert new.regular_counts.tolist() == [True, False]
    copy_into(new.columns(), {}, np.array([0]), np.array([1]))
    assert new.regular_counts.tolist() == [True, False]


def test_a_slot_that_is_free_again_has_nothing_of_who_had_it():
    probes = Probes(np.array([60.0]), 1)
    activity(clock(10.0, count=50), probes=probes)
    probes.clear(0)
    assert len(activity(clock(10.0, start=600.0, count=50), probes=probes, until=1100.0)) >= RISES - 1
    probes.grow(3)
    assert probes.count(0, 2, 1.0, 2000.0)


@given(slope=st.floats(0.02, 1.0), play=st.floats(0.0, 0.9), seed=st.integers(0, 10**6), count=st.integers(RISES, KEPT))
@settings(max_examples=40)
def test_the_band_is_as_high_as_the_steps_around_a_line_and_never_lower(slope, play, seed, count):
    # Points of a line, moved down by at most `play`: a band of that height holds them.
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.uniform(1.0, 20.0, 2 * count))
    counts = slope * times - rng.uniform(0, play, 2 * count)
    rises = np.column_stack([np.append(np.nan, times[1:-1:2]), times[::2], counts[::2]])
    rises[1:, 0] = np.nan  # only the samples with each rise
    assert band(rises) <= play + 0.02 * (counts[-1] - counts[0]) / 64 + 1e-6
