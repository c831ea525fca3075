"""What all rows come to: workloads by state, and GPUs as far as they are known.

Worked example: two workloads that serve with 4 GPUs each, one that is warm and whose GPUs nobody counted, and one that
is asleep: `workloads` serving 2, idle_warm 1, asleep 1; `gpus` serving 8; `uncounted` 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from .row import Row
from .words import Severity, State


@dataclass(frozen=True, slots=True)
class Fleet:
    """workloads: by state. gpus: held, by the state of who holds them. troubles, notices: workloads somebody should
    look at, or may want to. uncounted: workloads with replicas whose GPUs are not known: what they hold is in no sum.
    """

    workloads: dict[State, int]
    gpus: dict[State, int]
    uncounted: int
    troubles: int
    notices: int

    def to_document(self) -> dict[str, Any]:
        return asdict(self)


def fleet(rows: Iterable[Row]) -> Fleet:
    workloads, gpus, severities, uncounted = Counter[State](), Counter[State](), Counter[Severity](), 0
    for row in rows:
        workloads[row.state] += 1
        severities[row.severity] += 1
        if row.gpus is not None:
            gpus[row.state] += row.gpus
        elif row.state is not State.ASLEEP:
            uncounted += 1
    return Fleet(
        {state: workloads[state] for state in State},
        {state: gpus[state] for state in State if state is not State.ASLEEP},
        uncounted,
        severities[Severity.TROUBLE],
        severities[Severity.NOTICE],
    )
