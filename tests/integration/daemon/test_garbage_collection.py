"""Garbage collections skip what stays: the loaded code, and later the state of all targets."""

import gc
from types import SimpleNamespace

import pytest

from exporter.clock import WallClock
from exporter.scrape.loop import Counters
from scaler.config import parse
from scaler.daemon import COLLECTIONS, FIRST_ROUND_S, LIST_WAIT_S, Daemon

CONFIG = """
scrape: {interval: 10s, timeout: 3s}
workloads: [{namespace: ai, name: chat, engine: vllm, replicas: {min: 1}, pods: {url: "http://10.0.0.1:8000/metrics"}}]
"""


@pytest.fixture
def _collections():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.fixture
def daemon(_collections):
    gc.unfreeze()
    return Daemon(parse(CONFIG, "config.yaml")[0], WallClock())


KEDA = SimpleNamespace(set_ready=lambda ready: None)
FIRST_ROUND = 1000.0 + LIST_WAIT_S + 10.0 + 3.0


def is_frozen(kept):
    """Whether collections skip this list. Not by the number of what is frozen: some of that is freed meanwhile."""
    assert gc.is_tracked(kept)
    return not any(each is kept for each in gc.get_objects())


@pytest.mark.parametrize("frozen_at", [FIRST_ROUND + 7.0, FIRST_ROUND + FIRST_ROUND_S])
def test_state_of_the_targets_is_frozen_once_each_has_been_scraped(daemon, frozen_at):
    """Or two minutes later: a target that never responds delays it no longer."""
    counters = {"fast": Counters(scrapes=2), "slow": Counters()}
    daemon._loop = SimpleNamespace(counters=counters)
    daemon._ticked(KEDA, 1000.0)
    targets = [[]]
    daemon._ticked(KEDA, FIRST_ROUND - 0.1)
    daemon._ticked(KEDA, FIRST_ROUND)
    daemon._ticked(KEDA, frozen_at - 0.1)
    assert not is_frozen(targets)
    counters["slow"].scrapes += frozen_at < FIRST_ROUND + FIRST_ROUND_S
    daemon._ticked(KEDA, frozen_at)
    assert is_frozen(targets)
    assert gc.get_threshold() == COLLECTIONS
    later = [[]]
    daemon._ticked(KEDA, frozen_at + 1.0)
    assert not is_frozen(later), "what comes and goes later is collected"
