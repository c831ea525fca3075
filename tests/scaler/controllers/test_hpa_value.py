"""External metrics of type Value: replicas are the ratio times the ready pods; starting pods do not count."""

from __future__ import annotations

import math

import pytest

from scaler.controllers.hpa import (
    HpaBehavior,
    HpaMemory,
    HpaSpec,
    Limit,
    PolicyKind,
    ScalingPolicy,
    ScalingRules,
    WholeMetric,
    step,
)

FREE = ScalingRules((ScalingPolicy(PolicyKind.PERCENT, 900, 15.0),), 0.0)
GONE = ScalingRules((ScalingPolicy(PolicyKind.PERCENT, 100, 15.0),), 0.0)
SPEC = HpaSpec(max_replicas=50, behavior=HpaBehavior(FREE, GONE))


def outcome(value, target, current, ready=None, spec=SPEC):
    metric = WholeMetric(value, target, current if ready is None else ready)
    return step(spec, HpaMemory(), [metric], current, current, 0.0)[0]


@pytest.mark.parametrize(
    ("value", "target", "current", "expected"),
    [
        (8.6, 4.4, 1, 2),  # 1.95 times 1
        (8.6, 5.75, 5, 8),  # 1.496 times 5
        (8.6, 14.334, 5, 3),  # 0.6 times 5
        (8.6, 8.888, 3, 3),  # 0.968 is inside the tolerance
    ],
)
def test_replicas_are_the_ratio_times_the_ready_pods(value, target, current, expected):
    assert outcome(value, target, current).replicas == expected


def test_starting_pods_do_not_count_outside_the_tolerance():
    # 1.25 times the 4 ready pods, not times all 8.
    assert outcome(100.0, 80.0, 8, ready=4).proposed == 5
    assert outcome(100.0, 80.0, 8, ready=8).proposed == 10


def test_replicas_inside_the_tolerance_stay_ready_or_not():
    inside = outcome(84.0, 80.0, 8, ready=4)
    assert (inside.replicas, inside.limit) == (8, Limit.TOLERANCE)
    assert inside.why == "within tolerance: 84 is within ±10 % of 80"
    assert outcome(80.0, 80.0, 8, ready=4).replicas == 8


def test_value_of_zero_is_limited_by_the_minimum():
    assert outcome(0.0, 80.0, 3).limit is Limit.MIN


@pytest.mark.parametrize("missing", [None, math.nan])
def test_error_keeps_the_replicas(missing):
    assert outcome(missing, 80.0, 4).limit is Limit.ERROR
