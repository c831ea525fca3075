"""Compares the metrics pod by pod with the metrics of the whole Deployment."""

from __future__ import annotations

import numpy as np
import pytest

from scaler.replay.columns import DRAINING, READY, ReplayWorld
from scaler.replay.engine import advance, scale
from scaler.replay.metric_pages import (
    EXISTING,
    KV_USED,
    POD_BUSY,
    POD_CREATED,
    POD_KV,
    POD_PHASE,
    POD_RUNNING,
    POD_SLOT,
    POD_WAITING,
    READY_NOW,
    RUNNING,
    WAITING,
    look,
    look_each,
)
from scaler.replay.servers import A


def test_metrics_of_pods_add_up_to_the_whole_at_every_moment():
    rng = np.random.default_rng(1)
    count = 3000
    at = np.cumsum(rng.exponential(0.05, count))
    world = ReplayWorld.of(at, rng.integers(1, 6000, count), rng.integers(1, 900, count), 64, A.server.batch)
    scale(world, 2, np.zeros(1))
    for second in range(1, 200):
        advance(world, A.server, float(second))
        scale(world, 2 + second % 4, np.full(1, 3.0))
        whole, each = look(world, A.server), look_each(world, A.server)
        ready = each[each[:, POD_PHASE] == READY]
        assert (len(each), len(ready)) == (whole[EXISTING], whole[READY_NOW])
        assert each[:, POD_WAITING].sum() == whole[WAITING]
        assert each[:, POD_RUNNING].sum() == whole[RUNNING]
        assert ready[:, POD_KV].mean() == pytest.approx(whole[KV_USED])
        in_hand = each[:, POD_WAITING] + each[:, POD_RUNNING] > 0
        assert np.array_equal(each[:, POD_BUSY] == 1.0, in_hand)
        assert (np.diff(each[:, POD_CREATED]) >= 0.0).all()
        assert len(set(each[:, POD_SLOT])) == len(each)


def test_draining_pod_is_listed_as_draining():
    world = ReplayWorld.of(np.zeros(2), np.full(2, 1000), np.full(2, 500), 8, A.server.batch)
    scale(world, 2, np.zeros(1))
    advance(world, A.server, 1.0)
    scale(world, 1, np.zeros(1))
    assert look_each(world, A.server)[:, POD_PHASE].tolist() == [READY, DRAINING]
