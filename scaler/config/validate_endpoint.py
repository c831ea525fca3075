"""Checks the values of one endpoint against each other: one locator, and credentials that go together.

Pure. Not every purpose allows every locator: pods are located by their scale target, a gateway by its Service.

Worked example: `pods: {service: chat}` gives one finding, at its `service`: "is for gateways: the pods of a workload
are found by target or dns".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from .endpoint import Access, Endpoint, Redis
from .errors import Finding, Loc
from .model import Kubernetes

Purpose: TypeAlias = Literal["pods", "gateway", "gpus", "shared gateway"]

_LOCATORS = ("url", "urls", "dns", "target", "service", "prometheus", "redis")
_RESOLVED = ("dns", "target", "service")  # port, path and scheme go with them
_KUBERNETES: Loc = ("kubernetes",)

_REDIS_LOCATORS = ("url", "sentinels", "cluster")
_QUEUES = ("lists", "celery", "sorted_sets", "delayed", "streams")
_WITH_SENTINELS = ("master", "db", "sentinel_access")


def endpoint_findings(
    at: Loc, endpoint: Endpoint, purpose: Purpose, kubernetes: Kubernetes | None, namespace: str = ""
) -> Iterator[Finding]:
    """namespace: the workload's; "" if there is none."""
    rests_on = tuple((*at, locator) for locator in _LOCATORS)
    given = [locator for locator in _LOCATORS if getattr(endpoint, locator) is not None]
    allowed = ", ".join(locator for locator in _LOCATORS if locator not in _excluded(purpose))
    if not given:
        yield Finding(at, f"must have one of {allowed}: it locates the targets", rests_on=rests_on)
    elif len(given) > 1:
        yield Finding(at, f"must have only one of {allowed}: {' and '.join(given)} are given", rests_on=rests_on)
    else:
        (locator,) = given
        yield from _companions(at, endpoint, locator, rests_on)
        yield from _locator(at, endpoint, locator, purpose, kubernetes, namespace)
    urls = endpoint.urls or ()
    for index, url in enumerate(urls):
        if url in urls[:index]:
            yield Finding((*at, "urls", index), f"must be another target than urls.{urls.index(url)}", url)
    if endpoint.redis is not None:
        yield from _redis((*at, "redis"), endpoint.redis, endpoint.access, (*at, "access"))
    if endpoint.access is not None:
        scheme_keys = tuple((*at, key) for key in ("url", "urls", "scheme", "prometheus"))
        yield from access_findings((*at, "access"), endpoint.access, _is_plain_http(endpoint), scheme_keys)


def access_findings(at: Loc, access: Access, is_plain_http: bool, scheme_keys: tuple[Loc, ...]) -> Iterator[Finding]:
    """scheme_keys: the keys that determine `is_plain_http`."""
    if access.bearer_file is not None and access.basic is not None:
        yield Finding((*at, "basic"), "is not allowed beside bearer_file: a request carries one of them")
    tls = access.tls
    if tls is None:
        return
    here = (*at, "tls")
    if is_plain_http:
        yield Finding(here, "is for https: the targets are scraped over http", rests_on=scheme_keys)
    if tls.certificate_file is not None and tls.key_file is None:
        bound = "needs key_file, the private key of the certificate"
        yield Finding((*here, "certificate_file"), bound, rests_on=((*here, "key_file"),))
    if tls.key_file is not None and tls.certificate_file is None:
        bound = "needs certificate_file, the certificate of the private key"
        yield Finding((*here, "key_file"), bound, rests_on=((*here, "certificate_file"),))
    if tls.insecure_skip_verify and tls.ca_file is not None:
        bound = "must not be true beside ca_file, which would not be used"
        yield Finding((*here, "insecure_skip_verify"), bound, rests_on=((*here, "ca_file"),))


def _excluded(purpose: Purpose) -> tuple[str, ...]:
    if purpose == "pods":
        return "service", "redis"
    return ("target", "redis") if purpose == "gpus" else ("target",)


def _companions(at: Loc, endpoint: Endpoint, locator: str, rests_on: tuple[Loc, ...]) -> Iterator[Finding]:
    """Keys that do not go with the locator."""
    if locator in _RESOLVED:
        return
    if locator == "redis" and endpoint.kind is not None:
        yield Finding((*at, "kind"), "goes with metrics: Redis has none", endpoint.kind, rests_on=rests_on)
    better = "that server knows its targets" if locator == "prometheus" else f"write it into {locator}"
    for key in ("port", "path", "scheme"):
        value = getattr(endpoint, key)
        if value is not None:
            bound = f"goes with dns, target or service: {better}"
            yield Finding((*at, key), bound, str(value), rests_on=rests_on)


def _locator(
    at: Loc, endpoint: Endpoint, locator: str, purpose: Purpose, kubernetes: Kubernetes | None, namespace: str
) -> Iterator[Finding]:
    here = (*at, locator)
    if locator in _excluded(purpose):
        if locator == "redis":
            yield Finding(here, "is for gateways: Redis has queues, and no metrics of pods or GPUs")
            return
        better = "the pods of a workload are found by target or dns" if locator == "service" else "use service or dns"
        owner = "gateways" if locator == "service" else "pods"
        yield Finding(here, f"is for {owner}: {better}", str(getattr(endpoint, locator)))
        return
    if locator == "prometheus" and endpoint.prometheus is not None and endpoint.prometheus.selector is None:
        if purpose != "gpus":
            yield Finding((*here, "selector"), "must be given: it selects the targets")
    elif locator in {"target", "service"}:
        home, name = endpoint.service_in(namespace) or (namespace, endpoint.target or "")
        if kubernetes is None:
            yield Finding(here, "needs kubernetes, which locates it", name, rests_on=(_KUBERNETES,))
        elif not home:
            yield Finding(here, "must be NAME.NAMESPACE: there is no workload with a namespace here", name)
        elif kubernetes.namespaces and home not in kubernetes.namespaces:
            bound = f"must be in a namespace of kubernetes.namespaces, which lacks {home}"
            yield Finding(here, bound, name, rests_on=(_KUBERNETES, (*_KUBERNETES, "namespaces")))


def _is_plain_http(endpoint: Endpoint) -> bool:
    """Whether all its targets are scraped over plain HTTP."""
    if endpoint.redis is not None:
        return False
    server = endpoint.prometheus.url if endpoint.prometheus else ""
    urls = (endpoint.url or "", *(endpoint.urls or ()), server)
    return endpoint.scheme != "https" and not any(url.startswith("https:") for url in urls)


def _redis(at: Loc, redis: Redis, access: Access | None, access_at: Loc) -> Iterator[Finding]:
    rests_on = tuple((*at, locator) for locator in _REDIS_LOCATORS)
    given = [locator for locator in _REDIS_LOCATORS if getattr(redis, locator) is not None]
    allowed = ", ".join(_REDIS_LOCATORS)
    if not given:
        yield Finding(at, f"must have one of {allowed}: it locates the servers", rests_on=rests_on)
    elif len(given) > 1:
        yield Finding(at, f"must have only one of {allowed}: {' and '.join(given)} are given", rests_on=rests_on)
    elif redis.sentinels is None:
        for key in _WITH_SENTINELS:
            if getattr(redis, key) is not None:
                better = "write it into url" if redis.url and key == "db" else f"{given[0]} needs none"
                yield Finding((*at, key), f"goes with sentinels: {better}", rests_on=rests_on)
    elif redis.master is None:
        bound = "must be given with sentinels: they watch masters by name"
        yield Finding((*at, "master"), bound, rests_on=((*at, "sentinels"),))
    yield from _redis_nodes(at, redis)
    yield from _redis_queues(at, redis)
    if access is not None:
        yield from _redis_access(access_at, access, redis, rests_on)
    if redis.sentinel_access is not None:
        yield from _redis_access((*at, "sentinel_access"), redis.sentinel_access, redis, rests_on)


def _redis_nodes(at: Loc, redis: Redis) -> Iterator[Finding]:
    for locator in ("sentinels", "cluster"):
        nodes: tuple[str, ...] = getattr(redis, locator) or ()
        for index, node in enumerate(nodes):
            here = (*at, locator, index)
            if node in nodes[:index]:
                yield Finding(here, f"must be another node than {locator}.{nodes.index(node)}", node)
            elif urlsplit(node).scheme != urlsplit(nodes[0]).scheme:
                bound = f"must have the scheme of {locator}.0: either all nodes use TLS or none"
                yield Finding(here, bound, node, rests_on=((*at, locator, 0),))


def _redis_queues(at: Loc, redis: Redis) -> Iterator[Finding]:
    if not any(getattr(redis, key) for key in _QUEUES):
        queue_keys = tuple((*at, key) for key in _QUEUES)
        yield Finding(at, f"must have one of {', '.join(_QUEUES)}: the queues to count", rests_on=queue_keys)
    first: dict[str, tuple[str, int]] = {}
    for key in _QUEUES:
        for index, queue in enumerate(getattr(redis, key)):
            name = queue if isinstance(queue, str) else queue.key
            name += f"/{queue.group}" if key == "streams" else ""
            twin = first.setdefault(name, (key, index))
            if twin != (key, index):
                bound = f"must be another queue than {twin[0]}.{twin[1]}: it would be counted twice"
                got = None if key in {"delayed", "streams"} else name
                yield Finding((*at, key, index), bound, got, rests_on=((*at, *twin),))


def _redis_access(at: Loc, access: Access, redis: Redis, rests_on: tuple[Loc, ...]) -> Iterator[Finding]:
    if access.bearer_file is not None:
        bound = "is for HTTP: Redis takes a user and a password (basic)"
        yield Finding((*at, "bearer_file"), bound, rests_on=rests_on)
    if access.tls is not None and not redis.is_tls:
        yield Finding((*at, "tls"), "is for rediss: the servers are reached over redis", rests_on=rests_on)
