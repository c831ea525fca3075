"""Between ready and zero: the plan is the cheapest over the recorded pauses, and nothing unknown leads to sleep."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy.columns import NOT_YET, REASONS, WARM
from scaler.policy.sleep_tiers import (
    ASLEEP,
    READY,
    ZERO,
    TierBounds,
    TierCosts,
    TierInputs,
    TierMemory,
    decide_tiers,
    plan,
)
from tests.budget import examples

from .estimators import reference_sleep as reference

EDGES = np.array([0.0, 20.0, 60.0, 150.0, 400.0, 1000.0, 3000.0])
MIDDLES = [*((EDGES[:-1] + EDGES[1:]) / 2.0).tolist(), float(EDGES[-1])]
HOUR = 3600.0
# A second ready costs 1, asleep 0.1, a wake of 2 s 26, a start of 75 s 975.
CHAT, BOUNDS = (1.0, 0.1, 26.0, 975.0), (15.0, 60.0, 4 * HOUR)


def planned(pauses, costs=CHAT, bounds=BOUNDS):
    """The plan of one workload whose pauses all lie in the middles of the buckets."""
    counts = np.array([[pauses.count(middle) for middle in MIDDLES]], dtype=float)
    found = plan(
        counts / max(len(pauses), 1),
        np.array([float(len(pauses))]),
        EDGES,
        TierCosts(*(np.array([cost]) for cost in costs)),
        TierBounds(*(np.array([bound]) for bound in bounds)),
    )
    return tuple(float(column[0]) for column in found)


money = st.floats(0.01, 1000.0)
durations = st.sampled_from([60.0, 100.0, 150.0, 700.0, 1000.0, 3000.0])


@given(
    pauses=st.lists(st.sampled_from(MIDDLES), min_size=0, max_size=40),
    idle=money,
    share=st.sampled_from([0.01, 0.1, 0.5, 0.99, 1.0]),
    wake=money,
    more=money,
    earliest=st.sampled_from([20.0, 60.0]),
    zero=st.one_of(st.just((inf, inf)), st.tuples(durations, durations).map(sorted).map(tuple)),
)
@settings(max_examples=examples(300), deadline=None)
def test_plan_is_the_best_of_all_pairs_of_times(pauses, idle, share, wake, more, earliest, zero):
    costs, bounds = (idle, share * idle, wake, wake + more), (earliest, *zero)
    mine, theirs = planned(pauses, costs, bounds), reference.plan(pauses, EDGES.tolist(), costs, bounds)
    np.testing.assert_allclose(mine[1:], theirs[1:], rtol=1e-9)
    if np.isnan(mine[0]) or np.isnan(theirs[0]) or len(pauses) == 0:
        # Equal costs may be told apart by a rounding error: then one of them does as well.
        if np.isnan(mine[0]) != np.isnan(theirs[0]):
            after = mine[0] if np.isnan(theirs[0]) else theirs[0]
            zeros = [inf] if zero[0] == inf else [min(max(e, zero[0]), zero[1]) for e in EDGES.tolist()]
            best = min(reference.mean_cost(pauses, after, z, costs) for z in zeros if after < z)
            assert best == pytest.approx(theirs[3], rel=1e-9)
        return
    zeros = [inf] if zero[0] == inf else [min(max(e, zero[0]), zero[1]) for e in EDGES.tolist()]
    if len([p for p in pauses if p >= earliest]) < 10:
        assert mine[0] == pytest.approx(theirs[0])
        return
    cost = [
        min(reference.mean_cost(pauses, after, z, costs) for z in zeros if after < z) for after in (mine[0], theirs[0])
    ]
    assert cost[0] == pytest.approx(cost[1], rel=1e-9)


def test_young_plan_is_the_lower_envelope():
    assert planned([])[0] == pytest.approx(26.0 / 0.9)


def test_engine_that_keeps_its_gpu_never_sleeps():
    assert np.isnan(planned([700.0] * 20, (1.0, 1.0, 26.0, 975.0))[0])
    assert np.isnan(planned([], (1.0, 1.0, 26.0, 975.0))[0])


def test_cheap_sleep_comes_at_once_and_costs_less_than_ready_or_zero():
    after, ready, asleep, zero = planned([2000.0] * 20)
    # 15 s ready, 1985 s asleep and a wake; without sleep, 60 s ready and a start.
    assert (after, ready) == (15.0, 2000.0)
    assert asleep == pytest.approx(15.0 + 198.5 + 26.0)
    assert zero == pytest.approx(60.0 + 975.0)


def test_sleep_pays_before_a_time_of_zero_that_is_configured():
    after, _, asleep, zero = planned([3000.0] * 20, CHAT, (15.0, 60.0, 60.0))
    # 15 s ready, 45 s asleep, and a start: less than 60 s ready and a start.
    assert (after, zero) == (15.0, 60.0 + 975.0)
    assert asleep == pytest.approx(15.0 + 298.5 + 26.0)


@pytest.mark.parametrize("zero", [(60.0, 4 * HOUR), (inf, inf)])
def test_sleep_waits_until_short_pauses_are_over_if_their_wakes_cost_more(zero):
    # Asleep after 15 s, a pause of 40 s costs 15 + 2.5 + 26 instead of 40; a long one, 40.5 less than after 60 s.
    assert planned([40.0] * 100 + [2000.0] * 5, CHAT, (15.0, *zero))[0] == 60.0
    assert planned([40.0] * 30 + [2000.0] * 5, CHAT, (15.0, *zero))[0] == 15.0


NOW = 10_000.0
IDLE = {
    "enabled": True, "calls": False, "after": 60.0, "earliest": 15.0, "replicas": 1.0, "active": True, "reason": WARM,
    "idle_since": NOW - 100.0, "active_at": NOW - 100.0, "in_hand": 0.0, "shows_next": True, "engines": 2.0,
    "sleeping": 0.0, "wanted_up": False, "stays_up": False,
}  # fmt: skip
BEFORE = {"tier": READY, "since": NOW - 5000.0, "slept": False, "wakes": False, "owed": False}
SLEEPS = {"tier": ASLEEP, "since": NOW - 40.0, "slept": True, "wakes": False, "owed": False}
ALL_DOWN = {"sleeping": 2.0}


def after_step(before=BEFORE, *, raise_only=False, **changed):
    inputs = TierInputs(**{name: np.array([value]) for name, value in {**IDLE, **changed}.items()})
    memory = decide_tiers(
        inputs, TierMemory(**{n: np.array([v]) for n, v in before.items()}), NOW, raise_only=raise_only
    )
    return TierMemory(*(column.tolist()[0] for column in memory))


def test_proven_idleness_for_its_time_leads_to_sleep():
    assert after_step() == (ASLEEP, NOW, False, False, False)
    assert after_step(idle_since=NOW - 59.0).tier == READY
    assert after_step({**BEFORE, "since": NOW - 59.0}).tier == READY
    assert after_step(after=np.nan).tier == READY


def test_state_that_is_found_is_as_old_as_the_idle_time_until_it_sleeps():
    found = {**BEFORE, "tier": NOT_YET, "since": np.nan}
    np.testing.assert_equal(after_step(found, idle_since=NOW - 59.0)[:2], (READY, np.nan))
    assert after_step(found)[:2] == (ASLEEP, NOW)


def test_engines_that_are_found_asleep_need_only_the_earliest_time():
    assert after_step({**BEFORE, "tier": NOT_YET, "since": np.nan}, **ALL_DOWN, idle_since=NOW).tier == ASLEEP
    assert after_step(**ALL_DOWN, idle_since=NOW - 15.0).tier == ASLEEP
    assert after_step(**ALL_DOWN, idle_since=NOW - 14.9).tier == READY
    assert after_step(sleeping=1.0, idle_since=NOW - 15.0).tier == READY


unknown = {"idle_since": np.nan, "engines": np.nan, "sleeping": np.nan, "replicas": np.nan, "after": np.nan}
missing = [{name: value} for name, value in unknown.items()] + [
    {"engines": 0.0}, {"shows_next": False}, {"wanted_up": True}, {"stays_up": True}, {"in_hand": 1.0},
    *({"reason": code} for code in range(len(REASONS)) if code != WARM),
]  # fmt: skip


@pytest.mark.parametrize("change", missing, ids=str)
def test_nothing_unknown_and_no_missing_proof_puts_to_sleep(change):
    assert after_step(**change).tier == READY
    assert after_step({**BEFORE, "tier": NOT_YET, "since": np.nan}, **change).tier == READY


def test_arrival_between_two_sweeps_puts_nothing_to_sleep():
    assert after_step(raise_only=True).tier == READY
    assert after_step(SLEEPS, **ALL_DOWN, in_hand=1.0, raise_only=True).tier == READY
    assert after_step(SLEEPS, **ALL_DOWN, replicas=0.0, active=False, raise_only=True).tier == ASLEEP


@pytest.mark.parametrize("change", [{"in_hand": 1.0}, {"wanted_up": True}, {"active_at": NOW - 1.0}], ids=str)
def test_demand_or_a_floor_wakes_what_sleeps_and_the_wake_stays_due_until_it_is_done(change):
    woken = after_step(SLEEPS, **ALL_DOWN, **change)
    assert woken == (READY, NOW, False, True, False)
    # The request is gone; one of the engines still sleeps.
    assert after_step({**BEFORE, "since": NOW - 1.0, "wakes": True}, sleeping=1.0).wakes
    assert not after_step({**BEFORE, "since": NOW - 1.0, "wakes": True}).wakes


quiet = [{"stays_up": True}, {"idle_since": NOW}, {"after": np.nan}, {"active_at": SLEEPS["since"]}]


@pytest.mark.parametrize("change", [*missing[:6], *quiet], ids=str)
def test_neither_silence_nor_a_price_nor_the_clock_wakes(change):
    found = after_step(SLEEPS, **{**ALL_DOWN, **change})
    assert (found.tier, found.wakes, found.since) == (ASLEEP, False, SLEEPS["since"])


def test_zero_follows_sleep_and_a_start_is_ready():
    assert after_step(SLEEPS, **ALL_DOWN, replicas=0.0, active=False).tier == ZERO
    started = after_step({**SLEEPS, "tier": ZERO, "since": NOW - 500.0}, idle_since=NOW - 400.0)
    assert (started.tier, started.since) == (READY, NOW)


def test_engine_that_wakes_by_itself_makes_the_workload_ready_and_is_not_called():
    assert after_step(SLEEPS, sleeping=1.0) == (READY, NOW, False, False, False)
    # Before all of them were found asleep, one that is awake has not followed yet.
    assert after_step({**SLEEPS, "slept": False}, sleeping=1.0).tier == ASLEEP


GONE = pytest.mark.parametrize("gone", [{"enabled": False}, {"calls": False}], ids=str)


@GONE
def test_engine_that_calls_put_to_sleep_is_woken_when_its_sleep_mode_or_its_calls_are_taken_away(gone):
    asleep = after_step(calls=True)._asdict()
    assert (asleep["tier"], asleep["owed"]) == (ASLEEP, True)
    abandoned = after_step({**asleep, "slept": True}, **{"calls": False, **ALL_DOWN, **gone})
    assert (abandoned.wakes, abandoned.owed) == (True, True)
    # One of two is awake: the other is still to be woken. Unknown is no proof that it is.
    assert after_step(abandoned._asdict(), **{"calls": False, "sleeping": 1.0, **gone}).wakes
    assert after_step(abandoned._asdict(), **{"calls": False, "sleeping": np.nan, **gone}).owed
    done = after_step(abandoned._asdict(), **{"calls": False, **gone})
    assert (done.wakes, done.owed) == (False, False)


@GONE
def test_engine_that_others_put_to_sleep_is_not_woken_for_that(gone):
    assert not after_step(SLEEPS, **{"calls": False, **ALL_DOWN, **gone}).wakes


def test_workload_without_sleep_mode_has_no_state():
    assert after_step(SLEEPS, enabled=False)[:1] == (NOT_YET,)


number = st.sampled_from([np.nan, 0.0, 1.0, 2.0])
moment = st.sampled_from([np.nan, NOW - 500.0, NOW - 50.0, NOW - 1.0, NOW])


@given(
    st.fixed_dictionaries(
        {
            "enabled": st.booleans(), "calls": st.booleans(),
            "after": st.sampled_from([np.nan, 15.0, 60.0]), "earliest": st.just(15.0),
            "replicas": number, "active": st.booleans(), "reason": st.integers(0, len(REASONS) - 1),
            "idle_since": moment, "active_at": moment, "in_hand": st.sampled_from([0.0, 1.0]),
            "shows_next": st.booleans(), "engines": number, "sleeping": number, "wanted_up": st.booleans(),
            "stays_up": st.booleans(),
        }
    ),
    st.fixed_dictionaries(
        {
            "tier": st.integers(NOT_YET, ZERO), "since": moment, "slept": st.booleans(), "wakes": st.booleans(),
            "owed": st.booleans(),
        }
    ),
    st.booleans(),
)  # fmt: skip
@settings(max_examples=examples(400), deadline=None)
def test_what_is_put_to_sleep_is_proven_idle_and_what_is_called_has_demand_or_was_put_to_sleep_by_calls(
    inputs, before, raise_only
):
    after = after_step(before, raise_only=raise_only, **inputs)
    falls_asleep = after.tier == ASLEEP and before["tier"] in (READY, ZERO)
    if falls_asleep:
        assert not raise_only
        assert inputs["reason"] == WARM
        assert not np.isnan(inputs["idle_since"])
        assert inputs["shows_next"]
        assert (inputs["in_hand"], inputs["wanted_up"], inputs["stays_up"]) == (0.0, False, False)
    assert not (after.tier == ASLEEP and inputs["in_hand"] > 0.0)
    if after.wakes and not before["wakes"]:
        active = inputs["active_at"] > before["since"]
        abandoned = before["owed"] and not inputs["calls"]
        assert inputs["in_hand"] > 0.0 or inputs["wanted_up"] or active or abandoned
        assert inputs["sleeping"] > 0.0
