"""Brakes are parsed from the text that people write, and refused with the remedy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.policy.overrides import Brake, BrakeWord, OverrideError, moment, read_brake, unreadable, written

EIGHT = 1795420800.0  # 2026-11-23T08:00Z


def refusal(text):
    with pytest.raises(OverrideError) as caught:
        read_brake(text)
    return str(caught.value)


@pytest.mark.parametrize(("text", "expected"), [
    ("freeze", Brake(BrakeWord.FREEZE)),
    ("Never down", Brake(BrakeWord.NEVER_DOWN)),
    ("never-down because of on-call", Brake(BrakeWord.NEVER_DOWN, because="of on-call")),
    ("floor 4 until 2026-11-23T08:00Z", Brake(BrakeWord.FLOOR, 4, EIGHT)),
    ("freeze until 2026-11-23 08:00:00+00:00 because of the sale until Monday",
     Brake(BrakeWord.FREEZE, until=EIGHT, because="of the sale until Monday")),
    ("freeze because because of it", Brake(BrakeWord.FREEZE, because="because of it")),
    ("floor 4\tUNTIL\n2026-11-23T08:00Z  Because  of it ", Brake(BrakeWord.FLOOR, 4, EIGHT, "of it")),
    ("  freeze   until 2026-11-23T09:00 Europe/Berlin  ", Brake(BrakeWord.FREEZE, until=EIGHT)),
])  # fmt: skip
def test_brake_is_one_line(text, expected):
    assert read_brake(text) == expected


@pytest.mark.parametrize("text", ["freeze 2h", "freeze for 2 hours", "freeze until 2h", "floor 3 until 30m"])
def test_duration_is_refused_with_the_command_that_prints_a_moment(text):
    assert "`date -u -d '+2 hours' +%Y-%m-%dT%H:%MZ` prints" in refusal(text)


@pytest.mark.parametrize(("text", "message"), [
    ("", "must be freeze, never_down or floor N"),
    ("freez", "must be freeze, never_down or floor N"),
    ("freeze 3", "must be freeze, never_down or floor N"),
    ("floor", "must be freeze, never_down or floor N"),
    ("floor 0", "must have a floor from 1 to 10000"),
    ("floor 99999", "must have a floor from 1 to 10000"),
    ("freeze 2026-11-23T08:00Z", "the word `until` is missing"),
    ("freeze until tomorrow", "must be a moment such as 2026-11-23T08:00Z"),
    ("freeze until 2026-11-23T08:00", "does not say whose clock is meant"),
    ("freeze until 2026-02-30T08:00Z", "that one does not exist"),
    ("freeze until 2026-11-23T08:00+99:00", "that one does not exist"),
    ("freeze until 2026-11-23T08:00 Europe/Berlim", "Europe/Berlim is no time zone"),
    ("freeze until 9026-11-23T08:00Z", "a year from 2000 to 2100"),
    ("freeze until until 2026-11-23T08:00Z", "must be a moment such as 2026-11-23T08:00Z"),
    ("freeze until because of the sale", "must be freeze, never_down or floor N"),
    ("freeze because", "must be freeze, never_down or floor N"),
    ("freeze" + " " * 507, "must be at most 512 characters long, and has 513"),
    ("freeze because " + "x" * 201, "a reason of at most 200 characters"),
    ("freeze because of\x1b[31m", "on one line"),
])  # fmt: skip
def test_error_of_an_invalid_brake_has_the_remedy(text, message):
    assert message in refusal(text)


def test_brake_without_an_offset_is_refused():
    every = ("2026-07-01T10:00 Europe/Berlin", "2026-07-01T10:00+02:00", "2026-07-01T03:00-0500", "2026-07-01 08:00z")
    assert {moment(text) for text in every} == {moment("2026-07-01T08:00Z")}


def test_brake_in_a_repeated_hour_ends_the_second_time():
    assert moment("2026-10-25T02:30 Europe/Berlin") == moment("2026-10-25T02:30+01:00")


def test_brake_in_a_skipped_hour_ends_late():
    assert moment("2026-03-29T02:30 Europe/Berlin") == moment("2026-03-29T03:30+02:00")


def test_brake_ends_at_its_time():
    brake = read_brake("freeze until 2026-11-23T08:00Z")
    assert (brake.holds(EIGHT - 1), brake.holds(EIGHT)) == (True, False)


def test_invalid_brake_keeps_replicas_and_keeps_no_workload_asleep():
    brake = unreadable("ai/Deployment/chat")
    assert (brake.word, brake.until) == (BrakeWord.NEVER_DOWN, None)
    assert str(brake) == "never_down in place of a brake that cannot be read (ai/Deployment/chat)"


def test_shown_end_is_never_before_the_end():
    assert written(EIGHT + 0.5) == "2026-11-23T08:01Z"


@given(
    st.sampled_from(BrakeWord),
    st.integers(1, 10_000),
    st.none() | st.integers(2**30, 2**31).map(lambda m: m // 60 * 60),
)
def test_shown_brake_parses_to_the_same_brake(word, floor, until):
    brake = Brake(word, floor if word is BrakeWord.FLOOR else 0, until, "of it", "")
    assert read_brake(str(brake)) == brake
