"""Decodes a response of Prometheus' query API: JSON to series, or a `Failure`.

One invalid series costs itself. A response with warnings is refused in full: that is how Thanos and Mimir report a
store that did not answer. `infos` are about how a query is written, and are ignored. Native histograms have no sample
that a page could print, and are dropped.

Worked example: `{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {"__name__": "up", "job":
"a"}, "values": [[1700000000.5, "1"]]}]}}` is `(PromqlSeries("up", {"job": "a"}, (1700000000.5,), (1.0,)),)`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import inf, nan
from typing import Any, NamedTuple

from exporter.model import Failure, FailureKind, printable

NAME = "__name__"
LONGEST_TIME = 1e14  # seconds; in milliseconds it is still an int64, as textformat wants it
EXCERPT_CHARACTERS = 300  # of a server's text, in a message


class PromqlSeries(NamedTuple):
    """labels: without the name. times: POSIX seconds, ascending, never empty. values: one per time; may be NaN."""

    name: str
    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]


def decode_series(body: bytes) -> tuple[PromqlSeries, ...] | Failure:
    """The series of a response with HTTP 200."""
    response = _json(body)
    match response:
        case {"status": "success", "warnings": [first, *_]}:
            return Failure(FailureKind.PARTIAL, f"the server warns that its response is incomplete: {_excerpt(first)}")
        case {"status": "success", "data": {"resultType": "matrix", "result": list(result)}}:
            return tuple(series for item in result if (series := _series(item)) is not None)
        case {"status": "success"}:
            return Failure(FailureKind.UNREADABLE, "the response is no range vector: is the selector only matchers?")
        case {"status": "error"}:
            return Failure(FailureKind.STATUS, _error(response) or "the server reports an error without a reason")
    return Failure(FailureKind.UNREADABLE, "the response is not Prometheus' JSON: is this the base URL of its API?")


def decode_error(body: bytes) -> str | None:
    """The error in a response with another status, "bad_data: 1:9: parse error: …"; None if it is not Prometheus'."""
    return _error(_json(body))


def _error(response: object) -> str | None:
    match response:
        case {"errorType": str(kind), "error": str(error)}:
            return _excerpt(f"{kind}: {error}")
        case {"error": str(error)}:
            return _excerpt(error)
    return None


def _excerpt(text: object) -> str:
    """A server's text for people: one line, not too long, without control characters."""
    line = " ".join(str(text).split())
    shown = printable(line)
    return shown if len(shown) <= EXCERPT_CHARACTERS else shown[: EXCERPT_CHARACTERS - 1] + "…"


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested without end
        return None


def _series(item: object) -> PromqlSeries | None:
    match item:
        case {"metric": dict(metric), "values": [_, *_] as values} if _is_text(metric):
            points = sorted(point for value in values if (point := _point(value)) is not None)
        case _:
            return None
    if len(points) < len(values):
        return None
    labels = {name: value for name, value in metric.items() if name != NAME}
    return PromqlSeries(metric[NAME], labels, tuple(at for at, _ in points), tuple(value for _, value in points))


def _is_text(metric: Mapping[str, Any]) -> bool:
    try:
        "".join((*metric, *metric.values())).encode()
    except (TypeError, UnicodeEncodeError):  # a value that is no string, or half of a surrogate pair
        return False
    return bool(metric.get(NAME))


def _point(value_at: object) -> tuple[float, float] | None:
    match value_at:
        case [int() | float() as at, str() | None as value] if -LONGEST_TIME < at < LONGEST_TIME:
            # VictoriaMetrics' export has null for NaN.
            number = nan if value is None else _number(value)
            return None if number is None else (float(at), number)
    return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if abs(value) == inf and "f" not in text.lower() else value
