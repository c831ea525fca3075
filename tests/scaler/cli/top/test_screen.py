"""The screen shows as many columns as fit, problems first, and untrusted names only as text."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from rich.text import Text

from exporter.model import WorkloadKey
from scaler.cli.top.keys import Choice
from scaler.cli.top.screen import TopView, draw
from scaler.explain.rows import NextOutcome, by_severity, fleet, row
from scaler.explain.summary import REASONS
from scaler.explain.terminal import spark
from scaler.model import Decision, Evidence, Objective, Reason

NOW = 1000.0
BUSY = Evidence(
    waiting=30.0, running=10.0, gpu_engine_active=0.42, replicas_wanted=2, replicas_ready=2, gpus_held=4,
    objectives=(Objective("work", 40.0, 16.0, 2.5),),
)  # fmt: skip
CHAT = Decision(WorkloadKey("ai", "chat"), 3, True, Reason.SERVING, 990.0, measured_at=997.0, evidence=BUSY)
SILENT = Decision(
    WorkloadKey("ai", "code"), None, True, Reason.UNKNOWN, 990.0, evidence=Evidence(stale=("http://10.0.0.7/",))
)


def document(*decisions, **more):
    """Returns the document of `/api/v1/rows`."""
    rows = by_severity(row(each, NOW) for each in decisions)
    return {
        "now": NOW, "at": NOW - 1.0, "version": 1, "role": None, "unwell": [],
        "fleet": fleet(rows).to_document(), "workloads": [each.to_document() for each in rows], **more,
    }  # fmt: skip


def lines(view, width=100, height=24):
    console = Console(file=io.StringIO(), width=width, height=height or 24, force_terminal=True, color_system=None)
    console.print(draw(view, width, height))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_workload_is_one_line():
    text = "\n".join(lines(TopView(document(CHAT)), width=200))
    for part in ("● serving", "ai/chat", "2 → 3", "40", "42 %", "3 s", "10 requests in progress, 30 waiting", "2.5"):
        assert part in text
    assert "GPUs: 4 serving" in text


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_state(reason):
    special = {
        Reason.UNKNOWN: SILENT,
        Reason.ASLEEP: replace(CHAT, replicas=0, published=0, active=False, reason=Reason.ASLEEP),
    }
    text = "\n".join(lines(TopView(document(special.get(reason, replace(CHAT, reason=reason, held_since=990.0))))))
    assert REASONS[reason].word in text


def test_unknown_is_not_zero():
    (line,) = [line for line in lines(TopView(document(SILENT)), width=100) if "ai/code" in line]
    assert line.split()[3:] == ["unknown"] * 4, "replicas, requests, GPU, age"


def test_sleeping_workload_has_no_gpu_rather_than_an_unknown_one():
    asleep = replace(CHAT, replicas=0, published=0, active=False, reason=Reason.ASLEEP, evidence=Evidence())
    (line,) = [line for line in lines(TopView(document(asleep)), width=119) if "ai/chat" in line]
    assert line.split()[-3:] == ["none", "3", "s"]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 120, 140, 160, 200, 300])
def test_screen_fits_every_width_and_always_has_state_name_and_replicas(width):
    held = replace(CHAT, workload=WorkloadKey("a" * 30, "b" * 60), reason=Reason.HELD, held_since=900.0)
    unwell = {"unwell": ["ticks: no tick for 11 s (limit 10 s)"], "role": "leader"}
    view = TopView(
        document(held, CHAT, SILENT, **unwell), failure=("http://x/api/v1/rows: Connection refused. " * 4, 12.0)
    )
    drawn_lines = lines(view, width)
    assert max(len(line) for line in drawn_lines) <= width
    (chat,) = [line for line in drawn_lines if line.startswith("● serving")]
    assert "3" in chat.partition("a")[2]


@pytest.mark.parametrize("height", [8, 12, 24, 60])
def test_screen_fits_every_height_and_counts_further_rows(height):
    many = [replace(CHAT, workload=WorkloadKey("ai", f"w{index:02d}")) for index in range(50)]
    drawn_lines = lines(TopView(document(*many), failure=("refused", 3.0)), height=height)
    shown = sum("● serving  " in line for line in drawn_lines)
    assert len(drawn_lines) <= height
    assert shown >= 1
    assert (f"1 to {shown} of 50" in drawn_lines[-1]) == (shown < 50)


@pytest.mark.parametrize("index", [0, 20, 49])
def test_selected_row_is_on_the_screen(index):
    many = [replace(CHAT, workload=WorkloadKey("ai", f"w{index:02d}")) for index in range(50)]
    drawn_lines = lines(TopView(document(*many), choice=Choice(selected=("ai", f"w{index:02d}", ""))))
    assert any(f"ai/w{index:02d}" in line for line in drawn_lines)
    assert len(drawn_lines) <= 24


@pytest.mark.parametrize("width", [120, 140, 184, 200])
def test_reason_is_a_sentence_from_120_columns(width):
    held = replace(CHAT, reason=Reason.HELD, held_since=940.0, evidence=replace(BUSY, stale=("http://10.0.0.7/m",)))
    (line,) = [line for line in lines(TopView(document(held)), width) if "ai/chat" in line]
    assert "held: no fresh readings from http://10.0.0.7/m" in line
    (narrow,) = [line for line in lines(TopView(document(held)), 119) if "ai/chat" in line]
    assert "held" in narrow
    assert "no fresh" not in narrow


def test_selected_row_shows_its_whole_reason_on_a_narrow_screen():
    held = replace(CHAT, reason=Reason.HELD, held_since=940.0, evidence=replace(BUSY, stale=("http://10.0.0.7/m",)))
    view = TopView(document(held), choice=Choice(selected=("ai", "chat", "")))
    assert " ".join(lines(view, 60)[-3:-1]) == (
        "held: no fresh readings from http://10.0.0.7/m: the last decision holds, for 1 min now"
    )
    assert not any("no fresh readings" in line for line in lines(replace(view, choice=Choice()), 80))


def test_gpus_without_a_workload_are_counted_with_the_command_that_says_why():
    gpus = [{"gpus": 9}, {"gpus": 8}]
    assert "GPUs: 4 serving · 17 of no workload (see doctor)" in lines(TopView(document(CHAT, gpus_unmatched=gpus)))
    for nothing in (None, []):
        assert "GPUs: 4 serving" in lines(TopView(document(CHAT, gpus_unmatched=nothing)))


@pytest.mark.parametrize("height", [8, 24])
@pytest.mark.parametrize("page", ["help", "explain"])
def test_help_and_explanation_fit_the_screen(page, height):
    view = TopView(document(CHAT), choice=Choice(page, scroll=500), explanation=[Text(f"line {n}") for n in range(90)])
    drawn_lines = lines(view, 80, height)
    assert len(drawn_lines) <= height
    assert ("line 89" in drawn_lines) == (page == "explain")


def test_screen_without_a_height_has_all_rows():
    many = [replace(CHAT, workload=WorkloadKey("ai", f"w{index:02d}")) for index in range(50)]
    assert sum("ai/w" in line for line in lines(TopView(document(*many)), height=None)) == 50


def test_charts_are_shown_only_with_histories():
    series = {"load": [1.0, None, 4.0], "replicas": [3, 3, 3], "gpu": [0.5, None, 1.0]}
    with_charts = lines(TopView(document(CHAT), {("ai", "chat", ""): series}), width=200)
    assert any("▂ █" in line for line in with_charts)
    assert not any("█" in line for line in lines(TopView(document(CHAT)), width=200))


def test_spark_keeps_peaks_and_gaps():
    assert spark([1.0, None, 8.0], 5, "blue").plain == "  ▁ █"
    assert spark([0.0] * 50 + [8.0] + [0.0] * 49, 10, "blue").plain == "     █    "
    assert spark([], 4, "blue").plain == "    "
    assert spark([None, None], 2, "blue").plain == "  "


def test_failed_fetch_keeps_the_rows_and_shows_their_age():
    text = "\n".join(lines(TopView(document(CHAT), failure=("http://x: Connection refused", 75.0))))
    assert "data is 1 min old: http://x: Connection refused" in text
    assert "ai/chat" in text
    assert "ready" not in text


def test_daemon_that_is_not_ready_is_shown_with_the_reason():
    text = "\n".join(lines(TopView(document(CHAT, unwell=["drain: stopping"]))))
    assert "not ready: drain: stopping" in text


def test_names_are_printed_without_markup_and_control_characters():
    evil = replace(CHAT, workload=WorkloadKey("ai", "[red]x[/red]\x1b[2J"), evidence=replace(BUSY, stale=("\x07",)))
    selected = Choice(selected=tuple(evil.workload))
    view = TopView(document(replace(evil, reason=Reason.HELD, held_since=1.0)), choice=selected)
    shown = "\n".join(lines(view, width=200) + lines(replace(view, choice=Choice()), width=200))
    assert shown.count("[red]x[/red]\N{REPLACEMENT CHARACTER}[2J") == 2
    assert "[red]x[/red]\N{REPLACEMENT CHARACTER}[2J" in shown
    assert "\x1b[2J" not in shown
    assert "\x07" not in shown


def test_unknown_codes_are_shown_as_they_are():
    newer = document(CHAT)
    newer["workloads"][0] |= {"state": "of_tomorrow", "reason": "quite_new", "severity": "dire"}
    text = "\n".join(lines(TopView(newer)))
    assert "of tomorrow" in text
    assert "quite new" in text


def test_screen_before_the_first_fetch_has_no_data():
    assert lines(TopView(None, failure=("refused", 3.0)))[-1] == "no data yet"


def test_empty_board_has_a_message():
    assert "no workload is on the Board yet" in lines(TopView(document()))


def test_controller_outcome_is_shown():
    held = row(CHAT, NOW, NextOutcome("paused", "paused at 2 \x1breplicas")).to_document()
    newer = {**held, "hindered": "of_tomorrow", "hindered_by": None}
    view = TopView({**document(), "workloads": [held, newer]})
    first, second = [line for line in lines(view, width=200) if "ai/chat" in line]
    assert "30 waiting; paused at 2 \N{REPLACEMENT CHARACTER}replicas" in first
    assert "of tomorrow" in second
