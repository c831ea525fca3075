"""Typed access to JSON that somebody else wrote.

It knows that a field may be missing, null, or of the wrong type, and what to say of each. It refuses to know which
object it reads. Missing and null are the same, as they are to Kubernetes; a wrong type is `Wrong`, with the field's
path, what it must be and what it is.

Worked example: `whole({"replicas": "three"}, "replicas", "spec")` raises `Wrong("spec.replicas: must be a whole number
of at least 0, got 'three'")`; without the key it is None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

NOTHING: Mapping[str, Any] = MappingProxyType({})

_SHOWN = 40  # characters of a bad value that a person gets to see
# Kubernetes prints the amount of an extended resource as a whole number, thousands as "1k" (resource.Quantity's
# canonical form). 18 digits fit into its int64.
_AMOUNT = re.compile(r"([0-9]{1,18})([kMG]?)")
# Any quantity, as resource.Quantity reads it: digits, and a suffix or an exponent.
_QUANTITY = re.compile(r"([0-9]{1,12})(?:\.([0-9]{0,9}))?(n|u|m|k|M|G|e[+-]?[0-9]{1,2}|E[+-]?[0-9]{1,2})?")
_SCALE = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9}
_FACTOR = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


class Wrong(ValueError):  # noqa: N818 - a sentence reads "raises Wrong"
    """A field that cannot be what it says; `args[0]` is a sentence for a person."""


def mapping(parent: Mapping[str, Any], key: str, place: str = "") -> Mapping[str, Any]:
    """The object at `key`; an empty one if there is none. `place`: the path of `parent`."""
    value = parent.get(key)
    if value is None:
        return NOTHING
    if not isinstance(value, dict):
        raise wrong(place, key, "an object", value)
    return value


def objects(parent: Mapping[str, Any], key: str, place: str = "") -> list[dict[str, Any]]:
    """The list of objects at `key`; an empty one if there is none."""
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise wrong(place, key, "a list of objects", value)
    return value


def text(parent: Mapping[str, Any], key: str, place: str = "") -> str | None:
    """The text at `key`; None if there is none or it is empty, which Kubernetes takes for the same."""
    value = parent.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise wrong(place, key, "text", value)
    return value


def needed(parent: Mapping[str, Any], key: str, place: str = "") -> str:
    """The text at `key`, which must be there."""
    value = text(parent, key, place)
    if value is None:
        raise wrong(place, key, "text, and not empty", parent.get(key))
    return value


def whole(parent: Mapping[str, Any], key: str, place: str = "") -> int | None:
    """The whole number, 0 or more, at `key`; None if there is none."""
    value = parent.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise wrong(place, key, "a whole number of at least 0", value)
    return value


def true(parent: Mapping[str, Any], key: str, place: str = "") -> bool | None:
    """The truth value at `key`; None if there is none."""
    value = parent.get(key)
    if value is not None and not isinstance(value, bool):
        raise wrong(place, key, "true or false", value)
    return value


def texts(parent: Mapping[str, Any], key: str, place: str = "") -> Mapping[str, str]:
    """The object of texts at `key`; an empty one if there is none."""
    found = mapping(parent, key, place)
    for name, value in found.items():
        if not isinstance(value, str):
            raise wrong(f"{place}.{key}" if place else key, name, "text", value)
    return found


def moment(parent: Mapping[str, Any], key: str, place: str = "") -> float | None:
    """The RFC 3339 time at `key` in POSIX seconds; None if there is none."""
    value = text(parent, key, place)
    if value is None:
        return None
    try:
        said = datetime.fromisoformat(value)
        if said.tzinfo is not None:  # without one it would be read in the time zone of this machine
            return said.timestamp()
    except (ValueError, OverflowError):
        pass
    raise wrong(place, key, "a time like 2025-01-31T23:59:59Z", value)


def micro_time(at: float) -> str:
    """POSIX seconds as Kubernetes' MicroTime."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def amount(parent: Mapping[str, Any], key: str, place: str = "") -> int:
    """How much of an extended resource, a whole quantity ("8", 8 or "1k"), is at `key`, which must be there."""
    value = parent.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _AMOUNT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise wrong(place, key, 'a whole quantity such as "8"', value)
    return int(match[1]) * _FACTOR[match[2]]


def quantity(parent: Mapping[str, Any], key: str, place: str = "") -> float | None:
    """The quantity ("100m", "0.1", 0.1), 0 or more, at `key`; None if there is none.

    As Kubernetes' controllers take it (AsApproximateFloat64): its digits times a power of ten.
    """
    value = parent.get(key)
    if value is None:
        return None
    number = not isinstance(value, bool) and isinstance(value, int | float)
    match = _QUANTITY.fullmatch(str(value)) if number or isinstance(value, str) else None
    if match is None:
        raise wrong(place, key, 'a quantity such as "100m"', value)
    digits, fraction, suffix = match[1], match[2] or "", match[3] or ""
    scale = _SCALE[suffix] if suffix in _SCALE else int(suffix[1:])
    return int(digits + fraction) * 10.0 ** (scale - len(fraction))


def wrong(place: str, key: str, bound: str, value: object) -> Wrong:
    """The error that says so: path, bound, value."""
    shown = "nothing" if value is None else _shown(value)
    return Wrong(f"{place}.{key}: must be {bound}, got {shown}" if place else f"{key}: must be {bound}, got {shown}")


def _shown(value: object) -> str:
    # Only a scalar is printed whole before it is cut: a list may be megabytes long.
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    said = repr(value[: _SHOWN + 1] if isinstance(value, str) else value)
    return said if len(said) <= _SHOWN else said[:_SHOWN] + "…"
