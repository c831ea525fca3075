"""An event loop with simulated time: whenever nothing is ready, time jumps to the next timer.

Tasks, timeouts and `asyncio.sleep` run unchanged, so a week takes as long as its work. Nothing may wait for a real
socket or thread meanwhile. Worked example: `run(asyncio.sleep(86400.0))` returns at once.
"""

import asyncio
import selectors


class _Selector(selectors.SelectSelector):
    """Advances the time of its loop instead of waiting."""

    advance = staticmethod(lambda seconds: None)

    def select(self, timeout=None):
        if timeout is None:  # no timer: a thread or a socket is awaited
            return super().select(None)
        if not (ready := super().select(0)):
            self.advance(timeout)
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Starts at second 0: near 0 a float has digits enough for the loop's resolution of a nanosecond."""

    def __init__(self):
        selector = _Selector()
        super().__init__(selector)
        self._simulated_s = 0.0
        selector.advance = self._advance

    def time(self):
        return self._simulated_s

    def _advance(self, seconds):
        self._simulated_s += seconds


class SimulatedClock:
    """Implements `exporter.clock.Clock` in a SimulatedLoop. begin: POSIX seconds of its second 0."""

    def __init__(self, begin):
        self._begin = begin

    def now(self):
        return self._begin + asyncio.get_running_loop().time()

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)


def run(coroutine):
    """Runs a coroutine in simulated time; returns its result."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(coroutine)
