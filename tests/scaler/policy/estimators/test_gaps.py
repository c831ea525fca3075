"""Idle times are observed: what begins one, what ends it, and what is known of one without an observed end."""

import numpy as np
import pytest

from scaler.policy.estimators.idle_time import BLIND_S, Gaps

ROW = np.array([0])


class Watched:
    """One workload on a clock of its own."""

    def __init__(self):
        self.gaps, self.now = Gaps(1), 1000.0

    def __call__(self, after=0.0, *, busy=False, active_at=np.nan, complete=True):
        """The lengths of the rests that end `after` so many seconds."""
        self.now += after
        ended = self.gaps.observe(ROW, np.array([busy]), np.array([active_at]), np.array([complete]), self.now)
        assert (ended.rows == 0).all()
        return ended.lengths.tolist()

    @property
    def weight(self):
        return float(self.gaps.histograms.weight(self.now)[0])


@pytest.fixture
def watched():
    return Watched()


def test_worked_example_of_the_module(watched):
    watched(busy=True)
    assert watched(5) == []
    assert watched(300, busy=True) == [300.0]
    assert watched.gaps.histograms.quantile(0.5)[0] == pytest.approx(300.0, rel=0.05)


def test_before_the_first_rest_has_ended_the_result_is_unknown(watched):
    for _ in range(50):
        watched(60)
    assert watched.weight == 0.0
    assert np.isnan(watched.gaps.histograms.quantile(0.5)[0])


def test_request_that_came_and_went_ends_one_rest_and_begins_another(watched):
    watched()  # 1000
    assert watched(200, active_at=1150.0) == [150.0]
    assert watched.gaps.idle_since.tolist() == [1150.0]
    assert watched(100, active_at=1150.0) == []
    assert watched(0, busy=True, active_at=1150.0) == [150.0]


def test_counter_that_rose_before_the_rest_does_not_end_it(watched):
    watched(busy=True)
    assert watched(5, active_at=1002.0) == []
    assert watched.gaps.idle_since.tolist() == [1005.0]
    assert watched(5, active_at=1002.0) == []


def test_lost_scrape_ends_no_rest(watched):
    watched()
    assert watched(100, complete=False) == []
    assert watched(100) == []
    assert watched(100, busy=True) == [300.0]
    assert watched.weight == 1.0


def test_incomplete_readings_end_no_rest(watched):
    watched()
    assert watched(100, busy=True, complete=False) == []
    assert watched.gaps.idle_since.tolist() == [1000.0]


def test_missing_readings_are_bridged_up_to_the_bound(watched):
    watched()
    watched(100)
    watched(BLIND_S)
    assert watched.gaps.idle_since.tolist() == [1000.0]
    assert watched(BLIND_S + 1, busy=True) == []
    assert watched.weight == 1.0
    assert np.isnan(watched.gaps.idle_since).all()
    # It was idle for 400 s for sure; then readings are missing.
    assert watched.gaps.histograms.quantile(0.5)[0] == pytest.approx(400.0, rel=0.05)


def test_gap_in_the_readings_is_measured_from_the_last_complete_reading(watched):
    watched()
    for _ in range(10):
        assert watched(60, complete=False) == []
    assert watched(10, busy=True) == []
    # 610 s without readings: an idle time of 0 s is all that is known.
    assert watched.gaps.histograms.quantile(1.0).tolist() == [1.0]


def test_other_workloads_are_not_changed():
    gaps = Gaps(3)
    one, no = np.array([1]), np.array([np.nan])
    gaps.observe(one, np.array([False]), no, np.array([True]), 0.0)
    ended = gaps.observe(one, np.array([True]), no, np.array([True]), 60.0)
    assert (ended.rows.tolist(), ended.lengths.tolist()) == ([1], [60.0])
    assert gaps.histograms.weight(60.0).tolist() == [0.0, 1.0, 0.0]


def test_rest_continues_after_a_restart(watched):
    watched()
    again = Watched()
    again.gaps.take(watched.gaps.columns(), ROW, ROW)
    again.now = watched.now
    assert again(200, busy=True) == [200.0]


def test_state_of_an_older_version_leaves_missing_columns_unchanged(watched):
    watched()
    watched.gaps.take({"gaps.seen_at": np.array([7.0])}, ROW, ROW)
    assert watched.gaps.idle_since.tolist() == [1000.0]
    assert watched.gaps.seen_at.tolist() == [7.0]
