"""Sums slots with array operations: the compiled pass of `scaler.signals.slot_sums` must equal it bit by bit."""

import numpy as np

from scaler.policy.capacity import WorkRate
from scaler.signals.queues import Incomplete, WakeSource
from scaler.signals.slot_sums import DUST, SlotFlags, SlotSums
from scaler.signals.slots import GATEWAY, GPUS, PODS, WIDTH, Column

QUEUES = [Column.WAITING, Column.RUNNING, Column.HELD]
IN_HAND = [*QUEUES, Column.IN_FLIGHT]
OF_GATEWAY = [*IN_HAND, Column.OPEN]
# What of a fresh slot is added up: ADDED[role, column].
ADDED = np.zeros((3, WIDTH), dtype=np.bool_)
ADDED[PODS, [*QUEUES, Column.KV_CACHE, Column.SLEEPING]] = True
ADDED[PODS, Column.UNCOUNTED :] = True
ADDED[GATEWAY, [*OF_GATEWAY, Column.READY, Column.RATES + WorkRate.ARRIVED]] = True
ADDED[GPUS, Column.GPU_SUM : Column.GPU_LAG] = True
ADDED[GPUS, Column.GPU_BUSIEST] = False
GPU_COUNTS = [Column.GPU_COUNT, Column.GPU_UTILISED, Column.GPU_SILENT, Column.GPU_LOST, Column.GPU_PARTS]


def add_up(slots, rows, chosen, owner, workloads, share, now):
    count = len(rows)
    role, at, values = slots.role[chosen], slots.at[chosen], slots.values[chosen]
    fresh, incomplete = now - at <= slots.limit[chosen], slots.incomplete[chosen]
    lower, stays = (incomplete & Incomplete.IN_HAND) != 0, ~slots.leaving[chosen]
    speaks = ~np.isnan(values[:, QUEUES]).all(axis=1)
    pods = fresh & (role == PODS) & speaks & (stays | (workloads.wanted[rows][owner] != 0.0))
    gateway, gpus = fresh & (role == GATEWAY), fresh & (role == GPUS)
    silent = (role == GATEWAY) & ~fresh
    silenced = (role == PODS) & ~fresh & stays & (now - at <= slots.limit[chosen] + workloads.hold[rows][owner])
    from_before = np.bincount(owner[silenced], weights=np.nansum(values[silenced][:, QUEUES], axis=1), minlength=count)
    counts = (pods | gateway | gpus)[:, None] & ADDED[role]
    counts[~stays | (values[:, Column.SLEEPING] > 0.0), Column.KV_CACHE] = False
    counts[~stays, Column.SLEEPING] = False
    in_pods, _ = added(owner, values[:, QUEUES], np.repeat((pods & stays)[:, None], len(QUEUES), axis=1), count)

    hands = values[gateway][:, IN_HAND]
    shown = np.where(np.isnan(hands[:, 2]), np.nansum(hands, axis=1), np.nansum(hands[:, :3], axis=1))
    at_gateway = np.bincount(owner[gateway], weights=shown, minlength=count)
    shared = np.flatnonzero(gateway & ~np.isnan(share)[owner])
    values[shared[:, None], [*OF_GATEWAY, Column.RATES + WorkRate.ARRIVED]] *= share[owner[shared], None]
    values[shared, Column.READY] = np.nan

    sums, value_counts = added(owner, values, counts, count)
    busiest, measured = np.full(count, np.nan), np.full(count, np.nan)
    np.fmax.at(busiest, owner[gpus], values[gpus, Column.GPU_BUSIEST])
    np.fmin.at(measured, owner[fresh], (at - np.nan_to_num(values[:, Column.GPU_LAG]))[fresh])
    ready = np.where(np.isnan(workloads.ready[rows]), sums[:, Column.READY], workloads.ready[rows])
    ready = np.where(np.isnan(ready) & ~workloads.has_pods[rows], sums[:, Column.GPU_PODS], ready)
    idle = (ready == 0.0) | (workloads.listed[rows] == 0.0) | (workloads.wanted[rows] == 0.0)
    held = sums[:, Column.HELD]
    held = sums[:, Column.HELD] = np.where(idle & np.isnan(held), sums[:, Column.IN_FLIGHT], held)
    held = sums[:, Column.HELD] = with_unreported(sums, held)
    in_hand = nan_sum(sums[:, QUEUES])
    latest = np.full((count, 4), np.nan)
    latest[:, 0] = in_hand
    latest[:, 1] = sums[:, Column.KV_CACHE] / np.maximum(value_counts[:, Column.KV_CACHE], 1.0)
    latest[:, 2] = sums[:, Column.GPU_SUM] / sums[:, Column.GPU_WEIGHT]
    pods_fresh = tally(owner[pods & stays], count)
    asleep = (sums[:, Column.SLEEPING] > 0.0) & (np.nan_to_num(sums[:, QUEUES]).sum(axis=1) > 0.0)
    there = np.where(np.isnan(ready), pods_fresh, ready)
    awake = np.maximum(there - sums[:, Column.SLEEPING], 0.0)
    more = np.divide(there, awake, out=np.ones(count), where=asleep & (awake > 0.0))
    latest[:, 2] = np.where(asleep & (awake > 0.0), np.minimum(latest[:, 2] * more, 1.0), latest[:, 2])
    priced = sums[:, Column.GPU_PRICED] > sums[:, Column.GPU_WHOLE] - DUST
    powered = sums[:, Column.GPU_POWERED] == sums[:, Column.GPU_COUNT]
    ceiling = sums[:, Column.GPU_CEILING] / sums[:, Column.GPU_WEIGHT]
    shown, utilised, dumb, lost, parts = np.nan_to_num(sums[:, GPU_COUNTS].T)
    unproven = ((incomplete & Incomplete.COUNTERS) != 0) | (lower & ~stays)
    totals = SlotSums(
        waiting=sums[:, Column.WAITING],
        running=sums[:, Column.RUNNING],
        held=held,
        busiest_gpu=busiest,
        pods_fresh=pods_fresh,
        pods_partial=tally(owner[pods & stays & lower], count),
        in_hand_at_least=np.fmax(np.nan_to_num(in_hand) + from_before, np.nan_to_num(sums[:, Column.IN_FLIGHT])),
        ready=np.where(asleep, awake, ready),
        measured_at=measured,
        in_pods=nan_sum(in_pods),
        sleeping=sums[:, Column.SLEEPING],
        open=sums[:, Column.OPEN],
        at_gateway=at_gateway,
        gpus_shown=shown,
        gpus_utilised=utilised,
        gpus_silent=dumb,
        gpus_lost=lost,
        gpus_parts=parts,
        gpu_memory=sums[:, Column.GPU_MEMORY],
        gpu_ceiling=np.where(ceiling < 1.0 - DUST, ceiling, np.nan),
        gpus_whole=sums[:, Column.GPU_WHOLE],
        gpu_hour=np.where(priced, sums[:, Column.GPU_HOUR] / sums[:, Column.GPU_PRICED], np.nan),
        gpu_watts=np.where(powered, sums[:, Column.GPU_WATTS], np.nan),
        uncounted=np.nan_to_num(sums[:, Column.UNCOUNTED]),
    )
    flags = SlotFlags(
        gateway_fresh=(tally(owner[gateway], count) > 0) & (tally(owner[silent], count) == 0),
        gateway_partial=tally(owner[gateway & lower], count) > 0,
        kv_partial=tally(owner[pods & stays & ((incomplete & Incomplete.KV_CACHE) != 0)], count) > 0,
        unproven=tally(owner[(pods | gateway) & unproven], count) > 0,
        waker_fresh=tally(owner[gateway & (slots.wake_source[chosen] > WakeSource.NOTHING)], count) > 0,
        gpus_stale=tally(owner[~fresh & (role == GPUS)], count) > 0,
        gpus_blind=sums[:, Column.GPU_BLIND] > 0.0,
    )
    return totals, flags, latest, sums[:, Column.RATES :]


def with_unreported(sums, held):
    """With the requests that engines which sleep keep and do not report."""
    unreported = sums[:, Column.OPEN] - np.nan_to_num(sums[:, Column.WAITING]) - np.nan_to_num(sums[:, Column.RUNNING])
    return np.where((sums[:, Column.SLEEPING] > 0.0) & (unreported > 0.0), np.fmax(held, unreported), held)


def added(owner, values, mask, rows):
    """Each column of the chosen values summed per owner, NaN without a known value, and the number of known values."""
    columns = values.shape[1]
    cells = (owner[:, None] * columns + np.arange(columns)).ravel()
    has_value = mask & ~np.isnan(values)
    counts = tally(cells[has_value.ravel()], rows * columns)
    sums = np.bincount(cells[has_value.ravel()], weights=values[has_value], minlength=rows * columns)
    return np.where(counts > 0.0, sums, np.nan).reshape(rows, columns), counts.reshape(rows, columns)


def nan_sum(parts):
    has_value = ~np.isnan(parts)
    return np.where(has_value.any(axis=1), np.where(has_value, parts, 0.0).sum(axis=1), np.nan)


def tally(owner, rows):
    return np.bincount(owner, minlength=rows).astype(np.float64)
