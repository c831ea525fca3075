"""How far a clock is off, by a header in whole seconds."""

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.cli.doctor.clocks import MOST_S, ahead_s, check


def date(at):
    return format_datetime(datetime.fromtimestamp(int(at), UTC), usegmt=True)


@given(st.floats(-3600, 3600), st.floats(0, 5), st.floats(0, 1), st.floats(1e9, 2e9))
def test_what_is_said_is_never_more_than_it_is_and_never_the_other_way(offset, took, part, asked_at):
    """The answer is written somewhere between the question and its coming, by a clock that is `offset` ahead."""
    written = asked_at + took * part
    said = ahead_s(date(written + offset), asked_at, asked_at + took)
    assert abs(said) <= abs(offset) + 1e-3
    assert said * offset >= 0.0 or abs(said) < 1e-3
    assert abs(said - offset) <= took + 1.0 + 1e-3


@pytest.mark.parametrize(
    ("offset", "status", "said"),
    [
        (0.0, "ok", "the same as ours, within 2 s"),
        (2.5, "ok", "the same as ours, within 2 s"),  # it may be as little as 1.5: a part of a second is not said
        (30.0, "warn", "30.0 s ahead of ours at least"),
        (-30.0, "warn", "29.0 s behind ours at least"),
    ],
)
def test_two_seconds_are_no_matter_and_more_is_told(offset, status, said):
    made = check("the API server", date(1000.0 + offset), 1000.0, 1000.0)
    assert (made.name, made.status, made.said) == ("clock of the API server", status, said)
    assert bool(made.do) == (status == "warn")


@pytest.mark.parametrize("header", [None, "", "yesterday", "Sun, 99 Nov 2026 10:00:00 GMT"])
def test_who_does_not_say_its_time_is_not_blamed(header):
    assert (check("x", header, 0.0, 0.0).status, check("x", header, 0.0, 0.0).said) == ("ok", "not said")
    assert MOST_S == 2.0
