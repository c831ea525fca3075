"""Tests the score of a run, computed by hand."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest

from scaler.replay.run import Order, Replayed, flaps, score
from scaler.replay.servers import ReplaySlo


@pytest.fixture
def course(load, profile):
    """`course([(arrival, first token, last token), …])` of requests of 100 + 11 tokens, on four GPUs a replica."""

    def make(times, orders=(), pod_s=7200.0, cold=0, slo=None):
        table = np.array(times, dtype=float).reshape(-1, 3)
        requests = load([(at, 100, 11) for at in table[:, 0]])
        progress = slo or ReplaySlo(1.0, 0.01, 0.5, 0.05)  # so the first token within 2 s, the rest within 1.05 s
        return Replayed(
            requests, profile(gpus=4, slo=progress), "p", table, pod_s, 0, tuple(orders), np.zeros((1, 6)), cold
        )

    return make


def test_first_five_minutes_cost_and_are_not_scored(course):
    late_at_first = [(0.0, 50.0, 51.0), (299.0, 350.0, 351.0), (300.0, 301.0, 302.0), (3600.0, 3601.0, 3602.0)]
    outcome = score(course(late_at_first))

    assert outcome.slo_met_ratio == 1.0
    assert score(course([*late_at_first[:2], (300.0, 350.0, 351.0), late_at_first[3]])).slo_met_ratio == 0.5
    assert outcome.ttft_mean_s == 1.0
    assert outcome.gpu_hours == 7200 * 4 / 3600


def test_first_half_of_a_load_shorter_than_ten_minutes_is_not_scored(course):
    assert score(course([(0.0, 50.0, 51.0), (49.0, 99.0, 99.0), (100.0, 101.0, 102.0)])).slo_met_ratio == 1.0


def test_slo_covers_the_first_token_and_the_rest_including_the_bound(course):
    at = 1000.0
    times = [
        (at, at + 2.0, at + 3.0),  # met: 1 + 100*0.01 = 2 s
        (at, at + 2.1, at + 2.2),  # its first token is late
        (at, at + 1.0, at + 2.1),  # the rest took 1.1 s; 0.5 + 11*0.05 = 1.05 s are allowed
        (at, np.nan, np.nan),  # no token
    ]
    assert score(course(times)).slo_met_ratio == 0.25


def test_time_to_first_token_covers_only_requests_with_a_token(course):
    times = [(1000.0, 1000.0 + wait, 1100.0) for wait in range(1, 101)] + [(1000.0, np.nan, np.nan)]
    outcome = score(course(times))

    assert outcome.ttft_mean_s == 50.5
    assert outcome.ttft_p99_s == pytest.approx(99.01)  # between the 99th and the 100th, as NumPy's quantile has it
    assert isnan(score(course([(1000.0, np.nan, np.nan)])).ttft_mean_s)


def test_change_that_reverts_the_previous_one_within_five_minutes_is_a_flap():
    assert flaps([Order(1000.0, 1, 3), Order(1100.0, 3, 2), Order(2000.0, 2, 3)]) == 1
    assert flaps([Order(0.0, 1, 2), Order(300.0, 2, 1), Order(600.1, 1, 2)]) == 1
    assert flaps([Order(0.0, 1, 2), Order(10.0, 2, 5), Order(20.0, 5, 9)]) == 0
    assert flaps([]) == 0


def test_flaps_are_counted_per_day_and_changes_and_cold_starts_in_total(course):
    orders = [Order(1000.0, 1, 3), Order(1100.0, 3, 2), Order(2000.0, 2, 3)]
    outcome = score(course([(0.0, 1.0, 1.0), (43_200.0, 43_201.0, 43_202.0)], orders, cold=5))

    assert (outcome.changes, outcome.flaps_per_day, outcome.cold_starts) == (3, 2.0, 5)
