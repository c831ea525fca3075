"""Defines the records that Tidegate keeps of Kubernetes objects: frozen, a few fields each.

A pod's JSON is about 10 kB and a node's more; a cluster has thousands. Each is reduced to its record on arrival
(`decode`). A field that an object does not have is None, never 0.

Worked example: a pod `ai/chat-7d9f8b6c5d-x2k9q` of ReplicaSet `chat-7d9f8b6c5d`, ready at 10.0.0.7,
with one `nvidia.com/gpu`, is `Pod(PodKey("ai", "chat-7d9f8b6c5d-x2k9q"), owner=Ref("ai", "ReplicaSet",
"chat-7d9f8b6c5d"), address="10.0.0.7", ready=True, gpus={"nvidia.com/gpu": 1}, …)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from exporter.model import PodKey

from .fields import NOTHING
from .placement import NO_TRAITS, PodTraits, QuotaScope, Taint


def _empty() -> Mapping[str, Any]:
    return NOTHING


class Ref(NamedTuple):
    """Identifies an object. The API group is left out: two kinds of one name do not meet in practice."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod. Times are POSIX seconds.

    owner:        its controller, the nearest one.
    address:      the primary one of a dual-stack pod.
    was_ready:    its conditions show that it is or was ready.
    fresh_start:  it is not ready, and one of its containers does not run, or started after the pod ceased to be ready:
                  the requests it had are lost, and new ones have not come.
    leaving:      it is being deleted, and may still serve.
    host_network: its address is its node's, which other pods share.
    scheduled_at: when a node was found for it. started_at: when the kubelet accepted it.
    unscheduled_since: since when no node can be found for it ("Unschedulable": none has room, and one may be on its
                  way), or may be searched ("SchedulingGated": a queue holds it).
    unscheduled_why: the scheduler's message.
    ready_at:     since when it has been ready; None while it is not.
    restarted:    one of its containers has restarted, so `ready_at` does not measure its start.
    labels:       all of them, about 450 bytes where there are eight: a selector may need any.
    ports:        container ports by name; unnamed ones are dropped.
    gpus:         GPU resources it requests, by resource name: "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/gpu".
    group_size:   pods in a complete group of its LeaderWorkerSet.
    gated:        a queue (Kueue) holds it: it has no quota there yet.
    traits:       of a pod that requests GPUs.
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
    unscheduled_why: str = ""
    started_at: float | None = None
    ready_at: float | None = None
    restarted: bool = False
    labels: Mapping[str, str] = field(default_factory=_empty)
    ports: Mapping[str, int] = field(default_factory=_empty)
    gpus: Mapping[str, int] = field(default_factory=_empty)
    group_size: int | None = None
    gated: bool = False
    traits: PodTraits = NO_TRAITS

    @property
    def done(self) -> bool:
        """Whether it has ended for good."""
        return self.phase in {"Succeeded", "Failed"}


@dataclass(frozen=True, slots=True)
class Link:
    """An object of which only the owner matters: a ReplicaSet, a Job."""

    ref: Ref
    owner: Ref | None


@dataclass(frozen=True, slots=True)
class Scalable:
    """An object with replicas: Deployment, StatefulSet, LeaderWorkerSet, Rollout, InferenceService, InferenceSet.

    wanted:      spec.replicas; None where the kind has no such field (InferenceService).
    ready:       status.readyReplicas; None where the kind has no such field.
    annotations: those that begin with `tidegate.dev/`, without that prefix.
    uid:         an Event must carry it for `kubectl describe` to find it; "" if missing.
    labels:      all of them: one may name its team.
    gpus:        of one replica, by resource name, as its template requests them.
    gpu_model:   the model that its template's nodeSelector names; None if it names none.
    traits:      of its template, if that requests GPUs.
    """

    ref: Ref
    owner: Ref | None = None
    wanted: int | None = None
    ready: int | None = None
    annotations: Mapping[str, str] = field(default_factory=_empty)
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=_empty)
    gpus: Mapping[str, int] = field(default_factory=_empty)
    gpu_model: str | None = None
    traits: PodTraits = NO_TRAITS


@dataclass(frozen=True, slots=True)
class ScaledObjectTrigger:
    """One of `spec.triggers` of a ScaledObject or ScaledJob.

    cached: useCachedMetrics: the HPA gets the value of KEDA's last poll.
    """

    type: str
    name: str | None
    metadata: Mapping[str, str]
    cached: bool = False


@dataclass(frozen=True, slots=True)
class ScaledObject:
    """A ScaledObject or a ScaledJob.

    target:      what it scales; a ScaledJob itself, which has no other target than its Jobs.
    minimum, maximum, idle: minReplicaCount (KEDA's default 0), maxReplicaCount (100), idleReplicaCount (None).
    annotations: those that begin with `tidegate.dev/`, without that prefix.
    behavior:    for the HPA that KEDA creates.
    created_at:  POSIX seconds.
    uid:         "" if missing.
    """

    ref: Ref  # kind "ScaledObject" or "ScaledJob"
    target: Ref
    minimum: int = 0
    maximum: int = 100
    idle: int | None = None
    triggers: tuple[ScaledObjectTrigger, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=_empty)
    behavior: Behavior | None = None
    pace: Pace | None = None
    created_at: float | None = None
    status: ScaledStatus | None = None
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Hpa:
    """A HorizontalPodAutoscaler.

    minimum:  spec.minReplicas (default 1).
    owner:    the ScaledObject it was created for, if any.
    behavior: None is no `behavior`, which scales differently from the defaults of one.
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
    """gpus: allocatable GPU resources by resource name, MIG profiles included. labels: those that describe its GPUs.

    taints: those that keep pods away; a cordoned node and one that is not ready have no others for that.
    """

    name: str
    ready: bool
    schedulable: bool
    gpus: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=_empty)
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class Slice:
    """An EndpointSlice. addresses: the ready ones. ports: by name, "" for the unnamed one."""

    ref: Ref
    service: str | None
    addresses: tuple[str, ...]
    ports: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class GpuQuota:
    """A ResourceQuota. gpus: the most, by resource name. scopes: it counts the pods that all of these match."""

    ref: Ref
    gpus: Mapping[str, int]
    scopes: tuple[QuotaScope, ...] = ()


class FlavorQuota(NamedTuple):
    """GPUs of a ClusterQueue or Cohort, of one resource name and flavor. borrowing, lending: None: without a limit."""

    nominal: int
    borrowing: int | None
    lending: int | None
    reserved: int


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """Of Kueue. flavors: its quotas of GPUs by resource name and flavor.

    reclaims: it preempts queues of its cohort that borrow from it. stopped: it admits nothing.
    """

    ref: Ref
    flavors: Mapping[str, Mapping[str, FlavorQuota]]
    cohort: str = ""
    reclaims: bool = False
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """Of Kueue. queue: the name of its ClusterQueue."""

    ref: Ref
    queue: str


@dataclass(frozen=True, slots=True)
class ResourceFlavor:
    """Of Kueue. model: the GPU model that its node labels name."""

    ref: Ref
    model: str | None


@dataclass(frozen=True, slots=True)
class Cohort:
    """Of Kueue. flavors: its own quotas, as of a ClusterQueue. cohort: the one above it; "": none."""

    ref: Ref
    flavors: Mapping[str, Mapping[str, FlavorQuota]] = field(default_factory=_empty)
    cohort: str = ""


class BehaviorPolicy(NamedTuple):
    """kind: "Pods" or "Percent". value: the most in `period_s` seconds."""

    kind: str
    value: int
    period_s: float


@dataclass(frozen=True, slots=True)
class BehaviorRules:
    """One direction of `behavior`; None is Kubernetes' default.

    window_s:  stabilizationWindowSeconds. select: "Max", "Min" or "Disabled".
    tolerance: a ratio; None is the cluster's.
    """

    window_s: float | None = None
    select: str | None = None
    policies: tuple[BehaviorPolicy, ...] | None = None
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class Behavior:
    """scaleUp and scaleDown; None where that direction is missing."""

    up: BehaviorRules | None = None
    down: BehaviorRules | None = None

    @property
    def up_tolerance(self) -> float | None:
        return None if self.up is None else self.up.tolerance


class Condition(NamedTuple):
    """status: "True", "False" or "Unknown". message: its first 300 characters. since: POSIX seconds."""

    type: str
    status: str
    reason: str
    message: str
    since: float | None


class HpaMetricSpec(NamedTuple):
    """One of `spec.metrics`. type: "External", "Object", "Pods", "Resource" or "ContainerResource".

    target: its type, such as "AverageValue". value: the target's; None where it is a utilization.
    """

    type: str
    name: str
    target: str
    value: float | None


@dataclass(frozen=True, slots=True)
class HpaStatus:
    """current: replicas it counted. desired: replicas it wants; None before its first computation.
    scaled_at: POSIX seconds of the last scaling; None if it never scaled.
    """

    current: int | None = None
    desired: int | None = None
    scaled_at: float | None = None
    conditions: tuple[Condition, ...] = ()


class ScaledObjectFallback(NamedTuple):
    """behavior: "static" applies `replicas` unchanged."""

    failure_threshold: int
    replicas: int
    behavior: str = "static"


@dataclass(frozen=True, slots=True)
class Pauses:
    """The annotations `autoscaling.keda.sh/paused…`. replicas: of paused-replicas."""

    paused: bool = False
    replicas: int | None = None
    scale_in: bool = False
    scale_out: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """When KEDA polls, scales to zero, falls back and pauses. Defaults are KEDA's."""

    polling_s: float = 30.0
    cooldown_s: float = 300.0
    initial_cooldown_s: float = 0.0
    fallback: ScaledObjectFallback | None = None
    pauses: Pauses = Pauses()


@dataclass(frozen=True, slots=True)
class ScaledStatus:
    """active_at: POSIX seconds when a trigger was last active; None: never."""

    active_at: float | None = None
    conditions: tuple[Condition, ...] = ()


QueueRecord: TypeAlias = ClusterQueue | LocalQueue | ResourceFlavor | Cohort
Record: TypeAlias = Pod | Link | Scalable | ScaledObject | Hpa | Node | Slice | GpuQuota | QueueRecord
