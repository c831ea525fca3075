"""Objects of the cluster in the words of `scaler.controllers`, with what Kubernetes and KEDA fill in.

Worked example: an HPA with `behavior: {scaleUp: {tolerance: "0"}}` has Kubernetes' policies and windows in both
directions, no tolerance up, and the cluster's down.
"""

from __future__ import annotations

from exporter.cluster import autoscaling
from exporter.cluster.objects import Hpa, ScaledObject

from ..controllers import hpa, keda
from ..controllers.behavior import DEFAULT_DOWN, DEFAULT_UP, Behavior, Policy, PolicyKind, Rules, Select


def of_hpa(found: Hpa, tolerance: float) -> hpa.Spec:
    """tolerance: the cluster's, a ratio."""
    return hpa.Spec(found.maximum, found.minimum, _behavior(found.behavior), tolerance)


def of_hpa_to_be(scaled: ScaledObject, tolerance: float) -> hpa.Spec:
    """Of the HPA that KEDA makes for a ScaledObject, where that itself is not seen."""
    least = keda.hpa_min_replicas(of_scaled(scaled))
    return hpa.Spec(scaled.maximum, least, _behavior(scaled.behavior), tolerance)


def of_scaled(scaled: ScaledObject) -> keda.Spec:
    pace = scaled.pace or autoscaling.Pace()
    pauses, fallback = pace.pauses, pace.fallback
    return keda.Spec(
        min_replicas=scaled.minimum,
        max_replicas=scaled.maximum,
        idle_replicas=scaled.idle,
        polling_interval_s=pace.polling_s,
        cooldown_s=pace.cooldown_s,
        initial_cooldown_s=pace.initial_cooldown_s,
        fallback=None if fallback is None else keda.Fallback(fallback.failure_threshold, fallback.replicas),
        paused=pauses.paused,
        paused_replicas=pauses.replicas,
        pause_scale_in=pauses.scale_in,
        pause_scale_out=pauses.scale_out,
    )


def _behavior(said: autoscaling.Behavior | None) -> Behavior | None:
    if said is None:
        return None
    return Behavior(_rules(said.up, DEFAULT_UP), _rules(said.down, DEFAULT_DOWN))


def _rules(said: autoscaling.Rules | None, default: Rules) -> Rules:
    """defaults.go in pkg/apis/autoscaling/v2 fills in each field by itself."""
    if said is None:
        return default
    policies = said.policies
    return Rules(
        policies=default.policies
        if policies is None
        else tuple(Policy(PolicyKind(each.kind), each.value, each.period_s) for each in policies),
        window_s=default.window_s if said.window_s is None else said.window_s,
        select=default.select if said.select is None else Select(said.select),
        tolerance=said.tolerance,
    )
