"""Queues in Redis: where the servers are and which keys are counted. Names only: nothing here asks a server.

Worked example: `Redis(url="redis://redis.batch.svc:6379/2", lists=("jobs",))` is the length of the list `jobs` in
database 2; its `addresses` are `(("redis.batch.svc", 6379),)` and its `database` is 2.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from .access import Access, Many, Section, Text
from .scalars import HIGHEST_PORT, Scalar, refused

PORT, SENTINEL_PORT = 6379, 26379
HIGHEST_DB = 65_535  # Redis has 16 unless told otherwise, and no limit of its own that anybody would reach
TLS = "rediss"

_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
_NODE = rf"^rediss?://{_HOST}(?::[0-9]{{1,5}})?$"
_URL = rf"{_NODE[:-1]}(?:/[0-9]{{0,5}})?$"


def read_redis_url(value: Any) -> str:
    return _read(value, _URL, "must be a URL such as redis://redis.batch.svc:6379/0, or rediss:// for TLS")


def read_redis_node(value: Any) -> str:
    return _read(value, _NODE, "must be a URL such as redis://redis-0.redis:6379, without a database, or rediss://")


def _read(value: Any, pattern: str, wanted: str) -> str:
    if isinstance(value, str) and "@" in value:
        raise refused("must not carry a user or a password: they go into access.basic")
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise refused(wanted)
    try:
        port = urlsplit(value).port
    except ValueError:
        port = 0
    if port == 0:
        raise refused(f"{wanted}, its port from 1 to {HIGHEST_PORT}")
    return value


REDIS_URL = Scalar(read_redis_url, str, {"title": "Redis URL", "type": "string", "pattern": _URL})
REDIS_NODE = Scalar(read_redis_node, str, {"title": "Redis URL", "type": "string", "pattern": _NODE})
Nodes = Annotated[tuple[Annotated[str, REDIS_NODE], ...], Many, Field(min_length=1)]
Keys = Annotated[tuple[Text, ...], Many]


class StreamGroup(Section):
    """One consumer group: unread entries are waiting; read and unacknowledged ones are running."""

    key: Text
    """The stream."""
    group: Text
    """The consumer group. If it is missing, a non-empty stream is unknown: create it before the first job."""


class Delayed(Section):
    """Sorted set whose scores are due times. Due jobs are waiting; later ones do not count."""

    key: Text
    """The sorted set."""
    scores: Literal["seconds", "milliseconds"] = "seconds"
    """Unit of the scores since 1970. With the wrong unit all jobs are due, or none."""


class Running(Section):
    """Keys of jobs that workers have taken and not finished. Without them Redis forgets a job when a worker takes it,
    and only GPUs show the work.
    """

    lists: Keys = ()
    """Lists, as filled by `LMOVE` or BullMQ's `active`."""
    sets: Keys = ()
    """Sets."""
    hashes: Keys = ()
    """Hashes, such as Celery's `unacked`."""
    sorted_sets: Keys = ()
    """Sorted sets, such as RQ's started jobs. Entries of crashed workers keep the workload active."""


class Redis(Section):
    """Queues in one Redis or compatible server, located by exactly one of `url`, `sentinels`, `cluster`, and counted in
    one round trip.
    """

    url: Annotated[str, REDIS_URL] | None = None
    """Server and database: `redis://HOST:6379/0`, or `rediss://` for TLS. A replica is trusted while it follows its
    master."""
    sentinels: Nodes | None = None
    """Sentinels, such as `redis://HOST:26379`; the master that most of them name is used. Goes with `master`."""
    master: Text | None = None
    """Name of the master in the sentinels."""
    db: Annotated[int, Field(ge=0, le=HIGHEST_DB)] | None = None
    """Database behind `sentinels`. null: 0."""
    sentinel_access: Access | None = None
    """Credentials and TLS of the sentinels. null: those of `access`. `{}`: none."""
    cluster: Nodes | None = None
    """Some nodes of a Redis Cluster, such as `redis://HOST:6379`; the others are discovered."""
    lists: Keys = ()
    """Lists: each entry is waiting. A missing key is an empty list."""
    celery: Keys = ()
    """Celery queues: the list of this name and those of priorities 3, 6 and 9."""
    sorted_sets: Keys = ()
    """Sorted sets as priority queues: each member is waiting."""
    delayed: Annotated[tuple[Delayed, ...], Many] = ()
    """Sorted sets of jobs that are due at a time."""
    streams: Annotated[tuple[StreamGroup, ...], Many] = ()
    """Streams by consumer group. `model` names one as `KEY/GROUP`."""
    running: Running = Running()
    """Keys of jobs in progress. Ignored if `model` names one queue."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The URLs of whichever way it is."""
        return (self.url,) if self.url is not None else self.sentinels or self.cluster or ()

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each of `nodes`."""
        usual = SENTINEL_PORT if self.sentinels else PORT
        parts = [urlsplit(node) for node in self.nodes]
        return tuple((part.hostname or "", part.port or usual) for part in parts)

    @property
    def is_tls(self) -> bool:
        return any(urlsplit(node).scheme == TLS for node in self.nodes)

    @property
    def database(self) -> int:
        return int(urlsplit(self.url).path.strip("/") or 0) if self.url is not None else self.db or 0
