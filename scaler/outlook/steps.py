"""The outlook as a step of `explain`, and of every workload for /metrics.

Worked example: `View(lambda: board, lambda: census, cluster, clock.now).step(WorkloadKey("ai", "chat"))` is `{"step":
"controller", "title": "What KEDA and the HPA do with it", "sentences": ["up: in at most 15 s ..."], "table": ...}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from exporter.cluster.objects import Ref
from exporter.cluster.state import Cluster
from exporter.model import WorkloadKey

from ..board import Board, Decision
from ..census import Census
from ..config import Workload
from .answer import outlook
from .codes import Code
from .facts import Facts, Shown, shown, survey
from .record import Outlook

_NONE = Ref("", "", "")  # what nothing scales
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


@dataclass(slots=True)
class View:
    """Of a daemon's Board, census and cluster, as they are when something is asked. now: POSIX seconds."""

    board: Callable[[], Board]
    census: Callable[[], Census]
    cluster: Cluster | None
    now: Callable[[], float]
    _still: Mapping[WorkloadKey, Seen] = field(default_factory=dict)

    def all(self) -> Callable[[], list[Seen]]:
        """Every workload on the Board, as of now; it is worked out when that is called, which may be in a thread: ten
        thousand workloads take a second. Of those about whom nothing has changed, and whom time does not change, ages
        in the sentences may be those of an earlier call: most of a fleet, most of the time.
        """
        now, board, census, cluster = self.now(), self.board(), self.census(), shown(self.cluster, self.now())

        def seen() -> list[Seen]:
            around = _around(board, census, census.workloads, cluster)
            found = [self._seen(*each, now) for each in around]
            self._still = {each.decision.workload: each for each in found if _is_still(each.outlook)}
            return found

        return seen

    def _seen(self, decision: Decision, facts: Facts, others: Sequence[Decision], now: float) -> Seen:
        before = self._still.get(decision.workload)
        if before is not None and before.decision is decision and before.facts == facts and not others:
            return before
        return Seen(decision, facts, outlook(decision, facts, now, others))

    def step(self, workload: WorkloadKey) -> dict[str, Any] | None:
        """The last step of a workload's explanation. None: there is no such workload, or nothing is decided of it."""
        now, census = self.now(), self.census()
        target = census.targets.get(workload)
        mates = [
            each for each in census.workloads if each.key == workload or census.targets.get(each.key, _NONE) == target
        ]
        for decision, facts, others in _around(self.board(), census, mates, shown(self.cluster, now)):
            if decision.workload == workload:
                return controller_step(outlook(decision, facts, now, others))
        return None


def _is_still(found: Outlook) -> bool:
    """It waits for nothing that time alone brings."""
    return not found.acts and found.code is not Code.STABILISED


def _around(
    board: Board, census: Census, workloads: Iterable[Workload], cluster: Shown | None
) -> Iterator[tuple[Decision, Facts, Sequence[Decision]]]:
    """The decision of each of these, who acts on it, and what else is decided for what it scales."""
    facts = survey(workloads, census, cluster)
    decided = {key: decision for key, decision in board.decisions.items() if key in facts}
    mates: dict[Ref, list[Decision]] = {}
    for key, decision in decided.items():
        target = facts[key].target
        if target is not None:
            mates.setdefault(target, []).append(decision)
    for key, decision in decided.items():
        target = facts[key].target
        others = [] if target is None else [each for each in mates[target] if each is not decision]
        yield decision, facts[key], others
