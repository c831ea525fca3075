"""An entry of the log as JSON, to be kept in a file and decided again by somebody else. Pure.

Numbers are exact: Python writes the shortest decimal that reads back as the same double. JSON has no NaN and no
infinity: what is unknown is null, and what is without an end is "inf". Codes are words.

Worked example: `read_inputs(inputs(entry))` decides as `entry` does. A file with `"waiting": "many"` in it is refused:
`inputs.readings.waiting: must be a number, got "many"`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from math import inf, isfinite, isinf, isnan
from typing import Any, get_type_hints

import numpy as np

from exporter.model import WorkloadKey

from ..plan import Plan
from ..policy import REASONS, Signal, Spec
from .entry import Entry, Given, blank

VERSION = 1
_SIGNALS = {signal.name.lower(): signal for signal in Signal}
_CODES = {str(reason): code for code, reason in enumerate(REASONS)}
# Codes of reasons that are columns of numbers: below 0 is nobody's.
_REASONS = {("standing", "floor_reason"), ("memory", "reason"), ("verdicts", "reason")}
_NOBODY = -1


class BadInputsError(ValueError):
    """What was read is no entry of a decision log; the words name the key."""


def inputs(entry: Entry) -> dict[str, Any]:
    """The entry as plain JSON-able data. What decided nothing (`aside`) is in it for people."""
    document: dict[str, Any] = {"version": VERSION, "spec": _spec(entry.plan.spec)}
    for part, columns in entry.given._asdict().items():
        document[part] = {name: _written(part, name, column) for name, column in columns._asdict().items()}
    return document


def read_inputs(document: Any, workload: WorkloadKey) -> Entry:
    """The reverse. Raises BadInputsError."""
    version = _mapping(document, "inputs").get("version")
    if version != VERSION:
        raise BadInputsError(f"inputs.version: must be {VERSION}, got {json.dumps(version)}")
    template = blank(1)
    parts = {}
    for part, like in template._asdict().items():
        columns = _mapping(_of(document, part, "inputs"), f"inputs.{part}")
        read = [_read(part, name, column, columns) for name, column in like._asdict().items()]
        parts[part] = type(like)(*read)
    plan = Plan(workload, _read_spec(_mapping(_of(document, "spec", "inputs"), "inputs.spec")))
    return Entry(plan, Given(**parts))


def _written(part: str, name: str, column: Any) -> Any:
    if column.ndim > 1:
        return {word: _number(column[0, signal]) for word, signal in _SIGNALS.items()}
    if (part, name) in _REASONS:
        return None if column[0] < 0 else str(REASONS[column[0]])
    return bool(column[0]) if column.dtype == np.bool_ else _number(column[0])


def _number(value: Any) -> float | str | None:
    if isnan(value):
        return None
    return ("inf" if value > 0 else "-inf") if isinf(value) else float(value)


def _read(part: str, name: str, like: Any, columns: Mapping[str, Any]) -> Any:
    place = f"inputs.{part}"
    value = _of(columns, name, place)
    place = f"{place}.{name}"
    if like.ndim > 1:
        by_name = _mapping(value, place)
        return np.array([[_read_number(_of(by_name, word, place), f"{place}.{word}") for word in _SIGNALS]])
    if (part, name) in _REASONS:
        return np.array([_read_reason(value, place)], dtype=np.int64)
    if like.dtype == np.bool_:
        return np.array([_read_flag(value, place)], dtype=np.bool_)
    return np.array([_read_number(value, place)])


def _read_number(value: Any, place: str) -> float:
    if value is None:
        return float("nan")
    if value in ("inf", "-inf"):
        return inf if value == "inf" else -inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInputsError(f"{place}: must be a number, got {json.dumps(value)}")
    return float(value)


def _read_flag(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise BadInputsError(f"{place}: must be true or false, got {json.dumps(value)}")
    return value


def _read_reason(value: Any, place: str) -> int:
    if value is None:
        return _NOBODY
    if not isinstance(value, str) or value not in _CODES:
        raise BadInputsError(f"{place}: must be one of {', '.join(_CODES)}, got {json.dumps(value)}")
    return _CODES[value]


def _spec(spec: Spec) -> dict[str, Any]:
    document = {each.name: getattr(spec, each.name) for each in fields(spec)}
    document = {name: _number(value) if isinstance(value, float) else value for name, value in document.items()}
    return document | {"targets": {signal.name.lower(): target for signal, target in spec.targets}}


def _read_spec(document: Mapping[str, Any]) -> Spec:
    given: dict[str, Any] = {}
    kinds = get_type_hints(Spec)
    for each in fields(Spec):
        place = f"inputs.spec.{each.name}"
        value = _of(document, each.name, "inputs.spec")
        if each.name == "targets":
            given["targets"] = _read_targets(_mapping(value, place), place)
        elif each.name == "sleeps":
            given["sleeps"] = None if value is None else _read_flag(value, place)
        elif kinds[each.name] is bool:
            given[each.name] = _read_flag(value, place)
        else:
            number = _read_number(value, place)
            if not isfinite(number):
                raise BadInputsError(f"{place}: must be a finite number, got {json.dumps(value)}")
            given[each.name] = number if kinds[each.name] is float else int(number)
    return Spec(**given)


def _read_targets(document: Mapping[str, Any], place: str) -> tuple[tuple[Signal, float], ...]:
    found = []
    for word, value in document.items():
        if word not in _SIGNALS:
            raise BadInputsError(f"{place}: must be of {', '.join(_SIGNALS)}, got {json.dumps(word)}")
        target = _read_number(value, f"{place}.{word}")
        if not target > 0.0:
            raise BadInputsError(f"{place}.{word}: must be above 0, got {json.dumps(value)}")
        found.append((_SIGNALS[word], target))
    return tuple(found)


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInputsError(f"{place}: must be an object, got {json.dumps(value)[:60]}")
    return value


def _of(document: Mapping[str, Any], key: str, place: str) -> Any:
    if key not in document:
        raise BadInputsError(f"{place}.{key}: is missing")
    return document[key]
