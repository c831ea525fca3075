"""Reads typed fields from the JSON of a Kubernetes object, and writes times in Kubernetes' format.

A missing field and a null are the same, as they are to Kubernetes. A field of a wrong type raises FieldError; the
message has the field's path, its bound and its value.

Worked example: `Fields({"replicas": "three"}, "spec").integer("replicas")` raises `FieldError("spec.replicas: must be a
whole number of at least 0, got 'three'")`; without the key it returns None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

NOTHING: Mapping[str, Any] = MappingProxyType({})

_SHOWN_CHARACTERS = 40  # of a bad value, in a message
# Kubernetes prints the amount of an extended resource as a whole number, thousands as "1k" (resource.Quantity's
# canonical form). 18 digits fit into its int64.
_AMOUNT = re.compile(r"([0-9]{1,18})([kMG]?)")
# Any quantity, as resource.Quantity reads it: digits, and a suffix or an exponent.
_QUANTITY = re.compile(r"([0-9]{1,12})(?:\.([0-9]{0,9}))?(n|u|m|k|M|G|e[+-]?[0-9]{1,2}|E[+-]?[0-9]{1,2})?")
_new = tuple.__new__  # half the time of `Fields(...)`
_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9}


class FieldError(ValueError):
    """A field has a wrong type or value."""


# A path, or a path and a key in it: it is written out for a message only, because a pod has twenty of them.
Path: TypeAlias = "str | tuple[Path, str]"


class Fields(NamedTuple):
    """The fields of one JSON object. path: where the object is in its document, for messages."""

    values: Mapping[str, Any]
    path: Path = ""

    def object(self, key: str) -> Fields:
        """An empty object if there is none."""
        value = self.values.get(key)
        if value is None:
            value = NOTHING
        elif not isinstance(value, dict):
            raise self.error(key, "an object")
        return _new(Fields, (value, (self.path, key)))

    def objects(self, key: str) -> list[Fields]:
        """An empty list if there is none."""
        value = self.values.get(key)
        if value is None:
            return []
        path = (self.path, key)
        if isinstance(value, list):
            found = [_new(Fields, (item, path)) for item in value if isinstance(item, dict)]
            if len(found) == len(value):
                return found
        raise self.error(key, "a list of objects")

    def of_type(self, key: str, kind: str) -> Fields | None:
        """The first object with this `type` in a list of objects."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, list):
            for item in value:
                if not isinstance(item, dict):
                    break
                if item.get("type") == kind:
                    return _new(Fields, (item, (self.path, key)))
            else:
                return None
        raise self.error(key, "a list of objects")

    def text(self, key: str) -> str | None:
        """None also for an empty text, which Kubernetes treats as a missing one."""
        value = self.values.get(key)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise self.error(key, "text")
        return value

    def required_text(self, key: str) -> str:
        value = self.values.get(key)
        if isinstance(value, str) and value:
            return value
        self.text(key)  # another type is another error
        raise self.error(key, "text, and not empty")

    def choice(self, key: str, choices: tuple[str, ...]) -> str | None:
        value = self.text(key)
        if value is not None and value not in choices:
            raise self.error(key, f"one of {', '.join(choices)}")
        return value

    def integer(self, key: str) -> int | None:
        """A whole number of at least 0."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.error(key, "a whole number of at least 0")
        return value

    def boolean(self, key: str) -> bool | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def texts(self, key: str) -> Mapping[str, str]:
        """An object of texts; an empty one if there is none."""
        found = self.object(key)
        for name, value in found.values.items():
            if not isinstance(value, str):
                raise found.error(name, "text")
        return found.values

    def time(self, key: str) -> float | None:
        """An RFC 3339 time, as POSIX seconds."""
        value = self.values.get(key)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise self.error(key, "text")
        try:
            parsed = datetime.fromisoformat(value)
            if parsed.tzinfo is not None:  # without one it would be read in the time zone of this machine
                return parsed.timestamp()
        except (ValueError, OverflowError):
            pass
        raise self.error(key, "a time like 2025-01-31T23:59:59Z")

    def amount(self, key: str) -> int:
        """The required amount of an extended resource, a whole quantity: "8", 8 or "1k"."""
        value = self.values.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        match = _AMOUNT.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise self.error(key, 'a whole quantity such as "8"')
        return int(match[1]) * int(10 ** _EXPONENTS[match[2]])

    def quantity(self, key: str) -> float | None:
        """A quantity of at least 0: "100m", "0.1" or 0.1.

        Rounded as Kubernetes' controllers do (AsApproximateFloat64): its digits times a power of ten.
        """
        value = self.values.get(key)
        if value is None:
            return None
        number = not isinstance(value, bool) and isinstance(value, int | float)
        match = _QUANTITY.fullmatch(str(value)) if number or isinstance(value, str) else None
        if match is None:
            raise self.error(key, 'a quantity such as "100m"')
        digits, fraction, suffix = match[1], match[2] or "", match[3] or ""
        exponent = _EXPONENTS[suffix] if suffix in _EXPONENTS else int(suffix[1:])
        return int(digits + fraction) * 10.0 ** (exponent - len(fraction))

    def path_of(self, key: str) -> str:
        return _written((self.path, key))

    def error(self, key: str, bound: str) -> FieldError:
        """The error for the field `key`: path, bound, value."""
        return FieldError(f"{self.path_of(key)}: must be {bound}, got {_shown(self.values.get(key))}")


def _written(path: Path) -> str:
    if isinstance(path, str):
        return path
    above = _written(path[0])
    return f"{above}.{path[1]}" if above else path[1]


def micro_time(at: float) -> str:
    """POSIX seconds as Kubernetes' MicroTime."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _shown(value: object) -> str:
    # Only a scalar is printed whole before it is cut: a list may be megabytes long.
    match value:
        case None:
            return "nothing"
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            value = value[: _SHOWN_CHARACTERS + 1]
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + "…"
