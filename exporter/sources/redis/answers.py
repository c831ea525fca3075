r"""Redis' replies as a page, or a `Failure` that says why there is none. Replies in, values out.

An absent key is an empty queue: Redis deletes a list with its last entry. That is believed of a server that is whole:
one that still loads its data, or a replica that has lost its master, would call every queue empty. What Redis cannot
tell is NaN, with words, and costs its own queue: a key of another type, a group that is not there, a lag it has lost.

Every queue of a page says the same: where one has jobs in hand, the others have none in Redis' hands, which is 0. A
page of plain lists says nothing of what is in hand, because Redis forgets a job when a worker takes it.

Worked example: `page([Measure("jobs", Size("jobs", "list"))], [Found(3.0)], 0)` is
`b'tidegate_redis_waiting{db="db0",key="jobs"} 3.0\n'`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any, NamedTuple, TypeAlias

from exporter.model import Failure, FailureKind

from ..promql.printed import head
from .query import Address, Command, Due, Measure, Question, Size, Stream

# Entries that are counted one by one where Redis has lost count, as it does after XDEL (lag is nil), and before
# Redis 7 always. They are sent over to be counted, so there is a bound; a longer lag is called this long.
MOST_COUNTED = 100
NO_SUCH_KEY = "no such key"
MASTER, REPLICA = "master", "slave"
CONNECTED = "connected"
WAITING, RUNNING = "tidegate_redis_waiting", "tidegate_redis_running"


class ErrorReply(NamedTuple):
    """An error in place of a reply: "WRONGTYPE", "ERR", "MOVED" …, and the server's words after it."""

    code: str
    words: str

    def __str__(self) -> str:
        return f"{self.code} {self.words}".strip()


Reply: TypeAlias = Any  # int, bytes, None, a list of replies, or a Refusal


class Owner(NamedTuple):
    """Whose the slots from `first` to `last` of a cluster are."""

    first: int
    last: int
    address: Address


class Measurement(NamedTuple):
    """What one measure came to. trouble: why a value is NaN, for a person."""

    waiting: float
    running: float = nan
    trouble: str = ""


# Refusals that are about the server, not about a key.
_WHOLE = {
    "LOADING": FailureKind.PARTIAL,
    "MASTERDOWN": FailureKind.PARTIAL,
    "CLUSTERDOWN": FailureKind.PARTIAL,
    "NOAUTH": FailureKind.CREDENTIALS,
    "WRONGPASS": FailureKind.CREDENTIALS,
}


def failure(refusal: ErrorReply) -> Failure | None:
    """The failure of a whole page that a refusal means; None if it is about one key."""
    kind = _WHOLE.get(refusal.code)
    return None if kind is None else Failure(kind, f"the server says: {refusal}")


def role_failure(role: Reply, *, master_wanted: bool) -> Failure | None:
    """Whether a server that answers so to ROLE can be believed; None if it can.

    A master is, and a replica while it follows one. A proxy that does not know the command speaks for whoever does.
    """
    match role:
        case ErrorReply(code="NOPERM"):
            words = "the user may not ask ROLE, so a copy that is out of date could not be told from the truth"
            return Failure(FailureKind.CREDENTIALS, f"{words}: add +role to its ACL")
        case ErrorReply():
            return failure(role)
        case [b"slave", *_] if master_wanted:
            return Failure(FailureKind.PARTIAL, "the server is a replica, and the sentinels call it the master")
        case [b"slave", _, _, state, *_] if _text(state) != CONNECTED:
            words = f"the server is a replica that has lost its master (link {_text(state)})"
            return Failure(FailureKind.PARTIAL, f"{words}: what it holds may be out of date")
    return None


def owners_of(slots: Reply, asked: str) -> tuple[Owner, ...]:
    """What a node answers to CLUSTER SLOTS. A node that does not know its own name is called `asked`, as it was."""
    owners = []
    for each in slots if isinstance(slots, list) else ():
        match each:
            case [int(first), int(last), [bytes(host), int(port), *_], *_]:
                owners.append(Owner(first, last, (host.decode(errors="replace") or asked, port)))
            case [int(first), int(last), [None, int(port), *_], *_]:
                owners.append(Owner(first, last, (asked, port)))
    return tuple(owners)


def found(question: Question, reply: Reply) -> Measurement | Command:
    """What a reply means, or the command to ask next because it does not say."""
    match question, reply:
        case _, ErrorReply(code="WRONGTYPE"):
            return ("TYPE", question.key)
        case Stream(), ErrorReply(words=words) if NO_SUCH_KEY in words:
            return Measurement(0.0, 0.0)
        case _, ErrorReply():
            return Measurement(nan, trouble=f"{question.key}: {reply}")
        case Stream(), list():
            return _unread(question, reply)
        case Size() | Due(), int():
            return Measurement(float(reply))
    return Measurement(nan, trouble=f"{question.key}: the reply is nothing that Redis says: {str(reply)[:60]}")


def _unread(stream: Stream, groups: Sequence[Reply]) -> Measurement | Command:
    group = _group_of(stream, groups)
    if group is None:
        return ("XLEN", stream.key)
    lag, pending = group.get(b"lag"), group.get(b"pending")
    if isinstance(lag, int) and isinstance(pending, int):
        return Measurement(float(lag), float(pending))
    after = f"({_text(group.get(b'last-delivered-id'))}"
    return ("XRANGE", stream.key, after, "+", "COUNT", str(MOST_COUNTED))


def _group_of(stream: Stream, groups: Sequence[Reply]) -> Mapping[bytes, Reply] | None:
    """What XINFO GROUPS says of one group. It is a flat list of names and values, and each version adds some."""
    for each in groups:
        if isinstance(each, list):
            pairs = zip(each[::2], each[1::2], strict=False)
            group = {field: value for field, value in pairs if isinstance(field, bytes)}
            if _text(group.get(b"name")) == stream.group:
                return group
    return None


def found_next(question: Question, first: Reply, reply: Reply) -> Measurement:
    """What the second reply means, to the question that `found` asked after the first."""
    match question, reply:
        case _, ErrorReply():
            return Measurement(nan, trouble=f"{question.key}: {reply}")
        case Stream(), list():
            group = _group_of(question, first)
            pending = group.get(b"pending") if group is not None else None
            return Measurement(float(len(reply)), float(pending) if isinstance(pending, int) else nan)
        case Stream(), 0:
            return Measurement(0.0, 0.0)
        case Stream(), int():
            words = f"has no consumer group {question.group}, and nobody can tell what it has not read"
            return Measurement(nan, trouble=f"{question.key}: the stream {words}: XGROUP CREATE makes one")
    return Measurement(nan, trouble=f"{question.key}: is a {_text(reply)}, not a {_wanted(question)}")


def page(measures: Sequence[Measure], counts: Sequence[Measurement], db: int) -> bytes | Failure:
    """The page of these measures; a failure if not one of them is known."""
    if all(found.trouble for found in counts):
        return Failure(FailureKind.UNREADABLE, "; ".join(dict.fromkeys(found.trouble for found in counts)))
    tells_running = any(measure.in_hand or isinstance(measure.question, Stream) for measure in measures)
    waiting: dict[str, float] = {}
    running: dict[str, float] = {}
    for measure, count in zip(measures, counts, strict=True):
        name = measure.queue
        in_hand = count.waiting if measure.in_hand else count.running
        # Of a list whose reply is no number it is unknown how many wait, and known that none is in Redis' hands.
        if not measure.in_hand and not isinstance(measure.question, Stream):
            in_hand = 0.0
        waiting[name] = waiting.get(name, 0.0) + (0.0 if measure.in_hand else count.waiting)
        running[name] = running.get(name, 0.0) + in_hand
    families = ((WAITING, waiting), (RUNNING, running)) if tells_running else ((WAITING, waiting),)
    return b"".join(
        b"%s %a\n" % (head(family, {"db": f"db{db}", "key": name}), value)
        for family, values in families
        for name, value in values.items()
    )


def _wanted(question: Question) -> str:
    match question:
        case Stream():
            return "stream"
        case Due():
            return "zset"
    return question.kind


def _text(said: Reply) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
