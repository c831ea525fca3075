"""Reads ScaledObjects and HorizontalPodAutoscalers as one type, and relates all objects of a run. Pure.

It applies the defaults of both controllers, and knows which autoscalers use Tidegate.

Worked example: a ScaledObject without counts is an `Autoscaler` with `lowest` 0 and `highest` 100, an HPA without
minReplicas one with `lowest` 1. `context.workload_of(autoscaler)` is its Deployment if that is in the same run, else
None, and rules about its pods find nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from scaler.config.errors import Loc
from scaler.config.model import Config
from scaler.config.yaml import DocumentValue
from scaler.model import METRIC

from .objects import LintObject, LintWorkload, workload_of
from .triggers import is_ours

_KEDA_LOWEST, _KEDA_HIGHEST, _HPA_LOWEST = 0, 100, 1
Key: TypeAlias = tuple[str, str, str]  # kind, namespace, name

_BEHAVIOR = ("spec", "advanced", "horizontalPodAutoscalerConfig", "behavior")
_METRIC_SECTIONS = {"Pods": "pods", "Object": "object", "External": "external"}
_QUANTITY = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?)(m|k|M|G|Ki|Mi|Gi)?")
_FACTORS = {None: 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}


@dataclass(frozen=True, slots=True)
class ScalingMetric:
    """One metric of an autoscaler.

    kind:       KEDA's type of trigger, or the HPA's type of metric.
    at:         key of the trigger or metric.
    loc:        key of the query or of the metric's name.
    text:       query or name; "" if the kind has none.
    target:     value per replica; None if it is missing or no number.
    activation: KEDA keeps the workload active above this value; None if missing.
    """

    kind: str
    at: Loc
    loc: Loc
    text: str
    target: float | None
    activation: float | None = None


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """target: kind and name, in the same namespace. highest: None if unknown. behavior: key of the HPA's behavior.
    is_ours: whether it uses Tidegate.
    """

    obj: LintObject
    target: tuple[str, str]
    lowest: int
    highest: int | None
    behavior: Loc
    metrics: tuple[ScalingMetric, ...]
    is_ours: bool

    @property
    def is_keda(self) -> bool:
        return self.obj.kind == "ScaledObject"

    @property
    def target_key(self) -> tuple[str, str, str]:
        """Kind, namespace and name of the scale target."""
        return self.target[0], self.obj.namespace, self.target[1]

    @property
    def is_made_by_keda(self) -> bool:
        """Whether it is the HPA of a ScaledObject, which has the findings."""
        owners = self.value.items("metadata", "ownerReferences")
        return not self.is_keda and any(owner.read("kind") == "ScaledObject" for owner in owners)

    @property
    def value(self) -> DocumentValue:
        return self.obj.value

    @property
    def count_loc(self) -> Loc:
        """Key of the minimum."""
        return ("spec", "minReplicaCount" if self.is_keda else "minReplicas")


def autoscaler(obj: LintObject) -> Autoscaler | None:
    """None if the object is no autoscaler."""
    if obj.kind == "ScaledObject":
        return _of_keda(obj)
    if obj.kind == "HorizontalPodAutoscaler":
        return _of_hpa(obj)
    return None


def number(text: str) -> float | None:
    """The value of a Kubernetes quantity: "1" is 1.0, "100m" is 0.1; None for other text."""
    match = _QUANTITY.fullmatch(text.strip())
    return None if match is None else float(match[1]) * _FACTORS[match[2]]


def _of_keda(obj: LintObject) -> Autoscaler:
    value = obj.value
    lowest, idle = value.count("spec", "minReplicaCount"), value.count("spec", "idleReplicaCount")
    triggers = value.items("spec", "triggers")
    least = _KEDA_LOWEST if lowest is None else lowest
    return Autoscaler(
        obj,
        (value.read("spec", "scaleTargetRef", "kind") or "Deployment", value.read("spec", "scaleTargetRef", "name")),
        least if idle is None else min(idle, least),
        _or(value.count("spec", "maxReplicaCount"), _KEDA_HIGHEST),
        _BEHAVIOR,
        tuple(_trigger(trigger, ("spec", "triggers", index)) for index, trigger in enumerate(triggers)),
        any(is_ours(trigger) for trigger in triggers),
    )


def _trigger(trigger: DocumentValue, at: Loc) -> ScalingMetric:
    kind, metadata = trigger.read("type"), trigger.below("metadata")
    target = activation = None
    for key, one in metadata.items():
        twin = key.removeprefix("activation")
        if twin != key and twin and (value := metadata.get(twin[0].lower() + twin[1:])) is not None:
            target, activation = number(value.text or ""), number(one.text or "")
            break
    else:
        value = metadata.get("threshold") or metadata.get("value")
        target = number(value.text or "") if value is not None else None
    query = metadata.get("query")
    loc = (*at, "metadata", "query") if query is not None else (*at, "type")
    return ScalingMetric(kind, at, loc, (query.text or "") if query is not None else "", target, activation)


def _of_hpa(obj: LintObject) -> Autoscaler:
    value = obj.value
    metrics = value.items("spec", "metrics")
    scaling_metrics = tuple(_metric(metric, ("spec", "metrics", index)) for index, metric in enumerate(metrics))
    return Autoscaler(
        obj,
        (value.read("spec", "scaleTargetRef", "kind"), value.read("spec", "scaleTargetRef", "name")),
        _or(value.count("spec", "minReplicas"), _HPA_LOWEST),
        value.count("spec", "maxReplicas"),
        ("spec", "behavior"),
        scaling_metrics,
        any(metric.text == METRIC for metric in scaling_metrics),
    )


def _metric(metric: DocumentValue, at: Loc) -> ScalingMetric:
    kind = metric.read("type")
    section = _METRIC_SECTIONS.get(kind)
    if section is None:
        section = "containerResource" if kind == "ContainerResource" else "resource"
        return ScalingMetric(kind, at, (*at, section, "name"), metric.read(section, "name"), None)
    target = metric.read(section, "target", "averageValue") or metric.read(section, "target", "value")
    return ScalingMetric(
        kind, at, (*at, section, "metric", "name"), metric.read(section, "metric", "name"), number(target)
    )


def _or(count: int | None, default: int) -> int:
    return default if count is None else count


@dataclass(frozen=True, slots=True)
class LintContext:
    """All objects of a run.

    by_target: the autoscalers of each target, in the order of the run.
    keys:      of every object.
    config:    of the daemon that will read them, if known.
    live:      whether they come from a cluster, where controllers write into objects.
    """

    objects: tuple[LintObject, ...]
    autoscalers: Mapping[LintObject, Autoscaler]
    by_target: Mapping[Key, Sequence[Autoscaler]]
    workloads: Mapping[Key, LintWorkload]
    keys: frozenset[Key]
    config: Config | None = None
    live: bool = False

    def workload_of(self, scaler: Autoscaler) -> LintWorkload | None:
        return self.workloads.get(scaler.target_key)

    def scalers_of(self, target: LintWorkload) -> Sequence[Autoscaler]:
        return self.by_target.get(target.obj.key, ())

    def inherits(self, target: LintWorkload) -> bool:
        """Whether its annotations are those of an owner in this run, which has the findings."""
        owners = target.obj.value.items("metadata", "ownerReferences")
        keys = ((one.read("kind"), target.obj.namespace, one.read("name")) for one in owners)
        return any(key in self.workloads and self.workloads[key].is_annotated for key in keys)

    def is_on_gpus(self, scaler: Autoscaler) -> bool:
        """Whether its pods are in this run and request GPUs."""
        target = self.workload_of(scaler)
        return target is not None and target.on_gpus

    def has(self, kind: str) -> bool:
        """Whether the run has an object of this kind."""
        return any(one == kind for one, _, _ in self.keys)

    def of_kind(self, *kinds: str) -> list[LintObject]:
        return [one for one in self.objects if one.kind in kinds]


def build_context(objects: Iterable[LintObject], config: Config | None = None, *, live: bool = False) -> LintContext:
    """If an object is in two files, other objects see the last one."""
    objects = tuple(objects)
    scalers = {one: found for one in objects if (found := autoscaler(one)) is not None}
    by_target: dict[Key, list[Autoscaler]] = {}
    for scaler in scalers.values():
        by_target.setdefault(scaler.target_key, []).append(scaler)
    workloads = {one.key: pods for one in objects if (pods := workload_of(one)) is not None}
    keys = frozenset(one.key for one in objects)
    return LintContext(objects, scalers, by_target, workloads, keys, config, live)


def shown_count(value: DocumentValue, *path: str | int) -> str | None:
    """The written value, for a message; None if missing."""
    found = value.at(*path)
    return None if found is None else found.text
