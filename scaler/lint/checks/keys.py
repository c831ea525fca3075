"""Checks the keys of ScaledObjects, ScaledJobs and HorizontalPodAutoscalers against their schemas (TG096).

kubectl refuses an unknown key, and other clients drop it silently: KEDA then uses its default. Only names of keys are
checked here; other rules and the API server check the values. A tree maps each key to the tree below it, or to None if
everything is allowed there. Items of a list have the tree of the list. Pure.

Sources: KEDA's `apis/keda/v1alpha1` (scaledobject_types.go, scaledjob_types.go, scaletriggers_types.go,
scaledobject_webhook.go) at commit 8b4f083, which is newer than 2.20; `autoscaling/v2` and `v1` of Kubernetes 1.37.

Worked example: `spec: {minReplicas: 0}` of a ScaledObject is "unknown key ...; did you mean minReplicaCount?".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from scaler.config.errors import Finding, Loc, dotted
from scaler.config.rules import UNKNOWN_KEY
from scaler.config.scalars import did_you_mean
from scaler.config.trigger import ANNOTATION, ASIDES, TRIGGER_KEYS
from scaler.config.yaml import DocumentValue

from ..objects import LintObject

Tree: TypeAlias = Mapping[str, "Tree | None"]


def _leaves(keys: str) -> dict[str, Tree | None]:
    return dict.fromkeys(keys.split())


def _object(spec: Tree) -> Tree:
    metadata = _leaves(
        "name generateName namespace labels annotations finalizers ownerReferences uid resourceVersion generation "
        "creationTimestamp deletionTimestamp deletionGracePeriodSeconds managedFields selfLink"
    )
    return {**_leaves("apiVersion kind status"), "metadata": metadata, "spec": spec}


_RULES: Tree = {
    **_leaves("stabilizationWindowSeconds selectPolicy tolerance"),
    "policies": _leaves("type value periodSeconds"),
}
_BEHAVIOR: Tree = {"scaleUp": _RULES, "scaleDown": _RULES}
_TARGET: Tree = _leaves("type value averageValue averageUtilization")
_METRIC: Tree = {"name": None, "selector": _leaves("matchLabels matchExpressions")}
_REFERENCE: Tree = _leaves("apiVersion kind name")
_COUNTS: Tree = {"scaleTargetRef": _REFERENCE, **_leaves("minReplicas maxReplicas")}
_TRIGGERS: Tree = {
    **_leaves("type name metadata useCachedMetrics metricType"),
    "authenticationRef": _leaves("name kind"),
}

TREES: Mapping[tuple[str, str], Tree] = {
    ("autoscaling/v1", "HorizontalPodAutoscaler"): _object({**_COUNTS, "targetCPUUtilizationPercentage": None}),
    ("autoscaling/v2", "HorizontalPodAutoscaler"): _object(
        {
            **_COUNTS,
            "behavior": _BEHAVIOR,
            "metrics": {
                "type": None,
                "resource": {"name": None, "target": _TARGET},
                "containerResource": {**_leaves("name container"), "target": _TARGET},
                "pods": {"metric": _METRIC, "target": _TARGET},
                "object": {"describedObject": _REFERENCE, "metric": _METRIC, "target": _TARGET},
                "external": {"metric": _METRIC, "target": _TARGET},
            },
        }
    ),
    ("keda.sh/v1alpha1", "ScaledObject"): _object(
        {
            "scaleTargetRef": {**_REFERENCE, "envSourceContainerName": None},
            **_leaves("pollingInterval initialCooldownPeriod cooldownPeriod"),
            **_leaves("idleReplicaCount minReplicaCount maxReplicaCount"),
            "advanced": {
                "horizontalPodAutoscalerConfig": {"name": None, "behavior": _BEHAVIOR},
                "restoreToOriginalReplicaCount": None,
                "scalingModifiers": _leaves("formula target activationTarget metricType"),
            },
            "triggers": _TRIGGERS,
            "fallback": _leaves("failureThreshold replicas behavior"),
        }
    ),
    ("keda.sh/v1alpha1", "ScaledJob"): _object(
        {
            **_leaves("jobTargetRef pollingInterval successfulJobsHistoryLimit failedJobsHistoryLimit rolloutStrategy"),
            **_leaves("envSourceContainerName minReplicaCount maxReplicaCount"),
            "rollout": _leaves("strategy propagationPolicy"),
            "scalingStrategy": _leaves(
                "strategy customScalingQueueLengthDeduction customScalingRunningJobPercentage pendingPodConditions "
                "multipleScalersCalculation"
            ),
            "triggers": _TRIGGERS,
        }
    ),
}
_KEDA_ANNOTATION = "autoscaling.keda.sh/"
_KEDA_ANNOTATIONS = ("paused", "paused-replicas", "paused-scale-in", "paused-scale-out", "force-activation")
_ANNOTATIONS = ("metadata", "annotations")
_MOST_PLACES = 2  # `name` has more, and no place is then the one that was meant
_CONSEQUENCE = "unknown key: kubectl refuses it, other clients drop it"


def unknown_keys(obj: LintObject) -> Iterator[Finding]:
    """Findings about each unknown key of an object with a schema, and about annotations that resemble known ones."""
    tree = TREES.get((obj.value.read("apiVersion"), obj.kind))
    if tree is not None:
        for at, siblings in _unknown(obj.value, tree, ()):
            yield Finding(at, f"{_CONSEQUENCE}; {_hint(at, siblings, tree)}", rule=UNKNOWN_KEY)


def unknown_annotations(obj: LintObject) -> Iterator[Finding]:
    """Findings about annotations of KEDA that it does not know, and keys of Tidegate under another domain."""
    for key in obj.value.below(*_ANNOTATIONS):
        domain, _, name = key.partition("/")
        if key.startswith(_KEDA_ANNOTATION) and name not in _KEDA_ANNOTATIONS:
            meant = did_you_mean(name, _KEDA_ANNOTATIONS)
            hint = f"did you mean {_KEDA_ANNOTATION}{meant}?" if meant else f"known are {', '.join(_KEDA_ANNOTATIONS)}"
            yield Finding((*_ANNOTATIONS, key), f"KEDA ignores it; {hint}", rule=UNKNOWN_KEY)
        elif domain.lower().startswith("tidegate") and f"{domain}/" != ANNOTATION and name in {*TRIGGER_KEYS, *ASIDES}:
            message = f"Tidegate ignores it; did you mean {ANNOTATION}{name}?"
            yield Finding((*_ANNOTATIONS, key), message, rule=UNKNOWN_KEY)


def _unknown(value: DocumentValue, tree: Tree, at: Loc) -> Iterator[tuple[Loc, Tree]]:
    """Each unknown key below a value, with the tree that lacks it."""
    items = [(item, (*at, index)) for index, item in enumerate(value.items())]
    for mapping, loc in items or [(value, at)]:
        for key, child in mapping.entries().items():
            if key not in tree:
                yield (*loc, key), tree
            elif (below := tree[key]) is not None:
                yield from _unknown(child, below, (*loc, key))


def _hint(at: Loc, siblings: Tree, tree: Tree) -> str:
    """The key that was meant: the same key elsewhere in the object, else the nearest one here, else all known here."""
    name = str(at[-1])
    elsewhere = [dotted(path) for path in _paths(tree, ()) if path[-1] == name]
    if 0 < len(elsewhere) <= _MOST_PLACES:
        return f"its place is {' or '.join(elsewhere)}"
    lower = {key.lower(): key for key in siblings}
    meant = did_you_mean(name.lower(), lower)
    return f"did you mean {lower[meant]}?" if meant else f"known here: {', '.join(sorted(siblings))}"


def _paths(tree: Tree, at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key, below in tree.items():
        yield (*at, key)
        if below is not None:
            yield from _paths(below, (*at, key))
