"""Days of a workload on a fake clock: estimates and constraints together, as in the daemon."""

from dataclasses import replace

import numpy as np
import pytest

from exporter.kubernetes.objects import Pod
from exporter.model import PodKey, WorkloadKey
from scaler.columns import State, translated
from scaler.engine.checkpoint_format import pack, unpack
from scaler.policy.prices import ReplicaCost
from tests.scaler.policy.constraints.played import DAY, HOUR, MINUTE, ROW, TICK, WITH_SLO, Played


@pytest.fixture
def played():
    return Played()


def test_workload_without_readings_has_the_constant(played):
    played(DAY)
    assert played.window == 300.0


def test_break_even_follows_the_start_and_the_gpus_of_a_replica():
    # 70.8 to 75.3 s are one bucket: 75.3 * (1 + 12) on one GPU, 75.3 * (1 + 3) on four.
    windows = []
    for gpus in (1.0, 4.0, np.nan):
        each = Played(gpus=gpus).started(72.0)
        each(TICK)
        windows.append(round(each.window))
    assert windows == [979, 301, 979]


def test_break_even_follows_the_price_of_the_replica():
    # 75.3 * (1 + 30 / price): eight GPUs of 6.88, one, one of 0.80; and one whose price is unknown, at 2.50.
    windows = []
    for gpus, hour in ((8.0, 8 * 6.88), (1.0, 6.88), (1.0, 0.8), (1.0, np.nan)):
        each = Played(gpus=gpus, hour=hour).started(72.0)
        each(TICK)
        windows.append(round(each.window))
    assert windows == [116, 404, 2899, 979]


def test_restores_from_a_snapshot_shorten_keep_warm_although_further_replicas_start_cold():
    played = Played()

    def day(first, further):
        """A start from zero, and one of a further replica beside it."""
        pods = [
            Pod(PodKey("ai", f"{name}-{played.now}"), f"{name}-{played.now}", node="n", scheduled_at=played.now)
            for name in ("a", "b")
        ]
        ready = [replace(pod, ready=True, was_ready=True) for pod in pods]
        one, two = (
            replace(pod, ready_at=played.now + seconds) for pod, seconds in zip(ready, (first, further), strict=True)
        )
        for found, at in ((pods, 0.0), ([one, pods[1]], first), ([one, two], further), ([], further + 1.0)):
            played.stands.starts.observe(0, found, waiting=False, now=played.now + at)
        played.now += DAY - TICK
        played(TICK)
        return played.window

    # A cold start of 85 s: 84.8 to 90.1 is one bucket, and 90 * (1 + 12) is break-even.
    cold = [day(85.0, 85.0) for _ in range(14)][-1]
    assert cold == pytest.approx(85.0 * 13.0, rel=0.06)
    # Snapshots are switched on. 4 s is worth a break-even of 54 s, and 60 s are the least.
    windows = [day(4.0, 85.0) for _ in range(21)]
    assert windows == sorted(windows, reverse=True)
    minutes = [round(window / 60.0) for window in (cold, windows[6], windows[20])]
    assert minutes == [18, 8, 1]  # docs/explanation/estimators.md
    # Sizing still waits for cold starts.
    assert played.stands.starts.times.p50.tolist() == pytest.approx([85.0], rel=0.06)


def test_last_known_price_holds_while_no_gpu_is_shown():
    played = Played(hour=6.88).started(72.0)
    played(TICK)
    played.cost = ReplicaCost(np.full(1, np.nan), np.full(1, np.nan))
    played(TICK)
    assert round(played.window) == 404


def test_days_of_office_hours_end_in_a_start_before_the_return(played):
    held = played.started(72.0).days(4)
    assert 0.02 < held < 0.25
    # In the night it is tried once, and given up, and not kept warm again for what the day taught.
    played(9 * MINUTE, running=1.0)
    assert played(45 * MINUTE) == 0.0
    assert played(20 * MINUTE) > 0.1
    assert played.window == 60.0
    assert played(12 * HOUR) == 0.0


def test_loading_in_advance_is_no_return(played):
    played.started(72.0)
    for _ in range(20):
        played(9 * MINUTE, running=1.0)
        played(51 * MINUTE)
    begins = played.stands.returns_at(ROW)[0] - played.now
    played(9 * MINUTE, running=1.0)
    # It is woken in advance: it loads with busy GPUs, and they show as busy for half a minute after it is ready.
    since = played.now + TICK
    while not played.stands.expected(played.now)[0]:
        assert played.now < since + HOUR, "it is never woken in advance"
        played(TICK, busiest_gpu=0.0)
    played(90.0, busiest_gpu=0.9, ready=0.0)
    played(30.0, busiest_gpu=0.9)
    assert played.stands._gaps.idle_since.tolist() == [since]
    assert begins < 0.0  # it had begun before the end of the rest before


def test_batch_on_the_gpus_ends_a_rest(played):
    played(HOUR, busiest_gpu=0.0)
    played(TICK, busiest_gpu=0.9)
    assert played.stands._gaps.histograms.weight(played.now).tolist() == [1.0]


def test_rejected_request_ends_a_rest(played):
    played(HOUR)
    played(TICK, refused_at=played.now + 10.0)
    assert played.stands._gaps.idle_since.tolist() == [HOUR + 10.0]


def test_unknown_values_change_no_estimate(played):
    played.started(72.0)(HOUR)
    played(4 * MINUTE, running=1.0, complete=False)
    assert played.stands._gaps.idle_since.tolist() == [TICK]


def test_restart_in_the_middle_of_a_rest_changes_nothing_on_a_clock_that_is_ahead(played):
    played.started(72.0).days(3)
    played(9 * MINUTE, running=1.0)
    played(30 * MINUTE)
    # Saved, and restored by a replica with a clock 100 s ahead.
    state = State(played.now, (WorkloadKey("ai", "chat"),), played.stands.columns())
    read = translated(unpack(pack(state)), 100.0)
    again = Played(now=played.now + 100.0)
    again.stands.take(read.columns, ROW, ROW)
    for _ in range(200):
        assert again.window == played.window
        assert again.stands.returns_at(ROW)[0] == pytest.approx(played.stands.returns_at(ROW)[0] + 100.0)
        assert again(TICK) == played(TICK)


def busy(played, minutes, per_minute):
    for _ in range(minutes * 2):
        played.finished += per_minute / 2
        played(TICK, running=1.0)


def test_many_delayed_requests_keep_a_workload_with_an_slo_warm_and_an_unused_budget_does_not():
    # 600 requests a minute: a start delays about 750, and two hours of work add 650 to the budget.
    played = Played(spec=WITH_SLO).started(72.0)
    played.finished = 0.0
    played(TICK)
    busy(played, 60, 600.0)
    played(20 * MINUTE)
    busy(played, 60, 600.0)
    assert played.window == 4 * HOUR
    busy(played, 1, 1e7)
    assert played.window < 2 * MINUTE


def test_slo_counts_a_start_before_one_is_measured():
    played = Played(spec=WITH_SLO)
    played.finished = 0.0
    played(TICK)
    assert played.window == 300.0  # no request so far
    busy(played, 10, 600.0)
    assert played.window == 4 * HOUR


def test_price_follows_the_budget_though_every_request_comes_and_goes_between_two_looks():
    played = Played(spec=WITH_SLO).started(72.0)
    played.finished = 0.0
    played(TICK)
    windows = []
    for _ in range(250):
        played(10 * MINUTE)
        played.finished += 1.0
        played(TICK, active_at=played.now + 1.0)
        windows.append(played.window)
    assert max(windows) > 10 * MINUTE > min(windows)
    budget, delayed, covered = played.stands._budget, *played.stands.error_budget
    assert delayed[0] == 1.0
    assert covered[0] == budget.account[0] > 1.0
