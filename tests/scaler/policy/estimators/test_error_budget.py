"""The error budget of an SLO is what cold starts may spend, and its price follows what is left of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy.columns import Readings, Spec, Specs
from scaler.policy.constraints import PRICES, ConstraintSource, KeepWarmConfig
from scaler.policy.estimators.error_budget import BUDGET, MOST_STARTS, PARTS, SAMPLES, ErrorBudget, Traffic
from scaler.policy.estimators.idle_time import Gaps, IdleEnds
from scaler.policy.estimators.keep_warm import KeepWarm, KeepWarmRules, Stakes
from scaler.policy.estimators.sleep_plan import SleepConfig
from scaler.policy.overrides import WorkloadOverrides
from scaler.policy.prices import ReplicaCost
from tests.budget import examples

ROW = np.array([0])
START, LOWEST, TICK = 75.0, np.array([60.0]), 5.0
HOUR, DAY = 3600.0, 86400.0
STARTS = np.array([START])


class Watched:
    """One workload that is observed every 5 s."""

    def __init__(self):
        self.budget, self.now, self.finished = ErrorBudget(1), 1000.0, 0.0

    def __call__(self, *, ended=None, ready=1.0, waiting=0.0, running=0.0, finished=0.0):
        self.now += TICK
        self.finished += finished
        traffic = Traffic(*(np.array([x]) for x in (self.finished, waiting + running, waiting, ready)))
        ends = IdleEnds(ROW[:0], np.array([])) if ended is None else IdleEnds(ROW, np.array([ended]))
        self.budget.observe(ROW, traffic, ends, LOWEST, STARTS, self.now)
        return self

    def asleep(self, *, asleep=True, ended=None, waiting=0.0, running=0.0, finished=0.0):
        """The same of engines in sleep mode, with an SLO of 2 s to the first token."""
        traffic = Traffic(*(np.array([x]) for x in (self.finished + finished, waiting + running, waiting, 1.0)))
        ends = IdleEnds(ROW[:0], np.array([])) if ended is None else IdleEnds(ROW, np.array([ended]))
        within = np.array([2.0])
        self.budget.spend_at_wakes(ROW, traffic, ends, np.array([asleep]), within, STARTS, self.now + TICK)
        return self(ended=ended, waiting=waiting, running=running, finished=finished)

    def cold(self, delayed, ended=HOUR):
        """A pause ends at zero replicas, and so many requests arrive before one is ready."""
        self()(ended=ended, ready=0.0, waiting=1.0)(ready=0.0, waiting=delayed)
        return self(ready=1.0, waiting=0.0, running=delayed)(finished=delayed)

    def price(self, *, resting=False):
        return float(self.budget.price(np.array([resting]), STARTS, self.now)[0])

    @property
    def account(self):
        return float(self.budget.account[0])


@pytest.fixture
def watched():
    return Watched()()


def test_request_adds_its_share_and_a_cold_start_takes_the_requests_that_it_delays(watched):
    watched(finished=10_000.0)
    assert watched.account == pytest.approx(90.0)
    watched.cold(40.0)
    assert watched.account == pytest.approx(90.0 - 40.0 + 40.0 * BUDGET)
    assert watched.budget.delayed.tolist() == [40.0]


def test_requests_that_queue_behind_those_of_the_start_are_delayed_too(watched):
    watched()(ended=HOUR, ready=0.0, waiting=5.0)
    watched(ready=1.0, waiting=5.0, running=3.0)  # it is ready, and eight have arrived
    watched(ready=1.0, waiting=1.0, running=9.0, finished=2.0)
    watched(ready=1.0, waiting=0.0, running=10.0, finished=1.0)
    assert watched.budget.delayed.tolist() == [13.0]
    watched(ready=1.0, running=50.0)
    assert watched.budget.delayed.tolist() == [13.0]


def test_cold_start_is_counted_until_a_replica_is_ready_even_if_its_requests_give_up(watched):
    watched()(ended=HOUR, ready=0.0, waiting=5.0)(ready=0.0)
    assert np.isnan(watched.budget.delayed).all()
    watched(ready=0.0, waiting=3.0)(ready=1.0, running=3.0)
    assert watched.budget.delayed.tolist() == [3.0]


def test_pause_that_was_kept_warm_for_is_measured_and_spends_nothing(watched):
    watched()(ended=HOUR, running=1.0)
    for _ in range(16):
        watched(running=1.0, finished=1.0)
    assert watched.account == pytest.approx(16.0 * BUDGET)
    assert watched.budget.delayed.tolist() == [16.0]  # those of the first 75 s


def test_pause_ends_by_at_least_one_request_even_if_no_counter_shows_it(watched):
    watched()(ended=HOUR)
    for _ in range(16):
        watched()
    assert watched.budget.samples.sum() == 1.0
    assert watched.budget.delayed.tolist() == [1.0]


def test_pause_that_ends_while_another_is_counted_begins_no_count(watched):
    watched()(ended=HOUR, running=1.0)
    for turn in range(16):
        watched(running=1.0, finished=1.0, ended=HOUR if turn == 7 else None)
    assert watched.budget.delayed.tolist() == [16.0]


@pytest.mark.parametrize(("pause", "samples"), [(59.9, 0.0), (60.0, 1.0)])
def test_pause_in_which_nothing_sleeps_is_not_counted(watched, pause, samples):
    watched.cold(5.0, ended=pause)
    assert watched.budget.samples.sum() == samples


def test_wake_of_engines_takes_the_requests_that_wait_longer_than_the_slo_allows(watched):
    watched.asleep(ended=HOUR, waiting=1.0)
    watched.asleep(waiting=30.0)  # after 5 s
    watched.asleep(asleep=False, waiting=10.0, running=40.0)
    watched.asleep(asleep=False, running=50.0)  # after 15 s no request waits
    assert watched.account == pytest.approx(-50.0 * 13.0 / 15.0)
    watched.asleep(asleep=False, running=99.0)
    assert watched.account == pytest.approx(-50.0 * 13.0 / 15.0)  # each wake once
    for _ in range(12):
        watched(running=99.0)
    # What a cold start delays is what comes within a start-up time, as if it had been kept warm.
    assert watched.budget.delayed[0] > 50.0


def test_wake_that_is_over_when_it_is_first_seen_or_within_the_slo_takes_nothing(watched):
    watched.asleep(asleep=False, ended=HOUR, running=1.0).asleep(asleep=False, running=9.0)
    assert watched.account == 0.0
    traffic = Traffic(*(np.array([x]) for x in (0.0, 3.0, 0.0, 1.0)))
    ends, nothing = IdleEnds(ROW, np.array([HOUR])), IdleEnds(ROW[:0], np.array([]))
    watched.budget.spend_at_wakes(ROW, traffic, ends, np.array([True]), np.array([2.0]), STARTS, 2000.0)
    watched.budget.spend_at_wakes(ROW, traffic, nothing, np.array([False]), np.array([2.0]), STARTS, 2002.0)
    assert watched.account == 0.0


def test_one_request_that_waits_for_a_wake_counts_whole(watched):
    watched.asleep(ended=HOUR, waiting=1.0).asleep(asleep=False, running=1.0)
    assert watched.account == -1.0


def test_requests_before_a_wake_are_not_late(watched):
    watched(finished=1000.0).asleep(ended=HOUR, waiting=1.0).asleep(asleep=False, running=1.0)
    assert watched.account == pytest.approx(1000.0 * BUDGET - 1.0)


def test_wake_that_fails_ends_its_count(watched):
    watched.asleep(ended=HOUR, waiting=1.0)
    for _ in range(200):
        watched.asleep(waiting=1.0)
    assert watched.account == pytest.approx(-1.0)


@pytest.mark.parametrize(("asleep", "account"), [(True, -7.0 / 5.0 * 3.0), (False, 0.0)])
def test_workload_with_sleep_mode_spends_its_budget_at_wakes(asleep, account):
    specs = Specs.stack([Spec(0, 8, (), ttft=2.0, itl=0.05, gateway=True, pods=True)])
    teaching, sleep = KeepWarmConfig(learns=True, lowest=60.0), SleepConfig(0.1, None, 15.0, 60.0)
    source = ConstraintSource(specs, [WorkloadOverrides()], [teaching], PRICES, sleep=[sleep])
    readings, cost, whole = Readings.unknown(1), ReplicaCost(*np.full((2, 1), np.nan)), np.ones(1, dtype=np.bool_)
    readings.ready[:] = readings.wanted[:] = 1.0

    def look(now, held=0.0, *, asleep=False):
        readings.held[:], readings.measured_at[:] = held, now
        source.rest(ROW, readings, whole, cost, np.zeros(1), now, np.array([asleep]))

    look(1000.0, 1.0)
    for now in range(1005, 2000, 5):
        look(float(now), asleep=asleep)
    look(2000.0, 1.0, asleep=asleep)
    readings.running[:] = 7.0
    look(2005.0)
    assert source.columns()["budget.account"].tolist() == pytest.approx([account])


def test_pause_that_nothing_sleeps_in_is_not_measured(watched):
    watched.cold(40.0, ended=59.0)
    assert np.isnan(watched.budget.delayed[0])


def test_price_is_half_a_start_per_delayed_request_in_debt_and_halves_with_each_cold_start_in_hand(watched):
    watched.cold(64.0)
    assert watched.account < 0.0
    prices = [watched.price()]
    for _ in range(3):
        watched.budget.account[0] = max(watched.account, 0.0) + 64.0
        prices.append(watched.price())
    assert prices == [32.0, 16.0, 8.0, 4.0]


def test_price_before_the_first_pause_is_that_of_the_mean_rate(watched):
    for _ in range(100):
        watched(finished=5.0)
    # 75 requests per start, of which 4.5 are in the account: 6 % of a cold start.
    assert watched.price() == 32.0


def test_price_of_a_workload_without_requests_is_unknown():
    watched = Watched()
    assert np.isnan(watched.price())
    watched.finished = np.nan
    assert np.isnan(watched()().price())


def test_price_is_fixed_while_the_workload_rests(watched):
    watched.cold(64.0)
    before = watched.price()
    watched.budget.account[0] = 1000.0
    assert watched.price(resting=True) == before
    assert watched.price() < before


def test_morning_that_delays_many_has_another_price_than_the_afternoon(watched):
    for day in range(5):
        for hour, delayed in ((7.0, 400.0), (16.0, 20.0)):
            watched.now = day * DAY + hour * HOUR
            watched.cold(delayed, ended=0.4 * HOUR)
    watched.budget.account[0] = 0.0
    watched.now = 5 * DAY + 7 * HOUR
    morning = watched.price()
    watched.now += 9 * HOUR
    assert morning >= 8.0 * watched.price()


def test_unknown_counter_changes_no_account_and_its_rise_counts_once_it_is_known(watched):
    watched.cold(40.0)
    before, finished = watched.account, watched.finished
    watched.finished = np.nan
    watched()(ended=HOUR, ready=0.0, waiting=3.0)(ready=1.0)
    assert watched.account == before
    watched.finished = finished + 1000.0
    assert watched().account == pytest.approx(before + 9.0)


def test_clock_set_back_ends_a_count_without_a_sample(watched):
    watched()(ended=HOUR, ready=0.0, waiting=5.0)
    watched.now -= DAY
    watched(ready=1.0, running=9.0)(ready=1.0)
    assert np.isnan(watched.budget.delayed[0])
    assert np.isfinite(watched.cold(9.0).price())


def test_cold_start_that_takes_longer_than_usual_delays_all_requests_until_it_ends(watched):
    watched()(ended=HOUR, ready=0.0, waiting=1.0)
    for _ in range(round(2 * START / TICK)):
        watched(ready=0.0, waiting=20.0)
    watched(ready=1.0, running=30.0)
    assert watched.budget.delayed.tolist() == [30.0]


def test_queue_that_never_drains_ends_the_count(watched):
    watched()(ended=HOUR, ready=0.0, waiting=5.0)
    for _ in range(round(9 * START / TICK)):
        watched(waiting=5.0, finished=1.0)
    assert watched.budget.delayed[0] < 200.0


EVENTS = st.tuples(st.floats(0, 1e6), st.floats(0, 1e5), st.booleans(), st.floats(0, 2 * DAY))


@given(st.lists(EVENTS, max_size=30))
@settings(max_examples=examples(20), deadline=None)
def test_state_and_price_stay_within_their_bounds(events):
    watched = Watched()()
    for finished, delayed, backwards, moved in events:
        watched(finished=finished).cold(delayed, ended=moved)
        watched.now += -moved if backwards else moved
        price = watched.price()
        budget = watched.budget
        assert np.isnan(price) or 0.0 < price < 1e9
        assert ((budget.samples >= 0.0) & (budget.samples <= SAMPLES)).all()
        if np.isfinite(budget.delayed[0]):
            assert abs(watched.account) <= MOST_STARTS * budget.delayed[0] * (1 + 1e-9)


def test_budget_survives_a_restart_and_garbage_is_reset(watched):
    watched.cold(64.0)
    columns = {name: column.copy() for name, column in watched.budget.columns().items()}
    assert sum(column[0].size for column in columns.values()) == 2 + 2 * PARTS
    again = Watched()
    again.budget.take(columns, ROW, ROW)
    again.now = watched.now
    assert again.price() == watched.price()
    for name, value in (("account", np.inf), ("means", -1.0), ("samples", 1e9), ("means", np.nan)):
        broken = {**columns, f"budget.{name}": np.full_like(columns[f"budget.{name}"], value)}
        again.budget.take(broken, ROW, ROW)
        assert again.account == 0.0
        assert np.isnan(again.price())
    again.budget.take({"budget.means": np.zeros((1, 3))}, ROW, ROW)
    assert again.account == 0.0


def test_count_under_way_is_not_taken_for_another_process(watched):
    watched()(ended=HOUR, ready=0.0, waiting=5.0)
    watched.budget.take(watched.budget.columns(), ROW, ROW)
    watched(ready=1.0)
    assert np.isnan(watched.budget.delayed[0])


def spent(pauses, *, rate, busy_s=1200.0):
    """Runs pauses through the keep-warm estimator as the daemon does; the share of requests that a start delays."""
    budget, gaps = ErrorBudget(1), Gaps(1)
    rules = KeepWarmRules(np.array([True]), *(np.array([x]) for x in (300.0, 60.0, 4 * HOUR)))
    keep_warm, now, finished, delayed = KeepWarm(rules), 0.0, 0.0, 0.0
    no_ends = IdleEnds(ROW[:0], np.array([]))

    def observe(ended, ready, waiting):
        traffic = Traffic(*(np.array([x]) for x in (finished, waiting, waiting, ready)))
        budget.observe(ROW, traffic, ended, LOWEST, STARTS, now)
        clients = budget.price(np.array([False]), STARTS, now)
        keep_warm.learn(ended, gaps, Stakes(STARTS, STARTS, np.array([1.0]), 12.0 * clients), now)

    observe(no_ends, 1.0, 0.0)
    for pause in pauses:
        now, finished = now + busy_s, finished + rate * busy_s
        observe(no_ends, 1.0, 0.0)
        slept = pause > keep_warm.schedule.keep_warm[0]
        now += pause
        ends = IdleEnds(ROW, np.array([pause]))
        gaps.histograms.add(ROW, ends.lengths, now)
        observe(ends, 0.0 if slept else 1.0, 0.0)
        now += START
        if slept:
            delayed += rate * START
            observe(no_ends, 0.0, rate * START)
        finished += rate * START
        observe(no_ends, 1.0, 0.0)
    return delayed / finished


@pytest.mark.parametrize("rate", [0.5, 5.0, 50.0])
def test_cold_starts_spend_no_more_than_the_budget(rate):
    pauses = np.random.default_rng(3).exponential(HOUR, 400)
    assert 0.4 * BUDGET < spent(pauses, rate=rate) <= BUDGET * 1.05


def test_budget_that_pauses_cannot_keep_is_paid_for_up_to_the_prices():
    # One request per hour: each is delayed or kept warm for, and keeping warm costs 3600 against 75 * 13.
    pauses = np.full(200, HOUR)
    assert spent(pauses, rate=1.0 / START, busy_s=1.0) > 0.5
