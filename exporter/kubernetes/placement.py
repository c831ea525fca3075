"""Decides which taints a pod tolerates and which quotas count it, as the scheduler and the quota controller do. Pure.

Only what is needed for pods that request GPUs. Sources: core/v1 `Toleration.ToleratesTaint`, and the scopes of
kubernetes/pkg/quota/v1/evaluator/core/pods.go.

Worked example: a node has the taint `team=a:NoSchedule`. A pod with `{key: team, operator: Exists}` tolerates it, one
with `{key: team, value: b}` does not. A quota with the scope `NotTerminating` counts both, if neither has
`activeDeadlineSeconds`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from .fields import Fields

# The scheduler keeps new pods away from a node with one of these. "PreferNoSchedule" does not.
_HARD = ("NoSchedule", "NoExecute")
# They say of a node what its record says already: it is cordoned, or not ready.
_IN_RECORD = ("node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass")


class Taint(NamedTuple):
    """A taint of a node. effect: "NoSchedule" or "NoExecute"."""

    key: str
    value: str
    effect: str


class Toleration(NamedTuple):
    """A toleration of a pod. key: "" is any. operator: "Equal" or "Exists". effect: "" is any."""

    key: str
    operator: str
    value: str
    effect: str


class PodTraits(NamedTuple):
    """What decides where a pod may run, and which quotas count it.

    priority_class: "" if it has none. deadline: whether it has `activeDeadlineSeconds`.
    best_effort:    whether no container requests or limits CPU or memory (its class of service).
    """

    tolerations: tuple[Toleration, ...] = ()
    priority_class: str = ""
    deadline: bool = False
    best_effort: bool = False


class QuotaScope(NamedTuple):
    """One requirement of a quota. operator, values: of a `scopeSelector`; "Exists" of `scopes`."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


NO_TRAITS = PodTraits()
# Thousands of pods have the same few traits: they share one value each.
_shared = lru_cache(maxsize=4096)(PodTraits)


def traits_of(spec: Fields) -> PodTraits:
    """Of a pod's `spec`. Raises FieldError."""
    return _shared(
        tuple(sorted(map(_toleration, spec.objects("tolerations")))),
        spec.text("priorityClassName") or "",
        spec.integer("activeDeadlineSeconds") is not None,
        not any(map(_wants_cpu_or_memory, [*spec.objects("containers"), *spec.objects("initContainers")])),
    )


def taints_of(spec: Fields) -> tuple[Taint, ...]:
    """Those of a node's `spec` that keep pods away, in order. Raises FieldError."""
    found = [
        Taint(taint.text("key") or "", taint.text("value") or "", taint.text("effect") or "")
        for taint in spec.objects("taints")
    ]
    return tuple(sorted({taint for taint in found if taint.effect in _HARD and taint.key not in _IN_RECORD}))


def scopes_of(spec: Fields) -> tuple[QuotaScope, ...] | None:
    """The scopes of a ResourceQuota; None if one is not known. Raises FieldError."""
    names = spec.values.get("scopes") or []
    found = [QuotaScope(str(name)) for name in (names if isinstance(names, list) else [names])]
    for each in spec.object("scopeSelector").objects("matchExpressions"):
        values = each.values.get("values") or []
        texts = tuple(map(str, values)) if isinstance(values, list) else ()
        found.append(QuotaScope(each.text("scopeName") or "", each.text("operator") or "", texts))
    usable = all(each.name in _SCOPES and each.operator in {"In", "NotIn", "Exists", "DoesNotExist"} for each in found)
    return tuple(found) if usable else None


def tolerates(traits: Iterable[PodTraits], taint: Taint, resource: str) -> bool:
    """Whether a pod with one of these traits tolerates a taint.

    resource: that it requests. Where the admission plugin ExtendedResourceToleration is on, the API server adds the
    toleration of a taint with that key to each pod, and no template has it.
    """
    return taint.key == resource or any(_matches(each, taint) for one in traits for each in one.tolerations)


def counts(scopes: Iterable[QuotaScope], traits: PodTraits) -> bool:
    """Whether a quota with these scopes counts a pod: all of them must match."""
    return all(_in_scope(scope, traits) for scope in scopes)


def _matches(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    # Other operators compare numbers (Kubernetes 1.35): such a pod may be tolerated, and is not limited.
    return toleration.operator != "Equal" or toleration.value == taint.value


def _in_scope(scope: QuotaScope, traits: PodTraits) -> bool:
    match scope.name:
        case "Terminating":
            return traits.deadline
        case "NotTerminating":
            return not traits.deadline
        case "BestEffort":
            return traits.best_effort
        case "NotBestEffort":
            return not traits.best_effort
    match scope.operator:
        case "In":
            return traits.priority_class in scope.values
        case "NotIn":
            return traits.priority_class not in scope.values
        case "Exists":
            return bool(traits.priority_class)
        case _:
            return not traits.priority_class


def _toleration(fields: Fields) -> Toleration:
    operator = fields.text("operator") or "Equal"
    return Toleration(fields.text("key") or "", operator, fields.text("value") or "", fields.text("effect") or "")


def _wants_cpu_or_memory(container: Fields) -> bool:
    resources = container.object("resources")
    amounts = [resources.object(name).values.get(what) for name in ("requests", "limits") for what in ("cpu", "memory")]
    return any(amount not in {None, "0", 0} for amount in amounts)
