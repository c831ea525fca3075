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
from types import MappingProxyType
from typing import Any

from exporter.model import WorkloadKey

from ..board import Decision

FORMAT = 1  # rises when an older replica could not make sense of it; a new field is no such reason


class BadFrame(ValueError):  # noqa: N818 - named for whose fault it is
    """What came is no frame, or one of a format that is not known here."""


@dataclass(frozen=True, slots=True)
class Frame:
    """epoch:   one leader's time in office; versions of two epochs have nothing to do with each other.
    version: of its Board.
    now:     POSIX seconds of its clock as it wrote this. at: of its last sweep, by the same clock.
    since:   the version that `changed` and `gone` are told from; None: this is all of it.
    memory:  what is remembered of those that changed.
    lost:    entries that could not be read.
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
    try:
        document = json.loads(line)
        number = document["format"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise BadFrame(f"no frame: {line[:100]!r}") from error
    if number != FORMAT:
        raise BadFrame(f"format {number!r}: this Tidegate reads {FORMAT}")
    try:
        since = document.get("since")
        changed = [_decision(each) for each in document.get("changed", ())]
        read = tuple(decision for decision in changed if decision is not None)
        return Frame(
            epoch=str(document["epoch"]),
            version=int(document["version"]),
            now=float(document["now"]),
            at=float(document["at"]),
            since=None if since is None else int(since),
            changed=read,
            gone=tuple(_key(each) for each in document.get("gone", ())),
            memory=memory,
            lost=len(changed) - len(read),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadFrame(f"no frame: {line[:100]!r}") from error


def retold(copy: Copy, frame: Frame, offset_s: float) -> Copy | None:
    """The copy after this frame; None: it tells of changes since something that we do not have.

    offset_s: our clock less the leader's.
    """
    told = {decision.workload: shifted(decision, offset_s) for decision in frame.changed}
    if frame.since is None:
        decisions = told
    elif (frame.epoch, frame.since) == (copy.epoch, copy.version):
        gone = set(frame.gone)
        decisions = {key: decision for key, decision in copy.decisions.items() if key not in gone} | told
    else:
        return None
    return Copy(frame.epoch, frame.version, frame.at + offset_s, frame.at, MappingProxyType(decisions))


def shifted(decision: Decision, offset_s: float) -> Decision:
    """The same on another clock."""
    return replace(
        decision,
        decided_at=decision.decided_at + offset_s,
        measured_at=_plus(decision.measured_at, offset_s),
        held_since=_plus(decision.held_since, offset_s),
        idle_since=_plus(decision.idle_since, offset_s),
    )


def _plus(at: float | None, offset_s: float) -> float | None:
    return None if at is None else at + offset_s


def _decision(document: Any) -> Decision | None:
    try:
        return Decision.from_document(document)
    except ValueError:
        return None


def _key(document: Mapping[str, Any]) -> WorkloadKey:
    return WorkloadKey(str(document["namespace"]), str(document["name"]), str(document.get("trigger", "")))
