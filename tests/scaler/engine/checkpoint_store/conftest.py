"""States to write, a clock that the test moves, and the captured log."""

import asyncio

import numpy as np
import pytest
import structlog

from exporter.model import WorkloadKey
from scaler.columns import State

CHAT = WorkloadKey("ai", "chat")


@pytest.fixture
def state():
    """`state(3)`: one workload with 3 replicas, saved at second 1000."""

    def make(replicas, at=1000.0):
        return State(at, (CHAT,), {"memory.replicas": np.array([float(replicas)])})

    return make


@pytest.fixture
def replicas():
    """`replicas(states)`: the replicas in each state that was read."""

    def read(states):
        return [state.columns["memory.replicas"].tolist() for state in states]

    return read


class Clock:
    """A clock that advances on sleep. After `naps` sleeps, the next sleep never returns and sets `over`."""

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
    """The captured log events in order, each with its fields."""
    with structlog.testing.capture_logs() as lines:
        yield lines
