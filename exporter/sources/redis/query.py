"""Defines queries for queues in Redis: their commands, and the URL of their page.

A `Measure` is one command; its reply counts the waiting or the running jobs of one queue. A Celery queue is several
lists, one per priority, with one name.

Worked example: `RedisQuery(servers, lists=("jobs",), streams=(Stream("events", "workers"),))` has two measures,
`LLEN jobs` and `XINFO GROUPS events`, for the queues "jobs" and "events/workers".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias
from urllib.parse import urlencode

from exporter.model import Credentials

Command: TypeAlias = tuple[str, ...]
Address: TypeAlias = tuple[str, int]

# kombu's Redis transport (Celery): priority 0 is the queue itself, the other steps append the separator and their
# number to its name (kombu/transport/redis.py: priority_steps, sep).
CELERY_SEPARATOR = "\x06\x16"
CELERY_STEPS = ("", f"{CELERY_SEPARATOR}3", f"{CELERY_SEPARATOR}6", f"{CELERY_SEPARATOR}9")


class Way(StrEnum):
    """How the server of a key is found."""

    SERVER = "redis"
    SENTINEL = "redis+sentinel"
    CLUSTER = "redis+cluster"


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of the queues.

    addresses: the server, the sentinels, or some nodes of the cluster. tls: for all of them.
    master:    its name, for sentinels. access: credentials of the servers. sentinel_access: of the sentinels.
    """

    way: Way
    addresses: tuple[Address, ...]
    tls: bool = False
    master: str = ""
    db: int = 0
    access: Credentials = field(default=Credentials())
    sentinel_access: Credentials = field(default=Credentials())


class Stream(NamedTuple):
    """A consumer group. Entries that it has not read are waiting; read but not acknowledged ones are running."""

    key: str
    group: str

    @property
    def name(self) -> str:
        return f"{self.key}/{self.group}"


class Due(NamedTuple):
    """A sorted set of delayed jobs, each scored with the time when it is due. per_s: units of the score per second."""

    key: str
    per_s: float = 1.0


class Size(NamedTuple):
    """The size of a key. kind: its type, as Redis' TYPE prints it."""

    key: str
    kind: str


Question: TypeAlias = Stream | Due | Size
COMMANDS = {"list": "LLEN", "set": "SCARD", "hash": "HLEN", "zset": "ZCARD"}


class Measure(NamedTuple):
    """One question for one queue. in_hand: it counts running jobs."""

    queue: str
    question: Question
    in_hand: bool = False


@dataclass(frozen=True, slots=True)
class RedisQuery:
    """The queues of one page. running: keys of running jobs, each with its type."""

    servers: Servers
    lists: tuple[str, ...] = ()
    celery: tuple[str, ...] = ()
    sorted_sets: tuple[str, ...] = ()
    delayed: tuple[Due, ...] = ()
    streams: tuple[Stream, ...] = ()
    running: tuple[Size, ...] = ()

    @property
    def url(self) -> str:
        """Names the servers and the counted keys; never a secret."""
        servers = self.servers
        counted = [("list", key) for key in self.lists]
        counted += [("celery", key) for key in self.celery]
        counted += [("sorted_set", key) for key in self.sorted_sets]
        counted += [(f"delayed_{per_s:g}" if per_s != 1.0 else "delayed", key) for key, per_s in self.delayed]
        counted += [("stream", stream.name) for stream in self.streams]
        counted += [(f"running_{kind}", key) for key, kind in self.running]
        scheme = servers.way.replace("redis", "rediss", 1) if servers.tls else str(servers.way)
        path = "".join(f"/{part}" for part in (servers.master, str(servers.db)) if part)
        return f"{scheme}://{','.join(map(host_port, servers.addresses))}{path}?{urlencode(counted)}"

    def measures(self) -> tuple[Measure, ...]:
        return (
            *(Measure(key, Size(key, "list")) for key in self.lists),
            *(Measure(queue, Size(queue + step, "list")) for queue in self.celery for step in CELERY_STEPS),
            *(Measure(key, Size(key, "zset")) for key in self.sorted_sets),
            *(Measure(due.key, due) for due in self.delayed),
            *(Measure(stream.name, stream) for stream in self.streams),
            *(Measure(size.key, size, in_hand=True) for size in self.running),
        )


def command_of(question: Question, now: float) -> Command:
    """The command of a question. now: POSIX seconds."""
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
