"""Limits the decisions of a sweep to what their shares of the GPUs have room for. Pure; `policy.sharing` divides.

A sweep decides all workloads without limits, which shows what each wants. The GPUs are divided, and where a workload
gets less, all are decided again with the room of each as a constraint: the same kernel clamps them, and a log entry
can be explained. No decision falls below one replica, or the minimum, of an active workload: its pods then wait for a
GPU. A workload whose reading is held, incomplete or unknown, a frozen and an observed one take no part: what their
pods use is used.

An idle workload that gets no room ends its keep-warm time at `keep_warm_min`, if it is proven idle and may sleep. All
proofs of the kernel hold: only the time that it waits for is shorter.

Between sweeps a response may raise a decision by what no workload wants. Those of one moment see the same rest; the
next sweep corrects what they take twice.

Worked example: 8 GPUs, one each per replica. `chat` of priority 10 wants 6, `batch` holds 5 and wants 5: `chat` has
room for 6 and `batch` for 2, with the reason `capacity_limited`. Another node of 8 GPUs: both get all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from exporter.model import Floats
from scaler.columns import Mask, Rows
from scaler.policy.columns import HELD, INCOMPLETE, NO_WAKE_SOURCE, UNKNOWN, WARM, Constraints, Ints, Specs, Verdicts
from scaler.policy.groups import Decided
from scaler.policy.sharing import Wishes, divide
from scaler.workloads.gpu_supply import GpuSupply
from scaler.workloads.spec import WorkloadSpec

_NO_PART = (HELD, INCOMPLETE, UNKNOWN)


class Idleness(NamedTuple):
    """shortest: seconds after which an idle workload may sleep for another; shape (rows,). now: POSIX seconds."""

    shortest: Floats
    now: float


class GpuLimits:
    """The limits of a fixed list of workloads. supply: of the last sweep; None: GPUs are not shared, or unknown."""

    def __init__(self, plans: Sequence[WorkloadSpec], observed: Mask) -> None:
        """observed: the decider's own array, which it changes in place."""
        self.supply: GpuSupply | None = None
        self._priority = np.array([plan.share.priority for plan in plans], dtype=float)
        self._weight = np.array([plan.share.weight for plan in plans], dtype=float)
        self._observed = observed
        order = sorted(range(len(plans)), key=lambda row: plans[row].workload)
        self._rank = np.empty(len(plans), dtype=np.int64)
        self._rank[order] = np.arange(len(plans))
        self._granted: Floats | None = None  # replicas; inf: without a limit. None: no sweep has divided
        self._left, self._quota_left = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)

    def replan(self, rows: Rows, fresh: GpuLimits) -> None:
        """Takes the priorities and weights of `rows` from `fresh`, which has only these, in their order."""
        self._priority[rows], self._weight[rows] = fresh._priority, fresh._weight

    def settle(
        self,
        specs: Specs,
        standing: Constraints,
        decided: Decided,
        idleness: Idleness,
        again: Callable[[Constraints], Decided],
    ) -> tuple[Constraints, Decided]:
        """The constraints and the decisions with limits.

        standing: the constraints without limits. decided: all workloads by them. again: decides all by others.
        """
        supply, verdicts = self.supply, decided.verdicts
        if supply is None:
            self._granted = None
            return standing, decided
        takes = (supply.gpus > 0) & ~np.isnan(verdicts.replicas) & ~np.isin(verdicts.reason, _NO_PART)
        takes &= ~standing.frozen & ~self._observed & ~specs.jobs
        idle = takes & verdicts.active & ~np.isnan(decided.memory.idle_since) & (decided.needed == 0.0)
        idle &= np.isin(verdicts.reason, (WARM, NO_WAKE_SOURCE))
        ends = idle & _may_sleep(specs, standing, decided, idleness)
        placed, granted = self._divide(supply, specs, standing, verdicts, takes, idle, ends)
        ended = ends & (placed < verdicts.replicas)
        room = self._room(supply, granted)
        limited = takes & (verdicts.replicas > np.maximum(np.maximum(specs.minimum, 1.0), room))
        predicted = ended & (standing.floor_reason == WARM)
        standing = standing._replace(
            room=room,
            keep_warm=np.where(ended, np.minimum(standing.keep_warm, idleness.shortest), standing.keep_warm),
            floor=np.where(predicted, 0.0, standing.floor),
        )
        if limited.any() or ended.any():
            return standing, again(standing)
        return standing, decided._replace(standing=decided.standing._replace(room=room))

    def rise(self, rows: Rows, verdicts: Verdicts, standing: Constraints) -> Constraints:
        """The constraints of all workloads after `rows` have risen between two sweeps. standing: those before."""
        supply, granted = self.supply, self._granted
        if supply is None or granted is None:
            return standing
        risen = np.flatnonzero(verdicts.replicas > granted[rows])  # False where it is unknown
        if not len(risen):
            return standing
        for index in risen.tolist():
            row = int(rows[index])
            self._take(supply, row, int((verdicts.replicas[index] - granted[row]) * supply.gpus[row]))
            granted[row] = verdicts.replicas[index]
        return standing._replace(room=self._room(supply, granted))

    def _take(self, supply: GpuSupply, row: int, gpus: int) -> None:
        """Takes GPUs of what is left, in the order in which the workload tries the kinds."""
        kinds = supply.kinds[row][supply.kinds[row] >= 0]
        for quota in supply.quota[row][supply.quota[row] >= 0]:
            self._quota_left[quota] = max(self._quota_left[quota] - gpus, 0)
        for kind in (*kinds.tolist(), *(kinds + len(supply.room)).tolist()):
            part = min(gpus, int(self._left[kind]))
            self._left[kind] -= part
            gpus -= part

    def _divide(
        self,
        supply: GpuSupply,
        specs: Specs,
        standing: Constraints,
        verdicts: Verdicts,
        takes: Mask,
        idle: Mask,
        ends: Mask,
    ) -> tuple[Floats, Floats]:
        """The replicas that have room on GPUs, and those with the ones that may wait for the cluster to grow."""
        gpus = np.maximum(supply.gpus, 1)
        held = supply.staying // gpus[:, None]
        there = held.sum(axis=1)
        kept = np.minimum(np.where(verdicts.active, np.maximum(specs.minimum, 1.0), 0.0).astype(np.int64), there)
        kept = np.where(standing.never_down, there, np.where(ends, 0, kept))
        mine = takes[:, None] & (supply.quota >= 0)
        returned = np.bincount(supply.quota[mine], weights=supply.requested[mine], minlength=len(supply.quotas))
        quotas = supply.quotas + returned.astype(np.int64)
        shares = divide(
            free_gpus(supply, takes),
            supply.growth,
            np.maximum(quotas, 0),
            Wishes(
                demand=np.where(takes, verdicts.replicas, np.nan),
                gpus=gpus,
                kinds=supply.kinds,
                priority=self._priority,
                weight=self._weight,
                idle=idle,
                rank=self._rank,
                held=held,
                kept=kept,
                quota=supply.quota,
            ),
        )
        self._left, self._quota_left = shares.left, shares.quota_left
        placed = shares.placed.sum(axis=1)
        self._granted = np.where(takes, placed + shares.pending.sum(axis=1), np.inf)
        return placed, self._granted

    def _room(self, supply: GpuSupply, granted: Floats) -> Floats:
        """What each workload may have: what it was granted, and what no workload wants."""
        left = np.append(self._left, 0)  # for kinds that are NONE
        shared = np.where(supply.kinds < 0, -1, supply.kinds)
        grown = np.where(supply.kinds < 0, -1, supply.kinds + len(supply.room))
        gpus = np.maximum(supply.gpus, 1)
        more = (left[shared] // gpus[:, None]).sum(axis=1) + (left[grown] // gpus[:, None]).sum(axis=1)
        by_quota = np.append(self._quota_left, np.iinfo(np.int64).max)[supply.quota].min(axis=1) // gpus
        room: Floats = granted + np.minimum(more, by_quota)
        return room


def _may_sleep(specs: Specs, standing: Constraints, decided: Decided, idleness: Idleness) -> Mask:
    """Which idle workloads go to zero if their keep-warm time is the shortest."""
    since, readings = decided.memory.idle_since, decided.readings
    longest_ago = np.fmax(since, np.where(np.isnan(readings.refused_at), -np.inf, readings.refused_at))
    proven: Mask = specs.sleeps & readings.waker_fresh & (idleness.now - longest_ago >= idleness.shortest)
    # What a schedule, a brake or a start without state keeps does not sleep for others.
    free = ~(standing.floor > 0.0) | (standing.floor_reason == WARM)
    proven &= free & ~standing.never_down & ~(decided.memory.floor > 0.0)
    return proven


def free_gpus(supply: GpuSupply, takes: Mask) -> Ints:
    """GPUs by kind that no pod of another uses. takes: the workloads among which they are divided.

    What pods of others wait for is taken from the kinds with the most.
    """
    free: Ints = supply.room + supply.held[takes].sum(axis=0)
    for kind in np.flatnonzero(supply.open & (free < 0)):
        missing = -int(free[kind])
        labelled = np.flatnonzero((supply.resource == supply.resource[kind]) & ~supply.open)
        for source in labelled[np.argsort(-free[labelled], kind="stable")]:
            part = min(missing, max(int(free[source]), 0))
            free[source] -= part
            missing -= part
    return free.clip(min=0)
