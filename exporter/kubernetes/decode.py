"""One object of the API's JSON -> its record.

It knows where Kubernetes and its extensions write what we keep, and their defaults. It refuses to know how the JSON got
here and what other objects there are. An object that cannot be what it says is `Malformed`, and costs itself.

Worked example: `read(PODS, {"metadata": {"namespace": "ai", "name": "chat-0", "uid": "u"}})` is a pending `Pod` with no
owner, no address and no GPUs. With `"spec": {"containers": "none"}` it raises `Malformed`: "ai/Pod/chat-0:
spec.containers: must be a list of objects, got 'none'".

How many GPUs a pod asks for, and a node has to give, by resource name.

It knows Kubernetes' arithmetic of containers, init containers and sidecars, and which resource names are GPUs. It
refuses to know which GPU a pod got: that is the device plugin's word, and dcgm-exporter repeats it.

Worked example: a pod whose one init container asks for 2 `nvidia.com/gpu` and whose two containers ask for 1 each
holds 2; with a sidecar (an init container that restarts always) that asks for 1 as well, it holds 3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from exporter.model import PodKey

from .fields import NOTHING, Wrong, amount, mapping, moment, needed, objects, text, texts, true, whole, wrong
from .objects import (
    Hpa,
    Link,
    Node,
    Pod,
    Record,
    Ref,
    Scalable,
    ScaledObject,
    ScaledObjectTrigger,
    Slice,
    behavior,
    behavior_of_keda,
    hpa_status,
    metrics,
    pace,
    scaled_status,
)
from .resources import Resource

GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"  # "0" is the leader

ANNOTATIONS = "tidegate.dev/"

_GROUP_SIZE = "leaderworkerset.sigs.k8s.io/size"
_SERVICE = "kubernetes.io/service-name"
# Why a pod waits for a node, in its condition PodScheduled (core/v1 PodReasonUnschedulable, PodReasonSchedulingGated).
# Of the third, SchedulerError, the scheduler itself is the cause, and it tries again at once.
_NO_NODE = {"Unschedulable", "SchedulingGated"}
# A condition that has not changed since the kubelet first wrote it is as old as the pod's start, and times are in whole
# seconds: two of one moment may be a second apart.
_SAME_MOMENT_S = 1.0

_Json = Mapping[str, Any]


class Malformed(ValueError):  # noqa: N818 - the document is, not we
    """An object that cannot be what it says. ref: which, as far as it says so. why: path, bound and value."""

    def __init__(self, ref: Ref | None, why: str) -> None:
        super().__init__(f"{ref or 'an object without a name'}: {why}")
        self.ref, self.why = ref, why


def read(resource: Resource, document: object) -> Record:
    """The record of one object of `resource`. Raises Malformed."""
    ref = identify(resource, document)
    assert isinstance(document, dict)  # noqa: S101 - `identify` has seen to it; this tells the type checker
    try:
        return _READERS[resource.kind](ref, document)
    except Wrong as error:
        raise Malformed(ref, str(error)) from None


def identify(resource: Resource, document: object) -> Ref:
    """What an object of `resource` is called. Raises Malformed."""
    try:
        if not isinstance(document, dict):
            raise wrong("", "document", "an object", document)
        metadata = mapping(document, "metadata")
        namespace = needed(metadata, "namespace", "metadata") if resource.namespaced else ""
        return Ref(namespace, resource.kind, needed(metadata, "name", "metadata"))
    except Wrong as error:
        raise Malformed(None, f"{resource}: {error}") from None


def _owner(document: _Json, namespace: str) -> Ref | None:
    """The controller; an owner that is not one only decides when the object is to be deleted."""
    for reference in objects(mapping(document, "metadata"), "ownerReferences", "metadata"):
        if reference.get("controller") is True:
            place = "metadata.ownerReferences"
            return Ref(namespace, needed(reference, "kind", place), needed(reference, "name", place))
    return None


def _pod(ref: Ref, document: _Json) -> Pod:
    metadata, spec, status = mapping(document, "metadata"), mapping(document, "spec"), mapping(document, "status")
    ready, ready_since = _condition(status, "Ready")
    scheduled, scheduled_at, why_not = _condition_and_reason(status, "PodScheduled")
    started_at = moment(status, "startTime", "status")
    return Pod(
        key=PodKey(ref.namespace, ref.name),
        uid=needed(metadata, "uid", "metadata"),
        owner=_owner(document, ref.namespace),
        node=text(spec, "nodeName", "spec"),
        address=text(status, "podIP", "status"),
        phase=text(status, "phase", "status") or "Pending",
        ready=ready,
        was_ready=ready
        or (started_at is not None and ready_since is not None and ready_since > started_at + _SAME_MOMENT_S),
        fresh_start=not ready and _starts_afresh(status, ready_since),
        leaving=metadata.get("deletionTimestamp") is not None,
        host_network=true(spec, "hostNetwork", "spec") or False,
        created_at=moment(metadata, "creationTimestamp", "metadata"),
        scheduled_at=scheduled_at if scheduled else None,
        unscheduled_since=scheduled_at if not scheduled and why_not in _NO_NODE else None,
        started_at=started_at,
        ready_at=ready_since if ready else None,
        restarted=_restarted(status),
        labels=texts(metadata, "labels", "metadata") or NOTHING,
        ports=_ports(spec),
        gpus=asked_for(spec),
        group_size=_group_size(metadata),
    )


def _condition(status: _Json, kind: str) -> tuple[bool, float | None]:
    """Whether a condition is true, and since when it is as it is. "Unknown" is not true."""
    return _condition_and_reason(status, kind)[:2]


def _condition_and_reason(status: _Json, kind: str) -> tuple[bool, float | None, str | None]:
    place = "status.conditions"
    for condition in objects(status, "conditions", "status"):
        if condition.get("type") == kind:
            since = moment(condition, "lastTransitionTime", place)
            return condition.get("status") == "True", since, text(condition, "reason", place)
    return False, None, None


def _restarted(status: _Json) -> bool:
    place = "status.containerStatuses"
    return any(whole(container, "restartCount", place) for container in objects(status, "containerStatuses", "status"))


def _starts_afresh(status: _Json, unready_since: float | None) -> bool:
    """Of a pod that is not ready: has a container stopped, or begun after it was ready for the last time?"""
    for container in objects(status, "containerStatuses", "status"):
        place = "status.containerStatuses.state"
        running = mapping(mapping(container, "state", "status.containerStatuses"), "running", place)
        began = moment(running, "startedAt", f"{place}.running")
        if began is None or (unready_since is not None and began > unready_since):
            return True
    return False


def _ports(spec: _Json) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for container in objects(spec, "containers", "spec"):
        for port in objects(container, "ports", "spec.containers"):
            name, number = (
                text(port, "name", "spec.containers.ports"),
                whole(port, "containerPort", "spec.containers.ports"),
            )
            if name is not None and number is not None:
                found.setdefault(name, number)
    return found or NOTHING


def _group_size(metadata: _Json) -> int | None:
    said = mapping(metadata, "annotations", "metadata").get(_GROUP_SIZE)
    if said is None:
        return None
    if not isinstance(said, str) or not said.isdecimal() or len(said) > 6:  # noqa: PLR2004 - a million pods
        raise wrong("metadata.annotations", _GROUP_SIZE, "a whole number", said)
    return int(said)


def _node(ref: Ref, document: _Json) -> Node:
    status = mapping(document, "status")
    return Node(
        name=ref.name,
        ready=_condition(status, "Ready")[0],
        schedulable=not true(mapping(document, "spec"), "unschedulable", "spec"),
        gpus=named(mapping(status, "allocatable", "status"), "status.allocatable") or NOTHING,
    )


def _link(ref: Ref, document: _Json) -> Link:
    return Link(ref, _owner(document, ref.namespace))


def _scalable(ref: Ref, document: _Json) -> Scalable:
    wanted = whole(mapping(document, "spec"), "replicas", "spec")
    return Scalable(
        ref,
        owner=_owner(document, ref.namespace),
        wanted=1 if wanted is None else wanted,
        # The controllers leave out a zero.
        ready=whole(mapping(document, "status"), "readyReplicas", "status") or 0,
        annotations=_annotations(document),
        uid=_uid(document),
    )


def _inference_service(ref: Ref, document: _Json) -> Scalable:
    return Scalable(ref, owner=_owner(document, ref.namespace), annotations=_annotations(document), uid=_uid(document))


def _uid(document: _Json) -> str:
    return text(mapping(document, "metadata"), "uid", "metadata") or ""


def _annotations(document: _Json) -> Mapping[str, str]:
    said = mapping(mapping(document, "metadata"), "annotations", "metadata")
    ours = {name: said[name] for name in said if name.startswith(ANNOTATIONS)}
    for name, value in ours.items():
        if not isinstance(value, str):
            raise wrong("metadata.annotations", name, "text", value)
    return {name.removeprefix(ANNOTATIONS): value for name, value in ours.items()} or NOTHING


def _scaled_object(ref: Ref, document: _Json) -> ScaledObject:
    spec = mapping(document, "spec")
    return _bounds(ref, document, _target(spec, ref.namespace))


def _scaled_job(ref: Ref, document: _Json) -> ScaledObject:
    return _bounds(ref, document, ref)


def _bounds(ref: Ref, document: _Json, target: Ref) -> ScaledObject:
    spec = mapping(document, "spec")
    minimum, maximum = whole(spec, "minReplicaCount", "spec"), whole(spec, "maxReplicaCount", "spec")
    return ScaledObject(
        ref,
        target,
        # KEDA's defaults (apis/keda/v1alpha1).
        minimum=0 if minimum is None else minimum,
        maximum=100 if maximum is None else maximum,
        idle=whole(spec, "idleReplicaCount", "spec"),
        triggers=tuple(_trigger(trigger) for trigger in objects(spec, "triggers", "spec")),
        annotations=_annotations(document),
        behavior=behavior_of_keda(spec),
        pace=pace(document),
        created_at=moment(mapping(document, "metadata"), "creationTimestamp", "metadata"),
        status=scaled_status(document),
        uid=_uid(document),
    )


def _trigger(trigger: _Json) -> ScaledObjectTrigger:
    place = "spec.triggers"
    return ScaledObjectTrigger(
        needed(trigger, "type", place),
        text(trigger, "name", place),
        texts(trigger, "metadata", place),
        cached=true(trigger, "useCachedMetrics", place) or False,
    )


def _target(spec: _Json, namespace: str) -> Ref:
    reference, place = mapping(spec, "scaleTargetRef", "spec"), "spec.scaleTargetRef"
    return Ref(namespace, text(reference, "kind", place) or "Deployment", needed(reference, "name", place))


def _hpa(ref: Ref, document: _Json) -> Hpa:
    spec = mapping(document, "spec")
    minimum, maximum = whole(spec, "minReplicas", "spec"), whole(spec, "maxReplicas", "spec")
    if maximum is None:
        raise wrong("spec", "maxReplicas", "a whole number", None)
    return Hpa(
        ref,
        _target(spec, ref.namespace),
        1 if minimum is None else minimum,
        maximum,
        owner=_owner(document, ref.namespace),
        behavior=behavior(spec),
        metrics=metrics(spec),
        status=hpa_status(document),
    )


def _slice(ref: Ref, document: _Json) -> Slice:
    service = text(mapping(mapping(document, "metadata"), "labels", "metadata"), _SERVICE, "metadata.labels")
    ready = [endpoint for endpoint in objects(document, "endpoints") if _takes_requests(endpoint)]
    addresses = {address for endpoint in ready for address in _addresses(endpoint)}
    ports = {
        text(port, "name", "ports") or "": number
        for port in objects(document, "ports")
        if (number := whole(port, "port", "ports")) is not None
    }
    by_name = document.get("addressType") == "FQDN"  # deprecated, and no address
    return Slice(ref, service, () if by_name else tuple(sorted(addresses)), ports or NOTHING)


def _takes_requests(endpoint: _Json) -> bool:
    """A missing `ready` is to be taken for true (discovery/v1 EndpointConditions)."""
    return true(mapping(endpoint, "conditions", "endpoints"), "ready", "endpoints.conditions") is not False


def _addresses(endpoint: _Json) -> list[str]:
    """All of them are one endpoint, and clients may use any: the first."""
    addresses = endpoint.get("addresses")
    if addresses is None:
        return []
    if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
        raise wrong("endpoints", "addresses", "a list of texts", addresses)
    return addresses[:1]


_READERS: Mapping[str, Callable[[Ref, _Json], Record]] = {
    "Pod": _pod,
    "Node": _node,
    "ReplicaSet": _link,
    "Job": _link,
    "Deployment": _scalable,
    "StatefulSet": _scalable,
    "LeaderWorkerSet": _scalable,
    "Rollout": _scalable,
    "InferenceService": _inference_service,
    "EndpointSlice": _slice,
    "HorizontalPodAutoscaler": _hpa,
    "ScaledObject": _scaled_object,
    "ScaledJob": _scaled_job,
}


# Whole GPUs, time-sliced and MPS-shared ones (gpu.shared), MIG profiles; AMD's GPUs and their partitions (cpx_nps4).
# Not what others count in megabytes or percent: HAMi's nvidia.com/gpumem and nvidia.com/gpucores.
_IS_GPU = re.compile(r"nvidia\.com/(?:gpu(?:\..+)?|mig-.+)|amd\.com/(?:gpu(?:\..+)?|[a-z]px_nps[0-9])").fullmatch


def asked_for(spec: Mapping[str, Any]) -> Mapping[str, int]:
    """GPUs that a pod with this `spec` holds, by resource name. Raises Wrong."""
    begun: dict[str, int] = {}  # held by the sidecars that have started so far
    most: dict[str, int] = {}  # the most that is held while the init containers run
    for container in objects(spec, "initContainers", "spec"):
        wants = _wants(container, "spec.initContainers")
        if text(container, "restartPolicy") == "Always":
            begun = _sum(begun, wants)
            most = _larger(most, begun)
        else:
            most = _larger(most, _sum(begun, wants))
    running = begun
    for container in objects(spec, "containers", "spec"):
        running = _sum(running, _wants(container, "spec.containers"))
    return _larger(most, running) or NOTHING


def named(resources: Mapping[str, Any], place: str) -> dict[str, int]:
    """Those of a list of resources that are GPUs, none of 0. `place`: its path, for errors. Raises Wrong."""
    found = {name: amount(resources, name, place) for name in resources if _IS_GPU(name)}
    return {name: number for name, number in found.items() if number}


def _wants(container: Mapping[str, Any], place: str) -> dict[str, int]:
    resources = mapping(container, "resources", place)
    if not resources:
        return {}
    # Of an extended resource the request must equal the limit, and is set from it if only the limit is written.
    requests = named(mapping(resources, "requests", f"{place}.resources"), f"{place}.resources.requests")
    return requests | named(mapping(resources, "limits", f"{place}.resources"), f"{place}.resources.limits")


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in one.keys() | other.keys()}


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one.keys() | other.keys()}
