"""The plan of somebody who knew the load: it works, it is cheap, and it is no less than what the work itself takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scaler.replay.baseline import Static
from scaler.replay.clairvoyant import find, fluid_gpu_hours, follow, wanted, work_s
from scaler.replay.columns import Trace
from scaler.replay.run import run, score
from scaler.replay.servers import A, C
from scaler.replay.traces import load as generated
from scaler.replay.walk import BIN_S


@pytest.fixture(scope="module")
def load():
    # Two crowds and little between: nobody who holds one number for all of it is cheap.
    return generated("onoff:rate=6,on=4m,off=4m,for=25m", None, 2).load


@pytest.fixture(scope="module")
def progress():
    return []


@pytest.fixture(scope="module")
def plan(load, progress):
    return find(load, replace(A, start_s=30.0), progress.append)


def test_a_pod_is_ordered_one_start_up_time_ahead_and_kept_if_it_is_needed_again_within_that():
    # 30 s are two bins: ready in bins 3 and 6 is there from bin 1 on, and between.
    assert wanted(np.array([0, 0, 0, 2, 0, 0, 1, 0]), 30.0).tolist() == [0, 2, 2, 2, 1, 1, 1, 0]
    assert wanted(np.array([1, 2, 1]), 0.0).tolist() == [1, 2, 1]


def test_the_plan_keeps_the_promise_and_says_by_how_much(load, plan):
    profile = replace(A, start_s=30.0)
    times, pod_s = follow(load, profile, plan.ready)
    counted = load.at >= 300.0
    kept = profile.slo.kept(times[:, 1] - times[:, 0], times[:, 2] - times[:, 1], load.prompt, load.output)

    assert plan.slo_met_ratio >= profile.slo.share
    assert plan.slo_met_ratio == pytest.approx(kept[counted].mean())
    assert plan.gpu_hours == pytest.approx(pod_s / 3600)
    assert len(plan.ready) == int(load.span_s // BIN_S) + 1


def test_the_plan_costs_no_more_than_the_best_who_holds_one_number(load, plan):
    profile = replace(A, start_s=30.0)
    statics = [score(run(load, profile, Static(replicas))) for replicas in range(1, 9)]
    best = min(one.gpu_hours for one in statics if one.slo_met_ratio >= profile.slo.share)

    assert plan.gpu_hours <= best


def test_the_plan_is_not_under_the_bound_nobody_is_under(load, plan):
    assert 0.0 < fluid_gpu_hours(load, A) <= plan.gpu_hours


def test_the_search_tells_how_far_it_is(plan, progress):
    assert progress == sorted(progress)
    assert len(progress) > 1
    assert all(0.0 < done < 1.0 for done in progress)


def test_a_plan_costs_from_creation_to_the_end_of_its_drain():
    one = Trace("jobs", np.array([0.0, 1.0, 300.0]), np.ones(3, np.int64), np.array([100, 100, 1]))
    ready = np.ones(21, np.int64)
    ready[:4] = 2
    _, pod_s = follow(one, C, ready)

    # 45 s of start-up are three bins: the second pod is told to go at 60 s and has work until 101 s.
    assert pod_s == pytest.approx(300.0 + 101.0)


def test_the_work_of_a_job_is_its_seconds():
    jobs = Trace("jobs", np.array([0.0, 10.0]), np.ones(2, np.int64), np.array([60, 3540]))
    assert work_s(jobs, C).tolist() == pytest.approx([60.0, 3540.0])
    assert fluid_gpu_hours(jobs, C) == pytest.approx(1.0)
