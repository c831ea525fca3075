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
from scaler.policy.kernel import choose

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
