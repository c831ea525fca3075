"""Tests the state kept for workloads that have not returned yet."""

import numpy as np

from exporter.model import WorkloadKey
from scaler.columns import State
from scaler.engine import checkpoint as kepts
from scaler.engine.checkpoint import UnclaimedState

A, B, C = (WorkloadKey("ai", name) for name in "abc")
DAY_S = 86400.0


def state(at, *workloads):
    return State(at, workloads, {"x": np.arange(float(len(workloads)))})


def names(states):
    return [(each.at, [key.name for key in each.workloads]) for each in states]


def test_returning_workload_claims_its_newest_state_once():
    kept = UnclaimedState([state(30.0, A), state(20.0, B, A)])
    assert names(kept.rest(30.0)) == [(30.0, ["a"]), (20.0, ["b", "a"])]
    assert names(kept.claim([A, C])) == [(30.0, ["a"])]
    assert names(kept.rest(30.0)) == [(20.0, ["b"])]
    assert names(kept.claim([A, B])) == [(20.0, ["b"])]
    assert kept.rest(30.0) == []


def test_unclaimed_state_is_dropped_after_a_week():
    kept = UnclaimedState([state(0.0, A)])
    assert names(kept.rest(7 * DAY_S)) == [(0.0, ["a"])]
    assert kept.rest(7 * DAY_S + 1.0) == []


def test_thousand_restarts_keep_a_bounded_number_of_states():
    kept = UnclaimedState([state(float(-n), WorkloadKey("ai", str(n))) for n in range(1000)])
    assert [each.at for each in kept.rest(0.0)] == [float(-n) for n in range(256)]


def test_peer_with_ever_new_workloads_does_not_fill_the_memory(monkeypatch):
    kept = UnclaimedState()
    for number in range(1000):
        kept.keep(state(float(number), WorkloadKey("ai", str(number))))
    assert len(kept._states) == 256
    monkeypatch.setattr(kepts, "LARGEST_BYTES", 10 * 8)
    kept.keep(state(1000.0, WorkloadKey("ai", "new")))
    assert [each.at for each in kept.rest(1000.0)] == [float(number) for number in range(1000, 990, -1)]
