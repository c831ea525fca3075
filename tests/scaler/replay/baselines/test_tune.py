"""Tests that tuning in hindsight finds the same setting as complete runs of all settings."""

from __future__ import annotations

import numpy as np
import pytest

from scaler.cli.replay.tune import HopelessError, WatchedBaseline, attempt, one_setting, tune
from scaler.replay.columns import Trace
from scaler.replay.policies import parse
from scaler.replay.run import run, score
from scaler.replay.servers import A


def steady(name, per_s, seconds=1500, prompt=2000, output=100):
    at = np.arange(int(per_s * seconds)) / per_s
    return Trace(name, at, np.full(len(at), prompt), np.full(len(at), output))


LIGHT, HEAVY = steady("light", 4.0), steady("heavy", 12.0)
STATICS = [parse(f"static:replicas={count}") for count in (1, 2, 3, 4, 5)]


def by_complete_runs(load):
    """The cheapest setting that meets the SLO, with every run to its end."""
    scores = [(setting, score(run(load, A, setting.baseline()))) for setting in STATICS]
    kept = [(one.gpu_hours, setting.name) for setting, one in scores if one.slo_met_ratio >= A.slo.share]
    return min(kept)[1]


def test_cheapest_setting_that_meets_the_slo_wins_and_progress_is_reported():
    progress = []
    best = tune(HEAVY, A, STATICS, progress=lambda done, of: progress.append((done, of)))
    assert best.setting.name == by_complete_runs(HEAVY)
    assert best.setting.name != by_complete_runs(LIGHT)
    assert progress[-1] == (5, 5)
    assert best.scores[0] == score(run(HEAVY, A, best.setting.baseline()))


def test_one_setting_must_meet_the_slo_of_all_loads_and_scores_keep_their_order():
    best = one_setting([(HEAVY, A), (LIGHT, A)], STATICS)
    assert best.setting.name == by_complete_runs(HEAVY)
    assert [one.gpu_hours for one in best.scores] == [
        score(run(load, A, best.setting.baseline())).gpu_hours for load in (HEAVY, LIGHT)
    ]


def test_tuning_without_a_setting_that_meets_the_slo_finds_none():
    assert tune(HEAVY, A, STATICS[:1]) is None


def test_run_that_cannot_win_is_aborted():
    observed_at = []

    class Observer:
        name, every_s, first = "observer", 15.0, 1

        def step(self, observation):
            observed_at.append(observation.now)

    for gpu_hours in (np.inf, 0.1):
        observed_at.clear()
        with pytest.raises(HopelessError):
            run(HEAVY, A, WatchedBaseline(Observer(), HEAVY, A, gpu_hours))
        assert observed_at[-1] < HEAVY.span_s
    assert observed_at[-1] == pytest.approx(585.0)  # 360 s of one pod are 0.1 GPU-hours; the next check is at 600


def test_trial_that_costs_more_than_the_best_has_no_score():
    whole = attempt(STATICS[3], [(LIGHT, A)], np.inf, 0)
    assert len(whole.scores) == 1
    assert attempt(STATICS[3], [(LIGHT, A)], whole.gpu_hours, 0) == whole
    assert attempt(STATICS[3], [(LIGHT, A)], whole.gpu_hours * 0.99, 0).scores == ()
