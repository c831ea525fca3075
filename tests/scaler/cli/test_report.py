"""`tidegate report` sums GPU-hours without unknown parts, and prints what observed workloads would save."""

import io
import json
import re

import pytest
from click.testing import CliRunner
from rich.console import Console

from scaler.cli import main
from scaler.cli.report.run import BadReportRequest, DaemonReportRequest, collect
from scaler.cli.report.tables import report_tables, shadow_sentence
from scaler.report.ledger import build_report
from scaler.report.page import page
from scaler.report.statement import build, day_section
from scaler.workloads.unmatched import UnmatchedGpus, UnmatchedReason

HOUR = 3600.0


def entry(name, namespace="ai", shadow=None, wakes=1, price=None, team=None, priced=None, **hours):
    states = ("serving", "idle_warm", "loading", "pending", "asleep", "unknown")
    gpu_seconds = {state: hours.get(state, 0.0) * HOUR for state in states} if hours else dict.fromkeys(states)
    cost = {
        state: None if price is None or value is None else value / HOUR * price for state, value in gpu_seconds.items()
    }
    held = sum(hours.get(state, 0.0) for state in ("serving", "idle_warm", "loading", "unknown"))
    always = {"held": held, "maximum": 4 * held, "peak": 2 * held}
    return {
        "team": team, "gpu_hour": price, "cost": cost, "joules": None,
        "priced_gpu_seconds": (held * HOUR if price else None) if priced is None else priced * HOUR,
        "baseline": {"cost": {name: value * price if price else None for name, value in always.items()}},
        "per_million_tokens": {"cost": {"prompt": price, "generation": None}, "joules": {}},
        "namespace": namespace, "name": name, "trigger": "", "observed": shadow is not None, "gpu_seconds": gpu_seconds,
        "state_seconds": {}, "wakes": float(wakes), "sleeps": 2.0, "shadow": shadow,
    }  # fmt: skip


SHADOW = {
    "seconds": 48 * HOUR, "gpu_seconds_saved": 45 * HOUR, "gpu_seconds_added": 4 * HOUR, "queue_seconds": 180.0,
    "more_seconds": 2 * HOUR, "fewer_seconds": 30 * HOUR,
}  # fmt: skip


def accounts(*workloads, gpu_hour=None, since=0.0, nodes=None):
    return {"now": 2 * 86400.0, "since": since, "gpu_hour": gpu_hour, "nodes": nodes, "workloads": list(workloads)}


def text(report):
    out = io.StringIO()
    report_tables(report, Console(file=out))
    return out.getvalue()


def test_hours_are_summed_per_namespace_and_in_total_with_costs():
    chat = entry("chat", price=2.5, serving=30, idle_warm=10, asleep=80)
    code = entry("code", "research", serving=10, loading=1, pending=7)
    report = build_report(accounts(chat, code, gpu_hour=2.5))
    held = {each["namespace"]: each["gpu_hours_held"] for each in report["namespaces"]}
    assert held == {"ai": 40.0, "research": 11.0}, "pending replicas hold nothing"
    total = report["total"]
    assert (total["gpu_hours_held"], total["gpu_hours"]["asleep"], total["cost"]["asleep"]) == (51.0, 80.0, 200.0)
    assert report["workloads"][0]["idle_share"] == 0.25
    assert "10.0 GPU-hours (25.00) were idle; sleeping saved 80.0 (200.00)." in text(report)


def test_costs_are_none_without_a_price():
    report = build_report(accounts(entry("chat", serving=1, idle_warm=1)))
    assert report["total"]["cost"]["idle_warm"] is None
    assert "GPU-hours were idle" in text(report)


def test_unknown_parts_are_in_no_sum_and_are_reported():
    report = build_report(accounts(entry("chat", serving=3), entry("blind")))
    assert report["workloads"][1]["gpu_hours_held"] is None
    assert report["total"]["gpu_hours_held"] == 3.0
    assert "The GPUs of 1 workload(s) are unknown" in text(report)
    json.dumps(report, allow_nan=False)


def test_savings_of_observed_workloads_are_a_sentence():
    report = build_report(accounts(entry("chat", serving=3), entry("observed", shadow=SHADOW, price=2.0, serving=5)))
    assert report["workloads"][0]["shadow"] is None
    shown = text(report)
    assert "Tidegate would have saved 41.0 GPU-hours (82.00)" in shown
    assert "requests waited 3.0 minutes while it would have had more replicas" in shown


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"gpu_seconds_saved": 0.0}, "Tidegate would have used 4.0 GPU-hours more; requests"),
        ({"gpu_seconds_saved": None, "gpu_seconds_added": None}, "unknown: no GPU of these workloads is known; "),
        ({"queue_seconds": None}, "Tidegate would have saved 41.0 GPU-hours."),
    ],
)
def test_unknown_savings_are_not_invented(change, part):
    report = build_report(accounts(entry("observed", shadow={**SHADOW, **change}, serving=5)))
    assert part in shadow_sentence(report["total"]["shadow"])


def test_report_before_the_first_tick_has_no_data():
    assert "No data yet" in text(build_report(accounts(since=None)))


def test_unreachable_daemon_is_an_error_with_a_hint(tidegate, tmp_path):
    done = tidegate("report", "--server", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert "http://127.0.0.1:1/api/v1/accounts: " in done.stderr
    assert "port-forward" in done.stderr


def test_time_of_a_daemon_cannot_be_chosen(tidegate):
    done = tidegate("report", "--since", "7d")
    assert done.returncode == 2
    assert "--since: needs --prometheus" in done.stderr
    done = tidegate("report", "--since", "long", "--prometheus", "http://127.0.0.1:1")
    assert (done.returncode, "--since" in done.stderr) == (2, True)


def test_gpus_without_a_workload_are_reported_with_their_remedy():
    gpus = UnmatchedGpus(UnmatchedReason.NO_POD, 17, ("ai/gone",), 1, "the cluster has no such pod")
    report = {**build_report(accounts(entry("chat", serving=3))), "gpus_unmatched": [gpus.to_document()]}
    shown = text(report)
    assert "In no sum: 17 GPUs of ai/gone match no workload: the cluster has no such pod. Remedy: restart the" in shown


def test_report_of_an_older_daemon_has_no_such_sentence():
    assert "In no sum" not in text(build_report(accounts(entry("chat", serving=3))))


def test_cost_is_shown_per_workload_and_team_with_savings_against_always_on():
    chat = entry("chat", price=2.0, team="search", serving=30, idle_warm=10)
    code = entry("code", price=1.0, team="search", serving=10)
    report = build_report(accounts(chat, code, entry("blind")))
    (team,) = report["teams"]
    assert (team["team"], team["cost_held"], team["cost"]["idle_warm"]) == ("search", 90.0, 20.0)
    assert team["saved"] == {"maximum": 270.0, "peak": 90.0}
    shown = text(report)
    assert "team search" in shown
    assert "270.00" in shown


def test_gpus_without_a_price_and_unallocated_gpus_are_named():
    nodes = {
        "since": 0.0, "gpus": 8.0, "gpu_seconds": 100 * HOUR, "unallocated_gpu_seconds": 60 * HOUR, "cost": 200.0,
        "unallocated_cost": 120.0,
    }  # fmt: skip
    shown = text(build_report(accounts(entry("chat", price=2.0, serving=40, priced=30), nodes=nodes)))
    assert "10.0 GPU-hours have no price and are in no cost: set prices.gpus." in shown
    assert "60.0 of the 100.0 GPU-hours of the nodes (120.00) were unallocated." in shown


MONTH_BEGIN = 1_793_491_200.0  # 2026-11-01


def month_of_accounts(*workloads, month="2026-11", since=MONTH_BEGIN, now=MONTH_BEGIN + 3.5 * 86400.0):
    """The document of a daemon that keeps October and November."""
    document = accounts(*workloads, since=since)
    return {**document, "now": now, "month": month, "months_kept": ["2026-10", "2026-11"]}


def days(*hours, price=2.0):
    """Serving GPU-hours of the first days of November; None of an unknown day."""
    states = ("serving", "idle_warm", "loading", "unknown")
    return [
        {
            "day": f"2026-11-{number:02d}",
            "gpu_seconds": {state: None if each is None else each * HOUR * (state == "serving") for state in states},
            "cost": None if each is None else each * price,
        }
        for number, each in enumerate(hours, 1)
    ]


def test_days_of_a_month_are_summed_without_unknown_ones_and_gaps_stay_gaps():
    chat = {**entry("chat", serving=30), "days": days(24.0, None, None, 6.0)}
    code = {**entry("code", serving=12), "days": days(8.0, 4.0, None, 0.0)}
    report = build_report(month_of_accounts(chat, code))
    assert [(each["gpu_hours_held"], each["cost"]) for each in report["days"]] == [
        (32.0, 64.0), (4.0, 8.0), (None, None), (6.0, 12.0),
    ]  # fmt: skip
    rows = day_section(report["days"]).rows
    assert rows[2] == ("2026-11-03", *["\N{EN DASH}"] * 6)
    assert rows[3][-2:] == ("6.00", "12.00")
    assert day_section(build_report(accounts(entry("chat", serving=1)))["days"]).rows == []
    assert "of 2026-11, UTC" in text(report)


def test_plot_of_a_month_shows_an_unknown_day_as_a_gap_and_a_zero_as_no_bar():
    chat = {**entry("chat", serving=30), "days": days(24.0, None, 0.0)}
    shown = page(build(month_of_accounts(chat), []), "Nov")
    assert "<h1>GPU statement of 2026-11</h1>" in shown
    plot = shown[shown.index("<svg class=days") :]
    bars = [bar.split("</g>")[0] for bar in plot[: plot.index("</svg>")].split("<g>")[1:]]
    assert ["url(#gap)" in bar for bar in bars] == [False, True, False]
    assert ["var(--serving)" in bar for bar in bars] == [True, False, False]
    assert "2026-11-02: unknown" in bars[1]
    assert "2026-11-03: 0.0 GPU-hours held" in bars[2]
    assert "1 of 3 days unknown" in shown
    assert "GPU-hours by day" not in page(build(accounts(entry("chat", serving=1)), []), "all time")


@pytest.fixture
def daemon(monkeypatch):
    """`daemon(accounts)`: what a request gets from the daemon; returns the paths that were requested."""

    def answer(document):
        asked = []

        def respond(server, path, timeout_s):
            asked.append(path)
            known = {"/api/v1/accounts": document, "/api/v1/profiles": {"profiles": []}, "/api/v1/rows": {}}
            return known[path.partition("?")[0]]

        monkeypatch.setattr("scaler.cli.report.run.document", respond)
        return asked

    return answer


def test_month_before_the_present_one_has_no_profiles_of_today(daemon):
    request = DaemonReportRequest((), "http://tidegate", "2026-11")
    asked = daemon(month_of_accounts(entry("chat", serving=30)))
    assert collect(request, lambda what, share: None)["month"] == "2026-11"
    assert asked == ["/api/v1/accounts?month=2026-11", "/api/v1/profiles", "/api/v1/rows"]
    asked = daemon(month_of_accounts(entry("chat", serving=30)))
    collect(DaemonReportRequest((), "http://tidegate", ""), lambda what, share: None)
    assert asked == ["/api/v1/accounts?month=", "/api/v1/profiles", "/api/v1/rows"], "the present one of the daemon"
    asked = daemon(month_of_accounts(entry("chat", serving=30), now=MONTH_BEGIN + 30 * 86400.0))
    collect(request, lambda what, share: None)
    assert asked == ["/api/v1/accounts?month=2026-11", "/api/v1/rows"]


@pytest.mark.parametrize(("document", "reason"), [
    (accounts(entry("chat", serving=1)), "http://tidegate has no accounts of months"),
    (month_of_accounts(month="2026-05"), "must be a month that is kept (2026-10, 2026-11), got 2026-05"),
], ids=["older version", "not kept"])  # fmt: skip
def test_month_that_a_daemon_does_not_have_is_refused(daemon, document, reason):
    daemon(document)
    with pytest.raises(BadReportRequest, match=re.escape(reason)):
        collect(DaemonReportRequest((), "http://tidegate", "2026-05"), lambda what, share: None)


@pytest.mark.parametrize(("options", "reason"), [
    (["--month", "2026-11", "--since", "7d", "--prometheus", "http://p"], "--month: not together with --since"),
    (["--month", "--pages", "x"], "--pages: not together with --prometheus or --month"),
    (["--month", "november"], "must be a month as 2026-11, got 'november'"),
])  # fmt: skip
def test_options_that_do_not_fit_a_month_are_refused(options, reason):
    done = CliRunner().invoke(main, ["report", *options])
    assert (done.exit_code, reason in done.output) == (2, True), done.output
