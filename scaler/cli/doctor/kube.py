"""The cluster: does its API server answer, is what the configuration needs allowed and served, and who else is there.

Worked example: without the right to write Events, `allowed` has a failure "may not create, patch events.events.k8s.io",
and what to do is the rule to add to which Role.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from math import inf
from random import Random
from typing import Any, NamedTuple

from exporter.clock import Clock
from exporter.kubernetes.auth import Holder, ServerVersion
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.client import KubernetesClient, connect
from exporter.kubernetes.protocol import Absent, ApiFailure, CannotConnect
from exporter.kubernetes.resources import DEPLOYMENTS, RESOURCES, SCALEDOBJECTS, Resource
from scaler.api.metrics_api.discovery import VERSIONS
from scaler.api.metrics_api.documents import CUSTOM_GROUP, EXTERNAL_GROUP
from scaler.api.metrics_api.registration import RegistrationState, standing
from scaler.config import Config, Kubernetes, MetricsApi, Peers

from . import clocks, keda
from .check import Check, fail, ok, warn
from .rights import Right, needed

API = "API server"
TOLERANCE = (1, 35)
_KEDAS = f"{VERSIONS[EXTERNAL_GROUP][0]}.{EXTERNAL_GROUP}"
_QUESTIONS_AT_ONCE = 8


class ClusterChecks(NamedTuple):
    """cluster: what was listed; None where the API server does not answer."""

    checks: list[Check]
    cluster: Cluster | None


async def examine(config: Config, kubernetes: Kubernetes, clock: Clock) -> ClusterChecks:
    try:
        client = await connect(kubernetes.kubeconfig, kubernetes.context, Random())  # noqa: S311 - it is no secret
    except CannotConnect as error:
        return ClusterChecks(
            [fail(API, str(error), "run it in Tidegate's pod, or name a file in kubernetes.kubeconfig")], None
        )
    try:
        return await _examine(client, config, kubernetes, clock)
    finally:
        await client.close()


async def _examine(client: KubernetesClient, config: Config, kubernetes: Kubernetes, clock: Clock) -> ClusterChecks:
    asked_at = clock.now()
    try:
        version, date = await client.version()
        came_at = clock.now()
        groups = await client.groups()
    except ApiFailure as failed:
        return ClusterChecks(
            [fail(API, failed.detail, "is its address right, and does a NetworkPolicy let Tidegate out?")], None
        )
    checks = [of_version(version), clocks.check("the API server", date, asked_at, came_at), await _who(client)]
    checks.append(of_kinds(config, groups))
    checks += await allowed(client, needed(config), groups)
    seen = Cluster(kubernetes.namespaces, blind_s=inf)
    operators = await _list_all(client, kubernetes, seen, clock)
    checks.append(keda.check(keda.version(operators), served=SCALEDOBJECTS.version in groups))
    if config.listen.metrics_api is not None:
        checks += await _registered(client, config.listen.metrics_api)
    elif SCALEDOBJECTS.version in groups:
        checks += await _kedas_registration(client)
    if config.listen.peers is not None:
        checks.append(await _lease(client, config.listen.peers))
    return ClusterChecks(checks, seen)


def of_version(version: ServerVersion) -> Check:
    said = f"Kubernetes {version.written}"
    if (version.major, version.minor) >= TOLERANCE:
        return ok(API, f"{said}; an HPA's tolerance can be set, so every step is taken exactly")
    do = "set the tolerance of no HPA there: steps within 10 % are rounded outward instead, so that none is lost"
    return warn(API, f"{said}: before 1.35 an HPA's tolerance cannot be set", do)


def of_kinds(config: Config, groups: frozenset[str]) -> Check:
    """Which of the kinds that come by CRDs are there. groups: what the cluster serves."""
    optional = [resource for resource in RESOURCES if resource.optional]
    there = [resource.kind for resource in optional if resource.version in groups]
    absent = {resource.kind: resource.version for resource in optional if resource.version not in groups}
    said = f"{', '.join(there) or 'none'}; without {', '.join(absent) or 'none'}"
    pages = [workload.pods for workload in config.workloads if workload.pods is not None]
    wanted = {page.target.partition("/")[0] for page in pages if page.target is not None} & absent.keys()
    if wanted:
        names = ", ".join(sorted(f"{absent[kind]} {kind}" for kind in wanted))
        return fail("kinds", said, f"install what brings {names}: workloads of the configuration name such a target")
    return ok("kinds", said)


async def _who(client: KubernetesClient) -> Check:
    try:
        name = await client.who()
    except ApiFailure:  # before Kubernetes 1.28, and no matter
        return ok("identity", "not said")
    if name.startswith("system:serviceaccount:"):
        return ok("identity", name)
    do = "the rights below are that user's: for Tidegate's own, kubectl exec deploy/tidegate -- tidegate doctor -c FILE"
    return warn("identity", f"{name or 'nobody'}, which is no ServiceAccount", do)


async def allowed(client: KubernetesClient, rights: Iterable[Right], groups: frozenset[str]) -> list[Check]:
    """One line for each right that is missing; one for all if none is. groups: what the cluster serves."""
    turns = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

    async def look(right: Right) -> Check | None:
        missing = []
        for access in right.accesses():
            async with turns:
                try:
                    verdict = await client.may(access)
                except ApiFailure as failed:
                    return warn(f"right: {right}", failed.detail, "ask again")
            if not verdict.allowed:
                missing.append(access.verb)
        if not missing:
            return None
        return fail(f"right: {right}", f"may not {', '.join(missing)}: {right.why}", right.remedy())

    wanted = [right for right in rights if not right.served or right.served in groups]
    checks = [check for check in await asyncio.gather(*map(look, wanted)) if check is not None]
    return checks or [ok("rights", f"all {len(wanted)} that the configuration needs")]


async def _list_all(
    client: KubernetesClient, kubernetes: Kubernetes, seen: Cluster, clock: Clock
) -> list[Mapping[str, Any]]:
    """Everything the daemon would watch, into `seen`; returns the Deployments that may be KEDA's operator. What is
    refused stays unknown: the rights have said so.
    """
    operators: list[Mapping[str, Any]] = []

    async def take(resource: Resource, namespace: str | None) -> None:
        documents: list[dict[str, Any]] = []
        after = ""
        try:
            while True:
                page = await client.page(resource, namespace, after)
                documents += page.items
                after = page.after
                if not after:
                    break
        except Absent:
            seen.absent(resource, clock.now())
            return
        except ApiFailure:
            return
        if resource == DEPLOYMENTS:
            operators.extend(documents)
        seen.replace(resource, namespace, documents, clock.now())

    for resource in RESOURCES:  # one after the other: a large cluster's lists are large
        for namespace in (kubernetes.namespaces or (None,)) if resource.namespaced else (None,):
            await take(resource, namespace)
    return operators


async def _registered(client: KubernetesClient, served: MetricsApi) -> list[Check]:
    """Does the API server forward the groups that are on to us?"""
    name, _, namespace = (served.service or "").partition(".")
    own = Holder(namespace, name) if name else None
    on = {EXTERNAL_GROUP: served.external, CUSTOM_GROUP: served.custom}
    wanted = [f"{version}.{group}" for group in VERSIONS if on[group] for version in VERSIONS[group]]
    return [await _registration(client, called, own) for called in wanted]


async def _registration(client: KubernetesClient, called: str, own: Holder | None) -> Check:
    name = f"APIService {called}"
    try:
        holder = await client.holder(called)
    except ApiFailure as failed:
        return warn(name, f"who holds it cannot be seen: {failed.detail}", "give the right that is missing above")
    match standing(holder, own):
        case RegistrationState.OURS:
            return ok(name, f"{holder}, which is Tidegate's")
        case RegistrationState.OTHER:
            do = "a cluster has one provider of each API group: turn it off in listen.metrics_api, or have it"
            return fail(name, f"{holder}, which is not Tidegate's", do)
        case RegistrationState.HELD:
            return warn(name, f"{holder}", "say in listen.metrics_api.service which Service is Tidegate's own")
        case _:
            do = "apply Tidegate's APIService: the chart and deploy/kustomize/components/metrics-api have it"
            return fail(name, "nobody has registered it: no HPA can ask", do)


async def _kedas_registration(client: KubernetesClient) -> list[Check]:
    """KEDA hands its numbers to HPAs through an API group that another may hold."""
    try:
        holder = await client.holder(_KEDAS)
    except ApiFailure:
        return []  # Tidegate needs no right to see it
    name = f"APIService {_KEDAS}"
    if holder is None:
        do = "install KEDA's metrics server: without it its HPAs get no number"
        return [fail(name, "nobody has registered it", do)]
    if "keda" in f"{holder.namespace}/{holder.name}":
        return [ok(name, f"{holder}")]
    do = "a cluster has one provider of it: remove that APIService and let KEDA have it, or do without KEDA"
    return [fail(name, f"{holder}, which does not look like KEDA's: its HPAs get no number", do)]


async def _lease(client: KubernetesClient, peers: Peers) -> Check:
    name, _, namespace = peers.lease.partition(".")
    try:
        lease = await client.lease(namespace, name)
    except ApiFailure as failed:
        do = (
            "give the right that is missing above"
            if failed.status == HTTPStatus.FORBIDDEN
            else "is the namespace right?"
        )
        return fail(f"Lease {peers.lease}", failed.detail, do)
    if lease is None or not lease.holder:
        return ok(f"Lease {peers.lease}", "nobody leads now")
    return ok(f"Lease {peers.lease}", f"{lease.holder} leads, at {lease.address or 'an address it does not say'}")


def in_a_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ
