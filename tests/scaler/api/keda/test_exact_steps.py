"""Every step of a decision reaches the cluster: rounded past the band, sent over gRPC, divided by the HPA."""

import numpy as np

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
    """Runs one round: publishes a decision, reads it as KEDA does, and returns the replicas that the HPA sets."""
    rounded = past_band(np.array([float(replicas)]), np.array([float(current)]), np.array([tolerance]))
    board.decide(replicas, published=int(rounded[0]))
    value = await keda.value(keda.ref())
    assert value.metricValue == value.metricValueFloat
    return step(spec, HpaMemory(), [HpaMetric(value.metricValueFloat, 1.0)], current, current, now=0.0)[0].replicas


async def test_every_step_to_200_and_back_is_applied_without_tolerance(board, keda):
    steps, current, applied = [*range(2, 201), *range(199, 0, -1)], 1, []
    for replicas in steps:
        current = await sync(board, keda, hpa(0.0), replicas, current, 0.0)
        applied.append(current)
    assert applied == steps


async def test_no_step_up_is_lost_and_steps_down_wait_with_ten_percent_tolerance(board, keda):
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
