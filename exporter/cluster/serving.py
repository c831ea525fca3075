"""What an API server says of itself: its version, its API groups, and what time it is there. Bytes in, values out.

Worked example: `version(b'{"major": "1", "minor": "35+", "gitVersion": "v1.35.2-gke.1"}')` is
`ServerVersion(1, 35, "v1.35.2-gke.1")`, and `groups` of /apis has "keda.sh/v1alpha1" where KEDA is installed.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from .answers import start
from .api import ApiFailure

VERSION = "/version"
GROUPS = "/apis"

_DIGITS = re.compile(r"\d+")


class ServerVersion(NamedTuple):
    """As it numbers itself, and as it writes it out."""

    major: int
    minor: int
    written: str


def version(body: bytes) -> ServerVersion:
    """Raises ApiFailure if it is no version."""
    try:
        said = json.loads(body)
        major, minor = _DIGITS.match(said["major"]), _DIGITS.match(said["minor"])  # providers write "35+"
        if major is None or minor is None:
            raise ValueError(said)  # noqa: TRY301 - the same to whoever asks
        return ServerVersion(int(major[0]), int(minor[0]), str(said["gitVersion"]))
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ApiFailure(None, f"get {VERSION}: no version: {start(body)!r}") from error


def groups(body: bytes) -> frozenset[str]:
    """Each `GROUP/VERSION` beside the core's. Raises ApiFailure if it is no list of groups."""
    try:
        said = json.loads(body)["groups"]
        return frozenset(str(version["groupVersion"]) for group in said for version in group["versions"])
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ApiFailure(None, f"get {GROUPS}: no list of API groups: {start(body)!r}") from error
