"""The columns the policy works on: one slot per workload, NaN where a number is not known.

Arrays of structures would be nicer to look at and a hundred times slower: ten thousand workloads are decided in one
call of one kernel. Every field is an array of shape (workloads,) unless its comment says otherwise.

The policy's reasons and signals as numbers: what its kernels are compiled with.

Worked example: `REASONS[ASLEEP]` is `Reason.ASLEEP`; a workload's work is in column `WORK` of its signals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats
from scaler.model import Reason

Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]

NOT_YET = OWN = -1


class Signal(IntEnum):
    """What an objective may be sized by."""

    WORK = 0  # requests waiting, running and held by a gateway: a sum over the workload
    KV_CACHE = 1  # ratio: a mean over its ready replicas
    GPU_ENGINE = 2  # ratio: a mean over the GPUs that are wholly its own


@dataclass(frozen=True, slots=True)
class Spec:
    """What a workload's owner asks for. Times in seconds.

    minimum, maximum: replicas while awake; a minimum of 0 is as good as 1.
    targets:   per objective, the amount of the signal that one replica should carry.
    sleeps:    may it go to zero? None is: if its minimum is 0.
    keep_warm: idle this long before zero.
    hold:      stale readings are bridged this long by the last decision.
    impute_after: pods that do not answer for so long are taken to be like the rest, if that is half of them at least.
    settle:    an incomplete reading is called so after this long: a pod that is new on the list is asked in a moment.
    band:      replicas by which demand must fall below a step before the step is taken down.
    gpu_quiet: engine activity (ratio) at or below which a GPU counts as quiet.
    pods:      its engines' pages are asked: demand lives in pods and vanishes with them.
    fixed:     its pages are at addresses that are written down, so that they are listed says nothing of pods.
    gateway:   a page that lives at zero replicas is asked: it can see the next request.
    young:     begun without a memory, what the cluster has is the least for so long: until the windows speak.
    holds_incomplete: while readings are lower bounds no answer falls and nothing is idle; False takes them as they are.
    wakes_blind: asleep and blind for longer than `hold`, it is woken rather than left.
    lease_max: a workload that was woken is kept up for so long at most until its first replica is ready.
    jobs:      its replicas are Jobs: a lower answer ends none, and one that is too high replaces each that has ended.
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


class Specs(NamedTuple):
    """Many `Spec`s, by column. `targets` has shape (workloads, len(Signal)); NaN is no such objective."""

    minimum: Floats
    maximum: Floats
    targets: Floats
    sleeps: Bools
    keep_warm: Floats
    hold: Floats
    impute_after: Floats
    settle: Floats
    band: Floats
    gpu_quiet: Floats
    pods: Bools
    fixed: Bools
    gateway: Bools
    young: Floats
    wakes_blind: Bools
    lease_max: Floats
    jobs: Bools
    holds_incomplete: Bools

    @classmethod
    def stack(cls, specs: Sequence[Spec]) -> Specs:
        targets = np.full((len(specs), len(Signal)), np.nan)
        for row, spec in enumerate(specs):
            for signal, target in spec.targets:
                targets[row, signal] = target
        return cls(
            minimum=np.array([s.minimum for s in specs], dtype=float),
            maximum=np.array([s.maximum for s in specs], dtype=float),
            targets=targets,
            sleeps=np.array([s.minimum == 0 if s.sleeps is None else s.sleeps for s in specs], dtype=np.bool_),
            keep_warm=np.array([s.keep_warm for s in specs], dtype=float),
            hold=np.array([s.hold for s in specs], dtype=float),
            impute_after=np.array([s.impute_after for s in specs], dtype=float),
            settle=np.array([s.settle for s in specs], dtype=float),
            band=np.array([s.band for s in specs], dtype=float),
            gpu_quiet=np.array([s.gpu_quiet for s in specs], dtype=float),
            pods=np.array([s.pods for s in specs], dtype=np.bool_),
            fixed=np.array([s.fixed for s in specs], dtype=np.bool_),
            gateway=np.array([s.gateway for s in specs], dtype=np.bool_),
            young=np.array([s.young for s in specs], dtype=float),
            wakes_blind=np.array([s.wakes_blind for s in specs], dtype=np.bool_),
            lease_max=np.array([s.lease_max for s in specs], dtype=float),
            jobs=np.array([s.jobs for s in specs], dtype=np.bool_),
            holds_incomplete=np.array([s.holds_incomplete for s in specs], dtype=np.bool_),
        )


class Constraints(NamedTuple):
    """What holds for each workload at this moment, whatever is read of it: people's orders, and what was learned.

    floor:        at least so many replicas; 0 is none.
    floor_reason: the code that the floor shows where it decides; OWN leaves the workload's.
    ceiling:      at most so many; inf is none. A floor above it wins: too many is the lesser harm.
    frozen:       the last answer stays, whatever is read.
    never_down:   no answer is lower than the last.
    keep_warm:    seconds idle before zero: the constant of the configuration, or what its gaps taught.
    lease:        seconds for which a workload that was woken stays up at most, while its first replica is not ready:
    the
                  cap of the configuration, or what its starts have taught.
    """

    floor: Floats
    floor_reason: Ints
    ceiling: Floats
    frozen: Bools
    never_down: Bools
    keep_warm: Floats
    lease: Floats

    @classmethod
    def plain(cls, specs: Specs) -> Constraints:
        """Nobody has ordered anything, and nothing was learned."""
        rows = specs.minimum.shape[0]
        return cls(
            floor=np.zeros(rows),
            floor_reason=np.full(rows, OWN, dtype=np.int64),
            ceiling=np.full(rows, np.inf),
            frozen=np.zeros(rows, dtype=np.bool_),
            never_down=np.zeros(rows, dtype=np.bool_),
            keep_warm=specs.keep_warm.copy(),
            lease=specs.lease_max.copy(),
        )


class Readings(NamedTuple):
    """What is seen of each workload at one moment: fresh readings only, NaN for anything else.

    signals:       shape (workloads, len(Signal)), smoothed; NaN unknown.
    waiting, running, held: requests in the engines' queues, in the engines, and at the gateway, as last read,
                   added over whatever part of the sources is fresh.
    busiest_gpu:   the highest engine activity (else utilisation) among the GPUs that are wholly its own; NaN where
                   none can be seen.
    active_at:     POSIX seconds when a counter of requests or tokens last rose; NaN never.
    pods_listed:   how many pods must answer, those on their way out apart; NaN while that itself is not known.
    pods_fresh:    how many do.
    pods_partial:  how many of these with readings that are lower bounds.
    gateway_fresh: the gateway's page is fresh.
    gateway_partial: … and a lower bound.
    kv_partial:    some engine's KV-cache use is incomplete.
    unproven:      some counter of requests or tokens is incomplete: that nothing rose proves nothing.
    in_hand_at_least: requests, a lower bound: what is fresh and, of engines that do not answer, what they had last; or
                   what a gateway has passed on, if that is more.
    waker_fresh:   … and something on it would show a request that comes at zero replicas.
    refused_at:    POSIX seconds when that was last seen to be so by a request that was turned away; NaN never.
    gpus_stale:    GPUs known to be its own are no longer seen.
    gpus_blind:    some of them are still shown and no longer say their activity: no proof that they are quiet.
    wanted, ready, existing, pending: replicas the cluster has been told to run, those that serve, those that are there
                   in whatever state, and those that no node has begun to run; NaN unknown.
    measured_at:   POSIX seconds of the oldest fresh reading; NaN if there is none.
    """

    signals: Floats
    waiting: Floats
    running: Floats
    held: Floats
    busiest_gpu: Floats
    active_at: Floats
    pods_listed: Floats
    pods_fresh: Floats
    pods_partial: Floats
    gateway_fresh: Bools
    gateway_partial: Bools
    kv_partial: Bools
    unproven: Bools
    in_hand_at_least: Floats
    waker_fresh: Bools
    refused_at: Floats
    gpus_stale: Bools
    gpus_blind: Bools
    wanted: Floats
    ready: Floats
    existing: Floats
    pending: Floats
    measured_at: Floats

    @classmethod
    def unknown(cls, rows: int) -> Readings:
        """Nothing is known of any workload."""

        def nan() -> Floats:
            return np.full(rows, np.nan)

        def no() -> Bools:
            return np.zeros(rows, dtype=np.bool_)

        return cls(
            signals=np.full((rows, len(Signal)), np.nan),
            waiting=nan(),
            running=nan(),
            held=nan(),
            busiest_gpu=nan(),
            active_at=nan(),
            pods_listed=nan(),
            pods_fresh=np.zeros(rows),
            pods_partial=np.zeros(rows),
            gateway_fresh=no(),
            gateway_partial=no(),
            kv_partial=no(),
            unproven=no(),
            in_hand_at_least=np.zeros(rows),
            waker_fresh=no(),
            refused_at=nan(),
            gpus_stale=no(),
            gpus_blind=no(),
            wanted=nan(),
            ready=nan(),
            existing=nan(),
            pending=nan(),
            measured_at=nan(),
        )


class Memory(NamedTuple):
    """What the policy remembers from one step to the next; also what a snapshot keeps.

    replicas:   the last known answer; NaN before the first.
    active:     … and whether it was active.
    reason:     … and its code, NOT_YET before the first.
    idle_since: POSIX seconds; NaN while busy or unknown.
    held_since: POSIX seconds since when readings are missing; NaN while all are fresh.
    incomplete_since: POSIX seconds since when fresh readings are lower bounds; NaN while complete.
    woken_at:   POSIX seconds when it was woken; NaN once its first replica was ready, or nothing of that start is left.
    floor:      what the cluster had when it began without a memory, the least until `floor_until`; NaN is none.
    floor_until: POSIX seconds; NaN is: what the cluster had is not known yet.
    """

    replicas: Floats
    active: Bools
    reason: Ints
    idle_since: Floats
    held_since: Floats
    woken_at: Floats
    floor: Floats
    floor_until: Floats
    incomplete_since: Floats

    @classmethod
    def blank(cls, rows: int) -> Memory:
        return cls(
            replicas=np.full(rows, np.nan),
            active=np.zeros(rows, dtype=np.bool_),
            reason=np.full(rows, NOT_YET, dtype=np.int64),
            idle_since=np.full(rows, np.nan),
            held_since=np.full(rows, np.nan),
            woken_at=np.full(rows, np.nan),
            floor=np.full(rows, np.nan),
            floor_until=np.full(rows, np.nan),
            incomplete_since=np.full(rows, np.nan),
        )


class Verdicts(NamedTuple):
    """What the policy answers: the columns of `board.Decision`.

    replicas: NaN is unknown: an error to whoever asks.
    demand:   shape (workloads, len(Signal)): what each objective alone asks for, unrounded; NaN unknown.
    """

    replicas: Floats
    active: Bools
    reason: Ints
    demand: Floats

    @classmethod
    def blank(cls, rows: int) -> Verdicts:
        return cls(
            replicas=np.full(rows, np.nan),
            active=np.zeros(rows, dtype=np.bool_),
            reason=np.full(rows, NOT_YET, dtype=np.int64),
            demand=np.full((rows, len(Signal)), np.nan),
        )


class SpecSlot(NamedTuple):
    """One workload's slot of `Specs`: numbers where that has columns, as the kernels hold it in hand."""

    minimum: float
    maximum: float
    targets: tuple[float, float, float]
    sleeps: bool
    hold: float
    impute_after: float
    settle: float
    band: float
    gpu_quiet: float
    pods: bool
    fixed: bool
    gateway: bool
    young: float
    wakes_blind: bool
    jobs: bool
    holds_incomplete: bool


class StandingSlot(NamedTuple):
    """One workload's slot of `Standing`."""

    floor: float
    floor_reason: int
    ceiling: float
    frozen: bool
    never_down: bool
    keep_warm: float
    lease: float


class ReadingsSlot(NamedTuple):
    """One workload's slot of `Readings`; when it was measured and what is pending decide nothing and are left out."""

    signals: tuple[float, float, float]
    waiting: float
    running: float
    held: float
    busiest_gpu: float
    active_at: float
    pods_listed: float
    pods_fresh: float
    pods_partial: float
    gateway_fresh: bool
    gateway_partial: bool
    kv_partial: bool
    unproven: bool
    in_hand_at_least: float
    waker_fresh: bool
    refused_at: float
    gpus_stale: bool
    gpus_blind: bool
    wanted: float
    ready: float
    existing: float


class MemorySlot(NamedTuple):
    """One workload's slot of `Memory`."""

    replicas: float
    active: bool
    reason: int
    idle_since: float
    held_since: float
    woken_at: float
    floor: float
    floor_until: float
    incomplete_since: float


# A kernel takes plain numbers; so they are spelled here, and must agree with what they mirror, or nothing starts.
REASONS = (
    Reason.SERVING,
    Reason.QUEUED,
    Reason.GPU_BUSY,
    Reason.LOADING,
    Reason.WARM,
    Reason.ASLEEP,
    Reason.HELD,
    Reason.UNKNOWN,
    Reason.NO_WAKER,
    Reason.SCHEDULED,
    Reason.FROZEN,
    Reason.CAPPED,
    Reason.INCOMPLETE,
)
SERVING, QUEUED, GPU_BUSY, LOADING, WARM, ASLEEP, HELD, UNKNOWN, NO_WAKER, SCHEDULED, FROZEN, CAPPED, INCOMPLETE = (
    range(13)
)
WORK, KV_CACHE, GPU_ENGINE = 0, 1, 2
if set(REASONS) != set(Reason) or tuple(Signal) != (WORK, KV_CACHE, GPU_ENGINE):
    raise AssertionError("scaler.policy.columns does not know all reasons and signals")
