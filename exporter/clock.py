"""Provides the time. Pure packages get `now` as an argument instead.

`WallClock` is POSIX time that never runs backwards: it follows the system's clock forward at once, as after a suspended
machine or a step of NTP, and runs at half speed after a step back. `FastClock` runs a demo's day in a minute. Timeouts
on real sockets stay in seconds of the wall clock.
"""

from __future__ import annotations

import asyncio
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
    """Runs `speed` times as fast as the system's clock, from the present on."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._start = time.time()
        self._origin = time.monotonic()

    def now(self) -> float:
        return self._start + (time.monotonic() - self._origin) * self._speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds) / self._speed)


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
