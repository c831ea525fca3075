"""What is fresh of some workloads, added up: what intake hands to signals and decider.

It knows columns and how missing pods are filled in; which pages count, intake knows, and when, policy.

Worked example: 3 of the 4 pods that must answer have 30 requests in hand. `impute` makes the work of that workload 40.

Of a gateway's page that several workloads read, each one's own portion: what `policy.shares` says, applied to slots.

Worked example: two members of weights 9 and 1 each have the page of one gateway, with 40 requests held. In the values
that are about to be added up, HELD becomes 36 in the one's slot and 4 in the other's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from exporter.model import Floats
from scaler.columns import Mask, Rows
from scaler.policy.columns import Readings, Signal
from scaler.policy.groups import Sharing
from scaler.policy.kernel import choose

from .slots import Column

# Shares of a GPU are sevenths: a sum of them is off by some 1e-16.
DUST = 1e-9


class GpusSeen(NamedTuple):
    """GPUs and MIG instances that fresh pages show as wholly a workload's own; every column has shape (rows,).

    shown:    how many. Of those:
    utilised: the ones that say utilisation and no engine activity,
    silent:   the ones that say neither, and
    lost:     the ones that fell silent after a fatal error.
    parts:    besides, its pods on shared GPUs that are measured by process.
    memory:   bytes held on them; NaN where no page says.
    ceiling:  the engine activity, 0..1, that their mean may top at; NaN where nothing keeps it from 1.
    """

    shown: Floats
    utilised: Floats
    silent: Floats
    lost: Floats
    parts: Floats
    memory: Floats
    ceiling: Floats

    @classmethod
    def of(cls, sums: Floats) -> GpusSeen:
        """sums: shape (rows, len(Column)), the columns of fresh pages added up."""
        counts = [Column.GPU_COUNT, Column.GPU_UTILISED, Column.GPU_SILENT, Column.GPU_LOST, Column.GPU_PARTS]
        ceiling = sums[:, Column.GPU_CEILING] / sums[:, Column.GPU_WEIGHT]
        top = np.where(ceiling < 1.0 - DUST, ceiling, np.nan)
        shown, utilised, silent, lost, parts = np.nan_to_num(sums[:, counts].T)
        return cls(shown, utilised, silent, lost, parts, sums[:, Column.GPU_MEMORY], top)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What is fresh of some workloads, added up; every column has shape (rows,), NaN where nothing is known.

    seen:     the policy's columns; its `signals` are still unknown: smoothing is not done here.
    gpus_held: GPUs that its running pods asked for, NaN where nobody says.
    gpus:     those among them that a page shows as its own.
    in_pods:  requests waiting and running in the pods that must answer and do; NaN where nothing is known.
    latest:   shape (rows, len(Signal)): each signal as it is read now. Requests in hand, wherever they are; the mean
              KV-cache use of the pods that say; the mean engine activity of the GPUs that are wholly its own.
    finished: requests finished since this process began to look, corrected for restarts.
    sleeping: pods whose engines are in sleep mode; NaN where no page says whether they are.
    leaving:  replicas on their way out that still hold their GPUs; NaN where nobody says.
    """

    seen: Readings
    gpus_held: Floats
    gpus: GpusSeen
    in_pods: Floats
    latest: Floats
    finished: Floats
    sleeping: Floats
    leaving: Floats

    @property
    def gpus_each(self) -> Floats:
        """GPUs that a replica holds, ready or not, on its way out or not; NaN where nobody says."""
        running = self.seen.existing - self.seen.pending + self.leaving
        return self.gpus_held / np.where(running > 0.0, running, np.nan)

    @property
    def kv_cache(self) -> Floats:
        return self.latest[:, Signal.KV_CACHE]

    @property
    def gpu_engine(self) -> Floats:
        return self.latest[:, Signal.GPU_ENGINE]

    def withhold(self, rows: Mask) -> Aggregate:
        """The same, where nothing is known of these workloads but when they last did something."""
        if not rows.any():
            return self
        unknown = Readings.unknown(len(rows))._replace(active_at=self.seen.active_at, refused_at=self.seen.refused_at)
        seen = (
            np.where(rows[:, None] if column.ndim > 1 else rows, blank, column)
            for blank, column in zip(unknown, self.seen, strict=True)
        )
        return replace(self, seen=Readings(*seen), latest=np.where(rows[:, None], np.nan, self.latest))

    def choose(self, rows: Rows) -> Aggregate:
        """The same for some of the workloads only."""
        return Aggregate(
            choose(rows, self.seen),
            self.gpus_held[rows],
            choose(rows, self.gpus),
            *(column[rows] for column in (self.in_pods, self.latest, self.finished, self.sleeping, self.leaving)),
        )

    def impute(self, rows: Mask) -> None:
        """For these workloads, take the pods that must answer and do not to be like the others: 30 requests in 3 of 4
        pods are 40 in all.
        """
        missing = self.seen.pods_listed[rows] / self.seen.pods_fresh[rows] - 1.0
        self.latest[rows, Signal.WORK] += np.nan_to_num(self.in_pods[rows] * missing)


def sleepers_aside(totals: Aggregate) -> Aggregate:
    """Where there is work, an engine in sleep mode is not one of the replicas that are ready for it.

    Where there is none it is as good as any other: it may be taken away. A mean over GPUs becomes one over those of the
    replicas that are awake, because those of a sleeper do nothing.
    """
    seen = totals.seen
    work = np.nan_to_num(seen.waiting) + np.nan_to_num(seen.running) + np.nan_to_num(seen.held) > 0.0
    asleep = (totals.sleeping > 0.0) & work
    if not asleep.any():
        return totals
    there = np.where(np.isnan(seen.ready), seen.pods_fresh, seen.ready)
    awake = np.maximum(there - totals.sleeping, 0.0)
    latest = totals.latest.copy()
    more = np.divide(there, awake, out=np.ones(len(there)), where=asleep & (awake > 0.0))
    latest[:, Signal.GPU_ENGINE] = np.minimum(latest[:, Signal.GPU_ENGINE] * more, 1.0)
    return replace(totals, seen=seen._replace(ready=np.where(asleep, awake, seen.ready)), latest=latest)


IN_HAND = np.array([Column.WAITING, Column.RUNNING, Column.HELD, Column.IN_FLIGHT])


class Hands(NamedTuple):
    """Of all workloads: requests in their pods, and replicas wanted and pending. NaN is unknown."""

    in_pods: Floats
    wanted: Floats
    pending: Floats


def keep_portions(sharing: Sharing, has: Hands, rows: Rows, owner: Rows, values: Floats, gateway: Mask) -> None:
    """Leave each member of a group its own part, in `values`.

    rows:   the workloads that are added up. owner: of each slot, its workload's place in them.
    values: shape (slots, len(Column)), written to. gateway: which slots are a gateway's page that is fresh.
    """
    shared = np.flatnonzero(sharing.shares(rows)[owner] & gateway)
    if not len(shared):
        return
    hands = values[shared[:, None], IN_HAND]
    # Held requests are in flight too, where a page says both.
    shown: Floats = np.where(np.isnan(hands[:, 2]), np.nansum(hands, axis=1), np.nansum(hands[:, :3], axis=1))
    waits = np.bincount(owner[shared], weights=shown, minlength=len(rows)).astype(np.float64)
    part = sharing.parts(rows, waits, sharing.capacity(has.in_pods, has.wanted, has.pending))
    values[shared[:, None], IN_HAND] = hands * part[owner[shared], None]
    values[shared, Column.READY] = np.nan  # the backends of all of them
