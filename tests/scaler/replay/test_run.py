"""Tests one run of a load, a profile and a baseline: which costs and requests count, from when and until when."""

from __future__ import annotations

import numpy as np
import pytest

from scaler.replay.baseline import Static
from scaler.replay.columns import DONE, FIRST
from scaler.replay.policies import parse
from scaler.replay.run import run
from scaler.replay.servers import PROFILES

QUICK = 1e12  # prompt tokens per second: reading the prompt takes no time


def test_static_baseline_costs_its_replicas_until_the_last_arrival(load, profile):
    course = run(load([(0.0, 1, 1), (600.0, 1, 60_000)]), profile(), Static(3))

    # The last request runs for ten more minutes: they are simulated, and cost nothing.
    assert course.pod_s == pytest.approx(1800.0)
    assert course.times[1, DONE] == pytest.approx(600.0 + 600.0, abs=0.1)
    assert course.orders == ()


def test_pod_costs_from_its_creation_and_not_from_readiness(load, profile, scripted):
    course = run(load([(0.0, 1, 1), (1000.0, 1, 1)]), profile(start_s=75.0), scripted({100.0: 3, 150.0: 1}))

    # 1000 s of the first, and 50 s of two that were removed before they were ready.
    assert course.pod_s == pytest.approx(1000.0 + 2 * 50.0)
    assert course.orders == ((100.0, 1, 3), (150.0, 3, 1))


def test_pod_costs_until_the_end_of_its_drain(load, profile, scripted):
    work = [(0.0, 1, 40_000), (1.0, 1, 40_000), (1000.0, 1, 1)]
    course = run(load(work), profile(prompt_rate=QUICK), scripted({100.0: 1}, first=2))

    # 40,000 tokens at 10 ms: one pod drains from 100 s on and is gone when its work is done, at 401 s.
    assert course.pod_s == pytest.approx(1000.0 + 401.0)


def test_requests_are_simulated_for_an_hour_after_the_last_arrival(load, profile, scripted):
    course = run(load([(0.0, 1, 1), (100.0, 1, 1)]), profile(start_s=500.0), scripted({50.0: 0, 300.0: 1}))

    assert course.times[1, FIRST] == pytest.approx(800.0, abs=0.1)
    never = run(load([(0.0, 1, 1), (100.0, 1, 1)]), profile(), scripted({50.0: 0}))
    assert np.isnan(never.times[1, FIRST])


def test_cold_start_is_counted_once_for_all_waiting_requests(load, profile, scripted):
    crowd = [(0.0, 1, 1), *((100.0 + index, 1, 1) for index in range(20)), (600.0, 1, 1)]
    changes = {50.0: 0, 105.0: 1, 300.0: 0, 605.0: 1}
    course = run(load(crowd), profile(start_s=60.0), scripted(changes))

    assert course.cold == 2
    assert run(load(crowd), profile(), Static(1)).cold == 0


def test_scale_change_applies_at_once_and_a_repeated_one_is_none(load, profile, scripted):
    course = run(load("each:1m,for=10m"), profile(), scripted({100.0: 2, 200.0: 2, 300.0: 1}))

    assert course.orders == ((100.0, 1, 2), (300.0, 2, 1))
    wanted = dict(zip(course.chart[:, 0], course.chart[:, 1], strict=True))
    assert (wanted[100.0], wanted[105.0], wanted[305.0]) == (1.0, 2.0, 1.0)


def test_same_seed_yields_the_same_run_and_another_seed_other_start_up_times(load, profile):
    slow = profile(start_s=60.0, sigma=0.35, slots=1)
    busy = load("flash:peak=4,at=5m,for=15m,prompt=200,output=300", seed=3)
    one, again, other = (run(busy, slow, parse("tidegate:work=4").baseline(), seed=seed) for seed in (1, 1, 2))

    assert one.times.tobytes() == again.times.tobytes()
    assert (one.orders, one.pod_s, one.cold) == (again.orders, again.pod_s, again.cold)
    assert one.times.tobytes() != other.times.tobytes()


def test_run_reports_its_progress(load):
    progress = []
    run(load("each:1m,for=1h"), PROFILES["A"], Static(1, every_s=5.0), progress=progress.append)

    assert progress == sorted(progress)
    assert progress[0] == 0.0
    assert progress[-1] == 1.0
    assert len(progress) > 100


def test_load_at_one_moment_is_valid(load, profile):
    course = run(load([(0.0, 1, 1)] * 3), profile(prompt_rate=QUICK), Static(2))

    assert course.pod_s == 0.0
    assert np.isfinite(course.times).all()
