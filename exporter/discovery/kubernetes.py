"""Lists pods and Services of a cluster as targets, from the in-memory cache, without waiting.

A pod that was never ready, or has restarted since, is loading: it is not scraped, because its zeros mean nothing. One
that was ready and still runs may have requests: it must answer. A terminating pod is scraped, but need not answer, and
is no capacity.

Worked example: of Deployment `ai/chat`, pod a is ready, b is terminating after it was ready, c loads its model, and d
fails its readiness probes: `listing()` is a's, b's and d's targets, with b's in `leaving`; `due` is 2.
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
    """Lists the pods of one scale target that take its requests."""

    def __init__(
        self, cluster: Cluster, ref: Ref, target_at: Callable[[str], Target], owner: WorkloadKey | None
    ) -> None:
        """target_at: the target of an address, without its pod."""
        self.owner = owner
        self._cluster, self._ref, self._target_at = cluster, ref, target_at
        self._listing: Listing | None = None

    def listing(self) -> Listing | None:
        return self._listing

    async def refresh(self, now: float) -> None:
        pods = self._cluster.leaders_of(self._ref, now)
        # A target that does not exist and has no pods is unknown, not empty: it may appear in a moment with
        # spec.replicas 0, and a list without pods would read as one that is loading.
        unknown = pods is None or (not pods and self._cluster.lacks(self._ref))
        self._listing = None if unknown else self._list(pods or ())

    def _list(self, pods: Iterable[Pod]) -> Listing:
        by_address: dict[str, Pod] = {}
        # Of two pods with one address the ready one answers there, else the younger one: it comes last.
        for pod in sorted(pods, key=lambda pod: (_serves(pod), pod.created_at or 0.0, pod.key)):
            may_have = self._cluster.may_have_requests(pod)
            if pod.address is not None and may_have and self._cluster.has_its_address(pod):
                by_address[pod.address] = pod
        found = {pod.key: replace(self._target_at(address), pod=pod.key) for address, pod in by_address.items()}
        leaving = frozenset(found[pod.key] for pod in by_address.values() if pod.leaving)
        return Listing(tuple(found[key] for key in sorted(found)), leaving)


class ServiceTargets:
    """Lists the ready endpoints of one Service that are pods of its namespace: a gateway's replicas.

    An EndpointSlice may name any address, and its writer need not own the address (invariant 10).
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        service: str,
        target_at: Callable[[str, Mapping[str, int]], Target],
        owner: WorkloadKey | None = None,
    ) -> None:
        """target_at: the target of an address and its ports by name ("" for the unnamed one)."""
        self.owner = owner
        self._cluster, self._namespace, self._service, self._target_at = cluster, namespace, service, target_at
        self._listing: Listing | None = None

    def listing(self) -> Listing | None:
        return self._listing

    async def refresh(self, now: float) -> None:
        endpoints = self._cluster.endpoints(self._namespace, self._service, now)
        if endpoints is None or not self._cluster.synced(PODS, now, self._namespace):
            self._listing = None
            return
        # A dual-stack Service lists each pod under both families, and a pod counts once.
        pods = [end for end in endpoints if self._cluster.is_pod_of(self._namespace, end.address)]
        one_family = [end for end in pods if ":" not in end.address] or pods
        self._listing = Listing(tuple(self._target_at(address, ports) for address, ports in one_family))


# An exporter that is missing for longer does not return: a DaemonSet's pod is replaced within a minute or two.
EXPORTER_MISSED_S = 300.0


class GpuExporterTargets:
    """Lists one dcgm-exporter per node: a second one on a node exports the same GPUs.

    One that is gone or not ready is still scraped for a while: its failures must show, or its restart would read as
    idle GPUs.
    """

    owner: WorkloadKey | None = None

    def __init__(
        self, cluster: Cluster, target_at: Callable[[str, int], Target], namespaces: frozenset[str] = frozenset()
    ) -> None:
        """target_at: the target of an address and port, without its pod. namespaces: trusted ones; empty is all."""
        self._cluster, self._target_at, self._namespaces = cluster, target_at, namespaces
        self._listing: Listing | None = None
        self._last: dict[str | None, tuple[Target, float]] = {}  # by node, with the time of its last listing

    def listing(self) -> Listing | None:
        return self._listing

    async def refresh(self, now: float) -> None:
        pods = self._cluster.gpu_exporters(now)
        self._listing = None if pods is None else self._list(pods, now)

    def _list(self, pods: Iterable[Pod], now: float) -> Listing:
        serving: dict[str | None, Target] = {}
        for pod in sorted(pods, key=lambda pod: pod.key):
            trusted = not self._namespaces or pod.key.namespace in self._namespaces
            if trusted and pod.address is not None and _serves(pod) and pod.node not in serving:
                serving[pod.node] = replace(self._target_at(pod.address, page_port(pod)), pod=pod.key, node=pod.node)
        missed = {node: last for node, last in self._last.items() if now - last[1] <= EXPORTER_MISSED_S}
        self._last = missed | {node: (target, now) for node, target in serving.items()}
        return Listing(tuple(target for target, _ in self._last.values()))


def _serves(pod: Pod) -> bool:
    """Whether it takes requests."""
    return pod.ready and not pod.leaving
