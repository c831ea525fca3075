"""The whole explanation of one decision: `/api/v1/explain`. Pure.

It puts the steps in order and finds the moment; what each step says is in its own module.

Worked example: asked for 10:00 of a log that begins at 10:20, the story is of 10:20, and its summary begins with
"Nothing is kept of 10:00 …".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np

from exporter.model import WorkloadKey

from ..board import Decision
from ..page_reads import PageRead
from ..policy import REASONS
from ..signals import Rings
from .case import Case
from .entry import place
from .inputs import inputs
from .log import Past
from .ordered import orders, told
from .seen import cleaned, raw, smoothed
from .sized import clamp, objectives, winner
from .steps import clock
from .summary import summary

MOST_CHANGES = 50
_REPLICAS, _ACTIVE, _REASON = (place("verdicts", name) for name in ("replicas", "active", "reason"))


@dataclass(frozen=True, slots=True)
class Testimony:
    """All that is known where a decision is to be explained.

    now:       POSIX seconds.
    asked:     the moment to be explained, POSIX seconds; None is now.
    decision:  the Board's; None while there is none.
    follows:   HOST:PORT of the replica of Tidegate whose Board is repeated; None: our own is the Board.
    pages, rings: as they are now.
    controller: what KEDA and the HPA do with the Board's number, by those who know: the document of now's last step.
    """

    workload: WorkloadKey
    now: float
    asked: float | None
    past: Past
    decision: Decision | None
    follows: str | None = None
    pages: Sequence[PageRead] = ()
    rings: Rings | None = None
    controller: dict[str, Any] | None = None


def document(said: Testimony) -> dict[str, Any]:
    """`/api/v1/explain/NAMESPACE/NAME`. Nothing decided yet: `at` and `inputs` are None, and the chain is empty."""
    entry = said.past.at(said.now if said.asked is None else said.asked)
    present = said.asked is None
    case = None if entry is None else Case.of(entry)
    begins = float(said.past.times[0]) if len(said.past) else None
    return {
        "workload": said.workload._asdict(),
        "now": said.now,
        "at": None if entry is None else entry.at,
        "log_begins_at": begins,
        "summary": _nothing(said) if case is None else _early(said, begins) + summary(case),
        "answer": None if said.decision is None else said.decision.to_document(),
        "follows": said.follows,
        "chain": [] if case is None else chain(case, said, present=present),
        "inputs": None if entry is None else inputs(entry),
        "changes": changes(said.past),
    }


def chain(case: Case, said: Testimony, *, present: bool) -> list[dict[str, Any]]:
    """The documents of its steps. present: the decision of now, of which more is known than what the log keeps."""
    decision = said.decision if present else None
    steps = [
        raw(case, said.pages if present else None),
        cleaned(case),
        smoothed(case, said.rings),
        objectives(case),
        winner(case),
        clamp(case),
        orders(case, decision),
        told(case, decision, said.follows if present else None),
    ]
    last = [said.controller] if present and said.controller is not None else []
    return [*(step.to_document() for step in steps), *last]


def _early(said: Testimony, begins: float | None) -> str:
    if said.asked is None or begins is None or said.asked >= begins:
        return ""
    return f"Nothing is kept of {clock(said.asked)}: the log begins at {clock(begins)}, with this. "


def _nothing(said: Testimony) -> str:
    if said.follows is not None:
        return f"This replica has decided nothing itself yet; it repeats the leader at {said.follows}"
    return "Nothing has been decided yet"


def changes(past: Past) -> list[dict[str, Any]]:
    """When the answer changed, as far back as is kept; the beginning is one."""
    if not len(past):
        return []
    told = past.values[:, [_REPLICAS, _ACTIVE, _REASON]]
    same = (told[1:] == told[:-1]) | (np.isnan(told[1:]) & np.isnan(told[:-1]))
    places = np.flatnonzero(np.append(past.first == 0, ~same.all(axis=1)))[-MOST_CHANGES:]
    return [_change(past.values[place]) for place in places]


def _change(row: Any) -> dict[str, Any]:
    replicas = row[_REPLICAS]
    return {
        "at": float(row[place("when", "at")]),
        "replicas": None if isnan(replicas) else int(replicas),
        "active": bool(row[_ACTIVE]),
        "reason": str(REASONS[int(row[_REASON])]),
    }
