"""Clocks that a test advances, and the turns of the event loop that it awaits."""

import asyncio

PATIENCE_S = 60.0  # never reached: only shows which await hung


class Turn:
    """Wakes every waiter after a change, so that it checks its condition again."""

    def __init__(self):
        self._event = asyncio.Event()

    def changed(self):
        self._event.set()
        self._event = asyncio.Event()

    async def until(self, condition):
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self._event.wait()


class ManualClock:
    """Implements `exporter.clock.Clock`; only the test advances the time.

    time: POSIX seconds. slept: the seconds of each sleep. turn: changes as tasks fall asleep and wake.
    """

    def __init__(self, turn=None, *, time=1000.0):
        self.time, self.slept = time, []
        self._sleepers = []  # (time to wake, future)
        self._turn = Turn() if turn is None else turn

    def now(self):
        return self.time

    async def sleep(self, seconds):
        sleeper = (self.time + max(0.0, seconds), asyncio.get_running_loop().create_future())
        self.slept.append(seconds)
        self._sleepers.append(sleeper)
        self._turn.changed()
        try:
            await sleeper[1]
        finally:
            self._sleepers.remove(sleeper)
            self._turn.changed()

    @property
    def due(self):
        """When the tasks that sleep will wake, in order."""
        return sorted(when for when, _ in self._sleepers)

    def advance(self, seconds):
        """Advances the time and wakes every sleeper that is due."""
        self.time += seconds
        for when, sleeper in self._sleepers:
            if when <= self.time + 1e-9 and not sleeper.done():
                sleeper.set_result(None)

    async def asleep(self, count=1):
        """Waits until exactly `count` tasks sleep and none of them was woken. Returns the seconds of the last sleep."""
        await self._turn.until(
            lambda: len(self._sleepers) == count and not any(sleeper.done() for _, sleeper in self._sleepers)
        )
        return self.slept[-1] if self.slept else None

    async def nap(self):
        """Waits until one task sleeps and advances the time past it. Returns the seconds."""
        seconds = await self.asleep()
        self.advance(seconds)
        return seconds

    async def rush(self, condition):
        """Advances the time past every sleep until `condition()`."""

        def asleep():
            return any(not sleeper.done() for _, sleeper in self._sleepers)

        while not condition():
            await self._turn.until(lambda: condition() or asleep())
            if asleep():
                self.advance(self.due[-1] - self.time)


class SleeplessClock(ManualClock):
    """A clock on which no code may sleep."""

    async def sleep(self, seconds):
        raise AssertionError("no code sleeps here")
