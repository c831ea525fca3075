"""Decodes Kueue's queues, and computes how many GPUs a ClusterQueue can still admit. Pure.

Kueue admits a pod within the quotas of its ClusterQueue, one for each ResourceFlavor: the nominal quota, and what the
queues of its cohort do not use, up to the borrowing limit. Source: kubernetes-sigs/kueue, apis/kueue/v1beta2 (v1beta1
differs in the field `cohort`) and `available` of pkg/cache/scheduler/resource_node.go.

Not computed: cohorts of cohorts, and cohorts with quotas of their own. Of such a cohort only the borrowing limit of a
queue counts; without one nothing limits the queue.

Worked example: queues `a` and `b` of one cohort have 8 GPUs each, `a` has reserved 6 and `b` 4. `a` can borrow all that
`b` does not use: 16 - 10 = 6 more. With `borrowingLimit: 1` it is 8 + 1 - 6 = 3; with `lendingLimit: 2` of `b` at most
2 of the 4 that `b` does not use.
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

    queues:     ClusterQueues by name. local: the ClusterQueue's name of each LocalQueue, by namespace and name.
    models:     the GPU model of each ResourceFlavor that names one.
    hierarchic: cohorts with quotas of their own, or with a cohort above them.
    """

    queues: Mapping[str, ClusterQueue] = MappingProxyType({})
    local: Mapping[tuple[str, str], str] = MappingProxyType({})
    models: Mapping[str, str] = MappingProxyType({})
    hierarchic: frozenset[str] = frozenset()


NO_QUEUES = KueueQuotas()


def quotas_of(records: Iterable[QueueRecord]) -> KueueQuotas:
    queues: dict[str, ClusterQueue] = {}
    local: dict[tuple[str, str], str] = {}
    models: dict[str, str] = {}
    hierarchic: set[str] = set()
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
                if record.hierarchic:
                    hierarchic.add(record.ref.name)
    return KueueQuotas(queues, local, models, frozenset(hierarchic))


def available(kueue: KueueQuotas, queue: ClusterQueue, resource: str, flavor: str) -> int | None:
    """GPUs that a queue can admit beside what it has reserved, below 0 if that is too much; None: no limit is known."""
    mine = queue.flavors[resource][flavor]
    if queue.stopped:
        return 0
    if not queue.cohort:
        return mine.nominal - mine.reserved
    if queue.cohort in kueue.hierarchic:
        return None if mine.borrowing is None else mine.nominal + mine.borrowing - mine.reserved
    mates = [
        each.flavors[resource][flavor]
        for each in kueue.queues.values()
        if each.cohort == queue.cohort and flavor in each.flavors.get(resource, {})
    ]
    unused = sum(each.nominal - _unlent(each) - max(0, each.reserved - _unlent(each)) for each in mates)
    unlent = _unlent(mine)
    if mine.borrowing is not None:
        unused = min(unused, mine.nominal - unlent - max(0, mine.reserved - unlent) + mine.borrowing)
    found = max(0, unlent - mine.reserved) + unused
    # With preemption in the cohort it gets its nominal quota back from queues that have borrowed it.
    return max(found, mine.nominal - mine.reserved) if queue.reclaims else found


def _unlent(quota: FlavorQuota) -> int:
    """What of its nominal quota a queue does not lend."""
    return 0 if quota.lending is None else max(0, quota.nominal - quota.lending)


def decode_cluster_queue(ref: Ref, document: Fields) -> ClusterQueue:
    """Raises FieldError."""
    spec = document.object("spec")
    reserved = {
        (resource.required_text("name"), flavor.required_text("name")): resource.amount("total")
        for flavor in document.object("status").objects("flavorsReservation")
        for resource in flavor.objects("resources")
        if is_gpu(resource.text("name") or "")
    }
    flavors: dict[str, dict[str, FlavorQuota]] = {}
    for group in spec.objects("resourceGroups"):
        for flavor in group.objects("flavors"):
            name = flavor.required_text("name")
            for quota in flavor.objects("resources"):
                resource = quota.required_text("name")
                if is_gpu(resource):
                    flavors.setdefault(resource, {})[name] = _flavor_quota(quota, reserved.get((resource, name), 0))
    preemption = spec.object("preemption").text("reclaimWithinCohort") or "Never"
    return ClusterQueue(
        ref,
        flavors=flavors,
        cohort=spec.text("cohortName") or spec.text("cohort") or "",
        reclaims=preemption != "Never",
        stopped=(spec.text("stopPolicy") or "None") != "None",
    )


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
    above = spec.text("parentName") or spec.text("parent")
    return Cohort(ref, above is not None or bool(spec.objects("resourceGroups")))
