"""Windows of schedules open and close on time, also when the clocks change."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.config.scalars import read_duration
from scaler.policy.overrides import Cron, OverrideError, ReplicaSchedule, Times, moment, read_cron, read_schedules
from scaler.policy.overrides.schedule import last_until, next_after

BERLIN = "Europe/Berlin"
# The clocks go forward from 02:00 to 03:00 on 29 March 2026 and back from 03:00 to 02:00 on 25 October.
SPRING, AUTUMN = "2026-03-28T20:00Z", "2026-10-24T20:00Z"


def berlin(text):
    return moment(f"{text} {BERLIN}")


def schedule(text):
    (one,) = read_schedules(text, read_duration)
    return one


@pytest.mark.parametrize(("cron", "now", "expected"), [
    ("30 2 * * *", SPRING, "2026-03-29T03:00+02:00"),  # skipped: at once when the hour is over
    ("30 2 * * *", "2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"),  # and once only
    ("30 2 * * *", AUTUMN, "2026-10-25T02:30+02:00"),  # twice: the first
    ("30 2 * * *", "2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"),
    ("30 2 * * *", "2026-10-25T02:10+01:00", "2026-10-26T02:30+01:00"),  # from the second of the two hours
    ("0 8 * * 1-5", "2026-11-20T12:00Z", "2026-11-23T08:00+01:00"),  # over a week-end
    ("0 8 * * 1-5", "2026-03-27T12:00Z", "2026-03-30T08:00+02:00"),  # and the clocks change in it
])  # fmt: skip
def test_cron_fires_once_a_day_also_when_the_clocks_change(cron, now, expected):
    assert next_after(Cron(cron, BERLIN), moment(now)) == moment(expected)


@pytest.mark.parametrize(("now", "expected"), [
    ("2026-03-29T03:10+02:00", "2026-03-29T03:00+02:00"),
    ("2026-03-29T01:59+01:00", "2026-03-28T02:30+01:00"),
    ("2026-10-25T02:30+02:00", "2026-10-25T02:30+02:00"),
    ("2026-10-25T02:10+01:00", "2026-10-25T02:30+02:00"),
])  # fmt: skip
def test_last_firing_is_exact_when_the_clocks_change(now, expected):
    assert last_until(Cron("30 2 * * *", BERLIN), moment(now)) == moment(expected)


def test_floor_may_be_its_ceiling_and_there_may_be_32_schedules():
    assert schedule("0 8 * * * for 10h floor 3 ceiling 3").bounds == "floor 3, ceiling 3"
    line = "0 8 * * * for 10h floor 3"
    assert len(read_schedules(";".join([line] * 32), read_duration)) == 32
    with pytest.raises(OverrideError, match="at most 32 schedules"):
        read_schedules(";".join([line] * 33), read_duration)


def test_window_is_now_from_its_first_moment():
    daily = schedule("0 8 * * * for 10h floor 3")
    shown = [
        daily.said_at(moment(f"2026-11-23T{hour}Z")).split(":")[0] for hour in ("07:59", "08:00", "17:59", "18:00")
    ]
    assert shown == ["next", "now", "now", "next"]


def fires(hour, minute, day, zone):
    """By hand: of two equal times the first; of a time that is skipped, the first moment after the gap."""
    local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
    while local.astimezone(UTC).astimezone(zone) != local:
        local += timedelta(minutes=1)
    return local.timestamp()


@settings(max_examples=150, deadline=None)
@given(
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
    change=st.sampled_from(["2026-03-28", "2026-10-24", "2026-04-04", "2026-11-01"]).map(date.fromisoformat),
    offset_s=st.integers(0, 3 * 86400),
    zone=st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]),
)
def test_firings_around_a_change_of_clocks_match_those_computed_by_hand(hour, minute, change, offset_s, zone):
    clock = ZoneInfo(zone)
    now = moment(f"{change}T00:00Z") + offset_s
    every = [fires(hour, minute, change + timedelta(days=day), clock) for day in range(-3, 7)]
    cron = Cron(f"{minute} {hour} * * *", zone)
    assert next_after(cron, now) == min(moment for moment in every if moment > now)
    assert last_until(cron, now) == max(moment for moment in every if moment <= now)


def test_window_with_a_duration_lasts_that_long_when_the_clocks_change():
    nightly = schedule("30 22 * * * for 8h in Europe/Berlin floor 1").times
    assert nightly.at(moment(SPRING)).end == berlin("2026-03-29T07:30")


def test_window_with_an_end_follows_local_time():
    nightly = schedule("30 22 * * * until 30 6 * * * in Europe/Berlin floor 1").times
    assert nightly.at(moment(SPRING)) == (berlin("2026-03-28T22:30"), berlin("2026-03-29T06:30"))


def test_open_window_is_found_from_its_middle():
    week = Times(Cron("0 8 * * 1", BERLIN), Cron("0 18 * * 5", BERLIN))
    assert week.at(berlin("2026-11-25T03:00")) == (berlin("2026-11-23T08:00"), berlin("2026-11-27T18:00"))
    assert week.at(berlin("2026-11-27T18:00")) == (berlin("2026-11-30T08:00"), berlin("2026-12-04T18:00"))


def test_windows_that_overlap_are_one():
    times = Times(Cron("0 * * * *", "UTC"), 5400.0)
    assert times.at(moment("2026-11-23T08:30Z")) == (moment("2026-11-23T08:00Z"), moment("2026-11-23T09:30Z"))
    assert times.at(moment("2026-11-23T09:30Z")) == (moment("2026-11-23T09:00Z"), moment("2026-11-23T10:30Z"))


@pytest.mark.parametrize(("text", "message"), [
    ("0 8 * *", "must be five cron fields"),
    ("0 0 8 * * 1", "must be five cron fields"),
    ("0 25 * * *", "bad hour"),
    ("0 0 30 2 *", "no such day in these months"),
    ("0 0 L-3 * *", "must be five cron fields"),
])  # fmt: skip
def test_cron_that_never_fires_is_refused(text, message):
    with pytest.raises(OverrideError) as caught:
        read_cron(text)
    assert message in str(caught.value)


def test_several_schedules_are_written_in_one_line():
    day, night = read_schedules(
        "0 8 * * 1-5 for 10h in Europe/Berlin floor 2 prewarm 10m; 0 22 * * * until 0 6 * * * ceiling 3", read_duration
    )
    assert day == ReplicaSchedule(Times(Cron("0 8 * * 1-5", BERLIN), 36000.0), floor=2, prewarm=600.0)
    assert night == ReplicaSchedule(Times(Cron("0 22 * * *", "UTC"), Cron("0 6 * * *", "UTC")), ceiling=3)


@pytest.mark.parametrize(("text", "message"), [
    ("", "must be five cron fields, `for`"),
    ("0 8 * * * floor 2", "must be five cron fields, `for`"),
    ("0 8 * * * for 1h", "must have a floor or a ceiling"),
    ("0 8 * * * for 1h floor 3 ceiling 2", "must have a floor of at most its ceiling (2)"),
    ("0 8 * * * for 1h floor 0", "must have a floor from 1 to 10000"),
    ("0 8 * * * for 1h floor 2 floor 3", "each word once"),
    ("0 8 * * * for 30s floor 2", "must last at least 1m"),
    ("0 8 * * * for 1h in Berlin floor 2", "must be a time zone of the IANA database"),
    ("0 8 * * * until 0 0 30 2 * floor 2", "no such day"),
    (";".join(["0 8 * * * for 1h floor 2"] * 33), "must be at most 32 schedules"),
])  # fmt: skip
def test_error_of_an_invalid_schedule_has_the_remedy(text, message):
    with pytest.raises(OverrideError) as caught:
        read_schedules(text, read_duration)
    assert message in str(caught.value)
