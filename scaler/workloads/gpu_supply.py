"""Lists the GPUs that workloads share, and the part of each workload in them, as columns for `policy.sharing`. Pure.

A workload takes part if its scale target is its own and the template of that requests GPUs of one resource name. It
can run on the kinds of that resource: on those of the model that its nodeSelector names, else on those where its pods
run if its pods run on nodes, else on all, the cheapest first. GPUs of all other pods are used.

Of each resource name there is one more kind, without a model: nodes without a label, what a node autoscaler may add,
and, below zero, what waiting pods will take of the others.

Worked example: 8 GPUs of one kind, 3 used by the only workload and 1 by another pod: `room` is 8 - 4 = 4, and with the
3 that the workload holds it can have 7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.gpu_use import ClusterGpus, GpuKind, TargetGpus
from exporter.kubernetes.objects import Ref, Scalable
from exporter.model import WorkloadKey
from scaler.policy.columns import Ints
from scaler.policy.sharing import NONE

MOST_GPUS = 10**6  # of a kind, a quota or a replica: ten times the largest cluster; more is a typing mistake


class GpuSupply(NamedTuple):
    """GPUs to share; shape (kinds,), (quotas,) and (rows, ...).

    room:    allocatable, less what all pods use; below 0 in the kind without a model: see the module.
    growth:  that a node autoscaler may add.
    resource: the number of the resource name of each kind. open: whether it is the kind without a model.
    quotas:  what is allowed, less what all pods request.
    gpus:    of one replica; 0: the workload takes no part.
    kinds:   that it can run on, in order, then NONE.
    held:    by kind, as `room` counts it: what its pods use. staying: of pods that do not terminate.
    quota:   the quota that it counts to, or NONE. requested: what its pods request of that.
    """

    room: Ints
    growth: Ints
    resource: Ints
    open: NDArray[np.bool_]
    quotas: Ints
    gpus: Ints
    kinds: NDArray[np.int64]
    held: NDArray[np.int64]
    staying: NDArray[np.int64]
    quota: Ints
    requested: Ints


class GpuRequest(NamedTuple):
    """What one replica of a workload needs. model: None: any."""

    resource: str
    gpus: int
    model: str | None


class SupplySource:
    """Makes the supply of a list of workloads, anew only if something has changed.

    growth: GPUs by resource name that a node autoscaler may add. hour: the price of a GPU by its model, NaN unknown.
    """

    def __init__(self, growth: Mapping[str, int], hour: Callable[[str | None], float]) -> None:
        self._growth, self._hour = growth, hour
        self._of: tuple[ClusterGpus, Sequence[WorkloadKey], Mapping[WorkloadKey, Ref]] | None = None
        self._supply: GpuSupply | None = None
        self._wanted: frozenset[Ref] = frozenset()

    def at(
        self, cluster: Cluster, workloads: Sequence[WorkloadKey], targets: Mapping[WorkloadKey, Ref], now: float
    ) -> GpuSupply | None:
        """None while the cluster's nodes or pods are unknown. now: POSIX seconds."""
        if self._of is None or targets is not self._of[2]:
            self._wanted = frozenset(targets.values())
        use = cluster.gpu_use(self._wanted, now)
        if use is None:
            self._of = self._supply = None
        elif self._of is None or not all(a is b for a, b in zip(self._of, (use, workloads, targets), strict=True)):
            sharers = Counter(targets.values())
            requests = [
                None if target is None or sharers[target] > 1 else request_of(cluster.template(target))
                for target in map(targets.get, workloads)
            ]
            refs = [targets.get(workload) for workload in workloads]
            self._of = use, workloads, targets
            self._supply = supply(use, refs, requests, self._growth, self._hour)
        return self._supply


def request_of(template: Scalable | None) -> GpuRequest | None:
    """None if it requests no GPUs, or several kinds of resources."""
    if template is None or len(template.gpus) != 1:
        return None
    ((resource, gpus),) = template.gpus.items()
    return GpuRequest(resource, min(gpus, MOST_GPUS), template.gpu_model)


def supply(
    use: ClusterGpus,
    targets: Sequence[Ref | None],
    requests: Sequence[GpuRequest | None],
    growth: Mapping[str, int],
    hour: Callable[[str | None], float],
) -> GpuSupply:
    """targets, requests: of each workload; None: it takes no part."""
    labelled = use.allocatable.keys() | use.used.keys()
    resources = sorted({kind.resource for kind in labelled} | {each.resource for each in requests if each is not None})
    kinds = sorted(labelled | {GpuKind(each) for each in resources})
    number = {kind: index for index, kind in enumerate(kinds)}
    by_price = sorted(kinds, key=lambda kind: (_price(hour, kind), kind))
    pools = {key: index for index, key in enumerate(sorted(use.quotas))}
    rows, none = len(requests), TargetGpus()
    tries: dict[tuple[GpuRequest, tuple[GpuKind, ...]], list[int]] = {}  # few, of many workloads
    out = GpuSupply(
        room=np.array([_room(use, kind) for kind in kinds], dtype=np.int64),
        growth=np.array([0 if kind.model else growth.get(kind.resource, 0) for kind in kinds], dtype=np.int64),
        resource=np.array([resources.index(kind.resource) for kind in kinds], dtype=np.int64),
        open=np.array([not kind.model for kind in kinds], dtype=np.bool_),
        quotas=np.array([min(use.quotas[key], MOST_GPUS) - use.requested.get(key, 0) for key in pools], dtype=np.int64),
        gpus=np.zeros(rows, dtype=np.int64),
        kinds=np.full((rows, max(len(kinds), 1)), NONE, dtype=np.int64),
        held=np.zeros((rows, len(kinds)), dtype=np.int64),
        staying=np.zeros((rows, len(kinds)), dtype=np.int64),
        quota=np.full(rows, NONE, dtype=np.int64),
        requested=np.zeros(rows, dtype=np.int64),
    )
    for row, (target, request) in enumerate(zip(targets, requests, strict=True)):
        if target is None or request is None:
            continue
        mine, resource = use.by_target.get(target, none), request.resource
        out.gpus[row] = request.gpus
        key = request, tuple(mine.held)
        if key not in tries:
            tries[key] = [number[kind] for kind in by_price if _fits(kind, request, mine)]
        out.kinds[row, : len(tries[key])] = tries[key]
        for kind, many in mine.held.items():
            out.held[row, number[kind]] += many
        for kind, many in mine.staying.items():
            out.staying[row, number[kind]] += many
        out.held[row, number[GpuKind(resource)]] += mine.waiting.get(resource, 0)
        out.quota[row] = pools.get((target.namespace, resource), NONE)
        out.requested[row] = mine.requested.get(resource, 0)
    return out


def _room(use: ClusterGpus, kind: GpuKind) -> int:
    waiting = 0 if kind.model else use.waiting.get(kind.resource, 0)
    return use.allocatable.get(kind, 0) - use.used.get(kind, 0) - waiting


def _price(hour: Callable[[str | None], float], kind: GpuKind) -> tuple[bool, float]:
    """The kind without a model is last: there, a pod waits for a node."""
    price = hour(kind.model or None)
    return not kind.model, float("inf") if isnan(price) else price


def _fits(kind: GpuKind, request: GpuRequest, mine: TargetGpus) -> bool:
    if kind.resource != request.resource:
        return False
    if not kind.model or kind.model == request.model or kind in mine.held:
        return True
    return request.model is None and not any(each.resource == kind.resource for each in mine.held)
