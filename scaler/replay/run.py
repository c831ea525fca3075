"""One load, one profile, one control plane: what happened.

The plane looks every `every_s` and its order holds at once. Cost counts from second 0 to the last arrival, for every
plane the same span; the world goes on until all are served, or an hour longer, so that what the last requests waited is
known. Same seed, same answer: start-up times are the only chance here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from .baseline import Baseline, seen
from .columns import FINISHED, POD_S, ReplayWorld
from .engine import advance, scale
from .metric_pages import AT_GATE, EXISTING, LIVE_POD_S, READY_NOW, RUNNING, WAITING, WANTED, look
from .profiles import ServerProfile
from .trace import Trace

AFTERWARDS_S = 3600.0


class Order(NamedTuple):
    """At second `at` so many replicas were ordered in place of `before`."""

    at: float
    before: int
    after: int


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """What happened.

    times:  shape (requests, 3): arrival, first token, last token; NaN where it did not come to that.
    pod_s:  seconds of pods until the last arrival.
    orders: the changes.
    chart:  shape (moments, 6): second, wanted, existing, ready, in hand (waiting and running), held by the gateway.
    cold:   how many times a request came upon no ready replica after there had been one, or none at the start.
    """

    load: Trace
    profile: ServerProfile
    plane: str
    times: Floats
    pod_s: float
    orders: tuple[Order, ...]
    chart: Floats
    cold: int


def run(
    load: Trace,
    profile: ServerProfile,
    plane: Baseline,
    *,
    seed: int = 0,
    slots: int = 1024,
    moments: int = 600,
    told: Callable[[float], None] = lambda _done: None,
) -> Replayed:
    """slots: pods alive at one moment, at the most. moments: rows of the chart, about. told: how much is done, 0..1."""
    server = profile.server
    world = ReplayWorld.of(load.at, load.prompt, load.output, slots, server.batch)
    starts = profile.starts(seed)
    scale(world, plane.first, np.zeros(1))
    advance(world, server, 0.0)
    end, last = load.span_s, load.span_s + AFTERWARDS_S
    now, wanted, pod_s, cold, was_held = 0.0, plane.first, 0.0, 0, False
    orders: list[Order] = []
    chart: list[tuple[float, ...]] = []
    chart_every = max(plane.every_s, end / moments)
    while now < last:
        view = seen(world, profile, now)
        pages = view.pages
        held = pages[AT_GATE] > 0.0 and pages[READY_NOW] == 0.0
        cold += int(held and not was_held)
        was_held = held
        if now >= len(chart) * chart_every:
            in_hand = pages[WAITING] + pages[RUNNING]
            told(min(1.0, now / end) if end else 1.0)
            chart.append((now, pages[WANTED], pages[EXISTING], pages[READY_NOW], in_hand, pages[AT_GATE]))
        order = plane.step(view)
        if order is not None and order != wanted:
            scale(world, order, starts)
            orders.append(Order(now, wanted, order))
            wanted = order
        if now >= end and world.counts[FINISHED] == len(load.at):
            break
        then = min(now + plane.every_s, last)
        if now < end <= then:
            advance(world, server, end)
            pod_s = float(world.numbers[POD_S] + look(world, server)[LIVE_POD_S])
        advance(world, server, then)
        now = then
    return Replayed(load, profile, plane.name, world.request_times, pod_s, tuple(orders), np.array(chart), cold)
