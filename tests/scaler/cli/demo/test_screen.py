"""The demo's view fits terminals of any size and works without a terminal."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from scaler.cli.demo.screen import PLAIN_HEAD, DemoLinks, by_column, draw, open_screen, remember, shorten
from scaler.cli.demo.world import ScreenFrame
from scaler.explain.summary import WorkloadState
from scaler.explain.terminal import curve, gauges, stack

QUIET = ScreenFrame(
    at_s=0.0,
    duration_s=1200.0,
    speed=20.0,
    arrivals_per_s=0.0,
    held=0,
    waiting=0,
    running=0,
    gpu_active=(),
    wanted=0,
    ready=0,
    loading=0,
    draining=0,
    sent=0,
    answered=0,
    slo_met_ratio=None,
    gpu_hours=0.0,
)
LINKS = DemoLinks(8080, "tidegate")
BUSY = replace(
    QUIET,
    at_s=600.0,
    arrivals_per_s=7.3,
    held=3,
    waiting=12,
    running=140,
    gpu_active=(1.0, 0.4, 0.0),
    wanted=5,
    ready=3,
    loading=2,
    draining=1,
    sent=900,
    answered=745,
    slo_met_ratio=0.95,
    demand=4.4,
    state=WorkloadState.SERVING,
    reason="waiting 12 of 4 per replica",
    autoscaler="HPA: 3 to 5, follows its metrics: 5",
)


def drawn(history: list[ScreenFrame], width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(draw(history, LINKS, width, height))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (200, 60)])
def test_view_fits_every_terminal(width, height):
    lines = drawn([QUIET, BUSY], width, height)
    assert len(lines) <= height
    assert max(len(line) for line in lines) <= width
    text = "\n".join(lines)
    for part in ("KEDA, HPA", "● serving", BUSY.reason, BUSY.autoscaler, "5 wanted", "7.3 requests/s"):
        assert part in text
    assert "3 held, 12 waiting" in text
    assert "…" not in text


def test_view_names_its_page_its_slo_its_colours_and_that_time_is_simulated():
    text = "\n".join(drawn([QUIET, BUSY], 80, 24))
    for part in (
        "http://localhost:8080/",
        "tidegate top",
        "first token within 2 s (more for long prompts), then 60 ms per token",
        "█ ready  █ loading  █ draining",
        "simulated 00:10:00 of 00:20:00",
        "up to 20 s per second",
        "745 of 900 answered, 95.0 % within the SLO, 0.00 GPU-hours",
    ):
        assert part in text


def test_state_is_one_word_that_its_reason_does_not_repeat():
    capped = replace(BUSY, reason="capped: 90 requests in progress, 160 waiting; 24.7 replicas are needed")
    assert "● serving  capped: 90 requests" in "\n".join(drawn([QUIET, capped], 80, 24))


def test_clock_after_the_day_is_not_of_the_day():
    text = drawn([QUIET, replace(BUSY, at_s=1300.0)], 80, 24)[0]
    assert text.startswith("tidegate demo  simulated 00:21:40, the day is over")


def test_no_sentence_ends_within_a_word():
    sentence = "demand of 5 needs more GPUs than the bounds of this workload allow " * 3
    text = "\n".join(drawn([QUIET, replace(BUSY, reason=sentence, autoscaler=sentence)], 80, 24))
    cut = [line.partition("…")[0] for line in text.splitlines() if "…" in line]
    assert len(cut) == 2
    assert all(line.split()[-1] in sentence.split() and line.endswith(" ") for line in cut)


def test_shortened_text_has_whole_words_and_fits():
    assert shorten("waiting 12 of 4", 15) == "waiting 12 of 4"
    assert shorten("waiting 12 of 4", 14) == "waiting 12 …"
    assert all(len(shorten("waiting 12 of 4", width)) <= width for width in range(1, 20))


def test_commands_name_the_server_unless_it_is_the_default():
    assert LINKS.command("top") == "tidegate top"
    assert DemoLinks(8081, ".venv/bin/tidegate").command("top") == ".venv/bin/tidegate top --server localhost:8081"


def test_view_has_a_constant_height():
    assert len(drawn([QUIET], 80, 24)) == len(drawn([QUIET, BUSY], 80, 24))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.0, 2000.0), min_size=1, max_size=60).map(sorted), st.integers(20, 200))
def test_columns_are_filled_until_now(times, width):
    history: list[ScreenFrame] = []
    for at_s in [0.0, *times]:
        remember(history, replace(QUIET, at_s=at_s))
    columns = by_column(history, width)
    now = min(width - 1, int(times[-1] / 1200.0 * width))
    assert len(columns) == width
    assert all(column is not None for column in columns[: now + 1])
    assert all(column is None for column in columns[now + 1 :])
    assert history[-1].at_s == times[-1]


def test_number_of_kept_frames_is_bounded():
    history: list[ScreenFrame] = []
    for second in range(1200):
        remember(history, replace(QUIET, at_s=float(second)))
    assert len(history) <= 481
    assert history[-1].at_s == 1199.0


def test_new_day_begins_with_an_empty_view():
    history: list[ScreenFrame] = []
    for at_s in (0.0, 600.0, 1199.0, 1.0):
        remember(history, replace(QUIET, at_s=at_s))
    assert [frame.at_s for frame in history] == [1.0]


def test_curve_draws_every_positive_value_and_no_nan():
    upper, lower = curve([0.0, 0.001, 4.0, 8.0, math.nan], top=8.0, rows=2, colour="blue")
    assert (upper.plain, lower.plain) == ("   █ ", " ▁██ ")


def test_stack_has_two_units_per_line():
    upper, lower = stack([[], ["red"], ["red", "red", "blue"]], rows=2)
    assert (upper.plain, lower.plain) == ("  ▄", " ▄█")


def test_gauges_fit_their_width():
    for count in range(1, 30):
        assert len(gauges([0.5] * count, 40, "blue", "black").plain) <= 40


def plain(frames: list[ScreenFrame]) -> list[str]:
    """The lines below the head."""
    file = io.StringIO()
    with open_screen(Console(file=file, width=80), LINKS) as show:
        for frame in frames:
            show(frame)
    lines = file.getvalue().splitlines()
    assert max(len(line) for line in lines) <= 80
    return lines[lines.index(PLAIN_HEAD) + 1 :]


def test_plain_output_has_a_line_per_change_and_every_thirty_seconds():
    frames = [replace(QUIET, at_s=float(second), state=WorkloadState.ASLEEP) for second in range(100)]
    assert len(plain(frames)) == 4
    frames[10] = replace(frames[10], state=WorkloadState.LOADING)
    assert [line[:18] for line in plain(frames)] == [
        "00:00:00 asleep   ",
        "00:00:10 loading  ",
        "00:00:11 asleep   ",
        "00:00:41 asleep   ",
        "00:01:11 asleep   ",
    ]


def test_plain_output_prints_a_new_action_once():
    lines = plain([QUIET, BUSY, replace(BUSY, at_s=700.0)])
    assert len(lines) == 4
    assert ["HPA: 3 to 5" in line for line in lines] == [False, False, True, False]


def test_plain_columns_are_below_their_names():
    busy = replace(BUSY, demand=None, held=123, waiting=1234, running=12345)
    line = plain([busy])[0]
    ends = {name: PLAIN_HEAD.index(name) + len(name) for name in PLAIN_HEAD.split()[2:]}
    assert {name: line[:end].split()[-1] for name, end in ends.items()} == {
        "demand": "unknown", "wanted": "5", "ready": "3", "requests/s": "7.3", "held": "123", "waiting": "1234",
        "running": "12345",
    }  # fmt: skip
