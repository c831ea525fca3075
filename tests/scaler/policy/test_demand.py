"""Demand is the largest objective; it raises at once, lowers with hysteresis, and only raises between ticks."""

import math

import numpy as np
import pytest

from scaler.model import Reason
from scaler.policy.columns import REASONS, Constraints, Memory, Readings, Signal, Spec, Specs
from scaler.policy.kernel import choose, step


@pytest.mark.parametrize(
    ("requests", "replicas"),
    [(1, 1), (16, 1), (17, 2), (32, 2), (33, 3), (128, 8)],
)
def test_work_is_divided_by_its_target_and_rounded_up(chat, fresh, requests, replicas):
    assert chat.step(**fresh(running=requests))[0] == replicas


def test_demand_above_the_maximum_is_capped(chat, fresh):
    assert chat.step(**fresh(running=129)) == (8, True, Reason.CAPPED)


def test_requests_that_wait_while_none_runs_are_queued(chat, fresh):
    assert chat.step(**fresh(waiting=3)) == (1, True, Reason.QUEUED)


def test_largest_objective_wins(workload, fresh):
    guarded = workload(Spec(0, 8, ((Signal.WORK, 16.0), (Signal.KV_CACHE, 0.6)), gateway=True))
    # Work asks for 1; the caches of 4 ready replicas are 0.9 full against 0.6: 4 x 0.9 / 0.6 = 6.
    assert guarded.step(**fresh(running=10, pods=4, ready=4.0))[0] == 1
    readings = Readings.unknown(1)
    for name, value in fresh(running=10, pods=4, ready=4.0).items():
        getattr(readings, name)[0] = value
    readings.signals[0, Signal.WORK], readings.signals[0, Signal.KV_CACHE] = 10.0, 0.9
    specs = Specs.stack([guarded.spec])
    verdicts, _ = step(specs, readings, Constraints.plain(specs), Memory.blank(1), 0.0)
    assert verdicts.replicas[0] == 6.0
    assert verdicts.demand[0].tolist()[:2] == [10 / 16, pytest.approx(6.0)]


def test_engine_without_a_kv_cache_is_sized_by_its_work(workload, fresh):
    guarded = workload(Spec(0, 8, ((Signal.WORK, 16.0), (Signal.KV_CACHE, 0.9))))
    assert guarded.step(**fresh(running=20)) == (2, True, Reason.SERVING)


@pytest.mark.parametrize(("more", "replicas"), [({}, 2), ({"falls_back": True}, 1)])
def test_arriving_work_replaces_the_requests_in_hand_only_if_these_are_its_fallback(workload, fresh, more, replicas):
    # 20 requests in hand at 16 a replica ask for 2, what arrives for 0.5.
    sized = workload(Spec(0, 8, ((Signal.WORK, 16.0), (Signal.SLO, 1.0)), gateway=True, **more))
    assert sized.step(**fresh(running=20), signals=(math.nan, math.nan, math.nan, 0.5))[0] == replicas


def test_gpu_activity_sizes_no_workload_without_that_objective(chat, fresh):
    # One small request pegs a GPU: 100 % busy is still one replica.
    assert chat.step(**fresh(running=1, busiest_gpu=1.0)) == (1, True, Reason.SERVING)


def test_step_down_waits_until_demand_has_left_the_step_by_the_band(chat, fresh):
    chat.step(**fresh(running=40))  # 2.5, so 3
    # 2 steps are 32 requests; the band of 0.2 replicas asks for 1.8 x 16 = 28.8 before the third goes.
    assert chat.step(after=1, **fresh(running=31))[0] == 3
    assert chat.step(after=1, **fresh(running=29))[0] == 3
    assert chat.step(after=1, **fresh(running=28))[0] == 2


def test_step_up_is_taken_at_once(chat, fresh):
    chat.step(**fresh(running=10))
    assert chat.step(after=0.1, **fresh(running=100))[0] == 7


def test_rounding_error_is_no_replica(workload, fresh):
    exact = workload(Spec(0, 8, ((Signal.WORK, 0.1),)))
    # 0.1 + 0.2 = 0.30000000000000004, and a tenth each is 3 replicas, not 4.
    assert exact.step(**fresh(), work=0.1 + 0.2)[0] == 3


def test_decision_between_ticks_may_only_rise_or_activate(chat, fresh):
    chat.step(**fresh(running=100))
    assert chat.step(raise_only=True, **fresh(running=10)) == (7, True, Reason.SERVING)
    assert chat.step(raise_only=True, **fresh(running=120))[0] == 8
    assert chat.step(after=1, **fresh(running=10))[0] == 1


def test_between_ticks_nothing_falls_asleep_and_nothing_becomes_an_error(chat, fresh):
    chat.step(**fresh(wanted=1.0, ready=1.0))
    assert chat.step(after=300, raise_only=True, **fresh(wanted=1.0, ready=1.0)) == (1, True, Reason.WARM)
    assert chat.step(after=400, raise_only=True, pods_listed=1.0) == (1, True, Reason.HELD)


def test_after_an_error_a_lower_decision_is_allowed_between_ticks(chat, fresh):
    chat.step(**fresh(running=100))
    chat.step(after=1)
    assert chat.step(after=301) == (None, True, Reason.UNKNOWN)
    assert chat.step(raise_only=True, **fresh(running=10))[0] == 1


def test_workloads_are_decided_independently():
    """Deciding many at once is deciding each by itself."""
    rng = np.random.default_rng(3)
    rows = 50
    specs = Specs.stack([Spec(int(i % 2), 8, ((Signal.WORK, 4.0 + i),), gateway=i % 3 == 0) for i in range(rows)])
    readings = Readings.unknown(rows)
    for column in readings:
        if column.dtype == np.bool_:
            column[:] = rng.random(rows) < 0.5
        else:
            column[...] = np.where(rng.random(column.shape) < 0.3, np.nan, rng.integers(0, 6, column.shape))
    together, _ = step(specs, readings, Constraints.plain(specs), Memory.blank(rows), 5.0)
    for row in range(rows):
        one = np.array([row])
        mine = choose(one, specs)
        alone, _ = step(mine, choose(one, readings), Constraints.plain(mine), Memory.blank(1), 5.0)
        np.testing.assert_array_equal(alone.replicas, together.replicas[one])
        np.testing.assert_array_equal(alone.reason, together.reason[one])


def test_step_does_not_modify_its_arguments():
    specs, readings, memory = Specs.stack([Spec(0, 8, ((Signal.WORK, 16.0),))]), Readings.unknown(1), Memory.blank(1)
    readings.wanted[0], readings.ready[0] = 3.0, 3.0
    _, after = step(specs, readings, Constraints.plain(specs), memory, 5.0)
    assert math.isnan(memory.replicas[0])
    assert after.replicas[0] == 3.0


def test_every_reason_the_policy_may_give_is_in_the_closed_list():
    assert set(REASONS) == set(Reason)


def test_largest_known_objective_counts_while_another_is_unknown(workload, fresh):
    both = workload(Spec(0, 8, ((Signal.WORK, 16.0), (Signal.GPU_ENGINE, 0.6)), gateway=True))
    ready = fresh(running=32, pods=1, wanted=1.0, ready=1.0)

    trace = both.trace(**ready)
    assert (trace.demand, trace.winner) == (2.0, Signal.WORK)
    trace = both.trace(**ready, work=math.nan, gpu_engine=0.9)
    assert (trace.demand, trace.winner) == (1.5, Signal.GPU_ENGINE)


def test_unknown_objectives_are_no_demand_of_zero(workload, fresh):
    both = workload(Spec(0, 8, ((Signal.WORK, 16.0), (Signal.GPU_ENGINE, 0.6)), gateway=True))

    trace = both.trace(**fresh(pods=1, wanted=1.0, ready=1.0), work=math.nan)
    assert math.isnan(trace.demand)
    assert trace.winner == -1
