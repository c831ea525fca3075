"""Builds observations of a Deployment by hand, so that a baseline can be stepped without a simulation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from scaler.replay.baseline import Observation
from scaler.replay.columns import ALIVE, COUNTED, NOW, PHASE, READY, REQUEST_S, ReplayWorld
from scaler.replay.metric_pages import AT_GATE, EXISTING, KV_USED, READY_NOW, RUNNING, WAITING, WANTED
from scaler.replay.servers import A


@pytest.fixture
def see() -> Callable[..., Observation]:
    """see(now, wanted=, ready=, waiting=, running=, held=, kv=): an observation of so many pods with such metrics.

    The requests have been there since the call before.
    """
    request_s, before = 0.0, None

    def view(now, *, wanted=1, ready=None, waiting=0.0, running=0.0, held=0.0, kv=0.0):
        nonlocal request_s, before
        ready = wanted if ready is None else ready
        request_s += (waiting + running + held) * (now - before) if before is not None else 0.0
        before = now
        pages = np.zeros(10)
        pages[[WANTED, EXISTING, READY_NOW]] = wanted, wanted, ready
        pages[[WAITING, RUNNING, AT_GATE, KV_USED]] = waiting, running, held, kv if ready else np.nan
        world = ReplayWorld.of(np.zeros(1), np.ones(1, dtype=np.int64), np.ones(1, dtype=np.int64), 64, 4)
        world.counts[ALIVE] = wanted
        world.order[:wanted] = np.arange(wanted)
        world.replica_counts[:ready, PHASE] = READY
        world.replicas[:, COUNTED] = world.numbers[NOW] = now
        world.numbers[REQUEST_S] = request_s
        return Observation(now, pages, 0, 0, 0, world, A.server)

    return view
