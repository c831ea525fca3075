"""Probers by their regularity: which counters of requests rise like clocks, where no path tells. Pure.

A prober asks every so many seconds, for ever; so its counter stays beside a straight line. Sampled at times t, the
count of one clock is a whole number N with N <= line(t) < N + 1: there is a line of which all samples keep within a
band one request high. Of two clocks the band is two high, of three three, whatever their periods. So a stream is taken
for probes while the samples around its last rises fit a band of 1 or 2 (after 30 rises) or 3 (after 45: within 1.5 of
the line), at a mean distance of at most the workload's `probe_period`.

Who comes by chance leaves the band: the count of a Poisson stream strays like a random walk, by the root of 30, 5.5
requests. Of 45,000 such windows (mean distances 5, 10 and 60 s, scraped every 5 s) none fitted a band of 2 over 30
rises (7 fitted 2.5, 73 fitted 3), and none fitted 3 over 45. A stream is asked again at each rise: of 600 streams of
400 requests none was ever taken for probes. One that is, once in a great while, leaves the band a few rises later.

A steady client looks the same, and must not be put to sleep for being steady. So: tokens, a request in flight or a busy
GPU anywhere on the workload's pages is work, and the 30 rises begin anew after it; a rise that does not fit is a
request, at once; and what wakes a workload within two periods after it fell asleep was a client, whatever it looked
like: from then on that workload's regular requests count, and that is remembered.

Worked example: a load balancer asks every 10 s and nothing else happens. For 5 minutes each question is activity like
any other; then it is known, and the keep-warm time runs. Somebody's request comes between: two rises where one was due,
so it is activity, at that scrape; the next probe is none. One request each 7 minutes is further apart than
`probe_period` and always counts.
"""

from __future__ import annotations

import numpy as np

from exporter.model import Floats

from .slots import Mask, Rows
from .state import Array, named

RISES = 30  # before a stream of one or two clocks is known, and …
MANY_RISES = 45  # … of three
KEPT = 48  # rises that are kept: the band is asked of these, so nobody has to be as regular as quartz for days
CLOCKS = 3
SLACK = 0.1  # of a request: clocks and scrapes tremble by some tens of milliseconds
SHORTEST_S = 1.0  # kubelet's shortest period. Who asks more often is working.
SLOPES = 65  # tried at once, twice: the second time to 1/64 of the distance of the first


class Probes:
    """What is known of the regularity of each slot's requests, and which workloads are not to be judged by it."""

    def __init__(self, periods: Floats, slots: int) -> None:
        """periods: `probe_period` of each workload in seconds, 0 is: never. slots: how many there are."""
        rows = len(periods)
        self._periods = periods
        self._rises = np.full((slots, KEPT, 3), np.nan)  # last sample before it, first with it, the count then
        self._kept = np.zeros(slots, dtype=np.int64)
        self._clocks = np.zeros(slots, dtype=np.int64)  # 0: not known to be probes
        self._heard_at = np.full(slots, np.nan)
        self._real_at = np.full(rows, np.nan)  # POSIX seconds when tokens, requests in flight or a GPU were seen
        self.period = np.full(rows, np.nan)  # seconds, of the slowest stream that is now taken for probes
        self.asleep_at = np.full(rows, np.nan)  # POSIX seconds since when nothing of it is there
        self.regular_counts = np.zeros(rows, dtype=np.bool_)  # it was put to sleep for being steady, once

    def columns(self) -> dict[str, Array]:
        """What survives a restart, as `scaler.state` wants it; live. Which streams are regular is seen anew."""
        learned = {"regular_counts": self.regular_counts, "period": self.period, "asleep_at": self.asleep_at}
        return named("probes", learned)

    def adopt(self, other: Probes, rows: Rows, others: Rows) -> None:
        """Take over another's slots, because the same targets go on being asked: own `rows` from its `others`."""
        self._rises, self._kept, self._clocks = other._rises, other._kept, other._clocks
        self._heard_at = other._heard_at
        self._real_at[rows] = other._real_at[others]

    def grow(self, slots: int) -> None:
        more = slots - len(self._kept)
        self._rises = np.concatenate([self._rises, np.full((more, KEPT, 3), np.nan)])
        self._kept = np.concatenate([self._kept, np.zeros(more, dtype=np.int64)])
        self._clocks = np.concatenate([self._clocks, np.zeros(more, dtype=np.int64)])
        self._heard_at = np.concatenate([self._heard_at, np.full(more, np.nan)])

    def clear(self, slot: int) -> None:
        self._kept[slot] = self._clocks[slot] = 0
        self._heard_at[slot] = np.nan

    def worked(self, row: int, at: float) -> None:
        """Tokens, a request in flight, or a busy GPU: whoever asked then was no prober."""
        self._real_at[row] = at
        if np.isnan(self.asleep_at[row]):  # else it may be the client that has to be waited for: see `answered`
            self.period[row] = np.nan

    def count(self, row: int, slot: int, rise: float, at: float) -> bool:
        """A page came in, and its counters of requests rose by so many (0: they did not). Is that activity?"""
        before, self._heard_at[slot] = self._heard_at[slot], at
        if not rise > 0.0:
            return False
        if not self._periods[row] > 0.0 or self.regular_counts[row]:
            return True
        if self._kept[slot] and self._rises[slot, 0, 1] <= self._real_at[row]:
            self._restart(slot)
        self._append(slot, before, at, rise)
        return self._is_activity(row, slot, rise)

    def answered(self, rows: Rows, asleep: Mask, there: Mask, wanted: Mask, now: float, slack_s: float) -> None:
        """What became of these workloads; every argument has shape (len(rows),).

        asleep: they are to be at zero. there: some replica still is. wanted: they were woken this moment by requests.
        slack_s: what a request may take to be seen, beside two periods.
        """
        known = ~np.isnan(self.period[rows])
        falling = asleep & known & (there | np.isnan(self.asleep_at[rows]))
        self.asleep_at[rows[falling]] = now
        since = now - self.asleep_at[rows]
        wrong = wanted & (since <= 2.0 * self.period[rows] + slack_s)
        self.regular_counts[rows[wrong]] = True
        self.period[rows[wrong]] = np.nan
        self.asleep_at[rows[~asleep]] = np.nan

    def notes(self, row: int) -> tuple[str, ...]:
        """What a person would ask next of this workload."""
        if self.regular_counts[row]:
            return ("its regular requests count: taken for probes once, they woke it right after it fell asleep",)
        if np.isnan(self.period[row]):
            return ()
        every = f"one each {self.period[row]:.0f} s at the rarest"
        return (f"requests as regular as a clock, {every}, are taken for probes and keep nothing awake",)

    def _append(self, slot: int, before: float, at: float, rise: float) -> None:
        kept = self._kept[slot]
        total = self._rises[slot, kept - 1, 2] if kept else 0.0
        if kept == KEPT:
            self._rises[slot, :-1] = self._rises[slot, 1:]
            kept -= 1
        self._rises[slot, kept] = before, at, total + rise
        self._kept[slot] = kept + 1

    def _restart(self, slot: int) -> None:
        self._kept[slot] = self._clocks[slot] = 0

    def _is_activity(self, row: int, slot: int, rise: float) -> bool:
        kept = int(self._kept[slot])
        if kept < RISES:
            return True
        rises = self._rises[slot, :kept]
        span, requests = rises[-1, 1] - rises[0, 1], rises[-1, 2] - rises[0, 2]
        period = span / requests
        if not SHORTEST_S <= period <= self._periods[row]:
            self._clocks[slot] = 0
            return True
        clocks = int(self._clocks[slot])
        if clocks == 0:
            most = CLOCKS if kept >= MANY_RISES else CLOCKS - 1
            clocks = max(1, int(np.ceil(band(rises) - SLACK)))
            if clocks > most:
                return True
            self._clocks[slot] = clocks
        elif band(rises) > clocks + SLACK:
            # Of what rose, some was due. Without the rest the clocks go on; if they do not, they were none.
            for extra in range(1, int(rise) + 1):
                rises[-1, 2] -= 1.0
                if band(rises) <= clocks + SLACK or extra == rise:
                    break
            if band(rises) > clocks + SLACK:
                self._restart(slot)
            elif extra == rise:
                self._kept[slot] -= 1  # none of it was a probe
            return True
        slowest = clocks * period
        self.period[row] = slowest if np.isnan(self.period[row]) else max(self.period[row], slowest)
        return False


def band(rises: Floats) -> float:
    """Height of the lowest band around a straight line that holds all samples, in requests.

    rises: shape (rises, 3): the last sample before each (POSIX seconds), the first with it, and the count then. Before
    the first, nothing is known. It is an upper bound, by about a hundredth: slopes are tried, not solved for.
    """
    # A sample before a rise has the count of the rise before; of the first one that is not kept.
    times = np.concatenate([rises[:, 1], rises[1:, 0]]) - rises[0, 1]
    counts = np.concatenate([rises[:, 2], rises[:-1, 2]])
    known = ~np.isnan(times)
    times, counts = times[known], counts[known]
    mean = (rises[-1, 2] - rises[0, 2]) / (rises[-1, 1] - rises[0, 1])
    low, high, best = 0.8 * mean, 1.2 * mean, np.inf
    for _ in range(2):
        slopes = np.linspace(low, high, SLOPES)
        away = counts - slopes[:, None] * times
        heights = away.max(axis=1) - away.min(axis=1)
        place = int(heights.argmin())
        best = min(best, float(heights[place]))
        step = slopes[1] - slopes[0]
        low, high = slopes[place] - step, slopes[place] + step
    return best
