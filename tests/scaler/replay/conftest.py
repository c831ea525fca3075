from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from scaler.replay import traces
from scaler.replay.columns import AT, DONE, FIRST, ReplayWorld, ServerColumns, Trace
from scaler.replay.engine import advance, scale
from scaler.replay.servers import ReplaySlo, ServerProfile


class Deployment:
    """A simulated Deployment under a load of `(at, prompt, output)`, with short names for the columns of the tests."""

    def __init__(self, server, load, slots=64):
        at, prompt, output = np.array(load, dtype=float).reshape(-1, 3).T
        self.server = server
        self.world = ReplayWorld.of(at, prompt.astype(np.int64), output.astype(np.int64), slots, server.batch)

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
    """`server(step=…)`: a replica with zero cost except for the given ones."""

    def make(step=0.01, per_sequence=0.0, per_token=0.0, prompt_rate=1000.0, chunk=2048, batch=256, kv=1e9, slots=0):
        return ServerColumns(step, per_sequence, per_token, prompt_rate, chunk, batch, float(kv), slots)

    return make


@dataclass
class Scripted:
    """A baseline that scales by the clock: `{second: replicas}`."""

    orders: dict
    first: int = 1
    every_s: float = 5.0
    name: str = "scripted"

    def step(self, observation):
        due = [second for second in self.orders if second <= observation.now]
        return self.orders[max(due)] if due else None


@pytest.fixture
def scripted():
    return Scripted


@pytest.fixture
def load():
    """`load([(at, prompt, output), …])`: a Trace; `load("each:1m,for=1h")` parses the command-line form."""

    def make(what, name="small", seed=0):
        if isinstance(what, str):
            return traces.load(what, None, seed).load
        at, prompt, output = np.array(what, dtype=float).reshape(-1, 3).T
        return Trace(name, at, prompt.astype(np.int64), output.astype(np.int64))

    return make


@pytest.fixture
def profile(server):
    """`profile(start_s=60.0)`: a replica that reads 1000 prompt tokens a second and generates 100, on one GPU."""

    def make(start_s=0.0, gpus=1, sigma=0.0, slo=None, **costs):
        return ServerProfile("P", server(**costs), start_s, gpus, slo or ReplaySlo(1.0, 0.0), sigma)

    return make
