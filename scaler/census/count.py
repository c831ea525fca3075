"""Counting: the configuration and the objects of a cluster in, the census out.

Whoever comes first keeps a key: the configuration, then ScaledObjects and ScaledJobs, then annotations, each in the
order of their names, so that the same cluster always gives the same census.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.cluster.objects import Hpa, Ref, Scalable, ScaledObject
from exporter.model import WorkloadKey

from ..config import Config, Workload
from .annotations import Noted, Spoken, noted
from .grouped import contradictions, without
from .orders import brakes
from .parsed import Parsed
from .record import Census, trouble
from .scaled import Gathered, ParsedTriggers, gather
from .tolerances import tolerances
from .triggers import Around
from .words import plain

_CONFIGURATION = "Tidegate's configuration"


@dataclass(frozen=True, slots=True)
class ParsedObjects:
    """What the objects of a cluster said when they were parsed last, under one configuration."""

    triggers: ParsedTriggers = field(default_factory=Parsed)
    annotations: Parsed[Noted] = field(default_factory=Parsed)


def take(
    config: Config,
    scaled: Iterable[ScaledObject],
    scalables: Iterable[Scalable],
    hpas: Iterable[Hpa],
    parsed: ParsedObjects | None = None,
) -> Census:
    """The census of a configuration and of what its cluster says now. What `kubernetes` turns off is not looked at.

    parsed: what was parsed before under the same configuration, brought up to date; None: everything is parsed.
    """
    kubernetes = config.kubernetes
    parsed = ParsedObjects() if parsed is None else parsed
    acting = {workload.key: not config.observes(workload) for workload in config.workloads}
    triggered = scaled if kubernetes is not None and kubernetes.triggers else ()
    gathered = gather(triggered, Around(config, acting), parsed.triggers)
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
    annotated_objects = scalables if kubernetes is not None and kubernetes.annotations else ()
    notes = tuple(noted(annotated_objects, hpas, spoken, config, parsed.annotations))
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
