"""What was asked on the command line -> a document of `/api/v1/explain`, from a running daemon or from a file.

Worked example: `asked(Asked("ai/chat", at="2026-11-22T10:00:00Z"), now)` asks the daemon. Is there no ai/chat and an
ai/chats, it raises BadWish: "ai/chat: no such workload on the Board. Is it ai/chats?".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from exporter.model import WorkloadKey

from ..asking import Unanswered, document
from ..config.scalars import read_duration

Document = dict[str, Any]

STDIN = "-"
LARGEST_BYTES = 2**24  # an explanation is some ten kilobytes
MOST_NAMES = 3


class BadWish(Exception):  # noqa: N818 - named for whose fault it is
    """It cannot be shown; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class Asked:
    """workload: NAMESPACE/NAME or NAMESPACE/NAME/TRIGGER. at: a moment, POSIX seconds, or a while ago; None is now.
    server: URL of the daemon. timeout: seconds.
    """

    workload: str
    at: str | None = None
    server: str = "http://localhost:8080"
    timeout: float = 10.0


def asked(wish: Asked, now: float) -> Document:
    """now: POSIX seconds of the own clock, for a while ago. Raises BadWish, Unanswered."""
    key = _key(wish.workload)
    query = {"trigger": key.trigger} if key.trigger else {}
    if wish.at is not None:
        query["at"] = _moment(wish.at, now)
    path = f"/api/v1/explain/{quote(key.namespace, safe='')}/{quote(key.name, safe='')}"
    try:
        return document(wish.server, f"{path}?{urlencode(query)}" if query else path, wish.timeout)
    except Unanswered as unanswered:
        if unanswered.status == HTTPStatus.BAD_REQUEST:
            raise BadWish(unanswered.said) from None
        if unanswered.status != HTTPStatus.NOT_FOUND or not unanswered.said:
            raise
        raise BadWish(f"{unanswered.said}. {_nearest(wish, key)}") from None


def _key(text: str) -> WorkloadKey:
    parts = text.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise BadWish(f"{text}: must be NAMESPACE/NAME, or NAMESPACE/NAME/TRIGGER for a further trigger")
    return WorkloadKey(*parts)


def _moment(text: str, now: float) -> str:
    """What the daemon understands: a while ago is reckoned here, and said as a moment."""
    try:
        ago = read_duration(text) if text[-1:].isalpha() and "T" not in text else None
    except ValueError:
        ago = None
    return text if ago is None else f"{now - ago:.3f}"


def _nearest(wish: Asked, key: WorkloadKey) -> str:
    """Which workloads may have been meant."""
    try:
        board = document(wish.server, "/api/v1/board", wish.timeout)
        found = [WorkloadKey(**each["workload"]) for each in board["workloads"]]
    except (Unanswered, KeyError, TypeError):
        return "What there is: GET /api/v1/board"
    if not found:
        return "There is none at all yet"
    names = {str(each): each for each in found}
    near = get_close_matches(str(key), names, n=MOST_NAMES, cutoff=0.5)
    near += [name for name, each in names.items() if each.name == key.name and name not in near]
    if not near:
        return f"There are {len(names)}, such as {', '.join(sorted(names)[:MOST_NAMES])}"
    return f"Is it {' or '.join(near[:MOST_NAMES])}?"


def read_file(source: str) -> Document:
    """A document that was saved with `-o json`. source: a path, or - for standard input. Raises BadWish."""
    try:
        if source == STDIN:
            body = sys.stdin.buffer.read(LARGEST_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                body = file.read(LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise BadWish(f"{source}: {getattr(error, 'strerror', None) or error}") from None
    try:
        said = json.loads(body) if len(body) <= LARGEST_BYTES else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, Mapping) or not isinstance(said.get("workload"), Mapping) or "inputs" not in said:
        raise BadWish(f"{source}: no explanation: `tidegate explain NAMESPACE/NAME -o json > FILE` writes one")
    return dict(said)
