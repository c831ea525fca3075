"""A running Tidegate, asked over HTTP for one of its documents. For commands: it blocks.

Worked example: `document("http://localhost:8080", "/api/v1/accounts", timeout=10.0)` is that document; where nobody
listens it raises Unanswered("http://localhost:8080/api/v1/accounts: Connection refused …").
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import requests

HINT = "Is it Tidegate's HTTP port (8080)? In a cluster: kubectl -n tidegate port-forward svc/tidegate 8080"


class Unanswered(Exception):  # noqa: N818 - named for what happened
    """There is no document. The message says where it was looked for, and what to do."""


def document(server: str, path: str, timeout: float) -> dict[str, Any]:
    """server: the URL of its HTTP listener. timeout: seconds. Raises Unanswered."""
    url = server.rstrip("/") + path
    try:
        response = requests.get(url, timeout=timeout)
    except requests.Timeout:
        raise Unanswered(f"{url}: no answer within {timeout:g} s. {HINT}") from None
    except requests.RequestException as error:
        reason = getattr(error.args[0], "reason", error) if error.args else error
        raise Unanswered(f"{url}: {str(reason).rpartition(': ')[2]}. {HINT}") from None
    try:
        said = response.json()
    except ValueError:
        said = None
    if response.status_code != HTTPStatus.OK or not isinstance(said, dict):
        why = said.get("error") if isinstance(said, dict) else None
        words = why or f"HTTP {response.status_code} {response.reason}, and no document of Tidegate's. {HINT}"
        raise Unanswered(f"{url}: {words}")
    return said
