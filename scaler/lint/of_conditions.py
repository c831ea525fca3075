"""What the controllers themselves say in a live cluster: TG100 to TG104. Pure.

Not asked of files: a status that stands in one is of some other day.

Worked example: an HPA with the condition `ScalingActive` False, reason FailedGetExternalMetric, is told so with the
controller's own message.
"""

from __future__ import annotations

from collections.abc import Iterator

from .. import rules
from ..config.documents import Value
from ..config.remark import Remark
from .autoscalers import Autoscaler
from .seen import Seen, said
from .workloads import SCALED

_STATUS = ("status", "conditions")
_LONGEST = 240  # characters of somebody else's message
# Somebody has set the replicas to zero, or it sleeps: the HPA stands aside, as it should.
_AT_ZERO = "ScalingDisabled"


def metric_unread(scaler: Autoscaler, _seen: Seen) -> Iterator[Remark]:
    for at, one in _conditions(scaler, "ScalingActive") if not scaler.is_keda else ():
        if one.read("status") == "False" and one.read("reason") != _AT_ZERO:
            yield said(rules.METRIC_UNREAD, at, f"ScalingActive is False: {_why(one)}")


def target_missing(scaler: Autoscaler, seen: Seen) -> Iterator[Remark]:
    """Of kinds that were read whole; of others, the HPA's own word."""
    kind, name = scaler.target
    for at, one in _conditions(scaler, "AbleToScale") if not scaler.is_keda else ():
        if one.read("status") == "False":
            yield said(rules.TARGET_MISSING, at, f"AbleToScale is False: {_why(one)}")
            return
    if kind in SCALED and scaler.target_key not in seen.keys and seen.has(kind):
        message = f"{kind}/{name} is not in namespace {scaler.thing.namespace}"
        yield said(rules.TARGET_MISSING, ("spec", "scaleTargetRef"), message)


def not_ready(scaler: Autoscaler, _seen: Seen) -> Iterator[Remark]:
    for at, one in _conditions(scaler, "Ready") if scaler.is_keda else ():
        if one.read("status") == "False":
            yield said(rules.NOT_READY, at, f"Ready is False: {_why(one)}")


def on_fallback(scaler: Autoscaler, _seen: Seen) -> Iterator[Remark]:
    for at, one in _conditions(scaler, "Fallback") if scaler.is_keda else ():
        if one.read("status") == "True":
            yield said(rules.ON_FALLBACK, at, f"Fallback is True: {_why(one)}")


def at_maximum(scaler: Autoscaler, _seen: Seen) -> Iterator[Remark]:
    for at, one in _conditions(scaler, "ScalingLimited") if not scaler.is_keda else ():
        if one.read("status") == "True" and one.read("reason") == "TooManyReplicas":
            yield said(rules.AT_MAXIMUM, at, f"ScalingLimited is True: {_why(one)}")


def _conditions(scaler: Autoscaler, name: str) -> Iterator[tuple[tuple[int | str, ...], Value]]:
    for index, one in enumerate(scaler.value.items(*_STATUS)):
        if one.read("type") == name:
            yield (*_STATUS, index), one


def _why(condition: Value) -> str:
    reason, message = condition.read("reason"), " ".join(condition.read("message").split())
    shown = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"
    return f"{reason}: {shown}" if shown else reason
