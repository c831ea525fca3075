"""Provides the time. Pure packages get `now` as an argument instead.

`WallClock` is POSIX time that never runs backwards: it follows the system's clock forward at once, as after a suspended
machine or a step of NTP, and runs at half speed after a step back. `FastClock` runs a demo's day in a minute. Timeouts
on real sockets stay in seconds of the wall clock.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from typing import Protocol

SLOW = 0.5  # speed of a clock that is ahead of the system's


class Clock(Protocol):
    def now(self) -> float:
        """POSIX seconds."""

    async def sleep(self, seconds: float) -> None:
        """Waits until `now()` has advanced by `seconds`."""


class FastClock:
    """Runs up to `speed` times as fast as the wall, from `begin` on, by default the present.

    Time advances by STEP_S at most once per turn of the event loop, and only while a task sleeps. A busy machine
    therefore takes longer for a simulated day, and everything still happens at the same simulated moment: at speed 60
    a pause of 1 s by the kernel's scheduler costs one step and not a minute.
    """

    STEP_S = 0.25  # 12.5 ms of the wall at the demo's 20 times its speed

    def __init__(self, speed: float, begin: float | None = None) -> None:
        self._speed = speed
        self._now = time.time() if begin is None else begin
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []  # heap: (until, number, future)
        self._number = 0
        self._advances = False

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        self._number += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._number, woken))
        if not self._advances:
            self._advances = True
            self._schedule()
        await woken

    def _schedule(self) -> None:
        asyncio.get_running_loop().call_later(self.STEP_S / self._speed, self._advance)

    def _advance(self) -> None:
        self._now += self.STEP_S
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
