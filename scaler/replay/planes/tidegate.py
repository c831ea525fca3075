"""Tidegate itself: the production signals and the production policy, around the simulated pages.

Not a copy of them: `Signals` and `policy.step` are what the daemon runs. What stands in for intake is `_totals`: the
sums that it would make of these pages.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...policy import Memory, Readings, Signal, Spec, Specs, step
from ...signals import Signals, Smoothing
from ...totals import GpusSeen, Totals
from ..pages import AT_GATE, BUSY_S, EXISTING, KV_USED, READY_NOW, RUNNING, TOKENS_MADE, WAITING, WANTED
from ..plane import Seen

SCRAPE_S = 5.0


class Tidegate:
    """One workload with a gateway, asked every scrape."""

    pushes = True
    target = 1.0
    name = "tidegate"

    def __init__(self, spec: Spec, smoothing: Smoothing, every_s: float = SCRAPE_S) -> None:
        self.every_s = every_s
        self._specs = Specs.stack([replace(spec, gateway=True, pods=True)])
        self._signals = Signals([smoothing], every_s)
        self._memory = Memory.blank(1)
        self._rows, self._whole = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.bool_)
        self._active_at = np.full(1, np.nan)
        self._before = (0.0, 0.0, 0)  # busy seconds, tokens made, arrivals: at the last look
        self._replicas: float = np.nan
        self._active = True

    def hear(self, seen: Seen) -> None:
        totals, now = self._totals(seen), np.float64(seen.now)
        self._signals.observe(self._rows, totals, self._whole, now)
        smoothed = self._signals.smooth(self._rows, now)
        smoothed[np.isnan(totals.latest)] = np.nan
        verdicts, self._memory = step(self._specs, totals.seen._replace(signals=smoothed), self._memory, now)
        self._replicas, self._active = float(verdicts.replicas[0]), bool(verdicts.active[0])

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
