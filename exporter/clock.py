"""Provides the time. Pure packages get `now` as an argument instead.

`WallClock` is POSIX time that never runs backwards: it follows the system's clock forward at once, as after a suspended
machine or a step of NTP, and runs at half speed after a step back. `FastClock` runs a demo's day in a minute. Timeouts
on real sockets stay in seconds of the wall clock.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Protocol

SLOW = 0.5  # speed of a clock that is ahead of the system's


class Clock(Protocol):
    def now(self) -> float:
        """POSIX seconds."""

    async def sleep(self, seconds: float) -> None:
        """Waits until `now()` has advanced by `seconds`."""


class FastClock:
    """Runs `speed` times as fast as the wall if the machine can, from `begin` on, by default the present.

    Time advances to the next sleeper, by STEP_S at most; only while a task sleeps, while nothing holds it, and after
    the event loop had nothing else to do for QUIET_TURNS. So a request and its response within this process have the
    same simulated moment, and a busy machine takes longer for a simulated day, in which everything still happens at
    the same simulated moment.
    """

    STEP_S = 0.25  # 4.2 ms of the wall at the demo's 60 times its speed
    QUIET_S = 0.0002  # a turn of the event loop with nothing to do takes some 30 µs
    QUIET_TURNS = 10  # in a row: a request and its response over a socket take some five turns
    MOST_TURNS = 200  # then time advances anyway: neither an endless calculation nor a call stops it
    HELD_S = 0.001  # of the wall, until it is looked again whether time is still held
    BEHIND_S = 1.0  # of the wall, that steps which took longer are made up for

    def __init__(self, speed: float, begin: float | None = None) -> None:
        self._speed = speed
        self._now = time.time() if begin is None else begin
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []  # heap: (until, number, future)
        self._number = 0
        self._advances = False
        self._holds = 0
        self._due = -inf  # of the next step, by the event loop's time

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        self._number += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._number, woken))
        if not self._advances:
            self._advances = True
            self._due = asyncio.get_running_loop().time()
            self._schedule()
        await woken

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Stops time for what other threads do, such as a call over gRPC; for MOST_TURNS at most."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    def _next(self) -> float:
        return min(self._now + self.STEP_S, max(self._now, self._sleepers[0][0]))

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        step_s = (self._next() - self._now) / self._speed
        self._due = max(self._due + step_s, loop.time() - self.BEHIND_S)
        loop.call_at(self._due, self._await_quiet, 0, 0, -inf)

    def _await_quiet(self, turns: int, quiet: int, before: float) -> None:
        """turns: so far; quiet: of them, the last ones in a row. before: time of the turn before, by the loop."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        quiet = quiet + 1 if now - before < self.QUIET_S else 0
        if turns >= self.MOST_TURNS or (quiet >= self.QUIET_TURNS and not self._holds):
            self._advance()
        elif self._holds:
            loop.call_later(self.HELD_S, self._await_quiet, turns + 1, 0, -inf)
        else:
            loop.call_soon(self._await_quiet, turns + 1, quiet, now)

    def _advance(self) -> None:
        self._now = self._next()
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():  # cancelled
                woken.set_result(None)
        self._advances = bool(self._sleepers)
        if self._advances:
            self._schedule()


class WallClock:
    """The system's time. After a step forward, earlier readings are stale.

    The monotonic clock stands still while a machine is suspended, so it cannot be the only source. After a step back of
    an hour the clock is right again two hours later, and every duration until then is at most twice as long.
    """

    def __init__(
        self, system: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._system, self._monotonic = system, monotonic
        self._now, self._read_at = system(), monotonic()

    def now(self) -> float:
        read_at, system = self._monotonic(), self._system()
        passed = max(0.0, read_at - self._read_at)
        self._now, self._read_at = max(system, self._now + passed * SLOW), read_at
        return self._now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
