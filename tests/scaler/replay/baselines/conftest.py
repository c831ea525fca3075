"""Builds observations of a Deployment by hand, so that a baseline can be stepped without a simulation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from scaler.replay.baseline import Observation
from scaler.replay.columns import ALIVE, PHASE, READY, ReplayWorld
from scaler.replay.metric_pages import AT_GATE, EXISTING, KV_USED, READY_NOW, RUNNING, WAITING, WANTED
from scaler.replay.servers import A


@pytest.fixture
def see() -> Callable[..., Observation]:
    """see(now, wanted=, ready=, waiting=, running=, held=, kv=): an observation of so many pods with such metrics."""

    def view(now, *, wanted=1, ready=None, waiting=0.0, running=0.0, held=0.0, kv=0.0):
        ready = wanted if ready is None else ready
        pages = np.zeros(10)
        pages[[WANTED, EXISTING, READY_NOW]] = wanted, wanted, ready
        pages[[WAITING, RUNNING, AT_GATE, KV_USED]] = waiting, running, held, kv if ready else np.nan
        world = ReplayWorld.of(np.zeros(1), np.ones(1, dtype=np.int64), np.ones(1, dtype=np.int64), 64, 4)
        world.counts[ALIVE] = wanted
        world.order[:wanted] = np.arange(wanted)
        world.replica_counts[:ready, PHASE] = READY
        return Observation(now, pages, 0, 0, 0, world, A.server)

    return view
