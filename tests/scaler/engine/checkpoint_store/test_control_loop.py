"""Tests the control loop with a checkpoint: returning workloads claim their state, the rest is kept."""

import asyncio

import numpy as np
import pytest

from exporter.model import WorkloadKey
from exporter.sources.http import HttpLimits, HttpPages
from scaler.columns import State
from scaler.config import parse
from scaler.engine import loop
from scaler.engine.checkpoint import UnclaimedState
from scaler.engine.loop import ControlLoop
from scaler.engine.publisher import Publisher
from scaler.model import Reason
from tests.fakes.daemon import loop_context as new_context
from tests.scaler.engine.checkpoint_store.conftest import Clock

ENGINE = 'pods: {url: "http://10.0.0.1:8000/metrics"}'


def config(*names):
    workloads = [f"{{namespace: ai, name: {name}, engine: vllm, {ENGINE}}}" for name in names]
    return parse(f"workloads: [{', '.join(workloads)}]", "c.yaml")[0]


def key(name):
    return WorkloadKey("ai", name)


def kept(at, **replicas):
    columns = {
        "memory.replicas": np.array([float(count) for count in replicas.values()]),
        "memory.active": np.array([count > 0 for count in replicas.values()]),
        "memory.reason": np.zeros(len(replicas), np.int64),
    }
    return State(at, tuple(key(name) for name in replicas), columns)


@pytest.fixture
async def loop_context():
    """`loop_context(states)`: the context of control loops at second 1000, with unclaimed states."""
    pages = HttpPages(HttpLimits(1.0, 1024))

    def make(*states):
        return new_context(Clock(), pages, Publisher([]), unclaimed=UnclaimedState(states))

    yield make
    await pages.close()


def decisions(loop_context):
    board = loop_context.publisher.local
    return {
        each.name: (decision.replicas, decision.active, decision.reason) for each, decision in board.decisions.items()
    }


def names(states):
    return [[each.name for each in state.workloads] for state in states]


async def test_first_decisions_are_the_restored_ones(loop_context):
    here = loop_context(kept(990.0, chat=3, code=0))
    ControlLoop(config("chat", "code", "new"), here).tick(1000.0)
    assert decisions(here) == {
        "chat": (3, True, Reason.SERVING),
        "code": (0, False, Reason.SERVING),
        "new": (None, True, Reason.UNKNOWN),
    }


async def test_unclaimed_workload_is_copied_unchanged_into_the_next_checkpoint(loop_context):
    here = loop_context(kept(990.0, chat=3, code=5), kept(500.0, code=1, old=2))
    started = ControlLoop(config("chat"), here)
    started.tick(1000.0)
    current, *rest = await started.states()
    assert (names([current]), current.at) == ([["chat"]], 1000.0)
    assert (names(rest), [state.at for state in rest]) == ([["code"], ["code", "old"]], [990.0, 500.0])
    after = ControlLoop(config("chat", "code", "old"), here, before=started)
    after.tick(1001.0)
    assert decisions(here)["code"] == (5, True, Reason.SERVING)
    assert decisions(here)["old"] == (None, True, Reason.UNKNOWN), "it is older than the hold"
    assert names(await after.states()) == [["chat", "code", "old"]]


async def test_large_fleet_is_copied_in_parts_and_yields_to_other_tasks(loop_context, monkeypatch):
    monkeypatch.setattr(loop, "COPIED_AT_ONCE", 2)
    here = loop_context()
    started, turns = ControlLoop(config(*"abcde"), here), []

    async def other_task():
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    running = asyncio.create_task(other_task())
    states = await started.states()
    running.cancel()
    assert (names(states), len(turns)) == ([["a", "b"], ["c", "d"], ["e"]], 3)


async def test_copy_restarts_if_the_list_of_workloads_changes(loop_context, monkeypatch):
    monkeypatch.setattr(loop, "COPIED_AT_ONCE", 1)
    here = loop_context()
    started, other = ControlLoop(config("a", "b"), here), ControlLoop(config("c"), here)
    copying = asyncio.create_task(started.states())
    await asyncio.sleep(0)
    started._decider = other._decider
    assert names(await copying) == [["c"]]


async def test_seconds_counted_while_following_are_kept_and_not_exposed(loop_context):
    here = loop_context()
    leads = iter([True, True, False, False, True])
    here.leads = lambda now: next(leads)
    begun = ControlLoop(config("chat"), here)
    for now in range(1000, 1005):
        begun.tick(float(now))
    books = begun.decider.books
    assert (books.kept.state_seconds.sum(), books.shown.state_seconds.sum()) == (4.0, 2.0)
