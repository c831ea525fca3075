"""Chooses the MIG partition of each GPU that gives the most total throughput, exactly, and says when not to slice.

Workloads have replicas; a replica runs on one instance and no instance runs two. `speeds` has what a replica of a
workload reaches on a profile, relative to a whole GPU; NaN where it must not run, because it does not fit
(`allowed_speeds`) or is too slow for its SLO. The search places as many replicas as possible, and of all ways to place
as many takes the one with the largest sum of speeds times weight.

It is exact: the state is how many replicas of each workload are placed (a number in mixed radix), and only complete
partitions are tried, because an empty instance costs nothing. Per GPU model, a table has the best gain of one GPU for
each state; GPUs are added one by one. The number of states is bounded by `MOST_STATES`.

**When not to slice** (`compare`). The speeds of all replicas on one GPU add up to its throughput in whole GPUs: if even
the high ends of the bands add up to less than 1, work in turn on whole GPUs does more; if the low ends add up to more
than 1, slices do; between, the evidence does not decide. If a replica fits no slice, its memory decides.
**Time-slicing** keeps the whole GPU's speed for a replica that is alone, and has less throughput when all are busy:
0.76 requests per second and GPU against 1.00 of MIG, but 145 ms against 168 ms in bursts (NVIDIA, "Maximize AI
Infrastructure Throughput by Consolidating Underutilized GPU Workloads", March 2026: speech models, A100, 50 users). It
is better where no partition keeps every replica fast enough, all of them fit into the memory together, and their busy
times leave room for that.

Worked example: on one A100-40GB, a job with speeds 0.98, 0.97, 0.85 on 4g, 3g and 2g and one with 0.57, 0.51, 0.30:
4g+3g can give 0.57 + 0.97 = 1.54 or 0.98 + 0.51 = 1.49. So the second job gets 4g, and slicing wins by 0.54.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from math import isnan, nan
from typing import NamedTuple, TypeAlias

import numpy as np
from numba import types
from numpy.typing import NDArray

from exporter.model import Floats
from scaler.jit import FLOATS, INDICES, RESULT, Indices, kernel

from .mig import MigModel, SliceProfile, compositions
from .slice_speed import SliceSpeed

MOST_STATES = 20_000  # the product of (replicas + 1)
MOST_INSTANCES = 7  # of one GPU
# Requests per second of time-slicing for each 1.00 of MIG, same pods and load (see the module).
TIME_SLICED = 0.76
NONE = -1

Rows: TypeAlias = NDArray[np.int64]
_TABLE = types.Array(types.float64, 2, "C", readonly=True)
_ROWS = types.Array(types.int64, 2, "C", readonly=True)
_RESULTS = types.Array(types.float64, 2, "C")
_INTS = types.Array(types.int64, 1, "C")


class Assignment(NamedTuple):
    """One GPU of the plan. profiles: of its instances. workloads: of each instance, the row or None."""

    model: MigModel
    profiles: tuple[SliceProfile, ...]
    workloads: tuple[int | None, ...]


class PartitionPlan(NamedTuple):
    """gpus: in the order of the argument. placed: replicas of each workload. throughput: sum of speeds times weight."""

    gpus: tuple[Assignment, ...]
    placed: tuple[int, ...]
    throughput: float


class SliceVerdict(NamedTuple):
    """choice: `slice`, `whole`, `time-slice` or `ambiguous`. low, high: throughput of the slices in whole GPUs."""

    choice: str
    reason: str
    low: float
    high: float


def allowed_speeds(
    model: MigModel, speeds: Sequence[SliceSpeed | None], memory: float, least_speed: float = 0.0
) -> Floats:
    """The speeds of one workload on each profile of the model, NaN where it must not run. Shape (profiles,).

    memory: bytes that a replica needs; NaN (unknown) fits nothing but the whole GPU. least_speed: of its SLO; the low
    end of the band must reach it. An unknown speed is NaN too.
    """
    result = np.full(len(model.profiles), np.nan)
    for index, (profile, speed) in enumerate(zip(model.profiles, speeds, strict=True)):
        fits = memory <= profile.size or (np.isnan(memory) and profile == model.whole)
        if fits and speed is not None and speed.low >= least_speed:
            result[index] = speed.value
    return result


def plan(
    models: Sequence[MigModel],
    speeds: Mapping[str, Floats],
    replicas: Sequence[int],
    weights: Sequence[float] | None = None,
) -> PartitionPlan:
    """The best partitions of these GPUs, one entry of `models` for each GPU.

    speeds: by name of the model, shape (workloads, profiles of the model). replicas: that each workload wants at most.
    weights: the worth of a whole GPU's throughput by workload, above 0.
    Errors: ValueError if the product of (replicas + 1) is above MOST_STATES.
    """
    wanted = np.array(replicas, dtype=np.int64)
    states = int(np.prod(wanted + 1, dtype=np.float64))
    if states > MOST_STATES:
        raise ValueError(f"replicas: the product of (replicas + 1) must be at most {MOST_STATES:,}, got {states:,}")
    worth = np.ones(len(wanted)) if weights is None else np.array(weights, dtype=np.float64)
    values = {model: np.ascontiguousarray(speeds[model.name] * worth[:, None]) for model in dict.fromkeys(models)}
    # Another replica is worth more than all speeds together.
    bonus = 1.0 + len(models) * MOST_INSTANCES * max(
        np.nanmax(np.nan_to_num(each), initial=0.0) for each in values.values()
    )
    digits, strides = _digits(wanted)
    tables = {model: _gains(each + bonus, _counts(model), digits, strides) for model, each in values.items()}
    best, picks = np.full(states, -np.inf), np.full((len(models), states), NONE, dtype=np.int64)
    best[0] = 0.0
    for number, model in enumerate(models):
        best = _add_gpu(best, tables[model][0], digits, picks[number])
    state = int(best.argmax())
    placed = digits[state]
    gpus = []
    for number in range(len(models) - 1, -1, -1):
        model, usage = models[number], int(picks[number, state])
        gpus.append(_assign(model, int(tables[model][1][usage]), tuple(digits[usage].tolist()), values[model]))
        state -= usage
    throughput = sum(
        float(values[gpu.model][row, gpu.model.profiles.index(profile)])
        for gpu in gpus
        for profile, row in zip(gpu.profiles, gpu.workloads, strict=True)
        if row is not None
    )
    return PartitionPlan(tuple(reversed(gpus)), tuple(placed.tolist()), throughput)


def compare(
    speeds: Sequence[SliceSpeed | None], *, fit: bool = True, together: bool = False, busy: Sequence[float] = ()
) -> SliceVerdict:
    """Whether to slice one GPU for replicas with these speeds on their slices of the best partition.

    speeds: None where it is not known: then the throughput is NaN and the verdict `ambiguous`.
    fit: whether every replica fits some slice and reaches its least speed there. together: whether all fit into the
    memory of the whole GPU at once. busy: fraction of the time that each replica alone keeps the whole GPU busy.
    """
    low = sum(nan if each is None else each.low for each in speeds)
    high = sum(nan if each is None else each.high for each in speeds)
    if not fit:
        # How MIG compares with the whole GPU was not published. At its throughput, TIME_SLICED of the time is usable.
        if together and busy and sum(busy) <= TIME_SLICED:
            reason = f"no partition is fast enough for each, and all are busy {sum(busy):.2f} of the time together"
            return SliceVerdict("time-slice", reason, low, high)
        return SliceVerdict("whole", "a replica fits no slice, or is too slow on each", low, high)
    if isnan(low):
        return SliceVerdict("ambiguous", "the speed of a replica on its slice is not known", low, high)
    if low > 1.0:
        return SliceVerdict("slice", f"the slices do at least {low:.2f} times the work of the whole GPU", low, high)
    if high < 1.0:
        return SliceVerdict("whole", f"the slices do at most {high:.2f} times the work of the whole GPU", low, high)
    return SliceVerdict("ambiguous", f"the slices do {low:.2f} to {high:.2f} times the work", low, high)


@lru_cache(maxsize=64)
def _counts(model: MigModel) -> Rows:
    return np.array(compositions(model), dtype=np.int64)


def _digits(wanted: Indices) -> tuple[Rows, Indices]:
    """Replicas of each workload by state, shape (states, workloads), and what one replica adds to the state."""
    strides = np.concatenate([[1], np.cumprod(wanted[:-1] + 1)]).astype(np.int64)[: len(wanted)]
    states = np.arange(int(np.prod(wanted + 1)))
    return np.ascontiguousarray(states[:, None] // strides % (wanted + 1)), strides


def _assign(model: MigModel, composition: int, usage: tuple[int, ...], values: Floats) -> Assignment:
    """The best assignment of these replicas to the instances of a composition. values: shape (workloads, profiles)."""
    instances = [index for index, count in enumerate(compositions(model)[composition]) for _ in range(count)]

    @cache
    def best(position: int, left: tuple[int, ...]) -> tuple[float, tuple[int | None, ...]]:
        """The largest sum of the instances from `position` on if exactly `left` is placed there, and the rows."""
        if position == len(instances):
            return (-np.inf if any(left) else 0.0), ()
        rest, rows = best(position + 1, left)
        options: list[tuple[float, tuple[int | None, ...]]] = [(rest, (None, *rows))]
        for row, count in enumerate(left):
            value = float(values[row, instances[position]])
            if count and not isnan(value):
                rest, rows = best(position + 1, (*left[:row], count - 1, *left[row + 1 :]))
                options.append((value + rest, (row, *rows)))
        return max(options, key=lambda option: option[0])

    return Assignment(model, tuple(model.profiles[index] for index in instances), best(0, usage)[1])


@kernel(_RESULTS(_TABLE, _ROWS, _ROWS, INDICES))
def _gains(values: Floats, counts: Rows, digits: Rows, strides: Indices) -> Floats:
    """The most that one GPU gains by the replicas placed on it, and the composition that does. Shape (2, states).

    values: of a replica on a profile, NaN where it must not run. -inf and NONE for states that no composition can hold.
    """
    states, workloads = digits.shape
    result = np.empty((2, states))
    result[0], result[1] = -np.inf, NONE
    for composition in range(counts.shape[0]):
        table = np.full(states, -np.inf)
        table[0] = 0.0
        for profile in range(counts.shape[1]):
            for _ in range(counts[composition, profile]):
                # One more instance: from the last state down, so that it holds one replica at most.
                for state in range(states - 1, 0, -1):
                    for row in range(workloads):
                        value = values[row, profile]
                        if digits[state, row] > 0 and not np.isnan(value):
                            table[state] = max(table[state], table[state - strides[row]] + value)
        for state in range(states):
            if table[state] > result[0, state]:
                result[0, state], result[1, state] = table[state], composition
    return result


@kernel(RESULT(FLOATS, FLOATS, _ROWS, _INTS))
def _add_gpu(best: Floats, gain: Floats, digits: Rows, pick: Indices) -> Floats:
    """The most that the GPUs so far and one more gain, by state. pick: the state of that one GPU; written."""
    states, workloads = digits.shape
    result = np.full(states, -np.inf)
    for usage in range(states):
        if gain[usage] == -np.inf:
            continue
        for before in range(states):
            if best[before] == -np.inf:
                continue
            fits = True
            for row in range(workloads):
                if digits[before, row] + digits[usage, row] > digits[states - 1, row]:
                    fits = False
                    break
            if fits and best[before] + gain[usage] > result[before + usage]:
                result[before + usage] = best[before] + gain[usage]
                pick[before + usage] = usage
    return result
