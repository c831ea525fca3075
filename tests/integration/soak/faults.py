"""Faults of targets: outages, and responses that are hostile or broken but never a plausible lie.

A response that claims no requests in correct text is not here: no reader could tell it from the truth.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from exporter.model import Failure, FailureKind

_VALUE = re.compile(r" [0-9.]+$", re.MULTILINE)


def _valued(value):
    """The response with this value in all series."""
    return lambda text, chance: _VALUE.sub(f" {value}", text).encode()


def _cut(text, chance):
    """Cut within a line, as by a proxy that closes."""
    return text[: chance.randrange(len(text) // 2)].rpartition(" ")[0].encode()


def _with_new_series(text, chance):
    """500 more series, other ones each time."""
    return (text + "".join(f'noise{{id="{chance.getrandbits(64):x}"}} 1\n' for _ in range(500))).encode()


# How a response changes: (its text, the source of randomness) to bytes or a Failure.
FAULTS = {
    "refused": lambda text, chance: Failure(FailureKind.REFUSED, "soak"),
    "timeout": lambda text, chance: Failure(FailureKind.TIMEOUT, "soak"),
    "too_large": lambda text, chance: Failure(FailureKind.TOO_LARGE, "soak"),
    "status": lambda text, chance: Failure(FailureKind.STATUS, "soak"),
    "empty": lambda text, chance: b"",
    "garbage": lambda text, chance: chance.randbytes(2000),
    "html": lambda text, chance: b"<!doctype html><title>502 Bad Gateway</title>",
    "json": lambda text, chance: b'{"status":"success","data":{}}',
    "cut": _cut,
    "nan": _valued("NaN"),
    "infinite": _valued("+Inf"),
    "negative": _valued("-7"),
    "no number": _valued("0x1p3"),
    "new series": _with_new_series,
}
HARMLESS = frozenset({"new series"})  # the values are still there


@dataclass(frozen=True)
class Fault:
    """place: a workload's name and a role, or "node". until: POSIX seconds."""

    place: tuple[str, ...]
    kind: str
    until: float
