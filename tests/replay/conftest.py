from __future__ import annotations

import numpy as np
import pytest

from scaler.replay.columns import AT, DONE, FIRST, Server, World
from scaler.replay.engine import advance, scale


class Deployment:
    """A simulated Deployment under a load of `(at, prompt, output)`, with words for what the tests ask."""

    def __init__(self, server, load, slots=64):
        at, prompt, output = np.array(load, dtype=float).reshape(-1, 3).T
        self.server = server
        self.world = World.of(at, prompt.astype(np.int64), output.astype(np.int64), slots, server.batch)

    def scale(self, replicas, start_s=0.0):
        scale(self.world, replicas, np.array([start_s], dtype=float))
        return self

    def until(self, at):
        advance(self.world, self.server, float(at))
        return self

    @property
    def first(self):
        return self.world.request_times[:, FIRST]

    @property
    def done(self):
        return self.world.request_times[:, DONE]

    @property
    def at(self):
        return self.world.request_times[:, AT]


@pytest.fixture
def deployment():
    """`deployment(server, [(at, prompt, output), …])`."""
    return Deployment


@pytest.fixture
def server():
    """`server(step=…)`: a replica whose every cost is zero but for what is named."""

    def make(step=0.01, per_sequence=0.0, per_token=0.0, prompt_rate=1000.0, chunk=2048, batch=256, kv=1e9, slots=0):
        return Server(step, per_sequence, per_token, prompt_rate, chunk, batch, kv, slots)

    return make
