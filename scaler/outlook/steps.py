"""The outlook as a step of `explain`, and of every workload for /metrics.

Worked example: `View(lambda: board, lambda: census, cluster, clock.now).step(WorkloadKey("ai", "chat"))` is `{"step":
"controller", "title": "What KEDA and the HPA do with it", "sentences": ["up: in at most 15 s ..."], "table": ...}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from exporter.cluster.state import Cluster
from exporter.model import WorkloadKey

from ..board import Board, Decision
from ..census import Census
from .answer import outlook
from .facts import Facts, survey
from .record import Outlook

TITLE = "What KEDA and the HPA do with it"


class Seen(NamedTuple):
    """One workload, who acts on its number, and what they will do."""

    decision: Decision
    facts: Facts
    outlook: Outlook


def controller_step(found: Outlook) -> dict[str, Any]:
    """A step of explain's chain."""
    rows = [[round(act.within_s), act.replicas, act.why] for act in found.acts]
    table = {"columns": ["within s", "replicas", "why"], "rows": rows} if rows else None
    sentences = [f"{found.code}: {found.sentences[0]}", *found.sentences[1:]]
    return {"step": "controller", "title": TITLE, "sentences": sentences, "table": table}


@dataclass(frozen=True, slots=True)
class View:
    """Of a daemon's Board, census and cluster, as they are when something is asked. now: POSIX seconds."""

    board: Callable[[], Board]
    census: Callable[[], Census]
    cluster: Cluster | None
    now: Callable[[], float]

    def all(self) -> Iterator[Seen]:
        """Every workload on the Board."""
        return outlooks(self.board(), self.census(), self.cluster, self.now())

    def step(self, workload: WorkloadKey) -> dict[str, Any] | None:
        """The last step of a workload's explanation. None: there is no such workload, or nothing is decided of it."""
        board, census = self.board(), self.census()
        found = outlooks(board, census, self.cluster, self.now(), only=workload)
        return next((controller_step(seen.outlook) for seen in found), None)


def outlooks(
    board: Board, census: Census, cluster: Cluster | None, now: float, only: WorkloadKey | None = None
) -> Iterator[Seen]:
    """Of every workload on the Board, or of one."""
    facts = survey(census, cluster, now)
    mates: dict[object, list[Decision]] = {}
    for key, decision in board.decisions.items():
        if key in facts and facts[key].target is not None:
            mates.setdefault(facts[key].target, []).append(decision)
    for key, decision in board.decisions.items():
        if key in facts and only in (None, key):
            others = [each for each in mates.get(facts[key].target, ()) if each is not decision]
            yield Seen(decision, facts[key], outlook(decision, facts[key], now, others))
