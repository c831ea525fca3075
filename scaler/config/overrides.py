"""Reads brakes and schedules of the configuration and of triggers. `scaler.policy.overrides` applies them.

Worked example: the trigger key `schedules: "0 8 * * 1-5 for 10h in Europe/Berlin floor 2"` gives the same as a
workload's `schedules: [{start: 0 8 * * 1-5, duration: 10h, zone: Europe/Berlin, floor: 2}]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import Field
from pydantic_core import PydanticCustomError

from scaler.policy import overrides
from scaler.policy.overrides import (
    AUTO,
    Brake,
    OverrideError,
    Prewarm,
    read_brake,
    read_cron,
    read_schedules,
    read_zone,
)
from scaler.policy.overrides.brake import MOST_REPLICAS
from scaler.policy.overrides.schedule import EXAMPLE

from .endpoint import Section
from .scalars import Scalar, auto_or_duration, duration, read_duration, refused

CONFIGURATION = "configuration"

Value = TypeVar("Value")
_WINDOW_LENGTH = duration(at_least_s=60)
Count: TypeAlias = Annotated[int, Field(ge=1, le=MOST_REPLICAS)]


def _text_reader(read: Callable[[str], Value], example: str) -> Callable[[Any], Value]:
    """A reader for a `Scalar`: BadOrder becomes an error of pydantic."""

    def reader(value: Any) -> Value:
        if not isinstance(value, str):
            raise refused(f"must be text such as {example}")
        try:
            return read(value)
        except OverrideError as bad:
            raise refused(str(bad)) from None

    return reader


def seconds(text: str) -> float:
    """Seconds of "10h"; raises BadOrder."""
    try:
        return read_duration(text)
    except PydanticCustomError as bad:
        raise OverrideError(bad.message()) from None


def _read_brake(value: Any) -> Brake:
    if isinstance(value, Brake):
        return value
    return _text_reader(lambda text: read_brake(text, CONFIGURATION), overrides.EXAMPLE)(value)


def _read_lines(value: Any) -> str:
    """The text, once it is valid for `scheduled`."""
    _text_reader(lambda text: read_schedules(text, seconds), EXAMPLE)(value)
    return str(value)


BRAKE = Scalar(_read_brake, Brake.typed, {"title": "brake", "type": "string", "examples": [overrides.EXAMPLE]})
CRON = Scalar(_text_reader(read_cron, "0 8 * * 1-5"), str, {"title": "five cron fields", "type": "string"})
ZONE = Scalar(_text_reader(read_zone, "Europe/Berlin"), str, {"title": "time zone", "type": "string"})
PREWARM = auto_or_duration("learned")
SCHEDULES = Scalar(_read_lines, str, {"title": "schedules", "type": "string", "examples": [EXAMPLE]})


class Schedule(Section):
    """Times with a floor, a ceiling or both (docs/how-to/overrides.md)."""

    start: Annotated[str, CRON]
    """Start of the window: minute, hour, day, month, weekday, such as `0 8 * * 1-5`."""
    end: Annotated[str, CRON] | None = None
    """End of the window. Either this or `duration`."""
    duration: Annotated[float, _WINDOW_LENGTH] | None = None
    """Length of the window."""
    zone: Annotated[str, ZONE] = "UTC"
    """IANA time zone, such as `Europe/Berlin`."""
    floor: Count | None = None
    """Minimum replicas, idle or not; limited by `replicas.max`."""
    ceiling: Count | None = None
    """Maximum replicas, whatever the demand; at least 1."""
    prewarm: Annotated[Prewarm, PREWARM] = AUTO
    """How long before the window the floor starts. `auto`: the 90th percentile of its cold starts."""

    @property
    def order(self) -> overrides.ReplicaSchedule:
        """Raises BadOrder for both ends or none, which `validate_workload` reports before."""
        return overrides.ReplicaSchedule(
            overrides.times_of(self.start, self.end, self.duration, self.zone), self.floor, self.ceiling, self.prewarm
        )


def scheduled(lines: str | None) -> tuple[Schedule, ...]:
    """The schedules of a trigger's key, which `SCHEDULES` has validated."""
    return tuple(_section(order) for order in read_schedules(lines, seconds)) if lines is not None else ()


def _section(order: overrides.ReplicaSchedule) -> Schedule:
    end = order.times.end
    return Schedule(
        start=order.times.start.text,
        end=None if isinstance(end, float) else end.text,
        duration=end if isinstance(end, float) else None,
        zone=order.times.start.zone,
        floor=order.floor,
        ceiling=order.ceiling,
        prewarm=order.prewarm,
    )
