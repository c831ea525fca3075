"""Tests the plan with full knowledge of the load: it meets the SLO, is cheap, and not below the fluid bound."""

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
    # Two bursts with little load between: no constant number of replicas is cheap.
    return generated("onoff:rate=6,on=4m,off=4m,for=25m", None, 2).load


@pytest.fixture(scope="module")
def progress():
    return []


@pytest.fixture(scope="module")
def plan(load, progress):
    return find(load, replace(A, start_s=30.0), progress.append)


def test_pod_is_started_one_start_up_time_ahead_and_kept_if_needed_again_within_that():
    # 30 s are two bins: replicas ready in bins 3 and 6 exist from bin 1 on, and between.
    assert wanted(np.array([0, 0, 0, 2, 0, 0, 1, 0]), 30.0).tolist() == [0, 2, 2, 2, 1, 1, 1, 0]
    assert wanted(np.array([1, 2, 1]), 0.0).tolist() == [1, 2, 1]


def test_plan_meets_the_slo_and_reports_the_ratio(load, plan):
    profile = replace(A, start_s=30.0)
    times, pod_s = follow(load, profile, plan.ready)
    counted = load.at >= 300.0
    kept = profile.slo.kept(times[:, 1] - times[:, 0], times[:, 2] - times[:, 1], load.prompt, load.output)

    assert plan.slo_met_ratio >= profile.slo.share
    assert plan.slo_met_ratio == pytest.approx(kept[counted].mean())
    assert plan.gpu_hours == pytest.approx(pod_s / 3600)
    assert len(plan.ready) == int(load.span_s // BIN_S) + 1


def test_plan_costs_no_more_than_the_best_constant_number(load, plan):
    profile = replace(A, start_s=30.0)
    statics = [score(run(load, profile, Static(replicas))) for replicas in range(1, 9)]
    best = min(one.gpu_hours for one in statics if one.slo_met_ratio >= profile.slo.share)

    assert plan.gpu_hours <= best


def test_plan_is_not_below_the_fluid_bound(load, plan):
    assert 0.0 < fluid_gpu_hours(load, A) <= plan.gpu_hours


def test_search_reports_its_progress(plan, progress):
    assert progress == sorted(progress)
    assert len(progress) > 1
    assert all(0.0 < done < 1.0 for done in progress)


def test_plan_costs_from_creation_to_the_end_of_the_drain():
    one = Trace("jobs", np.array([0.0, 1.0, 300.0]), np.ones(3, np.int64), np.array([100, 100, 1]))
    ready = np.ones(21, np.int64)
    ready[:4] = 2
    _, pod_s = follow(one, C, ready)

    # 45 s of start-up are three bins: the second pod drains from 60 s on and has work until 101 s.
    assert pod_s == pytest.approx(300.0 + 101.0)


def test_work_of_a_job_is_its_seconds():
    jobs = Trace("jobs", np.array([0.0, 10.0]), np.ones(2, np.int64), np.array([60, 3540]))
    assert work_s(jobs, C).tolist() == pytest.approx([60.0, 3540.0])
    assert fluid_gpu_hours(jobs, C) == pytest.approx(1.0)
