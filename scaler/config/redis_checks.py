"""What must hold between the words of queues in Redis: one way to the servers, and queues that differ.

Pure. Worked example: `redis: {sentinels: [redis://s], lists: [jobs]}` gives one finding, at its `master`: "must be
given with sentinels: they watch masters by name".
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from .access import Access
from .finding import Finding
from .problem import Loc
from .redis import Redis

_WAYS = ("url", "sentinels", "cluster")
_QUEUES = ("lists", "celery", "sorted_sets", "delayed", "streams")
_BEHIND = ("master", "db", "sentinel_access")


def redis_findings(at: Loc, redis: Redis, access: Access | None, access_at: Loc) -> Iterator[Finding]:
    """`at`: where `redis` stands, `access_at`: where its `access` does."""
    rests_on = tuple((*at, way) for way in _WAYS)
    given = [way for way in _WAYS if getattr(redis, way) is not None]
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
