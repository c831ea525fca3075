"""Counting: the configuration and the objects of a cluster in, the census out.

Whoever comes first keeps a key: the configuration, then ScaledObjects and ScaledJobs, then annotations, each in the
order of their names, so that the same cluster always gives the same census.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from exporter.cluster.objects import Hpa, Ref, Scalable, ScaledObject
from exporter.model import WorkloadKey

from ..config import Config, Workload
from .annotations import Spoken, noted
from .grouped import contradictions, without
from .orders import brakes
from .record import Census, trouble
from .scaled import Gathered, gather
from .tolerances import tolerances
from .triggers import Around
from .words import plain

_CONFIGURATION = "Tidegate's configuration"


def take(config: Config, scaled: Iterable[ScaledObject], scalables: Iterable[Scalable], hpas: Iterable[Hpa]) -> Census:
    """The census of a configuration and of what its cluster says now. What `kubernetes` turns off is not looked at."""
    kubernetes = config.kubernetes
    acting = {workload.key: not config.observes(workload) for workload in config.workloads}
    gathered = gather(scaled if kubernetes is not None and kubernetes.triggers else (), Around(config, acting))
    targets = _targets(config, gathered)
    spoken = Spoken(
        targets={
            **{target: _CONFIGURATION for key, target in targets.items() if key in acting},
            **{target: plain(str(ref)) for target, ref in gathered.scaling.items()},
        },
        keys={
            **{key: plain(str(maker.ref)) for key, maker in gathered.makers.items()},
            **dict.fromkeys(acting, _CONFIGURATION),
        },
    )
    notes = tuple(noted(scalables if kubernetes is not None and kubernetes.annotations else (), hpas, spoken, config))
    annotated = {note.workload.key: note.workload for note in notes if note.workload is not None}
    targets |= {note.workload.key: note.ref for note in notes if note.workload is not None}
    by_key = [workloads[key] for workloads in (gathered.workloads, annotated) for key in sorted(workloads)]
    wrong, between = contradictions(config.workloads, by_key, gathered, notes)
    workloads = (*config.workloads, *(each for each in by_key if each.key not in wrong))
    braked = brakes(_spoken_of(workloads, targets, gathered), (*scaled, *scalables))
    alone = (trouble(note.ref, problem) for note in notes for problem in note.problems)
    return Census(
        workloads=workloads,
        targets=MappingProxyType(targets),
        objects=MappingProxyType({name: without(said, wrong) for name, said in gathered.said.items()}),
        brakes=MappingProxyType(braked.brakes),
        tolerances=MappingProxyType(tolerances({each.key for each in workloads}, targets, scaled, hpas)),
        troubles=tuple(sorted((*gathered.troubles, *alone, *between, *braked.troubles))),
    )


def _spoken_of(
    workloads: Iterable[Workload], targets: Mapping[WorkloadKey, Ref], gathered: Gathered
) -> dict[WorkloadKey, set[Ref]]:
    """The objects that are a workload to people: what is scaled, and the ScaledObjects that speak for it."""
    spoken: defaultdict[WorkloadKey, set[Ref]] = defaultdict(set)
    for key, target in targets.items():
        spoken[key].add(target)
    for key, maker in gathered.makers.items():
        spoken[key] |= {maker.ref, maker.target}
    for key, named in gathered.naming.items():
        spoken[key] |= {*named, *named.values()}
    return {workload.key: spoken[workload.key] for workload in workloads}


def _targets(config: Config, gathered: Gathered) -> dict[WorkloadKey, Ref]:
    """What is scaled, by the configuration's own word or by the ScaledObject's."""
    targets = {key: maker.target for key, maker in gathered.makers.items()}
    targets |= {key: next(iter(named)) for key, named in gathered.naming.items() if len(named) == 1}
    for workload in config.workloads:
        if workload.pods is not None and workload.pods.target is not None:
            kind, _, name = workload.pods.target.partition("/")
            targets[workload.key] = Ref(workload.namespace, kind, name)
    return targets
