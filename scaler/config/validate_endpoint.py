"""What must hold between the values of one endpoint: one way to the page, and credentials that go together.

Pure. It knows what an endpoint is for, since not every way leads everywhere: pods are found by what they belong to, a
gateway by its Service.

Worked example: `pods: {service: chat}` gives one finding, at its `service`: "is for gateways: the pods of a workload
are found by target or dns".

What must hold between the words of queues in Redis: one way to the servers, and queues that differ.

Pure. Worked example: `redis: {sentinels: [redis://s], lists: [jobs]}` gives one finding, at its `master`: "must be
given with sentinels: they watch masters by name".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from .endpoint import Access, Endpoint, Redis
from .errors import Finding, Loc
from .model import Kubernetes

Purpose: TypeAlias = Literal["pods", "gateway", "gpus", "shared gateway"]

_WAYS = ("url", "urls", "dns", "target", "service", "prometheus", "redis")
_LOOKED_UP = ("dns", "target", "service")  # their port, path and scheme are said beside them
_KUBERNETES: Loc = ("kubernetes",)


def endpoint_findings(
    at: Loc, endpoint: Endpoint, purpose: Purpose, kubernetes: Kubernetes | None, namespace: str = ""
) -> Iterator[Finding]:
    """namespace: the workload's; "" where there is none."""
    rests_on = tuple((*at, way) for way in _WAYS)
    given = [way for way in _WAYS if getattr(endpoint, way) is not None]
    allowed = ", ".join(way for way in _WAYS if way not in _not_for(purpose))
    if not given:
        yield Finding(at, f"must have one of {allowed}: it says where to ask", rests_on)
    elif len(given) > 1:
        yield Finding(at, f"must have only one of {allowed}: {' and '.join(given)} are given", rests_on)
    else:
        (way,) = given
        yield from _beside(at, endpoint, way, rests_on)
        yield from _found_by(at, endpoint, way, purpose, kubernetes, namespace)
    urls = endpoint.urls or ()
    for index, url in enumerate(urls):
        if url in urls[:index]:
            yield Finding((*at, "urls", index), f"must be another page than urls.{urls.index(url)}", got=url)
    if endpoint.redis is not None:
        yield from redis_findings((*at, "redis"), endpoint.redis, endpoint.access, (*at, "access"))
    if endpoint.access is not None:
        places = tuple((*at, place) for place in ("url", "urls", "scheme", "prometheus"))
        yield from access_findings((*at, "access"), endpoint.access, _is_plain(endpoint), places)


def _not_for(purpose: Purpose) -> tuple[str, ...]:
    if purpose == "pods":
        return "service", "redis"
    return ("target", "redis") if purpose == "gpus" else ("target",)


def _beside(at: Loc, endpoint: Endpoint, way: str, rests_on: tuple[Loc, ...]) -> Iterator[Finding]:
    if way in _LOOKED_UP:
        return
    better = "the server was told where to scrape" if way == "prometheus" else f"write it into {way}"
    if way == "redis" and endpoint.kind is not None:
        yield Finding((*at, "kind"), "goes with pages: Redis itself is asked", rests_on, endpoint.kind)
    for field in ("port", "path", "scheme"):
        value = getattr(endpoint, field)
        if value is not None:
            yield Finding((*at, field), f"goes with dns, target or service: {better}", rests_on, str(value))


def _found_by(
    at: Loc, endpoint: Endpoint, way: str, purpose: Purpose, kubernetes: Kubernetes | None, namespace: str
) -> Iterator[Finding]:
    if way == "redis" and way in _not_for(purpose):
        yield Finding((*at, way), "is for gateways: a queue lives in it, and no page of pods or GPUs")
        return
    if way in _not_for(purpose):
        better = "the pods of a workload are found by target or dns" if way == "service" else "name a service or a dns"
        belongs = "gateways" if way == "service" else "pods"
        yield Finding((*at, way), f"is for {belongs}: {better}", got=str(getattr(endpoint, way)))
        return
    if way == "prometheus" and endpoint.prometheus is not None and endpoint.prometheus.selector is None:
        if purpose != "gpus":
            yield Finding((*at, way, "selector"), "must be given: it says whose pages are meant")
    elif way in {"target", "service"}:
        home, name = endpoint.service_in(namespace) or (namespace, endpoint.target or "")
        if kubernetes is None:
            yield Finding((*at, way), "needs kubernetes: nobody else knows where it is", (_KUBERNETES,), name)
        elif not home:
            yield Finding((*at, way), "must be NAME.NAMESPACE: no workload's namespace is meant here", got=name)
        elif kubernetes.namespaces and home not in kubernetes.namespaces:
            bound = f"must be in a namespace that kubernetes.namespaces watches: {home} is none"
            yield Finding((*at, way), bound, (_KUBERNETES, (*_KUBERNETES, "namespaces")), name)


def _is_plain(endpoint: Endpoint) -> bool:
    """All its pages are asked over plain HTTP."""
    if endpoint.redis is not None:
        return False
    server = endpoint.prometheus.url if endpoint.prometheus else ""
    urls = (endpoint.url or "", *(endpoint.urls or ()), server)
    return endpoint.scheme != "https" and not any(url.startswith("https:") for url in urls)


def access_findings(at: Loc, access: Access, is_plain: bool, places: tuple[Loc, ...]) -> Iterator[Finding]:
    """places: the keys that say whether it is plain HTTP."""
    if access.bearer_file is not None and access.basic is not None:
        yield Finding((*at, "basic"), "must not stand beside bearer_file: a request carries one of them")
    tls = access.tls
    if tls is None:
        return
    if is_plain:
        yield Finding((*at, "tls"), "is for https: the pages are asked over http", places)
    if tls.certificate_file is not None and tls.key_file is None:
        yield Finding(
            (*at, "tls", "certificate_file"),
            "needs key_file: a certificate is shown with its key",
            ((*at, "tls", "key_file"),),
        )
    if tls.key_file is not None and tls.certificate_file is None:
        yield Finding(
            (*at, "tls", "key_file"),
            "needs certificate_file: a key proves nothing by itself",
            ((*at, "tls", "certificate_file"),),
        )
    if tls.insecure_skip_verify and tls.ca_file is not None:
        yield Finding(
            (*at, "tls", "insecure_skip_verify"),
            "must not be true beside ca_file: nothing would be verified by it",
            ((*at, "tls", "ca_file"),),
        )


_REDIS_LOCATORS = ("url", "sentinels", "cluster")
_QUEUES = ("lists", "celery", "sorted_sets", "delayed", "streams")
_BEHIND = ("master", "db", "sentinel_access")


def redis_findings(at: Loc, redis: Redis, access: Access | None, access_at: Loc) -> Iterator[Finding]:
    """`at`: where `redis` stands, `access_at`: where its `access` does."""
    rests_on = tuple((*at, way) for way in _REDIS_LOCATORS)
    given = [way for way in _REDIS_LOCATORS if getattr(redis, way) is not None]
    if not given:
        yield Finding(at, "must have one of url, sentinels, cluster: it says where the servers are", rests_on)
    elif len(given) > 1:
        yield Finding(at, f"must have only one of url, sentinels, cluster: {' and '.join(given)} are given", rests_on)
    elif redis.sentinels is None:
        for field in _BEHIND:
            if getattr(redis, field) is not None:
                better = "the url ends with it" if redis.url and field == "db" else f"there are none beside {given[0]}"
                yield Finding((*at, field), f"goes with sentinels: {better}", rests_on)
    elif redis.master is None:
        bound = "must be given with sentinels: they watch masters by name"
        yield Finding((*at, "master"), bound, ((*at, "sentinels"),))
    yield from _nodes(at, redis)
    yield from _queues(at, redis)
    if access is not None:
        yield from _access(access_at, access, redis, rests_on)
    if redis.sentinel_access is not None:
        yield from _access((*at, "sentinel_access"), redis.sentinel_access, redis, rests_on)


def _nodes(at: Loc, redis: Redis) -> Iterator[Finding]:
    for way in ("sentinels", "cluster"):
        nodes: tuple[str, ...] = getattr(redis, way) or ()
        for index, node in enumerate(nodes):
            if node in nodes[:index]:
                yield Finding((*at, way, index), f"must be another node than {way}.{nodes.index(node)}", got=node)
            elif urlsplit(node).scheme != urlsplit(nodes[0]).scheme:
                bound = f"must begin as {way}.0 does: either all speak TLS or none"
                yield Finding((*at, way, index), bound, ((*at, way, 0),), node)


def _queues(at: Loc, redis: Redis) -> Iterator[Finding]:
    if not any(getattr(redis, field) for field in _QUEUES):
        places = tuple((*at, field) for field in _QUEUES)
        yield Finding(at, f"must have one of {', '.join(_QUEUES)}: it says which queues are counted", places)
    first: dict[str, tuple[str, int]] = {}
    for field in _QUEUES:
        for index, queue in enumerate(getattr(redis, field)):
            name = queue if isinstance(queue, str) else queue.key
            name += f"/{queue.group}" if field == "streams" else ""
            twin, number = first.setdefault(name, (field, index))
            if (twin, number) != (field, index):
                bound = f"must be another queue than {twin}.{number}: it would be counted twice"
                got = "" if field in {"delayed", "streams"} else name
                yield Finding((*at, field, index), bound, ((*at, twin, number),), got)


def _access(at: Loc, access: Access, redis: Redis, places: tuple[Loc, ...]) -> Iterator[Finding]:
    if access.bearer_file is not None:
        yield Finding((*at, "bearer_file"), "is for HTTP: Redis asks for a user and a password (basic)", places)
    if access.tls is not None and not redis.is_tls:
        yield Finding((*at, "tls"), "is for rediss: the servers are asked over redis", places)
