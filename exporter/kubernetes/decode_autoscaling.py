"""Decodes how a HorizontalPodAutoscaler or a ScaledObject scales, and its status (autoscaling/v2, keda.sh/v1alpha1).

None of this decides how many replicas are wanted. So a part that cannot be read is None, and the object remains usable.

Worked example: `behavior(Fields({"behavior": {"scaleUp": {"tolerance": "50m"}}}))` returns
`Behavior(up=BehaviorRules(tolerance=0.05))`; with the tolerance "a bit" it returns None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TypeVar

from .fields import FieldError, Fields
from .objects import (
    Behavior,
    BehaviorPolicy,
    BehaviorRules,
    Condition,
    HpaMetricSpec,
    HpaStatus,
    Pace,
    Pauses,
    ScaledObjectFallback,
    ScaledStatus,
)

PAUSED = "autoscaling.keda.sh/paused"

_MESSAGE_CHARACTERS = 300  # of a condition's message that are kept
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}  # Go's strconv.ParseBool

Value = TypeVar("Value")


def _none_if_invalid(decode: Callable[[Fields], Value]) -> Callable[[Fields], Value | None]:
    @wraps(decode)
    def decode_or_none(fields: Fields) -> Value | None:
        try:
            return decode(fields)
        except FieldError:
            return None

    return decode_or_none


@_none_if_invalid
def behavior(spec: Fields) -> Behavior | None:
    """`behavior` of an HPA's spec, or of a ScaledObject's horizontalPodAutoscalerConfig."""
    fields = spec.object("behavior")
    up, down = _rules(fields, "scaleUp"), _rules(fields, "scaleDown")
    return None if up is None and down is None else Behavior(up, down)


@_none_if_invalid
def behavior_of_scaled_object(spec: Fields) -> Behavior | None:
    """The `behavior` that KEDA copies into the HPA."""
    return behavior(spec.object("advanced").object("horizontalPodAutoscalerConfig"))


@_none_if_invalid
def metrics(spec: Fields) -> tuple[HpaMetricSpec, ...]:
    """`spec.metrics` of an HPA."""
    return tuple(map(_metric, spec.objects("metrics")))


@_none_if_invalid
def hpa_status(document: Fields) -> HpaStatus:
    status = document.object("status")
    conditions = _conditions(status)
    active = next((each for each in conditions if each.type == "ScalingActive"), None)
    current, desired = status.integer("currentReplicas"), status.integer("desiredReplicas")
    return HpaStatus(
        # A zero is left out (`omitempty`), and the controller writes ScalingActive after it has counted the replicas.
        current=0 if current is None and active is not None else current,
        desired=None if desired == 0 and not _wants_zero(active) else desired,
        scaled_at=status.time("lastScaleTime"),
        conditions=conditions,
    )


@_none_if_invalid
def pace(document: Fields) -> Pace:
    """Intervals, fallback and pauses of a ScaledObject. Defaults: keda.sh/v1alpha1 and pkg/scaling/executor of KEDA."""
    spec = document.object("spec")
    polling, cooldown = spec.integer("pollingInterval"), spec.integer("cooldownPeriod")
    return Pace(
        polling_s=30.0 if polling is None else float(polling),
        cooldown_s=300.0 if cooldown is None else float(cooldown),
        initial_cooldown_s=float(spec.integer("initialCooldownPeriod") or 0),
        fallback=_fallback(spec),
        pauses=pauses(document.object("metadata").texts("annotations")),
    )


@_none_if_invalid
def scaled_object_status(document: Fields) -> ScaledStatus:
    status = document.object("status")
    return ScaledStatus(status.time("lastActiveTime"), _conditions(status))


def pauses(annotations: Mapping[str, str]) -> Pauses:
    """KEDA's annotations as scaledobject_types.go reads them: a text that is not a truth value counts as true."""
    replicas = annotations.get(f"{PAUSED}-replicas")
    return Pauses(
        paused=_is_set(annotations, PAUSED),
        replicas=int(replicas) if replicas is not None and replicas.isdecimal() else None,
        scale_in=_is_set(annotations, f"{PAUSED}-scale-in"),
        scale_out=_is_set(annotations, f"{PAUSED}-scale-out"),
    )


def _rules(parent: Fields, key: str) -> BehaviorRules | None:
    if parent.values.get(key) is None:
        return None
    rules = parent.object(key)
    window_s = rules.integer("stabilizationWindowSeconds")
    return BehaviorRules(
        window_s=None if window_s is None else float(window_s),
        select=rules.choice("selectPolicy", ("Max", "Min", "Disabled")),
        policies=None if rules.values.get("policies") is None else tuple(map(_policy, rules.objects("policies"))),
        tolerance=rules.quantity("tolerance"),
    )


def _policy(fields: Fields) -> BehaviorPolicy:
    value, period = fields.integer("value"), fields.integer("periodSeconds")
    kind = fields.choice("type", ("Pods", "Percent"))
    if kind is None or value is None or period is None:
        raise fields.error("value", "a whole number, beside type and periodSeconds")
    return BehaviorPolicy(kind, value, float(period))


def _metric(fields: Fields) -> HpaMetricSpec:
    kind = fields.required_text("type")
    # The source of a metric is named after its type, in lower camel case: autoscaling/v2 MetricSpec.
    source = fields.object(kind[:1].lower() + kind[1:])
    target = source.object("target")
    name = source.text("name") or source.object("metric").text("name") or ""
    average, value = target.quantity("averageValue"), target.quantity("value")
    return HpaMetricSpec(kind, name, target.text("type") or "", value if average is None else average)


def _wants_zero(active: Condition | None) -> bool:
    """Whether a desiredReplicas of 0 is a decision.

    The API always prints the field: a 0 is also there before the first sync, and while no metric can be read.
    active: the condition ScalingActive, which is off at zero replicas too.
    """
    return active is not None and (active.status == "True" or active.reason == "ScalingDisabled")


def _conditions(status: Fields) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            condition.required_text("type"),
            condition.text("status") or "Unknown",
            condition.text("reason") or "",
            (condition.text("message") or "")[:_MESSAGE_CHARACTERS],
            condition.time("lastTransitionTime"),
        )
        for condition in status.objects("conditions")
    )


def _fallback(spec: Fields) -> ScaledObjectFallback | None:
    if spec.values.get("fallback") is None:
        return None
    fields = spec.object("fallback")
    threshold, replicas = fields.integer("failureThreshold"), fields.integer("replicas")
    return ScaledObjectFallback(threshold or 0, replicas or 0, fields.text("behavior") or "static")


def _is_set(annotations: Mapping[str, str], key: str) -> bool:
    return key in annotations and annotations[key] not in _FALSE
