"""Says which policy of a replay won, by how much, and why the others did not. Pure.

A policy that met the SLO is better than one that missed it; of those that met it the cheapest wins. A late request has
one cause, by its arrival:

- wake: all engines slept, or the first one was waking;
- cold start: no replica was ordered, or the first one less than a start-up time ago;
- starting: more replicas were ordered less than a start-up time ago;
- too few: no more were ordered.

Worked example: with starts of 75 s and orders 0 -> 1 at 100 s and 1 -> 2 at 300 s, late requests of the seconds 90,
150, 350 and 500 are two cold starts, one that came while a replica started, and one that came upon too few.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan
from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from .columns import Mask
from .run import Replayed, Score, SleepCourse, judged, score, shown, slo_met


class Causes(NamedTuple):
    """Late requests, as shares of all that are judged, 0..1."""

    wake: float
    cold_start: float
    starting: float
    too_few: float


class Compared(NamedTuple):
    """One policy. label: its name and parameters."""

    label: str
    course: Replayed


def causes(course: Replayed) -> Causes:
    """Why requests were late."""
    counted = judged(course.load)
    late = course.load.at[counted & ~slo_met(course)]
    moments = np.array([order.at for order in course.orders])
    replicas = np.array([course.first, *(order.after for order in course.orders)])
    last = np.searchsorted(moments, late, side="right")
    rises = np.array([order.at for order in course.orders if order.after > order.before])
    from_zero = np.array([order.at for order in course.orders if order.before == 0])
    start_s = course.profile.start_s
    wake = _within_naps(course, late)
    cold = ~wake & ((replicas[last] == 0) | _within(from_zero, late, start_s))
    starting = ~wake & ~cold & _within(rises, late, start_s)
    judged_requests = max(int(counted.sum()), 1)
    too_few = ~wake & ~cold & ~starting
    return Causes(*(int(each.sum()) / judged_requests for each in (wake, cold, starting, too_few)))


def _within_naps(course: Replayed, at: Floats) -> Mask:
    if course.slept is None:
        return np.zeros(len(at), dtype=np.bool_)
    since, until = course.slept.naps.T
    nap = np.searchsorted(since, at, side="right") - 1
    within: Mask = (nap >= 0) & (at < np.append(until, 0.0)[nap])
    return within


def _within(moments: Floats, at: Floats, seconds: float) -> Mask:
    """Which of `at` are less than so many seconds after one of the moments; both ascending."""
    if not len(moments):
        return np.zeros(len(at), dtype=np.bool_)
    before = np.searchsorted(moments, at, side="right") - 1
    within: Mask = (before >= 0) & (at - moments[before] < seconds)
    return within


def sentences(policies: Sequence[Compared], fluid_gpu_hours: float, gpu_hour: float) -> list[str]:
    """The winner, and each other policy in the order given; empty if there is no other.

    fluid_gpu_hours: those that full batches would need. gpu_hour: money for one.
    """
    scored = [(one, score(one.course)) for one in policies]
    scored = [(one, numbers) for one, numbers in scored if not isnan(numbers.slo_met_ratio)]
    if not scored[1:]:
        return []
    met = [(one, numbers) for one, numbers in scored if _is_met(one.course, numbers)]
    if not met:
        closest, numbers = max(scored, key=lambda pair: pair[1].slo_met_ratio)
        first = f"No policy met the SLO. {closest.label} came closest, with {_percent(numbers.slo_met_ratio)}."
        return [first, *(_missed(one, numbers) for one, numbers in scored)]
    best, least = min(met, key=lambda pair: pair[1].gpu_hours)
    money = f"{gpu_hour * least.gpu_hours:,.2f} at {gpu_hour:g} for a GPU-hour"
    won = f"{best.label} won: of those that met the SLO it cost least, {least.gpu_hours:,.1f} GPU-hours, or {money}."
    return [
        won,
        *(
            _dearer(one.label, numbers, least, fluid_gpu_hours, gpu_hour)
            if _is_met(one.course, numbers)
            else _missed(one, numbers)
            for one, numbers in scored
            if one is not best
        ),
    ]


def sleep_sentences(policies: Sequence[Compared], gpu_hour: float) -> list[str]:
    """A sentence for each policy with sleep mode: how long its engines slept, and what that saved.

    gpu_hour: price of a GPU-hour.
    """
    return [_slept(one, one.course.slept, gpu_hour) for one in policies if one.course.slept is not None]


def _slept(one: Compared, slept: SleepCourse, gpu_hour: float) -> str:
    hours = score(one.course).asleep_gpu_hours
    saved = gpu_hour * (1.0 - slept.price) * hours
    return (
        f"{one.label} had engines asleep for {hours:,.1f} GPU-hours, which count as {100.0 * slept.price:g} %: "
        f"{saved:,.2f} less than ready. They woke {slept.wakes:,} times, and "
        f"{_percent(causes(one.course).wake)} of the requests were late by that."
    )


def _is_met(course: Replayed, numbers: Score) -> bool:
    return numbers.slo_met_ratio >= course.profile.slo.share


def _dearer(label: str, numbers: Score, least: Score, fluid_gpu_hours: float, gpu_hour: float) -> str:
    times = numbers.gpu_hours / least.gpu_hours if least.gpu_hours else inf
    more = gpu_hour * (numbers.gpu_hours - least.gpu_hours)
    return (
        f"{label} met it for {times:,.2f} times as much, {more:,.2f} more: full batches would have filled "
        f"{_filled(numbers, fluid_gpu_hours)} of its replicas, and {_filled(least, fluid_gpu_hours)} of the winner's."
    )


def _filled(numbers: Score, fluid_gpu_hours: float) -> str:
    return shown(100.0 * fluid_gpu_hours / numbers.gpu_hours, 0, " %") if numbers.gpu_hours else "none"


def _missed(one: Compared, numbers: Score) -> str:
    why = causes(one.course)
    by_cause = (
        (why.wake, "at wakes of sleeping engines"),
        (why.cold_start, "at cold starts"),
        (why.starting, "while replicas that it had ordered started"),
        (why.too_few, "with too few ordered"),
    )
    parts = ", ".join(f"{_percent(share)} {text}" for share, text in by_cause if share > 0.0)
    return f"{one.label} missed the SLO: {_percent(1.0 - numbers.slo_met_ratio)} of the requests were late, {parts}."


def _percent(share: float) -> str:
    return shown(100.0 * share, 2, " %")
