"""Checks the cluster: the API server, the permissions that the configuration needs, API groups, KEDA, the Lease.

Worked example: without permission to write Events there is a failure "permission: create, patch events.events.k8s.io",
and its remedy is the rule to add to a Role. `kubernetes: {namespaces: [ai]}` needs, among others, `Permission("",
"pods", ("list", "watch"), "ai")`; its `rule()` is 'apiGroups [""], resources ["pods"], verbs ["list", "watch"]'.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from math import inf
from random import Random
from typing import Any, NamedTuple

from exporter.clock import Clock
from exporter.kubernetes.auth import AccessRequest, ServerVersion, ServiceReference
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.client import KubernetesClient, connect
from exporter.kubernetes.protocol import ApiFailure, CannotConnect, NotFound
from exporter.kubernetes.resources import DEPLOYMENTS, RESOURCES, SCALEDJOBS, SCALEDOBJECTS, SHARED, Resource
from scaler.api.metrics_api.discovery import VERSIONS
from scaler.api.metrics_api.documents import CUSTOM_GROUP, EXTERNAL_GROUP
from scaler.api.metrics_api.registration import RegistrationState, registration_state
from scaler.config import Config, Kubernetes, MetricsApi, Peers

from .check import Check, check_clock, fail, ok, warn

API, KEDA = "API server", "KEDA"
TOLERANCE_FROM = (1, 35)
KEDA_OPERATOR = "keda-operator"
# Tidegate is tested with 2.19 and 2.20 (docs/explanation/outages.md has what each does as a client).
KEDA_TESTED_FROM = (2, 19)
_KEDA_API = f"{VERSIONS[EXTERNAL_GROUP][0]}.{EXTERNAL_GROUP}"
_KEDA_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.\d+)?")
_CONCURRENT_REVIEWS = 8


class ClusterChecks(NamedTuple):
    """cluster: what was listed; None if the API server does not answer."""

    checks: list[Check]
    cluster: Cluster | None


class Permission(NamedTuple):
    """namespace: "" for all namespaces, or a cluster-scoped resource. reason: what does not work without it.
    served: each `GROUP/VERSION` of an optional resource; () if every cluster has it.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    namespace: str = ""
    name: str = ""
    reason: str = ""
    served: tuple[str, ...] = ()

    def accesses(self) -> tuple[AccessRequest, ...]:
        """One review for each verb. A creation has no name yet."""
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


def in_a_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ


async def examine(config: Config, kubernetes: Kubernetes, clock: Clock) -> ClusterChecks:
    try:
        client = await connect(kubernetes.kubeconfig, kubernetes.context, Random())  # noqa: S311 - not a secret
    except CannotConnect as error:
        remedy = "run it in Tidegate's pod, or set kubernetes.kubeconfig"
        return ClusterChecks([fail(API, str(error), remedy)], None)
    try:
        return await _examine(client, config, kubernetes, clock)
    finally:
        await client.close()


async def _examine(client: KubernetesClient, config: Config, kubernetes: Kubernetes, clock: Clock) -> ClusterChecks:
    sent_at = clock.now()
    try:
        version, date = await client.version()
        received_at = clock.now()
        groups = await client.groups()
    except ApiFailure as failed:
        remedy = "check its address, and that a NetworkPolicy allows the connection"
        return ClusterChecks([fail(API, failed.detail, remedy)], None)
    checks = [check_version(version), check_clock("the API server", date, sent_at, received_at)]
    checks += [await _check_identity(client), check_kinds(config, groups)]
    checks += await _check_permissions(client, needed_permissions(config), groups)
    cluster = Cluster(kubernetes.namespaces, blind_s=inf)
    deployments = await _list_all(client, kubernetes, cluster, clock)
    checks.append(check_keda(keda_version(deployments), served=SCALEDOBJECTS.version in groups))
    if config.listen.metrics_api is not None:
        checks += await _check_registrations(client, config.listen.metrics_api)
    elif SCALEDOBJECTS.version in groups:
        checks += await _check_keda_registration(client)
    if config.listen.peers is not None:
        checks.append(await _check_lease(client, config.listen.peers))
    return ClusterChecks(checks, cluster)


def check_version(version: ServerVersion) -> Check:
    name = f"Kubernetes {version.written}"
    if (version.major, version.minor) >= TOLERANCE_FROM:
        return ok(API, f"{name}; HPAs support a tolerance, so every step is taken exactly")
    remedy = "do not set the tolerance of an HPA: Tidegate rounds steps within 10 % outward so that none is lost"
    return warn(API, f"{name}: HPAs have no tolerance before 1.35", remedy)


def check_kinds(config: Config, groups: frozenset[str]) -> Check:
    """Which optional kinds (of CRDs) the cluster serves."""
    optional = [resource for resource in RESOURCES if resource.optional]
    present = [resource.kind for resource in optional if resource.version in groups]
    absent = {resource.kind: resource.version for resource in optional if resource.version not in groups}
    result = f"{', '.join(present) or 'none'}; without {', '.join(absent) or 'none'}"
    pages = [workload.pods for workload in config.workloads if workload.pods is not None]
    needed = {page.target.partition("/")[0] for page in pages if page.target is not None} & absent.keys()
    if needed:
        names = ", ".join(sorted(f"{absent[kind]} {kind}" for kind in needed))
        return fail("kinds", result, f"install the CRDs of {names}: workloads of the configuration have such a target")
    return ok("kinds", result)


async def _check_identity(client: KubernetesClient) -> Check:
    try:
        name = await client.username()
    except ApiFailure:  # before Kubernetes 1.28
        return ok("identity", "unknown")
    if name.startswith("system:serviceaccount:"):
        return ok("identity", name)
    remedy = "the permissions below are of that user; for Tidegate's, run it by kubectl exec in Tidegate's pod"
    return warn("identity", f"{name or 'anonymous'} is not a ServiceAccount", remedy)


def needed_permissions(config: Config) -> list[Permission]:
    """In the order of the configuration's keys; none without `kubernetes`."""
    if config.kubernetes is None:
        return []
    needed = [
        *_watch_permissions(config.kubernetes),
        *_share_permissions(config),
        *_event_permissions(config.kubernetes),
    ]
    if config.listen.metrics_api is not None:
        needed += _metrics_api_permissions(config.listen.metrics_api)
    if config.listen.peers is not None:
        name, _, namespace = config.listen.peers.lease.partition(".")
        reason = "leader election; without it each replica publishes its own decisions"
        needed.append(Permission("coordination.k8s.io", "leases", ("get", "update"), namespace, name, reason))
        needed.append(Permission("coordination.k8s.io", "leases", ("create",), namespace, reason=reason))
    return needed


def _watch_permissions(kubernetes: Kubernetes) -> Iterator[Permission]:
    for resource in RESOURCES:
        reason = "workloads of triggers" if resource in (SCALEDOBJECTS, SCALEDJOBS) else "workloads and pods"
        for namespace in (kubernetes.namespaces or ("",)) if resource.namespaced else ("",):
            served = _versions(resource)
            yield Permission(resource.group, resource.name, ("list", "watch"), namespace, reason=reason, served=served)


def _versions(resource: Resource) -> tuple[str, ...]:
    """Of an optional resource."""
    found = (resource, resource.before) if resource.optional else ()
    return tuple(each.version for each in found if each is not None)


def _share_permissions(config: Config) -> Iterator[Permission]:
    for resource in SHARED if config.sharing is not None else ():
        reason = "quotas of shared GPUs; without it none limits them"
        served = _versions(resource)
        yield Permission(resource.group, resource.name, ("list", "watch"), "", reason=reason, served=served)


def _event_permissions(kubernetes: Kubernetes) -> Iterator[Permission]:
    if kubernetes.events:
        reason = "Events; or set kubernetes.events: false"
        for namespace in kubernetes.namespaces or ("",):
            yield Permission("events.k8s.io", "events", ("create", "patch"), namespace, reason=reason)


def _metrics_api_permissions(served: MetricsApi) -> Iterator[Permission]:
    reason = "authentication of the metrics API; bind it to system:auth-delegator"
    yield Permission("authentication.k8s.io", "tokenreviews", ("create",), reason=reason)
    yield Permission("authorization.k8s.io", "subjectaccessreviews", ("create",), reason=reason)
    name = "extension-apiserver-authentication"
    reason = "client certificate of the API server; bind it to extension-apiserver-authentication-reader"
    yield Permission("", "configmaps", ("get",), "kube-system", name, reason)
    for called in _served_apis(served):
        yield Permission("apiregistration.k8s.io", "apiservices", ("get",), name=called, reason="provider of the API")


def _served_apis(served: MetricsApi) -> list[str]:
    """Names of the APIServices that the configuration turns on."""
    on = {EXTERNAL_GROUP: served.external, CUSTOM_GROUP: served.custom}
    return [f"{version}.{group}" for group in VERSIONS if on[group] for version in VERSIONS[group]]


async def _check_permissions(
    client: KubernetesClient, permissions: Iterable[Permission], groups: frozenset[str]
) -> list[Check]:
    """One check for each missing permission, or one for all. groups: what the cluster serves."""
    slots = asyncio.Semaphore(_CONCURRENT_REVIEWS)

    async def review(permission: Permission) -> Check | None:
        missing = []
        for access in permission.accesses():
            async with slots:
                try:
                    verdict = await client.may(access)
                except ApiFailure as failed:
                    return warn(f"permission: {permission}", failed.detail, "try again")
            if not verdict.allowed:
                missing.append(access.verb)
        if not missing:
            return None
        result = f"may not {', '.join(missing)}: {permission.reason}"
        return fail(f"permission: {permission}", result, permission.remedy())

    needed = [
        permission for permission in permissions if not permission.served or groups.intersection(permission.served)
    ]
    checks = [check for check in await asyncio.gather(*map(review, needed)) if check is not None]
    return checks or [ok("permissions", f"all {len(needed)} that the configuration needs")]


async def _list_all(
    client: KubernetesClient, kubernetes: Kubernetes, cluster: Cluster, clock: Clock
) -> list[Mapping[str, Any]]:
    """Lists everything that the daemon watches into `cluster`; returns the Deployments. What is forbidden stays
    unknown; the permissions report it.
    """
    deployments: list[Mapping[str, Any]] = []

    async def fetch(resource: Resource, namespace: str | None) -> None:
        documents: list[dict[str, Any]] = []
        after = ""
        try:
            while True:
                page = await client.page(resource, namespace, after)
                documents += page.items
                after = page.after
                if not after:
                    break
        except NotFound:
            cluster.mark_absent(resource, clock.now())
            return
        except ApiFailure:
            return
        if resource == DEPLOYMENTS:
            deployments.extend(documents)
        cluster.replace(resource, namespace, documents, clock.now())

    for resource in RESOURCES:  # one after the other: lists of a large cluster are large
        for namespace in (kubernetes.namespaces or (None,)) if resource.namespaced else (None,):
            await fetch(resource, namespace)
    return deployments


def keda_version(deployments: Iterable[Mapping[str, Any]]) -> str | None:
    """Version of KEDA's operator: the tag of its image, else its label, else "". Returns None without an operator.

    deployments: documents of the API. Worked example: the image `ghcr.io/kedacore/keda:2.19.0@sha256:…` is "2.19.0".
    """
    for document in deployments:
        metadata = document.get("metadata") or {}
        labels = metadata.get("labels") or {}
        if KEDA_OPERATOR in (metadata.get("name"), labels.get("app.kubernetes.io/name")):
            return _image_tag(document) or str(labels.get("app.kubernetes.io/version") or "")
    return None


def _image_tag(document: Mapping[str, Any]) -> str:
    try:
        containers = document["spec"]["template"]["spec"]["containers"]
        image = str(next(each["image"] for each in containers if "keda" in str(each["image"])))
    except (KeyError, TypeError, StopIteration):
        return ""
    name, _, tag = image.partition("@")[0].rpartition(":")
    return tag if name and "/" not in tag else ""


def check_keda(version: str | None, *, served: bool) -> Check:
    """version: of `keda_version`. served: the cluster serves ScaledObjects."""
    if not served:
        return ok(KEDA, "not installed; the metrics API and configured workloads do not need it")
    if version is None:
        return ok(KEDA, "ScaledObjects are served; the operator is in no visible namespace")
    numbers = _KEDA_VERSION.fullmatch(version.partition("-")[0])
    if numbers is None:
        return ok(KEDA, f"the operator's image has no version ({version or 'no tag'})")
    if (int(numbers[1]), int(numbers[2])) < KEDA_TESTED_FROM:
        return warn(KEDA, version, "upgrade to 2.19 or later: Tidegate is tested with 2.19 and 2.20")
    return ok(KEDA, version)


async def _check_registrations(client: KubernetesClient, served: MetricsApi) -> list[Check]:
    """Whether the API server forwards the API groups to Tidegate."""
    name, _, namespace = (served.service or "").partition(".")
    tidegate = ServiceReference(namespace, name) if name else None
    return [await _check_registration(client, called, tidegate) for called in _served_apis(served)]


async def _check_registration(client: KubernetesClient, called: str, tidegate: ServiceReference | None) -> Check:
    name = f"APIService {called}"
    try:
        holder = await client.holder(called)
    except ApiFailure as failed:
        return warn(name, f"its provider is unknown: {failed.detail}", "add the missing permission above")
    match registration_state(holder, tidegate):
        case RegistrationState.OURS:
            return ok(name, f"{holder}, which is Tidegate")
        case RegistrationState.OTHER:
            remedy = "a cluster has one provider of each API group: turn it off in listen.metrics_api, or replace it"
            return fail(name, f"{holder}, which is not Tidegate", remedy)
        case RegistrationState.HELD:
            return warn(name, f"{holder}", "set listen.metrics_api.service to Tidegate's Service")
        case _:
            remedy = "apply Tidegate's APIService: the chart and deploy/kustomize/components/metrics-api have it"
            return fail(name, "not registered: no HPA can use it", remedy)


async def _check_keda_registration(client: KubernetesClient) -> list[Check]:
    """KEDA serves HPAs through an API group that another provider may hold."""
    try:
        holder = await client.holder(_KEDA_API)
    except ApiFailure:
        return []  # Tidegate does not need this permission
    name = f"APIService {_KEDA_API}"
    if holder is None:
        return [fail(name, "not registered", "install KEDA's metrics server: HPAs of KEDA get no metric without it")]
    if "keda" in f"{holder.namespace}/{holder.name}":
        return [ok(name, f"{holder}")]
    remedy = "a cluster has one provider: remove that APIService and reinstall KEDA's, or do without KEDA"
    return [fail(name, f"{holder} does not look like KEDA's: HPAs of KEDA get no metric", remedy)]


async def _check_lease(client: KubernetesClient, peers: Peers) -> Check:
    check_name = f"Lease {peers.lease}"
    name, _, namespace = peers.lease.partition(".")
    try:
        lease = await client.lease(namespace, name)
    except ApiFailure as failed:
        forbidden = failed.status == HTTPStatus.FORBIDDEN
        remedy = "add the missing permission above" if forbidden else "check the namespace"
        return fail(check_name, failed.detail, remedy)
    if lease is None or not lease.holder:
        return ok(check_name, "no replica leads")
    return ok(check_name, f"{lease.holder} leads, at {lease.address or 'an unknown address'}")
