"""How Tidegate is asked, and what the HPA makes of its number on the way to the replicas: TG030 to TG036. Pure.

Only autoscalers that ask Tidegate are looked at: others may well be smoothed by their HPA, since nothing else does it.

Worked example: with `scaleDown.stabilizationWindowSeconds: 300` a fall is believed 300 s after Tidegate believed it.

What the controllers themselves say in a live cluster: TG100 to TG104. Pure.

Not asked of files: a status that stands in one is of some other day.

Worked example: an HPA with the condition `ScalingActive` False, reason FailedGetExternalMetric, is told so with the
controller's own message.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from scaler.config import rules
from scaler.config.scalars import write_duration
from scaler.config.yaml import DocumentValue

from ..autoscalers import OUR_METRIC, Autoscaler, LintContext, number
from ..findings import Remark, said
from ..objects import SCALED
from ..triggers import is_ours

# Half of what Tidegate's own smoothing (half-life 60 s) has seen of a fall after a minute: a longer window is another
# smoothing. The shipped examples have 30 s, as a backstop against one bad answer.
LONGEST_DOWN_S = 60
DEFAULT_DOWN_S = 300  # --horizontal-pod-autoscaler-downscale-stabilization
DEFAULT_TOLERANCE = 0.1  # --horizontal-pod-autoscaler-tolerance
_POLLING_S, _SYNC_S = 30, 15  # KEDA's default, and the HPA's


def down_window(scaler: Autoscaler) -> int:
    """Seconds for which the HPA keeps the highest number."""
    written = scaler.value.count(*_path(scaler, "scaleDown", "stabilizationWindowSeconds"))
    return DEFAULT_DOWN_S if written is None else written


def smoothed_twice(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    if not scaler.ours:
        return
    up, down = (_path(scaler, way, "stabilizationWindowSeconds") for way in ("scaleUp", "scaleDown"))
    waits, keeps = scaler.value.count(*up), scaler.value.count(*down)
    if waits is not None and waits > 0:
        message = f"must be 0: Tidegate has smoothed, and each rise waits for {write_duration(float(waits))} more"
        yield said(rules.SMOOTHED_TWICE, up, message)
    if keeps is not None and keeps > LONGEST_DOWN_S:
        message = f"must be at most {LONGEST_DOWN_S}: Tidegate has smoothed, and GPUs are kept for that long again"
        yield said(rules.SMOOTHED_TWICE, down, message, str(keeps))


def default_window(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    at = _path(scaler, "scaleDown", "stabilizationWindowSeconds")
    if scaler.ours and scaler.value.at(*at) is None:
        message = f"is {DEFAULT_DOWN_S} where it is left out, on top of Tidegate's smoothing: 30 is enough"
        yield said(rules.DEFAULT_WINDOW, at, message)


def lost_in_tolerance(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    """One replica of N is a change of 1/N; the HPA drops what is within its tolerance t, that is from N = 1/t up."""
    if not scaler.ours or scaler.highest is None:
        return
    for way in ("scaleUp", "scaleDown"):
        at = _path(scaler, way, "tolerance")
        written = scaler.value.read(*at)
        tolerance = number(written) if written else DEFAULT_TOLERANCE
        if not tolerance or scaler.highest * tolerance < 1.0:
            continue
        # 0.1 is a hair more than a tenth: without the rounding its first N would be 10.000000000000002, so 11.
        first = math.ceil(round(1.0 / tolerance, 6))
        left_out = "" if written else " where it is left out"
        message = f'is {tolerance:.0%}{left_out}: among {first} replicas or more, one is no exact step; write "0"'
        yield said(rules.LOST_IN_TOLERANCE, at, message)
        return  # the other direction is the same sentence


def direction_disabled(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    for way, stopped in (("scaleUp", "never scaled up"), ("scaleDown", "never scaled down")):
        at = _path(scaler, way, "selectPolicy")
        if scaler.ours and scaler.value.read(*at) == "Disabled":
            yield said(rules.DIRECTION_DISABLED, at, f"Disabled: it is {stopped}, whatever Tidegate answers")


def metric_type(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    """Of triggers it is said where their words are read."""
    if scaler.is_keda:
        return
    for one in scaler.asked:
        if one.text != OUR_METRIC:
            continue
        section = (*one.at, "external" if one.kind == "External" else "object", "target")
        kind = scaler.value.at(*section, "type")
        if kind is not None and kind.text != "AverageValue":
            yield said(rules.METRIC_TYPE, (*section, "type"), f"must be AverageValue for {OUR_METRIC}", kind.text)
        elif one.target is not None and one.target != 1.0:
            at = (*section, "averageValue")
            yield said(rules.METRIC_TYPE, at, f"must be 1 for {OUR_METRIC}, whose value is a number of replicas")


def cached_metrics(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    for index, trigger in enumerate(scaler.value.items("spec", "triggers") if scaler.is_keda else ()):
        written = scaler.value.count("spec", "pollingInterval")
        age = _POLLING_S if written is None else written
        if is_ours(trigger) and trigger.read("useCachedMetrics") == "true" and age > _SYNC_S:
            message = (
                f"lets the HPA hear what was true up to {age} s ago (pollingInterval), and it asks every {_SYNC_S} s"
            )
            yield said(rules.CACHED_METRICS, ("spec", "triggers", index, "useCachedMetrics"), message)


def plain_text(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    """TLS is on with enableTLS, or with certificates, which only an authenticationRef can bring."""
    for index, trigger in enumerate(scaler.value.items("spec", "triggers") if scaler.is_keda else ()):
        metadata = trigger.below("metadata")
        asks = [key for key in ("unsafeSsl", "tlsCertFile") if key in metadata and metadata[key].text != "false"]
        is_on = trigger.read("metadata", "enableTLS") == "true" or trigger.at("authenticationRef") is not None
        if is_ours(trigger) and asks and not is_on:
            message = "turns no TLS on: KEDA asks in plain text"
            yield said(rules.PLAIN_TEXT, ("spec", "triggers", index, "metadata", asks[0]), message)


def _path(scaler: Autoscaler, *rest: str) -> tuple[str, ...]:
    return (*(str(part) for part in scaler.behavior), *rest)


_STATUS = ("status", "conditions")
_LONGEST = 240  # characters of somebody else's message
# Somebody has set the replicas to zero, or it sleeps: the HPA stands aside, as it should.
_AT_ZERO = "ScalingDisabled"


def metric_unread(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    for at, one in _conditions(scaler, "ScalingActive") if not scaler.is_keda else ():
        if one.read("status") == "False" and one.read("reason") != _AT_ZERO:
            yield said(rules.METRIC_UNREAD, at, f"ScalingActive is False: {_why(one)}")


def target_missing(scaler: Autoscaler, seen: LintContext) -> Iterator[Remark]:
    """Of kinds that were read whole; of others, the HPA's own word."""
    kind, name = scaler.target
    for at, one in _conditions(scaler, "AbleToScale") if not scaler.is_keda else ():
        if one.read("status") == "False":
            yield said(rules.TARGET_MISSING, at, f"AbleToScale is False: {_why(one)}")
            return
    if kind in SCALED and scaler.target_key not in seen.keys and seen.has(kind):
        message = f"{kind}/{name} is not in namespace {scaler.thing.namespace}"
        yield said(rules.TARGET_MISSING, ("spec", "scaleTargetRef"), message)


def not_ready(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    for at, one in _conditions(scaler, "Ready") if scaler.is_keda else ():
        if one.read("status") == "False":
            yield said(rules.NOT_READY, at, f"Ready is False: {_why(one)}")


def on_fallback(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    for at, one in _conditions(scaler, "Fallback") if scaler.is_keda else ():
        if one.read("status") == "True":
            yield said(rules.ON_FALLBACK, at, f"Fallback is True: {_why(one)}")


def at_maximum(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    for at, one in _conditions(scaler, "ScalingLimited") if not scaler.is_keda else ():
        if one.read("status") == "True" and one.read("reason") == "TooManyReplicas":
            yield said(rules.AT_MAXIMUM, at, f"ScalingLimited is True: {_why(one)}")


def _conditions(scaler: Autoscaler, name: str) -> Iterator[tuple[tuple[int | str, ...], DocumentValue]]:
    for index, one in enumerate(scaler.value.items(*_STATUS)):
        if one.read("type") == name:
            yield (*_STATUS, index), one


def _why(condition: DocumentValue) -> str:
    reason, message = condition.read("reason"), " ".join(condition.read("message").split())
    shown = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"
    return f"{reason}: {shown}" if shown else reason
