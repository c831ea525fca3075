"""`Overrides.at` combines all overrides of a workload at one moment."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.config.scalars import read_duration
from scaler.policy.overrides import (
    BrakeEnded,
    OverrideColumns,
    Overrides,
    WorkloadOverrides,
    moment,
    read_brake,
    read_schedules,
)

DAY = "0 8 * * * for 10h floor 3"
MIDNIGHT = moment("2026-11-23T00:00Z")
HOUR = 3600.0


def overrides_of(schedules="", *brakes):
    return WorkloadOverrides(
        brakes=tuple(read_brake(brake, "ai/Deployment/chat") for brake in brakes),
        schedules=read_schedules(schedules, read_duration) if schedules else (),
    )


def all_overrides(*each, fleet=(), since=None):
    return Overrides(each, fleet=[read_brake(brake, "configuration") for brake in fleet], since=since)


def one(columns):
    """floor, reason, ceiling, frozen, never down of the only workload."""
    return tuple(column.tolist()[0] for column in columns)


def at(overrides, hour, lead=0.0):
    return one(overrides.at(MIDNIGHT + hour * HOUR, np.array([lead])))


FREE = (0.0, -1, np.inf, False, False)


def test_without_overrides_nothing_is_constrained():
    assert at(all_overrides(overrides_of()), 8) == FREE


def test_floor_holds_in_its_window_and_not_at_its_end():
    overrides = all_overrides(overrides_of(DAY))
    assert [at(overrides, hour)[:2] for hour in (7.99, 8, 17.99, 18, 32)] == [(0, -1), (3, 9), (3, 9), (0, -1), (3, 9)]


def test_floor_begins_a_cold_start_early_and_a_ceiling_does_not():
    overrides = all_overrides(overrides_of("0 8 * * * for 10h floor 2 ceiling 5"))
    assert at(overrides, 7.49, lead=1800) == FREE
    assert at(overrides, 7.5, lead=1800) == (2, 9, np.inf, False, False)
    assert at(overrides, 8, lead=1800) == (2, 9, 5, False, False)


def test_configured_lead_is_not_estimated():
    overrides = all_overrides(overrides_of(DAY + " prewarm 1h"))
    assert [at(overrides, hour, lead=60)[0] for hour in (6.99, 7)] == [0, 3]


def test_unknown_cold_start_is_five_minutes_and_none_is_longer_than_an_hour():
    unlearned, endless = all_overrides(overrides_of(DAY)), all_overrides(overrides_of(DAY))
    assert [at(unlearned, hour, lead=np.nan)[0] for hour in (7.9, 7.95)] == [0, 3]
    assert [at(endless, hour, lead=1e9)[0] for hour in (6.99, 7)] == [0, 3]


def test_new_estimate_of_the_lead_applies_within_a_minute():
    overrides = all_overrides(overrides_of(DAY))
    assert at(overrides, 7.5, lead=60) == FREE
    assert at(overrides, 7.5 + 61 / 3600, lead=2400)[0] == 3


def test_overlapping_schedules_give_the_highest_floor_and_the_lowest_ceiling():
    overrides = all_overrides(overrides_of(f"{DAY}; 0 9 * * * for 1h floor 5 prewarm 0s; 0 0 * * * for 24h ceiling 9"))
    assert [at(overrides, hour)[:3] for hour in (8, 9, 10)] == [(3, 9, 9), (5, 9, 9), (3, 9, 9)]


def test_floor_wins_over_a_ceiling():
    overrides = all_overrides(overrides_of("0 0 * * * for 24h ceiling 2", "floor 8"))
    assert at(overrides, 8)[:3] == (8, 10, 8)


def test_deciding_floor_shows_its_reason():
    higher, lower = all_overrides(overrides_of(DAY, "floor 4")), all_overrides(overrides_of(DAY, "floor 2"))
    assert [at(higher, 8)[:2], at(lower, 8)[:2], at(lower, 20)[:2]] == [(4, 10), (3, 9), (2, 10)]


def test_floor_of_one_replica_is_a_floor():
    assert at(all_overrides(overrides_of("0 8 * * * for 10h floor 1")), 8)[:2] == (1, 9)


def test_brake_of_the_fleet_holds_and_ends_for_every_workload():
    overrides = all_overrides(overrides_of(), overrides_of(DAY), fleet=["freeze until 2026-11-23T09:00Z"])
    leads = np.zeros(2)
    assert overrides.at(MIDNIGHT + 8 * HOUR, leads).frozen.tolist() == [True, True]
    assert overrides.at(MIDNIGHT + 9 * HOUR, leads).frozen.tolist() == [False, False]
    assert overrides.at(MIDNIGHT + 9 * HOUR, leads).floor.tolist() == [0, 3]


def test_never_down_and_a_floor_hold_together():
    assert at(all_overrides(overrides_of("", "never_down", "floor 2")), 0) == (2, 10, np.inf, False, True)


def test_strictest_brake_is_shown():
    overrides = all_overrides(
        overrides_of("", "floor 2", "never_down"), fleet=["freeze until 2026-11-24T00:00Z because of it"]
    )
    at(overrides, 0)
    active = overrides.active(0, MIDNIGHT)
    assert active.brake == "freeze until 2026-11-24T00:00Z because of it (configuration), and 2 more"
    assert active.brake_until == MIDNIGHT + 24 * HOUR


def test_of_two_floors_the_higher_one_is_shown():
    overrides = all_overrides(overrides_of("", "floor 2", "floor 5"))
    at(overrides, 0)
    assert overrides.active(0, MIDNIGHT).brake == "floor 5 (ai/Deployment/chat), and 1 more"


def test_workload_without_overrides_shows_none_beside_one_that_has_two():
    overrides = all_overrides(
        overrides_of(), overrides_of(DAY, "freeze"), overrides_of(f"0 9 * * * for 3h floor 5; {DAY}")
    )
    overrides.at(MIDNIGHT + 9 * HOUR, np.zeros(3))
    assert overrides.active(0, MIDNIGHT + 9 * HOUR) == (None,) * 5
    assert overrides.active(2, MIDNIGHT + 9 * HOUR).schedule == (
        "floor 5 from 2026-11-23T09:00Z until 2026-11-23T12:00Z (0 9 * * * in UTC); "
        "floor 3 from 2026-11-23T08:00Z until 2026-11-23T18:00Z (0 8 * * * in UTC)"
    )


def test_end_of_a_brake_of_one_workload_renews_its_text_alone():
    overrides = all_overrides(overrides_of(), overrides_of("", "freeze until 2026-11-23T08:00Z"))
    overrides.at(MIDNIGHT, np.zeros(2))
    overrides.news()
    overrides.at(MIDNIGHT + 8 * HOUR, np.zeros(2))
    assert overrides.news().rows.tolist() == [1]


def test_end_of_a_brake_is_reported_once():
    overrides = all_overrides(overrides_of(DAY, "freeze until 2026-11-23T08:00Z"))
    assert (at(overrides, 7)[3], overrides.news().ended) == (True, ())
    assert at(overrides, 8) == (3, 9, np.inf, False, False)
    assert overrides.news().ended == (
        BrakeEnded(0, read_brake("freeze until 2026-11-23T08:00Z", "ai/Deployment/chat")),
    )
    assert [(at(overrides, hour)[3], overrides.news().ended) for hour in (17, 18, 32)] == [(False, ())] * 3


def test_end_of_a_fleet_brake_is_reported_once_and_not_per_workload():
    overrides = all_overrides(overrides_of(), overrides_of(), fleet=["freeze until 2026-11-23T08:00Z"])
    overrides.at(MIDNIGHT, np.zeros(2))
    overrides.at(MIDNIGHT + 8 * HOUR, np.zeros(2))
    assert [ended.row for ended in overrides.news().ended] == [None]


def test_brake_that_ended_before_the_start_is_not_reported():
    overrides = all_overrides(overrides_of("", "freeze until 2026-11-22T08:00Z"))
    assert (at(overrides, 0), overrides.news().ended) == (FREE, ())


def test_end_between_two_lists_of_overrides_is_reported_by_the_second():
    overrides = all_overrides(overrides_of("", "freeze until 2026-11-23T08:00Z"), since=MIDNIGHT)
    at(overrides, 8)
    assert len(overrides.news().ended) == 1


def test_changed_overrides_renew_their_text():
    overrides = all_overrides(overrides_of(), overrides_of(DAY))
    leads = np.zeros(2)
    overrides.at(MIDNIGHT, leads)
    assert overrides.news().rows.tolist() == [1]  # a workload without overrides has no text
    overrides.at(MIDNIGHT + HOUR, leads)
    assert overrides.news().rows.tolist() == []
    overrides.at(MIDNIGHT + 8 * HOUR, leads)
    assert overrides.news().rows.tolist() == [1]


def test_schedule_shows_its_end_in_its_time_zone():
    overrides = all_overrides(overrides_of("0 8 * * 1-5 for 10h in Europe/Berlin floor 3 ceiling 6 prewarm 0s"))
    at(overrides, 12)
    active = overrides.active(0, MIDNIGHT + 12 * HOUR)
    assert active.schedule == (
        "floor 3, ceiling 6 from 2026-11-23T08:00+01:00 until 2026-11-23T18:00+01:00 (0 8 * * 1-5 in Europe/Berlin)"
    )
    assert (active.schedule_floor, active.schedule_ceiling) == (3, 6)
    at(overrides, 20)
    assert overrides.active(0, MIDNIGHT + 20 * HOUR) == (None,) * 5


def test_clock_that_is_set_back_opens_windows_again():
    overrides = all_overrides(overrides_of(DAY, "freeze until 2026-11-23T08:00Z"))
    assert [at(overrides, hour)[0] for hour in (10, 19, 10)] == [3, 0, 3]
    assert [at(overrides, hour)[3] for hour in (9, 7)] == [False, True]


def test_nothing_is_computed_between_edges():
    overrides = all_overrides(overrides_of(DAY + " prewarm 0s"))
    before = overrides.at(MIDNIGHT, np.zeros(1))
    assert overrides.at(MIDNIGHT + 8 * HOUR - 1.0, np.zeros(1)) is before
    assert overrides.at(MIDNIGHT + 8 * HOUR, np.zeros(1)) is not before


def test_empty_list_of_workloads_has_no_overrides():
    overrides = all_overrides(fleet=["freeze"])
    assert overrides.at(MIDNIGHT, np.zeros(0)).floor.tolist() == []


LINES = (
    DAY,
    "*/7 * * * * for 3m floor 2 prewarm 0s",
    "0 22 * * * until 0 6 * * * ceiling 4",
    "30 * * * * for 90m floor 6",
)
BRAKES = ("freeze until 2026-11-23T05:13Z", "never_down", "floor 5 until 2026-11-23T11:00Z")


@settings(max_examples=60, deadline=None)
@given(
    each=st.lists(st.tuples(st.sets(st.sampled_from(LINES)), st.sets(st.sampled_from(BRAKES))), min_size=1, max_size=4),
    moments=st.lists(st.integers(0, 24 * 60), min_size=1, max_size=30),
)
def test_overrides_do_not_depend_on_how_often_they_are_computed(each, moments):
    """Apart from leads, the columns of a moment do not depend on earlier calls."""
    every = [overrides_of(";".join(sorted(lines)), *sorted(brakes)) for lines, brakes in each]
    overrides, leads = all_overrides(*every), np.zeros(len(every))
    for minute in moments:
        now = MIDNIGHT + minute * 60
        expected: OverrideColumns = all_overrides(*every).at(now, leads)
        got = overrides.at(now, leads)
        for name, mine, theirs in zip(OverrideColumns._fields, got, expected, strict=True):
            assert mine.tolist() == theirs.tolist(), name


@pytest.mark.parametrize("row", range(3))
def test_each_workload_gets_its_own_overrides(row):
    each = [
        overrides_of(),
        overrides_of("0 8 * * * for 10h floor 2"),
        overrides_of("0 8 * * * for 10h ceiling 7", "never_down"),
    ]
    columns = all_overrides(*each).at(MIDNIGHT + 9 * HOUR, np.zeros(3))
    assert tuple(column.tolist()[row] for column in columns) == at(all_overrides(each[row]), 9)
