"""All ScaledObjects and ScaledJobs together: who has which key, who speaks for what is scaled, what a call may say.

Worked example: ScaledObject `ai/chat` and ScaledJob `ai/chat` each have a trigger that would make the workload
`ai/chat`. The ScaledJob comes first by its kind and has it; the trigger of the ScaledObject is refused, to KEDA's
calls and in a Trouble.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple, TypeAlias

from exporter.cluster.objects import Ref, ScaledObject
from exporter.model import WorkloadKey

from ..config import Config
from ..config.bad_words import BadWord
from ..config.tenant import TriggerWorkload
from .claims import ObjectName, Said, observed
from .parsed import Parsed, TriggersVersion
from .record import Trouble, trouble
from .triggers import Around, Heard, heard, refused, too_many
from .words import plain

ParsedTriggers: TypeAlias = Parsed[tuple[Heard, ...]]


class Gathered(NamedTuple):
    """workloads: those that triggers make. makers: the object of each. places: its index there.

    said:     what the external triggers say, by namespace and name of their object.
    scaling:  the object that speaks for what is scaled.
    naming:   configured workloads that triggers name, and what the objects of those triggers scale.
    """

    workloads: dict[WorkloadKey, TriggerWorkload]
    makers: dict[WorkloadKey, ScaledObject]
    places: dict[WorkloadKey, int]
    said: dict[ObjectName, tuple[Said, ...]]
    scaling: dict[Ref, Ref]
    naming: dict[WorkloadKey, dict[Ref, Ref]]
    troubles: list[Trouble]


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


def _parse(scaled: ScaledObject, around: Around) -> tuple[Heard, ...]:
    return tuple(heard(scaled, around))


def _placed(scaled: ScaledObject, trigger: Heard, gathered: Gathered, config: Config) -> Said:
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
        return Said(trigger.words, observed(outcome.key) if config.observes(outcome) else outcome.key)
    return Said(trigger.words, outcome)


def name_in_use(workload: TriggerWorkload, maker: ScaledObject) -> BadWord:
    """The problem of a trigger whose workload another trigger already has. maker: the object of that one."""
    bound = f"must be another: {plain(str(maker.ref))} has the workload {workload.key}"
    return BadWord("name", bound, workload.trigger)


def _several(workload: WorkloadKey, targets: dict[Ref, Ref]) -> list[Trouble]:
    """Which of them is the workload nobody can say, and its replicas are then not known."""
    (first, by), *others = targets.items()
    what = plain(f"{first.kind}/{first.name}")
    bound = f"must be {what}, which {plain(str(by))} scales: both name {workload}, and so its replicas are unknown"
    return [trouble(ref, BadWord("spec.scaleTargetRef", bound, f"{it.kind}/{it.name}")) for it, ref in others]
