"""Charts have a limited number of points in order, and the Board's at the end."""

import numpy as np
import pytest

from exporter.model import WorkloadKey
from scaler.engine.decision_log import CHARTED_WIDTH, Charts
from scaler.explain import history
from scaler.explain.history import HistorySpan
from scaler.model import Board, Decision, Evidence, Objective, Reason
from scaler.policy.columns import REASONS

CHAT, CODE = WorkloadKey("ai", "chat"), WorkloadKey("ai", "code")
SERVING = REASONS.index(Reason.SERVING)


def row(at, waiting=0.0, running=0.0, held=np.nan, work=0.0, kv=np.nan, replicas=1.0, wanted=1.0, gpu=np.nan):
    demand, latest = [work, kv, np.nan, np.nan], [np.nan, np.nan, gpu, np.nan]
    return [at, waiting, running, held, *demand, replicas, wanted, *latest, SERVING]


def charted(*rows):
    return np.array(rows, dtype=float).reshape(-1, CHARTED_WIDTH)


def decision(replicas=3, at=100.0, key=CHAT, **evidence):
    return Decision(key, replicas, True, Reason.SERVING, at, evidence=Evidence(**evidence))


def one(decided, *rows, board_at=100.0, now=100.0, since=3600.0, points=60):
    return history.one(decided, charted(*rows), board_at, now, HistorySpan(since, points))


def test_last_point_is_that_of_the_board():
    shown = one(
        decision(waiting=30.0, running=10.0, replicas_wanted=2, gpu_engine_active=0.5,
                 objectives=(Objective("work", 40.0, 16.0, 2.5), Objective("gpu_engine", None, 0.8, None))),
        row(90.0, waiting=3.0, running=5.0, work=0.5, kv=0.7, gpu=0.25),
    )  # fmt: skip
    assert shown == {
        "namespace": "ai", "name": "chat", "trigger": "", "at": [90.0, 100.0],
        "load": [8.0, 40.0], "demand": [0.7, 2.5], "replicas": [1, 3], "actual": [1, 2], "gpu": [0.25, 0.5],
        "reason": ["serving", "serving"],
    }  # fmt: skip


def test_unknown_value_is_null_and_never_zero():
    unknown = Decision(CHAT, None, True, Reason.UNKNOWN, 100.0)
    shown = one(unknown, row(90.0, waiting=np.nan, running=np.nan, work=np.nan, replicas=np.nan, wanted=np.nan))
    for name in ("load", "demand", "replicas", "actual", "gpu"):
        assert shown[name] == [None, None]


def test_sum_is_of_the_sources_that_are_known():
    shown = one(decision(running=4.0), row(90.0, waiting=np.nan, running=2.0))
    assert shown["load"] == [2.0, 4.0]


def test_times_ascend_after_the_clock_was_set_back():
    shown = one(decision(), row(70.0), row(95.0), row(80.0), row(85.0))
    assert shown["at"] == [70.0, 80.0, 85.0, 100.0]


def test_decision_raised_since_the_last_sweep_is_the_last_point():
    shown = one(decision(replicas=5, at=100.4), row(90.0), row(100.4, replicas=5.0), board_at=100.0, now=100.5)
    assert (shown["at"], shown["replicas"]) == ([90.0, 100.4], [1, 5])


def test_last_entry_of_each_period_is_drawn():
    rows = [row(60.0 + number) for number in range(40)]
    shown = history.one(decision(), charted(*rows), 100.0, 100.0, HistorySpan(40.0, 5))
    # Four points for 40 seconds and one of the Board: seconds 60 to 69, 70 to 79 and so on, the last of each.
    assert shown["at"] == [69.0, 79.0, 89.0, 99.0, 100.0]


@pytest.mark.parametrize("points", [1, 2, 3, 7, 60])
def test_points_never_exceed_the_requested_number(points):
    rows = [row(number / 3.0) for number in range(300)]
    shown = history.one(decision(), charted(*rows), 100.0, 100.0, HistorySpan(99.9, points))
    assert len(shown["at"]) == points
    assert shown["at"] == sorted(set(shown["at"]))
    assert {len(shown[name]) for name in ("load", "demand", "replicas", "actual", "gpu", "reason")} == {points}


def test_points_before_the_span_are_left_out():
    assert one(decision(), row(30.0), row(80.0), since=50.0)["at"] == [80.0, 100.0]


def test_every_workload_of_the_board_has_a_chart():
    board = Board(1, 100.0, {CODE: decision(key=CODE), CHAT: decision()})
    document = history.document(
        board, [CHAT], Charts(charted(row(90.0))[None], np.array([1])), 100.0, HistorySpan(3600.0, 60)
    )
    assert document["now"] == 100.0
    assert [(each["name"], each["at"]) for each in document["workloads"]] == [
        ("chat", [90.0, 100.0]),
        ("code", [100.0]),
    ]
