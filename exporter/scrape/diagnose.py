"""What a body is that is no page of metrics: JSON, HTML, something compressed, text of another encoding.

It looks at bytes nobody could read a sample from and says what they are and where the right page may be. It never
guesses from one wrong line: a page with a single sample on it is a page.

Worked example: `foreign(b"[]")` begins "JSON, and no page of metrics: trtllm-serve answers so at /metrics".
"""

from __future__ import annotations

import json
from typing import Any

_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_HTML = (b"<!doctype", b"<html", b"<head", b"<body", b"<?xml")
_OWN_PAGE = "its page for Prometheus is /prometheus/metrics, with return_perf_metrics set"


def foreign(body: bytes) -> str | None:
    """What it is instead of a page of metrics, as part of a sentence; None if that cannot be told."""
    for magic, name in _COMPRESSED.items():
        if body.startswith(magic):
            return f"compressed ({name}): unpack it first"
    if body.startswith(_UTF16) or body[1:8:2] == b"\0\0\0\0" or body[0:8:2] == b"\0\0\0\0":
        return "text in UTF-16: a page of metrics is UTF-8, save it as that"
    start = body[:64].lstrip().lower()
    if start.startswith(_HTML):
        return "HTML: a login page, an error or a web site; is the path right?"
    if start.startswith((b"{", b"[")):
        return _json(body)
    return None


def _json(body: bytes) -> str | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(document, list):
        return f"JSON, and no page of metrics: trtllm-serve answers so at /metrics, {_OWN_PAGE}"
    if isinstance(document, dict) and _is_prometheus_answer(document):
        return "an answer of Prometheus' API: ask such a server by `prometheus:` in the configuration"
    return "JSON, and no page of metrics: is the path right?"


def _is_prometheus_answer(document: dict[Any, Any]) -> bool:
    return document.get("status") in ("success", "error") and ("data" in document or "errorType" in document)
