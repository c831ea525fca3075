"""`tidegate report` sums GPU-hours without unknown parts, and prints what observed workloads would save."""

import io
import json

import pytest
from rich.console import Console

from scaler.cli.report.tables import report_tables, shadow_sentence
from scaler.report.ledger import build_report
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
