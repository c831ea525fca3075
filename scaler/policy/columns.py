"""Declares the values that the policy works on, as columns: one slot per workload, NaN where a number is not known.

A group of columns and one workload's slot of it are the same named tuple, declared once with type variables: `Memory`
has an array for each field, `MemorySlot` a number. Ten thousand workloads are decided in one call of one kernel, which
takes the columns and passes slots to its parts. Every column has shape (workloads,), those per signal (workloads,
len(Signal)).

Reasons and signals are numbers here, because the kernels are compiled with numbers.

Worked example: `REASONS[ASLEEP]` is `Reason.ASLEEP`; the requests of a workload are in column `WORK` of its signals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, unique
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats
from scaler.model import Reason

Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]

# The order is part of the checkpoint, which stores the codes.
REASONS = (
    Reason.SERVING,
    Reason.QUEUED,
    Reason.GPU_BUSY,
    Reason.LOADING,
    Reason.WARM,
    Reason.ASLEEP,
    Reason.HELD,
    Reason.UNKNOWN,
    Reason.NO_WAKE_SOURCE,
    Reason.SCHEDULED,
    Reason.FROZEN,
    Reason.CAPPED,
    Reason.INCOMPLETE,
    Reason.CAPACITY_LIMITED,
)
SERVING, QUEUED, GPU_BUSY, LOADING, WARM, ASLEEP, HELD, UNKNOWN, NO_WAKE_SOURCE = range(9)
SCHEDULED, FROZEN, CAPPED, INCOMPLETE, CAPACITY_LIMITED = range(9, 14)
NOT_YET = NO_REASON = -1  # no decision yet; the reason of the workload's decision stays


@unique
class Signal(IntEnum):
    """The signals of the objectives."""

    WORK = 0  # requests waiting, running and held by a gateway: a sum over the workload
    KV_CACHE = 1  # ratio: a mean over its ready replicas
    GPU_ENGINE = 2  # ratio: a mean over the GPUs that are exclusively its
    SLO = 3  # replicas: what arriving work needs (`sizing`, `service_time`); it is not smoothed again


OBJECTIVES = {signal: signal.name.lower() for signal in Signal}  # the names of the objectives
WORK, KV_CACHE, GPU_ENGINE, SLO = range(4)
SMOOTHED = 3  # the signals before SLO are smoothed
if set(REASONS) != set(Reason) or tuple(Signal) != (WORK, KV_CACHE, GPU_ENGINE, SLO):
    raise AssertionError("scaler.policy.columns does not have all reasons and signals")

Number = TypeVar("Number")
Flag = TypeVar("Flag")
Code = TypeVar("Code")
PerSignal = TypeVar("PerSignal")  # a number for each Signal
Record = TypeVar("Record")

_DTYPES: Mapping[Any, type] = {Number: np.float64, Flag: np.bool_, Code: np.int64}
_BLANKS: Mapping[Any, Any] = {Number: np.nan, Flag: False, Code: NOT_YET}
PerSignalSlot: TypeAlias = tuple[float, float, float, float]


_KINDS: dict[type[Any], Mapping[str, Any]] = {}


def kinds(record: type[Any]) -> Mapping[str, Any]:
    """The type variable of each field of a named tuple, in order."""
    if record not in _KINDS:  # to evaluate the annotations takes longer than the arrays of one workload
        hints = get_type_hints(record)
        _KINDS[record] = MappingProxyType({name: hints[name] for name in record._fields})
    return _KINDS[record]


def _blank(record: type[Record], rows: int) -> Record:
    """Columns of `rows` workloads of which nothing is known: NaN, False and NOT_YET."""
    return record(
        *(
            np.full((rows, len(Signal)), np.nan)
            if kind is PerSignal
            else np.full(rows, _BLANKS[kind], dtype=_DTYPES[kind])
            for kind in kinds(record).values()
        )
    )


@dataclass(frozen=True, slots=True)
class Spec:
    """The configuration of one workload, as the policy needs it. Times in seconds.

    minimum, maximum: replicas while active; a minimum of 0 is treated as 1.
    targets:   per objective, the amount of the signal that one replica should carry.
    sleeps:    whether it may go to zero. None: if its minimum is 0.
    keep_warm: idle for so long before zero.
    hold:      stale readings are bridged for so long by the last decision.
    impute_after: pods that have not answered for so long are assumed to be like the rest, if that is at least half.
    settle:    an incomplete reading is reported after so long: a new pod is scraped in a moment.
    band:      replicas by which demand must fall below a step before the step is taken down.
    gpu_quiet: engine activity (ratio) at or below which a GPU is idle.
    pods:      its engines are scraped: demand lives in pods and vanishes with them.
    fixed:     its targets have static addresses, so their number says nothing about pods.
    gateway:   a target that exists at zero replicas is scraped: it can show the next request.
    young:     after a start without earlier decisions, the replicas of the cluster are the minimum for so long: until
               the windows are filled.
    ttft, itl: the SLO: seconds until the first token, and between two tokens; None without an SLO. It is measured, and
               it sizes the workload if SLO is among the targets.
    by_time:   the time of a request sizes it while its engine exposes no counters of tokens.
    start_within: the SLO of a queue: seconds from a job's arrival to its start; None without one.
    falls_back: work and KV cache count only while what arrives needs is unknown: the engine has no such counters.
    holds_incomplete: while readings are lower bounds no decision falls and nothing is idle; False ignores that.
    wakes_blind: at zero and without readings for longer than `hold`, it is woken rather than left.
    lease_max: a workload that was woken is kept up for so long at most until its first replica is ready.
    jobs:      its replicas are Jobs: a lower number ends none, and one that is too high replaces each that has ended.
    """

    minimum: int
    maximum: int
    targets: tuple[tuple[Signal, float], ...]
    sleeps: bool | None = None
    keep_warm: float = 300.0
    hold: float = 300.0
    impute_after: float = 60.0
    settle: float = 0.0
    band: float = 0.2
    gpu_quiet: float = 0.02
    pods: bool = True
    fixed: bool = False
    gateway: bool = False
    young: float = 0.0
    wakes_blind: bool = False
    lease_max: float = 1800.0
    jobs: bool = False
    holds_incomplete: bool = True
    ttft: float | None = None
    itl: float | None = None
    start_within: float | None = None
    falls_back: bool = False
    by_time: bool = False

    @property
    def slo(self) -> tuple[float, float] | None:
        """Seconds until the first token, and per output token; None without an SLO."""
        return None if self.ttft is None or self.itl is None else (self.ttft, self.itl)

    @property
    def sized_by_slo(self) -> bool:
        """Whether what arrives is one of the objectives; without it an SLO is measured alone."""
        return any(signal is Signal.SLO for signal, _ in self.targets)


def unused_objectives(spec: Spec, *, sized: bool) -> tuple[Signal, ...]:
    """The objectives that do not count now. sized: what arrives needs is known."""
    if not spec.falls_back:
        return ()
    return (Signal.WORK, Signal.KV_CACHE) if sized else (Signal.SLO,)


class SpecOf(NamedTuple, Generic[Number, Flag, PerSignal]):
    """`Spec` by field. targets: NaN is no such objective."""

    minimum: Number
    maximum: Number
    targets: PerSignal
    sleeps: Flag
    keep_warm: Number
    hold: Number
    impute_after: Number
    settle: Number
    band: Number
    gpu_quiet: Number
    pods: Flag
    fixed: Flag
    gateway: Flag
    young: Number
    wakes_blind: Flag
    lease_max: Number
    jobs: Flag
    holds_incomplete: Flag
    ttft: Number
    itl: Number
    start_within: Number
    falls_back: Flag
    by_time: Flag


class SpecSlot(SpecOf[float, bool, PerSignalSlot]):
    """One workload's slot of `Specs`."""

    __slots__ = ()


class Specs(SpecOf[Floats, Bools, Floats]):
    """Many `Spec`s, by column."""

    __slots__ = ()

    @property
    def sizing_itl(self) -> Floats:
        """`itl` of the workloads that their SLO sizes, shape (rows,); NaN of the others, whose SLO is only measured."""
        return np.where(np.isnan(self.targets[:, SLO]), np.nan, self.itl)

    @classmethod
    def stack(cls, specs: Sequence[Spec]) -> Specs:
        """The columns of these workloads, in their order."""
        targets = np.full((len(specs), len(Signal)), np.nan)
        for row, spec in enumerate(specs):
            for signal, target in spec.targets:
                targets[row, signal] = target
        columns: dict[str, NDArray[Any]] = {
            name: np.array([getattr(spec, name) for spec in specs], dtype=_DTYPES[kind])
            for name, kind in kinds(cls).items()
            if name not in ("targets", "sleeps")
        }
        sleeps = [spec.minimum == 0 if spec.sleeps is None else spec.sleeps for spec in specs]
        return cls(**columns, targets=targets, sleeps=np.array(sleeps, dtype=np.bool_))


class ConstraintsOf(NamedTuple, Generic[Number, Flag, Code]):
    """Bounds of a workload's decision at one moment, from overrides and estimates, whatever is read.

    floor:        at least so many replicas; 0 is none.
    floor_reason: the code that is shown if the floor decides; OWN leaves that of the workload.
    ceiling:      at most so many; inf is none. A floor above it wins: too many is the lesser harm.
    frozen:       the last decision stays, whatever is read.
    never_down:   no decision is lower than the last.
    keep_warm:    seconds idle before zero: configured or estimated.
    lease:        seconds for which a workload that was woken stays up at most while its first replica is not ready:
                  configured or estimated.
    room:         replicas for which its share of the GPUs has room (`sharing`); inf is no limit. An active workload has
                  its minimum at least, and one.
    """

    floor: Number
    floor_reason: Code
    ceiling: Number
    frozen: Flag
    never_down: Flag
    keep_warm: Number
    lease: Number
    room: Number


class ConstraintsSlot(ConstraintsOf[float, bool, int]):
    """One workload's slot of `Constraints`."""

    __slots__ = ()


class Constraints(ConstraintsOf[Floats, Bools, Ints]):
    """The constraints of many workloads, by column."""

    __slots__ = ()

    @classmethod
    def plain(cls, specs: Specs) -> Constraints:
        """Without overrides and estimates."""
        rows = specs.minimum.shape[0]
        return _blank(cls, rows)._replace(
            floor=np.zeros(rows),
            ceiling=np.full(rows, np.inf),
            keep_warm=specs.keep_warm.copy(),
            lease=specs.lease_max.copy(),
            room=np.full(rows, np.inf),
        )


class ReadingsOf(NamedTuple, Generic[Number, Flag, PerSignal]):
    """The readings of a workload at one moment: fresh ones only, NaN otherwise.

    signals:       smoothed.
    waiting, running, held: requests in the engines' queues, in the engines, and at the gateway, as last read,
                   added over the targets that are fresh.
    busiest_gpu:   the highest engine activity (else utilisation) among the GPUs that are exclusively its; NaN if none
                   is visible.
    active_at:     POSIX seconds when a counter of requests or tokens last rose; NaN never.
    pods_listed:   how many pods must answer, without those that terminate; NaN while that is not known.
    pods_fresh:    how many do.
    pods_partial:  how many of these with readings that are lower bounds.
    gateway_fresh: the gateway's target is fresh.
    gateway_partial: … and a lower bound.
    kv_partial:    the KV-cache use of an engine is incomplete.
    unproven:      a counter of requests or tokens is incomplete: that nothing rose proves nothing.
    in_hand_at_least: requests, a lower bound: what is fresh and, of engines that do not answer, what they had last; or
                   what a gateway has passed on, if that is more.
    waker_fresh:   … and a series of it would show a request that comes at zero replicas.
    refused_at:    POSIX seconds when a rejected request last showed that; NaN never.
    gpus_stale:    GPUs that are known to be its are no longer visible.
    gpus_blind:    some of them are visible and no longer expose their activity: no proof that they are idle.
    wanted, ready, existing, pending: spec.replicas, ready replicas, those that exist in any state, and those that no
                   node has begun to run; NaN unknown.
    measured_at:   POSIX seconds of the oldest fresh reading; NaN if there is none.
    """

    signals: PerSignal
    waiting: Number
    running: Number
    held: Number
    busiest_gpu: Number
    active_at: Number
    pods_listed: Number
    pods_fresh: Number
    pods_partial: Number
    gateway_fresh: Flag
    gateway_partial: Flag
    kv_partial: Flag
    unproven: Flag
    in_hand_at_least: Number
    waker_fresh: Flag
    refused_at: Number
    gpus_stale: Flag
    gpus_blind: Flag
    wanted: Number
    ready: Number
    existing: Number
    pending: Number
    measured_at: Number


class ReadingsSlot(ReadingsOf[float, bool, PerSignalSlot]):
    """One workload's slot of `Readings`."""

    __slots__ = ()


class Readings(ReadingsOf[Floats, Bools, Floats]):
    """The readings of many workloads, by column."""

    __slots__ = ()

    @classmethod
    def unknown(cls, rows: int) -> Readings:
        """Nothing is known of any workload."""
        return _blank(cls, rows)._replace(
            pods_fresh=np.zeros(rows), pods_partial=np.zeros(rows), in_hand_at_least=np.zeros(rows)
        )


class MemoryOf(NamedTuple, Generic[Number, Flag, Code]):
    """The state of a workload from one step to the next; part of a checkpoint.

    replicas:   the last known decision; NaN before the first.
    active:     … and whether it was active.
    reason:     … and its code, NOT_YET before the first.
    idle_since: POSIX seconds; NaN while busy or unknown.
    held_since: POSIX seconds since when readings are missing; NaN while all are fresh.
    woken_at:   POSIX seconds when it was woken; NaN once its first replica was ready, or nothing of that start is left.
    floor:      the replicas of the cluster before the first decision, the minimum until `floor_until`; NaN is none.
    floor_until: POSIX seconds; NaN until the replicas of the cluster are known.
    incomplete_since: POSIX seconds since when fresh readings are lower bounds; NaN while complete.
    """

    replicas: Number
    active: Flag
    reason: Code
    idle_since: Number
    held_since: Number
    woken_at: Number
    floor: Number
    floor_until: Number
    incomplete_since: Number


class MemorySlot(MemoryOf[float, bool, int]):
    """One workload's slot of `Memory`."""

    __slots__ = ()


class Memory(MemoryOf[Floats, Bools, Ints]):
    """The memory of many workloads, by column."""

    __slots__ = ()

    @classmethod
    def blank(cls, rows: int) -> Memory:
        """Before the first step."""
        return _blank(cls, rows)


class Verdicts(NamedTuple):
    """The result of the policy: the columns of `scaler.model.Decision`.

    replicas: NaN is unknown: an error to callers.
    demand:   shape (workloads, len(Signal)): what each objective alone needs, unrounded; NaN unknown.
    """

    replicas: Floats
    active: Bools
    reason: Ints
    demand: Floats

    @classmethod
    def blank(cls, rows: int) -> Verdicts:
        """All unknown."""
        return cls(
            replicas=np.full(rows, np.nan),
            active=np.zeros(rows, dtype=np.bool_),
            reason=np.full(rows, NOT_YET, dtype=np.int64),
            demand=np.full((rows, len(Signal)), np.nan),
        )
