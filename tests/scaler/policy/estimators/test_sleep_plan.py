"""The plan of sleep follows prices and wake times, and keep-warm decides at the prices of what it still saves."""

import numpy as np
import pytest

from scaler.policy.columns import Signal, Spec, Specs
from scaler.policy.estimators.idle_time import Gaps, IdleEnds
from scaler.policy.estimators.keep_warm import KeepWarmRules, Stakes, start_cost
from scaler.policy.estimators.sleep_plan import SleepConfig, SleepPlans, SleepRules
from scaler.policy.estimators.wake_time import KEPT, WakeTimes

HOUR, ROW, NO_RESTS = 3600.0, np.array([0]), IdleEnds(np.array([], dtype=np.int64), np.array([]))
SHARED = SleepConfig(share=0.1, after=None, earliest=15.0, timeout=None)
STAKES = Stakes(*(np.array([x]) for x in (75.0, 90.0, 1.0, 12.0)))  # a start is worth 975


class Planned:
    """One workload. `planned(pauses...)` are pauses that end; what `learn` returns last is `stakes`."""

    def __init__(self, config=SHARED, *, learns=True, minimum=0, ttft=None, stakes=STAKES):
        latency = {"ttft": ttft, "itl": 0.06} if ttft is not None else {}
        specs = Specs.stack([Spec(minimum, 8, ((Signal.WORK, 16.0),), **latency)])
        rules = KeepWarmRules(np.array([learns]), *(np.array([s]) for s in (300.0, 60.0, 4 * HOUR)))
        self.plans, self.gaps, self.now = SleepPlans(SleepRules.stack([config]), rules, specs), Gaps(1), 0.0
        self.given = stakes
        self.stakes = self.plans.learn(NO_RESTS, self.gaps, stakes, 0.0)

    def __call__(self, *pauses):
        for pause in pauses:
            self.now += pause
            self.gaps.histograms.add(ROW, np.array([pause]), self.now)
            self.stakes = self.plans.learn(IdleEnds(ROW, np.array([pause])), self.gaps, self.given, self.now)
        return self

    def wakes(self, *seconds):
        for each in seconds:
            self.plans.wakes.learn(0, each)
        return self(1.0)

    @property
    def after(self):
        return float(self.plans.plan.after[0])


def test_keep_warm_is_given_the_price_of_sleep_and_of_a_start_beyond_a_wake():
    planned = Planned(ttft=2.0).wakes(5.0)
    # A wake: 5 s of the GPU, and 3 s beyond the SLO for 12 each.
    assert float(start_cost(planned.stakes)[0]) == pytest.approx(975.0 - 41.0)
    assert planned.stakes.idle[0] == pytest.approx(0.1)
    assert planned.stakes.start[0] == 75.0


def test_wake_within_the_slo_delays_nobody_so_sleep_comes_early():
    # 0.3 s of a GPU in 0.9 saved each second; but no earlier than idleness is proven.
    assert Planned(ttft=2.0).wakes(0.3).after == 15.0
    assert Planned().wakes(60.0).after == pytest.approx(60.0 * 13.0 / 0.9)
    assert np.isnan(Planned().wakes(74.0)(*[200.0] * 12).after)


def test_plan_is_the_same_in_another_currency():
    expensive = STAKES._replace(idle=10.0 * STAKES.idle, waiting=10.0 * STAKES.waiting)
    for wake in (5.0, 60.0):
        plain, dear = Planned().wakes(wake), Planned(stakes=expensive).wakes(wake)
        assert plain.after == pytest.approx(dear.after) == pytest.approx(wake * 13.0 / 0.9)


def test_first_wake_is_tried_however_dear_a_late_request_is():
    dear = STAKES._replace(waiting=np.array([5000.0]))
    assert Planned(ttft=0.5, stakes=dear).after <= 15.0
    planned = Planned(ttft=2.0, stakes=dear)
    assert planned.after <= 15.0
    planned.wakes(5.0)  # measured: 3 s beyond the SLO for 5000 each
    assert np.isnan(planned.after)
    # Without an SLO every second of the wait has its price.
    assert not Planned(stakes=dear).after <= HOUR


def test_prices_stay_where_sleep_does_not_pay_or_is_not_configured():
    for config in (SHARED._replace(share=1.0), None):
        planned = Planned(config)
        assert (np.isnan(planned.after), planned.stakes) == (True, STAKES)


def test_configured_time_holds_whatever_the_prices_are():
    assert Planned(SHARED._replace(after=120.0, share=1.0)).after == 120.0


def test_workload_that_never_goes_to_zero_may_sleep():
    planned = Planned(minimum=1)(*[2000.0] * 12)
    assert planned.after <= 100.0
    assert planned.plans.plan.zero[0] == planned.plans.plan.ready[0]


def test_new_price_or_wake_time_changes_the_plan_before_a_pause_has_ended():
    planned = Planned().wakes(60.0)
    planned.given = planned.given._replace(waiting=np.array([1.0]))
    planned.stakes = planned.plans.learn(NO_RESTS, planned.gaps, planned.given, planned.now)
    assert planned.after == pytest.approx(60.0 * 2.0 / 0.9)


def test_plan_holds_until_a_pause_has_ended_or_a_price_changes():
    planned = Planned(minimum=1)(*[2000.0] * 12)
    after = planned.after
    for _ in range(200):
        planned.gaps.histograms.add(ROW, np.array([60.0]), planned.now)  # of which no call tells
    planned.plans.learn(NO_RESTS, planned.gaps, STAKES, planned.now)
    assert planned.after == after < 60.0
    assert planned(60.0).after > 60.0


@pytest.mark.parametrize("change", ["replan", "take"])
def test_new_rules_and_a_restored_state_are_planned_for_before_a_pause_has_ended(change):
    planned = Planned()
    planned.plans.plan.after[0] = 7.0  # as of other rules
    if change == "replan":
        planned.plans.replan(ROW, Planned().plans)
    else:
        planned.plans.take({}, ROW, ROW)
    planned.plans.learn(NO_RESTS, planned.gaps, STAKES, planned.now)
    assert planned.after == Planned().after


def test_start_that_costs_hardly_more_than_a_wake_and_the_seconds_asleep_has_a_wait_without_price():
    # A start is 75 s for 1, a wake 40 s: beyond it are 35, less than 75 s asleep for 0.5.
    free = STAKES._replace(waiting=np.array([0.0]))
    planned = Planned(SHARED._replace(share=0.5, after=20.0), stakes=free).wakes(40.0)
    assert (planned.stakes.idle[0], planned.stakes.waiting[0]) == (0.5, 0.0)


def test_unmeasured_start_leaves_the_constant_and_plans_sleep_before_it():
    planned = Planned(stakes=Stakes(*(np.array([x]) for x in (np.nan, np.nan, 1.0, 12.0))))
    assert planned.after < 300.0
    assert np.isnan(planned.stakes.start[0])


def test_wake_time_is_the_median_of_the_last_ones_and_survives_a_restart():
    wakes = WakeTimes(2)
    for seconds in (100.0, *[0.3] * (KEPT - 1), 0.5):
        wakes.learn(1, seconds)
    for impossible in (-1.0, np.nan, 1e6):
        wakes.learn(1, impossible)
    assert np.isnan(wakes.typical[0])
    assert wakes.typical[1] == 0.3
    again = WakeTimes(1)
    again.take(wakes.columns(), np.array([0]), np.array([1]))
    assert again.typical[0] == 0.3
    for impossible in (-5.0, np.inf, 1e6):
        again.take({"wakes.last": np.array([[*[impossible] * (KEPT - 1), 2.0]])}, ROW, ROW)
        assert again.typical[0] == 2.0
    again.take({"wakes.last": np.zeros((1, 3))}, ROW, ROW)  # of another shape
    assert again.typical[0] == 2.0
