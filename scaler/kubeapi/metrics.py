"""What one workload's entry on the Board says for one metric: a number with its time, or an error. Never a made-up 0.

    tidegate-replicas   what the decision tells, held or fresh: 0 only when it is inactive; its replicas, rounded
                        outward past the HPA's tolerance where that would drop a step up
    tidegate-demand     the replicas that its objectives ask for, before rounding, bounds and hysteresis

The replicas of a held decision stand as decided (law 1). Its demand does not: that is a reading, and the readings are
what is missing. A workload that is only observed is an error to whoever asks, and so is one of which nothing is known.

Worked example: decided at 3 replicas because 11 requests at 4 per replica ask for 2.75: `replicas` is `Number(3, ...)`
and `demand` is `Number(2.75, ...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import NamedTuple, TypeAlias

from exporter.model import WorkloadKey

from ..board import Board, Decision
from ..config.bad_words import shown
from .known import Known
from .refusal import Refusal
from .selectors import Selector, matches

REPLICAS = "tidegate-replicas"
DEMAND = "tidegate-demand"

# Enough to find the culprit; all pods of a large workload would not fit into a condition of an HPA.
_STALE_SHOWN = 5


class Number(NamedTuple):
    """at: POSIX seconds of the oldest reading behind it, or of the decision where it rests on none."""

    value: float
    at: float


Metric: TypeAlias = Callable[[Decision, float], Number]


def replicas(decision: Decision, now: float) -> Number:
    """Raises Refusal."""
    if decision.told is None:
        raise _unknown(decision, now, "")
    return Number(decision.told, _measured_at(decision))


def demand(decision: Decision, now: float) -> Number:
    """Raises Refusal."""
    if decision.replicas is None or decision.held_since is not None:
        raise _unknown(decision, now, "demand is ")
    # The guard of the KV cache only ever adds; an engine whose page has none is sized by the others.
    asked = [each.replicas for each in decision.evidence.objectives if each.name != "kv_cache"]
    if not asked or None in asked:
        raise _unknown(decision, now, "demand is ")
    every = (each.replicas for each in decision.evidence.objectives)
    return Number(max(value for value in every if value is not None), _measured_at(decision))


METRICS: dict[str, Metric] = {REPLICAS: replicas, DEMAND: demand}


def number(metric: Metric, board: Board, workload: WorkloadKey, now: float) -> Number:
    """now: POSIX seconds, for the age in an error. Raises Refusal."""
    decision = board.get(workload)
    if decision is None:
        words = f"{workload}: nothing is decided yet; the first readings are awaited"
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, words)
    refuse_observed(decision)
    return metric(decision, now)


def refuse_observed(decision: Decision) -> None:
    """Raises Refusal."""
    if decision.observed:
        words = f"{decision.workload}: only observed (`mode: observe`): nobody is told its number"
        raise Refusal(HTTPStatus.FORBIDDEN, words)


def labels(workload: WorkloadKey) -> dict[str, str]:
    """What a metric's selector may ask for."""
    return {"workload": workload.label}


def selected(workloads: tuple[WorkloadKey, ...], selector: Selector) -> tuple[WorkloadKey, ...]:
    return tuple(workload for workload in workloads if matches(selector, labels(workload)))


def nobody(known: Known, words: str) -> Refusal:
    """Nothing is there to be asked for, as far as is known. words: what was looked for, and where."""
    if known.whole:
        return Refusal(HTTPStatus.NOT_FOUND, words)
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{words}; but not all that the cluster says is known at present")


def _unknown(decision: Decision, now: float, what: str) -> Refusal:
    since = decision.held_since if decision.held_since is not None else decision.decided_at
    words = f"{decision.workload}: {what}unknown for {max(0.0, now - since):.0f} s ({decision.reason})"
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, words + nothing_fresh(decision.evidence.stale))


def nothing_fresh(stale: Sequence[str]) -> str:
    """How a sentence goes on that has to name stale sources, if there are any. stale: their URLs."""
    more = f" and {len(stale) - _STALE_SHOWN} more" if len(stale) > _STALE_SHOWN else ""
    return f"; nothing fresh from {', '.join(map(shown, stale[:_STALE_SHOWN]))}{more}" if stale else ""


def _measured_at(decision: Decision) -> float:
    return decision.decided_at if decision.measured_at is None else decision.measured_at
