"""Counts replicas and GPUs in the cluster for the control loop: in parts before a tick, and the rest at the tick.

Counting 10,000 pods takes 0.1 s, in which no call would be answered. What changes after its part was counted is counted
by the tick.

Worked example: 2,500 workloads have appeared. `prepare` counts 100 of them at a time; then `tick` counts the three that
have changed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import structlog

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.workloads.pods import COUNTED_AT_ONCE, Counting
from scaler.workloads.supply_table import SupplySource

from .decider import Decider


class Counted(NamedTuple):
    """A list of workloads. scaled: those of each scale target. targets: the scale target of each."""

    decider: Decider
    scaled: Mapping[Ref, Collection[WorkloadKey]]
    targets: Mapping[WorkloadKey, Ref]


class ClusterCounts:
    """counting: of replicas. supply: of the GPUs that workloads share; None if they share none.

    present: the present list of workloads. failed: reports that a count has failed.
    """

    def __init__(
        self,
        counting: Counting,
        supply: SupplySource | None,
        cluster: Cluster | None,
        present: Callable[[], Counted],
        failed: Callable[[], None],
    ) -> None:
        self.counting = counting
        self._supply, self._cluster, self._present, self._failed = supply, cluster, present, failed
        self._log = structlog.get_logger()

    async def prepare(self, now: float) -> None:
        """Counts what a tick needs, a few milliseconds at a time. now: POSIX seconds."""
        try:
            await self._prepare_supply(now)
            while not await self._prepare_counts(now):
                pass
        except Exception:  # noqa: BLE001 - the tick counts too, and logs what is wrong
            self._failed()

    async def _prepare_supply(self, now: float) -> None:
        if self._supply is None or self._cluster is None:
            return
        decider, _, targets = self._present()
        while self._supply.prepare(self._cluster, decider.workloads, targets, now):
            await asyncio.sleep(0)
            decider, _, targets = self._present()

    async def _prepare_counts(self, now: float) -> bool:
        """Returns False if there is another list of workloads before all are counted."""
        present = self._present()
        for _ in self.counting.parts(*present, now):
            await asyncio.sleep(0)
            if self._present().decider is not present.decider:
                return False
        return True

    def tick(self, now: float) -> None:
        """Counts what `prepare` has not, and gives the decider all of it."""
        decider, _, targets = present = self._present()
        self.counting.tick(*present, now)
        if self._cluster is None:
            return
        decider.set_node_gpus(self._cluster.node_gpus(now))
        if self._supply is not None:
            decider.set_gpu_supply(self._supply.at(self._cluster, decider.workloads, targets, now))
            for workload, queue in self._supply.lost_queues(now):
                self._log.warning("local queue unknown", workload=str(workload), queue=queue)

    def register(self, workloads: Collection[WorkloadKey], now: float) -> None:
        """Counts new workloads at once. If they are many, `prepare` does; none is decided without a count."""
        if len(workloads) <= COUNTED_AT_ONCE or not self.counting.can_wait:
            self.count(workloads, now)
        else:
            self.counting.later(workloads, self._present().decider)

    def count(self, workloads: Collection[WorkloadKey], now: float) -> None:
        """Counts the replicas of these workloads at once."""
        try:
            self.counting.count(workloads, *self._present(), now)
        except Exception:  # noqa: BLE001 - the tick counts too, and logs what is wrong
            self._failed()
