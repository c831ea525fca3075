"""Reads the `tidegate.dev/...` annotations of scaled objects: workloads, HPA tolerances and brakes. Pure.

Workloads: self-service where a HorizontalPodAutoscaler scales and not KEDA. The bounds on replicas are those of an HPA
that KEDA did not make, else of the annotations, else the configuration's defaults. If a ScaledObject or the
configuration names the same object, its annotations are ignored.

Tolerances: the smallest change up that the HPA acts on, a ratio. KEDA copies `behavior` of the ScaledObject into its
HPA, and a cluster before Kubernetes 1.35 drops the tolerance. So the HPA decides if it is watched, also by having none;
the ScaledObject decides if its HPA is not: RBAC hides it, or KEDA has not made it yet.

Brakes: `tidegate.dev/brake` on the ScaledObject or ScaledJob, on its scale target, or on both. They are read also if
the configuration turns annotations off or names the object itself. A brake that cannot be parsed is an error of its
object and counts as `never_down` until it is fixed.

Worked example: Deployment `ai/chat` with `{"engine": "vllm", "replicas.min": "1"}` and a HorizontalPodAutoscaler of 2
to 8 replicas is the workload `ai/chat` with `Replicas(min=2, max=8)`, and a warning that replicas.min is not used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from exporter.kubernetes.objects import Hpa, Ref, Scalable, ScaledObject
from exporter.model import WorkloadKey
from scaler.config import Config, Replicas
from scaler.config.errors import TriggerErrors, TriggerProblem
from scaler.config.scalars import did_you_mean
from scaler.config.trigger import ANNOTATION, ASIDES, BRAKE, Trigger, TriggerWorkload, bounds
from scaler.policy.overrides import Brake, OverrideError, WorkloadOverrides, read_brake, unreadable

from .caller_check import MOST_KEYS, plain
from .model import ObjectError, Registry, object_error
from .triggers import AnnotationsVersion, Parsed, WorkloadSource, make

# An InferenceService is not scaled itself: KServe hands its annotations on to the Deployments that it makes.
_KINDS = frozenset({"Deployment", "StatefulSet", "LeaderWorkerSet", "Rollout"})
_BOUNDS = ("replicas.min", "replicas.max")


class AnnotatedObject(NamedTuple):
    """One object with annotations. workload: None if it makes none."""

    ref: Ref
    workload: TriggerWorkload | None
    problems: tuple[TriggerProblem, ...]


class ClaimedNames(NamedTuple):
    """Claims of other objects: by scale target and by workload key, each with the claimant's name."""

    targets: Mapping[Ref, str]
    keys: Mapping[WorkloadKey, str]


def annotated_objects(
    scalables: Iterable[Scalable],
    hpas: Iterable[Hpa],
    claimed: ClaimedNames,
    config: Config,
    parsed: Parsed[AnnotatedObject],
) -> Iterator[AnnotatedObject]:
    """Yields one for each annotated object, ordered by object. parsed: a cache between calls."""
    annotated = {each.ref: each for each in scalables if _workload_annotations(each) and each.ref.kind in _KINDS}
    parsed.keep_only(annotated)
    scalers = _scalers(hpas)
    keys = dict(claimed.keys)
    for ref in sorted(annotated):
        if annotated[ref].owner in annotated:
            continue  # inherited from its owner
        key = WorkloadKey(ref.namespace, ref.name)
        before = claimed.targets.get(ref) or keys.get(key)
        if before is not None:
            yield AnnotatedObject(
                ref, None, (TriggerProblem(ANNOTATION, f"are ignored: {before} configures {plain(str(key))}"),)
            )
            continue
        hpa = scalers.get(ref)
        version = AnnotationsVersion.of(annotated[ref], hpa)
        found = parsed.get(ref, version, partial(_parse, annotated[ref], key, hpa, config))
        if found.workload is not None:
            keys[key] = plain(str(ref))
        yield found


def _workload_annotations(scalable: Scalable) -> dict[str, str]:
    """Annotations that make a workload: a brake makes none, nor do those of `tidegate check`."""
    return {key: value for key, value in scalable.annotations.items() if key not in ASIDES}


def _scalers(hpas: Iterable[Hpa]) -> dict[Ref, Hpa]:
    """HPAs by scale target, without those of KEDA. Of two for one object Kubernetes obeys neither."""
    return {
        hpa.target: hpa
        for hpa in sorted(hpas, key=lambda hpa: hpa.ref, reverse=True)
        if hpa.owner is None or hpa.owner.kind != "ScaledObject"
    }


def _parse(scalable: Scalable, key: WorkloadKey, hpa: Hpa | None, config: Config) -> AnnotatedObject:
    source = WorkloadSource(key, scalable.ref, "annotations")
    found = make(source, _workload_annotations(scalable), lambda trigger: _bounds(trigger, hpa), config)
    return AnnotatedObject(scalable.ref, found.workload, found.problems + tuple(_warnings(scalable, hpa)))


def _bounds(trigger: Trigger | None, hpa: Hpa | None) -> Replicas:
    if hpa is None:
        return trigger.replicas if trigger is not None else Replicas()
    try:
        return bounds(hpa.minimum, hpa.maximum, None)
    except TriggerErrors as bad:
        in_hpa = (problem.key.replace("ReplicaCount", "Replicas") for problem in bad.problems)
        of_hpa = (f"of {plain(str(hpa.ref))} {problem.bound}" for problem in bad.problems)
        pairs = zip(in_hpa, of_hpa, bad.problems, strict=True)
        raise TriggerErrors(tuple(TriggerProblem(key, bound, problem.value) for key, bound, problem in pairs)) from None


def _warnings(scalable: Scalable, hpa: Hpa | None) -> Iterator[TriggerProblem]:
    keys = [word for word in _BOUNDS if word in scalable.annotations]
    if hpa is not None:
        for word in keys:
            yield TriggerProblem(
                f"{ANNOTATION}{word}", f"is not used: {plain(str(hpa.ref))} has the bounds", severity="warning"
            )
    elif not keys:
        default = Replicas()
        bound = (
            f"is not given, nor {ANNOTATION}replicas.max, and no HorizontalPodAutoscaler scales it: "
            f"from {default.min} to {default.max} replicas"
        )
        yield TriggerProblem(f"{ANNOTATION}replicas.min", bound, severity="warning")


def tolerances(
    workloads: Collection[WorkloadKey],
    targets: Mapping[WorkloadKey, Ref],
    scaled: Iterable[ScaledObject],
    hpas: Iterable[Hpa],
) -> dict[WorkloadKey, float]:
    """Returns the tolerances for steps up of HPAs and ScaledObjects; of two HPAs for one object the first by name."""
    speakers: list[ScaledObject | Hpa] = [*scaled, *sorted(hpas, key=lambda hpa: hpa.ref, reverse=True)]
    keys = {each.target: each.behavior.up_tolerance if each.behavior is not None else None for each in speakers}
    found = {key: keys.get(target) for key, target in targets.items() if key in workloads}
    return {key: tolerance for key, tolerance in found.items() if tolerance is not None}


_KEY = ANNOTATION + BRAKE


class BrakesFound(NamedTuple):
    """brakes: of each workload that has one."""

    brakes: dict[WorkloadKey, tuple[Brake, ...]]
    object_errors: list[ObjectError]


def brakes(claimed: Mapping[WorkloadKey, set[Ref]], objects: Iterable[ScaledObject | Scalable]) -> BrakesFound:
    """claimed: for each workload the objects that may have its brakes. objects: all watched ones; few have a brake."""
    read: dict[Ref, Brake] = {}
    object_errors: list[ObjectError] = []
    for each in objects:
        if isinstance(each, ScaledObject):
            object_errors += (object_error(each.ref, bad) for bad in _misspelt(each.annotations))
        if BRAKE not in each.annotations:
            continue
        text, source = each.annotations[BRAKE], plain(str(each.ref))
        try:
            read[each.ref] = read_brake(text, source)
        except OverrideError as bad:
            read[each.ref] = unreadable(source)
            object_errors.append(
                object_error(each.ref, TriggerProblem(_KEY, f"{bad}. Until then it counts as never_down", text))
            )
    obeyed = {key: sorted(refs & read.keys()) for key, refs in claimed.items()} if read else {}
    obeyed_refs = {ref for refs in obeyed.values() for ref in refs}
    object_errors += [
        object_error(
            ref, TriggerProblem(_KEY, "stops nothing: no workload of Tidegate's is scaled by it", severity="warning")
        )
        for ref in sorted(read.keys() - obeyed_refs)
    ]
    return BrakesFound({key: tuple(read[ref] for ref in refs) for key, refs in obeyed.items() if refs}, object_errors)


def _misspelt(annotations: Mapping[str, str]) -> Iterator[TriggerProblem]:
    """A ScaledObject has no other annotation of Tidegate: a key similar to `brake` is reported."""
    for key in sorted(annotations.keys() - {BRAKE})[:MOST_KEYS]:
        if did_you_mean(key.lower(), [BRAKE]):
            yield TriggerProblem(ANNOTATION + key, f"stops nothing; did you mean {BRAKE}?")


def ordered(registry: Registry) -> list[WorkloadOverrides]:
    """Returns the overrides of each workload of the registry, in order, without the brake for all workloads."""
    return [
        WorkloadOverrides(
            brakes=(*registry.brakes.get(workload.key, ()), *((workload.brake,) if workload.brake is not None else ())),
            schedules=tuple(schedule.order for schedule in workload.schedules),
        )
        for workload in registry.workloads
    ]
