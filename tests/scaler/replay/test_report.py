"""Tests the report: one self-contained HTML file that shows its input."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from scaler.replay.baseline import Static
from scaler.replay.report import ResultRow, TraceSection, page
from scaler.replay.run import run, score
from scaler.replay.servers import A

VOID = {"meta", "br", "line"}


class Outline(HTMLParser):
    """The elements of a page; asserts that all opened elements are closed, in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.texts = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data.strip())

    def count(self, tag, **attributes):
        return sum(one == tag and attributes.items() <= has.items() for one, has in self.tags)


@pytest.fixture
def section(load):
    """`section("one", "two")`: these policies, all of them with the same static run."""

    def make(*names, plan=None, notes=(), load_name="small"):
        requests = load([(20.0 * index, 500, 50) for index in range(60)], load_name)
        course = run(requests, A, Static(2, every_s=15.0))
        outcome = score(course)
        rows = [ResultRow(name, "min=2", course, outcome, kept=True, ratio=1.25) for name in names]
        return TraceSection(requests, "A", "99 % of requests", rows, plan, 15.0, "a bound", notes)

    return make


def test_report_is_self_contained(section):
    text = page([section("one", "two")])
    outline = Outline(text)

    assert outline.open == []
    assert not re.search(r"https?://|url\(|@import|<script|<link|<img|<iframe| on\w+=|src=", text)


def test_table_has_a_row_per_policy_and_each_has_its_chart(section):
    outline = Outline(page([section("one", "two", "three", plan=np.ones(80)), section("four")]))

    assert outline.count("table") == 2
    assert outline.count("tr") == (1 + 3) + (1 + 1)
    assert outline.count("svg") == (1 + 3) + (1 + 1)  # the load, and one per policy
    assert outline.count("polyline", **{"class": "plan"}) == 3
    assert [text for text in outline.texts if text in ("one", "two", "three", "four")].count("one") == 2


def test_policies_that_meet_the_slo_come_first_and_the_cheapest_on_top(section):
    one = section("dear", "cheap", "broken", "more broken")
    dear, cheap, *missed = one.rows
    rows = [
        replace(missed[1], kept=False, score=missed[1].score._replace(slo_met_ratio=0.5, gpu_hours=0.1)),
        replace(dear, score=dear.score._replace(gpu_hours=9.0)),
        replace(missed[0], kept=False, score=missed[0].score._replace(slo_met_ratio=0.9, gpu_hours=0.2)),
        replace(cheap, score=cheap.score._replace(gpu_hours=3.0)),
    ]
    texts = Outline(page([replace(one, rows=rows)])).texts
    names = [text for text in texts if text in ("dear", "cheap", "broken", "more broken")]

    assert names == ["cheap", "dear", "broken", "more broken"] * 2, "in the table, and then their charts"


def test_slo_misses_are_drawn_at_the_arrival_of_their_requests(load):
    late = load([(0.0, 1, 1), *((900.0 + index, 1, 1) for index in range(5)), (2000.0, 1, 1)])
    kept, never = run(late, A, Static(1)), run(late, A, Static(0))
    rows = [ResultRow(str(index), "", course, score(course), True, 1.0) for index, course in enumerate((kept, never))]
    text = page([TraceSection(late, "A", "", rows, None, 15.0, "")])
    outline = Outline(text)

    assert outline.count("path", **{"class": "late"}) == 1
    assert outline.count("svg", **{"aria-label": "1: SLO misses"}) == 1
    (drawn,) = re.findall(r"class=late d='([^']*)'", text)
    # 44 + 1040*900/2000 = 512: a peak of all five there, in a chart that is 34 high.
    assert "512.0,2.0" in drawn
    assert "SLO was missed" in text
    assert "SLO was missed" not in page([TraceSection(late, "A", "", rows[:1], None, 15.0, "")])


def test_names_and_notes_are_escaped(section):
    wicked = "<script>alert('x')</script>&\"'"
    text = page([section(wicked, load_name=wicked, notes=[wicked])])
    outline = Outline(text)

    assert "<script" not in text
    assert outline.count("script") == 0
    assert outline.texts.count(wicked) >= 4, "the load, the table, the chart and the note show the unescaped name"
    assert {has["aria-label"] for tag, has in outline.tags if tag == "svg"} == {
        f"{wicked}: requests per second", f"{wicked}: replicas",
    }  # fmt: skip


def test_unknown_value_is_a_dash(section, load):
    never = load([(0.0, 1, 1), (100.0, 1, 1)])
    course = run(never, A, Static(0))
    row = ResultRow("never", "", course, score(course), kept=False, ratio=float("nan"))
    outline = Outline(page([TraceSection(never, "A", "", [row], None, 15.0, "")]))

    assert outline.texts.count("\N{EN DASH}") == 3
    assert not any("nan" in text for text in outline.texts)


def test_numbers_in_a_chart_are_within_it(section):
    text = page([section("one", plan=np.array([0.0, 50.0, 1.0] * 26))])
    for box, inside in re.findall(r"<svg viewBox='0 0 (\d+ \d+)'(.*?)</svg>", text, re.DOTALL):
        width, height = map(float, box.split())
        for x, y in re.findall(r"([-\d.]+),([-\d.]+)", "".join(re.findall(r"(?:points| d)='([^']*)'", inside))):
            assert 0.0 <= float(x) <= width
            assert 0.0 <= float(y) <= height


def test_browser_opens_the_report_without_a_console_message(section, debian_tool, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(page([section("one", "two", plan=np.ones(80))]), encoding="utf-8")
    done = subprocess.run(
        [
            debian_tool("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND",
            "--dump-dom", file.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    messages = [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    assert messages == []
    assert done.stdout.count("<svg") == 3
