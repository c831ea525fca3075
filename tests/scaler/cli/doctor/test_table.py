"""What people read."""

import io

from rich.console import Console

from scaler.cli.doctor.check import fail, ok, warn
from scaler.cli.doctor.table import show, verdict


def printed(*checks):
    out = io.StringIO()
    show(checks, Console(file=out))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_what_is_not_well_says_what_to_do_below_it():
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


def test_names_of_others_are_no_markup_and_no_control_characters():
    [line, *_] = printed(ok("a [bold]page[/bold]", "\x1b[31mred\x07"))
    assert line == "ok    a [bold]page[/bold]:  [31mred"


def test_the_verdict_counts():
    assert verdict([ok("a", "b")] * 3) == "All 3 checks are well."
    assert verdict([fail("a", "b", "c")] * 2) == "2 failures."
