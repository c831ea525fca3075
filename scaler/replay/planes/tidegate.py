"""Tidegate itself: the production signals and the production policy, around the simulated pages.

Not a copy of them: `Signals` and `policy.step` are what the daemon runs. What stands in for intake is `_totals`: the
sums that it would make of these pages.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...controllers import hpa, keda
from ...controllers.behavior import DEFAULT_UP, Behavior, Policy, PolicyKind, Rules
from ...policy import Memory, Readings, Signal, Spec, Specs, step
from ...signals import Signals, Smoothing
from ...totals import GpusSeen, Totals
from ..pages import AT_GATE, BUSY_S, EXISTING, KV_USED, READY_NOW, RUNNING, TOKENS_MADE, WAITING, WANTED
from ..plane import Plane, Seen
from .chain import KedaAndHpa

SCRAPE_S = 5.0


# What the examples ship: no tolerance, because the metric is a whole number of replicas; up at once; down after 30 s
# and by at most half of them in 30 s, as a backstop against one bad answer and not as a second smoothing.
BEHAVIOR = Behavior(
    up=Rules(DEFAULT_UP.policies, window_s=0.0, tolerance=0.0),
    down=Rules((Policy(PolicyKind.PERCENT, 50, 30.0),), window_s=30.0, tolerance=0.0),
)
COOLDOWN_S = 30.0  # keep-warm is Tidegate's


class Wish(NamedTuple):
    """What a user would configure. Times in seconds; up, down: half-lives."""

    work: float
    kv_cache: float
    keep_warm_s: float
    up_s: float
    down_s: float
    band: float
    least: int
    most: int


def plane(name: str, wish: Wish) -> Plane:
    """Tidegate as an external-push scaler, between KEDA and the HPA."""
    targets = ((Signal.WORK, wish.work), (Signal.KV_CACHE, wish.kv_cache))
    spec = Spec(wish.least, wish.most, targets, keep_warm=wish.keep_warm_s, band=wish.band, settle=SCRAPE_S)
    scaler = Tidegate(name, spec, Smoothing(wish.up_s, wish.down_s))
    object_ = keda.Spec(min_replicas=wish.least, max_replicas=wish.most, cooldown_s=COOLDOWN_S)
    autoscaler = hpa.Spec(max_replicas=wish.most, min_replicas=max(1, wish.least), behavior=BEHAVIOR)
    return KedaAndHpa(scaler, object_, autoscaler, first=max(1, wish.least))


class Tidegate:
    """One workload with a gateway, asked every scrape."""

    pushes = True
    target = 1.0

    def __init__(self, name: str, spec: Spec, smoothing: Smoothing, every_s: float = SCRAPE_S) -> None:
        self.name, self.every_s = name, every_s
        self._specs = Specs.stack([replace(spec, gateway=True, pods=True)])
        self._signals = Signals([smoothing], every_s)
        self._memory = Memory.blank(1)
        self._rows, self._whole = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.bool_)
        self._active_at = np.full(1, np.nan)
        self._before = (0.0, 0.0, 0)  # busy seconds, tokens made, arrivals: at the last look
        self._replicas: float = np.nan
        self._active = True

    def hear(self, seen: Seen) -> None:
        if self._sleeps_on(seen):
            return
        totals, now = self._totals(seen), np.float64(seen.now)
        self._signals.observe(self._rows, totals, self._whole, now)
        smoothed = self._signals.smooth(self._rows, now)
        smoothed[np.isnan(totals.latest)] = np.nan
        verdicts, self._memory = step(self._specs, totals.seen._replace(signals=smoothed), self._memory, now)
        self._replicas, self._active = float(verdicts.replicas[0]), bool(verdicts.active[0])

    def _sleeps_on(self, seen: Seen) -> bool:
        """Asleep, and nothing is there and nothing came: every further look would answer the same."""
        return not self._active and seen.arrived == self._before[2] and not seen.pages[EXISTING]

    def value(self) -> float | None:
        return None if np.isnan(self._replicas) else self._replicas

    def active(self) -> bool:
        return self._active

    def _totals(self, seen: Seen) -> Totals:
        pages, one = seen.pages, np.ones(1)
        busy, made, arrived = self._before
        self._before = (pages[BUSY_S], pages[TOKENS_MADE], seen.arrived)
        if pages[TOKENS_MADE] != made or seen.arrived != arrived:
            self._active_at = one * seen.now
        ready = pages[READY_NOW]
        waiting, running, held = pages[WAITING], pages[RUNNING], pages[AT_GATE]
        # Of drained pods the seconds are gone with them: what is left over is no activity.
        share = max(0.0, min(1.0, (pages[BUSY_S] - busy) / (self.every_s * ready))) if ready else np.nan
        latest = np.full((1, len(Signal)), np.nan)
        latest[0, Signal.WORK] = waiting + running + held
        latest[0, Signal.KV_CACHE] = pages[KV_USED]
        latest[0, Signal.GPU_ENGINE] = share
        seen_now = Readings.unknown(1)._replace(
            waiting=one * waiting,
            running=one * running,
            held=one * held,
            busiest_gpu=one * share,
            active_at=self._active_at,
            pods_listed=one * ready,
            pods_fresh=one * ready,
            gateway_fresh=self._whole,
            waker_fresh=self._whole,
            wanted=one * pages[WANTED],
            ready=one * ready,
            existing=one * pages[EXISTING],
            measured_at=one * seen.now,
        )
        nothing = np.full(1, np.nan)
        return Totals(
            seen_now, nothing, GpusSeen(*(nothing,) * 7), one * (waiting + running), latest, one * seen.finished
        )
