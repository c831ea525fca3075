"""Where a workload's Events belong: on what it scales, because that is what people describe. Pure.

Worked example: of workload `ai/chat`, made by the ScaledObject `ai/chat` that scales Deployment `ai/llama`, it is
`Place(subject=the Deployment, related=the ScaledObject)`. Of a target that the cluster does not have, or of a kind that
is not watched, the ScaledObject itself is the subject.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from exporter.cluster.events import Subject
from exporter.cluster.objects import Ref
from exporter.model import WorkloadKey


class Subjects(Protocol):
    """What of a cluster is asked here."""

    def subject(self, ref: Ref) -> Subject | None: ...


class Place(NamedTuple):
    """related: the ScaledObject or ScaledJob that made the workload, where that is not itself the subject."""

    subject: Subject
    related: Subject | None = None


def place(cluster: Subjects, targets: Mapping[WorkloadKey, Ref], workload: WorkloadKey) -> Place | None:
    """targets: what each workload scales. None: the cluster has nothing to write on."""
    named = [Ref(workload.namespace, kind, workload.name) for kind in ("ScaledObject", "ScaledJob")]
    asks = next((found for ref in named if (found := cluster.subject(ref)) is not None), None)
    target = targets.get(workload)
    subject = None if target is None else cluster.subject(target)
    if subject is None:
        return None if asks is None else Place(asks)
    return Place(subject, None if asks == subject else asks)
