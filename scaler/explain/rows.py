"""A Decision as one row of a table: the numbers people look at first, and one sentence why.

Worked example: a workload that is idle for 90 s of its 300 s of keep-warm time says "idle for 1 min, kept warm for
5 min"; one whose sources are silent has the state `unknown`, and None wherever nothing is known.

What all rows come to: workloads by state, and GPUs as far as they are known.

Worked example: two workloads that serve with 4 GPUs each, one that is warm and whose GPUs nobody counted, and one that
is asleep: `workloads` serving 2, idle_warm 1, asleep 1; `gpus` serving 8; `uncounted` 1.

Numbers as people read them. What is not known is said, and is never a 0.

The page has the same functions in its own language (`scaler/api/http/page/format.js`); a test compares the two in a
browser. Halves are rounded up in both, because the two languages' own rounding differs there.

Worked example: `count(2.54)` is "2.5", `ratio(0.004)` is "<1 %", `span(200)` is "3 min", `count(None)` is "unknown".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from math import floor
from typing import Any, NamedTuple

from exporter.model import WorkloadKey
from scaler.model import Decision, Evidence, Reason

from .summary import HINDRANCES, REASONS, Severity, WorkloadState, state


class Ahead(NamedTuple):
    """What KEDA and the HPA will do with the number: a code of `scaler.explain.outcome`, and the sentence that goes
    with it.
    """

    code: str
    says: str


@dataclass(frozen=True, slots=True)
class Row:
    """Replicas and requests are counts, ratios 0..1, times POSIX seconds; None is unknown.

    cluster: replicas the cluster was told to run. ready, pending: of those. told: what KEDA and HPA hear now.
    load:    requests waiting, running or held by the gateway, as far as pages say. demand: replicas, unrounded.
    gpus:    that it holds. gpu: their activity; gpu_activity: by what that is known.
    stale:   how many of its sources are silent. incomplete: how many series make a reading a lower bound.
    hindered, hindered_by: what keeps KEDA and the HPA from doing what they are told, of HINDRANCES, and the sentence.
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
    told: int | None
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

    @property
    def shift(self) -> str:
        return shift(self.cluster, self.told)

    @property
    def label(self) -> str:
        """Its name within its namespace, as `WorkloadKey.label`."""
        return WorkloadKey(self.namespace, self.name, self.trigger).label

    def age(self, now: float) -> str:
        return age(self.measured_at, self.held_since, now)

    def to_document(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _NAMES}  # `asdict` copies, and takes eight times as long


_SEVERITIES = {severity: place for place, severity in enumerate(Severity)}  # the worst first
_NAMES = tuple(each.name for each in fields(Row))


def row(decision: Decision, now: float, ahead: Ahead | None = None) -> Row:
    """now: POSIX seconds, for the ages in its sentence. ahead: None is not known."""
    seen = decision.evidence
    word = None if ahead is None else HINDRANCES.get(ahead.code)
    severities = {REASONS[decision.reason].severity, Severity.FINE if word is None else word.severity}
    return Row(
        namespace=decision.workload.namespace,
        name=decision.workload.name,
        trigger=decision.workload.trigger,
        state=state(decision),
        reason=decision.reason,
        severity=next(each for each in Severity if each in severities),  # the worse of the two
        why=why(decision, now),
        cluster=seen.replicas_wanted,
        ready=seen.replicas_ready,
        pending=seen.replicas_pending,
        told=decision.told,
        load=seen.load,
        waiting=seen.waiting,
        running=seen.running,
        held=seen.held_by_gateway,
        demand=seen.demand,
        gpus=seen.gpus_held if seen.gpus_held is not None else seen.gpus_seen,
        gpu=seen.gpu_engine_active,
        gpu_activity=seen.gpu_activity,
        decided_at=decision.decided_at,
        measured_at=decision.measured_at,
        held_since=decision.held_since,
        idle_since=decision.idle_since,
        observed=decision.observed,
        stale=len(seen.stale),
        incomplete=len(seen.incomplete),
        notes=seen.notes,
        hindered=None if ahead is None or word is None else ahead.code,
        hindered_by=None if ahead is None or word is None else ahead.says,
    )


def by_trouble(rows: Iterable[Row]) -> list[Row]:
    """Who needs somebody comes first; then who works most; then by name."""
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


def why(decision: Decision, now: float) -> str:
    """The reason as a sentence with its numbers."""
    seen = decision.evidence
    match decision.reason:
        case Reason.SERVING:
            return _work(seen)
        case Reason.CAPPED:
            return f"{_work(seen)}; {count(seen.demand)} replicas would be needed, the maximum is less"
        case Reason.QUEUED:
            return f"{_requests(seen.queued)} waiting, none in work"
        case Reason.GPU_BUSY:
            return f"no requests, but its GPUs work: {ratio(seen.gpu_engine_active)}"
        case Reason.LOADING:
            return f"{_starting(seen)}; {_requests(seen.queued)} waiting"
        case Reason.WARM | Reason.ASLEEP | Reason.NO_WAKER:
            return _resting(decision, now)
        case Reason.HELD:
            since = None if decision.held_since is None else now - decision.held_since
            return f"{_silent(seen)}: the last answer stands, for {span(since)} now"
        case Reason.INCOMPLETE:
            return f"{_incomplete(seen)}: nothing is taken away"
        case Reason.UNKNOWN:
            return f"{_silent(seen)}: whoever asks gets an error, and keeps what there is"
        case Reason.SCHEDULED:
            return seen.schedule or REASONS[Reason.SCHEDULED].meaning
        case Reason.FROZEN:
            return seen.brake or REASONS[Reason.FROZEN].meaning


def _work(seen: Evidence) -> str:
    return f"{_requests(seen.running)} in work, {count(seen.queued)} waiting"


def _starting(seen: Evidence) -> str:
    if seen.replicas_wanted is None:
        return "none is ready"
    replicas = f"{seen.replicas_wanted} replica{'' if seen.replicas_wanted == 1 else 's'}"
    return (
        f"{replicas} to come, {seen.replicas_pending} without a node" if seen.replicas_pending else f"{replicas} start"
    )


def _resting(decision: Decision, now: float) -> str:
    seen = decision.evidence
    idle = "idle" if decision.idle_since is None else f"idle for {span(now - decision.idle_since)}"
    if decision.reason is Reason.NO_WAKER:
        kept = "stays, as nothing would see a request at zero"
        return f"{idle}; {kept if decision.active else 'stays at zero, and nothing would see the next request'}"
    if decision.reason is Reason.ASLEEP:
        return idle if seen.waker is None else f"{idle}; woken by {seen.waker}"
    return idle if seen.keep_warm_s is None else f"{idle}, kept warm for {span(seen.keep_warm_s)}"


def _incomplete(seen: Evidence) -> str:
    if not seen.incomplete:
        return REASONS[Reason.INCOMPLETE].meaning
    more = f" and {len(seen.incomplete) - 1} more" if len(seen.incomplete) > 1 else ""
    return f"{seen.incomplete[0]}{more}"


def _silent(seen: Evidence) -> str:
    match seen.stale:
        case ():
            return "nothing is known"
        case (source,):
            return f"no answer from {source}"
        case (source, *more):
            return f"no answer from {source} and {len(more)} more"
        case _:
            return "nothing is known"


def _requests(value: float | None) -> str:
    return f"{count(value)} request{'' if value == 1.0 else 's'}"


@dataclass(frozen=True, slots=True)
class Fleet:
    """workloads: by state. gpus: held, by the state of who holds them. troubles, notices: workloads somebody should
    look at, or may want to. uncounted: workloads with replicas whose GPUs are not known: what they hold is in no sum.
    """

    workloads: dict[WorkloadState, int]
    gpus: dict[WorkloadState, int]
    uncounted: int
    troubles: int
    notices: int

    def to_document(self) -> dict[str, Any]:
        return asdict(self)


def fleet(rows: Iterable[Row]) -> Fleet:
    workloads, gpus, severities, uncounted = Counter[WorkloadState](), Counter[WorkloadState](), Counter[Severity](), 0
    for row in rows:
        workloads[row.state] += 1
        severities[row.severity] += 1
        if row.gpus is not None:
            gpus[row.state] += row.gpus
        elif row.state is not WorkloadState.ASLEEP:
            uncounted += 1
    return Fleet(
        {state: workloads[state] for state in WorkloadState},
        {state: gpus[state] for state in WorkloadState if state is not WorkloadState.ASLEEP},
        uncounted,
        severities[Severity.TROUBLE],
        severities[Severity.NOTICE],
    )


UNKNOWN = "unknown"
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_WHOLE_FROM = 100.0  # a tenth of a request among a hundred says nothing


def count(value: float | None) -> str:
    """Requests or replicas: whole, or with one decimal while that matters. Some is not none."""
    if value is None:
        return UNKNOWN
    tenths = floor(abs(value) * 10.0 + 0.5)
    if value > 0.0 and tenths == 0:
        return "<0.1"
    sign = "-" if value < 0.0 and tenths else ""
    if abs(value) >= _WHOLE_FROM or tenths % 10 == 0:
        return f"{sign}{floor(abs(value) + 0.5):,}"
    return f"{sign}{tenths // 10}.{tenths % 10}"


def ratio(value: float | None) -> str:
    """0..1 as a percentage. Some activity is not none."""
    if value is None:
        return UNKNOWN
    percent = floor(value * 100.0 + 0.5)
    return "<1 %" if value > 0.0 and percent == 0 else f"{percent} %"


def span(seconds: float | None) -> str:
    """A length of time, to two figures or so."""
    if seconds is None:
        return UNKNOWN
    seconds = max(0.0, seconds)
    if seconds < _MINUTE:
        return f"{floor(seconds)} s"
    if seconds < _HOUR:
        return f"{floor(seconds / _MINUTE)} min"
    if seconds < 2.0 * _DAY:
        minutes = floor(seconds % _HOUR / _MINUTE)
        return f"{floor(seconds / _HOUR)} h {minutes:02d}"
    return f"{floor(seconds / _DAY)} d"


def shift(cluster: float | None, told: float | None) -> str:
    """Replicas: what the cluster was told to run, and what it is told now where that differs."""
    if cluster is None or cluster == told:
        return count(told)
    return f"{count(cluster)} → {count(told)}"


def age(measured_at: float | None, held_since: float | None, now: float) -> str:
    """How old what an answer rests on is; of a held one, since when it is held. All in POSIX seconds."""
    if held_since is not None:
        return f"held {span(now - held_since)}"
    return UNKNOWN if measured_at is None else span(now - measured_at)
