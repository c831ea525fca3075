"""What Tidegate keeps of Kubernetes' objects: frozen records, a few fields each, made from the API's JSON.

A pod's JSON is about 10 kB and a node's more; a cluster has thousands. Each is trimmed to its record on arrival and
forgotten. Nothing here knows a socket or a clock; a field that an object does not say is None, never 0.

Worked example: a pod `ai/chat-7d9f8b6c5d-x2k9q` whose controller is ReplicaSet `chat-7d9f8b6c5d`, ready at 10.0.0.7,
with one `nvidia.com/gpu`, is `Pod(PodKey("ai", "chat-7d9f8b6c5d-x2k9q"), owner=Ref("ai", "ReplicaSet",
"chat-7d9f8b6c5d"), address="10.0.0.7", ready=True, gpus={"nvidia.com/gpu": 1}, …)`.

What a HorizontalPodAutoscaler and a ScaledObject say of how they scale, and what they report of it: records, and
their JSON read.

It knows the fields of autoscaling/v2 and of keda.sh/v1alpha1 and refuses to know what follows from them. None of this
decides how many replicas are wanted, so a part that cannot be read is None, and costs nobody the object.

Worked example: `behavior({"behavior": {"scaleUp": {"tolerance": "50m"}}})` is `Behavior(up=Rules(tolerance=0.05))`; of
`{"behavior": {"scaleUp": {"tolerance": "a bit"}}}` nothing is known: None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from exporter.model import PodKey

from .fields import Wrong, mapping, moment, needed, objects, quantity, text, texts, whole, wrong


class Ref(NamedTuple):
    """An object by what it is called. The API group is left out: two kinds of one name do not meet in practice."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Pod:
    """owner: its controller, the nearest one. leaving: it has been asked to go and may still work.

    address:    the primary one of a dual-stack pod.
    created_at, scheduled_at, started_at: POSIX seconds; a node was found for it, and took it on.
    ready_at:   POSIX seconds since when it has been ready; None while it is not.
    unscheduled_since: POSIX seconds since when no node can be found for it ("Unschedulable": none has room, and one
                may be on its way), or may be looked for ("SchedulingGated": a queue holds it).
    restarted:  a container of it has ended and begun again: since when it is ready says nothing of how long its start
                took.
    was_ready:  its conditions tell that it is ready or has been.
    fresh_start: it is not ready, and a container of it does not run, or began to run after it ceased to be ready: what
                it worked on is gone, and what it will work on has not come.
    host_network: its address is its node's, and others have the same one.
    labels:     all of them, about 450 bytes where there are eight: a selector may ask for any.
    ports:      container ports by name; of an unnamed one nothing is kept.
    gpus:       GPU resources it asks for, by resource name: "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/gpu".
    group_size: of a LeaderWorkerSet's pod: how many pods its group has when it is complete.
    """

    key: PodKey
    uid: str
    owner: Ref | None = None
    node: str | None = None
    address: str | None = None
    phase: str = "Pending"
    ready: bool = False
    was_ready: bool = False
    fresh_start: bool = False
    leaving: bool = False
    host_network: bool = False
    created_at: float | None = None
    scheduled_at: float | None = None
    unscheduled_since: float | None = None
    started_at: float | None = None
    ready_at: float | None = None
    restarted: bool = False
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    ports: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    gpus: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    group_size: int | None = None

    @property
    def done(self) -> bool:
        """It will not run again."""
        return self.phase in {"Succeeded", "Failed"}


@dataclass(frozen=True, slots=True)
class Link:
    """An object that is only a step on the way from a pod up to what is scaled: a ReplicaSet, a Job."""

    ref: Ref
    owner: Ref | None


@dataclass(frozen=True, slots=True)
class Scalable:
    """Something with replicas: Deployment, StatefulSet, LeaderWorkerSet, Rollout, InferenceService.

    wanted:      spec.replicas; None where the kind does not say (InferenceService).
    ready:       status.readyReplicas; None where the kind does not say.
    annotations: only those that begin with `tidegate.dev/`, without that prefix.
    uid:         what an Event must name for `kubectl describe` to find it; "" where the object does not say.
    """

    ref: Ref
    owner: Ref | None = None
    wanted: int | None = None
    ready: int | None = None
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    uid: str = ""


@dataclass(frozen=True, slots=True)
class ScaledObjectTrigger:
    """One of `spec.triggers` of a ScaledObject or ScaledJob. name: None where it has none.

    cached: useCachedMetrics: the HPA hears what KEDA heard at its last poll.
    """

    type: str
    name: str | None
    metadata: Mapping[str, str]
    cached: bool = False


@dataclass(frozen=True, slots=True)
class ScaledObject:
    """A ScaledObject, or a ScaledJob, which has no target: its Jobs are its own.

    target:  what it scales; of a ScaledJob itself.
    minimum, maximum, idle: minReplicaCount (KEDA's default 0), maxReplicaCount (100), idleReplicaCount (None).
    annotations: only those that begin with `tidegate.dev/`, without that prefix.
    behavior: what it wants its HPA's to be. pace: how KEDA goes about it. status: what KEDA reports.
    created_at: POSIX seconds.
    uid:     "" where the object does not say.
    """

    ref: Ref  # kind "ScaledObject" or "ScaledJob"
    target: Ref
    minimum: int = 0
    maximum: int = 100
    idle: int | None = None
    triggers: tuple[ScaledObjectTrigger, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    behavior: Behavior | None = None
    pace: Pace | None = None
    created_at: float | None = None
    status: ScaledStatus | None = None
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Hpa:
    """owner: the ScaledObject that made it, if one did. minimum: spec.minReplicas (default 1).

    behavior: as it is said; None is none, which is another way of scaling than the defaults of one.
    metrics:  what it scales by. status: what its controller reports.
    """

    ref: Ref
    target: Ref
    minimum: int
    maximum: int
    owner: Ref | None = None
    behavior: Behavior | None = None
    metrics: tuple[HpaMetricSpec, ...] | None = None
    status: HpaStatus | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """gpus: allocatable GPU resources by resource name, MIG profiles included."""

    name: str
    ready: bool
    schedulable: bool
    gpus: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Slice:
    """An EndpointSlice. addresses: those that are ready. ports: by name, "" for the unnamed one."""

    ref: Ref
    service: str | None
    addresses: tuple[str, ...]
    ports: Mapping[str, int]


Record: TypeAlias = Pod | Link | Scalable | ScaledObject | Hpa | Node | Slice


Read = TypeVar("Read")
_Json = Mapping[str, Any]

PAUSED = "autoscaling.keda.sh/paused"
_SHOWN = 300  # characters of a condition's message that are kept


class BehaviorPolicy(NamedTuple):
    """kind: "Pods" or "Percent". value: so many at most in `period_s` seconds."""

    kind: str
    value: int
    period_s: float


@dataclass(frozen=True, slots=True)
class BehaviorRules:
    """One direction of `behavior`, as far as it is said; what is None has Kubernetes' default.

    window_s:  stabilizationWindowSeconds. select: "Max", "Min" or "Disabled".
    tolerance: ratio; None is the cluster's.
    """

    window_s: float | None = None
    select: str | None = None
    policies: tuple[BehaviorPolicy, ...] | None = None
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class Behavior:
    """None: nothing is said of that direction."""

    up: BehaviorRules | None = None
    down: BehaviorRules | None = None

    @property
    def up_tolerance(self) -> float | None:
        return None if self.up is None else self.up.tolerance


class Condition(NamedTuple):
    """status: "True", "False" or "Unknown". message: its beginning. since: POSIX seconds."""

    type: str
    status: str
    reason: str
    message: str
    since: float | None


class HpaMetricSpec(NamedTuple):
    """One of `spec.metrics`. type: "External", "Object", "Pods", "Resource" or "ContainerResource".

    target: as "AverageValue"; value: of it, None where it is a utilisation.
    """

    type: str
    name: str
    target: str
    value: float | None


@dataclass(frozen=True, slots=True)
class HpaStatus:
    """What its controller reports. current: replicas it saw. desired: replicas it wants; None: it has not said yet.
    scaled_at: POSIX seconds; None: it never has.
    """

    current: int | None = None
    desired: int | None = None
    scaled_at: float | None = None
    conditions: tuple[Condition, ...] = ()


class ScaledObjectFallback(NamedTuple):
    """behavior: "static" takes `replicas` as they are."""

    failure_threshold: int
    replicas: int
    behavior: str = "static"


@dataclass(frozen=True, slots=True)
class Pauses:
    """The annotations `autoscaling.keda.sh/paused…`. replicas: of paused-replicas; scale_in, scale_out: the others."""

    paused: bool = False
    replicas: int | None = None
    scale_in: bool = False
    scale_out: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """How KEDA goes about it. Seconds; what is left out has KEDA's default."""

    polling_s: float = 30.0
    cooldown_s: float = 300.0
    initial_cooldown_s: float = 0.0
    fallback: ScaledObjectFallback | None = None
    pauses: Pauses = Pauses()


@dataclass(frozen=True, slots=True)
class ScaledStatus:
    """What KEDA reports. active_at: POSIX seconds when a trigger was active last; None: never."""

    active_at: float | None = None
    conditions: tuple[Condition, ...] = ()


def behavior(spec: _Json) -> Behavior | None:
    """`behavior` of an HPA's spec; None where none is said."""
    return _or_none(lambda: _behavior(spec, "spec"))


def behavior_of_keda(spec: _Json) -> Behavior | None:
    """The same of a ScaledObject's spec, that KEDA hands on to the HPA."""

    def read() -> Behavior | None:
        place = "spec.advanced.horizontalPodAutoscalerConfig"
        advanced = mapping(spec, "advanced", "spec")
        return _behavior(mapping(advanced, "horizontalPodAutoscalerConfig", "spec.advanced"), place)

    return _or_none(read)


def _behavior(parent: _Json, place: str) -> Behavior | None:
    said = mapping(parent, "behavior", place)
    up, down = (_rules(said, key, f"{place}.behavior") for key in ("scaleUp", "scaleDown"))
    return None if up is None and down is None else Behavior(up, down)


def _rules(said: _Json, key: str, place: str) -> BehaviorRules | None:
    if said.get(key) is None:
        return None
    rules, here = mapping(said, key, place), f"{place}.{key}"
    policies = None if rules.get("policies") is None else tuple(_policy(each) for each in objects(rules, "policies"))
    window_s = whole(rules, "stabilizationWindowSeconds", here)
    return BehaviorRules(
        window_s=None if window_s is None else float(window_s),
        select=_one_of(rules, "selectPolicy", here, ("Max", "Min", "Disabled")),
        policies=policies,
        tolerance=quantity(rules, "tolerance", here),
    )


def _policy(said: _Json) -> BehaviorPolicy:
    value, period = whole(said, "value", "policies"), whole(said, "periodSeconds", "policies")
    kind = _one_of(said, "type", "policies", ("Pods", "Percent"))
    if kind is None or value is None or period is None:
        raise wrong("policies", "value", "a whole number, beside type and periodSeconds", value)
    return BehaviorPolicy(kind, value, float(period))


def _one_of(parent: _Json, key: str, place: str, words: tuple[str, ...]) -> str | None:
    value = text(parent, key, place)
    if value is not None and value not in words:
        raise wrong(place, key, f"one of {', '.join(words)}", value)
    return value


def metrics(spec: _Json) -> tuple[HpaMetricSpec, ...] | None:
    """`spec.metrics` of an HPA."""
    return _or_none(lambda: tuple(_metric(each) for each in objects(spec, "metrics", "spec")))


def _metric(said: _Json) -> HpaMetricSpec:
    kind, place = needed(said, "type", "spec.metrics"), "spec.metrics"
    # The part of a metric is called as its type is, beginning in lower case: autoscaling/v2 MetricSpec.
    part = mapping(said, kind[:1].lower() + kind[1:], place)
    target = mapping(part, "target", place)
    name = text(part, "name", place) or text(mapping(part, "metric", place), "name", place) or ""
    value = quantity(target, "averageValue", place)
    whole_value = quantity(target, "value", place)
    return HpaMetricSpec(kind, name, text(target, "type", place) or "", whole_value if value is None else value)


def hpa_status(document: _Json) -> HpaStatus | None:
    """`status` of an HPA."""

    def read() -> HpaStatus:
        status = mapping(document, "status")
        conditions = _conditions(status)
        active = next((each for each in conditions if each.type == "ScalingActive"), None)
        current, desired = (whole(status, key, "status") for key in ("currentReplicas", "desiredReplicas"))
        return HpaStatus(
            # It is left out where it is 0 (`omitempty`), and ScalingActive is written by who has seen the replicas.
            current=0 if current is None and active is not None else current,
            desired=None if desired == 0 and not _wants_zero(active) else desired,
            scaled_at=moment(status, "lastScaleTime", "status"),
            conditions=conditions,
        )

    return _or_none(read)


def _wants_zero(active: Condition | None) -> bool:
    """An HPA always prints desiredReplicas: a 0 that nobody has worked out is there before the first sync, and for as
    long as no metric could be read. active: the condition ScalingActive, which is off at zero replicas too.
    """
    return active is not None and (active.status == "True" or active.reason == "ScalingDisabled")


def _conditions(status: _Json) -> tuple[Condition, ...]:
    place = "status.conditions"
    return tuple(
        Condition(
            needed(each, "type", place),
            text(each, "status", place) or "Unknown",
            text(each, "reason", place) or "",
            (text(each, "message", place) or "")[:_SHOWN],
            moment(each, "lastTransitionTime", place),
        )
        for each in objects(status, "conditions", "status")
    )


def pace(document: _Json) -> Pace | None:
    """How a ScaledObject's KEDA goes about it."""

    def read() -> Pace:
        spec, said = mapping(document, "spec"), mapping(document, "metadata")
        polling, cooldown, initial = (
            whole(spec, key, "spec") for key in ("pollingInterval", "cooldownPeriod", "initialCooldownPeriod")
        )
        return Pace(
            # KEDA's defaults (apis/keda/v1alpha1 and pkg/scaling/executor).
            polling_s=30.0 if polling is None else float(polling),
            cooldown_s=300.0 if cooldown is None else float(cooldown),
            initial_cooldown_s=float(initial or 0),
            fallback=_fallback(spec),
            pauses=pauses(texts(said, "annotations", "metadata")),
        )

    return _or_none(read)


def _fallback(spec: _Json) -> ScaledObjectFallback | None:
    if spec.get("fallback") is None:
        return None
    said, place = mapping(spec, "fallback", "spec"), "spec.fallback"
    threshold, replicas = whole(said, "failureThreshold", place), whole(said, "replicas", place)
    return ScaledObjectFallback(threshold or 0, replicas or 0, text(said, "behavior", place) or "static")


def pauses(annotations: Mapping[str, str]) -> Pauses:
    """KEDA's annotations, as scaledobject_types.go takes them: what is no truth value is taken for true."""
    replicas = annotations.get(f"{PAUSED}-replicas")
    return Pauses(
        paused=_set(annotations, PAUSED),
        replicas=int(replicas) if replicas is not None and replicas.isdecimal() else None,
        scale_in=_set(annotations, f"{PAUSED}-scale-in"),
        scale_out=_set(annotations, f"{PAUSED}-scale-out"),
    )


# Go's strconv.ParseBool.
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}


def _set(annotations: Mapping[str, str], key: str) -> bool:
    return key in annotations and annotations[key] not in _FALSE


def scaled_status(document: _Json) -> ScaledStatus | None:
    """`status` of a ScaledObject."""

    def read() -> ScaledStatus:
        status = mapping(document, "status")
        return ScaledStatus(moment(status, "lastActiveTime", "status"), _conditions(status))

    return _or_none(read)


def _or_none(read: Callable[[], Read]) -> Read | None:
    try:
        return read()
    except Wrong:
        return None
