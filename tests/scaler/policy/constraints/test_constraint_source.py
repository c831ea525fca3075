"""Overrides, starts and rests become the constraints of a workload."""

from dataclasses import replace

import numpy as np
import pytest

from scaler.config.scalars import read_duration
from scaler.model import Reason
from scaler.policy.columns import NO_REASON, REASONS, Readings, Specs
from scaler.policy.constraints import PRICES, ConstraintSource, KeepWarmConfig
from scaler.policy.estimators.sleep_plan import SleepConfig
from scaler.policy.overrides import WorkloadOverrides, moment, read_brake, read_schedules
from scaler.policy.prices import ReplicaCost
from tests.scaler.policy.constraints.played import AUTO, DAY, HOUR, MINUTE, ROW, SPEC, TICK, WITH_SLO, Played

MIDNIGHT = moment("2026-11-23T00:00Z")
STARTED_S = 75.3  # 72 s are in the bucket of 70.8 to 75.3 s


def scheduled(text):
    return WorkloadOverrides(schedules=read_schedules(text, read_duration))


def expected_back(**more):
    """A workload that has returned each hour for days, when its next start is due."""
    played = Played(**more).started(72.0)
    for _ in range(30):
        played(9 * MINUTE, running=1.0)
        played(51 * MINUTE)
    played(9 * MINUTE, running=1.0)
    played(45 * MINUTE)
    for _ in range(12):
        if not played.stands.expected(played.now)[0]:
            played(TICK)
    return played


def constrained(played):
    """floor, its reason, ceiling of the only workload now."""
    columns = played.stands.at(played.now)
    return columns.floor[0], columns.floor_reason[0], columns.ceiling[0]


def test_start_may_take_twice_as_long_as_nine_of_ten_did_and_a_minute():
    played = Played()
    assert played.stands.at(0.0).lease.tolist() == [SPEC.lease_max]
    assert played.started(72.0).stands.at(0.0).lease[0] == pytest.approx(2.0 * STARTED_S + 60.0, abs=0.1)
    short = Played(spec=replace(SPEC, lease_max=100.0)).started(72.0)
    assert short.stands.at(0.0).lease.tolist() == [100.0]


def test_return_that_is_due_is_a_floor_of_one_warm_replica():
    played = expected_back()
    assert constrained(played) == (1.0, REASONS.index(Reason.WARM), np.inf)
    assert played.now - TICK < played.stands.returns_at(ROW)[0] <= played.now
    played(TICK, running=1.0)
    assert constrained(played) == (0.0, NO_REASON, np.inf)


def test_schedule_decides_where_its_floor_is_higher_than_that_of_a_return():
    played = expected_back(overrides=scheduled("* * * * * for 1h floor 3"))
    assert constrained(played) == (3.0, REASONS.index(Reason.SCHEDULED), np.inf)


def test_floor_of_a_schedule_begins_as_early_as_nine_of_ten_starts_need():
    played = Played(now=MIDNIGHT, overrides=scheduled("0 8 * * * for 10h floor 2 ceiling 5"))
    played.started(500.0)
    assert [played.stands.at(MIDNIGHT + 8 * HOUR - s).floor[0] for s in (900.0, 500.0)] == [0.0, 2.0]
    assert played.stands.at(MIDNIGHT + 8 * HOUR - 500.0).ceiling.tolist() == [np.inf]


def test_workload_that_never_sleeps_is_never_expected_back():
    awake = replace(SPEC, minimum=1)
    played = expected_back(spec=awake)
    assert not played.stands.expected(played.now)[0]
    assert constrained(played) == (0.0, NO_REASON, np.inf)
    assert np.isnan(played.stands.returns_at(ROW)[0])


def test_keep_warm_time_is_constant_unless_it_is_to_be_learned():
    assert not KeepWarmConfig().learns
    played = Played(teaching=KeepWarmConfig(lowest=60.0)).started(72.0)
    played(HOUR)
    assert played.window == SPEC.keep_warm
    assert played.stands.shortest_keep_warm.tolist() == [60.0]


def test_activity_at_the_quiet_level_is_rest_and_above_it_is_not():
    played = Played()
    played(HOUR, busiest_gpu=SPEC.gpu_quiet)
    assert played.stands.returns_at(ROW).shape == (1,)
    assert played.stands._gaps.idle_since.tolist() == [TICK]
    played(TICK, busiest_gpu=SPEC.gpu_quiet + 0.001)
    assert np.isnan(played.stands._gaps.idle_since[0])


@pytest.mark.parametrize("where", ["waiting", "running", "held"])
def test_request_anywhere_ends_a_rest(where):
    played = Played()
    played(HOUR)
    played(TICK, **{where: 1.0})
    assert np.isnan(played.stands._gaps.idle_since[0])


def test_pauses_are_counted_for_a_day_after_an_hour():
    played = Played().started(72.0)
    for _ in range(4):
        played(9 * MINUTE, running=1.0)
        played(51 * MINUTE)
    played(TICK, running=1.0)
    for counted, per_day in ((HOUR - 1.0, np.nan), (HOUR, 96.0), (4 * HOUR, 24.0)):
        pauses = played.stands.pauses(ROW, np.array([played.now - counted]), played.now)
        assert pauses.per_day[0] == pytest.approx(per_day, rel=0.02, nan_ok=True)
    assert pauses.number[0] == pytest.approx(4.0, rel=0.01)
    assert pauses.start.tolist() == played.stands.starts.times.p50.tolist()
    assert pauses.keep_warm[0] >= 60.0
    # 30 an hour for who waits, in seconds.
    assert pauses.waiting.tolist() == [PRICES.waiting_hour / HOUR]
    awake = Played(spec=replace(SPEC, minimum=1))
    awake(HOUR)
    assert np.isnan(awake.stands.pauses(ROW, np.zeros(1), awake.now).per_day[0])


def test_cost_of_waiting_is_that_of_a_person_without_an_slo_and_follows_the_budget_with_one():
    waiting = []
    for spec in (SPEC, WITH_SLO):
        played = Played(spec=spec).started(72.0)
        played.finished = 0.0
        for _ in range(40):
            played.finished += 3000.0
            played(TICK, running=1.0)
        waiting.append(played.stands.pauses(ROW, np.zeros(1), played.now).waiting[0])
    assert waiting[0] == PRICES.waiting_hour / HOUR
    assert waiting[1] > 10.0 * waiting[0]


def test_error_budget_is_shown_where_there_is_an_slo_and_it_decides():
    shown = []
    for spec, teaching in ((WITH_SLO, AUTO), (SPEC, AUTO), (WITH_SLO, KeepWarmConfig(lowest=60.0))):
        played = Played(spec=spec, teaching=teaching).started(72.0)
        played.finished = 0.0
        for _ in range(40):
            played(10 * MINUTE)
            played.finished += 1.0
            played(TICK, active_at=played.now + 1.0)
        shown.append(not any(np.isnan(column[0]) for column in played.stands.error_budget))
    assert shown == [True, False, False]


def test_saving_of_the_estimate_is_that_of_the_last_moment_asked_for():
    played = expected_back()
    played.stands.at(played.now)
    money = played.stands.saving(ROW).money[0]
    assert money > 0.0
    # A year later hardly a rest is remembered.
    played.stands.at(played.now + 365 * DAY)
    assert played.stands.saving(ROW).money[0] != money


def test_state_in_a_checkpoint_is_that_of_all_parts_and_is_taken_back():
    played = expected_back()
    columns = played.stands.columns()
    assert {name.split(".")[0] for name in columns} >= {"coldstarts", "budget"}
    other = Played(now=played.now)
    other.stands.take(columns, ROW, ROW)
    again = other.stands.columns()
    assert sorted(columns) == sorted(again)
    for name, column in columns.items():
        np.testing.assert_array_equal(column, again[name], err_msg=name)


def test_changed_rules_of_a_workload_replace_its_own_and_no_others():
    specs = Specs.stack([SPEC, SPEC])
    stands = ConstraintSource(specs, [WorkloadOverrides()] * 2, [KeepWarmConfig(lowest=60.0)] * 2, PRICES)
    longer = ConstraintSource(Specs.stack([SPEC]), [WorkloadOverrides()], [KeepWarmConfig(lowest=90.0)], PRICES)
    stands.replan(np.array([1]), longer)
    assert stands.shortest_keep_warm.tolist() == [60.0, 90.0]


def test_end_of_a_brake_is_reported_once_though_overrides_are_replaced():
    freeze = WorkloadOverrides(brakes=(read_brake("freeze until 2026-11-23T08:00Z", "ai/Deployment/chat"),))
    played, end = Played(now=MIDNIGHT, overrides=freeze), MIDNIGHT + 8 * HOUR
    played.stands.at(end - 1.0)
    assert played.stands.at(end - 1.0).frozen.tolist() == [True]
    played.stands.news()
    played.stands.at(end + 1.0)
    assert len(played.stands.news().ended) == 1
    for replaced in (False, True):
        if replaced:
            played.stands.reorder([freeze])
        played.stands.at(end + 2.0)
        assert not played.stands.news().ended
    again = Played(now=MIDNIGHT, overrides=freeze)
    again.stands.go_on(played.stands, ROW, ROW)
    again.stands.at(end + 3.0)
    assert not again.stands.news().ended


def test_busy_gpus_of_a_sleeping_engine_are_no_return():
    sleeping = SleepConfig(0.1, None, 15.0, 60.0)
    for asleep, since in ((True, 1000.0), (False, np.nan)):
        stands = ConstraintSource(Specs.stack([SPEC]), [WorkloadOverrides()], [AUTO], PRICES, sleep=[sleeping])
        readings = Readings.unknown(1)
        for column in (readings.ready, readings.wanted, readings.existing):
            column[:] = 1.0
        cost, complete = ReplicaCost(*np.full((2, 1), np.nan)), np.array([True])
        readings.waiting[:] = readings.running[:] = readings.busiest_gpu[:] = 0.0
        stands.rest(ROW, readings, complete, cost, np.zeros(1), 1000.0, np.array([asleep]))
        readings.busiest_gpu[:] = 0.9
        stands.rest(ROW, readings, complete, cost, np.zeros(1), 1005.0, np.array([asleep]))
        assert stands._gaps.idle_since.tolist() == pytest.approx([since], nan_ok=True)
