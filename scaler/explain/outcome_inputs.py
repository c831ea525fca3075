"""Finds, for each workload, the objects that act on its number, and defines what can come of it. Pure.

Objects of the cluster become values of `scaler.controllers`, with the defaults of Kubernetes and KEDA: an HPA with
`behavior: {scaleUp: {tolerance: "0"}}` has Kubernetes' policies and windows in both directions, no tolerance up, and
the cluster's tolerance down.

Worked example: workload `ai/chat` scales Deployment `ai/chat`, and a ScaledObject has made the HPA `keda-hpa-chat`:
`survey(registry.workloads, registry, shown(cluster, now))[ai/chat]` has all three, and spec.replicas. 5 are published,
4 exist, and nothing limits the HPA: code `up`, "in at most 15 s the HPA sets 5: 4 -> 5", and one `Act`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from exporter.kubernetes import objects
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Hpa, Pod, Ref, Scalable, ScaledObject
from exporter.kubernetes.resources import HPAS, SCALEDOBJECTS
from exporter.model import WorkloadKey
from scaler.config import Workload
from scaler.controllers import hpa, keda
from scaler.controllers.hpa import (
    DEFAULT_DOWN,
    DEFAULT_UP,
    HpaBehavior,
    PolicyKind,
    ScalingPolicy,
    ScalingRules,
    Select,
)
from scaler.workloads import Registry


@dataclass(frozen=True, slots=True)
class Facts:
    """The objects that act on one workload's number.

    watched:   whether a Kubernetes API is configured. If not, the rest is empty.
    target:    what is scaled; None if not defined.
    current:   spec.replicas; None is unknown.
    speaks:    a trigger of the ScaledObject is for this workload.
    hpas:      all that name the target, KEDA's own first.
    hpas_complete, scaled_complete: whether the lists are complete and current.
    tolerance: the cluster's for HPAs, a ratio, of the configuration.
    unscheduled: the pod of the target that has waited longest for a node.
    """

    watched: bool = False
    target: Ref | None = None
    current: int | None = None
    scaled: ScaledObject | None = None
    speaks: bool = False
    hpas: tuple[Hpa, ...] = ()
    hpas_complete: bool = False
    scaled_complete: bool = False
    tolerance: float = 0.1
    unscheduled: Pod | None = None

    @property
    def hpa(self) -> Hpa | None:
        return self.hpas[0] if self.hpas else None


class Shown(NamedTuple):
    """A copy of the autoscaling objects of the cluster."""

    hpas: Sequence[Hpa]
    scaled: Sequence[ScaledObject]
    scalables: Sequence[Scalable]
    hpas_complete: bool
    scaled_complete: bool
    unscheduled: Mapping[Ref, Pod]


def shown(cluster: Cluster | None, now: float) -> Shown | None:
    """None without a Kubernetes API. now: POSIX seconds."""
    if cluster is None:
        return None
    return Shown(
        cluster.hpas(),
        cluster.scaled_objects(),
        cluster.scalables(),
        cluster.settled(HPAS, now),
        cluster.settled(SCALEDOBJECTS, now),
        cluster.unscheduled(),
    )


def survey(workloads: Iterable[Workload], registry: Registry, cluster: Shown | None) -> dict[WorkloadKey, Facts]:
    """The facts of these workloads."""
    if cluster is None:
        return {each.key: Facts(tolerance=each.hpa_tolerance) for each in workloads}
    hpas = _by_target(cluster.hpas)
    scaled = {each.target: each for each in reversed(cluster.scaled)}
    current = {each.ref: each.wanted for each in cluster.scalables}
    found = {}
    for workload in workloads:
        target = registry.targets.get(workload.key)
        keda = None if target is None else scaled.get(target)
        found[workload.key] = Facts(
            watched=True,
            target=target,
            current=None if target is None else current.get(target),
            scaled=keda,
            speaks=keda is not None and _speaks(registry, keda, workload.key),
            hpas=() if target is None else hpas.get(target, ()),
            hpas_complete=cluster.hpas_complete,
            scaled_complete=cluster.scaled_complete,
            tolerance=workload.hpa_tolerance,
            unscheduled=None if target is None else cluster.unscheduled.get(target),
        )
    return found


def _speaks(registry: Registry, scaled: ScaledObject, workload: WorkloadKey) -> bool:
    triggers = registry.objects.get((scaled.ref.namespace, scaled.ref.name), ())
    return any(each.outcome == workload for each in triggers)


def _by_target(hpas: Iterable[Hpa]) -> dict[Ref, tuple[Hpa, ...]]:
    found: dict[Ref, tuple[Hpa, ...]] = {}
    for one in hpas:
        rest = found.get(one.target, ())
        found[one.target] = (one, *rest) if one.owner is not None else (*rest, one)
    return found


def of_hpa(found: Hpa, tolerance: float) -> hpa.HpaSpec:
    """The spec of an HPA. tolerance: the cluster's, a ratio."""
    return hpa.HpaSpec(found.maximum, found.minimum, _behavior(found.behavior), tolerance)


def of_hpa_to_be(scaled: ScaledObject, tolerance: float) -> hpa.HpaSpec:
    """The spec of the HPA that KEDA makes for a ScaledObject, if the HPA itself is not visible."""
    least = keda.hpa_min_replicas(of_scaled(scaled))
    return hpa.HpaSpec(scaled.maximum, least, _behavior(scaled.behavior), tolerance)


def of_scaled(scaled: ScaledObject) -> keda.ScaledObjectSpec:
    pace = scaled.pace or objects.Pace()
    pauses, fallback = pace.pauses, pace.fallback
    return keda.ScaledObjectSpec(
        min_replicas=scaled.minimum,
        max_replicas=scaled.maximum,
        idle_replicas=scaled.idle,
        polling_interval_s=pace.polling_s,
        cooldown_s=pace.cooldown_s,
        initial_cooldown_s=pace.initial_cooldown_s,
        fallback=None if fallback is None else keda.FallbackSpec(fallback.failure_threshold, fallback.replicas),
        paused=pauses.paused,
        paused_replicas=pauses.replicas,
        pause_scale_in=pauses.scale_in,
        pause_scale_out=pauses.scale_out,
    )


def _behavior(behavior: objects.Behavior | None) -> HpaBehavior | None:
    if behavior is None:
        return None
    return HpaBehavior(_rules(behavior.up, DEFAULT_UP), _rules(behavior.down, DEFAULT_DOWN))


def _rules(rules: objects.BehaviorRules | None, default: ScalingRules) -> ScalingRules:
    """Each missing field has its own default: defaults.go in pkg/apis/autoscaling/v2."""
    if rules is None:
        return default
    policies = rules.policies
    return ScalingRules(
        policies=default.policies
        if policies is None
        else tuple(ScalingPolicy(PolicyKind(each.kind), each.value, each.period_s) for each in policies),
        window_s=default.window_s if rules.window_s is None else rules.window_s,
        select=default.select if rules.select is None else Select(rules.select),
        tolerance=rules.tolerance,
    )


class OutcomeCode(StrEnum):
    """The outcome of a published number. One closed list, the same on /metrics, in explain and in the docs."""

    # Done, or nothing to do.
    SETTLED = "settled"  # spec.replicas is the published number
    ASLEEP = "asleep"  # at zero, and stays there
    # On its way.
    UP = "up"  # the HPA adds replicas at its next sync, all or as many as it may
    DOWN = "down"  # likewise removes some
    WAKES = "wakes"  # KEDA goes from zero to its first replicas
    SLEEPS = "sleeps"  # KEDA goes to zero at its next poll
    # Waits for a time that ends.
    COOLING_DOWN = "cooling_down"  # KEDA's cooldownPeriod
    STABILISED = "stabilised"  # the HPA's stabilization window
    RATE_LIMITED = "rate_limited"  # the HPA goes there, as fast as its policies allow
    # Stays, by configuration of the controllers.
    IN_BAND = "in_band"  # within the HPA's tolerance
    AT_MAX = "at_max"  # maxReplicas
    AT_MIN = "at_min"  # minReplicas, or KEDA's minReplicaCount
    DISABLED = "disabled"  # selectPolicy: Disabled
    PAUSED = "paused"  # one of KEDA's annotations
    # Nothing comes of it, and a person should act.
    UNKNOWN = "unknown"  # no number: callers get an error, which changes nothing
    FALLBACK = "fallback"  # no number, and KEDA uses its fallback
    OBSERVED = "observed"  # only observed: nothing is published
    CONTROLLER_ERROR = "controller_error"  # the HPA or KEDA reports that it cannot scale
    OTHER_METRICS = "other_metrics"  # its HPA or ScaledObject scales by other metrics
    NO_WAKE_SOURCE = "no_wake_source"  # at zero, and without KEDA nothing scales it up again
    NO_HPA = "no_hpa"  # KEDA has created no HPA, so nothing scales from one to many
    NO_SCALER = "no_scaler"  # no ScaledObject and no HPA names its target
    TWO_HPAS = "two_hpas"  # several HPAs name it: Kubernetes follows none
    JOBS = "jobs"  # a ScaledJob: KEDA makes Jobs of the number
    UNKNOWN_SCALER = "unknown_scaler"  # which objects act on it is unknown here


# The HPA controller's --horizontal-pod-autoscaler-sync-period, by default.
SYNC_S = 15.0


class Act(NamedTuple):
    """In at most `within_s` seconds `replicas` are set."""

    within_s: float
    replicas: int
    why: str


@dataclass(frozen=True, slots=True)
class ControllerOutcome:
    """sentences: for people; the first is the outcome, the others are its causes.

    acts: what follows, in order, if nothing else changes; empty if nothing follows.
    """

    code: OutcomeCode
    sentences: tuple[str, ...]
    acts: tuple[Act, ...] = ()

    @property
    def replicas(self) -> int | None:
        """Replicas after the next action; None if there is none."""
        return self.acts[0].replicas if self.acts else None

    @property
    def within_s(self) -> float | None:
        """Seconds until the next act, at most; None if there is none."""
        return self.acts[0].within_s if self.acts else None
