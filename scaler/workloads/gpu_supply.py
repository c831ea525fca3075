"""Lists the GPUs that workloads share, and the part of each workload in them, as columns for `policy.sharing`. Pure.

A workload takes part if its scale target is its own and the template of that requests GPUs of one resource name. It
can run on the kinds of that resource with taints that its pods tolerate: on those of the model that its nodeSelector
names, else on those where its pods run if its pods run on nodes, else on all, the cheapest first. GPUs of all other
pods are used.

Of each resource name there is one more kind, without a model: nodes without a label, what a node autoscaler may add,
and, below zero, what waiting pods will take of the others.

Worked example: 8 GPUs of one kind, 3 used by the only workload and 1 by another pod: `room` is 8 - 4 = 4, and with the
3 that the workload holds it can have 7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import isnan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.kubernetes.gpu_use import ClusterGpus, GpuKind, TargetGpus
from exporter.kubernetes.kueue import QUEUE_LABEL
from exporter.kubernetes.objects import Ref, Scalable
from exporter.kubernetes.placement import NO_TRAITS, PodTraits, tolerates
from scaler.policy.columns import Ints
from scaler.policy.sharing import NONE

from .gpu_pools import MOST_GPUS, Claimant, PoolIndex, PoolRules, amounts, rules_of

NO_GPUS = TargetGpus()
MOST_POOLS = 4  # that limit one workload: two quotas, and a queue and its flavors of one model; more are ignored


class GpuSupply(NamedTuple):
    """GPUs to share; shape (kinds,), (quotas,) and (rows, ...).

    room:    allocatable, less what all pods use; below 0 in the kind without a model: see the module.
    growth:  that a node autoscaler may add.
    resource: the number of the resource name of each kind. open: whether it is the kind without a model.
    quotas:  what each pool (see `gpu_pools`) allows, less what all pods have of it.
    gpus:    of one replica; 0: the workload takes no part.
    kinds:   that it can run on, in order, then NONE.
    held:    by kind, as `room` counts it: what its pods use. staying: of pods that do not terminate.
    quota:   the pools that it counts to, then NONE. requested: what its pods have of each.
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
    quota: NDArray[np.int64]
    requested: NDArray[np.int64]


class GpuRequest(NamedTuple):
    """What one replica of a workload needs. model: None: any. queue: the name of its LocalQueue; "": it has none."""

    resource: str
    gpus: int
    model: str | None
    queue: str = ""
    traits: PodTraits = NO_TRAITS


def request_of(template: Scalable | None) -> GpuRequest | None:
    """None if it requests no GPUs, or several kinds of resources."""
    if template is None or len(template.gpus) != 1:
        return None
    ((resource, gpus),) = template.gpus.items()
    queue = template.labels.get(QUEUE_LABEL, "")
    return GpuRequest(resource, min(gpus, MOST_GPUS), template.gpu_model, queue, template.traits)


class SupplyLayout(NamedTuple):
    """What the columns of a supply stand for, in order.

    by_price: the kinds, the cheapest first. rules: of the pools.
    """

    resources: tuple[str, ...]
    kinds: tuple[GpuKind, ...]
    by_price: tuple[GpuKind, ...]
    rules: PoolRules


def layout_of(use: ClusterGpus, requested: Collection[str], hour: Callable[[str | None], float]) -> SupplyLayout:
    """requested: resource names. hour: the price of a GPU by its model, NaN unknown."""
    labelled = use.allocatable.keys() | use.used.keys()
    resources = sorted({kind.resource for kind in labelled}.union(requested))
    kinds = tuple(sorted(labelled | {GpuKind(each) for each in resources}))
    by_price = tuple(sorted(kinds, key=lambda kind: (_price(hour, kind), kind)))
    return SupplyLayout(tuple(resources), kinds, by_price, rules_of(use))


class SupplyRows:
    """The columns of a supply that are by row. None of them is filled at first."""

    def __init__(self, layout: SupplyLayout, rows: int) -> None:
        self._kinds = {kind: index for index, kind in enumerate(layout.kinds)}
        self._pools = PoolIndex(layout.rules)
        self._by_price = layout.by_price
        self._tries: dict[object, Ints] = {}  # few, of many workloads
        self._gpus = np.zeros(rows, dtype=np.int64)
        self._kinds_of = np.full((rows, len(layout.kinds)), NONE, dtype=np.int64)
        self._held = np.zeros((rows, len(layout.kinds)), dtype=np.int64)
        self._staying = np.zeros((rows, len(layout.kinds)), dtype=np.int64)
        self._quota = np.full((rows, MOST_POOLS), NONE, dtype=np.int64)
        self._requested = np.zeros((rows, MOST_POOLS), dtype=np.int64)

    def fill(self, row: int, target: Ref | None, request: GpuRequest | None, mine: TargetGpus) -> None:
        """target, request: None: the workload takes no part. mine: the GPUs of its pods."""
        self._held[row] = self._staying[row] = self._requested[row] = self._gpus[row] = 0
        self._kinds_of[row] = self._quota[row] = NONE
        if target is None or request is None:
            return
        self._gpus[row] = request.gpus
        self._kinds_of[row] = self._tried(request, mine)
        for kind, many in mine.held.items():
            self._held[row, self._kinds[kind]] += many
        for kind, many in mine.staying.items():
            self._staying[row, self._kinds[kind]] += many
        if mine.waiting:
            self._held[row, self._kinds[GpuKind(request.resource)]] += mine.waiting.get(request.resource, 0)
        claimant = Claimant(target, request.resource, request.model, request.queue, request.traits)
        for position, (pool, claim) in enumerate(self._pools.of(claimant, mine)[:MOST_POOLS]):
            self._quota[row, position], self._requested[row, position] = pool, claim

    def knows_queue(self, target: Ref, request: GpuRequest) -> bool:
        """Also if it has none."""
        return not request.queue or self._pools.knows_queue(target.namespace, request.queue)

    def supply(self, use: ClusterGpus, layout: SupplyLayout, growth: Mapping[str, int]) -> GpuSupply:
        """With a copy of the rows. growth: GPUs by resource name."""
        number = {resource: index for index, resource in enumerate(layout.resources)}
        return GpuSupply(
            room=np.array([_room(use, kind) for kind in layout.kinds], dtype=np.int64),
            growth=np.array([growth.get(kind.resource, 0) if _is_open(kind) else 0 for kind in layout.kinds], np.int64),
            resource=np.array([number[kind.resource] for kind in layout.kinds], dtype=np.int64),
            open=np.array(list(map(_is_open, layout.kinds)), dtype=np.bool_),
            quotas=np.array(amounts(use, layout.rules), dtype=np.int64),
            gpus=self._gpus.copy(),
            kinds=self._kinds_of.copy(),
            held=self._held.copy(),
            staying=self._staying.copy(),
            quota=self._quota.copy(),
            requested=self._requested.copy(),
        )

    def _tried(self, request: GpuRequest, mine: TargetGpus) -> Ints:
        traits = frozenset(traits for _, traits in mine.requested) | {request.traits}
        models = frozenset(kind.model for kind in mine.held if kind.resource == request.resource)
        key = request.resource, request.model, traits, models
        found = self._tries.get(key)
        if found is None:
            tries = [self._kinds[kind] for kind in self._by_price if _fits(kind, request, traits, models)]
            found = np.array(tries + [NONE] * (len(self._kinds) - len(tries)), dtype=np.int64)
            self._tries[key] = found
        return found


def supply(
    use: ClusterGpus,
    targets: Sequence[Ref | None],
    requests: Sequence[GpuRequest | None],
    growth: Mapping[str, int],
    hour: Callable[[str | None], float],
) -> GpuSupply:
    """targets, requests: of each workload; None: it takes no part."""
    layout = layout_of(use, {each.resource for each in requests if each is not None}, hour)
    rows = SupplyRows(layout, len(targets))
    for row, (target, request) in enumerate(zip(targets, requests, strict=True)):
        mine = NO_GPUS if target is None else use.by_target.get(target, NO_GPUS)
        rows.fill(row, target, request, mine)
    return rows.supply(use, layout, growth)


def _is_open(kind: GpuKind) -> bool:
    """Whether it is the kind without a model."""
    return not (kind.model or kind.taints)


def _room(use: ClusterGpus, kind: GpuKind) -> int:
    waiting = use.waiting.get(kind.resource, 0) if _is_open(kind) else 0
    return use.allocatable.get(kind, 0) - use.used.get(kind, 0) - waiting


def _price(hour: Callable[[str | None], float], kind: GpuKind) -> tuple[bool, float]:
    """The kind without a model is last: there, a pod waits for a node."""
    price = hour(kind.model or None)
    return _is_open(kind), float("inf") if isnan(price) else price


def _fits(kind: GpuKind, request: GpuRequest, traits: Collection[PodTraits], models: Collection[str]) -> bool:
    """traits: of the template and of its pods. models: on which its pods run."""
    if kind.resource != request.resource:
        return False
    if not all(tolerates(traits, taint, request.resource) for taint in kind.taints):
        return False
    if not kind.model or kind.model == request.model or kind.model in models:
        return True
    return request.model is None and not models
