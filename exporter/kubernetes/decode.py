"""Decodes the JSON of one Kubernetes object to its record.

An object that is not valid raises Malformed; other objects are not affected.

Worked example: `decode(Ref("ai", "Pod", "chat-0"), {"metadata": {"uid": "u"}})` returns a pending `Pod` without owner,
address and GPUs. With `"spec": {"containers": "none"}` it raises `Malformed`: "ai/Pod/chat-0: spec.containers: must be
a list of objects, got 'none'".

GPUs are counted by resource name, with Kubernetes' arithmetic of containers, init containers and sidecars. A pod with
an init container that requests 2 `nvidia.com/gpu` and two containers of 1 each holds 2; with a sidecar (an init
container that always restarts) that requests 1 as well, it holds 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from exporter.model import PodKey

from . import kueue
from .decode_autoscaling import behavior, behavior_of_scaled_object, hpa_status, metrics, pace, scaled_object_status
from .fields import NOTHING, FieldError, Fields
from .gpus import LABEL_ENDS, MODEL_LABELS, is_gpu
from .objects import GpuQuota, Hpa, Link, Node, Pod, Record, Ref, Scalable, ScaledObject, ScaledObjectTrigger, Slice
from .placement import NO_TRAITS, PodTraits, scopes_of, taints_of, traits_of
from .resources import Resource

GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"  # "0" is the leader

ANNOTATIONS = "tidegate.dev/"

_GROUP_SIZE = "leaderworkerset.sigs.k8s.io/size"
_LONGEST_GROUP_SIZE = 6  # digits: a million pods
_SERVICE = "kubernetes.io/service-name"
# Reasons of the condition PodScheduled for which a pod waits (core/v1 PodReasonUnschedulable and
# PodReasonSchedulingGated). The third, SchedulerError, is the scheduler's own failure, and it tries again at once.
_NO_NODE = {"Unschedulable", "SchedulingGated"}
_LONGEST_MESSAGE = 400  # of the scheduler: a clause for each kind of node
# A condition that has not changed since the kubelet first wrote it is as old as the pod's start, and times are in whole
# seconds: two of one moment may be a second apart.
_SAME_MOMENT_S = 1.0


class Malformed(ValueError):  # noqa: N818 - the document is malformed
    """An invalid object. ref: None if its name is missing. why: path, bound and value."""

    def __init__(self, ref: Ref | None, why: str) -> None:
        super().__init__(f"{ref or 'an object without a name'}: {why}")
        self.ref, self.why = ref, why


def decode(ref: Ref, document: Mapping[str, Any]) -> Record:
    """The record of the object that `identify` has named. Raises Malformed."""
    try:
        return _DECODERS[ref.kind](ref, Fields(document))
    except FieldError as error:
        raise Malformed(ref, str(error)) from None


def identify(resource: Resource, document: object) -> Ref:
    """The namespace and name of an object of `resource`. Raises Malformed."""
    try:
        if not isinstance(document, dict):
            raise Fields({"document": document}).error("document", "an object")
        metadata = Fields(document).object("metadata")
        namespace = metadata.required_text("namespace") if resource.namespaced else ""
        return Ref(namespace, resource.kind, metadata.required_text("name"))
    except FieldError as error:
        raise Malformed(None, f"{resource}: {error}") from None


def gpus_of_pod(spec: Fields) -> Mapping[str, int]:
    """GPUs that a pod with this `spec` holds, by resource name. Raises FieldError."""
    return _gpus_held(spec, spec.objects("containers"))


def _gpus_held(spec: Fields, running_containers: Sequence[Fields]) -> Mapping[str, int]:
    containers = [_gpus_of_container(container) for container in running_containers]
    first = spec.objects("initContainers")
    if not first and len(containers) == 1:  # most pods, and a cluster has thousands
        return containers[0] or NOTHING
    started = Counter[str]()  # held by the sidecars that have started so far
    most = Counter[str]()  # the most that is held while the init containers run
    for container in first:
        requested = Counter(_gpus_of_container(container))
        most |= started + requested
        if container.text("restartPolicy") == "Always":
            started += requested
    running = sum(map(Counter, containers), started)
    return dict(most | running) or NOTHING


def gpus_of(resources: Fields) -> dict[str, int]:
    """The GPUs in a list of resources, none of 0. Raises FieldError."""
    return {name: number for name in resources.values if is_gpu(name) and (number := resources.amount(name))}


def _gpus_of_container(container: Fields) -> dict[str, int]:
    resources = container.object("resources")
    if not resources.values:
        return {}
    # The request of an extended resource must equal its limit, and is set from it if only the limit is written.
    return {**gpus_of(resources.object("requests")), **gpus_of(resources.object("limits"))}


def _owner(metadata: Fields, namespace: str) -> Ref | None:
    """The controller. Other owners only decide when the object is deleted."""
    for reference in metadata.objects("ownerReferences"):
        if reference.values.get("controller") is True:
            return Ref(namespace, reference.required_text("kind"), reference.required_text("name"))
    return None


def _pod(ref: Ref, document: Fields) -> Pod:
    metadata, spec, status = document.object("metadata"), document.object("spec"), document.object("status")
    containers, statuses = spec.objects("containers"), status.objects("containerStatuses")
    ready, ready_since, _, _ = _condition(status, "Ready")
    scheduled, scheduled_at, why_not, message = _condition(status, "PodScheduled")
    has_no_node = not scheduled and why_not in _NO_NODE
    started_at = status.time("startTime")
    gpus = _gpus_held(spec, containers)
    return Pod(
        key=PodKey(ref.namespace, ref.name),
        uid=metadata.required_text("uid"),
        owner=_owner(metadata, ref.namespace),
        node=spec.text("nodeName"),
        address=status.text("podIP"),
        phase=status.text("phase") or "Pending",
        ready=ready,
        was_ready=ready
        or (started_at is not None and ready_since is not None and ready_since > started_at + _SAME_MOMENT_S),
        fresh_start=not ready and any(_started_after(container, ready_since) for container in statuses),
        leaving=metadata.values.get("deletionTimestamp") is not None,
        host_network=spec.boolean("hostNetwork") or False,
        created_at=metadata.time("creationTimestamp"),
        scheduled_at=scheduled_at if scheduled else None,
        unscheduled_since=scheduled_at if has_no_node else None,
        unscheduled_why=(message or why_not or "")[:_LONGEST_MESSAGE] if has_no_node else "",
        started_at=started_at,
        ready_at=ready_since if ready else None,
        restarted=any(container.integer("restartCount") for container in statuses),
        labels=metadata.texts("labels"),
        ports=_container_ports(containers),
        gpus=gpus,
        group_size=_group_size(metadata),
        gated=any(gate.values.get("name") == kueue.GATE for gate in spec.objects("schedulingGates")),
        traits=traits_of(spec) if gpus else NO_TRAITS,
    )


def _condition(status: Fields, kind: str) -> tuple[bool, float | None, str | None, str | None]:
    """Whether a condition is true, since when, its reason and its message. "Unknown" is not true."""
    condition = status.of_type("conditions", kind)
    if condition is None:
        return False, None, None, None
    since, reason = condition.time("lastTransitionTime"), condition.text("reason")
    return condition.values.get("status") == "True", since, reason, condition.text("message")


def _started_after(container: Fields, unready_since: float | None) -> bool:
    """Whether a container does not run, or started after its pod ceased to be ready."""
    started_at = container.object("state").object("running").time("startedAt")
    return started_at is None or (unready_since is not None and started_at > unready_since)


def _container_ports(containers: Sequence[Fields]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for container in containers:
        for port in container.objects("ports"):
            name, number = port.text("name"), port.integer("containerPort")
            if name is not None and number is not None:
                found.setdefault(name, number)
    return found or NOTHING


def _group_size(metadata: Fields) -> int | None:
    annotations = metadata.object("annotations")
    value = annotations.values.get(_GROUP_SIZE)
    if value is None:
        return None
    if not isinstance(value, str) or not value.isdecimal() or len(value) > _LONGEST_GROUP_SIZE:
        raise annotations.error(_GROUP_SIZE, "a whole number")
    return int(value)


def _node(ref: Ref, document: Fields) -> Node:
    status = document.object("status")
    return Node(
        name=ref.name,
        ready=_condition(status, "Ready")[0],
        schedulable=not document.object("spec").boolean("unschedulable"),
        taints=taints_of(document.object("spec")),
        gpus=gpus_of(status.object("allocatable")) or NOTHING,
        labels={
            name: value
            for name, value in document.object("metadata").texts("labels").items()
            if name.startswith(("nvidia.com/", "amd.com/")) and name.endswith(LABEL_ENDS)
        }
        or NOTHING,
    )


def _link(ref: Ref, document: Fields) -> Link:
    return Link(ref, _owner(document.object("metadata"), ref.namespace))


def _scalable(ref: Ref, document: Fields) -> Scalable:
    wanted = document.object("spec").integer("replicas")
    try:
        gpus, gpu_model, traits = _template_gpus(document.object("spec"))
    except FieldError:  # of a CRD with other templates: what its replicas need is unknown
        gpus, gpu_model, traits = NOTHING, None, NO_TRAITS
    return Scalable(
        ref,
        owner=_owner(document.object("metadata"), ref.namespace),
        wanted=1 if wanted is None else wanted,
        # The controllers leave out a zero.
        ready=document.object("status").integer("readyReplicas") or 0,
        annotations=_annotations(document),
        uid=_uid(document),
        labels=document.object("metadata").texts("labels"),
        gpus=gpus,
        gpu_model=gpu_model,
        traits=traits,
    )


def _template_gpus(spec: Fields) -> tuple[Mapping[str, int], str | None, PodTraits]:
    """The GPUs of one replica by the templates of its pods, the model that their nodeSelector names, and their traits.

    A group of a LeaderWorkerSet is a leader, by its own template if there is one, and `size` - 1 workers.
    """
    group = spec.object("leaderWorkerTemplate")
    if not group.values:
        pod = spec.object("template").object("spec")
        found = gpus_of_pod(pod)
        return found, _selected_model(pod), traits_of(pod) if found else NO_TRAITS
    worker = group.object("workerTemplate").object("spec")
    leader = group.object("leaderTemplate").object("spec") if group.values.get("leaderTemplate") else worker
    size = group.integer("size") or 1
    total = Counter(gpus_of_pod(leader))
    for resource, number in gpus_of_pod(worker).items():
        total[resource] += number * (size - 1)
    return dict(total) or NOTHING, _selected_model(worker), traits_of(worker) if total else NO_TRAITS


def _selected_model(pod: Fields) -> str | None:
    selector = pod.object("nodeSelector")
    return next((model for label in MODEL_LABELS if (model := selector.text(label))), None)


def _quota(ref: Ref, document: Fields) -> GpuQuota:
    """With scopes that are not known, it limits nothing."""
    spec = document.object("spec")
    scopes = scopes_of(spec)
    if scopes is None:
        return GpuQuota(ref, NOTHING)
    hard = spec.object("hard")
    limits = {name.removeprefix("requests."): name for name in hard.values if name.startswith("requests.")}
    return GpuQuota(ref, {name: hard.amount(key) for name, key in limits.items() if is_gpu(name)} or NOTHING, scopes)


def _inference_service(ref: Ref, document: Fields) -> Scalable:
    owner = _owner(document.object("metadata"), ref.namespace)
    labels = document.object("metadata").texts("labels")
    return Scalable(ref, owner=owner, annotations=_annotations(document), uid=_uid(document), labels=labels)


def _uid(document: Fields) -> str:
    return document.object("metadata").text("uid") or ""


def _annotations(document: Fields) -> Mapping[str, str]:
    """Tidegate's annotations, without their prefix. Others may have any type."""
    annotations = document.object("metadata").object("annotations")
    found = {name: value for name, value in annotations.values.items() if name.startswith(ANNOTATIONS)}
    for name, value in found.items():
        if not isinstance(value, str):
            raise annotations.error(name, "text")
    return {name.removeprefix(ANNOTATIONS): value for name, value in found.items()} or NOTHING


def _scaled_object(ref: Ref, document: Fields) -> ScaledObject:
    spec = document.object("spec")
    minimum, maximum = spec.integer("minReplicaCount"), spec.integer("maxReplicaCount")
    return ScaledObject(
        ref,
        target=ref if ref.kind == "ScaledJob" else _target(document, ref.namespace),
        # KEDA's defaults (apis/keda/v1alpha1).
        minimum=0 if minimum is None else minimum,
        maximum=100 if maximum is None else maximum,
        idle=spec.integer("idleReplicaCount"),
        triggers=tuple(map(_trigger, spec.objects("triggers"))),
        annotations=_annotations(document),
        behavior=behavior_of_scaled_object(spec),
        pace=pace(document),
        created_at=document.object("metadata").time("creationTimestamp"),
        status=scaled_object_status(document),
        uid=_uid(document),
    )


def _trigger(fields: Fields) -> ScaledObjectTrigger:
    return ScaledObjectTrigger(
        fields.required_text("type"),
        fields.text("name"),
        fields.texts("metadata"),
        cached=fields.boolean("useCachedMetrics") or False,
    )


def _target(document: Fields, namespace: str) -> Ref:
    reference = document.object("spec").object("scaleTargetRef")
    return Ref(namespace, reference.text("kind") or "Deployment", reference.required_text("name"))


def _hpa(ref: Ref, document: Fields) -> Hpa:
    spec = document.object("spec")
    minimum, maximum = spec.integer("minReplicas"), spec.integer("maxReplicas")
    if maximum is None:
        raise spec.error("maxReplicas", "a whole number")
    return Hpa(
        ref,
        _target(document, ref.namespace),
        1 if minimum is None else minimum,
        maximum,
        owner=_owner(document.object("metadata"), ref.namespace),
        behavior=behavior(spec),
        metrics=metrics(spec),
        status=hpa_status(document),
    )


def _slice(ref: Ref, document: Fields) -> Slice:
    service = document.object("metadata").object("labels").text(_SERVICE)
    addresses = {address for endpoint in document.objects("endpoints") for address in _ready_addresses(endpoint)}
    ports = {
        port.text("name") or "": number
        for port in document.objects("ports")
        if (number := port.integer("port")) is not None
    }
    # FQDN is deprecated, and its values are not addresses.
    is_fqdn = document.values.get("addressType") == "FQDN"
    return Slice(ref, service, () if is_fqdn else tuple(sorted(addresses)), ports or NOTHING)


def _ready_addresses(endpoint: Fields) -> list[str]:
    """The first address of a ready endpoint: all are of one endpoint, and clients may use any.

    A missing `ready` counts as true (discovery/v1 EndpointConditions).
    """
    if endpoint.object("conditions").boolean("ready") is False:
        return []
    addresses = endpoint.values.get("addresses")
    if addresses is None:
        return []
    if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
        raise endpoint.error("addresses", "a list of texts")
    return addresses[:1]


_DECODERS: Mapping[str, Callable[[Ref, Fields], Record]] = {
    "Pod": _pod,
    "Node": _node,
    "ReplicaSet": _link,
    "Job": _link,
    "Deployment": _scalable,
    "StatefulSet": _scalable,
    "LeaderWorkerSet": _scalable,
    "Rollout": _scalable,
    "InferenceService": _inference_service,
    "InferenceSet": _scalable,
    "Workspace": _link,
    "EndpointSlice": _slice,
    "ResourceQuota": _quota,
    "ClusterQueue": kueue.decode_cluster_queue,
    "LocalQueue": kueue.decode_local_queue,
    "ResourceFlavor": kueue.decode_resource_flavor,
    "Cohort": kueue.decode_cohort,
    "HorizontalPodAutoscaler": _hpa,
    "ScaledObject": _scaled_object,
    "ScaledJob": _scaled_object,
}
