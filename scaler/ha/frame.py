"""What a leader tells a follower at one moment, on the wire and off it. Pure.

A frame is one line of JSON, a line feed, and then what is remembered of the workloads that changed, as bytes that
nobody here reads. Replicas of neighbouring versions talk during a rollout: a field that is not known is skipped, one
that is missing is blank. Times are of the leader's clock on the wire. The follower translates them by the difference
of the clocks as the frame came (its receipt by its own clock, less `now`), so how far they are apart does not matter.

Worked example: the leader's clock says 1000.0 and ours 1300.5. A Decision of 990.0 in that frame became the answer
10 s ago: `retold(copy, frame, 300.5)` has it at 1290.5.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Any

from exporter.model import WorkloadKey
from scaler.model import Decision, workload_of

FORMAT = 1  # rises when an older replica could not make sense of it; a new field is no such reason


# Of the line of JSON: 10,000 workloads take 12 MB and 600,000 commas. A comma may stand for some 250 bytes of memory.
LARGEST_LINE_BYTES, MOST_COMMAS = 2**25, 10**6
# POSIX seconds: the year 33,658. Sums of two such times are finite.
_LATEST = 1e12


class BadFrame(ValueError):  # noqa: N818 - named for whose fault it is
    """What came is no frame, or one of a format that is not known here."""


@dataclass(frozen=True, slots=True)
class Frame:
    """epoch:   one leader's time in office; versions of two epochs have nothing to do with each other.
    version: of its Board.
    now:     POSIX seconds of its clock as it wrote this. at: of its last sweep, by the same clock.
    since:   the version that `changed` and `gone` are told from; None: this is all of it.
    gone:    workloads that have no entry, or one that cannot be read: the follower's own decision stands.
    memory:  what is remembered of those that changed.
    lost:    entries that cannot be read and name no workload.
    """

    epoch: str
    version: int
    now: float
    at: float
    since: int | None = None
    changed: tuple[Decision, ...] = ()
    gone: tuple[WorkloadKey, ...] = ()
    memory: bytes = b""
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """A leader's Board as a follower has it. at: of its last sweep, by our clock; told_at: the same by the leader's."""

    epoch: str = ""
    version: int = 0
    at: float = 0.0
    told_at: float = 0.0
    decisions: Mapping[WorkloadKey, Decision] = field(default_factory=lambda: MappingProxyType({}))


def encode(frame: Frame) -> bytes:
    document = {
        "format": FORMAT,
        "epoch": frame.epoch,
        "version": frame.version,
        "now": frame.now,
        "at": frame.at,
        "since": frame.since,
        "changed": [decision.to_document() for decision in frame.changed],
        "gone": [key._asdict() for key in frame.gone],
    }
    return json.dumps(document, separators=(",", ":")).encode() + b"\n" + frame.memory


def decode(body: bytes) -> Frame:
    """Raises BadFrame. An entry that cannot be read costs itself."""
    line, _, memory = body.partition(b"\n")
    if len(line) > LARGEST_LINE_BYTES or line.count(b",") > MOST_COMMAS:
        raise BadFrame(
            f"{len(line)} bytes with {line.count(b',')} commas; {LARGEST_LINE_BYTES} and {MOST_COMMAS} at most"
        )
    try:
        document = json.loads(line)
        number = document["format"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise BadFrame(f"no frame: {line[:100]!r}") from error
    if number != FORMAT:
        raise BadFrame(f"format {number!r}: this Tidegate reads {FORMAT}")
    try:
        since = document.get("since")
        entries = [_entry(each) for each in document.get("changed", ())]
        unread = [entry for entry in entries if isinstance(entry, WorkloadKey)]
        now, at = _times(document)
        return Frame(
            epoch=str(document["epoch"]),
            version=int(document["version"]),
            now=now,
            at=at,
            since=None if since is None else int(since),
            changed=tuple(entry for entry in entries if isinstance(entry, Decision)),
            gone=(*(_key(each) for each in document.get("gone", ())), *unread),
            memory=memory,
            lost=entries.count(None),
        )
    except BadFrame:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BadFrame(f"no frame: {line[:100]!r}") from error


def _times(document: Mapping[str, Any]) -> tuple[float, float]:
    """When the frame was written, and the sweep of its Board: one from after its own frame would never be old."""
    now, at = float(document["now"]), float(document["at"])
    if not -_LATEST <= at <= now <= _LATEST:
        raise BadFrame(f"the last sweep must be before the frame was written, got {at} and {now}")
    return now, at


def retold(copy: Copy, frame: Frame, offset_s: float) -> Copy | None:
    """The copy after this frame; None: everything must be asked for, because it has changes since something that we do
    not have, or an entry that names no workload.

    offset_s: our clock less the leader's.
    """
    now = frame.now + offset_s
    told = {decision.workload: shifted(decision, offset_s, now) for decision in frame.changed}
    if frame.since is None:
        decisions = told
    elif (frame.epoch, frame.since) == (copy.epoch, copy.version) and not frame.lost:
        gone = set(frame.gone)
        decisions = {key: decision for key, decision in copy.decisions.items() if key not in gone} | told
    else:
        return None
    return Copy(frame.epoch, frame.version, frame.at + offset_s, frame.at, MappingProxyType(decisions))


def shifted(decision: Decision, offset_s: float, now: float = inf) -> Decision:
    """The same on another clock. now: of that clock; nothing in a Decision happened later."""
    return replace(
        decision,
        decided_at=min(decision.decided_at + offset_s, now),
        measured_at=_plus(decision.measured_at, offset_s, now),
        held_since=_plus(decision.held_since, offset_s, now),
        idle_since=_plus(decision.idle_since, offset_s, now),
    )


def _plus(at: float | None, offset_s: float, now: float) -> float | None:
    return None if at is None else min(at + offset_s, now)


def _entry(document: Any) -> Decision | WorkloadKey | None:
    """The Decision, else the workload whose Decision cannot be read; None if not even that can."""
    try:
        return Decision.from_document(document)
    except ValueError:
        pass
    try:
        return workload_of(document)
    except ValueError:
        return None


def _key(document: Mapping[str, Any]) -> WorkloadKey:
    return WorkloadKey(str(document["namespace"]), str(document["name"]), str(document.get("trigger", "")))
