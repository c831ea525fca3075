"""Applies one step of the policy to all workloads: readings, constraints and memory to replicas, active and a reason.

The kernels are compiled at import; the decision of one workload is `decide.decide`. The daemon and the replay of
recorded traces run the same functions. Pure; time is an argument.

Worked example: 40 requests wait or run and a replica should carry 16: 40/16 = 2.5, so 3 replicas, `serving`. All
finish; after 60 s of decay the smoothed work asks for one; `warm` until 300 s have passed with nothing waiting,
nothing running, no counter rising and idle GPUs; then 0 replicas, inactive, `asleep`, if the gateway's target can
show the next request, else 1 replica, `no_wake_source`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import typeof, types

from exporter.model import Floats
from scaler.jit import in_place_kernel, part

from .columns import (
    Bools,
    Constraints,
    ConstraintsSlot,
    Memory,
    MemorySlot,
    PerSignal,
    Readings,
    ReadingsSlot,
    Signal,
    Specs,
    SpecSlot,
    Verdicts,
    kinds,
)
from .decide import can_fall, decide
from .demand import answered as is_answered
from .demand import partial, rest_is_like
from .idleness import was_asleep
from .trace import DecisionTrace

_NONE = Specs.stack([])
_SPECS, _READINGS, _MEMORY = typeof(_NONE), typeof(Readings.unknown(0)), typeof(Memory.blank(0))
_CONSTRAINTS, _VERDICTS = typeof(Constraints.plain(_NONE)), typeof(Verdicts.blank(0))
_MASK = types.bool_[::1]


def _reader(slot: type[Any]) -> Callable[[Any, int], Any]:
    """Compiles a part that takes the slot of workload `i` out of its columns.

    numba unrolls no loop over columns of different types, so the text of the part is written here, as
    `lambda columns, i: slot(columns.minimum[i], columns.maximum[i], ...)`. Columns that are not used cost nothing.
    """
    signals = range(len(Signal))
    values = (
        f"({', '.join(f'columns.{name}[i, {signal}]' for signal in signals)})"
        if kind is PerSignal
        else f"columns.{name}[i]"
        for name, kind in kinds(slot).items()
    )
    function: Callable[[Any, int], Any] = eval(f"lambda columns, i: slot({', '.join(values)})", {"slot": slot})  # noqa: S307
    return part(function)


_spec = _reader(SpecSlot)
_constraints = _reader(ConstraintsSlot)
_readings = _reader(ReadingsSlot)
_memory = _reader(MemorySlot)


@in_place_kernel(types.void(_SPECS, _READINGS, _MEMORY, types.float64, _MASK, _MASK))
def _all_answered(
    specs: Specs, readings: Readings, memory: Memory, now: float, complete: Bools, imputed: Bools
) -> None:
    for i in range(complete.shape[0]):
        spec, reading, before = _spec(specs, i), _readings(readings, i), _memory(memory, i)
        complete[i] = is_answered(spec, reading, was_asleep(before)) and not partial(spec, reading)
        imputed[i] = not complete[i] and rest_is_like(spec, reading, before, now)


@in_place_kernel(types.void(_SPECS, _READINGS, _CONSTRAINTS, _MEMORY, types.float64, types.bool_, _VERDICTS))
def _all_decided(
    specs: Specs,
    readings: Readings,
    constraints: Constraints,
    memory: Memory,
    now: float,
    raise_only: bool,
    out: Verdicts,
) -> None:
    for i in range(out.replicas.shape[0]):
        before = _memory(memory, i)
        slots = _spec(specs, i), _readings(readings, i), _constraints(constraints, i), before
        new, _ = decide(*slots, out.demand[i], now)
        memory.idle_since[i], memory.held_since[i] = new.idle_since, new.held_since
        memory.woken_at[i], memory.incomplete_since[i] = new.woken_at, new.incomplete_since
        memory.floor[i], memory.floor_until[i] = new.floor, new.floor_until
        replicas, active, reason = new.replicas, new.active, new.reason
        if raise_only and can_fall(before) and not replicas >= before.replicas:
            # Between ticks an arrival may only raise or activate: two callers a millisecond apart must not get a lower
            # number because one response of many arrived. After an error any number is a gain.
            replicas, active, reason = before.replicas, before.active, before.reason
            if not new.active:  # it has not been put to sleep: its start-up grace goes on
                memory.woken_at[i] = before.woken_at
        out.replicas[i], out.active[i], out.reason[i] = replicas, active, reason
        if not np.isnan(replicas):
            memory.replicas[i], memory.active[i] = replicas, active
        memory.reason[i] = reason


def step(
    specs: Specs, readings: Readings, constraints: Constraints, memory: Memory, now: float, *, raise_only: bool = False
) -> tuple[Verdicts, Memory]:
    """Decides all workloads. Returns the decisions and the next memory; the arguments are not changed.

    now:        POSIX seconds.
    raise_only: for an arrival between ticks: decisions may rise or activate, never fall.
    """
    rows = specs.minimum.shape[0]
    flags, codes = np.empty(rows, dtype=np.bool_), np.empty(rows, dtype=np.int64)
    verdicts = Verdicts(np.empty(rows), flags, codes, np.empty((rows, len(Signal))))
    after = Memory._make([column.copy() for column in memory])
    _all_decided(specs, readings, constraints, after, now, raise_only, verdicts)
    return verdicts, after


@in_place_kernel((_SPECS, _READINGS, _CONSTRAINTS, _MEMORY, types.float64, types.float64[::1]))
def _first_traced(
    specs: Specs, readings: Readings, constraints: Constraints, memory: Memory, now: float, demand: Floats
) -> tuple[MemorySlot, DecisionTrace]:
    slots = _spec(specs, 0), _readings(readings, 0), _constraints(constraints, 0), _memory(memory, 0)
    return decide(*slots, demand, now)


def traced(
    specs: Specs, readings: Readings, constraints: Constraints, memory: Memory, now: float
) -> tuple[MemorySlot, DecisionTrace]:
    """How `step` decides the first workload. A kernel of its own, so that a sweep does not pay for traces."""
    return _first_traced(specs, readings, constraints, memory, now, np.empty(len(Signal)))


def answered(specs: Specs, readings: Readings, memory: Memory, now: float) -> tuple[Bools, Bools]:
    """Whether each workload's readings are complete, so that a sum is no lower bound, or some pods are imputed."""
    complete, imputed = np.zeros((2, specs.minimum.shape[0]), dtype=np.bool_)
    _all_answered(specs, readings, memory, now, complete, imputed)
    return complete, imputed


def choose(rows: np.ndarray[Any, Any] | slice, columns: Any) -> Any:
    """The same columns for some workloads only (a named tuple of arrays, indexed by `rows`)."""
    return type(columns)._make([column[rows] for column in columns])
