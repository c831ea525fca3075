"""A simulated clock for one-time calls and periodic calls, which can skip idle periods.

All events of a scenario run here, in order of time. Nothing runs by itself, so a week takes only as long as its events.
While nothing can change (`resting`), the periodic calls pause and run only every `rest_s`.

Worked example: `clock.every(5.0, scrape)` and `clock.run_until(clock.now + 60.0)` scrape twelve times.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import count
from math import ceil, inf

MONDAY = 1772409600.0  # Monday, 2 March 2026, 00:00 UTC, POSIX seconds
BEFORE_S = 60.0  # a rest ends this long before the next event, and is no shorter
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0


@dataclass(eq=False)
class Beat:
    """A call every `period_s` seconds until it is stopped."""

    period_s: float
    call: object
    next_at: float
    stopped: bool = False

    def stop(self):
        self.stopped = True


@dataclass
class Clock:
    """now: POSIX seconds.

    resting: whether nothing can change until the next one-time call. Then periodic calls pause too. rested: called when
    they resume: readers catch up first. foreseen: POSIX seconds of the next decision that needs no event, such as a
    start in advance. rest_s: length of one rest.
    """

    now: float = MONDAY
    resting: object = staticmethod(lambda: False)
    rested: object = staticmethod(lambda: None)
    foreseen: object = staticmethod(lambda: inf)
    rest_s: float = 300.0
    _once: list = field(default_factory=list)
    _beats: list = field(default_factory=list)
    _number: object = field(default_factory=count)

    def at(self, when, call):
        """Call once at that time, or at once if it is past."""
        heapq.heappush(self._once, (max(when, self.now), next(self._number), call))

    def after(self, seconds, call):
        self.at(self.now + seconds, call)

    def every(self, period_s, call, first_s=0.0):
        """Call periodically, for the first time `first_s` from now."""
        beat = Beat(period_s, call, self.now + first_s)
        heapq.heappush(self._beats, (beat.next_at, next(self._number), beat))
        return beat

    def run_until(self, end):
        """Run all calls until then, including those at exactly that time."""
        while True:
            once_at = self._once[0][0] if self._once else inf
            if self.resting():
                self._rest(min(once_at - BEFORE_S, self.foreseen() - BEFORE_S, end))
            beat_at = self._beats[0][0] if self._beats else inf
            if min(once_at, beat_at) > end:
                self.now = end
                return
            if self._once and once_at <= beat_at:
                self.now, _, call = heapq.heappop(self._once)
                call()
            else:
                self._beat()

    def _beat(self):
        self.now, number, beat = heapq.heappop(self._beats)
        if beat.stopped:
            return
        beat.next_at += beat.period_s
        heapq.heappush(self._beats, (beat.next_at, number, beat))
        beat.call()

    def _rest(self, until):
        """Periodic calls that would fall into the rest keep their phase and come later."""
        target = min(until, self.now + self.rest_s)
        if target < self.now + BEFORE_S:
            return
        for entry in self._beats:
            beat = entry[2]
            beat.next_at += max(0, ceil((target - beat.next_at) / beat.period_s)) * beat.period_s
        self._beats = [(beat.next_at, number, beat) for _, number, beat in self._beats if not beat.stopped]
        heapq.heapify(self._beats)
        self.now = target
        self.rested()
