"""Tests which requests count as probes: those of one to three regular clients, and never random ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.columns import copy_into
from scaler.policy.columns import Readings, Verdicts
from scaler.signals.activity import KEPT, MANY_RISES, RISES, Activity, Probes, ProbeSchedule, band

SCRAPE_S = 5.0


def activity(times, period=60.0, until=None, probes=None, scrape=SCRAPE_S):
    """The scrapes at which requests at `times` counted as activity. Scrapes are at 0.3 s past each 5."""
    probes = probes or Probes(np.array([period]), 1)
    times, last, counted = np.sort(np.asarray(times, dtype=float)), 0, []
    for at in np.arange(0.3, until or times[-1] + scrape, scrape):
        count = int(np.searchsorted(times, at))
        if probes.count(0, 0, float(count - last), at):
            counted.append(at)
        last = count
    return counted


def clock(period, start=0.0, count=200):
    return start + period * np.arange(count)


@pytest.mark.parametrize("period", [5.0, 7.3, 10.0, 15.0, 30.0, 60.0])
def test_one_regular_client_is_detected_after_thirty_rises(period):
    counted = activity(clock(period))
    assert len(counted) == RISES - 1
    assert counted[-1] <= RISES * period + SCRAPE_S


@pytest.mark.parametrize(
    "periods", [(10.0, 15.0), (10.0, 10.0), (10.0, 30.0, 15.0), (60.0, 45.0, 30.0), (7.0, 7.0, 7.0)]
)
def test_several_regular_clients_are_detected(periods):
    times = np.concatenate([clock(period, start=3.1 * n, count=400) for n, period in enumerate(periods)])
    counted = activity(times, until=min(periods) * 390)
    assert RISES - 1 <= len(counted) <= MANY_RISES


def test_one_request_each_7_minutes_always_counts():
    assert len(activity(clock(420.0))) == 200
    assert len(activity(clock(61.0))) == 200


def test_requests_more_often_than_one_a_second_always_count():
    assert len(activity(clock(0.5, count=2000), until=1000.0)) == 200


def test_period_of_zero_disables_the_detection():
    assert len(activity(clock(10.0), period=0.0)) == 200


@pytest.mark.parametrize("gap", [3.0, 5.0, 10.0, 30.0, 59.0])
def test_random_requests_count(gap):
    quiet = []
    for seed in range(10):
        times = np.cumsum(np.random.default_rng(seed).exponential(gap, 150))
        rises = len(np.unique(np.floor((times - 0.3) / SCRAPE_S)))
        quiet.append(rises - len(activity(times)))
    assert max(quiet) <= 2, "the first requests are a baseline or fall into the last scrape"


@pytest.mark.parametrize("phase", [0.1, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("period", [7.3, 10.0, 13.0, 22.0, 30.0, 45.0])
def test_one_request_beside_a_prober_counts_without_the_probes(period, phase):
    probes = clock(period, count=120)
    request = probes[70] + phase * period
    extra = sorted(set(activity(np.append(probes, request))) - set(activity(probes)))
    # It counts at its scrape if no probe was due, else at the next rise, which is too early. If the two cannot be
    # distinguished, all requests count until the prober is detected again.
    assert 0.0 <= extra[0] - request <= period + SCRAPE_S
    assert len(extra) <= RISES + 1
    assert extra[-1] < probes[110]


def test_random_client_beside_a_prober_keeps_counting():
    rng = np.random.default_rng(7)
    client = 1000.0 + np.cumsum(rng.exponential(40.0, 40))
    counted = [at for at in activity(np.append(clock(10.0, count=300), client), until=2900) if 1000 < at < client[-1]]
    # Each of its requests counts before the second probe after it.
    missed = [at for at in client[:-1] if not any(0 <= last - at <= 20.0 for last in counted)]
    assert missed == []


def test_prober_after_a_pause_is_detected_again():
    counted = activity(np.append(clock(10.0, count=60), clock(10.0, start=1000.0, count=60)))
    assert len([at for at in counted if at > 900]) == RISES


def test_failed_scrapes_change_nothing():
    probes, last, counted = Probes(np.array([60.0]), 1), 0, []
    for n, at in enumerate(np.arange(0.3, 1500, SCRAPE_S)):
        if n % 7 == 3:
            continue
        count = int(at // 10.0) + 1
        if probes.count(0, 0, float(count - last), at):
            counted.append(at)
        last = count
    assert len(counted) == RISES - 1


def test_visible_work_restarts_the_detection():
    probes = Probes(np.array([60.0]), 1)
    assert len(activity(clock(10.0, count=50), probes=probes)) == RISES - 1
    probes.worked(0, 500.0)
    assert len(activity(clock(10.0, start=510.0, count=50), probes=probes, until=1000.0)) >= RISES - 1
    assert np.isfinite(probes.period[0])


def asleep(probes, now, there=False, woken=False):
    still = not woken
    probes.answered(np.array([0]), np.array([still]), np.array([there]), np.array([woken]), now, slack_s=15.0)


HOUR_S = 3600.0


@pytest.mark.parametrize(("woken_after", "counts"), [(30.0, True), (36.0, False)])
def test_regular_requests_count_again_after_a_wake_up_within_two_periods(woken_after, counts):
    probes = Probes(np.array([60.0]), 1)
    activity(clock(10.0, count=50), probes=probes)
    asleep(probes, 500.0, there=True)
    asleep(probes, 600.0, there=True)  # its last replica still exists, and responds
    asleep(probes, 605.0)
    asleep(probes, 600.0 + woken_after, woken=True)
    assert np.isfinite(probes.count_until[0]) == counts
    begun = 2000.0
    later = activity(clock(10.0, start=begun, count=50), probes=probes, until=begun + 500)
    assert (len([at for at in later if at > begun]) == 50) is counts


@pytest.mark.parametrize(("left", "since"), [("wanted", 600.0), ("ready", 600.0), ("pods_fresh", 600.0), ("", 500.0)])
def test_sleep_begins_when_nothing_is_left_of_the_last_replica(left, since):
    states, asleep_ = Activity(np.array([60.0]), 1), Verdicts.blank(1)
    states.probes.period[0] = 10.0
    readings = Readings.unknown(1)._replace(wanted=np.zeros(1), ready=np.zeros(1))
    readings = readings._replace(**{left: np.ones(1)}) if left else readings
    for now in (500.0, 600.0):
        states.answered(np.array([0]), readings, was_active=np.array([True]), verdicts=asleep_, now=now, slack_s=15.0)
    assert states.probes.asleep_at[0] == since


def put_to_sleep_wrongly(probes, at):
    """A client with a request every ten seconds wakes it with its next request."""
    for last in np.arange(at - 497.5, at, SCRAPE_S):
        probes.count(0, 0, float(last % 10.0 < SCRAPE_S), last)
    assert np.isfinite(probes.period[0])
    asleep(probes, at)
    asleep(probes, at + 10.0, woken=True)


def test_regular_requests_are_tested_again_after_they_counted():
    probes = Probes(np.array([60.0]), 1)
    put_to_sleep_wrongly(probes, at=500.0)
    assert probes.count_until[0] == 510.0 + HOUR_S
    assert "count until 1970-01-01T01:09Z" in probes.notes(0, 3000.0)[0]
    assert probes.notes(0, 510.0 + HOUR_S) == ()
    begun = 510.0 + HOUR_S
    later = activity(clock(10.0, start=begun, count=60), probes=probes, until=begun + 600)
    assert len([at for at in later if at > begun]) == RISES - 1


@pytest.mark.parametrize(("wrong", "hours"), [(1, 1), (2, 4), (3, 16), (4, 64), (5, 168), (6, 168)])
def test_each_further_wrong_sleep_counts_four_times_as_long_up_to_seven_days(wrong, hours):
    probes, at = Probes(np.array([60.0]), 1), 0.0
    for _ in range(wrong):
        at = np.nan_to_num(probes.count_until[0]) + 600.0
        put_to_sleep_wrongly(probes, at)
    assert probes.count_until[0] == at + 10.0 + hours * HOUR_S


def test_steady_client_is_put_to_sleep_five_times_in_ten_days_and_then_once_a_week():
    probes, at, wrong = Probes(np.array([60.0]), 1), 600.0, []
    while at < 60 * 86400.0:
        put_to_sleep_wrongly(probes, at)
        wrong.append(at)
        at = probes.count_until[0] + 600.0  # 30 rises and its keep-warm time later
    assert len([at for at in wrong if at < 10 * 86400.0]) == 5
    assert len(wrong) == 4 + (60 - 4) // 7 + 1  # the fifth on the fourth day, and one each week from there


def test_lasting_sleep_reverts_one_step():
    probes = Probes(np.array([60.0]), 1)
    put_to_sleep_wrongly(probes, at=600.0)
    put_to_sleep_wrongly(probes, at=5000.0)
    assert (probes.wrong_sleeps[0], probes.count_until[0]) == (2.0, 5010.0 + 4 * HOUR_S)
    probes.period[0] = 10.0
    asleep(probes, 30_000.0)
    asleep(probes, 30_000.0 + HOUR_S, woken=True)
    assert (probes.wrong_sleeps[0], probes.count_until[0]) == (1.0, 5010.0 + 4 * HOUR_S)


def asleep_beside_a_minutely_prober():
    """A prober sends a request to the pod at each whole minute, and not through the gateway, which is in slot 1."""
    probes = Probes(np.array([60.0]), 2)
    for at in np.arange(2.5, 3300.0, SCRAPE_S):
        probes.count(0, 0, float(at % 60.0 < SCRAPE_S), at)
        probes.count(0, 1, 0.0, at)
    assert probes.period[0] == pytest.approx(60.0, abs=1.0)
    asleep(probes, 3300.0)
    probes.clear(0)  # its pod is gone
    return probes


def wake(probes, request, begun=3300.0):
    """The gateway's target shows the request at 22.5 s past the minute, or at 2.5 s past the next one."""
    at = begun + (22.5 if "between" in request else 62.5)
    for quiet in np.arange(begun + 2.5, at, SCRAPE_S):
        probes.count(0, 1, 0.0, quiet)
    if "tokens" in request:
        probes.worked(0, at)
    elif "held" in request or "replica" in request:
        probes.in_hand(0, 1, at, on_replica="replica" in request)
    probes.count(0, 1, float("held" not in request), at)
    asleep(probes, at, woken=True)


@pytest.mark.parametrize(("request_", "counts"), [
    ("of the clock", True),
    ("of the clock, held by the gateway", True),
    ("between", False),
    ("between, held by the gateway", False),
    ("of the clock, on a replica", False),
    ("of the clock, with tokens", False),
])  # fmt: skip
def test_only_a_request_that_may_be_regular_makes_them_count(request_, counts):
    probes = asleep_beside_a_minutely_prober()
    wake(probes, request_)
    assert np.isfinite(probes.count_until[0]) == counts


@pytest.mark.parametrize(("lasting", "counts"), [(True, False), (False, True)])
def test_second_request_at_another_time_counts_unless_a_sleep_lasted_between(lasting, counts):
    """A client whose clock stops while its request hangs sends each request at another time."""
    probes = asleep_beside_a_minutely_prober()
    wake(probes, "between")
    assert np.isnan(probes.count_until[0])
    if lasting:
        asleep(probes, 10_000.0)
        asleep(probes, 20_000.0, woken=True)
    probes._schedules[0] = {0: ProbeSchedule(29_995.0, 30_000.0, 60.0)}
    asleep(probes, 30_000.0)
    wake(probes, "between", begun=30_000.0)
    assert np.isfinite(probes.count_until[0]) == counts


def test_wake_up_without_detected_probes_changes_nothing():
    probes = Probes(np.array([60.0]), 1)
    asleep(probes, 500.0)
    asleep(probes, 501.0, woken=True)
    assert np.isnan(probes.count_until[0])


@pytest.mark.parametrize(("column", "value", "expected"), [
    ("count_until", 1500.0, 1500.0),
    ("count_until", 999.0, np.nan),
    ("count_until", 1e9, 1000.0 + 4 * HOUR_S),
    ("count_until", np.inf, np.nan),
    ("count_until", -np.inf, np.nan),
    ("wrong_sleeps", 1e300, 5.0),
    ("wrong_sleeps", -3.0, 0.0),
    ("wrong_sleeps", np.nan, 0.0),
    ("wrong_sleeps", 2.5, 2.0),
    ("period", 0.001, np.nan),
    ("period", 180.0, 180.0),
    ("period", 181.0, np.nan),
    ("period", np.inf, np.nan),
    ("asleep_at", 2000.0, 1000.0),
    ("asleep_at", np.inf, np.nan),
])  # fmt: skip
def test_restored_state_is_one_that_this_version_can_have_learned(column, value, expected):
    probes = Probes(np.array([60.0]), 1)
    probes.wrong_sleeps[0] = 2.0
    probes.columns()[f"probes.{column}"][0] = value
    probes.make_sound(np.array([0]), 1000.0)
    np.testing.assert_equal(probes.columns()[f"probes.{column}"][0], expected)


def test_restored_state_of_a_workload_without_a_probe_period_is_dropped():
    probes = Probes(np.array([0.0]), 1)
    probes.count_until[0], probes.period[0] = 2000.0, 10.0
    probes.make_sound(np.array([0]), 1000.0)
    assert np.isnan([probes.count_until[0], probes.period[0]]).all()


def test_state_is_copied_by_name_and_other_names_are_ignored():
    old, new = Probes(np.array([60.0, 60.0]), 1), Probes(np.array([60.0, 60.0]), 1)
    old.count_until[1] = 7.0
    # The previous version had a verdict without an end: it is dropped.
    strange = {"probes.unknown": np.zeros(9), "probes.regular_counts": np.ones(2, dtype=np.bool_)}
    copy_into(new.columns(), {**old.columns(), **strange}, np.array([0]), np.array([1]))
    np.testing.assert_equal(new.count_until, [7.0, np.nan])
    copy_into(new.columns(), {}, np.array([0]), np.array([1]))
    assert new.count_until[0] == 7.0


def test_freed_slot_keeps_nothing_of_its_target():
    probes = Probes(np.array([60.0]), 1)
    activity(clock(10.0, count=50), probes=probes)
    probes.clear(0)
    assert len(activity(clock(10.0, start=600.0, count=50), probes=probes, until=1100.0)) >= RISES - 1
    probes.grow(3)
    assert probes.count(0, 2, 1.0, 2000.0)


@given(slope=st.floats(0.02, 1.0), play=st.floats(0.0, 0.9), seed=st.integers(0, 10**6), count=st.integers(RISES, KEPT))
@settings(max_examples=40)
def test_band_is_as_high_as_the_steps_around_a_line_and_never_lower(slope, play, seed, count):
    # Points of a line, moved down by at most `play`: a band of that height contains them.
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.uniform(1.0, 20.0, 2 * count))
    counts = slope * times - rng.uniform(0, play, 2 * count)
    rises = np.column_stack([np.append(np.nan, times[1:-1:2]), times[::2], counts[::2]])
    rises[1:, 0] = np.nan  # only the samples with each rise
    assert band(rises) <= play + 0.02 * (counts[-1] - counts[0]) / 64 + 1e-6
