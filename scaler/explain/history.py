"""What charts show of a workload: its load, what that asks for, what was answered, and what the cluster was told. Pure.

Worked example: 60 points of the last hour are one for each minute: the last that was noted in it. The last point is of
the Board as it stands, so a chart ends with the number that is beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from exporter.model import Floats, WorkloadKey
from scaler.engine.decision_log import CHARTED_WIDTH, Charts, place
from scaler.model import Board, Decision
from scaler.policy.columns import REASONS, Signal
from scaler.signals.slots import known, sum_of_known, whole

AT, REPLICAS = place("when", "at"), place("verdicts", "replicas")
WANTED, REASON = place("readings", "wanted"), place("verdicts", "reason")
LOAD = slice(place("readings", "waiting"), place("readings", "held") + 1)
DEMAND = slice(place("verdicts", "demand"), place("verdicts", "demand") + len(Signal))
GPU = place("aside", "latest") + Signal.GPU_ENGINE
_WORDS = tuple(map(str, REASONS))


class HistorySpan(NamedTuple):
    """since: seconds back from now. points: at most so many of each workload."""

    since: float
    points: int


def chosen(charted: Floats, until: float, now: float, span: HistorySpan) -> Floats:
    """Of one workload's noted moments those that are drawn, oldest first, one fewer than `span.points`. Times ascend.

    charted: shape (entries, CHARTED_WIDTH), as `Charts.of` has it. until: POSIX seconds; earlier ones only.
    """
    times = charted[:, AT]
    # Where the clock was set back, what was written after that counts: what is later than a later entry is left out.
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
    """`/api/v1/history`. listed: of whom there are charts, in their order."""
    places = {workload: place for place, workload in enumerate(listed)}
    nothing = np.empty((0, CHARTED_WIDTH))
    workloads = [
        one(decision, charts.of(places[key]) if key in places else nothing, board.at, now, span)
        for key, decision in sorted(board.decisions.items())
    ]
    return {"now": now, "workloads": workloads}


def one(decision: Decision, charted: Floats, board_at: float, now: float, span: HistorySpan) -> dict[str, Any]:
    """One workload's chart. The last point is of the Board."""
    at = max(board_at, decision.decided_at)  # a page may have raised it since the last sweep
    rows = chosen(charted, at, now, span)
    evidence = decision.evidence
    columns: Mapping[str, list[Any]] = {
        "at": [*_numbers(rows[:, AT]), round(at, 3)],
        "load": [*_numbers(sum_of_known(rows[:, LOAD])), _rounded(evidence.load)],
        "demand": [*_numbers(_largest(rows[:, DEMAND])), _rounded(evidence.demand)],
        "replicas": [*whole(rows[:, REPLICAS]), decision.replicas],
        "actual": [*whole(rows[:, WANTED]), evidence.replicas_wanted],
        "gpu": [*_numbers(rows[:, GPU]), _rounded(evidence.gpu_engine_active)],
        "reason": [*(_WORDS[code] for code in rows[:, REASON].astype(np.int64).tolist()), str(decision.reason)],
    }
    return {**decision.workload._asdict(), **columns}


def _largest(parts: Floats) -> Floats:
    largest: Floats = np.fmax.reduce(parts, axis=1)
    return largest


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _numbers(column: Floats) -> list[float | None]:
    return known(np.round(column, 3))
