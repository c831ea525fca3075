"""Delays and loses the metrics that a scaler reads. What Kubernetes reports, the pods, stays as it is now.

Worked example: with late_s 15 and scrapes each 5 s, the scaler reads at 60 s what the engines and the gateway exposed
at 45 s; with lost 0.05 it reads nothing at one scrape in twenty, and the next one covers both intervals.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from ..baseline import EngineSleep, Explains, Explanation, Observation, Sleeps
from ..columns import ALIVE
from ..metric_pages import EXISTING, READY_NOW, WANTED
from .keda_and_hpa import Scaler

_PODS = [READY_NOW, EXISTING, WANTED]
_SEED = 0  # a setting loses the same readings in each run


class Unreliable:
    """A scaler (`Scaler`) that reads late or not at all. late_s: age of a reading, seconds. lost: a share, 0..1."""

    def __init__(self, scaler: Scaler, late_s: float, lost: float) -> None:
        self.name, self.every_s, self.pushes, self.target = scaler.name, scaler.every_s, scaler.pushes, scaler.target
        self._scaler, self._late_s, self._lost = scaler, late_s, lost
        self._past: deque[Observation] = deque()  # oldest first
        self._random = np.random.default_rng(_SEED)

    def hear(self, observation: Observation) -> None:
        """Until the first reading is old enough, and if this one is lost, the scaler reads nothing."""
        past, due = self._past, observation.now - self._late_s
        past.append(_kept(observation))
        while len(past) > 1 and past[1].now <= due:
            past.popleft()
        if past[0].now <= due and self._random.random() >= self._lost:
            self._scaler.hear(_with_pods_of(observation, past[0]))

    def value(self) -> float | None:
        return self._scaler.value()

    def active(self) -> bool:
        return self._scaler.active()

    def explain(self) -> Explanation:
        return self._scaler.explain() if isinstance(self._scaler, Explains) else Explanation()

    def engine_sleep(self) -> EngineSleep | None:
        return self._scaler.engine_sleep() if isinstance(self._scaler, Sleeps) else None


def _kept(observation: Observation) -> Observation:
    """The same, with copies of the counters, which the simulation goes on to change."""
    world = observation.world
    world = world._replace(counts=world.counts.copy(), histograms=world.histograms.copy())
    return observation._replace(world=world)


def _with_pods_of(now: Observation, before: Observation) -> Observation:
    """The metrics of `before`, with the moment and the pods of `now`."""
    pages, counts = before.pages.copy(), before.world.counts.copy()
    pages[_PODS], counts[ALIVE] = now.pages[_PODS], now.world.counts[ALIVE]
    return before._replace(now=now.now, pages=pages, world=before.world._replace(counts=counts))
