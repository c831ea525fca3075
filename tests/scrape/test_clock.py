"""Time that is handed to those who wait."""

import asyncio
import time

from exporter.clock import FastClock, WallClock


async def test_the_wall_clock_is_posix_time():
    before = time.time()
    now = WallClock().now()
    assert before - 1.0 <= now <= time.time() + 1.0


async def test_time_never_goes_back():
    for clock in (WallClock(), FastClock(speed=1000.0)):
        readings = [clock.now() for _ in range(1000)]
        assert readings == sorted(readings)


async def test_who_slept_finds_that_the_time_has_passed():
    clock = FastClock(speed=1000.0)
    before = clock.now()
    async with asyncio.timeout(20.0):  # of the wall; a minute of this clock is 60 ms
        await clock.sleep(60.0)
    # The event loop may wake early by the resolution of its clock, here a thousand times as much.
    assert clock.now() - before >= 60.0 - 1000.0 * time.get_clock_info("monotonic").resolution - 1e-3


async def test_a_sleep_that_is_over_already_does_not_wait():
    async with asyncio.timeout(20.0):
        await WallClock().sleep(-1e9)
