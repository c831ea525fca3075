"""Tuning in hindsight finds what trying everything to the end would."""

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


def by_trying(load):
    """The cheapest that meets the SLO, every run to its end."""
    scores = [(setting, score(run(load, A, setting.baseline()))) for setting in STATICS]
    kept = [(one.gpu_hours, setting.name) for setting, one in scores if one.slo_met_ratio >= A.slo.share]
    return min(kept)[1]


def test_the_cheapest_that_keeps_the_promise_wins_and_progress_is_told():
    progress = []
    best = tune(HEAVY, A, STATICS, progress=lambda done, of: progress.append((done, of)))
    assert best.setting.name == by_trying(HEAVY)
    assert best.setting.name != by_trying(LIGHT)
    assert progress[-1] == (5, 5)
    assert best.scores[0] == score(run(HEAVY, A, best.setting.baseline()))


def test_one_setting_must_keep_all_loads_and_scores_come_in_their_order():
    best = one_setting([(HEAVY, A), (LIGHT, A)], STATICS)
    assert best.setting.name == by_trying(HEAVY)
    assert [one.gpu_hours for one in best.scores] == [
        score(run(load, A, best.setting.baseline())).gpu_hours for load in (HEAVY, LIGHT)
    ]


def test_none_keeps_it_is_none():
    assert tune(HEAVY, A, STATICS[:1]) is None


def test_a_run_that_cannot_win_is_given_up_before_its_end():
    looked = []

    class Looking:
        name, every_s, first = "looking", 15.0, 1

        def step(self, observation):
            looked.append(observation.now)

    for gpu_hours in (np.inf, 0.1):
        looked.clear()
        with pytest.raises(HopelessError):
            run(HEAVY, A, WatchedBaseline(Looking(), HEAVY, A, gpu_hours))
        assert looked[-1] < HEAVY.span_s
    assert looked[-1] == pytest.approx(585.0)  # 360 s of one pod are 0.1 GPU-hours; the next check is at 600


def test_a_trial_that_costs_more_than_the_best_has_no_score():
    whole = attempt(STATICS[3], [(LIGHT, A)], np.inf, 0)
    assert len(whole.scores) == 1
    assert attempt(STATICS[3], [(LIGHT, A)], whole.gpu_hours, 0) == whole
    assert attempt(STATICS[3], [(LIGHT, A)], whole.gpu_hours * 0.99, 0).scores == ()
