"""WallClock and FastClock give time and sleep as specified."""

import asyncio
import socket
import time

from exporter.clock import FastClock, WallClock


async def test_wall_clock_returns_posix_time():
    before = time.time()
    now = WallClock().now()
    assert before - 1.0 <= now <= time.time() + 1.0


def test_time_never_goes_back():
    clock = WallClock()
    readings = [clock.now() for _ in range(1000)]
    assert readings == sorted(readings)


async def test_fast_clock_wakes_a_sleeper_when_its_time_has_passed():
    clock = FastClock(speed=1000.0)
    before = clock.now()
    async with asyncio.timeout(60.0):  # of wall time
        await clock.sleep(60.0)
    assert 60.0 <= clock.now() - before <= 60.0 + FastClock.STEP_S


async def test_fast_clock_slows_down_while_the_event_loop_is_busy():
    clock = FastClock(speed=1000.0)
    before = clock.now()
    sleep = asyncio.create_task(clock.sleep(60.0))
    await asyncio.sleep(0.0)
    time.sleep(0.2)  # noqa: ASYNC251 - 200 s of this clock, in one turn of the loop
    await asyncio.sleep(0.0)
    assert clock.now() - before <= 2 * FastClock.STEP_S
    await sleep


async def test_request_and_response_of_one_process_have_the_same_moment_of_a_fast_clock():
    clock, loop = FastClock(speed=1e6), asyncio.get_running_loop()
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)

    async def answer():
        while True:
            await loop.sock_sendall(far, await loop.sock_recv(far, 4))

    background = [asyncio.create_task(answer()), asyncio.create_task(clock.sleep(1e6))]
    took_s = []
    for _ in range(21):
        await clock.sleep(1.0)
        before = clock.now()
        await loop.sock_sendall(near, b"ping")
        await loop.sock_recv(near, 4)
        took_s.append(clock.now() - before)
    for task in background:
        task.cancel()
    await asyncio.wait(background)
    near.close()
    far.close()
    assert sorted(took_s)[10] == 0.0, "a busy machine may delay some"


async def test_held_fast_clock_stands_still():
    clock = FastClock(speed=1e6)
    sleep = asyncio.create_task(clock.sleep(60.0))
    with clock.hold():
        before = clock.now()
        for _ in range(20):
            await asyncio.sleep(0.0)
        assert clock.now() == before
    await sleep
    assert clock.now() - before >= 60.0


async def test_fast_clock_wakes_a_sleeper_at_its_exact_time():
    clock = FastClock(speed=1000.0, begin=1000.0)
    await clock.sleep(0.1)
    assert clock.now() == 1000.1


async def test_fast_clock_wakes_sleepers_in_the_order_of_their_times():
    clock, woken = FastClock(speed=1000.0), []

    async def sleeper(seconds):
        await clock.sleep(seconds)
        woken.append(seconds)

    cancelled = asyncio.create_task(sleeper(2.0))
    sleepers = [asyncio.create_task(sleeper(seconds)) for seconds in (9.0, 3.0, 6.0)]
    await asyncio.sleep(0.0)
    cancelled.cancel()
    await asyncio.gather(*sleepers)
    assert woken == [3.0, 6.0, 9.0]


async def test_past_sleep_does_not_wait():
    async with asyncio.timeout(60.0):
        await WallClock().sleep(-1e9)


class Machine:
    """Simulates the clocks of a machine that a test suspends and sets."""

    def __init__(self):
        self.system, self.monotonic = 1000.0, 50.0
        self.clock = WallClock(lambda: self.system, lambda: self.monotonic)

    def pass_(self, seconds):
        self.system += seconds
        self.monotonic += seconds
        return self.clock.now()


def test_clock_follows_a_suspended_machine():
    machine = Machine()
    assert machine.pass_(5.0) == 1005.0
    machine.system += 3600.0  # the monotonic clock stops during that time
    assert machine.clock.now() == 4605.0
    assert machine.pass_(5.0) == 4610.0


def test_clock_runs_at_half_speed_after_the_system_clock_was_set_back():
    machine = Machine()
    machine.system -= 60.0
    readings = [machine.pass_(10.0) for _ in range(14)]
    assert readings == sorted(readings)
    assert readings[:2] == [1005.0, 1010.0]
    assert readings[11:] == [1060.0, 1070.0, 1080.0]  # 120 s later both are equal again


def test_clock_never_stops_for_a_step_of_any_size():
    machine = Machine()
    machine.system = 0.0
    assert [machine.pass_(2.0) for _ in range(3)] == [1001.0, 1002.0, 1003.0]
