"""The time of a request sizes a workload while its engines expose no counters of tokens."""

import numpy as np
import pytest

from scaler.policy import batch, capacity, service_time
from scaler.policy.capacity import Estimate
from scaler.policy.columns import Signal
from scaler.policy.service_time import FEWEST_TIMED, RequestTime
from scaler.policy.size_signals import SizeEstimates, SizeRules, add_sizes, find_timed

NO, YES = np.zeros(1, dtype=np.bool_), np.ones(1, dtype=np.bool_)
SLO = SizeRules(np.ones((1, len(Signal))), np.array([0.05]), np.array([60.0]), np.zeros(1), NO, by_time=YES)


@pytest.mark.parametrize(
    ("uncounted", "pods_fresh", "requests", "is_timed"),
    [
        (1.0, 2.0, 0.0, True),  # an engine without counters
        (0.0, 2.0, FEWEST_TIMED, False),  # all have them
        (0.0, 0.0, FEWEST_TIMED, True),  # no engine is there, and the time of a request is known
        (0.0, 0.0, FEWEST_TIMED - 1.0, False),
    ],
)
def test_time_sizes_engines_without_counters_and_where_no_engine_is_what_is_known(
    uncounted, pods_fresh, requests, is_timed
):
    estimates = SizeEstimates(capacity.blank(1), service_time.blank(1), batch.blank(1))
    estimates.by_time[0, RequestTime.REQUESTS] = requests
    timed = find_timed(SLO, estimates, np.arange(1), np.array([uncounted]), np.array([pods_fresh]))
    assert timed.tolist() == [is_timed]


@pytest.mark.parametrize(("uncounted", "size"), [(0.0, 2.5), (1.0, np.nan)])
def test_size_by_few_requests_counts_only_while_every_engine_has_counters(uncounted, size):
    rules = SLO._replace(by_time=NO)
    estimates = SizeEstimates(capacity.blank(1), service_time.blank(1), batch.blank(1))
    estimates.by_tokens[0, [Estimate.SIZE, Estimate.AT]] = 2.5, 1000.0
    smoothed, latest = np.zeros((1, Signal.SLO)), np.zeros((1, len(Signal)))
    signals = add_sizes(
        rules, estimates, np.arange(1), np.array([uncounted]), np.ones(1), smoothed, 15.0, 1000.0, latest
    )
    np.testing.assert_array_equal(signals[0, Signal.SLO], size)
