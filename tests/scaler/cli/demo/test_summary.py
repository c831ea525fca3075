"""The summary decides which runs of the demo are successful."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from scaler.cli.demo.cluster import DemoSlo, DemoTally
from scaler.cli.demo.load import shape
from scaler.cli.demo.summary import (
    AlwaysOn,
    Summary,
    attainment,
    comparison,
    conclusion,
    problems,
    simulate_always_on,
    slo_phrase,
    slowness,
)

GOOD = Summary(
    sent=3000,
    answered=3000,
    lost=0,
    max_replicas=8,
    final_replicas=0,
    changes=20,
    simulated_s=3612.0,
    woke_after_s=0.6123,
    slept=True,
    slo_met_ratio=0.97123456,
    gpu_hours=1.2345678,
)


def test_document_has_these_keys():
    assert json.loads(json.dumps(GOOD.to_document(AlwaysOn(8, 8.0266666)))) == {
        "requests": {"sent": 3000, "answered": 3000, "lost": 0},
        "replicas": {"max": 8, "final": 0, "changes": 20},
        "simulated_s": 3612,
        "woke_after_s": 0.61,
        "slept": True,
        "slo_met_ratio": 0.9712,
        "gpu_hours": 1.235,
        "always_on": {"replicas": 8, "gpu_hours": 8.027, "slo_met_ratio": None},
    }


def test_last_sentence_compares_gpu_hours_money_and_slo():
    assert comparison(GOOD, AlwaysOn(8, 8.0, 1.0), gpu_hour=2.5) == (
        "Always-on with 8 replicas takes 8.00 GPU-hours (money: 20.00) with 100.0 % of the requests within the SLO; "
        "Tidegate took 1.23 GPU-hours (money: 3.09) with 97.1 % of the requests within the SLO."
    )


@pytest.mark.parametrize(("duration_s", "answered", "held"), [(300.0, 2000, 25), (3600.0, 120, 25), (3600.0, 0, 0)])
def test_short_run_has_no_attainment_instead_of_zero(duration_s, answered, held):
    tally = DemoTally(sent=answered, held=held, answered=answered, met=0)
    ratio = attainment(tally, duration_s)
    text = "\n".join(conclusion(replace(GOOD, slo_met_ratio=ratio), 0, AlwaysOn(8, 8.0), 2.5))
    assert ratio is None
    assert text.endswith("the run is too short to judge the SLO.")
    assert "%" not in text


def test_attainment_counts_the_requests_that_waited_for_the_start():
    assert attainment(DemoTally(sent=400, held=25, answered=400, met=300), 3600.0) == 0.75


def test_always_on_takes_all_replicas_for_the_whole_run():
    result = simulate_always_on(shape(900.0, 7), 8, 900.0, 960.0)
    assert result.gpu_hours == 8 * 960.0 / 3600.0
    assert result.slo_met_ratio > 0.99


def test_always_on_with_too_few_replicas_misses_the_slo():
    assert simulate_always_on(shape(900.0, 7), 1, 900.0, 3600.0).slo_met_ratio < 0.5


def test_times_of_the_conclusion_are_simulated():
    text = " ".join(conclusion(GOOD, 0, AlwaysOn(8, 8.0), 2.5))
    assert "in 60 simulated minutes" in text
    assert "Woken 0.6 simulated seconds after" in text


def test_slow_run_says_that_the_machine_was_busy():
    assert slowness(GOOD, 60.0, took_s=80.0) == []
    assert slowness(GOOD, 60.0, took_s=240.7) == [
        "This machine was busy: that took 241 s instead of 60 s. Simulated time waited for it."
    ]


def test_slo_in_words():
    assert slo_phrase(DemoSlo()) == "first token within 2 s (more for long prompts), then 60 ms per token"


def test_good_run_has_no_problems():
    assert problems(GOOD, 1200.0) == ()


def test_lost_request_is_a_problem_in_any_run():
    assert problems(replace(GOOD, lost=2), 10.0) == ("2 of 3000 requests were not answered",)


def test_wake_and_sleep_are_required_only_of_long_runs():
    lazy = replace(GOOD, woke_after_s=None, slept=False)
    assert [len(problems(lazy, duration_s)) for duration_s in (60.0, 120.0, 899.0, 900.0)] == [0, 1, 1, 2]
