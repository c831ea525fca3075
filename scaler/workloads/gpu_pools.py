"""Lists the pools that limit the GPUs of several workloads on whatever nodes: ResourceQuotas, and Kueue's queues. Pure.

A ResourceQuota counts the pods of its namespace that match its scopes. A ClusterQueue admits the pods of its
LocalQueues; a workload names its LocalQueue with the label `kueue.x-k8s.io/queue-name`. It counts to all flavors of its
ClusterQueue together, and, if its nodeSelector names a model, to those of that model.

What is unknown limits nothing: a LocalQueue or ClusterQueue that does not exist, a queue without a quota for the
resource, cohorts that are above each other in a circle.

Worked example: a quota of 8 of namespace `ai` with the scope `PriorityClass In [low]`, of which 5 are requested, has 3
left. It limits a workload of `ai` with the class `low`, and what that one requests of the 5 is its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from exporter.kubernetes.gpu_use import ClusterGpus, TargetGpus
from exporter.kubernetes.kueue import KueueQuotas, available
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.placement import PodTraits, QuotaScope, counts

MOST_GPUS = 10**6  # of a kind, a quota or a replica: ten times the largest cluster; more is a typing mistake


class GpuPool(NamedTuple):
    """name: of the quota, with its namespace, or of the ClusterQueue. flavors: of that; () of a quota."""

    namespace: str
    name: str
    resource: str
    flavors: tuple[str, ...] = ()
    scopes: tuple[QuotaScope, ...] = ()


class PoolRules(NamedTuple):
    """Which pools there are, in order, and what decides which of them a workload counts to; without any amount."""

    pools: tuple[GpuPool, ...]
    queues: Mapping[tuple[str, str], str]  # ClusterQueue by LocalQueue
    models: Mapping[str, str]  # by flavor


class Claimant(NamedTuple):
    """A workload, as pools see it. traits: of a new replica. queue: its LocalQueue; "": none. model: None: any."""

    target: Ref
    resource: str
    model: str | None
    queue: str
    traits: PodTraits


def rules_of(use: ClusterGpus) -> PoolRules:
    kueue = use.kueue
    found = [
        GpuPool(quota.ref.namespace, quota.ref.name, resource, (), quota.scopes)
        for quota in use.quotas
        for resource in quota.gpus
    ]
    for name, queue in sorted(kueue.queues.items()):
        for resource, flavors in sorted(queue.flavors.items()):
            models = sorted({kueue.models[flavor] for flavor in flavors if flavor in kueue.models})
            groups = [tuple(flavors), *(_of_model(flavors, model, kueue.models) for model in models)]
            found += [GpuPool("", name, resource, group) for group in dict.fromkeys(groups)]
    return PoolRules(tuple(found), kueue.local, kueue.models)


def amounts(use: ClusterGpus, rules: PoolRules) -> list[int]:
    """GPUs that each pool allows beside what all pods have of it, below 0 if that is too much."""
    limits = {(quota.ref.namespace, quota.ref.name): quota.gpus for quota in use.quotas}
    requested: dict[tuple[str, str], list[tuple[PodTraits, int]]] = {}
    for (namespace, resource, traits), many in use.requested.items():
        requested.setdefault((namespace, resource), []).append((traits, many))
    return [
        _admittable(use.kueue, pool)
        if pool.flavors
        else min(limits[pool.namespace, pool.name][pool.resource], MOST_GPUS)
        - _counted(pool.scopes, requested.get((pool.namespace, pool.resource), ()))
        for pool in rules.pools
    ]


class PoolIndex:
    """Finds the pools of a workload."""

    def __init__(self, rules: PoolRules) -> None:
        self._rules = rules
        self._names = {pool.name for pool in rules.pools if pool.flavors}
        self._quotas: dict[tuple[str, str], list[int]] = {}
        self._queues: dict[tuple[str, str], list[int]] = {}
        for number, pool in enumerate(rules.pools):
            if pool.flavors:
                self._queues.setdefault((pool.name, pool.resource), []).append(number)
            else:
                self._quotas.setdefault((pool.namespace, pool.resource), []).append(number)

    def knows_queue(self, namespace: str, name: str) -> bool:
        """Whether a LocalQueue and its ClusterQueue exist."""
        return self._rules.queues.get((namespace, name)) in self._names

    def of(self, claimant: Claimant, mine: TargetGpus) -> list[tuple[int, int]]:
        """The numbers of its pools, and what its own pods have of each."""
        namespace, resource = claimant.target.namespace, claimant.resource
        claims = [(traits, many) for (name, traits), many in mine.requested.items() if name == resource]
        traits = claimant.traits
        if not traits.priority_class:  # pods get the default class of the cluster when they are created
            traits = traits._replace(priority_class=max((each.priority_class for each, _ in claims), default=""))
        pools = self._rules.pools
        found = [
            (number, _counted(pools[number].scopes, claims))
            for number in self._quotas.get((namespace, resource), ())
            if counts(pools[number].scopes, traits)
        ]
        queue = self._rules.queues.get((namespace, claimant.queue), "")
        for number in self._queues.get((queue, resource), ()):
            usable = pools[number].flavors
            first = self._queues[queue, resource][0]
            if number == first or usable == _of_model(pools[first].flavors, claimant.model, self._rules.models):
                found.append((number, mine.admitted.get(resource, 0)))
        return found


def _of_model(flavors: Iterable[str], model: str | None, models: Mapping[str, str]) -> tuple[str, ...]:
    """Those whose nodes may be of a model."""
    return tuple(flavor for flavor in flavors if model is None or models.get(flavor, model) == model)


def _counted(scopes: Collection[QuotaScope], requested: Iterable[tuple[PodTraits, int]]) -> int:
    return sum(many for traits, many in requested if counts(scopes, traits))


def _admittable(kueue: KueueQuotas, pool: GpuPool) -> int:
    queue = kueue.queues[pool.name]
    found = [available(kueue, queue, pool.resource, flavor) for flavor in pool.flavors]
    return min(sum(MOST_GPUS if each is None else each for each in found), MOST_GPUS)
