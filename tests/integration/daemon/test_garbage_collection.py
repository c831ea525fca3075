"""Garbage collections skip what stays: the loaded code, and later the state of all targets."""

import gc
from types import SimpleNamespace

import pytest

from exporter.clock import WallClock
from scaler.config import parse
from scaler.daemon import COLLECTIONS, LIST_WAIT_S, Daemon

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


@pytest.mark.usefixtures("_collections")
def test_state_of_the_targets_is_frozen_once_each_has_been_scraped():
    daemon, keda = Daemon(parse(CONFIG, "config.yaml")[0], WallClock()), SimpleNamespace(set_ready=lambda ready: None)
    gc.unfreeze()
    daemon._ticked(keda, 1000.0)
    code = gc.get_freeze_count()
    targets = [[] for _ in range(1000)]
    first_round = 1000.0 + LIST_WAIT_S + 10.0 + 3.0
    daemon._ticked(keda, first_round - 0.1)
    assert gc.get_freeze_count() <= code
    daemon._ticked(keda, first_round)
    assert gc.get_freeze_count() >= code + len(targets)
    assert gc.get_threshold() == COLLECTIONS
    later = [[] for _ in range(1000)]
    daemon._ticked(keda, first_round + 1.0)
    assert gc.get_freeze_count() < code + len(targets) + len(later), "what comes and goes later is collected"
