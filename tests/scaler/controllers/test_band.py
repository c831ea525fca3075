"""The published replicas are rounded past the HPA's tolerance; checked against the HPA's arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.controllers.hpa import (
    HpaBehavior,
    HpaMemory,
    HpaMetric,
    HpaSpec,
    PolicyKind,
    ScalingPolicy,
    ScalingRules,
    past_band,
    step,
)

# No window and no rate limit: only the tolerance remains.
AT_ONCE_UP = ScalingRules((ScalingPolicy(PolicyKind.PERCENT, 100_000, 15.0),), 0.0)
AT_ONCE_DOWN = ScalingRules((ScalingPolicy(PolicyKind.PERCENT, 100, 15.0),), 0.0)

TOLERANCES = st.one_of(st.sampled_from([0.0, 0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 1.0]), st.floats(0.0, 1.0))
COUNTS = st.integers(1, 400)


def round_past_band(replicas: int, current: float, tolerance: float) -> int:
    return int(past_band(np.array([float(replicas)]), np.array([current]), np.array([tolerance]))[0])


def hpa(up: float, down: float | None = None, most: int = 100_000) -> HpaSpec:
    rules = replace(AT_ONCE_UP, tolerance=up), replace(AT_ONCE_DOWN, tolerance=up if down is None else down)
    return HpaSpec(max_replicas=most, behavior=HpaBehavior(*rules))


def sync(spec: HpaSpec, value: int, current: int) -> int:
    return step(spec, HpaMemory(), [HpaMetric(float(value), 1.0)], current, current, now=0.0)[0].replicas


def settle(spec: HpaSpec, replicas: int, current: int, tolerance: float) -> list[int]:
    """Replicas after each sync until two syncs in a row change nothing. The number is rounded before every sync."""
    replicas_after = [current]
    while len(replicas_after) < 3 or not replicas_after[-1] == replicas_after[-2] == replicas_after[-3]:
        assert len(replicas_after) < 10, f"never settles: {replicas_after}"
        replicas_after.append(sync(spec, round_past_band(replicas, replicas_after[-1], tolerance), replicas_after[-1]))
    return replicas_after


def test_every_step_from_1_to_200_is_applied_exactly_without_tolerance():
    published = [round_past_band(to, current, 0.0) for current in range(1, 201) for to in range(1, 201)]
    applied = [sync(hpa(0.0), to, current) for current in range(1, 201) for to in range(1, 201)]
    assert published == applied == [to for _ in range(1, 201) for to in range(1, 201)]


def test_ten_percent_adds_one_replica_from_10_on_and_two_from_20_on():
    # 11/10 is 1.1, which is dropped; 10/9 is 1.11, which is not. 22/20 is 1.1 again, 21/19 is 1.105.
    assert [round_past_band(current + 1, current, 0.1) for current in (8, 9, 10, 11, 19, 20, 21, 30)] == [
        9, 10, 12, 13, 21, 23, 24, 34,
    ]  # fmt: skip


@settings(max_examples=500)
@given(current=COUNTS, up=st.integers(1, 100), tolerance=TOLERANCES)
def test_rounded_number_is_the_lowest_that_the_hpa_applies(current, up, tolerance):
    published, spec = round_past_band(current + up, current, tolerance), hpa(tolerance)
    assert sync(spec, published, current) == published
    assert [sync(spec, less, current) for less in range(current + up, published)] == [current] * (
        published - current - up
    )


@given(current=COUNTS, data=st.data())
def test_band_edge_at_a_whole_replica_equals_the_hpas_to_the_last_bit(current, data):
    # A tolerance of 5/12 and one that is a bit less, and a bit more: 17 at 12 is dropped, or not.
    edge = data.draw(st.integers(current + 1, 2 * current))
    tolerance = edge / current - 1.0
    for near in (np.nextafter(tolerance, -1.0), tolerance, np.nextafter(tolerance, 2.0)):
        if near < 0.0:
            continue
        published, spec = round_past_band(current + 1, current, near), hpa(float(near))
        assert sync(spec, published, current) == published
        assert published == current + 1 or sync(spec, published - 1, current) == current


@settings(max_examples=500)
@given(current=COUNTS, up=st.integers(1, 100), tolerance=TOLERANCES)
def test_step_up_overshoots_at_most_to_the_edge_of_the_band(current, up, tolerance):
    published = round_past_band(current + up, current, tolerance)
    assert current + up <= published <= max(current + up, int(current * (1.0 + tolerance) + 1e-9) + 1)


@given(current=COUNTS, down=st.integers(0, 400), tolerance=TOLERANCES)
def test_step_down_is_not_rounded(current, down, tolerance):
    assert round_past_band(max(0, current - down), current, tolerance) == max(0, current - down)


@pytest.mark.parametrize("current", [float("nan"), 0.0])
def test_replicas_are_not_rounded_without_current_replicas(current):
    assert round_past_band(11, current, 0.1) == 11


def test_unknown_replicas_stay_unknown():
    assert np.isnan(past_band(np.array([np.nan]), np.array([10.0]), np.array([0.1]))[0])


@settings(max_examples=500)
@given(start=COUNTS, replicas=COUNTS, up=TOLERANCES, down=TOLERANCES)
def test_hpa_settles_at_the_decided_replicas_or_more(start, replicas, up, down):
    replicas_after = settle(hpa(up, down), replicas, start, up)
    last = replicas_after[-1]
    assert last >= replicas
    # The surplus is inside the lower band: it stays until the decision leaves the band.
    assert last == replicas or replicas / last >= 1.0 - down
    assert max(replicas_after[1:]) <= max(start, replicas, int(start * (1.0 + up) + 1e-9) + 1)


@given(start=COUNTS, replicas=COUNTS, tolerance=TOLERANCES)
def test_replicas_never_rise_again_after_they_fell(start, replicas, tolerance):
    replicas_after = settle(hpa(tolerance), replicas, start, tolerance)
    assert sorted(replicas_after) == replicas_after or sorted(replicas_after, reverse=True) == replicas_after


@given(start=COUNTS, replicas=COUNTS, tolerance=TOLERANCES)
def test_maximum_bounds_the_rounding(start, replicas, tolerance):
    most = max(start, replicas)
    replicas_after = settle(hpa(tolerance, most=most), replicas, start, tolerance)
    assert replicas <= replicas_after[-1] <= most


@settings(max_examples=50)
@given(demands=st.lists(COUNTS, min_size=1, max_size=20), tolerance=TOLERANCES)
def test_demand_is_never_undercut_whatever_is_decided_next(demands, tolerance):
    spec, current = hpa(tolerance), 1
    for replicas in demands:
        current = settle(spec, replicas, current, tolerance)[-1]
        assert current >= replicas


def test_many_workloads_are_rounded_at_once():
    published = past_band(np.array([11.0, 11.0, 9.0, np.nan]), np.array([10.0, np.nan, 10.0, 3.0]), np.full(4, 0.1))
    assert published.tolist()[:3] == [12.0, 11.0, 9.0]
    assert np.isnan(published[3])
