"""A server's answer: JSON to series, or a `Failure` that says why it is none. Bytes in, values out.

What a server says is not believed further than it can be read: one series that makes no sense costs itself, an answer
with warnings costs itself whole, because a warning is how Thanos and Mimir say that a store did not answer. `infos`
are about how a query is written, and are not read. Native histograms have no sample a page could print, and are left.

Worked example: `{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {"__name__": "up", "job":
"a"}, "values": [[1700000000.5, "1"]]}]}}` is `(Series("up", {"job": "a"}, (1700000000.5,), (1.0,)),)`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import inf, nan
from typing import Any, NamedTuple

from exporter.model import Failure, FailureKind, printable

NAME = "__name__"
LONGEST_TIME = 1e14  # seconds; in milliseconds it is still an int64, as textformat wants it
SHOWN = 300  # characters of a server's words that a person is shown


class PromqlSeries(NamedTuple):
    """labels: without the name. times: POSIX seconds, ascending, never empty. values: one per time; may be NaN."""

    name: str
    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]


def read_answer(body: bytes) -> tuple[PromqlSeries, ...] | Failure:
    """The series of an answer that came with HTTP 200."""
    said = _json(body)
    match said:
        case {"status": "success", "warnings": [first, *_]}:
            return Failure(FailureKind.PARTIAL, f"the server warns that its answer is not whole: {words(first)}")
        case {"status": "success", "data": {"resultType": "matrix", "result": list(result)}}:
            return tuple(series for item in result if (series := _series(item)) is not None)
        case {"status": "success"}:
            return Failure(FailureKind.UNREADABLE, "the answer is no range vector: is the selector only matchers?")
        case {"status": "error"}:
            return Failure(FailureKind.STATUS, error_words(said) or "the server says that it failed, and not why")
    return Failure(FailureKind.UNREADABLE, "the answer is not Prometheus' JSON: is this the base URL of its API?")


def read_refusal(body: bytes) -> str | None:
    """What a server says beside a status other than 200; None if it does not say it as Prometheus would."""
    return error_words(_json(body))


def error_words(said: object) -> str | None:
    """Prometheus' own words for an error: "bad_data: 1:9: parse error: …"."""
    match said:
        case {"errorType": str(kind), "error": str(error)}:
            return words(f"{kind}: {error}")
        case {"error": str(error)}:
            return words(error)
    return None


def words(text: object) -> str:
    """A server's words as a person may see them: one line, not too long, nothing that a terminal would obey."""
    line = " ".join(str(text).split())
    shown = printable(line)
    return shown if len(shown) <= SHOWN else shown[: SHOWN - 1] + "…"


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or brackets without end
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


def _point(said: object) -> tuple[float, float] | None:
    match said:
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
