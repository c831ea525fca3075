"""external.metrics.k8s.io: the replicas of a namespace's workloads, chosen by label. Pure.

A HorizontalPodAutoscaler adds up what it gets, so a list of which one workload is missing would be too small: one that
is selected and has no answer makes the whole answer an error. So does a selector that chooses nobody: an empty list
reads as 0 to some.

Worked example: `values(known, board, "ai", parse("workload=chat"), now)` of a workload decided at 3 replicas is
`[Value({"workload": "chat"}, Number(3, ...))]`.
"""

from __future__ import annotations

from typing import NamedTuple

from ..board import Board
from ..config.bad_words import shown
from . import metrics
from .known import Known
from .metrics import Number
from .selectors import Selector


class Value(NamedTuple):
    labels: dict[str, str]
    number: Number


def values(known: Known, board: Board, namespace: str, selector: Selector, now: float) -> list[Value]:
    """Ordered by workload. Raises Refusal."""
    found = metrics.selected(known.workloads.get(namespace, ()), selector)
    if not found:
        wanted = " that the selector chooses" if selector else ""
        words = (
            f"namespace {shown(namespace)} has no workload{wanted}. The selector is `matchLabels: {{workload: NAME}}`, "
            f"with a name of Tidegate's configuration or of an object with tidegate.dev/ annotations"
        )
        raise metrics.nobody(known, words)
    return [
        Value(metrics.labels(workload), metrics.number(metrics.replicas, board, workload, now)) for workload in found
    ]
