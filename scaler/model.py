"""Decisions, and the Board they stand on: what every reader answers from.

A `Decision` is an immutable value; a `Board` is one immutable map of them. Readers take `board.get(key)` once per
answer, so an answer is one version of a workload's entry. Nothing here knows gRPC, HTTP or time: a reader that
wants an age subtracts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from exporter.model import WorkloadKey

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


METRIC = "tidegate-replicas"  # of KEDA's scaler and of both metrics APIs
USUAL_START_S = 75.0  # seconds from a pod's creation to ready: some ten gigabytes of weights, the image on the node


class Reason(StrEnum):
    """Why a workload is where it is. One closed list, the same in KEDA's answers, /metrics, explain and the docs."""

    SERVING = "serving"  # requests are being worked on
    QUEUED = "queued"  # requests wait and none is being worked on
    GPU_BUSY = "gpu_busy"  # no requests, but its GPUs work
    LOADING = "loading"  # replicas exist and none is ready
    WARM = "warm"  # idle, kept for the keep-warm time or by its minimum
    ASLEEP = "asleep"  # idle for the keep-warm time: zero
    HELD = "held"  # readings are stale: the last decision stands, for a while
    INCOMPLETE = "incomplete"  # a response lacks a series that it had, or has it wrong: nothing falls, nothing is idle
    UNKNOWN = "unknown"  # without data: callers get an error
    NO_WAKE_SOURCE = "no_wake_source"  # idle, but nothing that lives at zero replicas could see the next request
    SCHEDULED = "scheduled"  # a schedule's floor or ceiling decides
    FROZEN = "frozen"  # a person's brake decides
    CAPPED = "capped"  # more is needed than the maximum allows
    CAPACITY_LIMITED = "capacity_limited"  # more is needed than its share of the GPUs has room for


@dataclass(frozen=True, slots=True)
class Objective:
    """One thing a workload is sized by, and what it asks for now.

    value:    the smoothed signal in its own unit (requests, ratio); None while unknown.
    target:   the same unit per replica.
    replicas: what this objective alone asks for, before rounding and clamping; None while unknown.
    """

    name: str
    value: float | None
    target: float
    replicas: float | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of a decision. Requests are counts, ratios 0..1; None is unknown."""

    waiting: float | None = None
    running: float | None = None
    held_by_gateway: float | None = None
    kv_cache_used: float | None = None
    gpu_engine_active: float | None = None
    requests_per_second: float | None = None
    replicas_wanted: int | None = None
    replicas_ready: int | None = None
    replicas_pending: int | None = None  # those that no node has begun to run
    gpus_held: int | None = None  # that its running pods asked for
    gpus_attributed: int | None = None  # of those, that a page shows as its own; None where no page shows any
    gpus_lost: int | None = None  # of those, silent since a fatal error: no capacity, and left out of the activity
    gpu_activity: str | None = None  # by what it is known: engine, utilisation, process, mixed, none
    gpu_engine_ceiling: float | None = None  # what gpu_engine_active may top at, where MIG instances are among them
    gpu_memory_held_bytes: float | None = None  # residency, never activity
    wake_source: str | None = None  # what shows the next request at zero replicas, and where; None: nothing
    objectives: tuple[Objective, ...] = ()
    stale: tuple[str, ...] = ()  # the targets with missing or stale readings
    incomplete: tuple[str, ...] = ()  # the series that make a reading a lower bound, with target, reason and time
    notes: tuple[str, ...] = ()  # sentences for a person
    brake: str | None = None  # the most careful that holds, as "freeze until 2026-11-23T08:00Z (ai/Deployment/chat)"
    brake_until: float | None = None  # POSIX seconds when that ends; None also where it has no end
    schedule: str | None = None  # those that hold, with their windows, by their own clocks
    schedule_floor: int | None = None  # replicas
    schedule_ceiling: int | None = None  # replicas
    queue_order: str | None = None  # its place in the queue of its group, and the prices; None: prices decide none
    gpu_share_replicas: int | None = None  # for which its share of the GPUs has room; None: no limit
    keep_warm_s: float | None = None  # idle so long before zero, at present
    starts_again_at: float | None = None  # POSIX seconds of a start in advance of the next request; None: not foreseen
    cold_start_p50_s: float | None = None  # how long a start of a further replica takes: as a rule, and nine of ten
    cold_start_p90_s: float | None = None
    zero_start_mean_s: float | None = None  # of the first replica after zero: the mean, and nine of ten
    zero_start_p90_s: float | None = None
    cold_start_requests: float | None = None  # with an SLO: requests that a start delays, the mean of its last pauses
    cold_starts_covered: float | None = (
        None  # … and the further cold starts that its error budget covers; below 0: debt
    )
    keep_warm_saves_gpu_seconds: float | None = None  # of one replica, per day, against the constant; below 0 is a loss
    keep_warm_saves_money: float | None = None  # likewise, in the money of `prices`
    probe_period_s: float | None = None  # of regular requests that are taken for probes and keep nothing awake
    regular_requests_count_until: float | None = None  # POSIX seconds; None: they do not, where they look like probes
    replicas_sleeping: int | None = (
        None  # replicas with engines in sleep mode: no capacity; None if no target exposes it
    )
    sleep_tier: str | None = None  # ready, asleep or zero; None without sleep mode
    sleep_after_s: float | None = None  # idle so long before its engines sleep; None: they do not
    wake_s: float | None = None  # that an engine in sleep mode takes to wake, the median of the last ones
    sleep: str | None = None  # when it sleeps and at what cost, and why a call of an engine failed
    # How many requests met it or why that is not measured, and why it does not size the workload; None without an SLO.
    slo: str | None = None
    slo_attainment: float | None = None  # ratio of the requests of the last 3 days that met it; None: none is measured
    slo_attainment_least: float | None = None  # that by the bounds of the engine's buckets alone
    slo_attainment_most: float | None = None
    slo_attainment_hour: float | None = None  # of the requests of the last hour
    slo_error_budget: float | None = None  # ratio of that of the last 3 days that is left; below 0: more misses
    slo_requests_total: float | None = None  # measured so far
    slo_misses_total: float | None = None  # of these, those that missed it
    request_replica_s: float | None = None  # replica-seconds that one request takes
    # Without counters of tokens the time of a request sizes the workload (Little's law); None with them.
    request_s: float | None = None  # seconds that a request takes, the mean of the last ones
    replica_requests: float | None = None  # requests in hand per replica meanwhile
    request_slowdown: float | None = None  # what each further one adds to the time, as a share of that of one alone
    replica_full: float | None = None  # requests with which a replica is full
    step_s: float | None = None  # seconds of a decode step with nothing in it, learned from the engine
    headroom_times: float | None = None  # what misses beyond the error budget multiply the headroom by
    burst_replicas: float | None = None  # that stay for a burst like the last ones; 0: none was recent

    @property
    def queued(self) -> float | None:
        """Requests that wait in engines or at the gateway; None if unknown."""
        return _sum(self.waiting, self.held_by_gateway)

    @property
    def load(self) -> float | None:
        """Requests in hand, waiting and running; None if unknown."""
        return _sum(self.waiting, self.running, self.held_by_gateway)

    @property
    def demand(self) -> float | None:
        """The largest demand of the objectives in replicas, unrounded; None if unknown."""
        return max((each.replicas for each in self.objectives if each.replicas is not None), default=None)


def _sum(*parts: float | None) -> float | None:
    present = [part for part in parts if part is not None]
    return sum(present) if present else None


@dataclass(frozen=True, slots=True)
class Decision:
    """How many replicas a workload should have, and why.

    replicas:    None is unknown: callers get an error. 0 only when inactive, else at least 1.
    decided_at:  POSIX seconds when this became the answer.
    measured_at: POSIX seconds of the oldest reading it rests on; None if it rests on none.
    held_since:  POSIX seconds since when it is held on stale readings; None while fresh.
    idle_since:  POSIX seconds since when nothing is to be done; None while busy or unknown.
    observed:    it is published for people; KEDA and the metrics API get an error.
    published:   the number for a HorizontalPodAutoscaler: `replicas`, except if the HPA's tolerance would ignore the
                 step up; then the next number that has effect, which may exceed the workload's maximum. The default
                 is `replicas`; None if that is None.
    """

    workload: WorkloadKey
    replicas: int | None
    active: bool
    reason: Reason
    decided_at: float
    measured_at: float | None = None
    held_since: float | None = None
    idle_since: float | None = None
    evidence: Evidence = Evidence()
    observed: bool = False
    published: int | None = None

    def __post_init__(self) -> None:
        if self.replicas is not None and (self.replicas < 0 or (self.replicas == 0) == self.active):
            raise ValueError(f"{self.workload}: {self.replicas} replicas cannot be active={self.active}")
        if self.published is None:
            object.__setattr__(self, "published", self.replicas)
        elif self.replicas is None or self.published < self.replicas or (self.replicas == 0) != (self.published == 0):
            raise ValueError(f"{self.workload}: {self.replicas} replicas cannot be published as {self.published}")

    def to_document(self) -> dict[str, Any]:
        """Plain JSON-able data: the wire form of one entry."""
        document = asdict(self)
        document["workload"] = self.workload._asdict()
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Decision:
        """The reverse, for a document of this version of Tidegate or a neighbouring one: keys that are not known are
        skipped, missing ones are blank. A reason that is not known becomes the plain one for that number of replicas.
        Evidence of another type than this version's is blank. Raises ValueError for what is no such document.
        """
        try:
            given = _valid_fields(_OF_DECISION, document)
            for name, _, _ in _OF_DECISION:
                if name in document and name not in given:
                    raise ValueError(f"no Decision: {name}: got {document[name]!r:.100}")
            for name in ("replicas", "published"):
                if not -1 < (given.get(name) or 0) <= _MOST_REPLICAS:
                    raise ValueError(f"no Decision: {name}: got {given[name]}")
            given["workload"] = workload_of(document)
            given |= {name: float(given[name]) for name in _TIMES if given.get(name) is not None}
            evidence_document = document.get("evidence") or {}
            evidence = _valid_fields(_OF_EVIDENCE, evidence_document)
            objectives = (_valid_fields(_OF_OBJECTIVE, each) for each in evidence_document.get("objectives", ()))
            evidence["objectives"] = tuple(Objective(**each) for each in objectives if len(each) == len(_OF_OBJECTIVE))
            given["reason"] = _reason(document["reason"], document["replicas"])
            return cls(**given | {"evidence": Evidence(**evidence)})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no Decision: {error!r}") from error


def workload_of(document: Mapping[str, Any]) -> WorkloadKey:
    """The workload of a Decision's document. Raises ValueError."""
    try:
        key = document["workload"]
        found = WorkloadKey(key["namespace"], key["name"], key.get("trigger", ""))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no workload in a Decision: {error!r}") from error
    if not all(map(_is_text, found)):
        raise ValueError(f"no workload in a Decision: {found!r:.100}")
    return found


_TIMES = ("decided_at", "measured_at", "held_since", "idle_since")
# Kubernetes counts replicas in 32 bits, and readers of JSON have whole numbers of 53.
_MOST_REPLICAS, _MOST_COUNT = 2**31 - 1, 2**53


def _is_number(value: Any) -> bool:
    return (type(value) is float and -inf < value < inf) or _is_count(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and -_MOST_COUNT <= value <= _MOST_COUNT


def _is_text(value: Any) -> bool:
    """JSON can hold half of a surrogate pair, which no page of ours can."""
    return type(value) is str and (value.isascii() or not any("\ud800" <= each <= "\udfff" for each in value))


def _are_texts(value: Any) -> bool:
    return type(value) in {list, tuple} and all(_is_text(each) for each in value)


# Values of JSON by the annotations of the fields; a field of another type is not read by them.
_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "float": _is_number,
    "int": _is_count,
    "str": _is_text,
    "bool": lambda value: type(value) is bool,
    "tuple[str, ...]": _are_texts,
}


def _checks(cls: type[DataclassInstance]) -> tuple[tuple[str, Callable[[Any], bool], bool], ...]:
    """Name, check, and may it be null, of each field that has one."""
    typed = ((each.name, *str(each.type).partition(" | ")[::2]) for each in fields(cls))
    return tuple((name, _CHECKS[kind], maybe == "None") for name, kind, maybe in typed if kind in _CHECKS)


_OF_DECISION, _OF_EVIDENCE, _OF_OBJECTIVE = _checks(Decision), _checks(Evidence), _checks(Objective)


def _valid_fields(
    checks: tuple[tuple[str, Callable[[Any], bool], bool], ...], document: Mapping[str, Any]
) -> dict[str, Any]:
    """Reads the fields of a document that have the right type; lists of JSON become tuples."""
    given = {}
    for name, fits, maybe in checks:
        if name in document:
            value = document[name]
            if (maybe and value is None) or fits(value):
                given[name] = tuple(value) if isinstance(value, list) else value
    return given


def _reason(code: str, replicas: int | None) -> Reason:
    try:
        return Reason(code)
    except ValueError:
        return Reason.UNKNOWN if replicas is None else Reason.SERVING if replicas else Reason.ASLEEP


@dataclass(frozen=True, slots=True)
class Board:
    """All Decisions as of one moment. `at`: POSIX seconds of the last sweep; `version` rises with every change."""

    version: int
    at: float
    decisions: Mapping[WorkloadKey, Decision]

    def get(self, workload: WorkloadKey) -> Decision | None:
        return self.decisions.get(workload)

    def to_document(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "at": self.at,
            "workloads": [self.decisions[key].to_document() for key in sorted(self.decisions)],
        }


EMPTY = Board(version=0, at=0.0, decisions=MappingProxyType({}))
