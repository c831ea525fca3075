"""The estimated keep-warm time adapts to the idle times and never exceeds its bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy.estimators import keep_warm as costs
from scaler.policy.estimators.idle_time import Gaps, IdleEnds
from scaler.policy.estimators.keep_warm import (
    CHOICES,
    CREDIT,
    DRIP,
    MOST_CREDIT,
    IdlePlan,
    KeepWarm,
    KeepWarmRules,
    Stakes,
)
from tests.budget import examples

ROW, NO_RESTS = np.array([0]), IdleEnds(np.array([], dtype=np.int64), np.array([]))
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
CHAT = Stakes(*(np.array([x]) for x in (75.0, 90.0, 1.0, 12.0)))  # a start is worth 975
UNKNOWN = Stakes(*(np.array([x]) for x in (np.nan, np.nan, 1.0, 12.0)))


def rules(*, learns=True, constant=300.0, lowest=15.0, highest=4 * HOUR):
    return KeepWarmRules(np.array([learns]), *(np.array([float(x)]) for x in (constant, lowest, highest)))


class Rested:
    """One workload whose rests follow each other, with a second of work in between."""

    def __init__(self, stakes=CHAT, **more):
        self.gaps, self.keep_warm, self.stakes = Gaps(1), KeepWarm(rules(**more)), stakes
        self.now = self.paid = 0.0
        self.most_behind = 0.0
        self.by_rule = self.clairvoyant = 0.0
        self.keep_warm.learn(NO_RESTS, self.gaps, stakes, 0.0)

    def __call__(self, *rests):
        for rest in rests:
            self.now += rest + 1.0
            length = np.array([float(rest)])
            self.paid += costs.cost(length, self.keep_warm.schedule, self.stakes)[0]
            self.by_rule += costs.cost(length, costs.kept_warm(costs.break_even(self.stakes)), self.stakes)[0]
            self.clairvoyant += costs.clairvoyant(length, self.stakes)[0]
            self.gaps.histograms.add(ROW, length, self.now)
            self.keep_warm.learn(IdleEnds(ROW, length), self.gaps, self.stakes, self.now)
        return self

    @property
    def schedule(self):
        return IdlePlan(*(float(column[0]) for column in self.keep_warm.schedule))


def test_constant_holds_until_a_start_was_measured():
    rested = Rested(UNKNOWN)(*[HOUR] * 100)
    assert rested.schedule.keep_warm == 300.0
    assert np.isnan(rested.schedule.prewarm_from)
    assert np.isnan(rested.keep_warm.saving(ROW, rested.now).money[0])


def test_young_estimate_is_the_break_even():
    assert Rested()(*[51 * MINUTE] * 9).schedule.keep_warm == 975.0
    assert Rested()(*[51 * MINUTE] * 11).schedule.keep_warm < 60.0


def test_first_start_that_is_measured_moves_the_window_before_a_rest_has_ended():
    rested = Rested(UNKNOWN)
    rested.keep_warm.learn(NO_RESTS, rested.gaps, CHAT, 1.0)
    assert rested.schedule.keep_warm == 975.0


def test_constant_stays_a_constant():
    rested = Rested(learns=False, constant=120.0)(*[51 * MINUTE] * 50)
    assert rested.schedule.keep_warm == 120.0
    assert np.isnan(rested.schedule.prewarm_from)


def test_pauses_of_a_minute_are_outlasted_and_nights_are_not():
    # Ten pauses of a minute each hour, and twelve hours of night: kept warm for a little more than a minute.
    rested = Rested()
    for _ in range(14):
        rested(*[MINUTE] * 100, 12 * HOUR)
    assert 60.0 <= rested.schedule.keep_warm < 75.0


def test_one_request_each_seven_minutes_is_kept_warm_for():
    # Seven minutes of GPU cost 420, a start 975. A start in advance after five would be cheaper still, as long as it
    # never fails and no other workload takes the GPU meanwhile.
    rested = Rested()(*[7 * MINUTE] * 200)
    assert rested.schedule.keep_warm >= 420.0
    assert np.isnan(rested.schedule.prewarm_from)


def test_hourly_return_is_met_by_a_start_in_advance():
    rested = Rested()(*[51 * MINUTE] * 40)
    keep_warm, begin, until = rested.schedule
    assert keep_warm < 60.0
    assert begin < 51 * MINUTE - 90.0  # ready in time even if the start is slow
    assert begin > 45 * MINUTE
    assert 51 * MINUTE < until < 56 * MINUTE


def test_pauses_of_seconds_in_between_do_not_hide_the_return():
    rested = Rested()
    for _ in range(40):
        rested(*[5.0, 20.0, 9.0] * 10, 51 * MINUTE)
    keep_warm, begin, _ = rested.schedule
    assert 20.0 <= keep_warm < 60.0
    assert 45 * MINUTE < begin < 51 * MINUTE - 90.0


def test_returns_at_any_time_are_not_met_in_advance():
    rested = Rested()(*np.random.default_rng(1).exponential(3 * HOUR, 300))
    assert np.isnan(rested.schedule.prewarm_from)


def test_rests_of_a_month_are_never_enough_to_learn_from():
    # 30 days are 4.3 half-lives: 1 + 1/20 + … of them are remembered.
    rested = Rested(highest=DAY)(*[30 * DAY] * 50)
    assert rested.schedule.keep_warm == 975.0
    assert np.isnan(rested.schedule.prewarm_from)


def test_expensive_wait_is_never_cut_short_and_a_cheap_one_is():
    def window(waiting):
        stakes = CHAT._replace(waiting=np.array([waiting]))
        return Rested(stakes)(*np.random.default_rng(2).exponential(600.0, 300)).schedule.keep_warm

    assert window(100.0) > 1800.0
    assert window(0.1) < 60.0


def test_bounds_hold_for_every_estimate():
    assert Rested(lowest=200.0)(*[51 * MINUTE] * 40).schedule.keep_warm >= 200.0
    assert Rested(highest=400.0)(*[7 * MINUTE] * 40).schedule.keep_warm <= 400.0
    assert Rested(highest=400.0).schedule.keep_warm == 400.0


def test_workload_without_credit_falls_back_to_the_rule():
    # Learned: rests are an hour, so sleep at once. Then each ends just after it was put to sleep.
    rested = Rested()(*[HOUR * 5] * 20)
    asleep_after = rested.schedule.keep_warm
    assert asleep_after < 60.0
    before = rested.paid
    tries = 0
    while rested.schedule.keep_warm < 975.0 and tries < 100:
        rested(rested.schedule.keep_warm + 1.0)
        tries += 1
    assert tries <= MOST_CREDIT + 3
    assert rested.paid - before <= (MOST_CREDIT + 3) * 1100.0


@st.composite
def lives(draw):
    """Rests of a workload: blocks of like ones, so that there is something to learn, and to be wrong about."""
    blocks = st.tuples(st.floats(0, 2e4), st.integers(1, 30))
    return [rest for length, count in draw(st.lists(blocks, min_size=1, max_size=8)) for rest in [length] * count]


STARTS = st.floats(5, 300)
WAITING = st.floats(0.1, 30)


@given(lives(), STARTS, WAITING)
@settings(max_examples=examples(10), deadline=None)
def test_cost_never_exceeds_the_bound(rests, start, waiting):
    stakes = Stakes(*(np.array([x]) for x in (start, start * 1.3, 1.0, waiting)))
    rested = Rested(stakes, lowest=0.0, highest=1e6)(*rests)
    one = costs.start_cost(stakes)[0]
    assert rested.paid <= (1.0 + DRIP) * rested.by_rule + CREDIT * one + 1e-6
    assert rested.by_rule <= 2.0 * rested.clairvoyant + 1e-6
    assert rested.paid <= 2.0 * (1.0 + DRIP) * rested.clairvoyant + CREDIT * one + 1e-6
    assert rested.keep_warm.columns()["keepwarm.credit"][0] >= -1e-6


@given(st.integers(0, 2**32 - 1), STARTS)
@settings(max_examples=examples(4), deadline=None)
def test_adversary_that_knows_the_schedule_does_not_break_the_bound(seed, start):
    stakes = Stakes(*(np.array([x]) for x in (start, start * 1.3, 1.0, 10.0)))
    rested, chance = Rested(stakes, lowest=0.0, highest=1e6), np.random.default_rng(seed)
    for _ in range(150):
        keep_warm, begin, until = rested.schedule
        worst = [keep_warm + 1e-3, begin - 1e-3, until + 1e-3, 5 * HOUR]
        rested(next(rest for rest in chance.permutation(worst) if rest >= 0))
    assert rested.paid <= 2.0 * (1.0 + DRIP) * rested.clairvoyant + CREDIT * costs.start_cost(stakes)[0] + 1e-6


def test_saving_is_the_cost_that_was_avoided():
    # 24 rests of an hour less a second a day, for ten weeks. The constant of 5 min costs 300 + 75 s of GPU and 75 s of
    # waiting each time. Once learned, little more than the start is paid.
    rested = Rested()(*[HOUR - 1.0] * 24 * 70)
    saving = rested.keep_warm.saving(ROW, rested.now)
    up = costs.up_seconds(np.array([HOUR - 1.0]), rested.keep_warm.schedule, CHAT)[0]
    assert saving.gpu_seconds[0] == pytest.approx(24 * (375.0 - up), rel=0.02)
    paid = costs.cost(np.array([HOUR - 1.0]), rested.keep_warm.schedule, CHAT)[0]
    assert saving.money[0] == pytest.approx(24 * (375.0 + 12 * 75 - paid), rel=0.02)


def test_estimates_survive_a_restart():
    rested = Rested()(*[51 * MINUTE] * 40)
    again = Rested()
    again.gaps.take(rested.gaps.columns(), ROW, ROW)
    again.keep_warm.take(rested.keep_warm.columns(), ROW, ROW)
    assert again.schedule == rested.schedule
    again.now = rested.now
    rested(51 * MINUTE)
    again(51 * MINUTE)
    assert again.schedule == rested.schedule
    assert again.keep_warm.saving(ROW, again.now) == rested.keep_warm.saving(ROW, rested.now)


def test_invalid_values_in_a_state_change_no_other_workload():
    rested = Rested()(*[51 * MINUTE] * 40)
    before = rested.schedule
    rested.keep_warm.take({}, ROW, ROW)
    rested.keep_warm.take({"keepwarm.account": np.zeros((1, 9)), "keepwarm.next": np.zeros(1)}, ROW, ROW)
    assert rested.schedule == before
    broken = {f"keepwarm.{name}": np.array([np.nan]) for name in ("keep_warm_s", "start", "credit")}
    rested.keep_warm.take(broken, ROW, ROW)
    assert rested.schedule.keep_warm == 300.0
    rested.gaps.take({"gaps.weights": np.full((1, 3), 1.0), "gaps.reference_at": np.zeros(1)}, ROW, ROW)
    wild = np.full(rested.gaps.histograms.weights.shape, np.inf, dtype=np.float32)
    rested.gaps.take({"gaps.weights": wild, "gaps.reference_at": np.zeros(1)}, ROW, ROW)
    rested(51 * MINUTE)
    assert rested.schedule.keep_warm == 975.0


def test_configured_constant_restores_no_schedule_and_new_bounds_hold_at_once():
    rested = Rested()(*[51 * MINUTE] * 40)
    constant, bounded = KeepWarm(rules(learns=False)), KeepWarm(rules(lowest=200.0))
    for new in (constant, bounded):
        new.take(rested.keep_warm.columns(), ROW, ROW)
    assert constant.schedule.keep_warm.tolist() == [300.0]
    assert np.isnan(constant.schedule.prewarm_from).all()
    assert bounded.schedule.keep_warm.tolist() == [200.0]


def test_thousand_changed_prices_are_spread_over_ticks():
    many = KeepWarm(KeepWarmRules(*(np.repeat(column, 1000) for column in rules())))
    stakes, gaps = Stakes(*(np.repeat(column, 1000) for column in CHAT)), Gaps(1000)
    for calls in range(1, 17):
        many.learn(NO_RESTS, gaps, stakes, 0.0)
        assert (many.schedule.keep_warm == 975.0).sum() == min(1000, calls * CHOICES)
    # Those whose rests end all the time do not keep the others waiting.
    for waiting in range(16):
        many.learn(NO_RESTS, gaps, stakes._replace(waiting=np.repeat(11.0 + waiting / 100, 1000)), 0.0)
    assert (many.schedule.keep_warm < 975.0).all()


def test_ten_workloads_at_once_are_chosen_for_as_each_alone():
    chance, means = np.random.default_rng(3), np.geomspace(20, 20000, 10)
    # Half of them come back like clockwork, so that some are started in advance.
    lengths = np.where(
        np.arange(10) % 2, chance.normal(means, means / 200, (60, 10)), chance.exponential(means, (60, 10))
    )
    together, everyone = Gaps(10), np.arange(10)
    stakes = Stakes(*(np.repeat(column, 10) for column in CHAT))
    every = KeepWarm(KeepWarmRules(*(np.repeat(column, 10) for column in rules())))
    for now, rests in enumerate(lengths):
        together.histograms.add(everyone, rests, float(now))
        every.learn(IdleEnds(everyone, rests), together, stakes, float(now))
    for row in everyone:
        gaps, alone = Gaps(1), KeepWarm(rules())
        for now, rests in enumerate(lengths[:, row]):
            gaps.histograms.add(ROW, np.array([rests]), float(now))
            alone.learn(IdleEnds(ROW, np.array([rests])), gaps, CHAT, float(now))
        got = [column[row] for column in every.schedule]
        np.testing.assert_array_equal(got, [column[0] for column in alone.schedule])
    assert np.isfinite(every.schedule.prewarm_from).sum() >= 2


def test_saving_of_a_start_in_advance_is_that_of_each_rest():
    """A rest that ends before the start loses nothing; during it, a part of the wait; after it, all of the wait, at the
    cost of the time kept up; and one that outlasts it pays for the start too.
    """
    edges = np.arange(0.0, 70.0, 10.0)
    shares = np.array([[0.1, 0.2, 0.05, 0.25, 0.15, 0.25, 0.0]])
    start, idle, waiting, begin, until = 20.0, 0.5, 3.0, 10.0, 50.0
    ready = begin + start

    def saved(rest):
        if rest < begin:
            return 0.0
        if rest < ready:
            return (start - (ready - rest)) * waiting
        if rest < until:
            return start * waiting - (rest - ready) * idle
        return -(until - ready + start) * idle

    rests = costs.middles(edges)
    expected = sum(share * saved(rest) for share, rest in zip(shares[0].tolist(), rests.tolist(), strict=True))
    stakes = Stakes(*(np.full((1, 1), each) for each in (start, 25.0, idle, waiting)))
    advance = IdlePlan(*(np.full((1, 1), each) for each in (0.0, begin, until)))
    assert costs._Running(shares, edges).saved_by(advance, stakes).item() == pytest.approx(expected)


@pytest.mark.parametrize(("kept", "window"), [(10.0, 30.0), (30.0, 30.0), (50.0, 30.0), (0.0, 30.0)])
def test_worst_regret_is_the_most_that_any_rest_costs_more(kept, window):
    start, idle, waiting = 20.0, 0.5, 3.0

    def cost(up, rest):
        return min(up, rest) * idle + (start * (idle + waiting) if rest >= up else 0.0)

    most = max(cost(kept, rest) - cost(window, rest) for rest in np.arange(0.0, 100.0, 0.5).tolist())
    stakes = Stakes(*(np.full((1, 1), each) for each in (start, 25.0, idle, waiting)))
    unknown = np.full((1, 1), np.nan)
    plain = costs.worst_regret(IdlePlan(np.full((1, 1), kept), unknown, unknown), np.full((1, 1), window), stakes)
    assert plain.item() == pytest.approx(most)
    ahead = IdlePlan(np.full((1, 1), kept), np.full((1, 1), 60.0), np.full((1, 1), 80.0))
    assert costs.worst_regret(ahead, np.full((1, 1), window), stakes).item() == pytest.approx(most + 20.0 * idle)
