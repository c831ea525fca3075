"""Replays a trace against one server and one baseline, and scores what happened.

The baseline looks every `every_s` and its order holds at once. Cost counts from second 0 to the last arrival, for every
baseline the same span; the world goes on until all requests are served, or an hour longer, so that the waiting times of
the last requests are known. Same seed, same result: only start-up times are random. The first five minutes cost and are
not judged: no autoscaler can know a load before it begins.

Worked example: orders 1 -> 3 at 1000 s, 3 -> 2 at 1100 s, 2 -> 3 at 2000 s are three changes and one flap: the second
takes back within 300 s what the first did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from .baseline import Baseline, Explains, Explanation, Observation, Sleeps, observe
from .columns import AT, DONE, FINISHED, FIRST, POD_S, Mask, ReplayWorld, Trace
from .decisions import Record, ReplayDecision
from .engine import advance, scale, set_asleep
from .metric_pages import (
    ASLEEP_POD_S,
    AT_GATE,
    EXISTING,
    LIVE_POD_S,
    READY_NOW,
    RUNNING,
    SLEEPING,
    WAITING,
    WANTED,
    look,
)
from .servers import ServerProfile

AFTERWARDS_S = 3600.0
WARM_UP_S = 300.0
FLAP_S = 300.0


class Order(NamedTuple):
    """At second `at` so many replicas were ordered in place of `before`."""

    at: float
    before: int
    after: int


class SleepCourse(NamedTuple):
    """The sleep of engines in sleep mode.

    price: that a replica costs asleep, as a part of its price ready. pod_s: seconds of pods asleep until the last
           arrival. wakes: how many naps ended with a wake. naps: shape (naps, 2), seconds: since when no engine
           was awake, and until one was or none was there.
    """

    price: float
    pod_s: float
    wakes: int
    naps: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """The course of a replay.

    times:  shape (requests, 3): arrival, first token, last token; NaN where it did not come to that.
    pod_s:  seconds of pods until the last arrival.
    first:  replicas at the beginning.
    orders: the changes.
    chart:  shape (moments, 6): second, wanted, existing, ready, in hand (waiting and running), held by the gateway.
    cold:   how many times a request came upon no ready replica after there had been one, or none at the start.
    slept:  the sleep of its engines; None without sleep mode.
    """

    load: Trace
    profile: ServerProfile
    baseline: str
    times: Floats
    pod_s: float
    first: int
    orders: tuple[Order, ...]
    chart: Floats
    cold: int
    slept: SleepCourse | None = None


class Score(NamedTuple):
    """slo_met_ratio: of the requests after the first five minutes, 0..1; NaN if there are none. Times in seconds, of
    those who had a first token. cold_starts: times a request found no replica, or none that had started.

    gpu_hours: a replica asleep counts as its price. asleep_gpu_hours: of those, at the full price.
    """

    slo_met_ratio: float
    gpu_hours: float
    ttft_mean_s: float
    ttft_p99_s: float
    changes: int
    flaps_per_day: float
    cold_starts: int
    asleep_gpu_hours: float = 0.0


class _Naps:
    """Collects the course of the sleep of engines. price: of one asleep; NaN: there is no sleep mode."""

    def __init__(self) -> None:
        self.price, self.pod_s, self._wakes = nan, 0.0, 0
        self._naps: list[tuple[float, float]] = []
        self._since = nan

    def look(self, pages: Floats, now: float) -> None:
        asleep = bool(pages[SLEEPING] > 0.0 and pages[READY_NOW] == 0.0)
        if asleep and isnan(self._since):
            self._since = now
        elif not asleep and not isnan(self._since):
            self._naps.append((self._since, now))
            self._since = nan
            self._wakes += int(pages[READY_NOW] > 0.0)

    def course(self, now: float) -> SleepCourse | None:
        naps = [*self._naps, *([] if isnan(self._since) else [(self._since, now)])]
        if isnan(self.price):
            return None
        return SleepCourse(self.price, self.pod_s, self._wakes, np.array(naps, dtype=float).reshape(-1, 2))


def run(
    load: Trace,
    profile: ServerProfile,
    baseline: Baseline,
    *,
    seed: int = 0,
    slots: int = 1024,
    moments: int = 600,
    progress: Callable[[float], None] = lambda _done: None,
    record: Record | None = None,
) -> Replayed:
    """slots: pods alive at one moment, at most. moments: rows of the chart, about. progress: gets a share, 0..1.

    record: gets the replicas at the beginning, and each change.
    """
    server = profile.server
    world = ReplayWorld.of(load.at, load.prompt, load.output, slots, server.batch)
    starts = profile.starts(seed)
    scale(world, baseline.first, np.zeros(1))
    advance(world, server, 0.0)
    end, last = load.span_s, load.span_s + AFTERWARDS_S
    now, wanted, pod_s, cold, was_held = 0.0, baseline.first, 0.0, 0, False
    sleeper, naps = baseline if isinstance(baseline, Sleeps) else None, _Naps()
    orders: list[Order] = []
    chart: list[tuple[float, ...]] = []
    chart_every = max(baseline.every_s, end / moments)
    while now < last:
        view = observe(world, profile, now)
        pages = view.pages
        held = pages[AT_GATE] > 0.0 and pages[READY_NOW] == 0.0
        cold += int(held and not was_held and pages[SLEEPING] == 0.0)
        naps.look(pages, now)
        was_held = held
        if now >= len(chart) * chart_every:
            in_hand = pages[WAITING] + pages[RUNNING]
            progress(min(1.0, now / end) if end else 1.0)
            chart.append((now, pages[WANTED], pages[EXISTING], pages[READY_NOW], in_hand, pages[AT_GATE]))
        order = baseline.step(view)
        if record is not None and not now:
            record(_decision(baseline, view, wanted))
        if order is not None and order != wanted:
            scale(world, order, starts)
            if record is not None:
                record(_decision(baseline, view, order))
            orders.append(Order(now, wanted, order))
            wanted = order
        sleep = None if sleeper is None else sleeper.engine_sleep()
        if sleep is not None:
            naps.price = sleep.price
            set_asleep(world, sleep.asleep, sleep.wake_s, sleep.look_s)
        if now >= end and world.counts[FINISHED] == len(load.at):
            break
        then = min(now + baseline.every_s, last)
        if now < end <= then:
            advance(world, server, end)
            pages = look(world, server)
            pod_s, naps.pod_s = float(world.numbers[POD_S] + pages[LIVE_POD_S]), float(pages[ASLEEP_POD_S])
        advance(world, server, then)
        now = then
    return Replayed(
        load,
        profile,
        baseline.name,
        world.request_times,
        pod_s,
        baseline.first,
        tuple(orders),
        np.array(chart),
        cold,
        naps.course(now),
    )


def _decision(baseline: Baseline, view: Observation, wanted: int) -> ReplayDecision:
    pages, explanation = view.pages, baseline.explain() if isinstance(baseline, Explains) else Explanation()
    requests = int(pages[WAITING] + pages[RUNNING] + pages[AT_GATE])
    return ReplayDecision(view.now, wanted, view.ready, explanation.reason, requests, explanation.work)


def slo_met(course: Replayed) -> Mask:
    """Which requests met the SLO, those of the first minutes too; shape (requests,)."""
    load, times = course.load, course.times
    first, rest = times[:, FIRST] - times[:, AT], times[:, DONE] - times[:, FIRST]
    return course.profile.slo.kept(first, rest, load.prompt, load.output)


def judged(load: Trace) -> Mask:
    """Which requests count, shape (requests,): not those of the first minutes."""
    return load.at >= min(WARM_UP_S, load.span_s / 2)


def score(course: Replayed) -> Score:
    load = course.load
    counted = judged(load)
    first = (course.times[:, FIRST] - course.times[:, AT])[counted]
    kept = slo_met(course)[counted]
    answered = first[~np.isnan(first)]
    days = max(load.span_s, 1.0) / 86_400
    slept = course.slept
    asleep_s, free = (0.0, 0.0) if slept is None else (slept.pod_s, 1.0 - slept.price)
    return Score(
        slo_met_ratio=float(kept.mean()) if len(kept) else float("nan"),
        gpu_hours=(course.pod_s - free * asleep_s) * course.profile.gpus / 3600,
        ttft_mean_s=float(answered.mean()) if len(answered) else float("nan"),
        ttft_p99_s=float(np.quantile(answered, 0.99)) if len(answered) else float("nan"),
        changes=len(course.orders),
        flaps_per_day=flaps(course.orders) / days,
        cold_starts=course.cold,
        asleep_gpu_hours=asleep_s * course.profile.gpus / 3600,
    )


def flaps(orders: Sequence[Order]) -> int:
    """Changes that go back on the one before within FLAP_S."""
    return sum(
        (one.after > one.before) != (two.after > two.before) and two.at - one.at <= FLAP_S
        for one, two in pairwise(orders)
    )


def shown(value: float, digits: int, unit: str = "") -> str:
    """For a person; what is not known is a dash."""
    return "\N{EN DASH}" if isnan(value) else f"{value:,.{digits}f}{unit}"
