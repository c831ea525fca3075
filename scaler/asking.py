"""What commands ask for: a page, by its URL or as a file, and a document of a running Tidegate. It blocks.

Worked example: `document("http://localhost:8080", "/api/v1/accounts", timeout=10.0)` is that document; where nobody
listens it raises Unanswered("http://localhost:8080/api/v1/accounts: Connection refused. ...").
"""

from __future__ import annotations

import json
import sys
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO

import requests

# A page of 10,000 series is 2 MiB. What is larger than this is no page, and reading on would only fill the memory.
LARGEST_PAGE = 64 * 2**20
HINT = "Is it Tidegate's HTTP port (8080)? In a cluster: kubectl -n tidegate port-forward svc/tidegate 8080"


class Unanswered(Exception):  # noqa: N818 - named for what happened
    """There is no document. The message says where it was looked for, and what to do.

    status: of the HTTP answer, None where there was none. said: the error in it; "" where that is not Tidegate's.
    """

    def __init__(self, words: str, status: int | None = None, said: str = "") -> None:
        super().__init__(words)
        self.status, self.said = status, said


def document(server: str, path: str, timeout: float) -> dict[str, Any]:
    """server: the URL of its HTTP listener. timeout: seconds, for the whole of it. Raises Unanswered."""
    url = server.rstrip("/") + path
    try:
        response, body = _asked(url, timeout)
    except Unanswered as error:
        raise Unanswered(f"{error}. {HINT}") from None
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if response.status_code == HTTPStatus.OK and isinstance(said, dict):
        return said
    why = said.get("error") if isinstance(said, dict) else None
    words = why or f"HTTP {response.status_code} {response.reason}, and no document of Tidegate's. {HINT}"
    raise Unanswered(f"{url}: {words}", response.status_code, why or "")


def page(source: str, timeout: float) -> bytes:
    """source: an http(s) URL, a file, or - for standard input. timeout: seconds, of a URL. Raises Unanswered."""
    if source == "-":
        return _all_of(sys.stdin.buffer, source)
    if source.startswith(("http://", "https://")):
        response, body = _asked(source, timeout)
        if not response.ok:
            raise Unanswered(f"{source}: HTTP {response.status_code} {response.reason}")
        return body
    try:
        with Path(source).open("rb") as file:
            return _all_of(file, source)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise Unanswered(f"{source}: {getattr(error, 'strerror', None) or error}") from error


def _all_of(file: BinaryIO, source: str) -> bytes:
    body = file.read(LARGEST_PAGE + 1)
    if len(body) > LARGEST_PAGE:
        raise Unanswered(_too_large(source))
    return body


def _asked(url: str, timeout: float) -> tuple[requests.Response, bytes]:
    until = time.monotonic() + timeout

    def body_of(response: requests.Response) -> bytes:
        body = bytearray()
        for part in response.iter_content(2**16):
            body += part
            if len(body) > LARGEST_PAGE:
                raise Unanswered(_too_large(url))
            if time.monotonic() > until:  # requests' own limit is between two bytes
                raise requests.Timeout
        return bytes(body)

    try:
        with requests.get(url, timeout=timeout, stream=True) as response:
            return response, body_of(response)
    except requests.RequestException as error:
        if isinstance(error, requests.Timeout) or time.monotonic() >= until:
            raise Unanswered(f"{url}: no whole page within {timeout:g} s") from error
        # The innermost reason stands last: "[Errno 111] Connection refused".
        reason = getattr(error.args[0], "reason", error) if error.args else error
        raise Unanswered(f"{url}: {str(reason).rpartition(': ')[2]}") from error


def _too_large(source: str) -> str:
    return f"{source}: larger than {LARGEST_PAGE >> 20} MiB, so no page of metrics"
