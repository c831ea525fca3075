"""Keeps the supply of shared GPUs up to date: of 10,000 workloads only the rows that have changed are filled again.

`SupplySource.at` does all that is due. A change of the list of workloads, or a new kind of GPUs, makes every row due:
`prepare` does the work a few milliseconds at a time, so that other tasks of the event loop run in between.

Worked example: 10,000 workloads have a pod each, and one pod ends: one pod is subtracted and one row is filled. A node
of a model that was not there adds a column: `prepare` returns True twenty times, and `at` has nothing left to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf

from exporter.kubernetes.cache import MANY, Cluster
from exporter.kubernetes.gpu_use import ClusterGpus
from exporter.kubernetes.objects import Ref, Scalable
from exporter.model import WorkloadKey

from .gpu_supply import NO_GPUS, GpuRequest, GpuSupply, SupplyLayout, SupplyRows, layout_of, request_of

LOST_S = 60.0


class SupplySource:
    """The supply of a list of workloads.

    growth: GPUs by resource name that a node autoscaler may add. hour: the price of a GPU by its model, NaN unknown.
    """

    def __init__(self, growth: Mapping[str, int], hour: Callable[[str | None], float]) -> None:
        self._growth, self._hour = growth, hour
        self._lists: tuple[Sequence[WorkloadKey], Mapping[WorkloadKey, Ref]] = (), {}
        self._wanted: frozenset[Ref] = frozenset()
        self._table = SupplyTable((), growth, hour)
        self._counted: ClusterGpus | None = None
        self._unknown_since: dict[WorkloadKey, float] = {}  # POSIX seconds; inf: returned as lost

    def at(
        self, cluster: Cluster, workloads: Sequence[WorkloadKey], targets: Mapping[WorkloadKey, Ref], now: float
    ) -> GpuSupply | None:
        """None while the cluster's nodes or pods are unknown. now: POSIX seconds."""
        self._take(workloads, targets)
        use = cluster.gpu_use(self._wanted, now)
        if use is None:
            return None
        self._table.update(use, cluster.template)
        self._table.fill(len(workloads))
        return self._table.supply()

    def prepare(
        self, cluster: Cluster, workloads: Sequence[WorkloadKey], targets: Mapping[WorkloadKey, Ref], now: float
    ) -> bool:
        """Does a part of the work of `at`; returns whether there is more to do."""
        if self._take(workloads, targets) or cluster.count_gpus(self._wanted, MANY):
            return True
        use = cluster.gpu_use(self._wanted, now)
        if use is None:
            return False
        if use is not self._counted:
            self._counted = use
            return True
        if self._table.read_templates(use, cluster.template):
            return True
        self._table.update(use, cluster.template)
        return self._table.fill(MANY)

    def lost_queues(self, now: float) -> list[tuple[WorkloadKey, str]]:
        """Workloads with a LocalQueue that has been unknown for LOST_S, each once: it limits nothing.

        At a start the queues may be listed after the pods.
        """
        unknown = {self._lists[0][row]: queue for row, queue in self._table.unknown_queues.items()}
        self._unknown_since = {workload: self._unknown_since.get(workload, now) for workload in unknown}
        lost = [workload for workload, since in self._unknown_since.items() if now - since >= LOST_S]
        self._unknown_since |= dict.fromkeys(lost, inf)
        return [(workload, unknown[workload]) for workload in lost]

    def _take(self, workloads: Sequence[WorkloadKey], targets: Mapping[WorkloadKey, Ref]) -> bool:
        """Whether they are others than before."""
        if workloads is self._lists[0] and targets is self._lists[1]:
            return False
        self._lists = workloads, targets
        sharers = Counter(targets.values())
        self._wanted = frozenset(sharers)
        refs = map(targets.get, workloads)
        alone = [None if target is None or sharers[target] > 1 else target for target in refs]
        self._table = SupplyTable(alone, self._growth, self._hour)
        return True


class SupplyTable:
    """The supply of these scale targets, filled row by row. None: a workload that takes no part."""

    def __init__(
        self, targets: Sequence[Ref | None], growth: Mapping[str, int], hour: Callable[[str | None], float]
    ) -> None:
        self._targets, self._growth, self._hour = targets, growth, hour
        self._requests: list[GpuRequest | None] = [None] * len(targets)
        self._resources: set[str] = set()
        self._held = [NO_GPUS] * len(targets)
        self._due: list[int] = []
        self._templates = -1  # the version of `_requests`
        self._use: ClusterGpus | None = None
        self._layout: SupplyLayout | None = None
        self._rows: SupplyRows | None = None
        self.unknown_queues: dict[int, str] = {}  # by row
        self._supply: GpuSupply | None = None

    def read_templates(self, use: ClusterGpus, template: Callable[[Ref], Scalable | None]) -> bool:
        """Reads the templates if they may have changed, which makes their rows due; returns whether it did.

        template: the record of a scale target.
        """
        if use.templates == self._templates:
            return False
        requests = [None if target is None else request_of(template(target)) for target in self._targets]
        self._due += (row for row, request in enumerate(requests) if request != self._requests[row])
        self._templates, self._requests = use.templates, requests
        self._resources = {each.resource for each in requests if each is not None}
        return True

    def update(self, use: ClusterGpus, template: Callable[[Ref], Scalable | None]) -> None:
        """Takes a count, which makes the changed rows due."""
        self.read_templates(use, template)
        if use is self._use:
            return
        due = set(self._due)
        held = [NO_GPUS if target is None else use.by_target.get(target, NO_GPUS) for target in self._targets]
        due.update(row for row, mine in enumerate(held) if mine is not self._held[row])
        self._use, self._held, self._supply = use, held, None
        layout = layout_of(use, self._resources, self._hour)
        if layout != self._layout:
            self._layout, self._rows = layout, SupplyRows(layout, len(held))
            due = set(range(len(held)))
        self._due = list(due)

    def fill(self, most: int) -> bool:
        """Fills up to `most` rows; returns whether more are due."""
        if self._rows is not None:
            for _ in range(min(most, len(self._due))):
                row = self._due.pop()
                target, request = self._targets[row], self._requests[row]
                self._rows.fill(row, target, request, self._held[row])
                self.unknown_queues.pop(row, None)
                if target is not None and request is not None and not self._rows.knows_queue(target, request):
                    self.unknown_queues[row] = request.queue
        return bool(self._due)

    def supply(self) -> GpuSupply | None:
        """The supply of all filled rows; None before the first count. The same value while nothing changes."""
        if self._supply is None and self._use is not None and self._layout is not None and self._rows is not None:
            self._supply = self._rows.supply(self._use, self._layout, self._growth)
        return self._supply
