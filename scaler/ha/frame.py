"""Encodes and decodes what a leader sends to a follower. Pure.

A frame is one line of JSON, a line feed, and the state of the changed workloads as opaque bytes. Replicas of
neighbouring versions exchange frames during a rollout: unknown fields are ignored, missing ones take their defaults.
Times in a frame are of the leader's clock. The follower shifts them by the difference of the clocks (time of receipt
less `now`).

Worked example: the leader's clock shows 1000.0, the follower's 1300.5. In `apply(copy, frame, 300.5)` a Decision of
990.0 becomes one of 1290.5.
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

FORMAT = 1  # rises only if older replicas cannot read a frame; a new field does not need it

# Of the line of JSON: 10,000 workloads take 12 MB and 600,000 commas. A comma may stand for some 250 bytes of memory.
LARGEST_LINE_BYTES, MOST_COMMAS = 2**25, 10**6
# POSIX seconds: the year 33,658. Sums of two such times are finite.
_LATEST = 1e12


class BadFrame(ValueError):  # noqa: N818 - named after the side at fault
    """The body is not a frame, or has an unknown format."""


@dataclass(frozen=True, slots=True)
class Frame:
    """epoch:   one term of one leader; versions of two epochs are not comparable.
    version: of its Board.
    now:     POSIX seconds of its clock when it wrote the frame. at: of its last tick, same clock.
    since:   the version that `changed` and `gone` refer to; None if the frame has the whole Board.
    gone:    workloads without an entry, or with an unreadable one: the follower uses its own decision.
    state:   of the changed workloads.
    lost:    number of unreadable entries that name no workload.
    """

    epoch: str
    version: int
    now: float
    at: float
    since: int | None = None
    changed: tuple[Decision, ...] = ()
    gone: tuple[WorkloadKey, ...] = ()
    state: bytes = b""
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """A follower's copy of the leader's Board. at: the leader's last tick, by this clock; leader_at: by its own."""

    epoch: str = ""
    version: int = 0
    at: float = 0.0
    leader_at: float = 0.0
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
    return json.dumps(document, separators=(",", ":")).encode() + b"\n" + frame.state


def decode(body: bytes) -> Frame:
    """Raises BadFrame. An unreadable entry is skipped."""
    line, _, state = body.partition(b"\n")
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
        unreadable = [entry for entry in entries if isinstance(entry, WorkloadKey)]
        now, at = _times(document)
        return Frame(
            epoch=str(document["epoch"]),
            version=int(document["version"]),
            now=now,
            at=at,
            since=None if since is None else int(since),
            changed=tuple(entry for entry in entries if isinstance(entry, Decision)),
            gone=(*(_key(each) for each in document.get("gone", ())), *unreadable),
            state=state,
            lost=entries.count(None),
        )
    except BadFrame:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BadFrame(f"no frame: {line[:100]!r}") from error


def apply(copy: Copy, frame: Frame, offset_s: float) -> Copy | None:
    """The copy after a frame. Returns None if the whole Board is needed: the frame has changes since another version
    than that of the copy, or an entry that names no workload.

    offset_s: the follower's clock less the leader's.
    """
    now = frame.now + offset_s
    changed = {decision.workload: shift(decision, offset_s, now) for decision in frame.changed}
    if frame.since is None:
        decisions = changed
    elif (frame.epoch, frame.since) == (copy.epoch, copy.version) and not frame.lost:
        gone = set(frame.gone)
        decisions = {key: decision for key, decision in copy.decisions.items() if key not in gone} | changed
    else:
        return None
    return Copy(frame.epoch, frame.version, frame.at + offset_s, frame.at, MappingProxyType(decisions))


def shift(decision: Decision, offset_s: float, now: float = inf) -> Decision:
    """The Decision with its times on another clock. now: of that clock, the latest time of the result."""
    return replace(
        decision,
        decided_at=min(decision.decided_at + offset_s, now),
        measured_at=_shift_time(decision.measured_at, offset_s, now),
        held_since=_shift_time(decision.held_since, offset_s, now),
        idle_since=_shift_time(decision.idle_since, offset_s, now),
    )


def _shift_time(at: float | None, offset_s: float, now: float) -> float | None:
    return None if at is None else min(at + offset_s, now)


def _times(document: Mapping[str, Any]) -> tuple[float, float]:
    """When the frame was written, and the last tick. A tick after its own frame would never become stale."""
    now, at = float(document["now"]), float(document["at"])
    if not -_LATEST <= at <= now <= _LATEST:
        raise BadFrame(f"the last tick must be before the frame was written, got {at} and {now}")
    return now, at


def _entry(document: Any) -> Decision | WorkloadKey | None:
    """The Decision. If it is unreadable: its workload, or None without one."""
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
