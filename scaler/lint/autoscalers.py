"""ScaledObjects and HorizontalPodAutoscalers, seen as one: whom they scale, between what, and by which numbers. Pure.

It knows both controllers' defaults, and which autoscaler asks Tidegate.

Worked example: a ScaledObject without counts is an `Autoscaler` with `lowest` 0 and `highest` 100, an HPA without
minReplicas one with `lowest` 1.

All objects of one run, found by each other: an autoscaler's workload, a workload's autoscalers. Pure.

Worked example: with a Deployment and a ScaledObject that names it in one run, `seen.workload_of(autoscaler)` is the
Deployment; in a run of the ScaledObject alone it is None, and rules about its pods have nothing to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from scaler.config.errors import Loc
from scaler.config.model import Config
from scaler.config.yaml import DocumentValue

from .objects import LintWorkload, Thing, workload
from .triggers import is_ours

OUR_METRIC = "tidegate-replicas"
_KEDA_LOWEST, _KEDA_HIGHEST, _HPA_LOWEST = 0, 100, 1
_BEHAVIOR = ("spec", "advanced", "horizontalPodAutoscalerConfig", "behavior")
_OF_METRIC = {"Pods": "pods", "Object": "object", "External": "external"}
_QUANTITY = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?)(m|k|M|G|Ki|Mi|Gi)?")
_FACTORS = {None: 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}


@dataclass(frozen=True, slots=True)
class ScalingMetric:
    """One number that replicas hang on.

    kind:      KEDA's type of trigger, or the HPA's type of metric.
    loc:       where the query or the metric's name stands. text: it; "" where the kind says it all.
    target:    what a replica should have of it; None where it is not written, or is no number.
    activates: above this KEDA keeps it awake; None where that is not said.
    at:        the trigger or metric itself.
    """

    kind: str
    at: Loc
    loc: Loc
    text: str
    target: float | None
    activates: float | None = None


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """target: kind and name, in its own namespace. highest: None where it is not known. behavior: where the
    HPA's stands, or would. ours: it asks Tidegate.
    """

    thing: Thing
    target: tuple[str, str]
    lowest: int
    highest: int | None
    behavior: Loc
    asked: tuple[ScalingMetric, ...]
    ours: bool

    @property
    def is_keda(self) -> bool:
        return self.thing.kind == "ScaledObject"

    @property
    def target_key(self) -> tuple[str, str, str]:
        """Kind, namespace and name of what it scales."""
        return self.target[0], self.thing.namespace, self.target[1]

    @property
    def is_kedas(self) -> bool:
        """The HPA that KEDA makes of a ScaledObject: what is to be said of it, is said there."""
        owners = self.value.items("metadata", "ownerReferences")
        return not self.is_keda and any(owner.read("kind") == "ScaledObject" for owner in owners)

    @property
    def value(self) -> DocumentValue:
        return self.thing.value

    @property
    def count_loc(self) -> Loc:
        """Where the minimum stands."""
        return ("spec", "minReplicaCount" if self.is_keda else "minReplicas")


def autoscaler(thing: Thing) -> Autoscaler | None:
    """None: it is neither a ScaledObject nor an HPA of autoscaling/v2."""
    if thing.kind == "ScaledObject":
        return _of_keda(thing)
    if thing.kind == "HorizontalPodAutoscaler":
        return _of_hpa(thing)
    return None


def number(text: str) -> float | None:
    """A Kubernetes quantity as a number: "1" is 1.0, "100m" is 0.1; None for what is none."""
    match = _QUANTITY.fullmatch(text.strip())
    return None if match is None else float(match[1]) * _FACTORS[match[2]]


def _of_keda(thing: Thing) -> Autoscaler:
    value = thing.value
    lowest, idle = value.count("spec", "minReplicaCount"), value.count("spec", "idleReplicaCount")
    triggers = value.items("spec", "triggers")
    least = _KEDA_LOWEST if lowest is None else lowest
    return Autoscaler(
        thing,
        (value.read("spec", "scaleTargetRef", "kind") or "Deployment", value.read("spec", "scaleTargetRef", "name")),
        least if idle is None else min(idle, least),
        _or(value.count("spec", "maxReplicaCount"), _KEDA_HIGHEST),
        _BEHAVIOR,
        tuple(_trigger(trigger, ("spec", "triggers", index)) for index, trigger in enumerate(triggers)),
        any(is_ours(trigger) for trigger in triggers),
    )


def _trigger(trigger: DocumentValue, at: Loc) -> ScalingMetric:
    kind, metadata = trigger.read("type"), trigger.below("metadata")
    target = activates = None
    for key, one in metadata.items():
        twin = key.removeprefix("activation")
        if twin != key and twin and (said := metadata.get(twin[0].lower() + twin[1:])) is not None:
            target, activates = number(said.text or ""), number(one.text or "")
            break
    else:
        said = metadata.get("threshold") or metadata.get("value")
        target = number(said.text or "") if said is not None else None
    query = metadata.get("query")
    loc = (*at, "metadata", "query") if query is not None else (*at, "type")
    return ScalingMetric(kind, at, loc, (query.text or "") if query is not None else "", target, activates)


def _of_hpa(thing: Thing) -> Autoscaler:
    value = thing.value
    metrics = value.items("spec", "metrics")
    asked = tuple(_metric(metric, ("spec", "metrics", index)) for index, metric in enumerate(metrics))
    return Autoscaler(
        thing,
        (value.read("spec", "scaleTargetRef", "kind"), value.read("spec", "scaleTargetRef", "name")),
        _or(value.count("spec", "minReplicas"), _HPA_LOWEST),
        value.count("spec", "maxReplicas"),
        ("spec", "behavior"),
        asked,
        any(one.text == OUR_METRIC for one in asked),
    )


def _metric(metric: DocumentValue, at: Loc) -> ScalingMetric:
    kind = metric.read("type")
    section = _OF_METRIC.get(kind)
    if section is None:
        section = "containerResource" if kind == "ContainerResource" else "resource"
        return ScalingMetric(kind, at, (*at, section, "name"), metric.read(section, "name"), None)
    target = metric.read(section, "target", "averageValue") or metric.read(section, "target", "value")
    return ScalingMetric(
        kind, at, (*at, section, "metric", "name"), metric.read(section, "metric", "name"), number(target)
    )


def _or(count: int | None, usual: int) -> int:
    return usual if count is None else count


Key: TypeAlias = tuple[str, str, str]  # kind, namespace, name


@dataclass(frozen=True, slots=True)
class LintContext:
    """by_target: the autoscalers of each target, in the order of the run. keys: of every object. config: what
    they meet, if known. live: read from a cluster, where controllers have written into the objects.
    """

    things: tuple[Thing, ...]
    autoscalers: Mapping[Thing, Autoscaler]
    by_target: Mapping[Key, Sequence[Autoscaler]]
    workloads: Mapping[Key, LintWorkload]
    keys: frozenset[Key]
    config: Config | None = None
    live: bool = False

    def workload_of(self, scaler: Autoscaler) -> LintWorkload | None:
        return self.workloads.get(scaler.target_key)

    def scalers_of(self, target: LintWorkload) -> Sequence[Autoscaler]:
        return self.by_target.get(target.thing.key, ())

    def is_on_gpus(self, scaler: Autoscaler) -> bool:
        """Its pods are in this run, and ask for GPUs."""
        target = self.workload_of(scaler)
        return target is not None and target.on_gpus

    def has(self, kind: str) -> bool:
        """There is any of that kind."""
        return any(one == kind for one, _, _ in self.keys)

    def of_kind(self, *kinds: str) -> list[Thing]:
        return [one for one in self.things if one.kind in kinds]


def see(things: Iterable[Thing], config: Config | None = None, *, live: bool = False) -> LintContext:
    """The same object twice, in two files, is looked at in both, and is one to others: the last."""
    things = tuple(things)
    scalers = {one: found for one in things if (found := autoscaler(one)) is not None}
    by_target: dict[Key, list[Autoscaler]] = {}
    for scaler in scalers.values():
        by_target.setdefault(scaler.target_key, []).append(scaler)
    workloads = {one.key: pods for one in things if (pods := workload(one)) is not None}
    keys = frozenset(one.key for one in things)
    return LintContext(things, scalers, by_target, workloads, keys, config, live)


def shown_count(value: DocumentValue, *path: str | int) -> str | None:
    """What is written there, to be shown; None if nothing is."""
    found = value.at(*path)
    return None if found is None else found.text
