"""What Tidegate keeps of Kubernetes' objects: frozen records, a few fields each, made from the API's JSON.

A pod's JSON is about 10 kB and a node's more; a cluster has thousands. Each is trimmed to its record on arrival and
forgotten. Nothing here knows a socket or a clock; a field that an object does not say is None, never 0.

Worked example: a pod `ai/chat-7d9f8b6c5d-x2k9q` whose controller is ReplicaSet `chat-7d9f8b6c5d`, ready at 10.0.0.7,
with one `nvidia.com/gpu`, is `Pod(PodKey("ai", "chat-7d9f8b6c5d-x2k9q"), owner=Ref("ai", "ReplicaSet",
"chat-7d9f8b6c5d"), address="10.0.0.7", ready=True, gpus={"nvidia.com/gpu": 1}, …)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from exporter.model import PodKey

from .autoscaling import Behavior, HpaStatus, Metric, Pace, ScaledStatus


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
class Trigger:
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
    triggers: tuple[Trigger, ...] = ()
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
    metrics: tuple[Metric, ...] | None = None
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
