"""The whole way of a step: decided, told past the band, over gRPC, divided by the HPA, taken by the cluster."""

import numpy as np
import pytest

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


def hpa(tolerance: float) -> HpaSpec:
    up = ScalingRules((ScalingPolicy(PolicyKind.PERCENT, 900, 15.0),), 0.0, tolerance=tolerance)
    down = ScalingRules((ScalingPolicy(PolicyKind.PERCENT, 100, 15.0),), 0.0, tolerance=tolerance)
    return HpaSpec(max_replicas=300, behavior=HpaBehavior(up, down))


async def sync(board, keda, spec: HpaSpec, replicas: int, current: int, tolerance: float) -> int:
    """One round: decide and tell, ask as KEDA asks, and do what the HPA does."""
    told = past_band(np.array([float(replicas)]), np.array([float(current)]), np.array([tolerance]))
    board.decide(replicas, published=int(told[0]))
    value = await keda.value(keda.ref())
    assert value.metricValue == value.metricValueFloat
    return step(spec, HpaMemory(), [HpaMetric(value.metricValueFloat, 1.0)], current, current, now=0.0)[0].replicas


async def test_without_tolerance_every_single_step_to_200_and_back_is_taken(board, keda):
    steps, current, taken = [*range(2, 201), *range(199, 0, -1)], 1, []
    for replicas in steps:
        current = await sync(board, keda, hpa(0.0), replicas, current, 0.0)
        taken.append(current)
    assert taken == steps


async def test_with_ten_percent_no_step_up_is_lost_and_steps_down_wait_for_the_band(board, keda):
    current, spare = 1, []
    for replicas in [*range(2, 201), *range(199, 0, -1)]:
        current = await sync(board, keda, hpa(0.1), replicas, current, 0.1)
        spare.append((current - replicas) / current)
    assert min(spare) >= 0.0
    assert max(spare) <= 0.1 + 1e-9


async def test_keda_gets_the_published_replicas(board, keda):
    board.decide(11, published=12)
    value = await keda.value(keda.ref())
    assert (value.metricValue, value.metricValueFloat) == (12, 12.0)
    assert await keda.active(keda.ref())


@pytest.mark.parametrize("replicas", [0, 1, 9])
async def test_without_a_band_it_hears_what_was_decided(board, keda, replicas):
    board.decide(replicas)
    assert (await keda.value(keda.ref())).metricValue == replicas
