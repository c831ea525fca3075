"""Builds the rows of the live page and of `tidegate top` from decisions, and the sums of the fleet. Pure.

Worked example: a workload whose targets do not answer has the state `unknown`, and None in every number that is not
known. Of two workloads that serve with 4 GPUs each, one that is warm with an unknown number of GPUs, and one that is
asleep, the sums are: `workloads` serving 2, idle_warm 1, asleep 1; `gpus` serving 8; `uncounted` 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.model import Decision, Reason

from .formats import age, shift
from .summary import OBSTACLES, REASONS, STATES, Severity, WorkloadState, clause, state


class Placement(NamedTuple):
    """The scale target of a workload, and the names of the nodes that run its pods. None: unknown."""

    target: Ref | None = None
    nodes: tuple[str, ...] | None = None


NOWHERE = Placement()


class NextOutcome(NamedTuple):
    """The controller outcome: an `OutcomeCode` and its sentence. no_node: why a pod has no node; "" if none waits."""

    code: str
    says: str
    no_node: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One workload. Replicas and requests are counts, ratios 0..1, times POSIX seconds; None is unknown.

    cluster: spec.replicas. ready, pending: of those. published: the number for the controllers.
    load:    requests waiting, running or held by the gateway, as far as known. demand: replicas, unrounded.
    gpus:    that it holds. gpu: their activity; gpu_activity: the source of that.
    stale:   targets with stale readings. incomplete: series that make a reading a lower bound.
    why:     the explanation of the state: the reason, if it has another word, and its numbers.
    kind, object: of the object that is scaled. nodes: of its pods, by name.
    hindered, hindered_by: the obstacle of KEDA or the HPA, of HINDRANCES, and its sentence.
    """

    namespace: str
    name: str
    trigger: str
    state: WorkloadState
    reason: Reason
    severity: Severity
    why: str
    cluster: int | None
    ready: int | None
    pending: int | None
    published: int | None
    load: float | None
    waiting: float | None
    running: float | None
    held: float | None
    demand: float | None
    gpus: int | None
    gpu: float | None
    gpu_activity: str | None
    decided_at: float
    measured_at: float | None
    held_since: float | None
    idle_since: float | None
    observed: bool
    stale: int
    incomplete: int
    notes: tuple[str, ...]
    hindered: str | None
    hindered_by: str | None
    kind: str | None
    object: str | None
    nodes: tuple[str, ...] | None

    @property
    def shift(self) -> str:
        return shift(self.cluster, self.published)

    @property
    def label(self) -> str:
        """As `WorkloadKey.label`."""
        return WorkloadKey(self.namespace, self.name, self.trigger).label

    def age(self, now: float) -> str:
        return age(self.measured_at, self.held_since, now)

    def to_document(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _NAMES}  # `asdict` copies, and takes eight times as long


_SEVERITIES = {severity: rank for rank, severity in enumerate(Severity)}  # the worst first
_NAMES = tuple(each.name for each in fields(Row))


def row(decision: Decision, now: float, ahead: NextOutcome | None = None, placement: Placement = NOWHERE) -> Row:
    """now: POSIX seconds, for durations in its clause. ahead: None if unknown."""
    evidence = decision.evidence
    word = None if ahead is None else OBSTACLES.get(ahead.code)
    shown = state(decision)
    severities = {REASONS[decision.reason].severity, Severity.FINE if word is None else word.severity}
    return Row(
        namespace=decision.workload.namespace,
        name=decision.workload.name,
        trigger=decision.workload.trigger,
        state=shown,
        reason=decision.reason,
        severity=next(each for each in Severity if each in severities),  # the worse of the two
        why=_why(decision, shown, ahead, now),
        cluster=evidence.replicas_wanted,
        ready=evidence.replicas_ready,
        pending=evidence.replicas_pending,
        published=decision.published,
        load=evidence.load,
        waiting=evidence.waiting,
        running=evidence.running,
        held=evidence.held_by_gateway,
        demand=evidence.demand,
        gpus=evidence.gpus_held if evidence.gpus_held is not None else evidence.gpus_attributed,
        gpu=evidence.gpu_engine_active,
        gpu_activity=evidence.gpu_activity,
        decided_at=decision.decided_at,
        measured_at=decision.measured_at,
        held_since=decision.held_since,
        idle_since=decision.idle_since,
        observed=decision.observed,
        stale=len(evidence.stale),
        incomplete=len(evidence.incomplete),
        notes=evidence.notes,
        hindered=None if ahead is None or word is None else ahead.code,
        hindered_by=None if ahead is None or word is None else ahead.says,
        kind=None if placement.target is None else placement.target.kind,
        object=None if placement.target is None else placement.target.name,
        nodes=placement.nodes,
    )


def _why(decision: Decision, shown: WorkloadState, ahead: NextOutcome | None, now: float) -> str:
    """A row has one word for the state, so the reason's word is here, if it says more."""
    no_node = "" if ahead is None or not ahead.no_node else f"; {ahead.no_node}"
    word, numbers = REASONS[decision.reason].word, clause(decision, now)
    if decision.reason is Reason.ASLEEP and shown is not WorkloadState.ASLEEP:
        word = "scales to zero"
    says_more = word != STATES[shown].word and decision.reason is not Reason.WARM
    return f"{word}: {numbers}{no_node}" if says_more else f"{numbers}{no_node}"


def by_severity(rows: Iterable[Row]) -> list[Row]:
    """By severity and rank; then the highest load first; then by name."""
    return sorted(
        rows,
        key=lambda row: (
            _SEVERITIES[row.severity],
            REASONS[row.reason].rank,
            -(row.load or 0.0),
            row.namespace,
            row.name,
            row.trigger,
        ),
    )


@dataclass(frozen=True, slots=True)
class Fleet:
    """Sums. workloads: by state. gpus: held, by the state of their workload. uncounted: workloads with replicas whose
    number of GPUs is unknown, so that no sum has them.
    """

    workloads: dict[WorkloadState, int]
    gpus: dict[WorkloadState, int]
    uncounted: int

    def to_document(self) -> dict[str, Any]:
        return asdict(self)


def fleet(rows: Iterable[Row]) -> Fleet:
    workloads, gpus, uncounted = Counter[WorkloadState](), Counter[WorkloadState](), 0
    for row in rows:
        workloads[row.state] += 1
        if row.gpus is not None:
            gpus[row.state] += row.gpus
        elif row.state is not WorkloadState.ASLEEP:
            uncounted += 1
    return Fleet(
        {state: workloads[state] for state in WorkloadState},
        {state: gpus[state] for state in WorkloadState if state is not WorkloadState.ASLEEP},
        uncounted,
    )
