"""An answer that is an error: its HTTP status, and words for whoever runs `kubectl describe hpa`. Pure."""

from __future__ import annotations

from http import HTTPStatus


class Refusal(Exception):  # noqa: N818 - an answer of its own kind, not a fault of ours
    def __init__(self, code: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words
