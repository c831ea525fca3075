"""The rows in a terminal: whatever fits, trouble first, and a stranger's name is never more than a name."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from exporter.model import WorkloadKey
from scaler.cli.top.screen import TopView, drawn
from scaler.explain.rows import Ahead, by_trouble, fleet, row
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
    """`/api/v1/rows` as it is served."""
    rows = by_trouble(row(each, NOW) for each in decisions)
    return {
        "now": NOW, "at": NOW - 1.0, "version": 1, "role": None, "unwell": [],
        "fleet": fleet(rows).to_document(), "workloads": [each.to_document() for each in rows], **more,
    }  # fmt: skip


def lines(view, width=100, height=24):
    console = Console(file=io.StringIO(), width=width, height=height or 24, force_terminal=True, color_system=None)
    console.print(drawn(view, width, height))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_workload_is_a_line_with_the_words_of_the_page():
    text = "\n".join(lines(TopView(document(CHAT)), width=200))
    for part in ("● serving", "ai/chat", "2 → 3", "40", "42 %", "3 s", "10 requests in progress, 30 waiting", "2.5"):
        assert part in text
    assert "GPUs: 4 serving" in text


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_said_in_its_word(reason):
    known = {
        Reason.UNKNOWN: SILENT,
        Reason.ASLEEP: replace(CHAT, replicas=0, told=0, active=False, reason=Reason.ASLEEP),
    }
    text = "\n".join(lines(TopView(document(known.get(reason, replace(CHAT, reason=reason, held_since=990.0))))))
    assert REASONS[reason].word in text


def test_what_is_unknown_is_said_and_is_no_0():
    (line,) = [line for line in lines(TopView(document(SILENT)), width=139) if "ai/code" in line]
    assert line.split()[3:] == ["unknown"] * 4, "replicas, requests, GPU, seen"


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 120, 140, 160, 200, 300])
def test_the_screen_fits_every_terminal_and_always_has_name_state_and_answer(width):
    held = replace(CHAT, workload=WorkloadKey("a" * 30, "b" * 60), reason=Reason.HELD, held_since=900.0)
    unwell = {"unwell": ["ticks: no tick for 11 s (limit 10 s)"], "role": "leader"}
    view = TopView(
        document(held, CHAT, SILENT, **unwell), silent=("http://x/api/v1/rows: Connection refused. " * 4, 12.0)
    )
    drawn_lines = lines(view, width)
    assert max(len(line) for line in drawn_lines) <= width
    (chat,) = [line for line in drawn_lines if line.startswith("● serving")]
    assert "3" in chat.partition("a")[2]


@pytest.mark.parametrize("height", [8, 12, 24, 60])
def test_the_screen_is_no_higher_than_the_terminal_and_says_how_many_more_there_are(height):
    many = [replace(CHAT, workload=WorkloadKey("ai", f"w{place:02d}")) for place in range(50)]
    drawn_lines = lines(TopView(document(*many), silent=("nobody", 3.0)), height=height)
    shown = sum("● serving  " in line for line in drawn_lines)
    assert len(drawn_lines) <= height
    assert shown >= 1
    assert (f"and {50 - shown} more below" in drawn_lines[-1]) == (shown < 50)


def test_without_an_end_of_the_screen_all_rows_are_there():
    many = [replace(CHAT, workload=WorkloadKey("ai", f"w{place:02d}")) for place in range(50)]
    assert sum("ai/w" in line for line in lines(TopView(document(*many)), height=None)) == 50


def test_charts_are_of_the_hour_and_are_not_there_where_none_is_kept():
    series = {"load": [1.0, None, 4.0], "replicas": [3, 3, 3], "gpu": [0.5, None, 1.0]}
    with_charts = lines(TopView(document(CHAT), {("ai", "chat", ""): series}), width=120)
    assert any("▂ █" in line for line in with_charts)
    assert not any("█" in line for line in lines(TopView(document(CHAT)), width=120))


def test_a_spark_keeps_its_peaks_and_its_gaps():
    assert spark([1.0, None, 8.0], 5, "blue").plain == "  ▁ █"
    assert spark([0.0] * 50 + [8.0] + [0.0] * 49, 10, "blue").plain == "     █    "
    assert spark([], 4, "blue").plain == "    "
    assert spark([None, None], 2, "blue").plain == "  "


def test_a_silence_keeps_what_was_shown_and_says_its_age():
    text = "\n".join(lines(TopView(document(CHAT), silent=("http://x: Connection refused", 75.0))))
    assert "what is shown is 1 min old: http://x: Connection refused" in text
    assert "ai/chat" in text
    assert "ready" not in text


def test_a_daemon_that_is_not_ready_is_not_shown_as_well():
    text = "\n".join(lines(TopView(document(CHAT, unwell=["drain: stopping"]))))
    assert "not ready: drain: stopping" in text


def test_a_strangers_name_is_neither_markup_nor_an_order_to_the_terminal():
    evil = replace(CHAT, workload=WorkloadKey("ai", "[red]x[/red]\x1b[2J"), evidence=replace(BUSY, stale=("\x07",)))
    shown = "\n".join(lines(TopView(document(replace(evil, reason=Reason.HELD, held_since=1.0))), width=200))
    assert "[red]x[/red]\N{REPLACEMENT CHARACTER}[2J" in shown
    assert "\x1b[2J" not in shown
    assert "\x07" not in shown


def test_codes_of_another_version_are_shown_as_they_come():
    newer = document(CHAT)
    newer["workloads"][0] |= {"state": "of_tomorrow", "reason": "quite_new", "severity": "dire"}
    text = "\n".join(lines(TopView(newer)))
    assert "of tomorrow" in text
    assert "quite new" in text


def test_before_anybody_answers_nothing_is_known():
    assert lines(TopView(None, silent=("nobody there", 3.0)))[-1] == "nothing is known yet"


def test_an_empty_board_is_said_to_be_empty():
    assert lines(TopView(document()))[-1] == "no workload is on the Board yet"


def test_what_keeps_keda_and_the_hpa_from_it_is_said():
    held = row(CHAT, NOW, Ahead("paused", "paused at 2 \x1breplicas")).to_document()
    newer = {**held, "hindered": "of_tomorrow", "hindered_by": None}
    view = TopView({**document(), "workloads": [held, newer]})
    first, second = [line for line in lines(view, width=200) if "ai/chat" in line]
    assert "serving  paused" in first
    assert "30 waiting; paused at 2 \N{REPLACEMENT CHARACTER}replicas" in first
    assert "of tomorrow" in second
