"""Who acts on each workload's number, as the cluster in memory shows them.

Worked example: of workload `ai/chat` that scales Deployment `ai/chat`, with a ScaledObject that has made the HPA
`keda-hpa-chat`, `survey(census.workloads, census, shown(cluster, now))[ai/chat]` has all three, and how many replicas
the Deployment has been told to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.cluster.objects import Hpa, Ref, Scalable, ScaledObject
from exporter.cluster.resources import HPAS, SCALEDOBJECTS
from exporter.cluster.state import Cluster
from exporter.model import WorkloadKey

from ..census import Census
from ..config import Workload


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
        cluster.known(HPAS, now),
        cluster.known(SCALEDOBJECTS, now),
    )


def survey(workloads: Iterable[Workload], census: Census, cluster: Shown | None) -> dict[WorkloadKey, Facts]:
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


def _speaks(census: Census, scaled: ScaledObject, workload: WorkloadKey) -> bool:
    said = census.objects.get((scaled.ref.namespace, scaled.ref.name), ())
    return any(each.outcome == workload for each in said)


def _by_target(hpas: Iterable[Hpa]) -> dict[Ref, tuple[Hpa, ...]]:
    found: dict[Ref, tuple[Hpa, ...]] = {}
    for hpa in hpas:
        others = found.get(hpa.target, ())
        found[hpa.target] = (hpa, *others) if hpa.owner is not None else (*others, hpa)
    return found
