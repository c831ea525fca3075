"""Checks are printed one per line, and a clock offset is computed from a header in whole seconds."""

import io
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from scaler.cli.doctor.check import check_clock, clock_offset_s, fail, ok, print_checks, verdict, warn


def date(at):
    return format_datetime(datetime.fromtimestamp(int(at), UTC), usegmt=True)


@given(st.floats(-3600, 3600), st.floats(0, 5), st.floats(0, 1), st.floats(1e9, 2e9))
def test_clock_offset_is_never_overstated_and_has_the_right_sign(offset, took, part, sent_at):
    """The response is written between the request and its receipt, by a clock that is `offset` ahead."""
    written = sent_at + took * part
    computed = clock_offset_s(date(written + offset), sent_at, sent_at + took)
    assert abs(computed) <= abs(offset) + 1e-3
    assert computed * offset >= 0.0 or abs(computed) < 1e-3
    assert abs(computed - offset) <= took + 1.0 + 1e-3


@pytest.mark.parametrize(
    ("offset", "status", "result"),
    [
        (0.0, "ok", "within 2 s of this machine's"),
        (2.5, "ok", "within 2 s of this machine's"),  # the true offset may be 1.5: the header has no fractions
        (30.0, "warn", "at least 30.0 s ahead of this machine's"),
        (-30.0, "warn", "at least 29.0 s behind this machine's"),
    ],
)
def test_clock_offset_of_more_than_two_seconds_is_a_warning(offset, status, result):
    check = check_clock("the API server", date(1000.0 + offset), 1000.0, 1000.0)
    assert (check.name, check.status, check.result) == ("clock of the API server", status, result)
    assert bool(check.remedy) == (status == "warn")


@pytest.mark.parametrize("header", [None, "", "yesterday", "Sun, 99 Nov 2026 10:00:00 GMT"])
def test_response_without_a_valid_date_is_no_failure(header):
    assert check_clock("x", header, 0.0, 0.0).status == "ok"


def printed(*checks):
    out = io.StringIO()
    print_checks(checks, Console(file=out))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_check_that_is_not_ok_has_its_remedy_below():
    assert printed(
        ok("Python", "3.12"), warn("KEDA", "2.18", "upgrade it"), fail("a page", "refused", "is it up?")
    ) == [
        "ok    Python: 3.12",
        "warn  KEDA: 2.18",
        "      -> upgrade it",
        "fail  a page: refused",
        "      -> is it up?",
        "",
        "1 failure and 1 warning.",
    ]


def test_names_are_printed_without_markup_and_control_characters():
    [line, *_] = printed(ok("a [bold]page[/bold]", "\x1b[31mred\x07"))
    assert line == "ok    a [bold]page[/bold]:  [31mred"


def test_verdict_counts_failures_and_warnings():
    assert verdict([ok("a", "b")] * 3) == "All 3 checks passed."
    assert verdict([fail("a", "b", "c")] * 2) == "2 failures."
