"""What is asked of Redis, and what the answer is called. Words only: nothing here is sent anywhere.

A `Measure` is one command and what its answer means: so many jobs of one queue that wait, or that are in hand. A
Celery queue is several lists, one per priority, with one name.

Worked example: `Query(servers, lists=("jobs",), streams=(Stream("events", "workers"),))` has two measures, `LLEN jobs`
and `XINFO GROUPS events`, for the queues "jobs" and "events/workers".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias
from urllib.parse import urlencode

from exporter.model import Credentials

Command: TypeAlias = tuple[str, ...]
Address: TypeAlias = tuple[str, int]

# kombu's Redis transport (Celery): priority 0 is the queue itself, the other steps have the separator and their number
# behind its name (kombu/transport/redis.py: priority_steps, sep).
CELERY_SEPARATOR = "\x06\x16"
CELERY_STEPS = ("", f"{CELERY_SEPARATOR}3", f"{CELERY_SEPARATOR}6", f"{CELERY_SEPARATOR}9")


class Way(StrEnum):
    """How the server that knows is found."""

    SERVER = "redis"
    SENTINEL = "redis+sentinel"
    CLUSTER = "redis+cluster"


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the queues are.

    addresses: the server, the sentinels, or nodes of the cluster to begin with. tls: all of them speak TLS.
    master: its name, for sentinels. sentinel_access: how these let one in; `access` is the servers' own.
    """

    way: Way
    addresses: tuple[Address, ...]
    tls: bool = False
    master: str = ""
    db: int = 0
    access: Credentials = field(default=Credentials())
    sentinel_access: Credentials = field(default=Credentials())


class Stream(NamedTuple):
    """What one consumer group has not read of a stream waits; what it has read and not acknowledged is in hand."""

    key: str
    group: str

    @property
    def name(self) -> str:
        return f"{self.key}/{self.group}"


class Due(NamedTuple):
    """A sorted set of delayed jobs, each scored with the time at which it is due. per_s: its units per second."""

    key: str
    per_s: float = 1.0


class Size(NamedTuple):
    """The size of a key. kind: what Redis' TYPE calls it."""

    key: str
    kind: str


Question: TypeAlias = Stream | Due | Size
COMMANDS = {"list": "LLEN", "set": "SCARD", "hash": "HLEN", "zset": "ZCARD"}


class Measure(NamedTuple):
    """One question, for one queue. in_hand: what it counts is being worked on."""

    queue: str
    question: Question
    in_hand: bool = False


@dataclass(frozen=True, slots=True)
class RedisQuery:
    """The queues of one page. `running` are keys of what is being worked on, each with its type."""

    servers: Servers
    lists: tuple[str, ...] = ()
    celery: tuple[str, ...] = ()
    sorted_sets: tuple[str, ...] = ()
    delayed: tuple[Due, ...] = ()
    streams: tuple[Stream, ...] = ()
    running: tuple[Size, ...] = ()

    @property
    def url(self) -> str:
        """What the page is called: where it is and what is counted; never a secret."""
        servers = self.servers
        words = [("list", key) for key in self.lists]
        words += [("celery", key) for key in self.celery]
        words += [("sorted_set", key) for key in self.sorted_sets]
        words += [(f"delayed_{per_s:g}" if per_s != 1.0 else "delayed", key) for key, per_s in self.delayed]
        words += [("stream", stream.name) for stream in self.streams]
        words += [(f"running_{kind}", key) for key, kind in self.running]
        scheme = servers.way.replace("redis", "rediss", 1) if servers.tls else str(servers.way)
        place = "".join(f"/{part}" for part in (servers.master, str(servers.db)) if part)
        return f"{scheme}://{','.join(map(host_port, servers.addresses))}{place}?{urlencode(words)}"

    def measures(self) -> tuple[Measure, ...]:
        return tuple(self._measures())

    def _measures(self) -> Iterator[Measure]:
        yield from (Measure(key, Size(key, "list")) for key in self.lists)
        for queue in self.celery:
            yield from (Measure(queue, Size(queue + step, "list")) for step in CELERY_STEPS)
        yield from (Measure(key, Size(key, "zset")) for key in self.sorted_sets)
        yield from (Measure(due.key, due) for due in self.delayed)
        yield from (Measure(stream.name, stream) for stream in self.streams)
        yield from (Measure(size.key, size, in_hand=True) for size in self.running)


def command_of(question: Question, now: float) -> Command:
    """The command that answers it. `now`: POSIX seconds."""
    match question:
        case Stream(key=key):
            return ("XINFO", "GROUPS", key)
        case Due(key=key, per_s=per_s):
            return ("ZCOUNT", key, "-inf", repr(now * per_s))
        case Size(key=key, kind=kind):
            return (COMMANDS[kind], key)


def host_port(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
