"""What must hold between the values of a brake or a schedule, and between them and a workload's bounds. Pure.

Worked example: a schedule with `floor: 12` for a workload of at most 10 replicas gives one warning, at `floor`: "is
above replicas.max (10), which holds: more are never asked for".
"""

from __future__ import annotations

from collections.abc import Iterator

from scaler.policy.overrides import Brake, BrakeWord, written

from .finding import Finding
from .overrides import Schedule
from .problem import Loc
from .rules import BRAKE_OVER, BRAKE_WITHOUT_END, FROZEN_ASLEEP, ORDER_BEYOND_BOUNDS
from .workload import Replicas, Workload


def order_findings(at: Loc, workload: Workload, now: float | None) -> Iterator[Finding]:
    """What is said of a workload's own brake and schedules. now: POSIX seconds; None: nobody looks for what is over."""
    if workload.brake is not None:
        yield from brake_findings((*at, "brake"), workload.brake, now)
        yield from _for_whom(at, workload.brake, workload)
    for index, schedule in enumerate(workload.schedules):
        yield from _schedule((*at, "schedules", index), schedule, workload.replicas, (*at, "replicas"))


def brake_findings(at: Loc, brake: Brake, now: float | None) -> Iterator[Finding]:
    """What is said of any brake, whoever's it is."""
    if brake.until is None:
        bound = "has no end: it holds until somebody takes it away; say `until` and a moment"
        yield Finding(at, bound, severity="warning", rule=BRAKE_WITHOUT_END)
    elif now is not None and not brake.holds(now):
        bound = f"is over since {written(brake.until)}: it orders nothing"
        yield Finding(at, bound, severity="warning", rule=BRAKE_OVER)


def _for_whom(at: Loc, brake: Brake, workload: Workload) -> Iterator[Finding]:
    here, replicas = (*at, "brake"), workload.replicas
    if brake.word is BrakeWord.FREEZE and replicas.sleeps and workload.gateway is not None:
        bound = "freezes it at zero too, where nothing wakes it: never_down lets it wake"
        yield Finding(here, bound, ((*at, "replicas"), (*at, "gateway")), severity="warning", rule=FROZEN_ASLEEP)
    if brake.floor > replicas.max:
        bound = f"has a floor above replicas.max ({replicas.max}), which holds: more are never asked for"
        yield Finding(here, bound, ((*at, "replicas", "max"),), severity="warning", rule=ORDER_BEYOND_BOUNDS)


def _schedule(at: Loc, schedule: Schedule, replicas: Replicas, bounds: Loc) -> Iterator[Finding]:
    floor, ceiling = schedule.floor, schedule.ceiling
    ends = ((*at, "end"), (*at, "duration"))
    if schedule.end is None and schedule.duration is None:
        yield Finding(at, "must have an end or a duration", ends)
    if schedule.end is not None and schedule.duration is not None:
        yield Finding((*at, "end"), "must not stand beside duration: one of them ends the window", ends)
    if floor is None and ceiling is None:
        named = ((*at, "floor"), (*at, "ceiling"))
        yield Finding(at, "must have a floor or a ceiling: else it orders nothing", named)
    if floor is not None and ceiling is not None and floor > ceiling:
        yield Finding((*at, "floor"), f"must be at most ceiling ({ceiling})", ((*at, "ceiling"),), str(floor))
    if floor is not None and floor > replicas.max:
        bound = f"is above replicas.max ({replicas.max}), which holds: more are never asked for"
        yield Finding((*at, "floor"), bound, ((*bounds, "max"),), str(floor), "warning", ORDER_BEYOND_BOUNDS)
    if ceiling is not None and ceiling < replicas.min:
        bound = f"is below replicas.min ({replicas.min}), which holds: fewer are never asked for"
        yield Finding((*at, "ceiling"), bound, ((*bounds, "min"),), str(ceiling), "warning", ORDER_BEYOND_BOUNDS)
