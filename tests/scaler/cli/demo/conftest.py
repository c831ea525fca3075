"""A clock that advances by the sleeps of its tasks."""

from __future__ import annotations

import asyncio

import pytest


class StepClock:
    """Time passes when one task sleeps, and only then: a simulated day takes as long as its arithmetic."""

    def __init__(self, start: float) -> None:
        self._now = start
        self._reached: list[tuple[float, asyncio.Event]] = []

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += seconds
        for at, reached in self._reached:
            if self._now >= at:
                reached.set()
        await asyncio.sleep(0)

    async def reaches(self, at: float) -> None:
        """Waits until the clock has reached `at`."""
        reached = asyncio.Event()
        self._reached.append((at, reached))
        await reached.wait()


@pytest.fixture
def step_clock() -> StepClock:
    return StepClock(1_000_000.0)
