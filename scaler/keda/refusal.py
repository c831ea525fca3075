"""A question that gets an error: its gRPC code, words for a person, and the reason code where there is one."""

from __future__ import annotations

from typing import Final

import grpc

from ..board import Reason
from ..census import Doubt, Refused

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
