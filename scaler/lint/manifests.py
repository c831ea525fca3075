"""Manifests -> everything that is wrong with what they say to Tidegate, before they are applied.

It reads the triggers of ScaledObjects and ScaledJobs and the `tidegate.dev/` annotations of what is scaled, as the
daemon will, and passes over everything else. What KEDA and Kubernetes want of a manifest is their business, except
where it keeps a trigger from working.

Worked example: for a ScaledObject whose trigger has the metadata `{scalerAddress: "tidegate:6000", engine: vlm}` there
is one error, `scaledobject.yaml:9:15: spec.triggers.0.metadata.engine: must be one of ..., got 'vlm'`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from exporter.cluster.objects import Ref
from exporter.model import WorkloadKey

from ..census.make import Asked, make
from ..config.documents import Value, documents
from ..config.model import Config
from ..config.order_checks import brake_findings
from ..config.problem import Problem, dotted
from ..config.remark import Remark, of_word, problem
from ..config.tenant import Trigger
from ..config.trigger import ANNOTATION, BRAKE, CHECK_IGNORE
from ..config.workload import Replicas
from ..orders import BadOrder, read_brake
from ..rules import ANNOTATION_NOT_READ
from .scaled_objects import assumed, remarks_on_scaled, remarks_on_strings

# Rendered charts of a whole platform are larger than a configuration, and their YAML is read at about 200 kB/s.
LARGEST_BYTES = 4 * 2**20

ANNOTATED = ("Deployment", "StatefulSet", "LeaderWorkerSet", "Rollout")
_SCALED = ("ScaledObject", "ScaledJob")
_SAYS_KIND = re.compile(r"^[ \t{-]*[\"']?kind[\"']?\s*:", re.MULTILINE)
_SAYS_VERSION = re.compile(r"^[ \t{-]*[\"']?apiVersion[\"']?\s*:", re.MULTILINE)
_ANNOTATIONS = ("metadata", "annotations")
_TEMPLATE = ("spec", "template", "metadata", "annotations")


class Checked(NamedTuple):
    """problems: in the order of the text. passed_over: documents that say nothing to Tidegate."""

    problems: list[Problem]
    passed_over: int


def is_manifest(text: str) -> bool:
    """It is Kubernetes' YAML and no configuration of Tidegate: a configuration has no apiVersion."""
    return _SAYS_VERSION.search(text) is not None and _SAYS_KIND.search(text) is not None


def check_manifests(text: str, file: str, config: Config | None, now: float | None = None) -> Checked:
    """What is to be said of manifests.

    config: what they will meet; None: not known, defaults are assumed. now: POSIX seconds; None: brakes that are over
    are not looked for.
    """
    found, troubles = documents(text)
    problems = [Problem(file, *trouble.mark, dotted(trouble.loc), trouble.message) for trouble in troubles]
    passed_over = 0
    for thing in (one for document in found for one in _objects(document)):
        remarks = remarks_on(thing, config, now)
        passed_over += remarks is None
        problems += [problem(thing, file, remark) for remark in remarks or ()]
    problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0, problem.key))
    return Checked(problems, passed_over)


def _objects(document: Value) -> Iterator[Value]:
    if document.read("kind") == "List":
        for item in document.items("items"):
            yield from _objects(item)
    elif document.entries():  # an empty document is what two `---` in a row make
        yield document


def remarks_on(thing: Value, config: Config | None, now: float | None) -> list[Remark] | None:
    """What is to be said of the words of one object; None: it has none for Tidegate."""
    kind = thing.read("kind")
    is_scaled = kind in _SCALED and thing.read("apiVersion").startswith("keda.sh/")
    own, below = _annotations(thing, _ANNOTATIONS), _annotations(thing, _TEMPLATE)
    brake = own.pop(ANNOTATION + BRAKE, None)
    own.pop(ANNOTATION + CHECK_IGNORE, None)
    of_triggers = remarks_on_scaled(thing, config) if is_scaled else None
    if of_triggers is not None:
        remarks = of_triggers
    elif own or below or brake is not None:
        remarks = []
    else:
        return None
    if brake is not None:
        remarks += _braked(brake, is_scaled or kind in ANNOTATED, now)
    if own and kind in ANNOTATED:
        remarks += _annotated(thing, own, config)
    elif own:
        better = (
            f"the metadata of its trigger says it; only {ANNOTATION}{BRAKE} is"
            if is_scaled
            else f"it is read on {', '.join(ANNOTATED)}"
        )
        remarks.append(
            Remark(
                (*_ANNOTATIONS, next(iter(own))),
                f"is not read on a {kind}: {better}",
                "warning",
                rule=ANNOTATION_NOT_READ,
            )
        )
    if below:
        better = f"is not read on pods: annotate the {kind} itself"
        remarks.append(Remark((*_TEMPLATE, next(iter(below))), better, "warning", rule=ANNOTATION_NOT_READ))
    return remarks


def _braked(brake: Value, is_read: bool, now: float | None) -> Iterator[Remark]:
    at = (*_ANNOTATIONS, ANNOTATION + BRAKE)
    if not is_read:
        better = f"is not read there: it is read on ScaledObject, ScaledJob, {', '.join(ANNOTATED)}"
        yield Remark(at, better, "warning", rule=ANNOTATION_NOT_READ)
        return
    yield from remarks_on_strings({at[-1]: brake}, _ANNOTATIONS)
    if brake.text is None:
        return
    try:
        order = read_brake(brake.text)
    except BadOrder as bad:
        yield Remark(at, f"{bad}. Until then it counts as never_down", got=brake.text)
        return
    for finding in brake_findings(at, order, now):
        yield Remark(at, finding.message, finding.severity, rule=finding.rule)


def _annotated(thing: Value, annotations: dict[str, Value], config: Config | None) -> Iterator[Remark]:
    yield from remarks_on_strings(annotations, _ANNOTATIONS)
    words = {key.removeprefix(ANNOTATION): value.text for key, value in annotations.items() if value.text is not None}
    name, namespace = thing.read("metadata", "name"), thing.read("metadata", "namespace") or "default"
    ref = Ref(namespace, thing.read("kind"), name)
    made = make(Asked(WorkloadKey(namespace, name), ref, "annotations"), words, _bounds, assumed(config))
    for word in made.problems:
        holder, _, key = word.key.partition(".")
        # What is scaled is the object itself: its name is the target's.
        loc = {"object": ("metadata", key), "spec": ("metadata", "name")}.get(holder, (*_ANNOTATIONS, word.key))
        yield of_word(word, loc)


def _bounds(trigger: Trigger | None) -> Replicas:
    """What is not written, the HPA's minReplicas and maxReplicas will say; and an HPA has 1 at least."""
    replicas = trigger.replicas if trigger is not None else Replicas()
    return replicas if "min" in replicas.model_fields_set else replicas.model_copy(update={"min": 1})


def _annotations(thing: Value, path: tuple[str, ...]) -> dict[str, Value]:
    return {key: value for key, value in thing.below(*path).items() if key.startswith(ANNOTATION)}
