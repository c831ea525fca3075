"""How many replicas, active or not, and why: one kernel over all workloads, pure, time an argument.

The order of the questions is in `answers.decide`. The same function runs in the daemon and in replays of recorded
loads.

Worked example: 40 requests wait or run and a replica should carry 16: 40/16 = 2.5, so 3 replicas, `serving`. All
finish; after 60 s of decay the smoothed work asks for one; `warm` until 300 s have passed with nothing waiting,
nothing running, no counter moving and quiet GPUs; then 0 replicas, inactive, `asleep`, if the gateway's page is
there to see the next request, else 1 replica, `no_waker`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import typeof, types

from scaler.jit import fingerprint, kernel, part

from . import columns, questions
from . import decide as decide_module
from .columns import (
    GPU_ENGINE,
    KV_CACHE,
    WORK,
    Bools,
    Constraints,
    Memory,
    MemorySlot,
    Readings,
    ReadingsSlot,
    Specs,
    SpecSlot,
    StandingSlot,
    Verdicts,
)
from .decide import decide
from .questions import answered as wholly_known
from .questions import can_fall, partial, rest_is_like, was_asleep

# What the kernels take. Their parts take one workload's slot, as plain numbers: each array that is handed from part to
# part is counted in and out again, which cost forty times what is decided here.
_NOBODY = Specs.stack([])
COLUMNS = (typeof(_NOBODY), typeof(Readings.unknown(0)), typeof(Memory.blank(0)))


@part
def _spec_of(specs: Specs, i: int) -> SpecSlot:
    targets = specs.targets
    return SpecSlot(
        specs.minimum[i],
        specs.maximum[i],
        (targets[i, WORK], targets[i, KV_CACHE], targets[i, GPU_ENGINE]),
        specs.sleeps[i],
        specs.hold[i],
        specs.impute_after[i],
        specs.settle[i],
        specs.band[i],
        specs.gpu_quiet[i],
        specs.pods[i],
        specs.fixed[i],
        specs.gateway[i],
        specs.young[i],
        specs.wakes_blind[i],
        specs.jobs[i],
        specs.holds_incomplete[i],
    )


@part
def _stands_of(standing: Constraints, i: int) -> StandingSlot:
    return StandingSlot(
        standing.floor[i],
        standing.floor_reason[i],
        standing.ceiling[i],
        standing.frozen[i],
        standing.never_down[i],
        standing.keep_warm[i],
        standing.lease[i],
    )


@part
def _seen_of(readings: Readings, i: int) -> ReadingsSlot:
    signals = readings.signals
    return ReadingsSlot(
        (signals[i, WORK], signals[i, KV_CACHE], signals[i, GPU_ENGINE]),
        readings.waiting[i],
        readings.running[i],
        readings.held[i],
        readings.busiest_gpu[i],
        readings.active_at[i],
        readings.pods_listed[i],
        readings.pods_fresh[i],
        readings.pods_partial[i],
        readings.gateway_fresh[i],
        readings.gateway_partial[i],
        readings.kv_partial[i],
        readings.unproven[i],
        readings.in_hand_at_least[i],
        readings.waker_fresh[i],
        readings.refused_at[i],
        readings.gpus_stale[i],
        readings.gpus_blind[i],
        readings.wanted[i],
        readings.ready[i],
        readings.existing[i],
    )


@part
def _mind_of(memory: Memory, i: int) -> MemorySlot:
    return MemorySlot(
        memory.replicas[i],
        memory.active[i],
        memory.reason[i],
        memory.idle_since[i],
        memory.held_since[i],
        memory.woken_at[i],
        memory.floor[i],
        memory.floor_until[i],
        memory.incomplete_since[i],
    )


class _Kernels(NamedTuple):
    """What is compiled here."""

    answered: Callable[[Specs, Readings, Memory, Bools], None]
    imputed: Callable[[Specs, Readings, Memory, float, Bools], None]
    step: Callable[[Specs, Readings, Constraints, Memory, float, bool, Verdicts], None]


def _compiled(parts: str) -> _Kernels:
    """`parts`: a fingerprint of the files that the kernels' parts are in; a variable of the closure, so that numba
    takes no kernel from its cache whose parts have changed.
    """

    @kernel(types.void(*COLUMNS, types.bool_[::1]))
    def all_answered(specs: Specs, readings: Readings, memory: Memory, out: Bools) -> None:
        parts  # noqa: B018
        for i in range(out.shape[0]):
            mind = _mind_of(memory, i)
            spec, seen = _spec_of(specs, i), _seen_of(readings, i)
            out[i] = wholly_known(spec, seen, was_asleep(mind)) and not partial(spec, seen)

    @kernel(types.void(*COLUMNS, types.float64, types.bool_[::1]))
    def all_imputed(specs: Specs, readings: Readings, memory: Memory, now: float, out: Bools) -> None:
        parts  # noqa: B018
        for i in range(out.shape[0]):
            spec, seen, mind = _spec_of(specs, i), _seen_of(readings, i), _mind_of(memory, i)
            known = wholly_known(spec, seen, was_asleep(mind)) and not partial(spec, seen)
            out[i] = not known and rest_is_like(spec, seen, mind, now)

    @kernel(
        types.void(
            *COLUMNS[:2],
            typeof(Constraints.plain(_NOBODY)),
            COLUMNS[2],
            types.float64,
            types.bool_,
            typeof(Verdicts.blank(0)),
        )
    )
    def all_decided(
        specs: Specs,
        readings: Readings,
        standing: Constraints,
        memory: Memory,
        now: float,
        raise_only: bool,
        out: Verdicts,
    ) -> None:
        parts  # noqa: B018
        for i in range(out.replicas.shape[0]):
            mind = _mind_of(memory, i)
            seen, stands = _seen_of(readings, i), _stands_of(standing, i)
            new = decide(_spec_of(specs, i), seen, stands, mind, out.demand[i], now)
            memory.idle_since[i], memory.held_since[i] = new.idle_since, new.held_since
            memory.woken_at[i], memory.incomplete_since[i] = new.woken_at, new.incomplete_since
            memory.floor[i], memory.floor_until[i] = new.floor, new.floor_until
            replicas, active, reason = new.replicas, new.active, new.reason
            if raise_only and can_fall(mind) and not replicas >= mind.replicas:
                # Between ticks an arrival may only raise or activate: two callers a millisecond apart must not see a
                # number fall because one page of many came in (law 2). After an error any answer is a gain.
                replicas, active, reason = mind.replicas, mind.active, mind.reason
                if not new.active:  # it has not been put to sleep: what it was woken for goes on
                    memory.woken_at[i] = mind.woken_at
            out.replicas[i], out.active[i], out.reason[i] = replicas, active, reason
            if not np.isnan(replicas):
                memory.replicas[i], memory.active[i] = replicas, active
            memory.reason[i] = reason

    return _Kernels(all_answered, all_imputed, all_decided)


_KERNELS = _compiled(fingerprint(decide_module, columns, questions))


def step(
    specs: Specs, readings: Readings, standing: Constraints, memory: Memory, now: float, *, raise_only: bool = False
) -> tuple[Verdicts, Memory]:
    """Decide all workloads.

    now:        POSIX seconds.
    raise_only: an arrival between ticks: answers may rise or activate, never fall.
    Returns what to answer and what to remember; the arguments are not changed.
    """
    rows = specs.minimum.shape[0]
    verdicts = Verdicts.blank(rows)
    mind: Memory = choose(np.arange(rows), memory)  # copies
    _KERNELS.step(specs, readings, standing, mind, now, raise_only, verdicts)
    return verdicts, mind


def answered(specs: Specs, readings: Readings, memory: Memory) -> Bools:
    """Which workloads' readings are fresh and complete: only then is a sum a value, else it is a lower bound."""
    out = np.zeros(specs.minimum.shape[0], dtype=np.bool_)
    _KERNELS.answered(specs, readings, memory, out)
    return out


def imputed(specs: Specs, readings: Readings, memory: Memory, now: float) -> Bools:
    """Of which workloads some pods do not answer and are to be taken to be like the others."""
    out = np.zeros(specs.minimum.shape[0], dtype=np.bool_)
    _KERNELS.imputed(specs, readings, memory, now, out)
    return out


def choose(rows: np.ndarray[Any, Any], columns: Any) -> Any:
    """The same columns for some workloads only (a named tuple of arrays, indexed by `rows`)."""
    return type(columns)(*(column[rows] for column in columns))
