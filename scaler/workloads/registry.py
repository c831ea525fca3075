"""Counting: the configuration and the objects of a cluster in, the census out.

Whoever comes first keeps a key: the configuration, then ScaledObjects and ScaledJobs, then annotations, each in the
order of their names, so that the same cluster always gives the same census.

All ScaledObjects and ScaledJobs together: who has which key, who speaks for what is scaled, what a call may say.

Worked example: ScaledObject `ai/chat` and ScaledJob `ai/chat` each have a trigger that would make the workload
`ai/chat`. The ScaledJob comes first by its kind and has it; the trigger of the ScaledObject is refused, to KEDA's
calls and in a Trouble.

Members of groups that contradict each other: whose words cost him his workload, and what his calls hear. Pure.

Groups are of names in one namespace, whoever wrote them: the configuration, triggers, annotations. The configuration is
right by now, or was refused; of two others the later by its key is at fault.

Worked example: the triggers of `ai/d1` and `ai/d2` bound role decode differently: `ai/d2` makes no workload, its object
has a Trouble at `spec.triggers.0.metadata.ratio` that names `ai/d1`, and KEDA's calls for it hear the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from exporter.kubernetes.objects import Hpa, Ref, Scalable, ScaledObject
from exporter.model import WorkloadKey
from scaler.config import Config, Workload
from scaler.config.errors import BadWord
from scaler.config.trigger import PREFIXES, TriggerWorkload
from scaler.config.validate_workload import group_faults

from .annotations import Noted, Spoken, brakes, noted, tolerances
from .caller_check import CallRejected, Doubt, ObjectName, TriggerClaim, observed, plain
from .model import ObjectError, Registry, trouble
from .triggers import Around, ExternalTrigger, Parsed, TriggersVersion, heard, refused, too_many

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
) -> Registry:
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
    return Registry(
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


ParsedTriggers: TypeAlias = Parsed[tuple[ExternalTrigger, ...]]


class Gathered(NamedTuple):
    """workloads: those that triggers make. makers: the object of each. places: its index there.

    said:     what the external triggers say, by namespace and name of their object.
    scaling:  the object that speaks for what is scaled.
    naming:   configured workloads that triggers name, and what the objects of those triggers scale.
    """

    workloads: dict[WorkloadKey, TriggerWorkload]
    makers: dict[WorkloadKey, ScaledObject]
    places: dict[WorkloadKey, int]
    said: dict[ObjectName, tuple[TriggerClaim, ...]]
    scaling: dict[Ref, Ref]
    naming: dict[WorkloadKey, dict[Ref, Ref]]
    troubles: list[ObjectError]


def gather(scaled: Iterable[ScaledObject], around: Around, parsed: ParsedTriggers) -> Gathered:
    """parsed: keeps what each object said, for the next call."""
    gathered = Gathered({}, {}, {}, {}, {}, {}, [])
    every = sorted(scaled, key=lambda each: each.ref)
    parsed.keep_only({each.ref for each in every})
    for each in every:
        name = each.ref.namespace, each.ref.name
        triggers = parsed.get(each.ref, TriggersVersion.of(each), partial(_parse, each, around))
        said = tuple(_placed(each, trigger, gathered, around.config) for trigger in triggers)
        gathered.said[name] = gathered.said.get(name, ()) + said
        if gathered.scaling.get(each.target) == each.ref and (problem := too_many(each)) is not None:
            gathered.troubles.append(trouble(each.ref, problem))
    for workload, targets in gathered.naming.items():
        gathered.troubles.extend(_several(workload, targets))
    return gathered


def _parse(scaled: ScaledObject, around: Around) -> tuple[ExternalTrigger, ...]:
    return tuple(heard(scaled, around))


def _placed(scaled: ScaledObject, trigger: ExternalTrigger, gathered: Gathered, config: Config) -> TriggerClaim:
    verdict = trigger.verdict
    workload = verdict.outcome if isinstance(verdict.outcome, TriggerWorkload) else None
    if workload is not None and workload.key in gathered.makers:
        verdict, workload = refused(name_in_use(workload, gathered.makers[workload.key])), None
    if workload is not None:
        gathered.workloads[workload.key] = workload
        gathered.makers[workload.key] = scaled
        gathered.places[workload.key] = trigger.place
    if verdict.scales is not None:
        gathered.naming.setdefault(verdict.scales, {}).setdefault(scaled.target, scaled.ref)
    if trigger._replace(verdict=verdict).is_for_us:
        gathered.scaling.setdefault(scaled.target, scaled.ref)
        at = f"spec.triggers.{trigger.place}."
        gathered.troubles.extend(trouble(scaled.ref, problem, at) for problem in verdict.problems)
    outcome = verdict.outcome
    if isinstance(outcome, TriggerWorkload):
        return TriggerClaim(trigger.words, observed(outcome.key) if config.observes(outcome) else outcome.key)
    return TriggerClaim(trigger.words, outcome)


def name_in_use(workload: TriggerWorkload, maker: ScaledObject) -> BadWord:
    """The problem of a trigger whose workload another trigger already has. maker: the object of that one."""
    bound = f"must be another: {plain(str(maker.ref))} has the workload {workload.key}"
    return BadWord("name", bound, workload.trigger)


def _several(workload: WorkloadKey, targets: dict[Ref, Ref]) -> list[ObjectError]:
    """Which of them is the workload nobody can say, and its replicas are then not known."""
    (first, by), *others = targets.items()
    what = plain(f"{first.kind}/{first.name}")
    bound = f"must be {what}, which {plain(str(by))} scales: both name {workload}, and so its replicas are unknown"
    return [trouble(ref, BadWord("spec.scaleTargetRef", bound, f"{it.kind}/{it.name}")) for it, ref in others]


def contradictions(
    configured: Sequence[Workload], made: Sequence[Workload], gathered: Gathered, notes: Sequence[Noted]
) -> tuple[dict[WorkloadKey, BadWord], tuple[ObjectError, ...]]:
    """What is wrong between workloads, of which `made` are those of the cluster's objects.

    Returns whom it costs its workload, with the word that does, and all Troubles.
    """
    refs = {note.workload.key: note.ref for note in notes if note.workload is not None}
    wrong: dict[WorkloadKey, BadWord] = {}
    troubles: list[ObjectError] = []
    for fault in group_faults((*configured, *made)):
        if fault.member < len(configured):
            continue
        key, word = made[fault.member - len(configured)].key, ".".join(str(part) for part in fault.key)
        triggered = key in gathered.makers
        said = BadWord(PREFIXES["metadata" if triggered else "annotations"] + word, fault.message, None, fault.severity)
        ref = gathered.makers[key].ref if triggered else refs[key]
        troubles.append(trouble(ref, said, f"spec.triggers.{gathered.places[key]}." if triggered else ""))
        if fault.severity == "error":
            wrong.setdefault(key, said)
    return wrong, tuple(troubles)


def without(said: Sequence[TriggerClaim], wrong: dict[WorkloadKey, BadWord]) -> tuple[TriggerClaim, ...]:
    """The same triggers, where those that cost a workload speak for nobody."""
    return tuple(
        TriggerClaim(each.words, CallRejected(Doubt.WORDS, str(wrong[each.outcome])))
        if isinstance(each.outcome, WorkloadKey) and each.outcome in wrong
        else each
        for each in said
    )
