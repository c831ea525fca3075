"""The model of the HorizontalPodAutoscaler follows its documentation and its source."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.controllers.hpa import (
    HpaBehavior,
    HpaMemory,
    HpaMetric,
    HpaSpec,
    Limit,
    PolicyKind,
    ScalingPolicy,
    ScalingRules,
    Select,
    TimedReplicas,
    step,
)

PODS, PERCENT = PolicyKind.PODS, PolicyKind.PERCENT
# Any rate and no windows. AT_ONCE has the cluster's tolerance, EXACT has none.
AT_ONCE_UP, AT_ONCE_DOWN = (
    ScalingRules((ScalingPolicy(PERCENT, 900, 15.0),), 0.0),
    ScalingRules((ScalingPolicy(PERCENT, 100, 15.0),), 0.0),
)
EXACT = HpaBehavior(up=replace(AT_ONCE_UP, tolerance=0.0), down=replace(AT_ONCE_DOWN, tolerance=0.0))


def one(
    spec: HpaSpec, value: float | None, current: int, memory: HpaMemory | None = None, now: float = 0.0, target=1.0
):
    return step(spec, memory or HpaMemory(), [HpaMetric(value, target)], current, current, now)


def run(spec: HpaSpec, value: float, current: int, syncs: int) -> list[int]:
    """Replicas after each sync, every 15 s; each outcome is applied before the next sync."""
    memory, replicas = HpaMemory(), []
    for sync in range(syncs):
        outcome, memory = one(spec, value, current, memory, now=15.0 * sync)
        current = outcome.replicas
        replicas.append(current)
    return replicas


def test_twice_the_target_doubles_the_replicas():
    # The documentation's example: 200m with a target of 100m, here as a total over 3 replicas.
    outcome, _ = one(HpaSpec(max_replicas=100, behavior=EXACT), 0.6, current=3, target=0.1)
    assert outcome.replicas == 6


def test_result_does_not_depend_on_the_current_replicas_outside_the_tolerance():
    spec = HpaSpec(max_replicas=100, behavior=EXACT)
    assert [one(spec, 17.0, current)[0].replicas for current in (2, 5, 30)] == [17, 17, 17]


def test_tolerance_of_ten_percent_loses_one_replica_from_ten_on():
    # 10/9 = 1.111 and 8/9 = 0.889 are outside; 11/10 = 1.1, 9/10 = 0.9 and 12/11 = 1.091 are not: the ends of
    # the band belong to it (Tolerances.isWithin, Kubernetes 1.33; before, |1 - 1.1| was greater than 0.1, and 11 the
    # first to lose +1).
    spec = HpaSpec(max_replicas=100, behavior=HpaBehavior(AT_ONCE_UP, AT_ONCE_DOWN))
    assert [one(spec, n + 1.0, n)[0].replicas for n in (8, 9, 10, 11, 12)] == [9, 10, 10, 11, 12]
    assert [one(spec, n - 1.0, n)[0].replicas for n in (8, 9, 10, 11, 12)] == [7, 8, 10, 11, 12]
    assert one(spec, 11.0, 10)[0].limit is Limit.TOLERANCE


def test_no_tolerance_keeps_every_step():
    spec = HpaSpec(max_replicas=100, behavior=EXACT)
    assert [one(spec, float(n + 1), n)[0].replicas for n in range(1, 60)] == list(range(2, 61))
    assert [one(spec, float(n - 1), n)[0].replicas for n in range(2, 60)] == list(range(1, 59))


def test_tolerance_is_per_direction():
    behavior = HpaBehavior(up=EXACT.up, down=AT_ONCE_DOWN)
    spec = HpaSpec(max_replicas=100, behavior=behavior)
    assert one(spec, 21.0, 20)[0].replicas == 21
    assert one(spec, 19.0, 20)[0].replicas == 20
    assert "within tolerance" in one(spec, 19.0, 20)[0].why


def test_values_are_truncated_to_a_thousandth():
    spec = HpaSpec(max_replicas=100, behavior=EXACT)
    assert one(spec, 3.0009, 2)[0].replicas == 3
    assert one(spec, 3.001, 2)[0].replicas == 4


def test_hpa_does_nothing_at_zero_replicas():
    outcome, memory = one(HpaSpec(max_replicas=10), 7.0, current=0)
    assert (outcome.replicas, outcome.limit) == (0, Limit.AT_ZERO)
    assert memory.recommended == (TimedReplicas(0.0, 0),)


@pytest.mark.parametrize("missing", [None, math.nan])
def test_error_keeps_the_replicas(missing):
    outcome, _ = one(HpaSpec(max_replicas=10, behavior=EXACT), missing, current=4)
    assert (outcome.replicas, outcome.limit) == (4, Limit.ERROR)


def test_missing_metric_blocks_scale_down_and_allows_scale_up():
    spec = HpaSpec(max_replicas=10, behavior=EXACT)
    down, _ = step(spec, HpaMemory(), [HpaMetric(2.0, 1.0), HpaMetric(None, 1.0)], 4, 4, 0.0)
    up, _ = step(spec, HpaMemory(), [HpaMetric(6.0, 1.0), HpaMetric(None, 1.0)], 4, 4, 0.0)
    assert (down.replicas, down.limit) == (4, Limit.ERROR)
    assert up.replicas == 6


def test_metric_with_the_highest_demand_wins():
    metrics = [HpaMetric(2.0, 1.0), HpaMetric(50.0, 10.0), HpaMetric(3.0, 1.0)]
    assert step(HpaSpec(max_replicas=10, behavior=EXACT), HpaMemory(), metrics, 2, 2, 0.0)[0].replicas == 5


def test_minimum_and_maximum_have_priority_over_the_metrics():
    assert one(HpaSpec(max_replicas=3), None, current=5)[0].replicas == 3
    assert one(HpaSpec(max_replicas=9, min_replicas=2), None, current=1)[0].replicas == 2


def test_outcome_limited_by_maximum_or_minimum_names_the_limit():
    up, _ = one(HpaSpec(max_replicas=5, behavior=EXACT), 9.0, current=3)
    down, _ = one(HpaSpec(max_replicas=5, min_replicas=2, behavior=EXACT), 0.0, current=3)
    assert (up.replicas, up.proposed, up.limit, up.why) == (5, 9, Limit.MAX, "limited to 5 by maxReplicas")
    assert (down.replicas, down.limit, down.why) == (2, Limit.MIN, "raised to 2 by minReplicas")


def test_default_behavior_adds_four_pods_or_doubles_every_15_seconds():
    assert run(HpaSpec(max_replicas=100, behavior=HpaBehavior()), 100.0, current=1, syncs=5) == [5, 10, 20, 40, 80]


def test_replicas_without_behavior_double_or_reach_four():
    assert run(HpaSpec(max_replicas=100), 100.0, current=1, syncs=6) == [4, 8, 16, 32, 64, 100]


def test_ten_percent_of_72_removes_8_pods_because_the_result_is_truncated():
    # The documentation's example: 80 replicas towards 10, at most 10 % or 4 pods a minute, whichever is more.
    down = ScalingRules((ScalingPolicy(PODS, 4, 60.0), ScalingPolicy(PERCENT, 10, 60.0)), window_s=0.0)
    memory, current, replicas = HpaMemory(), 80, []
    for minute in range(6):
        outcome, memory = one(
            HpaSpec(max_replicas=100, behavior=HpaBehavior(down=down)), 10.0, current, memory, 60.0 * minute
        )
        current = outcome.replicas
        replicas.append(current)
    assert replicas == [72, 64, 57, 51, 45, 40]
    assert one(HpaSpec(max_replicas=100, behavior=HpaBehavior(down=down)), 10.0, 30)[0].replicas == 26


def test_select_min_takes_the_smaller_change_and_disabled_none():
    policies = (ScalingPolicy(PODS, 4, 60.0), ScalingPolicy(PERCENT, 10, 60.0))
    least = HpaBehavior(down=ScalingRules(policies, 0.0, Select.MIN), up=ScalingRules(policies, 0.0, Select.MIN))
    never = HpaBehavior(
        down=ScalingRules(policies, 0.0, Select.DISABLED), up=ScalingRules(policies, 0.0, Select.DISABLED)
    )
    assert one(HpaSpec(max_replicas=200, behavior=least), 10.0, 80)[0].replicas == 76
    assert one(HpaSpec(max_replicas=200, behavior=least), 190.0, 80)[0].replicas == 84
    assert one(HpaSpec(max_replicas=200, behavior=least), 190.0, 20)[0].replicas == 22
    for value in (10.0, 190.0):
        outcome, _ = one(HpaSpec(max_replicas=200, behavior=never), value, 80)
        assert (outcome.replicas, outcome.limit) == (80, Limit.RATE)
        assert "disabled" in outcome.why


def test_pods_added_in_the_period_count_against_the_limit():
    spec = HpaSpec(max_replicas=100, behavior=HpaBehavior(up=ScalingRules((ScalingPolicy(PERCENT, 100, 60.0),), 0.0)))
    first, memory = one(spec, 50.0, 3)
    second, memory = one(spec, 50.0, first.replicas, memory, now=30.0)
    third, _ = one(spec, 50.0, second.replicas, memory, now=60.0)
    assert [first.replicas, second.replicas, third.replicas] == [6, 6, 12]
    assert second.why == "limited to +100 % per 60 s"


def test_pods_removed_in_the_period_may_return_on_top_of_the_limit():
    # 10 went to 6 ten seconds ago: the period began with 10, so +100 % is 20, not 12.
    memory = HpaMemory(recommended=(), removed=(TimedReplicas(90.0, 4),))
    spec = HpaSpec(max_replicas=100, behavior=HpaBehavior(up=ScalingRules((ScalingPolicy(PERCENT, 100, 60.0),), 0.0)))
    assert one(spec, 50.0, 6, memory, now=100.0)[0].replicas == 20


@pytest.mark.parametrize("behavior", [None, HpaBehavior()])
def test_scale_down_waits_until_the_highest_recommendation_has_left_the_window(behavior):
    spec, memory, current, scaled_down_at = HpaSpec(max_replicas=20, behavior=behavior), HpaMemory(), 5, None
    for sync in range(40):
        now = 15.0 * sync
        outcome, memory = one(spec, 10.0 if sync == 0 else 5.0, current, memory, now)
        if sync == 1:
            assert outcome.limit is Limit.STABILISED
            assert outcome.why == "stabilised at 10 for 285 s more"
        if outcome.replicas < current:
            scaled_down_at = now
            break
        current = outcome.replicas
    # `behavior` looks at marks younger than the window, the legacy path at those not older than it.
    assert scaled_down_at == (315.0 if behavior is None else 300.0)


def test_scale_up_window_waits_for_the_lowest_recommendation():
    spec = HpaSpec(max_replicas=20, behavior=HpaBehavior(up=ScalingRules((ScalingPolicy(PERCENT, 100, 15.0),), 60.0)))
    outcomes, memory = [], HpaMemory()
    for sync in range(6):
        outcome, memory = one(spec, 4.0 if sync == 0 else 8.0, 4, memory, 15.0 * sync)
        outcomes.append(outcome)
    assert [outcome.replicas for outcome in outcomes] == [4, 4, 4, 4, 8, 8]
    assert outcomes[1].why == "stabilised at 4 for 45 s more"


def test_first_sync_counts_the_current_replicas_as_a_recommendation():
    # A controller that restarts while 9 replicas run does not remove 8 of them at once.
    outcome, _ = one(HpaSpec(max_replicas=20), 1.0, 9)
    assert (outcome.replicas, outcome.limit) == (9, Limit.STABILISED)


VALUES = st.lists(st.one_of(st.none(), st.floats(0, 200)), min_size=1, max_size=30)
POLICIES = st.lists(
    st.builds(ScalingPolicy, st.sampled_from(PolicyKind), st.integers(1, 200), st.sampled_from([15.0, 60.0])),
    min_size=1,
    max_size=2,
).map(tuple)
RULES = st.builds(ScalingRules, POLICIES, st.sampled_from([0.0, 30.0, 300.0]), st.sampled_from(Select))


@settings(max_examples=60, deadline=None)
@given(VALUES, st.one_of(st.none(), st.builds(HpaBehavior, RULES, RULES)), st.integers(1, 60))
def test_replicas_stay_in_bounds_and_an_error_never_removes_one(values, behavior, start):
    spec, memory, current = HpaSpec(max_replicas=50, min_replicas=2, behavior=behavior), HpaMemory(), start
    for sync, value in enumerate(values):
        outcome, memory = one(spec, value, current, memory, 15.0 * sync)
        assert 2 <= outcome.replicas <= 50
        if value is None and 2 <= current <= 50:
            assert outcome.replicas == current
        if outcome.limit is Limit.NONE:
            assert outcome.replicas == outcome.proposed
        current = outcome.replicas
