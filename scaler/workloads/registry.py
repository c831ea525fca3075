"""Builds the registry from the configuration and the objects of a cluster. Pure.

A key belongs to the first that claims it: the configuration, then ScaledObjects and ScaledJobs, then annotations, each
in order of their names, so that the same cluster always gives the same registry. Members of groups may contradict each
other: the configuration has been validated, so of two other members the later by key is at fault.

Worked example: ScaledObject `ai/chat` and ScaledJob `ai/chat` each have a trigger that would make the workload
`ai/chat`. The ScaledJob is first by kind and has it; the trigger of the ScaledObject is rejected, to KEDA's calls and
in an `ObjectError`.
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
from scaler.config.errors import TriggerProblem
from scaler.config.trigger import PREFIXES, TriggerWorkload
from scaler.config.validate_workload import group_faults

from .annotations import AnnotatedObject, ClaimedNames, annotated_objects, brakes, tolerances
from .caller_check import CallRejected, Doubt, ObjectName, TriggerClaim, observed, plain
from .model import ObjectError, Registry, object_error
from .triggers import ExternalTrigger, Parsed, TriggerContext, TriggersVersion, parse_triggers, refused, too_many

_CONFIGURATION = "Tidegate's configuration"


@dataclass(frozen=True, slots=True)
class ParsedObjects:
    """Caches the parsed objects of a cluster, for one configuration."""

    triggers: ParsedTriggers = field(default_factory=Parsed)
    annotations: Parsed[AnnotatedObject] = field(default_factory=Parsed)


def take(
    config: Config,
    scaled: Iterable[ScaledObject],
    scalables: Iterable[Scalable],
    hpas: Iterable[Hpa],
    parsed: ParsedObjects | None = None,
) -> Registry:
    """Builds the registry. Objects that `kubernetes` turns off are ignored.

    parsed: the cache of the same configuration, which is updated; None: everything is parsed.
    """
    kubernetes = config.kubernetes
    parsed = ParsedObjects() if parsed is None else parsed
    acting = {workload.key: not config.observes(workload) for workload in config.workloads}
    triggered = scaled if kubernetes is not None and kubernetes.triggers else ()
    index = index_triggers(triggered, TriggerContext(config, acting), parsed.triggers)
    targets = _targets(config, index)
    claimed = ClaimedNames(
        targets={
            **{target: _CONFIGURATION for key, target in targets.items() if key in acting},
            **{target: plain(str(ref)) for target, ref in index.scaling.items()},
        },
        keys={
            **{key: plain(str(maker.ref)) for key, maker in index.makers.items()},
            **dict.fromkeys(acting, _CONFIGURATION),
        },
    )
    watched = scalables if kubernetes is not None and kubernetes.annotations else ()
    notes = tuple(annotated_objects(watched, hpas, claimed, config, parsed.annotations))
    annotated = {note.workload.key: note.workload for note in notes if note.workload is not None}
    targets |= {note.workload.key: note.ref for note in notes if note.workload is not None}
    by_key = [workloads[key] for workloads in (index.workloads, annotated) for key in sorted(workloads)]
    wrong, between = contradictions(config.workloads, by_key, index, notes)
    workloads = (*config.workloads, *(each for each in by_key if each.key not in wrong))
    braked = brakes(_objects_of(workloads, targets, index), (*scaled, *scalables))
    alone = (object_error(note.ref, problem) for note in notes for problem in note.problems)
    return Registry(
        workloads=workloads,
        targets=MappingProxyType(targets),
        objects=MappingProxyType({name: without(claims, wrong) for name, claims in index.claims.items()}),
        brakes=MappingProxyType(braked.brakes),
        tolerances=MappingProxyType(tolerances({each.key for each in workloads}, targets, scaled, hpas)),
        object_errors=tuple(sorted((*index.object_errors, *alone, *between, *braked.object_errors))),
    )


def _objects_of(
    workloads: Iterable[Workload], targets: Mapping[WorkloadKey, Ref], index: TriggerIndex
) -> dict[WorkloadKey, set[Ref]]:
    """The objects that may have a workload's brake: its scale target and the ScaledObjects that name it."""
    claimed: defaultdict[WorkloadKey, set[Ref]] = defaultdict(set)
    for key, target in targets.items():
        claimed[key].add(target)
    for key, maker in index.makers.items():
        claimed[key] |= {maker.ref, maker.target}
    for key, named in index.naming.items():
        claimed[key] |= {*named, *named.values()}
    return {workload.key: claimed[workload.key] for workload in workloads}


def _targets(config: Config, index: TriggerIndex) -> dict[WorkloadKey, Ref]:
    """Scale targets, of the configuration or else of the ScaledObject."""
    targets = {key: maker.target for key, maker in index.makers.items()}
    targets |= {key: next(iter(named)) for key, named in index.naming.items() if len(named) == 1}
    for workload in config.workloads:
        if workload.pods is not None and workload.pods.target is not None:
            kind, _, name = workload.pods.target.partition("/")
            targets[workload.key] = Ref(workload.namespace, kind, name)
    return targets


ParsedTriggers: TypeAlias = Parsed[tuple[ExternalTrigger, ...]]


class TriggerIndex(NamedTuple):
    """workloads: those that triggers make. makers: the object of each. places: its index there.

    claims:   of the external triggers, by namespace and name of their object.
    scaling:  the object that configures a scale target.
    naming:   configured workloads that triggers name, with the scale targets of those triggers' objects.
    """

    workloads: dict[WorkloadKey, TriggerWorkload]
    makers: dict[WorkloadKey, ScaledObject]
    places: dict[WorkloadKey, int]
    claims: dict[ObjectName, tuple[TriggerClaim, ...]]
    scaling: dict[Ref, Ref]
    naming: dict[WorkloadKey, dict[Ref, Ref]]
    object_errors: list[ObjectError]


def index_triggers(scaled: Iterable[ScaledObject], context: TriggerContext, parsed: ParsedTriggers) -> TriggerIndex:
    """Indexes the triggers of all objects. parsed: a cache between calls."""
    index = TriggerIndex({}, {}, {}, {}, {}, {}, [])
    every = sorted(scaled, key=lambda each: each.ref)
    parsed.keep_only({each.ref for each in every})
    for each in every:
        name = each.ref.namespace, each.ref.name
        triggers = parsed.get(each.ref, TriggersVersion.of(each), partial(_parse, each, context))
        claims = tuple(_add_trigger(each, trigger, index, context.config) for trigger in triggers)
        index.claims[name] = index.claims.get(name, ()) + claims
        if index.scaling.get(each.target) == each.ref and (problem := too_many(each)) is not None:
            index.object_errors.append(object_error(each.ref, problem))
    for workload, targets in index.naming.items():
        index.object_errors.extend(_ambiguous_targets(workload, targets))
    return index


def _parse(scaled: ScaledObject, context: TriggerContext) -> tuple[ExternalTrigger, ...]:
    return tuple(parse_triggers(scaled, context))


def _add_trigger(scaled: ScaledObject, trigger: ExternalTrigger, index: TriggerIndex, config: Config) -> TriggerClaim:
    verdict = trigger.verdict
    workload = verdict.outcome if isinstance(verdict.outcome, TriggerWorkload) else None
    if workload is not None and workload.key in index.makers:
        verdict, workload = refused(name_in_use(workload, index.makers[workload.key])), None
    if workload is not None:
        index.workloads[workload.key] = workload
        index.makers[workload.key] = scaled
        index.places[workload.key] = trigger.position
    if verdict.scales is not None:
        index.naming.setdefault(verdict.scales, {}).setdefault(scaled.target, scaled.ref)
    if trigger._replace(verdict=verdict).is_for_us:
        index.scaling.setdefault(scaled.target, scaled.ref)
        at = f"spec.triggers.{trigger.position}."
        index.object_errors.extend(object_error(scaled.ref, problem, at) for problem in verdict.problems)
    outcome = verdict.outcome
    if isinstance(outcome, TriggerWorkload):
        return TriggerClaim(trigger.metadata, observed(outcome.key) if config.observes(outcome) else outcome.key)
    return TriggerClaim(trigger.metadata, outcome)


def name_in_use(workload: TriggerWorkload, maker: ScaledObject) -> TriggerProblem:
    """The problem of a trigger if another trigger already defines its workload. maker: the object of that one."""
    bound = f"must be another: {plain(str(maker.ref))} has the workload {workload.key}"
    return TriggerProblem("name", bound, workload.trigger)


def _ambiguous_targets(workload: WorkloadKey, targets: dict[Ref, Ref]) -> list[ObjectError]:
    """Several scale targets name one workload: its replicas are unknown."""
    (first, by), *rest = targets.items()
    what = plain(f"{first.kind}/{first.name}")
    bound = f"must be {what}, which {plain(str(by))} scales: both name {workload}, and so its replicas are unknown"
    return [object_error(ref, TriggerProblem("spec.scaleTargetRef", bound, f"{it.kind}/{it.name}")) for it, ref in rest]


def contradictions(
    configured: Sequence[Workload], found: Sequence[Workload], index: TriggerIndex, notes: Sequence[AnnotatedObject]
) -> tuple[dict[WorkloadKey, TriggerProblem], tuple[ObjectError, ...]]:
    """Returns the faults between workloads: by the key of each refused workload, and all as errors.

    found: the workloads of the cluster's objects.
    """
    refs = {note.workload.key: note.ref for note in notes if note.workload is not None}
    wrong: dict[WorkloadKey, TriggerProblem] = {}
    object_errors: list[ObjectError] = []
    for fault in group_faults((*configured, *found)):
        if fault.member < len(configured):
            continue
        key, field_name = found[fault.member - len(configured)].key, ".".join(str(part) for part in fault.key)
        triggered = key in index.makers
        fault_at = TriggerProblem(
            PREFIXES["metadata" if triggered else "annotations"] + field_name, fault.message, None, fault.severity
        )
        ref = index.makers[key].ref if triggered else refs[key]
        object_errors.append(object_error(ref, fault_at, f"spec.triggers.{index.places[key]}." if triggered else ""))
        if fault.severity == "error":
            wrong.setdefault(key, fault_at)
    return wrong, tuple(object_errors)


def without(claims: Sequence[TriggerClaim], wrong: dict[WorkloadKey, TriggerProblem]) -> tuple[TriggerClaim, ...]:
    """The same claims; calls for refused workloads are rejected."""
    return tuple(
        TriggerClaim(each.metadata, CallRejected(Doubt.INVALID, str(wrong[each.outcome])))
        if isinstance(each.outcome, WorkloadKey) and each.outcome in wrong
        else each
        for each in claims
    )
