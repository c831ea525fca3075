"""A clock that a test moves."""

from dataclasses import dataclass


@dataclass
class ManualClock:
    """time: POSIX seconds. No code may sleep on it."""

    time: float = 1000.0

    def now(self):
        return self.time

    async def sleep(self, seconds):
        raise AssertionError("no code sleeps here")
