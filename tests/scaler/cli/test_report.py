"""`tidegate report`: sums that leave out what is not known and say so, and what observing would have saved."""

import io
import json

import pytest
from rich.console import Console

from scaler.cli.report import report, report_tables, shadow_sentence

HOUR = 3600.0


def entry(name, namespace="ai", shadow=None, wakes=1, **hours):
    states = ("serving", "idle_warm", "loading", "pending", "asleep", "unknown")
    known = {state: hours.get(state, 0.0) * HOUR for state in states} if hours else dict.fromkeys(states)
    return {
        "namespace": namespace, "name": name, "trigger": "", "observed": shadow is not None, "gpu_seconds": known,
        "state_seconds": {}, "wakes": float(wakes), "sleeps": 2.0, "shadow": shadow,
    }  # fmt: skip


SHADOW = {
    "seconds": 48 * HOUR, "gpu_seconds_saved": 45 * HOUR, "gpu_seconds_added": 4 * HOUR, "queue_seconds": 180.0,
    "more_seconds": 2 * HOUR, "fewer_seconds": 30 * HOUR,
}  # fmt: skip


def accounts(*workloads, gpu_hour=None, since=0.0):
    return {"now": 2 * 86400.0, "since": since, "gpu_hour": gpu_hour, "workloads": list(workloads)}


def text(made):
    out = io.StringIO()
    report_tables(made, Console(file=out))
    return out.getvalue()


def test_hours_are_added_per_namespace_and_in_all_and_priced():
    chat = entry("chat", serving=30, idle_warm=10, asleep=80)
    code = entry("code", "research", serving=10, loading=1, pending=7)
    made = report(accounts(chat, code, gpu_hour=2.5))
    held = {each["namespace"]: each["gpu_hours_held"] for each in made["namespaces"]}
    assert held == {"ai": 40.0, "research": 11.0}, "what is pending holds nothing"
    total = made["total"]
    assert (total["gpu_hours_held"], total["gpu_hours"]["asleep"], total["money_slept"]) == (51.0, 80.0, 200.0)
    assert made["workloads"][0]["idle_share"] == 0.25
    assert "10.0 GPU-hours (25.00) were held with nothing to do; sleeping saved 80.0 (200.00)." in text(made)


def test_without_a_price_there_is_no_money():
    made = report(accounts(entry("chat", serving=1, idle_warm=1)))
    assert made["total"]["money_idle"] is None
    assert "GPU-hours were held" in text(made)


def test_what_is_not_known_is_in_no_sum_and_is_said():
    made = report(accounts(entry("chat", serving=3), entry("blind")))
    assert made["workloads"][1]["gpu_hours_held"] is None
    assert made["total"]["gpu_hours_held"] == 3.0
    assert "Of 1 workload(s) it is not known how many GPUs they hold" in text(made)
    json.dumps(made, allow_nan=False)


def test_the_scores_of_who_is_observed_are_a_sentence():
    made = report(accounts(entry("chat", serving=3), entry("seen", shadow=SHADOW, serving=5), gpu_hour=2.0))
    assert made["workloads"][0]["shadow"] is None
    shown = text(made)
    assert "Tidegate would have saved 41.0 GPU-hours (82.00)" in shown
    assert "requests waited 3.0 minutes while it would have had more replicas" in shown


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpu_seconds_saved": 0.0}, "Tidegate would have taken 4.0 GPU-hours more; requests"),
        ({"gpu_seconds_saved": None, "gpu_seconds_added": None}, "is not known: no GPU of these workloads was seen; "),
        ({"queue_seconds": None}, "Tidegate would have saved 41.0 GPU-hours."),
    ],
)
def test_a_score_that_is_none_is_not_made_up(change, words):
    made = report(accounts(entry("seen", shadow={**SHADOW, **change}, serving=5)))
    assert words in shadow_sentence(made["total"]["shadow"])


def test_before_the_first_sweep_there_is_nothing_to_say():
    assert "Nothing is counted yet" in text(report(accounts(since=None)))


def test_it_is_asked_of_a_running_daemon_and_where_there_is_none_says_what_to_do(tidegate, tmp_path):
    done = tidegate("report", "--server", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert "http://127.0.0.1:1/api/v1/accounts: " in done.stderr
    assert "port-forward" in done.stderr
