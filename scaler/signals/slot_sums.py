"""Adds up the fresh slots of some workloads in one compiled pass over them.

The pass costs the same for one workload as for one of ten thousand: a response that lands decides its workload alone,
and some two hundred small array operations would take forty times as long as the sums themselves. A mean is over what
is known; a sum of nothing is NaN, never 0.

Worked example: two fresh pods of one workload have 3 and 4 requests waiting, a third one has not answered for 20 s and
had 2: `waiting` is 7, `in_hand_at_least` is 9, and `pods_fresh` is 2.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numba import typeof, types
from numpy.typing import NDArray

from exporter.model import Floats
from scaler.columns import Mask, Rows
from scaler.jit import FLOATS, INDICES, NUMBER, in_place_kernel, part
from scaler.policy.capacity import WorkRate
from scaler.policy.columns import Signal

from .queues import Incomplete, WakeSource
from .slots import GATEWAY, GPUS, PODS, WIDTH, Column, Slots

# Shares of a GPU are sevenths: a sum of them is off by some 1e-16.
DUST = 1e-9

Bytes: TypeAlias = NDArray[np.int8]

_RATES, _UNCOUNTED = int(Column.RATES), int(Column.UNCOUNTED)
_RATE_COUNT = len(WorkRate)
# A kernel takes plain numbers.
_WAITING, _RUNNING, _HELD, _IN_FLIGHT = map(int, (Column.WAITING, Column.RUNNING, Column.HELD, Column.IN_FLIGHT))
_KV_CACHE, _READY, _SLEEPING = int(Column.KV_CACHE), int(Column.READY), int(Column.SLEEPING)
_OPEN, _ARRIVED = int(Column.OPEN), int(Column.RATES) + int(WorkRate.ARRIVED)
_GPU_SUM, _GPU_WEIGHT, _GPU_BUSIEST = int(Column.GPU_SUM), int(Column.GPU_WEIGHT), int(Column.GPU_BUSIEST)
_GPU_PODS, _GPU_BLIND, _GPU_LAG = int(Column.GPU_PODS), int(Column.GPU_BLIND), int(Column.GPU_LAG)
_GPU_COUNT, _GPU_UTILISED, _GPU_SILENT = int(Column.GPU_COUNT), int(Column.GPU_UTILISED), int(Column.GPU_SILENT)
_GPU_LOST, _GPU_PARTS = int(Column.GPU_LOST), int(Column.GPU_PARTS)
_GPU_MEMORY, _GPU_CEILING = int(Column.GPU_MEMORY), int(Column.GPU_CEILING)
_GPU_WHOLE, _GPU_PRICED, _GPU_HOUR = int(Column.GPU_WHOLE), int(Column.GPU_PRICED), int(Column.GPU_HOUR)
_GPU_POWERED, _GPU_WATTS = int(Column.GPU_POWERED), int(Column.GPU_WATTS)
_PARTIAL_IN_HAND, _PARTIAL_COUNTERS = int(Incomplete.IN_HAND), int(Incomplete.COUNTERS)
_PARTIAL_KV_CACHE, _NO_WAKE_SOURCE = int(Incomplete.KV_CACHE), int(WakeSource.NOTHING)
_WORK, _KV, _GPU = int(Signal.WORK), int(Signal.KV_CACHE), int(Signal.GPU_ENGINE)
_SLO = int(Signal.SLO)
_LARGEST = float(np.finfo(np.float64).max)


class PerWorkload(NamedTuple):
    """Inputs of the sums for each workload beside its slots, shape (workloads,); NaN unknown. Counts are the cluster's.

    hold:     seconds for which the last requests of an engine that does not answer count as in hand.
    has_pods: its engines are scraped.
    """

    listed: Floats
    wanted: Floats
    ready: Floats
    hold: Floats
    has_pods: Mask


class SlotSums(NamedTuple):
    """The sums of some workloads, shape (rows,); the names are those of `Readings` and `Aggregate`.

    at_gateway: requests that fresh gateway pages show, before they are shared among workloads.
    gpus_whole: `gpus_shown` in whole GPUs. gpu_hour: the price of one of these for an hour. gpu_watts: their power. NaN
               unless it is known of all.
    uncounted: engines that expose no counters of tokens.
    """

    waiting: Floats
    running: Floats
    held: Floats
    busiest_gpu: Floats
    pods_fresh: Floats
    pods_partial: Floats
    in_hand_at_least: Floats
    ready: Floats
    measured_at: Floats
    in_pods: Floats
    sleeping: Floats
    open: Floats
    at_gateway: Floats
    gpus_shown: Floats
    gpus_utilised: Floats
    gpus_silent: Floats
    gpus_lost: Floats
    gpus_parts: Floats
    gpu_memory: Floats
    gpu_ceiling: Floats
    gpus_whole: Floats
    gpu_hour: Floats
    gpu_watts: Floats
    uncounted: Floats


class SlotFlags(NamedTuple):
    """Flags of the slots of some workloads, shape (rows,); see `Readings`."""

    gateway_fresh: Mask
    gateway_partial: Mask
    kv_partial: Mask
    unproven: Mask
    waker_fresh: Mask
    gpus_stale: Mask
    gpus_blind: Mask


class _Columns(NamedTuple):
    """The columns of `Slots` that sums are made of."""

    role: Bytes
    at: Floats
    values: Floats
    incomplete: Bytes
    wake_source: Bytes
    leaving: Mask
    limit: Floats


class _Partial(NamedTuple):
    """Intermediate sums of the pass over the slots, one row per workload.

    sums, present:  shape (rows, WIDTH): what is added up, and how many slots say it.
    in_pods, pods_say: shape (rows, 3): the same of requests waiting, running and held in pods that stay.
    counts:         shape (rows, _COUNTS): slots of each kind.
    from_before:    the last requests in hand of engines that do not answer.
    """

    sums: Floats
    present: Floats
    in_pods: Floats
    pods_say: Floats
    counts: Floats
    from_before: Floats
    at_gateway: Floats
    busiest: Floats
    measured: Floats


_COUNTS = 9
(
    _PODS, _PODS_PARTIAL, _PODS_KV_PARTIAL, _UNPROVEN, _GATEWAYS, _GATEWAYS_PARTIAL, _GATEWAYS_STALE, _WAKE_SOURCES,
    _GPUS_STALE,
) = range(_COUNTS)  # fmt: skip


@part
def _number(value: float) -> float:
    """As `np.nan_to_num`: 0 for NaN."""
    return 0.0 if np.isnan(value) else min(max(value, -_LARGEST), _LARGEST)


@part
def _sum_present(first: float, second: float, third: float) -> float:
    if np.isnan(first) and np.isnan(second) and np.isnan(third):
        return np.nan
    out = 0.0 if np.isnan(first) else first
    out += 0.0 if np.isnan(second) else second
    out += 0.0 if np.isnan(third) else third
    return out


@part
def _in_hand(values: Floats, slot: int) -> float:
    return _sum_present(values[slot, _WAITING], values[slot, _RUNNING], values[slot, _HELD])


@part
def _add_stale(columns: _Columns, slot: int, age_s: float, hold: float, to: int, partial: _Partial) -> None:
    role = columns.role[slot]
    if role == GATEWAY:
        partial.counts[to, _GATEWAYS_STALE] += 1.0
    elif role == GPUS:
        partial.counts[to, _GPUS_STALE] += 1.0
    elif not columns.leaving[slot] and age_s <= columns.limit[slot] + hold:
        in_hand = _in_hand(columns.values, slot)
        partial.from_before[to] += 0.0 if np.isnan(in_hand) else in_hand


@part
def _counts_as_pod(columns: _Columns, slot: int, wanted: float) -> bool:
    """Whether a fresh engine's response is added up: it must speak of queues.

    What a pod on its way out still works on keeps a workload awake and the others from being fewer; but where zero is
    wanted it is no reason for one that is not there.
    """
    return not np.isnan(_in_hand(columns.values, slot)) and (not columns.leaving[slot] or wanted != 0.0)


@part
def _add_pod(columns: _Columns, slot: int, to: int, partial: _Partial) -> None:
    incomplete = columns.incomplete[slot]
    partial.counts[to, _PODS] += 1.0
    if incomplete & _PARTIAL_IN_HAND:
        partial.counts[to, _PODS_PARTIAL] += 1.0
    if incomplete & _PARTIAL_KV_CACHE:
        partial.counts[to, _PODS_KV_PARTIAL] += 1.0
    for column in range(3):
        value = columns.values[slot, _WAITING + column]
        if not np.isnan(value):
            partial.in_pods[to, column] += value
            partial.pods_say[to, column] += 1.0


@part
def _add_gateway(columns: _Columns, slot: int, to: int, partial: _Partial) -> None:
    partial.counts[to, _GATEWAYS] += 1.0
    if columns.incomplete[slot] & _PARTIAL_IN_HAND:
        partial.counts[to, _GATEWAYS_PARTIAL] += 1.0
    if columns.wake_source[slot] > _NO_WAKE_SOURCE:
        partial.counts[to, _WAKE_SOURCES] += 1.0
    in_hand, in_flight = _in_hand(columns.values, slot), columns.values[slot, _IN_FLIGHT]
    shown = 0.0 if np.isnan(in_hand) else in_hand
    # Held requests are in flight too, where a gateway says both.
    if np.isnan(columns.values[slot, _HELD]) and not np.isnan(in_flight):
        shown += in_flight
    partial.at_gateway[to] += shown


@part
def _add_columns(columns: _Columns, slot: int, first: int, end: int, factor: float, to: int, partial: _Partial) -> None:
    """Adds the columns from `first` to `end`, times `factor`, without branches: most are rates of engines."""
    for column in range(first, end):
        value = columns.values[slot, column]
        shown = not np.isnan(value)
        partial.sums[to, column] += value * factor if shown else 0.0
        partial.present[to, column] += 1.0 if shown else 0.0


@part
def _add_pod_columns(columns: _Columns, slot: int, to: int, partial: _Partial) -> None:
    _add_columns(columns, slot, _WAITING, _HELD + 1, 1.0, to, partial)
    _add_columns(columns, slot, _UNCOUNTED, WIDTH, 1.0, to, partial)
    if columns.leaving[slot]:
        return
    _add_columns(columns, slot, _SLEEPING, _SLEEPING + 1, 1.0, to, partial)
    if not columns.values[slot, _SLEEPING] > 0.0:  # a mean over what carries load
        _add_columns(columns, slot, _KV_CACHE, _KV_CACHE + 1, 1.0, to, partial)


@part
def _add_gateway_columns(columns: _Columns, slot: int, share: float, to: int, partial: _Partial) -> None:
    shared = not np.isnan(share)
    factor = share if shared else 1.0
    _add_columns(columns, slot, _WAITING, _HELD + 1, factor, to, partial)
    if not shared:  # else they are the backends of all that share
        _add_columns(columns, slot, _READY, _READY + 1, 1.0, to, partial)
    _add_columns(columns, slot, _IN_FLIGHT, _OPEN + 1, factor, to, partial)
    _add_columns(columns, slot, _ARRIVED, _ARRIVED + 1, factor, to, partial)


@part
def _add_fresh(columns: _Columns, slot: int, wanted: float, share: float, to: int, partial: _Partial) -> None:
    role, leaving = columns.role[slot], columns.leaving[slot]
    measured_at = columns.at[slot] - _number(columns.values[slot, _GPU_LAG])
    partial.measured[to] = np.fmin(partial.measured[to], measured_at)
    if role == PODS:
        if not _counts_as_pod(columns, slot, wanted):
            return
        if not leaving:
            _add_pod(columns, slot, to, partial)
        _add_pod_columns(columns, slot, to, partial)
    elif role == GATEWAY:
        _add_gateway(columns, slot, to, partial)
        _add_gateway_columns(columns, slot, share, to, partial)
    else:
        _add_columns(columns, slot, _GPU_SUM, _GPU_BUSIEST, 1.0, to, partial)
        _add_columns(columns, slot, _GPU_BUSIEST + 1, _GPU_LAG, 1.0, to, partial)
        partial.busiest[to] = np.fmax(partial.busiest[to], columns.values[slot, _GPU_BUSIEST])
    lower_bound = _PARTIAL_COUNTERS | _PARTIAL_IN_HAND if leaving else _PARTIAL_COUNTERS
    if role != GPUS and columns.incomplete[slot] & lower_bound:
        partial.counts[to, _UNPROVEN] += 1.0


@part
def _forget_unknown(sums: Floats, present: Floats, to: int) -> None:
    """A sum of nothing is NaN."""
    for column in range(sums.shape[1]):
        if present[to, column] == 0.0:
            sums[to, column] = np.nan


@part
def _ready(added: Floats, counted: float, has_pods: bool) -> float:
    """Ready replicas: what the cluster counts, else what a gateway does, else the pods of batch work on its GPUs."""
    ready = added[_READY] if np.isnan(counted) else counted
    return added[_GPU_PODS] if np.isnan(ready) and not has_pods else ready


@part
def _awake(added: Floats, ready: float, gpu_mean: float, pods: float) -> tuple[float, float]:
    """Ready replicas, and the mean over their GPUs, without engines in sleep mode.

    Where there is work, such an engine is not one of the replicas that are ready for it. Where there is none it is as
    good as any other: it may be taken away. The GPUs of a sleeper do nothing.
    """
    work = _number(added[_WAITING]) + _number(added[_RUNNING]) + _number(added[_HELD]) > 0.0
    if not work or not added[_SLEEPING] > 0.0:
        return ready, gpu_mean
    there = pods if np.isnan(ready) else ready
    awake = max(there - added[_SLEEPING], 0.0)
    if awake > 0.0 and not np.isnan(gpu_mean):
        gpu_mean = min(gpu_mean * (there / awake), 1.0)
    return awake, gpu_mean


@part
def _finish(
    workloads: PerWorkload, row: int, to: int, partial: _Partial, out: SlotSums, latest: Floats, rates: Floats
) -> None:
    _forget_unknown(partial.sums, partial.present, to)
    _forget_unknown(partial.in_pods, partial.pods_say, to)
    added, count = partial.sums[to], partial.counts[to]
    # Where nothing is ready, what passes through a gateway waits there.
    ready = _ready(added, workloads.ready[row], workloads.has_pods[row])
    idle = ready == 0.0 or workloads.listed[row] == 0.0 or workloads.wanted[row] == 0.0
    if idle and np.isnan(added[_HELD]):
        added[_HELD] = added[_IN_FLIGHT]
    # An engine that sleeps keeps a request and does not report it.
    unreported = added[_OPEN] - _number(added[_WAITING]) - _number(added[_RUNNING])
    if added[_SLEEPING] > 0.0 and unreported > 0.0:
        added[_HELD] = np.fmax(added[_HELD], unreported)
    in_hand = _sum_present(added[_WAITING], added[_RUNNING], added[_HELD])
    ready, gpu_mean = _awake(added, ready, added[_GPU_SUM] / added[_GPU_WEIGHT], count[_PODS])
    ceiling = added[_GPU_CEILING] / added[_GPU_WEIGHT]
    latest[to, _WORK], latest[to, _GPU] = in_hand, gpu_mean
    latest[to, _KV] = added[_KV_CACHE] / max(partial.present[to, _KV_CACHE], 1.0)
    out.waiting[to], out.running[to], out.held[to] = added[_WAITING], added[_RUNNING], added[_HELD]
    out.busiest_gpu[to], out.measured_at[to] = partial.busiest[to], partial.measured[to]
    out.pods_fresh[to], out.pods_partial[to], out.ready[to] = count[_PODS], count[_PODS_PARTIAL], ready
    out.in_hand_at_least[to] = max(_number(in_hand) + partial.from_before[to], _number(added[_IN_FLIGHT]))
    out.in_pods[to] = _sum_present(partial.in_pods[to, 0], partial.in_pods[to, 1], partial.in_pods[to, 2])
    out.sleeping[to], out.at_gateway[to] = added[_SLEEPING], partial.at_gateway[to]
    out.open[to] = added[_OPEN]
    out.gpus_shown[to], out.gpus_utilised[to] = _number(added[_GPU_COUNT]), _number(added[_GPU_UTILISED])
    out.gpus_silent[to], out.gpus_lost[to] = _number(added[_GPU_SILENT]), _number(added[_GPU_LOST])
    out.gpus_parts[to], out.gpu_memory[to] = _number(added[_GPU_PARTS]), added[_GPU_MEMORY]
    out.gpu_ceiling[to] = ceiling if ceiling < 1.0 - DUST else np.nan
    out.gpus_whole[to] = added[_GPU_WHOLE]
    all_priced = added[_GPU_PRICED] > added[_GPU_WHOLE] - DUST
    out.gpu_hour[to] = added[_GPU_HOUR] / added[_GPU_PRICED] if all_priced else np.nan
    out.gpu_watts[to] = added[_GPU_WATTS] if added[_GPU_POWERED] == added[_GPU_COUNT] else np.nan
    out.uncounted[to] = _number(added[_UNCOUNTED])
    latest[to, _SLO] = np.nan
    for rate in range(_RATE_COUNT):
        rates[to, rate] = added[_RATES + rate]


@part
def _flag(partial: _Partial, to: int, flags: SlotFlags) -> None:
    count = partial.counts[to]
    flags.gateway_fresh[to] = count[_GATEWAYS] > 0.0 and count[_GATEWAYS_STALE] == 0.0
    flags.gateway_partial[to] = count[_GATEWAYS_PARTIAL] > 0.0
    flags.kv_partial[to] = count[_PODS_KV_PARTIAL] > 0.0
    flags.unproven[to] = count[_UNPROVEN] > 0.0
    flags.waker_fresh[to] = count[_WAKE_SOURCES] > 0.0
    flags.gpus_stale[to] = count[_GPUS_STALE] > 0.0
    flags.gpus_blind[to] = partial.sums[to, _GPU_BLIND] > 0.0


def _columns_of(slots: Slots) -> _Columns:
    return _Columns(slots.role, slots.at, slots.values, slots.incomplete, slots.wake_source, slots.leaving, slots.limit)


def _blank(count: int) -> tuple[SlotSums, SlotFlags, Floats, Floats]:
    sums, flags = np.empty((len(SlotSums._fields), count)), np.empty((len(SlotFlags._fields), count), dtype=np.bool_)
    return SlotSums(*sums), SlotFlags(*flags), np.empty((count, len(Signal))), np.empty((count, len(WorkRate)))


def _nothing_added(rows: int) -> _Partial:
    return _Partial(
        np.zeros((rows, WIDTH)),
        np.zeros((rows, WIDTH)),
        np.zeros((rows, 3)),
        np.zeros((rows, 3)),
        np.zeros((rows, _COUNTS)),
        np.zeros(rows),
        np.zeros(rows),
        np.full(rows, np.nan),
        np.full(rows, np.nan),
    )


_NUMBERS = np.empty(0)
_NO_WORKLOADS = PerWorkload(_NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS, np.empty(0, dtype=np.bool_))


@in_place_kernel(
    types.void(
        INDICES, INDICES, INDICES, typeof(_columns_of(Slots.empty(0))),  # type: ignore[no-untyped-call]
        typeof(_NO_WORKLOADS), FLOATS, NUMBER, typeof(_nothing_added(0)),  # type: ignore[no-untyped-call]
        *(typeof(each) for each in _blank(0)),  # type: ignore[no-untyped-call]
    )
)  # fmt: skip
def _add_up(
    rows: Rows,
    slots: Rows,
    position: Rows,
    columns: _Columns,
    workloads: PerWorkload,
    share: Floats,
    now: float,
    partial: _Partial,
    out: SlotSums,
    flags: SlotFlags,
    latest: Floats,
    rates: Floats,
) -> None:
    count = rows.shape[0]
    for index in range(slots.shape[0]):
        slot, to = slots[index], position[index]
        row, age_s = rows[to], now - columns.at[slots[index]]
        if age_s <= columns.limit[slot]:
            _add_fresh(columns, slot, workloads.wanted[row], share[to], to, partial)
        else:
            _add_stale(columns, slot, age_s, workloads.hold[row], to, partial)
    for to in range(count):
        _finish(workloads, rows[to], to, partial, out, latest, rates)
        _flag(partial, to, flags)


def add_up(
    slots: Slots, rows: Rows, chosen: Rows, position: Rows, workloads: PerWorkload, share: Floats, now: float
) -> tuple[SlotSums, SlotFlags, Floats, Floats]:
    """The sums of `rows`, what holds of them, each signal as it is read now, shape (rows, len(Signal)), and the rates
    of the engines' counters, shape (rows, len(WorkRate)).

    chosen: the slots of these workloads. position: for each of them, the index of its workload in `rows`.
    share:  shape (rows,): the part (0..1) of its gateway's requests that is the workload's; NaN if it shares with none.
    now:    POSIX seconds. What is older than its limit is left out.
    """
    out, flags, latest, rates = _blank(len(rows))
    partial = _nothing_added(len(rows))
    _add_up(rows, chosen, position, _columns_of(slots), workloads, share, now, partial, out, flags, latest, rates)
    return out, flags, latest, rates
