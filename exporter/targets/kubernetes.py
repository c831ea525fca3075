"""Targets that a cluster's pods and Services are: read from memory, so a look never waits.

It knows which pods are to be asked and which of those need not answer. It refuses to know how the cluster is heard of
and what an engine's page is called: `target_at` makes a target of an address.

A pod that has never been ready is loading: it is not asked, and its zeros would be none. One that was ready and is not,
or has been asked to go, still has requests: it is asked, but need not answer, and is no capacity.

Worked example: of Deployment `ai/chat`, pod a is ready, b is terminating after having served, and c loads its model:
`listing()` is a's and b's targets, with b's in `leaving`; `due` is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from exporter.cluster.exporters import page_port
from exporter.cluster.objects import Pod, Ref
from exporter.cluster.state import Cluster
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
        self._listing = None if pods is None else self._list(pods)

    def _list(self, pods: Iterable[Pod]) -> Listing:
        asked: dict[str, Pod] = {}
        # The ready one last, and of two alike the younger: it is who answers at an address that two say they have.
        for pod in sorted(pods, key=lambda pod: (_serves(pod), pod.created_at or 0.0, pod.key)):
            if pod.address is not None and self._cluster.ever_ready(pod.uid) and self._cluster.has_its_address(pod):
                asked[pod.address] = pod
        found = {pod.key: replace(self._target_at(address), pod=pod.key) for address, pod in asked.items()}
        leaving = frozenset(found[pod.key] for pod in asked.values() if not _serves(pod))
        return Listing(tuple(found[key] for key in sorted(found)), leaving)


class ServiceTargets:
    """The ready endpoints of one Service: a gateway's replicas."""

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
        if endpoints is None:
            self._listing = None
            return
        # A dual-stack Service lists each pod under both families, and a pod counts once.
        one_family = [endpoint for endpoint in endpoints if ":" not in endpoint.address] or endpoints
        self._listing = Listing(tuple(self._target_at(address, ports) for address, ports in one_family))


class GpuExporterTargets:
    """One dcgm-exporter per node: a second one on a node tells of the same GPUs."""

    owner: WorkloadKey | None = None

    def __init__(
        self, cluster: Cluster, target_at: Callable[[str, int], Target], namespaces: frozenset[str] = frozenset()
    ) -> None:
        """`target_at`: makes a target of an exporter's address and port; which pod's it is, is added to it here.
        `namespaces`: only exporters in these are believed; none is all.
        """
        self._cluster, self._target_at, self._namespaces = cluster, target_at, namespaces
        self._listing: Listing | None = None

    def listing(self) -> Listing | None:
        return self._listing

    async def refresh(self, now: float) -> None:
        pods = self._cluster.gpu_exporters(now)
        self._listing = None if pods is None else self._list(pods)

    def _list(self, pods: Iterable[Pod]) -> Listing:
        chosen: dict[str | None, Pod] = {}
        for pod in sorted(pods, key=lambda pod: pod.key):
            if pod.address is not None and _serves(pod) and self._believed(pod):
                chosen.setdefault(pod.node, pod)
        return Listing(
            tuple(
                replace(self._target_at(pod.address, page_port(pod)), pod=pod.key)
                for pod in chosen.values()
                if pod.address is not None
            )
        )

    def _believed(self, pod: Pod) -> bool:
        return not self._namespaces or pod.key.namespace in self._namespaces


def _serves(pod: Pod) -> bool:
    """Whether requests may be sent to it."""
    return pod.ready and not pod.leaving
