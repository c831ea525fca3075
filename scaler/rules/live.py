"""Rules about what only a live cluster shows: TG100 to TG109.

Worked example: `METRIC_UNREAD.severity` is "error": an HPA that cannot read a metric scales nothing down.
"""

from __future__ import annotations

from .rule import GITHUB, KEDA, KUBERNETES, Rule

_WALKTHROUGH = f"{KUBERNETES}/tasks/run-application/horizontal-pod-autoscale-walkthrough"
_CONDITIONS = f"{_WALKTHROUGH}/#appendix-horizontal-pod-autoscaler-status-conditions"

METRIC_UNREAD = Rule(
    "TG100",
    "metric-unread",
    "error",
    "The HPA cannot read a metric (ScalingActive is False): it takes nothing down, and without any metric it stands "
    "still.",
    "Read the condition's message; for Tidegate's metric see docs/how-to/runbooks.md.",
    _CONDITIONS,
)
TARGET_MISSING = Rule(
    "TG101",
    "target-missing",
    "error",
    "The autoscaler names something that is not there, or that it may not scale: nothing is scaled.",
    "Correct scaleTargetRef, or apply what it names.",
    _CONDITIONS,
)
NOT_READY = Rule(
    "TG102",
    "not-ready",
    "error",
    "KEDA says that the ScaledObject is not ready: its triggers are not, or not all, followed.",
    "Read the condition's message; `kubectl describe scaledobject` shows the events.",
    f"{KEDA}/troubleshooting/",
)
AT_MAXIMUM = Rule(
    "TG103",
    "at-maximum",
    "info",
    "The HPA wants more replicas than its maximum: requests wait for GPUs that the bound does not allow.",
    "Raise the maximum if there are GPUs, or the target of a replica if it can carry more.",
    _CONDITIONS,
)
ON_FALLBACK = Rule(
    "TG104",
    "on-fallback",
    "error",
    "KEDA cannot get a number and has fallen back to a fixed one: the load is not looked at.",
    "Read why the scaler fails (`kubectl describe scaledobject`), and take fallback out.",
    f"{GITHUB}/kedacore/keda/issues/7239",
)

RULES = (METRIC_UNREAD, TARGET_MISSING, NOT_READY, AT_MAXIMUM, ON_FALLBACK)
