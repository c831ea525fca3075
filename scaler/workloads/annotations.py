"""Workloads of `tidegate.dev/…` annotations: self-service where a HorizontalPodAutoscaler scales and not KEDA.

The annotations stand on what is scaled. Between how many replicas it may be, its HorizontalPodAutoscaler says if it
has one that KEDA did not make, else the annotations, else nobody, and then the configuration's default holds. Where a
ScaledObject or the configuration speaks for the same object, its annotations are not listened to.

Worked example: Deployment `ai/chat` with `{"engine": "vllm", "replicas.min": "1"}` and a HorizontalPodAutoscaler of 2
to 8 replicas is the workload `ai/chat` with `Replicas(min=2, max=8)`, and a warning that replicas.min is not used.

How small a change the HPA of each workload drops, where that is said: a ratio, for steps up.

KEDA copies `behavior` of the ScaledObject into the HPA that it makes, and a cluster before Kubernetes 1.35 leaves the
tolerance out of what it keeps. So an HPA that is seen has the word, also by saying nothing; a ScaledObject is believed
where its HPA is not seen: RBAC does not show it, or KEDA has not made it yet.

Worked example: the ScaledObject `ai/chat` says tolerance "0". Its HPA is there and says none: the cluster dropped it,
`ai/chat` is not in the result, and the configuration's `hpa_tolerance` holds.

What people order of the workloads: `tidegate.dev/brake` of the cluster's objects, and the configuration's own words.

A brake stands on the ScaledObject or ScaledJob, or on what it scales; on several of them, all are read. It is read also
where the configuration turns annotations off, or speaks for the object itself: those make workloads, and a brake makes
none. One that cannot be read is its object's trouble, and counts as `never_down` until it is mended.

Worked example: Deployment `ai/chat` with `tidegate.dev/brake: frieze` is the trouble "must be freeze, never_down or
floor N ...", and workload `ai/chat` is never taken down meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from exporter.kubernetes.objects import Hpa, Ref, Scalable, ScaledObject
from exporter.model import WorkloadKey
from scaler.config import Config, Replicas
from scaler.config.errors import BadWord, BadWords
from scaler.config.scalars import did_you_mean
from scaler.config.trigger import ANNOTATION, ASIDES, BRAKE, Trigger, TriggerWorkload, bounds
from scaler.policy.overrides import BadOrder, Brake, WorkloadOverrides, read_brake, unreadable

from .caller_check import MOST_WORDS, plain
from .model import ObjectError, Registry, trouble
from .triggers import AnnotationsVersion, Parsed, WorkloadSource, make

# An InferenceService is not scaled itself: KServe hands its annotations on to the Deployments that it makes.
_KINDS = frozenset({"Deployment", "StatefulSet", "LeaderWorkerSet", "Rollout"})
_BOUNDS = ("replicas.min", "replicas.max")


class Noted(NamedTuple):
    """One object with annotations. workload: None if it makes none."""

    ref: Ref
    workload: TriggerWorkload | None
    problems: tuple[BadWord, ...]


class Spoken(NamedTuple):
    """Who has spoken already: by the object that is scaled, and by the workload's key, in words."""

    targets: Mapping[Ref, str]
    keys: Mapping[WorkloadKey, str]


def noted(
    scalables: Iterable[Scalable], hpas: Iterable[Hpa], spoken: Spoken, config: Config, parsed: Parsed[Noted]
) -> Iterator[Noted]:
    """Ordered by object. parsed: keeps what each object said, for the next call."""
    annotated = {each.ref: each for each in scalables if _words(each) and each.ref.kind in _KINDS}
    parsed.keep_only(annotated)
    scalers = _scalers(hpas)
    keys = dict(spoken.keys)
    for ref in sorted(annotated):
        if annotated[ref].owner in annotated:
            continue  # its owner's annotations, handed down
        key = WorkloadKey(ref.namespace, ref.name)
        before = spoken.targets.get(ref) or keys.get(key)
        if before is not None:
            yield Noted(
                ref, None, (BadWord(ANNOTATION, f"are not listened to: {before} speaks for {plain(str(key))}"),)
            )
            continue
        hpa = scalers.get(ref)
        version = AnnotationsVersion.of(annotated[ref], hpa)
        made = parsed.get(ref, version, partial(_made, annotated[ref], key, hpa, config))
        if made.workload is not None:
            keys[key] = plain(str(ref))
        yield made


def _words(scalable: Scalable) -> dict[str, str]:
    """Those that make a workload: a brake makes none, nor what is said to `tidegate check`."""
    return {key: value for key, value in scalable.annotations.items() if key not in ASIDES}


def _scalers(hpas: Iterable[Hpa]) -> dict[Ref, Hpa]:
    """By what they scale, without those that KEDA made. Of two for one object Kubernetes obeys neither."""
    return {
        hpa.target: hpa
        for hpa in sorted(hpas, key=lambda hpa: hpa.ref, reverse=True)
        if hpa.owner is None or hpa.owner.kind != "ScaledObject"
    }


def _made(scalable: Scalable, key: WorkloadKey, hpa: Hpa | None, config: Config) -> Noted:
    asked = WorkloadSource(key, scalable.ref, "annotations")
    made = make(asked, _words(scalable), lambda trigger: _bounds(trigger, hpa), config)
    return Noted(scalable.ref, made.workload, made.problems + tuple(_asides(scalable, hpa)))


def _bounds(trigger: Trigger | None, hpa: Hpa | None) -> Replicas:
    if hpa is None:
        return trigger.replicas if trigger is not None else Replicas()
    try:
        return bounds(hpa.minimum, hpa.maximum, None)
    except BadWords as bad:
        in_hpa = (problem.key.replace("ReplicaCount", "Replicas") for problem in bad.problems)
        of_hpa = (f"of {plain(str(hpa.ref))} {problem.bound}" for problem in bad.problems)
        pairs = zip(in_hpa, of_hpa, bad.problems, strict=True)
        raise BadWords(tuple(BadWord(key, bound, problem.value) for key, bound, problem in pairs)) from None


def _asides(scalable: Scalable, hpa: Hpa | None) -> Iterator[BadWord]:
    said = [word for word in _BOUNDS if word in scalable.annotations]
    if hpa is not None:
        for word in said:
            yield BadWord(
                f"{ANNOTATION}{word}", f"is not used: {plain(str(hpa.ref))} has the bounds", severity="warning"
            )
    elif not said:
        default = Replicas()
        bound = (
            f"is not given, nor {ANNOTATION}replicas.max, and no HorizontalPodAutoscaler scales it: "
            f"from {default.min} to {default.max} replicas"
        )
        yield BadWord(f"{ANNOTATION}replicas.min", bound, severity="warning")


def tolerances(
    workloads: Collection[WorkloadKey],
    targets: Mapping[WorkloadKey, Ref],
    scaled: Iterable[ScaledObject],
    hpas: Iterable[Hpa],
) -> dict[WorkloadKey, float]:
    """Of two HPAs for one object Kubernetes obeys neither; here the first by its name is taken."""
    speakers: list[ScaledObject | Hpa] = [*scaled, *sorted(hpas, key=lambda hpa: hpa.ref, reverse=True)]
    said = {each.target: each.behavior.up_tolerance if each.behavior is not None else None for each in speakers}
    found = {key: said.get(target) for key, target in targets.items() if key in workloads}
    return {key: tolerance for key, tolerance in found.items() if tolerance is not None}


_KEY = ANNOTATION + BRAKE


class Braked(NamedTuple):
    """brakes: of each workload that has one."""

    brakes: dict[WorkloadKey, tuple[Brake, ...]]
    troubles: list[ObjectError]


def brakes(spoken: Mapping[WorkloadKey, set[Ref]], objects: Iterable[ScaledObject | Scalable]) -> Braked:
    """spoken: the objects whose brake a workload obeys. objects: all that are seen; few of them have one."""
    read: dict[Ref, Brake] = {}
    troubles: list[ObjectError] = []
    for each in objects:
        if isinstance(each, ScaledObject):
            troubles += (trouble(each.ref, bad) for bad in _misspelt(each.annotations))
        if BRAKE not in each.annotations:
            continue
        text, source = each.annotations[BRAKE], plain(str(each.ref))
        try:
            read[each.ref] = read_brake(text, source)
        except BadOrder as bad:
            read[each.ref] = unreadable(source)
            troubles.append(trouble(each.ref, BadWord(_KEY, f"{bad}. Until then it counts as never_down", text)))
    obeyed = {key: sorted(refs & read.keys()) for key, refs in spoken.items()} if read else {}
    heard = {ref for refs in obeyed.values() for ref in refs}
    troubles += [
        trouble(ref, BadWord(_KEY, "stops nothing: no workload of Tidegate's is scaled by it", severity="warning"))
        for ref in sorted(read.keys() - heard)
    ]
    return Braked({key: tuple(read[ref] for ref in refs) for key, refs in obeyed.items() if refs}, troubles)


def _misspelt(annotations: Mapping[str, str]) -> Iterator[BadWord]:
    """A ScaledObject has no other word of ours: one that looks like a brake must not be passed over in silence."""
    for key in sorted(annotations.keys() - {BRAKE})[:MOST_WORDS]:
        if did_you_mean(key.lower(), [BRAKE]):
            yield BadWord(ANNOTATION + key, f"stops nothing; did you mean {BRAKE}?")


def ordered(census: Registry) -> list[WorkloadOverrides]:
    """What is ordered of each of the census's workloads, in their order. The brake for all is the configuration's."""
    return [
        WorkloadOverrides(
            brakes=(
                *census.brakes.get(workload.key, ()),
                *((workload.brake,) if workload.brake is not None else ()),
            ),
            schedules=tuple(schedule.order for schedule in workload.schedules),
        )
        for workload in census.workloads
    ]
