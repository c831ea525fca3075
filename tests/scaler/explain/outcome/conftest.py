"""A workload `ai/chat` at 02:46:40, its ScaledObject, its HPA, and its decision."""

from dataclasses import replace

import pytest

from exporter.kubernetes.objects import (
    Behavior,
    BehaviorPolicy,
    BehaviorRules,
    Condition,
    Hpa,
    HpaMetricSpec,
    HpaStatus,
    Pace,
    Pauses,
    Ref,
    ScaledObject,
    ScaledObjectTrigger,
    ScaledStatus,
)
from exporter.model import WorkloadKey
from scaler.explain.outcome import controller_outcome
from scaler.explain.outcome_inputs import Facts
from scaler.model import Decision, Evidence, Reason

NOW = 10_000.0
CHAT = WorkloadKey("ai", "chat")
TARGET = Ref("ai", "Deployment", "chat")
OURS = (HpaMetricSpec("External", "s0-tidegate-replicas", "AverageValue", 1.0),)
FAST_UP = BehaviorRules(window_s=0.0, policies=(BehaviorPolicy("Percent", 900, 15.0),))
FAST_DOWN = BehaviorRules(window_s=0.0, policies=(BehaviorPolicy("Percent", 100, 15.0),))


def decision(replicas, *, published=None, for_s=1000.0, name="chat", wanted=None, **more):
    """replicas: None is unknown. for_s: seconds since the decision."""
    active = replicas is None or replicas > 0
    reason = Reason.UNKNOWN if replicas is None else Reason.SERVING if replicas else Reason.ASLEEP
    evidence = Evidence(replicas_wanted=wanted, replicas_ready=wanted)
    key = CHAT._replace(name=name)
    return Decision(key, replicas, active, reason, NOW - for_s, published=published, evidence=evidence, **more)


def hpa(*, up=None, down=None, minimum=1, maximum=20, metrics=OURS, name="keda-hpa-chat", owner=True, **status):
    """up, down: fields of BehaviorRules over fast ones; without both there is no behavior. status: of HpaStatus."""
    behavior = None
    if up is not None or down is not None:
        behavior = Behavior(replace(FAST_UP, **(up or {})), replace(FAST_DOWN, **(down or {})))
    return Hpa(
        Ref("ai", "HorizontalPodAutoscaler", name),
        TARGET,
        minimum,
        maximum,
        owner=Ref("ai", "ScaledObject", "chat") if owner else None,
        behavior=behavior,
        metrics=metrics,
        status=HpaStatus(**status) if status else None,
    )


def scaled(
    *, cached=False, minimum=0, maximum=20, idle=None, triggers=("external-push",), pauses=None, status=None, **pace
):
    """pace: of Pace; pauses: of Pauses; status: of ScaledStatus."""
    return ScaledObject(
        Ref("ai", "ScaledObject", "chat"),
        TARGET,
        minimum,
        maximum,
        idle,
        triggers=tuple(ScaledObjectTrigger(each, None, {}, cached) for each in triggers),
        pace=Pace(pauses=Pauses(**(pauses or {})), **pace),
        created_at=NOW - 5000.0,
        status=ScaledStatus(**status) if status else None,
    )


def facts(current, *, scaled_object=None, hpas=(), **more):
    defaults = {
        "hpas_complete": True,
        "scaled_complete": True,
        "speaks": scaled_object is not None,
        "target": TARGET,
    } | more
    return Facts(watched=True, current=current, scaled=scaled_object, hpas=tuple(hpas), **defaults)


def condition(type, status, reason, message="", since=None):  # noqa: A002 - Kubernetes' word
    return Condition(type, status, reason, message, since)


@pytest.fixture
def foresee():
    """`foresee(decision, facts)` returns the code, the first sentence and the acts as (seconds, replicas)."""

    def of(decided, around, others=()):
        found = controller_outcome(decided, around, NOW, others)
        return str(found.code), found.sentences[0], [(act.within_s, act.replicas) for act in found.acts]

    return of
