"""Selects the points of a workload's charts: load, demand, decided replicas, replicas of the cluster. Pure.

Worked example: 60 points of the last hour are one per minute, the last entry of each. The last point is of the current
Board, so a chart ends with the number beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from exporter.model import Floats, WorkloadKey
from scaler.engine.decision_log import CHARTED_WIDTH, Charts, column_index
from scaler.model import Board, Decision
from scaler.policy.columns import REASONS, Signal
from scaler.signals.slots import optional_floats, optional_ints, sum_present

AT, REPLICAS = column_index("when", "at"), column_index("verdicts", "replicas")
WANTED, REASON = column_index("readings", "wanted"), column_index("verdicts", "reason")
LOAD = slice(column_index("readings", "waiting"), column_index("readings", "held") + 1)
DEMAND = slice(column_index("verdicts", "demand"), column_index("verdicts", "demand") + len(Signal))
GPU = column_index("aside", "latest") + Signal.GPU_ENGINE
_REASONS = tuple(map(str, REASONS))


class HistorySpan(NamedTuple):
    """since: seconds back from now. points: the most of each workload."""

    since: float
    points: int


def chosen(charted: Floats, until: float, now: float, span: HistorySpan) -> Floats:
    """The entries of one workload to draw, oldest first, at most `span.points` - 1. Times ascend.

    charted: shape (entries, CHARTED_WIDTH), of `Charts.of`. until: POSIX seconds; only earlier entries.
    """
    times = charted[:, AT]
    # After the clock was set back the newer entries count: an entry that is later than its successor is left out.
    ahead = np.minimum.accumulate(np.append(times, until)[::-1])[::-1][1:]
    kept = charted[(times >= now - span.since) & (times < ahead)]
    most = span.points - 1
    if len(kept) <= most:
        return kept
    bins = np.floor((kept[:, AT] - (now - span.since)) * (most / span.since))
    drawn: Floats = kept[np.append(bins[1:] != bins[:-1], True)]
    return drawn[max(len(drawn) - most, 0) :]


def document(
    board: Board, listed: Sequence[WorkloadKey], charts: Charts, now: float, span: HistorySpan
) -> dict[str, Any]:
    """`/api/v1/history`. listed: the workloads of the charts, in order."""
    positions = {workload: position for position, workload in enumerate(listed)}
    nothing = np.empty((0, CHARTED_WIDTH))
    workloads = [
        one(decision, charts.of(positions[key]) if key in positions else nothing, board.at, now, span)
        for key, decision in sorted(board.decisions.items())
    ]
    return {"now": now, "workloads": workloads}


def one(decision: Decision, charted: Floats, board_at: float, now: float, span: HistorySpan) -> dict[str, Any]:
    """One workload's chart. The last point is of the Board."""
    at = max(board_at, decision.decided_at)  # a scrape may have raised it since the last sweep
    rows = chosen(charted, at, now, span)
    evidence = decision.evidence
    columns: Mapping[str, list[Any]] = {
        "at": [*_numbers(rows[:, AT]), round(at, 3)],
        "load": [*_numbers(sum_present(rows[:, LOAD])), _rounded(evidence.load)],
        "demand": [*_numbers(np.fmax.reduce(rows[:, DEMAND], axis=1)), _rounded(evidence.demand)],
        "replicas": [*optional_ints(rows[:, REPLICAS]), decision.replicas],
        "actual": [*optional_ints(rows[:, WANTED]), evidence.replicas_wanted],
        "gpu": [*_numbers(rows[:, GPU]), _rounded(evidence.gpu_engine_active)],
        "reason": [*(_REASONS[code] for code in rows[:, REASON].astype(np.int64).tolist()), str(decision.reason)],
    }
    return {**decision.workload._asdict(), **columns}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _numbers(column: Floats) -> list[float | None]:
    return optional_floats(np.round(column, 3))
