"""The report reconciles with the nodes, and is the same as document, CSV and HTML."""

import csv
import io
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.report.ledger import build_report, chosen, label
from scaler.report.page import page
from scaler.report.statement import ReportSection, build, sections, to_csv

HOUR = 3600.0
STATES = ("serving", "idle_warm", "loading", "pending", "asleep", "unknown")


def entry(name, team=None, price=2.0, **hours):
    seconds = {state: hours.get(state, 0.0) * HOUR for state in STATES} if hours else dict.fromkeys(STATES)
    held = sum(hours.get(state, 0.0) for state in ("serving", "idle_warm", "loading", "unknown"))
    money = {
        state: None if value is None or price is None else value / HOUR * price for state, value in seconds.items()
    }
    baseline = {
        name: None if price is None else times * held * price
        for name, times in (("held", 1), ("maximum", 4), ("peak", 2))
    }
    return {
        "namespace": "ai", "name": name, "trigger": "", "team": team, "observed": False, "gpu_hour": price,
        "gpu_seconds": seconds, "cost": money, "priced_gpu_seconds": held * HOUR if price else None, "joules": 1e6,
        "baseline": {"cost": baseline}, "wakes": 1.0, "sleeps": 1.0, "shadow": None,
        "per_million_tokens": {"cost": {"prompt": 0.5, "generation": None}, "joules": {}},
    }  # fmt: skip


def accounts(*workloads, nodes=None):
    return {"now": 2 * 86400.0, "since": 0.0, "gpu_hour": None, "nodes": nodes, "workloads": list(workloads)}


def nodes(hours, unallocated):
    return {
        "since": 0.0, "gpus": 8.0, "gpu_seconds": hours * HOUR, "unallocated_gpu_seconds": unallocated * HOUR,
        "cost": None, "unallocated_cost": None,
    }  # fmt: skip


class _Page(HTMLParser):
    """Tags that must be closed, and everything that would fetch."""

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "link", "img", "br", "rect", "line"):
            self.open.append(tag)
        self.fetched += [value for name, value in attributes if name in ("src", "href", "srcset", "data", "action")]
        if tag in ("script", "link", "img", "iframe", "object"):
            self.fetched.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(html):
    reader = _Page()
    reader.feed(html)
    assert reader.open == []
    return reader


@pytest.fixture
def report(profile):
    bound = profile(ENGINE=0.95, TENSOR=0.1, DRAM=0.7, RUNNING_ALL=8.0, WAITING=0.0, MEMORY=2.0**36)
    return build(accounts(entry("chat", "search", serving=30, idle_warm=10), nodes=nodes(100, 60)), [bound])


def test_held_and_unallocated_reconcile_with_the_nodes(report):
    assert report["reconciliation"] == {"nodes": 100.0, "held": 40.0, "unallocated": 60.0, "difference": 0.0}
    assert "Reconciled: 40.0 held + 60.0 unallocated, against 100.0" in page(report, "")


def test_a_sum_that_is_off_is_not_called_reconciled(profile):
    report = build(accounts(entry("chat", serving=30), nodes=nodes(100, 60)), [])
    assert report["reconciliation"]["difference"] == pytest.approx(-0.1)
    assert "Not reconciled" in page(report, "")


def test_document_has_profile_and_verdict_and_no_nan(report):
    (found,) = json.loads(json.dumps(report, allow_nan=False))["profiles"]
    assert (found["binding"]["verdict"], found["usage"]["gpu_dram_active"]["p95"]) == ("memory_bandwidth", 0.7)


def test_sections_have_a_cell_for_each_column(report):
    for section in sections(report):
        assert {len(row) for row in section.rows} == {len(section.columns)}
    assert [section.rows[0][:2] for section in sections(report)] == [
        ("ai/chat", "100 %"),
        ("ai/chat", "memory bandwidth"),
    ]


def test_csv_has_a_row_per_workload_and_empty_fields_for_unknown(report):
    (row,) = csv.DictReader(io.StringIO(to_csv(report)))
    assert (row["name"], row["gpu_hours_serving"], row["cost_held"]) == ("chat", "30.0", "80.0")
    assert (row["verdict"], row["gpu_dram_active_p95"], row["gpu_sm_active_p95"]) == ("memory_bandwidth", "0.7", "")
    blind = build(accounts(entry("blind", price=None)), [])
    (row,) = csv.DictReader(io.StringIO(to_csv(blind)))
    assert (row["gpu_hours_serving"], row["verdict"]) == ("", "")


def test_html_fetches_nothing_and_closes_its_tags(report):
    found = parsed(
        page(report, "2026-11-01 to 2026-11-30", [ReportSection("GPUs", ("GPU", "cost"), [("L4", "1.2")], "a note")])
    )
    assert found.fetched == []
    text = " ".join(found.text)
    assert all(part in text for part in ("ai/chat", "memory bandwidth", "team search", "a note", "L4"))
    assert not re.search(r"url\(|@import", page(report, ""))


def test_html_of_nothing_says_so():
    text = " ".join(parsed(page(build(accounts(), []), "No data yet")).text)
    assert all(part in text for part in ("No workload was accounted", "No usage has been measured"))
    assert not re.search(r"\bnan\b|None", text)


def test_names_are_escaped(profile):
    report = build(accounts(entry("<script>alert(1)</script>", serving=1)), [])
    assert "<script" not in page(report, "<b>")


def test_chosen_workloads_alone_are_summed():
    some = chosen(accounts(entry("chat", serving=1), entry("code", serving=2)), ["ai/code"])
    assert [label(each) for each in some["workloads"]] == ["ai/code"]
    assert build(some, [])["total"]["gpu_hours_held"] == 2.0


FURTHER_HOUR = {
    "pauses": 3.0, "gpu_seconds": 12 * HOUR, "cost": 24.0, "cold_starts": 2.0, "waiting_s": 150.0, "saved": None,
}  # fmt: skip


def test_further_hour_of_keep_warm_is_shown_where_pauses_were_recorded():
    slept = entry("chat", serving=8) | {"further_hour": FURTHER_HOUR}
    report = build(accounts(slept, entry("code", serving=8)), [])
    (section,) = sections(report)
    assert section.rows == [("ai/chat", "3", "12.00", "24.00", "2.00", "\N{EN DASH}")]
    assert "One more hour of keep-warm" in page(report, "a day")
    assert "One more hour" not in page(build(accounts(entry("code", serving=8)), []), "a day")


def test_oversized_hours_are_the_part_of_a_gpu_that_no_peak_used(profile):
    """Memory peaks at 12 of 40 GiB, DRAM at 0.2 of the 0.8 that it reaches: 0.7 of the 30 hours that were not idle."""
    small = profile(SM=0.1, TENSOR=0.1, DRAM=0.2, MEMORY=12 * 2.0**30, MEMORY_TOTAL=40 * 2.0**30, WAITING=0.0)
    report = build(
        accounts(entry("chat", serving=28, loading=2, idle_warm=10, asleep=5), nodes=nodes(100, 60)), [small]
    )
    for each in (*report["workloads"], report["total"]):
        assert each["gpu_hours_oversized"] == pytest.approx(21.0)
        assert each["cost_oversized"] == pytest.approx(42.0)
    (row,) = csv.DictReader(io.StringIO(to_csv(report)))
    assert float(row["gpu_hours_oversized"]) == pytest.approx(21.0)
    assert "<td>21.0</td>" in page(report, "")
    total = report["total"]
    parts = total["gpu_hours_oversized"] + total["gpu_hours"]["idle_warm"], report["reconciliation"]["unallocated"]
    assert sum(parts) + 9.0 == pytest.approx(report["nodes"]["gpu_hours"], rel=0.001), "9 hours were used"


@pytest.mark.parametrize(("signals", "hours"), [
    ({"SM": 0.9, "DRAM": 0.7, "MEMORY": 30.0, "MEMORY_TOTAL": 40.0}, 0.0),  # it uses what it has
    ({"SM": 0.1, "DRAM": 0.2, "MEMORY": 12.0}, None),  # of how much is unknown
    ({"SM": 0.1, "MEMORY": 12.0, "MEMORY_TOTAL": 40.0}, None),
    ({"DRAM": 0.2, "MEMORY": 12.0, "MEMORY_TOTAL": 40.0}, None),
])  # fmt: skip
def test_oversized_hours_are_zero_only_if_the_verdict_could_be_given(profile, signals, hours):
    report = build(accounts(entry("chat", serving=28)), [profile(**signals)])
    assert report["total"]["gpu_hours_oversized"] == hours


@given(st.lists(st.tuples(*[st.floats(0.0, 1000.0)] * 4, st.none() | st.floats(0.0, 1.0)), min_size=1, max_size=5))
def test_idle_oversized_and_used_hours_add_up_to_the_held_ones(rows):
    names = [f"w{index}" for index in range(len(rows))]
    states = ("serving", "idle_warm", "loading", "unknown")
    entries = [entry(name, **dict(zip(states, row, strict=False))) for name, row in zip(names, rows, strict=True)]
    report = build_report(accounts(*entries), {f"ai/{name}": row[4] for name, row in zip(names, rows, strict=True)})
    for each, row in zip(report["workloads"], rows, strict=True):
        if row[4] is None:
            assert each["gpu_hours_oversized"] is None
        else:
            rest = each["gpu_hours_held"] - each["gpu_hours"]["idle_warm"] - each["gpu_hours_oversized"]
            assert rest == pytest.approx((1.0 - row[4]) * (row[0] + row[2] + row[3]), rel=0.001, abs=1e-9)
    counted = [each["gpu_hours_oversized"] for each in report["workloads"] if each["gpu_hours_oversized"] is not None]
    assert report["total"]["gpu_hours_oversized"] == (pytest.approx(sum(counted)) if counted else None)
