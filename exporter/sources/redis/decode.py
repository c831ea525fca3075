r"""Decodes Redis' replies to a page, or to a `Failure`.

A missing key is an empty queue: Redis deletes a list with its last entry. That holds only on a complete server: one
that is loading its data, or a replica without its master, would report every queue as empty, so its page is a Failure.
An unknown value is NaN with a problem, and costs its own queue: a key of another type, a missing consumer group.

All queues of a page have the same families: where one has running jobs, the others have 0 of them in Redis. A page of
plain lists has no family of running jobs, because Redis forgets a job when a worker takes it.

Worked example: `page([Measure("jobs", Size("jobs", "list"))], [Measurement(3.0)], 0)` is
`b'tidegate_redis_waiting{db="db0",key="jobs"} 3.0\n'`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any, NamedTuple, TypeAlias

from exporter.model import Failure, FailureKind

from ..promql.pages import format_series
from .query import Address, Command, Due, Measure, Question, Size, Stream

# Entries that are counted one by one where Redis has no lag, as after XDEL (lag is nil), and before Redis 7 always.
# They are transferred for it, so there is a bound; a longer lag counts as this long.
MOST_COUNTED = 100
NO_SUCH_KEY = "no such key"
CONNECTED = "connected"
WAITING, RUNNING = "tidegate_redis_waiting", "tidegate_redis_running"

# Errors of the whole server, not of one key.
_SERVER_ERRORS = {
    "LOADING": FailureKind.PARTIAL,
    "MASTERDOWN": FailureKind.PARTIAL,
    "CLUSTERDOWN": FailureKind.PARTIAL,
    "NOAUTH": FailureKind.CREDENTIALS,
    "WRONGPASS": FailureKind.CREDENTIALS,
}


class ErrorReply(NamedTuple):
    """code: "WRONGTYPE", "ERR", "MOVED" …; message: the text after it."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code} {self.message}".strip()


Reply: TypeAlias = Any  # int, bytes, None, a list of replies, or an ErrorReply


class SlotRange(NamedTuple):
    """The node of the slots from `first` to `last` of a cluster."""

    first: int
    last: int
    address: Address


class Measurement(NamedTuple):
    """The result of one measure. problem: why a value is NaN, for people."""

    waiting: float
    running: float = nan
    problem: str = ""


def server_failure(error: ErrorReply) -> Failure | None:
    """The failure of a whole page; None if the error is about one key."""
    kind = _SERVER_ERRORS.get(error.code)
    return None if kind is None else Failure(kind, f"the server says: {error}")


def role_failure(role: Reply, *, master_wanted: bool) -> Failure | None:
    """Why the data of a server with this reply to ROLE may be out of date; None if they are not.

    A master is valid, and a replica while it follows one. A proxy that does not support the command is trusted.
    """
    match role:
        case ErrorReply(code="NOPERM"):
            reason = "the user may not run ROLE, so a replica that is out of date could not be recognized"
            return Failure(FailureKind.CREDENTIALS, f"{reason}: add +role to its ACL")
        case ErrorReply():
            return server_failure(role)
        case [b"slave", *_] if master_wanted:
            return Failure(FailureKind.PARTIAL, "the server is a replica, and the sentinels call it the master")
        case [b"slave", _, _, state, *_] if _text(state) != CONNECTED:
            reason = f"the server is a replica that has lost its master (link {_text(state)})"
            return Failure(FailureKind.PARTIAL, f"{reason}: its data may be out of date")
    return None


def slot_ranges(reply: Reply, host: str) -> tuple[SlotRange, ...]:
    """The reply to CLUSTER SLOTS. host: of the node that replies, which may not know its own name."""
    ranges = []
    for each in reply if isinstance(reply, list) else ():
        match each:
            case [int(first), int(last), [bytes(name), int(port), *_], *_]:
                ranges.append(SlotRange(first, last, (name.decode(errors="replace") or host, port)))
            case [int(first), int(last), [None, int(port), *_], *_]:
                ranges.append(SlotRange(first, last, (host, port)))
    return tuple(ranges)


def decode(question: Question, reply: Reply) -> Measurement | Command:
    """The value in a reply, or a second command if the reply does not have it."""
    match question, reply:
        case _, ErrorReply(code="WRONGTYPE"):
            return ("TYPE", question.key)
        case Stream(), ErrorReply(message=message) if NO_SUCH_KEY in message:
            return Measurement(0.0, 0.0)
        case _, ErrorReply():
            return Measurement(nan, problem=f"{question.key}: {reply}")
        case Stream(), list():
            return _lag(question, reply)
        case Size() | Due(), int():
            return Measurement(float(reply))
    return Measurement(nan, problem=f"{question.key}: not a reply of Redis: {str(reply)[:60]}")


def decode_second(question: Question, first: Reply, reply: Reply) -> Measurement:
    """The value in the reply to the command that `decode` returned for the reply `first`."""
    match question, reply:
        case _, ErrorReply():
            return Measurement(nan, problem=f"{question.key}: {reply}")
        case Stream(), list():
            group = _group_of(question, first)
            pending = group.get(b"pending") if group is not None else None
            return Measurement(float(len(reply)), float(pending) if isinstance(pending, int) else nan)
        case Stream(), 0:
            return Measurement(0.0, 0.0)
        case Stream(), int():
            problem = f"the stream has no consumer group {question.group}, so its lag is unknown"
            return Measurement(nan, problem=f"{question.key}: {problem}: XGROUP CREATE creates it")
    return Measurement(nan, problem=f"{question.key}: is a {_text(reply)}, not a {_expected_type(question)}")


def page(measures: Sequence[Measure], counts: Sequence[Measurement], db: int) -> bytes | Failure:
    """The page of these measures; a failure if none of them is known."""
    if all(count.problem for count in counts):
        return Failure(FailureKind.UNREADABLE, "; ".join(dict.fromkeys(count.problem for count in counts)))
    has_running = any(measure.in_hand or isinstance(measure.question, Stream) for measure in measures)
    waiting: dict[str, float] = {}
    running: dict[str, float] = {}
    for measure, count in zip(measures, counts, strict=True):
        queue = measure.queue
        in_hand = count.waiting if measure.in_hand else count.running
        # Redis has no running jobs of a list, even if the number of waiting ones is unknown.
        if not measure.in_hand and not isinstance(measure.question, Stream):
            in_hand = 0.0
        waiting[queue] = waiting.get(queue, 0.0) + (0.0 if measure.in_hand else count.waiting)
        running[queue] = running.get(queue, 0.0) + in_hand
    families = ((WAITING, waiting), (RUNNING, running)) if has_running else ((WAITING, waiting),)
    return b"".join(
        b"%s %a\n" % (format_series(family, {"db": f"db{db}", "key": queue}), value)
        for family, values in families
        for queue, value in values.items()
    )


def _lag(stream: Stream, groups: Sequence[Reply]) -> Measurement | Command:
    group = _group_of(stream, groups)
    if group is None:
        return ("XLEN", stream.key)
    lag, pending = group.get(b"lag"), group.get(b"pending")
    if isinstance(lag, int) and isinstance(pending, int):
        return Measurement(float(lag), float(pending))
    after = f"({_text(group.get(b'last-delivered-id'))}"
    return ("XRANGE", stream.key, after, "+", "COUNT", str(MOST_COUNTED))


def _group_of(stream: Stream, groups: Sequence[Reply]) -> Mapping[bytes, Reply] | None:
    """The group in a reply to XINFO GROUPS: a flat list of names and values, to which each version adds some."""
    for each in groups:
        if isinstance(each, list):
            pairs = zip(each[::2], each[1::2], strict=False)
            group = {field: value for field, value in pairs if isinstance(field, bytes)}
            if _text(group.get(b"name")) == stream.group:
                return group
    return None


def _expected_type(question: Question) -> str:
    match question:
        case Stream():
            return "stream"
        case Due():
            return "zset"
    return question.kind


def _text(value: Reply) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
