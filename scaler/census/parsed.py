"""Keeps what each object of the cluster said, so that an object is parsed once per version of what it says.

A ScaledObject's status changes every few seconds and is not parsed: a version is another one only if something that is
parsed has changed. Holds for one configuration, because the configuration decides what words mean.

Worked example: of 1,000 ScaledObjects one is edited: the next census parses that one, and takes the other 999 as they
were.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Generic, NamedTuple, TypeVar

from exporter.cluster.objects import Hpa, Ref, Scalable, ScaledObject

Value = TypeVar("Value")


class Parsed(Generic[Value]):
    """Values by the object that they were parsed from."""

    def __init__(self) -> None:
        self._kept: dict[Ref, tuple[Any, Value]] = {}

    def get(self, ref: Ref, version: Any, parse: Callable[[], Value]) -> Value:
        """The value of this version of an object; `parse` makes it where it is not there yet.

        version: what the value depends on, compared with `==`; parts that are the same object are not compared further.
        """
        kept = self._kept.get(ref)
        if kept is not None and kept[0] == version:
            return kept[1]
        value = parse()
        self._kept[ref] = version, value
        return value

    def keep_only(self, refs: Collection[Ref]) -> None:
        """Forgets objects that are no more."""
        if len(self._kept) > len(refs):
            self._kept = {ref: kept for ref, kept in self._kept.items() if ref in refs}


class TriggersVersion(NamedTuple):
    """What the triggers of a ScaledObject or ScaledJob are parsed from."""

    target: Ref
    minimum: int
    maximum: int
    idle: int | None
    triggers: tuple[Any, ...]

    @classmethod
    def of(cls, scaled: ScaledObject) -> TriggersVersion:
        return cls(scaled.target, scaled.minimum, scaled.maximum, scaled.idle, scaled.triggers)


class AnnotationsVersion(NamedTuple):
    """What the annotations of a scalable object are parsed from.

    bounds: of its HorizontalPodAutoscaler; None where it has none.
    """

    annotations: Any
    bounds: tuple[Ref, int, int] | None

    @classmethod
    def of(cls, scalable: Scalable, hpa: Hpa | None) -> AnnotationsVersion:
        return cls(scalable.annotations, None if hpa is None else (hpa.ref, hpa.minimum, hpa.maximum))
