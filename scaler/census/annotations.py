"""Workloads of `tidegate.dev/…` annotations: self-service where a HorizontalPodAutoscaler scales and not KEDA.

The annotations stand on what is scaled. Between how many replicas it may be, its HorizontalPodAutoscaler says if it
has one that KEDA did not make, else the annotations, else nobody, and then the configuration's default holds. Where a
ScaledObject or the configuration speaks for the same object, its annotations are not listened to.

Worked example: Deployment `ai/chat` with `{"engine": "vllm", "replicas.min": "1"}` and a HorizontalPodAutoscaler of 2
to 8 replicas is the workload `ai/chat` with `Replicas(min=2, max=8)`, and a warning that replicas.min is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from exporter.cluster.objects import Hpa, Ref, Scalable
from exporter.model import WorkloadKey

from ..config import Config, Replicas
from ..config.bad_words import BadWord, BadWords
from ..config.tenant import Trigger, TriggerWorkload, bounds
from ..config.trigger import ANNOTATION, ASIDES
from .make import Asked, make
from .parsed import AnnotationsVersion, Parsed
from .words import plain

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
    asked = Asked(key, scalable.ref, "annotations")
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
