"""Decodes Kueue's queues, and computes how many GPUs a ClusterQueue can still admit. Pure.

Kueue admits a pod within the quotas of its ClusterQueue, one for each ResourceFlavor: the nominal quota, and what the
queues of its cohort do not use, up to the borrowing limit. A cohort may have quotas of its own, and a cohort above it,
from which it borrows in the same way. Source: kubernetes-sigs/kueue, apis/kueue/v1beta2 (v1beta1 differs in the fields
`cohort` and `parent`) and pkg/cache/scheduler/resource_node.go.

Cohorts that are above each other in a circle have no quota that could be computed. Of such a cohort only the borrowing
limit of a queue counts; without one nothing limits the queue.

Worked example: queues `a` and `b` of one cohort have 8 GPUs each, `a` has reserved 6 and `b` 4. `a` can borrow all that
`b` does not use: 16 - 10 = 6 more. With `borrowingLimit: 1` it is 8 + 1 - 6 = 3; with `lendingLimit: 2` of `b` at most
2 of the 4 that `b` does not use. If a cohort above has 4 GPUs of its own, it is 6 + 4 = 10, or with `borrowingLimit: 3`
of the cohort at most 6 + 3 = 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from .fields import Fields
from .gpus import MODEL_LABELS, is_gpu
from .objects import ClusterQueue, Cohort, FlavorQuota, LocalQueue, QueueRecord, Ref, ResourceFlavor

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"  # of a Deployment, StatefulSet or LeaderWorkerSet: its LocalQueue
GATE = "kueue.x-k8s.io/admission"  # the scheduling gate of a pod that is not admitted yet


class KueueQuotas(NamedTuple):
    """The quotas of Kueue; empty without Kueue in the cluster.

    queues:  ClusterQueues by name. local: the ClusterQueue's name of each LocalQueue, by namespace and name.
    models:  the GPU model of each ResourceFlavor that names one.
    cohorts: by name; one that is only named has no quotas and none above it. members: queues and cohorts, by cohort.
    """

    queues: Mapping[str, ClusterQueue] = MappingProxyType({})
    local: Mapping[tuple[str, str], str] = MappingProxyType({})
    models: Mapping[str, str] = MappingProxyType({})
    cohorts: Mapping[str, Cohort] = MappingProxyType({})
    members: Mapping[str, tuple[ClusterQueue | Cohort, ...]] = MappingProxyType({})


NO_QUEUES = KueueQuotas()


def quotas_of(records: Iterable[QueueRecord]) -> KueueQuotas:
    queues: dict[str, ClusterQueue] = {}
    local: dict[tuple[str, str], str] = {}
    models: dict[str, str] = {}
    cohorts: dict[str, Cohort] = {}
    for record in records:
        match record:
            case ClusterQueue():
                queues[record.ref.name] = record
            case LocalQueue():
                local[record.ref.namespace, record.ref.name] = record.queue
            case ResourceFlavor():
                if record.model is not None:
                    models[record.ref.name] = record.model
            case Cohort():
                cohorts[record.ref.name] = record
    for queue in queues.values():
        if queue.cohort:
            cohorts.setdefault(queue.cohort, Cohort(Ref("", "Cohort", queue.cohort)))
    members: dict[str, tuple[ClusterQueue | Cohort, ...]] = {}
    nodes: list[ClusterQueue | Cohort] = [*queues.values(), *cohorts.values()]
    for each in nodes:
        if each.cohort:
            members[each.cohort] = (*members.get(each.cohort, ()), each)
    return KueueQuotas(queues, local, models, cohorts, members)


def available(kueue: KueueQuotas, queue: ClusterQueue, resource: str, flavor: str) -> int | None:
    """GPUs that a queue can admit beside what it has reserved, below 0 if that is too much; None: no limit is known."""
    mine = queue.flavors[resource][flavor]
    if queue.stopped:
        return 0
    if not queue.cohort:
        return mine.nominal - mine.reserved
    if _in_circle(kueue, queue.cohort):
        return None if mine.borrowing is None else mine.nominal + mine.borrowing - mine.reserved
    found = _free(kueue, queue, resource, flavor)
    # With preemption in the cohort it gets its nominal quota back from queues that have borrowed it.
    return max(found, mine.nominal - mine.reserved) if queue.reclaims else found


def _in_circle(kueue: KueueQuotas, cohort: str) -> bool:
    """Whether the cohorts above this one lead back to one of them."""
    passed = set()
    while cohort and cohort not in passed:
        passed.add(cohort)
        cohort = _cohort(kueue, cohort).cohort
    return bool(cohort)


def _cohort(kueue: KueueQuotas, name: str) -> Cohort:
    return kueue.cohorts.get(name) or Cohort(Ref("", "Cohort", name))


class _Quota(NamedTuple):
    """Of a queue, or of a cohort with all below it. unlent: the part of `total` that no other can use."""

    total: int
    used: int
    unlent: int
    borrowing: int | None


def _quota(kueue: KueueQuotas, node: ClusterQueue | Cohort, resource: str, flavor: str) -> _Quota:
    mine = node.flavors.get(resource, {}).get(flavor, FlavorQuota(0, None, None, 0))
    total, used = mine.nominal, mine.reserved
    for each in kueue.members.get(node.ref.name, ()) if isinstance(node, Cohort) else ():
        below = _quota(kueue, each, resource, flavor)
        total += below.total - below.unlent
        used += max(0, below.used - below.unlent)
    unlent = 0 if mine.lending is None else max(0, total - mine.lending)
    return _Quota(total, used, unlent, mine.borrowing)


def _free(kueue: KueueQuotas, node: ClusterQueue | Cohort, resource: str, flavor: str) -> int:
    """GPUs that a queue or cohort may still reserve: its own, and those that it can borrow from its parent cohort."""
    mine = _quota(kueue, node, resource, flavor)
    if not node.cohort:
        return mine.total - mine.used
    above = _free(kueue, _cohort(kueue, node.cohort), resource, flavor)
    if mine.borrowing is not None:
        above = min(above, mine.total - mine.unlent - max(0, mine.used - mine.unlent) + mine.borrowing)
    return max(0, mine.unlent - mine.used) + above


def decode_cluster_queue(ref: Ref, document: Fields) -> ClusterQueue:
    """Raises FieldError."""
    spec = document.object("spec")
    reserved = {
        (resource.required_text("name"), flavor.required_text("name")): resource.amount("total")
        for flavor in document.object("status").objects("flavorsReservation")
        for resource in flavor.objects("resources")
        if is_gpu(resource.text("name") or "")
    }
    preemption = spec.object("preemption").text("reclaimWithinCohort") or "Never"
    return ClusterQueue(
        ref,
        flavors=_flavors(spec, reserved),
        cohort=spec.text("cohortName") or spec.text("cohort") or "",
        reclaims=preemption != "Never",
        stopped=(spec.text("stopPolicy") or "None") != "None",
    )


def _flavors(spec: Fields, reserved: Mapping[tuple[str, str], int]) -> Mapping[str, Mapping[str, FlavorQuota]]:
    """The quotas of GPUs by resource name and flavor. reserved: by the same; missing: none."""
    flavors: dict[str, dict[str, FlavorQuota]] = {}
    for group in spec.objects("resourceGroups"):
        for flavor in group.objects("flavors"):
            name = flavor.required_text("name")
            for quota in flavor.objects("resources"):
                resource = quota.required_text("name")
                if is_gpu(resource):
                    flavors.setdefault(resource, {})[name] = _flavor_quota(quota, reserved.get((resource, name), 0))
    return flavors


def _flavor_quota(quota: Fields, reserved: int) -> FlavorQuota:
    borrowing, lending = (
        None if quota.values.get(name) is None else quota.amount(name) for name in ("borrowingLimit", "lendingLimit")
    )
    return FlavorQuota(quota.amount("nominalQuota"), borrowing, lending, reserved)


def decode_local_queue(ref: Ref, document: Fields) -> LocalQueue:
    """Raises FieldError."""
    return LocalQueue(ref, document.object("spec").text("clusterQueue") or "")


def decode_resource_flavor(ref: Ref, document: Fields) -> ResourceFlavor:
    """Raises FieldError."""
    labels = document.object("spec").texts("nodeLabels")
    return ResourceFlavor(ref, next((labels[name] for name in MODEL_LABELS if name in labels), None))


def decode_cohort(ref: Ref, document: Fields) -> Cohort:
    """Raises FieldError."""
    spec = document.object("spec")
    return Cohort(ref, _flavors(spec, {}), spec.text("parentName") or spec.text("parent") or "")
