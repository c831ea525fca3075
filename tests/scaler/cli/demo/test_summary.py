"""The summary decides which runs of the demo are successful."""

from __future__ import annotations

import json
from dataclasses import replace

from scaler.cli.demo.summary import Summary, problems

GOOD = Summary(
    sent=3000,
    answered=3000,
    lost=0,
    max_replicas=8,
    final_replicas=0,
    changes=20,
    woke_after_s=0.6123,
    slept=True,
    slo_met_ratio=0.97123456,
    gpu_hours=1.2345678,
)


def test_document_has_these_keys():
    assert json.loads(json.dumps(GOOD.to_document())) == {
        "requests": {"sent": 3000, "answered": 3000, "lost": 0},
        "replicas": {"max": 8, "final": 0, "changes": 20},
        "woke_after_s": 0.61,
        "slept": True,
        "slo_met_ratio": 0.9712,
        "gpu_hours": 1.235,
    }


def test_good_run_has_no_problems():
    assert problems(GOOD, 1200.0) == ()


def test_lost_request_is_a_problem_in_any_run():
    assert problems(replace(GOOD, lost=2), 10.0) == ("2 of 3000 requests were not answered",)


def test_wake_and_sleep_are_required_only_of_long_runs():
    lazy = replace(GOOD, woke_after_s=None, slept=False)
    assert [len(problems(lazy, duration_s)) for duration_s in (60.0, 120.0, 899.0, 900.0)] == [0, 1, 1, 2]
