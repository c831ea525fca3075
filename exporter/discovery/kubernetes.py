"""Targets that a cluster's pods and Services are: read from memory, so a look never waits.

It knows which pods are to be asked and which of those need not answer. It refuses to know how the cluster is heard of
and what an engine's page is called: `target_at` makes a target of an address.

A pod that has never been ready, or has begun anew since, is loading: it is not asked, and its zeros would be none. One
that was ready and runs on still has requests: it must answer. One that has been asked to go is asked, but need not
answer, and is no capacity.

Worked example: of Deployment `ai/chat`, pod a is ready, b is terminating after having served, c loads its model, and d
has failed its last readiness probes: `listing()` is a's, b's and d's targets, with b's in `leaving`; `due` is 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.index import page_port
from exporter.kubernetes.objects import Pod, Ref
from exporter.kubernetes.resources import PODS
from exporter.model import Target, WorkloadKey

from . import Listing


class PodTargets:
    """The pods of one scale target that take its requests."""

    def __init__(
        self, cluster: Cluster, ref: Ref, target_at: Callable[[str], Target], owner: WorkloadKey | None
    ) -> None:
        """`target_at`: makes a target of a pod's address; which pod's it is, is added to it here."""
        self.owner = owner
        self._cluster, self._ref, self._target_at = cluster, ref, target_at
        self._listing: Listing | None = None

    def listing(self) -> Listing | None:
        return self._listing

    async def refresh(self, now: float) -> None:
        pods = self._cluster.leaders_of(self._ref, now)
        # A target that is not there and has no pods is not one without pods: it may be heard of in a moment, with none
        # wanted, and whoever took it for one that loads would wake it.
        unknown = pods is None or (not pods and self._cluster.lacks(self._ref))
        self._listing = None if unknown else self._list(pods or ())

    def _list(self, pods: Iterable[Pod]) -> Listing:
        asked: dict[str, Pod] = {}
        # The ready one last, and of two alike the younger: it is who answers at an address that two say they have.
        for pod in sorted(pods, key=lambda pod: (_serves(pod), pod.created_at or 0.0, pod.key)):
            may_have = self._cluster.may_have_requests(pod)
            if pod.address is not None and may_have and self._cluster.has_its_address(pod):
                asked[pod.address] = pod
        found = {pod.key: replace(self._target_at(address), pod=pod.key) for address, pod in asked.items()}
        leaving = frozenset(found[pod.key] for pod in asked.values() if pod.leaving)
        return Listing(tuple(found[key] for key in sorted(found)), leaving)


class ServiceTargets:
    """The ready endpoints of one Service that are pods of its namespace: a gateway's replicas.

    Any address may stand in an EndpointSlice, and who writes them is not always who owns the address (law 10).
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        service: str,
        target_at: Callable[[str, Mapping[str, int]], Target],
        owner: WorkloadKey | None = None,
    ) -> None:
        """`target_at`: makes a target of an endpoint's address and its ports by name ("" for the unnamed one)."""
        self.owner = owner
        self._cluster, self._namespace, self._service, self._target_at = cluster, namespace, service, target_at
        self._listing: Listing | None = None

    def listing(self) -> Listing | None:
        return self._listing

    async def refresh(self, now: float) -> None:
        endpoints = self._cluster.endpoints(self._namespace, self._service, now)
        if endpoints is None or not self._cluster.synced(PODS, now):
            self._listing = None
            return
        # A dual-stack Service lists each pod under both families, and a pod counts once.
        pods = [end for end in endpoints if self._cluster.is_pod_of(self._namespace, end.address)]
        one_family = [end for end in pods if ":" not in end.address] or pods
        self._listing = Listing(tuple(self._target_at(address, ports) for address, ports in one_family))


# An exporter that is not there for so long is not coming back: a DaemonSet's pod is replaced within a minute or two.
EXPORTER_MISSED_S = 300.0


class GpuExporterTargets:
    """One dcgm-exporter per node: a second one on a node tells of the same GPUs.

    One that is gone or not ready is still asked for a while: that its node's GPUs are not seen must show, or a restart
    of it would read as quiet GPUs.
    """

    owner: WorkloadKey | None = None

    def __init__(
        self, cluster: Cluster, target_at: Callable[[str, int], Target], namespaces: frozenset[str] = frozenset()
    ) -> None:
        """`target_at`: makes a target of an exporter's address and port; which pod's it is, is added to it here.
        `namespaces`: only exporters in these are believed; none is all.
        """
        self._cluster, self._target_at, self._namespaces = cluster, target_at, namespaces
        self._listing: Listing | None = None
        self._last: dict[str | None, tuple[Target, float]] = {}  # of each node, and when it was there

    def listing(self) -> Listing | None:
        return self._listing

    async def refresh(self, now: float) -> None:
        pods = self._cluster.gpu_exporters(now)
        self._listing = None if pods is None else self._list(pods, now)

    def _list(self, pods: Iterable[Pod], now: float) -> Listing:
        there: dict[str | None, Target] = {}
        for pod in sorted(pods, key=lambda pod: pod.key):
            if pod.address is not None and _serves(pod) and self._believed(pod) and pod.node not in there:
                there[pod.node] = replace(self._target_at(pod.address, page_port(pod)), pod=pod.key)
        missed = {node: last for node, last in self._last.items() if now - last[1] <= EXPORTER_MISSED_S}
        self._last = missed | {node: (target, now) for node, target in there.items()}
        return Listing(tuple(target for target, _ in self._last.values()))

    def _believed(self, pod: Pod) -> bool:
        return not self._namespaces or pod.key.namespace in self._namespaces


def _serves(pod: Pod) -> bool:
    """Whether requests may be sent to it."""
    return pod.ready and not pod.leaving
