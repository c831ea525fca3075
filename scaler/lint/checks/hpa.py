"""Checks what the HPA does with Tidegate's number (TG030 to TG036), and conditions in a live cluster (TG100 to TG104).

Pure. TG030 to TG036 are for autoscalers that use Tidegate: for others, the HPA's smoothing may be the only one.

Worked example: with `scaleDown.stabilizationWindowSeconds: 300` the HPA follows a fall 300 s after Tidegate did. An HPA
with the condition `ScalingActive` False has a finding with the reason and message of the controller.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from scaler.config import rules
from scaler.config.errors import Finding
from scaler.config.scalars import write_duration
from scaler.config.yaml import DocumentValue
from scaler.model import METRIC

from ..autoscalers import Autoscaler, LintContext, number
from ..objects import SCALED
from ..triggers import is_ours

# Tidegate's smoothing (half-life 60 s) has followed half of a fall after a minute: a longer window smooths again. The
# examples have 30 s, against a single wrong value.
LONGEST_DOWN_S = 60
DEFAULT_DOWN_S = 300  # --horizontal-pod-autoscaler-downscale-stabilization
DEFAULT_TOLERANCE = 0.1  # --horizontal-pod-autoscaler-tolerance
_POLLING_S, _SYNC_S = 30, 15  # KEDA's default, and the HPA's
_STATUS = ("status", "conditions")
_SHOWN_CHARACTERS = 240  # of a controller's message
# The replicas are 0, by hand or by KEDA: the HPA is inactive as intended.
_AT_ZERO = "ScalingDisabled"


def down_window(scaler: Autoscaler) -> int:
    """Seconds over which the HPA takes the highest value."""
    written = scaler.value.count(*_path(scaler, "scaleDown", "stabilizationWindowSeconds"))
    return DEFAULT_DOWN_S if written is None else written


def smoothed_twice(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    if not scaler.is_ours:
        return
    up, down = (_path(scaler, way, "stabilizationWindowSeconds") for way in ("scaleUp", "scaleDown"))
    waits, keeps = scaler.value.count(*up), scaler.value.count(*down)
    if waits is not None and waits > 0:
        message = f"must be 0: Tidegate smooths already, and each rise waits {write_duration(float(waits))} more"
        yield Finding(up, message, rule=rules.SMOOTHED_TWICE)
    if keeps is not None and keeps > LONGEST_DOWN_S:
        message = f"must be at most {LONGEST_DOWN_S}: Tidegate smooths already, and GPUs stay that much longer"
        yield Finding(down, message, str(keeps), rules.SMOOTHED_TWICE)


def default_window(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    at = _path(scaler, "scaleDown", "stabilizationWindowSeconds")
    if scaler.is_ours and scaler.value.at(*at) is None:
        message = f"is {DEFAULT_DOWN_S} by default, on top of Tidegate's smoothing: 30 is enough"
        yield Finding(at, message, rule=rules.DEFAULT_WINDOW)


def lost_in_tolerance(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    """One replica of N is a change of 1/N; the HPA ignores changes within its tolerance t, so from N = 1/t on."""
    if not scaler.is_ours or scaler.highest is None:
        return
    for way in ("scaleUp", "scaleDown"):
        at = _path(scaler, way, "tolerance")
        written = scaler.value.read(*at)
        tolerance = number(written) if written else DEFAULT_TOLERANCE
        if not tolerance or scaler.highest * tolerance < 1.0:
            continue
        # As a float 0.1 is slightly more than a tenth: without rounding, 1/t could be 10.000000000000002 and N 11.
        first = math.ceil(round(1.0 / tolerance, 6))
        default = "" if written else " by default"
        message = f'is {tolerance:.0%}{default}: with {first} replicas or more, one is no exact step; write "0"'
        yield Finding(at, message, rule=rules.LOST_IN_TOLERANCE)
        return  # the other direction would have the same message


def direction_disabled(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    for way, stopped in (("scaleUp", "never scaled up"), ("scaleDown", "never scaled down")):
        at = _path(scaler, way, "selectPolicy")
        if scaler.is_ours and scaler.value.read(*at) == "Disabled":
            yield Finding(at, f"Disabled: it is {stopped}, whatever Tidegate returns", rule=rules.DIRECTION_DISABLED)


def metric_type(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    """For HPAs; `triggers` checks those of KEDA."""
    if scaler.is_keda:
        return
    for one in scaler.metrics:
        if one.text != METRIC:
            continue
        section = (*one.at, "external" if one.kind == "External" else "object", "target")
        kind = scaler.value.at(*section, "type")
        if kind is not None and kind.text != "AverageValue":
            yield Finding((*section, "type"), f"must be AverageValue for {METRIC}", kind.text, rules.METRIC_TYPE)
        elif one.target is not None and one.target != 1.0:
            at = (*section, "averageValue")
            yield Finding(
                at, f"must be 1 for {METRIC}, since its value is a number of replicas", rule=rules.METRIC_TYPE
            )


def cached_metrics(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    for index, trigger in enumerate(scaler.value.items("spec", "triggers") if scaler.is_keda else ()):
        written = scaler.value.count("spec", "pollingInterval")
        age = _POLLING_S if written is None else written
        if is_ours(trigger) and trigger.read("useCachedMetrics") == "true" and age > _SYNC_S:
            message = f"gives the HPA values up to {age} s old (pollingInterval), and it syncs every {_SYNC_S} s"
            yield Finding(("spec", "triggers", index, "useCachedMetrics"), message, rule=rules.CACHED_METRICS)


def plain_text(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    """EnableTLS turns TLS on, and so do certificates, which only an authenticationRef can provide."""
    for index, trigger in enumerate(scaler.value.items("spec", "triggers") if scaler.is_keda else ()):
        metadata = trigger.below("metadata")
        tls_keys = [key for key in ("unsafeSsl", "tlsCertFile") if key in metadata and metadata[key].text != "false"]
        is_on = trigger.read("metadata", "enableTLS") == "true" or trigger.at("authenticationRef") is not None
        if is_ours(trigger) and tls_keys and not is_on:
            message = "does not turn TLS on: KEDA connects in plain text"
            yield Finding(("spec", "triggers", index, "metadata", tls_keys[0]), message, rule=rules.PLAIN_TEXT)


def _path(scaler: Autoscaler, *rest: str) -> tuple[str, ...]:
    return (*(str(part) for part in scaler.behavior), *rest)


def metric_unread(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    for at, condition in _conditions(scaler, "ScalingActive") if not scaler.is_keda else ():
        if condition.read("status") == "False" and condition.read("reason") != _AT_ZERO:
            yield Finding(at, f"ScalingActive is False: {_reason(condition)}", rule=rules.METRIC_UNREAD)


def target_missing(scaler: Autoscaler, context: LintContext) -> Iterator[Finding]:
    """From the objects of the run if they include the kind, else from the HPA's condition."""
    kind, name = scaler.target
    for at, condition in _conditions(scaler, "AbleToScale") if not scaler.is_keda else ():
        if condition.read("status") == "False":
            yield Finding(at, f"AbleToScale is False: {_reason(condition)}", rule=rules.TARGET_MISSING)
            return
    if kind in SCALED and scaler.target_key not in context.keys and context.has(kind):
        message = f"{kind}/{name} is not in namespace {scaler.obj.namespace}"
        yield Finding(("spec", "scaleTargetRef"), message, rule=rules.TARGET_MISSING)


def not_ready(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    for at, condition in _conditions(scaler, "Ready") if scaler.is_keda else ():
        if condition.read("status") == "False":
            yield Finding(at, f"Ready is False: {_reason(condition)}", rule=rules.NOT_READY)


def on_fallback(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    for at, condition in _conditions(scaler, "Fallback") if scaler.is_keda else ():
        if condition.read("status") == "True":
            yield Finding(at, f"Fallback is True: {_reason(condition)}", rule=rules.ON_FALLBACK)


def at_maximum(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    for at, condition in _conditions(scaler, "ScalingLimited") if not scaler.is_keda else ():
        if condition.read("status") == "True" and condition.read("reason") == "TooManyReplicas":
            yield Finding(at, f"ScalingLimited is True: {_reason(condition)}", rule=rules.AT_MAXIMUM)


def _conditions(scaler: Autoscaler, name: str) -> Iterator[tuple[tuple[int | str, ...], DocumentValue]]:
    for index, one in enumerate(scaler.value.items(*_STATUS)):
        if one.read("type") == name:
            yield (*_STATUS, index), one


def _reason(condition: DocumentValue) -> str:
    reason, message = condition.read("reason"), " ".join(condition.read("message").split())
    shown = message if len(message) <= _SHOWN_CHARACTERS else f"{message[:_SHOWN_CHARACTERS]}…"
    return f"{reason}: {shown}" if shown else reason
