"""Refused calls: the gRPC error that the caller gets, and the line that the operator finds in the log.

What a caller gets must teach a foreign tenant nothing. What the log gets must not grow with the calls: a client can
repeat a call, and invent names, thousands of times a second.

Worked example: a trigger that differs from its ScaledObject is called every 5 s. Each call gets PERMISSION_DENIED. The
log has one line every 10 minutes that names the difference, with `suppressed=119` from the second on. A client that
invents 10,000 names has 64 lines in 10 minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeAlias

import grpc

from ..board import Reason
from ..census import Doubt, Refused

# (event, fields): writes one line.
Warn: TypeAlias = Callable[..., Any]

PERIOD_S: Final = 600.0
SUBJECTS: Final = 64

_CODES: Final = {
    Doubt.NOBODY: grpc.StatusCode.NOT_FOUND,
    Doubt.OTHERWISE: grpc.StatusCode.PERMISSION_DENIED,
    Doubt.WORDS: grpc.StatusCode.INVALID_ARGUMENT,
    Doubt.OBSERVED: grpc.StatusCode.FAILED_PRECONDITION,
    Doubt.UNSEEN: grpc.StatusCode.UNAVAILABLE,
}


class Refusal(Exception):  # noqa: N818 - an answer of its own kind, not a fault of ours
    """An answer that is an error."""

    def __init__(self, code: grpc.StatusCode, words: str, reason: Reason | None = None) -> None:
        super().__init__(words)
        self.code = code
        self.words = words
        self.reason = reason


def of_doubt(refused: Refused) -> Refusal:
    return Refusal(_CODES[refused.doubt], refused.sentence)


class Seldom:
    """Writes log lines that a client can cause: each subject once in `PERIOD_S`, and `SUBJECTS` of them at most.

    now:  POSIX seconds.
    """

    def __init__(self, now: Callable[[], float], warn: Warn) -> None:
        self._now = now
        self._warn = warn
        self._last: dict[Hashable, float] = {}  # by subject, oldest first
        self._suppressed = 0

    def warn(self, subject: Hashable, event: str, **fields: object) -> None:
        """Writes the line, unless this subject had one within the period or too many subjects had."""
        now = self._now()
        while self._last and now - next(iter(self._last.values())) >= PERIOD_S:
            del self._last[next(iter(self._last))]
        if subject in self._last or len(self._last) >= SUBJECTS:
            self._suppressed += 1
            return
        self._last[subject] = now
        self._warn(event, **fields, suppressed=self._suppressed)
        self._suppressed = 0
