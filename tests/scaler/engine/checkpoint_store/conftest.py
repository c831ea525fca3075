"""States to write, a clock that a test moves, and what was logged."""

import asyncio

import numpy as np
import pytest
import structlog

from exporter.model import WorkloadKey
from scaler.columns import State

CHAT = WorkloadKey("ai", "chat")


@pytest.fixture
def state():
    """`state(3)`: one workload that has 3 replicas, remembered at second 1000."""

    def make(replicas, at=1000.0):
        return State(at, (CHAT,), {"memory.replicas": np.array([float(replicas)])})

    return make


@pytest.fixture
def replicas():
    """What states that were read say."""

    def read(states):
        return [state.columns["memory.replicas"].tolist() for state in states]

    return read


class Clock:
    """Time passes when somebody sleeps; after `naps` of them they are not woken again."""

    def __init__(self, naps=0):
        self.time, self._naps, self.over = 1000.0, naps, asyncio.Event()

    def now(self):
        return self.time

    async def sleep(self, seconds):
        if self._naps == 0:
            self.over.set()
            await asyncio.Event().wait()
        self._naps -= 1
        self.time += seconds


@pytest.fixture
def clock():
    return Clock


@pytest.fixture
def logged():
    """Events in their order, each with its fields."""
    with structlog.testing.capture_logs() as lines:
        yield lines
