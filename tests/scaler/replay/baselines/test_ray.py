"""Ray Serve's policy: ongoing requests per replica, and delays that restart when the target changes."""

from __future__ import annotations

import pytest

from scaler.replay.baselines.ray import Delay, Ray, RaySpec, desired


@pytest.mark.parametrize(("running", "requests", "expected"), [(3, 12.0, 6), (1, 2.0, 1), (4, 1.0, 1), (4, 0.0, 1)])
def test_replicas_are_requests_over_the_target(running, requests, expected):
    assert expected == desired(RaySpec(), running, requests)


def test_factors_dampen_and_rounding_never_loses_a_step_down():
    assert desired(RaySpec(up_factor=0.5), 6, 20.0) == 8
    assert desired(RaySpec(down_factor=0.1), 10, 18.0) == 9


def test_step_up_waits_30_seconds_and_step_down_600():
    delay = Delay()
    assert [delay.decide(RaySpec(), 5, 1, now) for now in (0.0, 28.0, 30.0)] == [1, 1, 5]
    assert [delay.decide(RaySpec(), 2, 5, now) for now in (40.0, 600.0, 640.0)] == [5, 5, 2]


def test_reaching_the_target_once_restarts_the_delay():
    delay = Delay()
    assert [delay.decide(RaySpec(), n, 1, now) for now, n in ((0.0, 5), (20.0, 1), (22.0, 5), (50.0, 5))] == [
        1,
        1,
        1,
        1,
    ]
    assert delay.decide(RaySpec(), 5, 1, 52.0) == 5


def test_zero_is_reached_only_from_one():
    spec = RaySpec(min_replicas=0)
    delay = Delay()
    assert [delay.decide(spec, 0, 4, now) for now in (0.0, 600.0)] == [4, 1]
    assert [delay.decide(spec, 0, 1, now) for now in (610.0, 1210.0)] == [1, 0]


def test_request_at_zero_replicas_starts_one_at_once(see):
    ray = Ray("ray", RaySpec(min_replicas=0))
    assert ray.step(see(0.0, wanted=0)) == 0
    assert ray.step(see(2.0, wanted=0, held=7.0)) == 1


def test_values_are_means_of_30_seconds_reported_every_10(see):
    ray = Ray("ray", RaySpec(up_s=0.0))
    assert ray.step(see(0.0, running=0.0)) == 1
    assert [ray.step(see(2.0 * n, running=12.0)) for n in (1, 2, 3, 4)] == [1, 1, 1, 1]
    assert ray.step(see(10.0, running=12.0)) == 5  # five of six samples: 10/2


def test_step_to_zero_has_its_own_delay():
    spec, delay = RaySpec(min_replicas=0, to_zero_s=60.0), Delay()
    assert [delay.decide(spec, 0, 1, now) for now in (0.0, 58.0, 60.0)] == [1, 1, 0]
