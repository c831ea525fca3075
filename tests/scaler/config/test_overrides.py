"""Checks brakes and schedules in a configuration: their problems, and the overrides active now and next."""

import pytest
from click.testing import CliRunner

from scaler.cli import main
from scaler.config import ConfigErrors, Schedule, parse
from scaler.config.overrides import scheduled
from scaler.lint.run import override_lines
from scaler.policy.overrides import moment

_CHAT = "workloads: [{namespace: ai, name: chat, engine: vllm, pods: {dns: chat.ai.svc}, replicas: {min: 1}, "
_SLEEPS = _CHAT.replace("replicas: {min: 1}", "gateway: {url: 'http://epp:9090/metrics'}")
_WINDOW = "start: 0 8 * * 1-5, duration: 10h, zone: Europe/Berlin"
_NO_END = "has no end: it holds until it is removed; add `until` and a time"
EIGHT = moment("2026-11-23T08:00Z")


def _check(text, now=None):
    try:
        problems = parse(text, "c.yaml", now)[1]
    except ConfigErrors as errors:
        problems = errors.problems
    return [str(problem).removeprefix("c.yaml:") for problem in problems]


def _scheduled(*parts):
    return f"{_CHAT}\n schedules: [{{{', '.join(parts)}}}]}}]"


@pytest.mark.parametrize(("text", "expected"), [
    (_scheduled(_WINDOW, "floor: 2"), []),
    (_scheduled(_WINDOW), ["2:14: workloads.0.schedules.0: must have a floor or a ceiling"]),
    (_scheduled("start: 0 8 * * *", "floor: 2"), ["2:14: workloads.0.schedules.0: must have an end or a duration"]),
    (_scheduled(_WINDOW, "floor: 2", "end: 0 9 * * *"),
     ["2:86: workloads.0.schedules.0.end: is not allowed beside duration: one of them ends the window"]),
    (_scheduled(_WINDOW, "floor: 4", "ceiling: 2"),
     ["2:78: workloads.0.schedules.0.floor: must be at most ceiling (2), got 4"]),
    (_scheduled(_WINDOW, "floor: 12"),
     [("2:78: warning TG084: workloads.0.schedules.0.floor: is above replicas.max (10), which takes precedence, "
      "got 12")]),
    (_scheduled(_WINDOW, "ceiling: 2").replace("min: 1", "min: 3"),
     [("2:80: warning TG084: workloads.0.schedules.0.ceiling: is below replicas.min (3), which takes "
      "precedence, got 2")]),
    (_scheduled(_WINDOW, "ceiling: 0"), ["2:80: workloads.0.schedules.0.ceiling: must be at least 1, got 0"]),
    (_scheduled(_WINDOW.replace("Europe/Berlin", "Berlin"), "floor: 2"),
     [("2:56: workloads.0.schedules.0.zone: must be a time zone of the IANA database such as Europe/Berlin or UTC, got "
      "Berlin")]),
    (_scheduled("start: 0 0 30 2 *", "duration: 1h", "floor: 2"),
     [("2:22: workloads.0.schedules.0.start: must be five cron fields, minute hour day month weekday, such as `0 8 * * "
      "1-5`: bad day-of-month, or no such day in these months, got 0 0 30 2 *")]),
    (_scheduled("start: 5", "duration: 1h", "floor: 2"),
     ["2:22: workloads.0.schedules.0.start: must be text such as 0 8 * * 1-5, got 5"]),
    (_scheduled(_WINDOW, "floor: 2", "prewarm: soon"),
     ["2:90: workloads.0.schedules.0.prewarm: must be a duration such as 500ms, 5s, 2m or 1h30m, or auto, got soon"]),
    (_scheduled(_WINDOW, "floor: 2", "prewarm: 0"), []),
    (f"{_CHAT}\n brake: floor 12 until 2026-11-23T08:00Z}}]",
     [("2:9: warning TG084: workloads.0.brake: has a floor above replicas.max (10), which takes precedence")]),
    (f"{_SLEEPS}\n brake: freeze until 2026-11-23T08:00Z}}]",
     [("2:9: warning TG083: workloads.0.brake: also freezes it at zero, where no request wakes it: never_down "
      "lets it wake")]),
    ("gpus: [{dns: a}]\nbrake: never_down", [f"2:8: warning TG081: brake: {_NO_END}"]),
    ("gpus: [{dns: a}]\nbrake: [never_down]",
     ["2:8: brake: must be text such as freeze until 2026-11-23T08:00Z because of the sale, got a list"]),
])  # fmt: skip
def test_invalid_override_is_reported_at_its_key(text, expected):
    assert _check(text) == expected


def test_expired_override_is_a_warning_if_the_time_is_given():
    text = "gpus: [{dns: a}]\nbrake: freeze until 2026-11-23T08:00Z"
    assert (_check(text), _check(text, EIGHT - 1)) == ([], [])
    assert _check(text, EIGHT) == ["2:8: warning TG082: brake: ended at 2026-11-23T08:00Z and has no effect"]


def test_schedule_line_equals_the_list_form():
    line = "0 8 * * 1-5 for 10h in Europe/Berlin floor 2 prewarm 10m; 0 22 * * * until 0 6 * * * ceiling 4"
    assert scheduled(line) == (
        Schedule(start="0 8 * * 1-5", duration=36000.0, zone="Europe/Berlin", floor=2, prewarm=600.0),
        Schedule(start="0 22 * * *", end="0 6 * * *", ceiling=4),
    )
    assert scheduled(None) == ()


ORDERED = f"""\
brake: freeze until 2026-11-23T08:00Z because of the sale
{_CHAT} schedules: [{{{_WINDOW}, floor: 2}}, {{start: 0 22 * * *, end: 0 6 * * *, ceiling: 4}}]}}]
"""


def test_active_and_next_overrides_are_shown_in_their_zone():
    config, _ = parse(ORDERED, "c.yaml")
    assert override_lines(config, EIGHT - 1) == {
        "all workloads": ["now: freeze until 2026-11-23T08:00Z because of the sale"],
        "ai/chat": [
            "now: floor 2 from 2026-11-23T08:00+01:00 until 2026-11-23T18:00+01:00 (0 8 * * 1-5 in Europe/Berlin)",
            "next: ceiling 4 from 2026-11-23T22:00Z until 2026-11-24T06:00Z (0 22 * * * in UTC)",
        ],
    }
    assert override_lines(config, EIGHT)["all workloads"] == [
        "over: freeze until 2026-11-23T08:00Z because of the sale"
    ]


def test_check_command_shows_overrides(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(ORDERED.replace("2026", "2099"))
    done = CliRunner().invoke(main, ["check", str(file)])
    assert "  all workloads: now: freeze until 2099-11-23T08:00Z because of the sale\n" in done.output
    assert done.output.count("  ai/chat: ") == 3  # its wake_source, and two schedules
