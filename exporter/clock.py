"""Time, handed to those who wait. The pure rooms get `now` as an argument and never see this.

`WallClock` is POSIX time that never jumps: it is read once from the system and then advances with the monotonic
clock, so a stepped system clock cannot make every reading stale at once. `FastClock` runs a demo's day in a minute.
Timeouts on real sockets stay in seconds of the wall: a network does not get faster because the demo does.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """POSIX seconds."""

    async def sleep(self, seconds: float) -> None:
        """Wait until `now()` has advanced by `seconds`."""


class FastClock:
    """A clock that runs `speed` times as fast as the wall, from the present on."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._start = time.time()
        self._origin = time.monotonic()

    def now(self) -> float:
        return self._start + (time.monotonic() - self._origin) * self._speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds) / self._speed)


class WallClock(FastClock):
    def __init__(self) -> None:
        super().__init__(speed=1.0)
