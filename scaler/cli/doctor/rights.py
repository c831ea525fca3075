"""What a configuration needs to be allowed in Kubernetes, and the rule that allows it. Pure.

Worked example: `kubernetes: {namespaces: [ai]}` needs, among others, `Right("", "pods", ("list", "watch"), "ai")`, and
its `rule()` is 'apiGroups [""], resources ["pods"], verbs ["list", "watch"]' for a Role in `ai`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from exporter.kubernetes.auth import AccessRequest
from exporter.kubernetes.resources import RESOURCES, SCALEDJOBS, SCALEDOBJECTS
from scaler.api.metrics_api.discovery import VERSIONS
from scaler.api.metrics_api.documents import CUSTOM_GROUP, EXTERNAL_GROUP
from scaler.config import Config, Kubernetes, MetricsApi


class Right(NamedTuple):
    """namespace: "" is all of them, or of what belongs to none. why: what does not work without it. served: the
    `GROUP/VERSION` that a cluster may do without, and then this right too; "" where every cluster has it.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    namespace: str = ""
    name: str = ""
    why: str = ""
    served: str = ""

    def accesses(self) -> tuple[AccessRequest, ...]:
        """One question for each verb. A creation has no name yet."""
        return tuple(
            AccessRequest(verb, self.group, self.resource, self.namespace, name="" if verb == "create" else self.name)
            for verb in self.verbs
        )

    def rule(self) -> str:
        verbs = ", ".join(f'"{verb}"' for verb in self.verbs)
        names = f', resourceNames ["{self.name}"]' if self.name and "create" not in self.verbs else ""
        return f'apiGroups ["{self.group}"], resources ["{self.resource}"]{names}, verbs [{verbs}]'

    def remedy(self) -> str:
        role = f"a Role in {self.namespace}" if self.namespace else "a ClusterRole"
        return f"give Tidegate's ServiceAccount {role} with {self.rule()}"

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{', '.join(self.verbs)} {kind}{f' {self.name}' if self.name else ''}{where}"


def needed(config: Config) -> list[Right]:
    """All of a configuration's, in the order of its keys; none without `kubernetes`."""
    if config.kubernetes is None:
        return []
    found = [*_watches(config.kubernetes), *_events(config.kubernetes)]
    if config.listen.metrics_api is not None:
        found += _of_metrics_api(config.listen.metrics_api)
    if config.listen.peers is not None:
        name, _, namespace = config.listen.peers.lease.partition(".")
        why = "which replica leads; without it each answers for itself"
        found.append(Right("coordination.k8s.io", "leases", ("get", "update"), namespace, name, why))
        found.append(Right("coordination.k8s.io", "leases", ("create",), namespace, why=why))
    return found


def _watches(kubernetes: Kubernetes) -> Iterator[Right]:
    for resource in RESOURCES:
        why = (
            "workloads of triggers" if resource in (SCALEDOBJECTS, SCALEDJOBS) else "which workloads and pods there are"
        )
        for namespace in (kubernetes.namespaces or ("",)) if resource.namespaced else ("",):
            served = resource.version if resource.optional else ""
            yield Right(resource.group, resource.name, ("list", "watch"), namespace, why=why, served=served)


def _events(kubernetes: Kubernetes) -> Iterator[Right]:
    if kubernetes.events:
        why = "Events; or set kubernetes.events: false"
        for namespace in kubernetes.namespaces or ("",):
            yield Right("events.k8s.io", "events", ("create", "patch"), namespace, why=why)


def _of_metrics_api(served: MetricsApi) -> Iterator[Right]:
    why = "whom the metrics API believes; bind it to system:auth-delegator"
    yield Right("authentication.k8s.io", "tokenreviews", ("create",), why=why)
    yield Right("authorization.k8s.io", "subjectaccessreviews", ("create",), why=why)
    forwards = "extension-apiserver-authentication"
    why = "with which certificate the API server forwards; bind it to extension-apiserver-authentication-reader"
    yield Right("", "configmaps", ("get",), "kube-system", forwards, why)
    on = {EXTERNAL_GROUP: served.external, CUSTOM_GROUP: served.custom}
    for group in (group for group in VERSIONS if on[group]):
        for version in VERSIONS[group]:
            why = "who holds the API group"
            yield Right("apiregistration.k8s.io", "apiservices", ("get",), name=f"{version}.{group}", why=why)
