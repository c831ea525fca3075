"""A clock that is wound by hand: what happens once, what happens again and again, and what may be skipped.

Everything of the storyboards happens here, in order of time. Nothing runs by itself, so a week takes as long as its
events do. While nobody would see a difference (`resting`), the beats are let go and only heard now and then.

Worked example: `clock.every(5.0, scrape)` and `clock.run_until(clock.now + 60.0)` scrape twelve times.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import count
from math import ceil, inf

MONDAY = 1772409600.0  # Monday, 2 March 2026, 00:00 UTC, POSIX seconds
BEFORE_S = 60.0  # a rest ends so long before anything happens, and is no shorter
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0


@dataclass(eq=False)
class Beat:
    """Something that happens every `period_s` seconds until it is stopped."""

    period_s: float
    call: object
    next_at: float
    stopped: bool = False

    def stop(self):
        self.stopped = True


@dataclass
class Clock:
    """now: POSIX seconds.

    resting: is there nothing to be seen until the next thing that happens once? Then the beats rest too.
    rested:  told when they begin again: whoever reads, reads first.
    foreseen: when somebody means to act without being asked, POSIX seconds: a start in advance.
    rest_s:  how long they rest at a time.
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
        """Once, then; at once if that is past."""
        heapq.heappush(self._once, (max(when, self.now), next(self._number), call))

    def after(self, seconds, call):
        self.at(self.now + seconds, call)

    def every(self, period_s, call, first_s=0.0):
        """Again and again, `first_s` from now for the first time."""
        beat = Beat(period_s, call, self.now + first_s)
        heapq.heappush(self._beats, (beat.next_at, next(self._number), beat))
        return beat

    def run_until(self, end):
        """Everything until then, and what happens at that very moment too."""
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
        """Beats that would come before keep their phase and come later."""
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
