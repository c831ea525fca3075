"""Checks the built-in servers against the arithmetic in their descriptions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scaler.replay.baseline import Static
from scaler.replay.run import run, score
from scaler.replay.servers import PROFILES, A, B, C


def test_slo_of_a_is_two_seconds_plus_its_prompt_at_half_speed_and_sixty_milliseconds_a_token():
    prompt, output = np.full(4, 1200), np.full(4, 100)
    first, rest = np.array([2.2, 2.201, 1.0, np.nan]), np.array([6.5, 1.0, 6.51, np.nan])

    assert A.slo.kept(first, rest, prompt, output).tolist() == [True, False, False, False]


def test_slo_of_one_token_has_no_rest():
    assert A.slo.kept(np.ones(1), np.array([99.0]), np.ones(1), np.ones(1)).tolist() == [True]


@pytest.mark.parametrize("profile", [A, B])
def test_idle_replica_meets_its_slo(load, profile):
    alone = load([(600.0 * index, 4000, 500) for index in range(5)])

    assert score(run(alone, profile, Static(1))).slo_met_ratio == 1.0


def test_one_sequence_decodes_at_the_published_rate(load):
    course = run(load([(0.0, 1, 1001)]), A, Static(1))
    (_, first, done), = course.times  # fmt: skip

    # About 1/75 s a token is published for one sequence; the constants say 11.5 ms and the cost of its context.
    assert (done - first) / 1000 == pytest.approx(0.0115 + 1e-4 + 6.5e-8 * 500, rel=0.01)


def test_start_up_times_have_the_given_median_and_spread():
    slow = replace(A, start_s=100.0, start_sigma=0.35)
    drawn = slow.starts(seed=5, count=20_000)

    # The median of 20,000 is within 3 standard errors, 1.25*sigma/sqrt(20,000) each, of the logarithm.
    assert np.log(np.median(drawn) / 100.0) == pytest.approx(0.0, abs=3 * 1.25 * 0.35 / 20_000**0.5)
    assert np.std(np.log(drawn)) == pytest.approx(0.35, rel=0.02)
    np.testing.assert_array_equal(drawn, slow.starts(seed=5, count=20_000))
    assert (drawn != slow.starts(seed=6, count=20_000)).all()


def test_start_up_times_without_a_spread_are_constant():
    assert set(B.starts(seed=1)) == {150.0}


def test_job_of_c_takes_its_seconds_and_must_start_within_two_minutes(load):
    jobs = load([(0.0, 1, 1), *[(1000.0, 1, 60)] * 4])
    course = run(jobs, C, Static(1))

    # One after the other: begun at 1000, 1060, 1120 and 1180 s; a first second is over a second later.
    assert course.times[1:, 1].tolist() == pytest.approx([1001.0, 1061.0, 1121.0, 1181.0])
    assert course.times[1:, 2].tolist() == pytest.approx([1060.0, 1120.0, 1180.0, 1240.0])
    assert score(course).slo_met_ratio == 0.75


def test_profiles_are_keyed_by_their_names():
    assert [(name, profile.name) for name, profile in PROFILES.items()] == [("A", "A"), ("B", "B"), ("C", "C")]
