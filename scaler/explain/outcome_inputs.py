"""Who acts on each workload's number, as the cluster in memory shows them.

Worked example: of workload `ai/chat` that scales Deployment `ai/chat`, with a ScaledObject that has made the HPA
`keda-hpa-chat`, `survey(census.workloads, census, shown(cluster, now))[ai/chat]` has all three, and how many replicas
the Deployment has been told to run.

Objects of the cluster in the words of `scaler.controllers`, with what Kubernetes and KEDA fill in.

Worked example: an HPA with `behavior: {scaleUp: {tolerance: "0"}}` has Kubernetes' policies and windows in both
directions, no tolerance up, and the cluster's down.

What will become of a number: one closed list, the same on /metrics, in explain and in the docs.

An outlook: what will become of a number. A value and nothing else.

Worked example: 5 are told, 4 are there, and the HPA is free to go: code `up`, "in at most 15 s the HPA sets 5: 4 -> 5",
replicas 5, within 15 s, and that one `Act`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from exporter.kubernetes import objects
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Hpa, Ref, Scalable, ScaledObject
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
    """What is known of those who act on one workload's number.

    asked:     is a Kubernetes API asked at all? Where not, all the rest is empty.
    target:    what is scaled; None is: nobody has said.
    current:   replicas it has been told to run; None is unknown.
    speaks:    a trigger of the ScaledObject asks for this workload.
    hpas:      all that name the target, KEDA's own first.
    hpas_known, scaled_known: is what there is of them complete and up to date?
    tolerance: the cluster's for HPAs, a ratio, by the configuration's word.
    """

    asked: bool = False
    target: Ref | None = None
    current: int | None = None
    scaled: ScaledObject | None = None
    speaks: bool = False
    hpas: tuple[Hpa, ...] = ()
    hpas_known: bool = False
    scaled_known: bool = False
    tolerance: float = 0.1

    @property
    def hpa(self) -> Hpa | None:
        return self.hpas[0] if self.hpas else None


class Shown(NamedTuple):
    """What a cluster in memory shows of those who scale, copied: the cluster moves on, this does not."""

    hpas: Sequence[Hpa]
    scaled: Sequence[ScaledObject]
    scalables: Sequence[Scalable]
    hpas_known: bool
    scaled_known: bool


def shown(cluster: Cluster | None, now: float) -> Shown | None:
    """None: no Kubernetes API is asked. now: POSIX seconds."""
    if cluster is None:
        return None
    return Shown(
        cluster.hpas(),
        cluster.scaled_objects(),
        cluster.scalables(),
        cluster.synced(HPAS, now),
        cluster.synced(SCALEDOBJECTS, now),
    )


def survey(workloads: Iterable[Workload], census: Registry, cluster: Shown | None) -> dict[WorkloadKey, Facts]:
    """The facts of these workloads of the census."""
    if cluster is None:
        return {each.key: Facts(tolerance=each.hpa_tolerance) for each in workloads}
    hpas = _by_target(cluster.hpas)
    scaled = {each.target: each for each in reversed(cluster.scaled)}
    current = {each.ref: each.wanted for each in cluster.scalables}
    found = {}
    for workload in workloads:
        target = census.targets.get(workload.key)
        keda = None if target is None else scaled.get(target)
        found[workload.key] = Facts(
            asked=True,
            target=target,
            current=None if target is None else current.get(target),
            scaled=keda,
            speaks=keda is not None and _speaks(census, keda, workload.key),
            hpas=() if target is None else hpas.get(target, ()),
            hpas_known=cluster.hpas_known,
            scaled_known=cluster.scaled_known,
            tolerance=workload.hpa_tolerance,
        )
    return found


def _speaks(census: Registry, scaled: ScaledObject, workload: WorkloadKey) -> bool:
    said = census.objects.get((scaled.ref.namespace, scaled.ref.name), ())
    return any(each.outcome == workload for each in said)


def _by_target(hpas: Iterable[Hpa]) -> dict[Ref, tuple[Hpa, ...]]:
    found: dict[Ref, tuple[Hpa, ...]] = {}
    for one in hpas:
        others = found.get(one.target, ())
        found[one.target] = (one, *others) if one.owner is not None else (*others, one)
    return found


def of_hpa(found: Hpa, tolerance: float) -> hpa.HpaSpec:
    """tolerance: the cluster's, a ratio."""
    return hpa.HpaSpec(found.maximum, found.minimum, _behavior(found.behavior), tolerance)


def of_hpa_to_be(scaled: ScaledObject, tolerance: float) -> hpa.HpaSpec:
    """Of the HPA that KEDA makes for a ScaledObject, where that itself is not seen."""
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


def _behavior(said: objects.Behavior | None) -> HpaBehavior | None:
    if said is None:
        return None
    return HpaBehavior(_rules(said.up, DEFAULT_UP), _rules(said.down, DEFAULT_DOWN))


def _rules(said: objects.BehaviorRules | None, default: ScalingRules) -> ScalingRules:
    """defaults.go in pkg/apis/autoscaling/v2 fills in each field by itself."""
    if said is None:
        return default
    policies = said.policies
    return ScalingRules(
        policies=default.policies
        if policies is None
        else tuple(ScalingPolicy(PolicyKind(each.kind), each.value, each.period_s) for each in policies),
        window_s=default.window_s if said.window_s is None else said.window_s,
        select=default.select if said.select is None else Select(said.select),
        tolerance=said.tolerance,
    )


class OutcomeCode(StrEnum):
    # It is done, or there is nothing to do.
    SETTLED = "settled"  # the cluster has been told to run what Tidegate tells
    ASLEEP = "asleep"  # at zero, and stays there
    # It will be done.
    UP = "up"  # the HPA adds replicas at its next sync, all or as many as it may
    DOWN = "down"  # likewise takes some away
    WAKES = "wakes"  # KEDA goes from zero to its first replicas
    SLEEPS = "sleeps"  # KEDA goes to zero at its next poll
    # It waits, and comes.
    COOLING_DOWN = "cooling_down"  # KEDA's cooldownPeriod has not passed
    STABILISED = "stabilised"  # the HPA's stabilisation window holds
    RATE_LIMITED = "rate_limited"  # the HPA goes there, as fast as its policies allow
    # It stays as it is, by somebody's word.
    IN_BAND = "in_band"  # within the HPA's tolerance
    AT_MAX = "at_max"  # maxReplicas
    AT_MIN = "at_min"  # minReplicas, or KEDA's minReplicaCount
    DISABLED = "disabled"  # selectPolicy: Disabled
    PAUSED = "paused"  # one of KEDA's annotations
    # Nobody does anything with it, and somebody should look.
    UNKNOWN = "unknown"  # nothing is told: an error to whoever asks, which changes nothing
    FALLBACK = "fallback"  # nothing is told, and KEDA puts its fallback in its place
    OBSERVED = "observed"  # only observed: nobody may ask
    CONTROLLER_ERROR = "controller_error"  # the HPA or KEDA says that it cannot scale
    NOT_ASKED = "not_asked"  # its HPA scales by something else
    NO_WAKER = "no_waker"  # at zero, and without KEDA nobody takes it up again
    NO_HPA = "no_hpa"  # KEDA has made no HPA, so that nobody goes from one to many
    NO_SCALER = "no_scaler"  # no ScaledObject and no HPA names what it scales
    TWO_HPAS = "two_hpas"  # several HPAs name it: Kubernetes obeys none
    JOBS = "jobs"  # a ScaledJob: KEDA makes Jobs of the number
    UNSEEN = "unseen"  # who acts on it, or on what, is not known here


# The HPA controller's --horizontal-pod-autoscaler-sync-period, by default.
SYNC_S = 15.0


class Act(NamedTuple):
    """In at most `within_s` seconds there are `replicas`."""

    within_s: float
    replicas: int
    why: str


@dataclass(frozen=True, slots=True)
class ControllerOutcome:
    """sentences: for a person; the first one is the answer, the others what it rests on.

    acts: what follows, in order, if nothing else changes; none is: nothing is foreseen.
    """

    code: OutcomeCode
    sentences: tuple[str, ...]
    acts: tuple[Act, ...] = ()

    @property
    def replicas(self) -> int | None:
        """That the next act sets; None: none is foreseen."""
        return self.acts[0].replicas if self.acts else None

    @property
    def within_s(self) -> float | None:
        """Seconds until then, at most."""
        return self.acts[0].within_s if self.acts else None
