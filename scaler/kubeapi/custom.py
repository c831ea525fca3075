"""custom.metrics.k8s.io: numbers of the objects that workloads scale, by the object's name. Pure.

Where several workloads scale one object (triggers of a ScaledObject), the largest number holds, as it does with KEDA;
one of them without an answer makes the answer an error, for it might be the largest. Numbers of single pods are not on
the Board: `pods` has those.

Worked example: `values(known, board, Asked("ai", "deployments.apps", "chat"), DEMAND, (), now)` is
`[Value(DEPLOYMENTS, "ai", "chat", Number(2.75, ...))]`.
"""

from __future__ import annotations

from typing import NamedTuple

from exporter.cluster.objects import Ref
from exporter.cluster.resources import (
    DEPLOYMENTS,
    INFERENCESERVICES,
    LEADERWORKERSETS,
    ROLLOUTS,
    SCALEDJOBS,
    STATEFULSETS,
    Resource,
)
from exporter.model import WorkloadKey

from ..board import Board
from ..config.bad_words import shown
from . import metrics
from .known import Known
from .metrics import METRICS, Number
from .selectors import Selector

ALL = "*"

# As discovery names them, and as clients ask: "deployments.apps".
SCALED = {
    str(resource): resource
    for resource in (DEPLOYMENTS, STATEFULSETS, LEADERWORKERSETS, ROLLOUTS, INFERENCESERVICES, SCALEDJOBS)
}


class Asked(NamedTuple):
    """resource: one of SCALED. name: of an object, or ALL."""

    namespace: str
    resource: str
    name: str


class Value(NamedTuple):
    resource: Resource
    namespace: str
    name: str
    number: Number


def values(known: Known, board: Board, asked: Asked, metric: str, selector: Selector, now: float) -> list[Value]:
    """Ordered by object. metric: one of METRICS. selector: of the workload's labels. Raises Refusal."""
    resource = SCALED[asked.resource]
    scalers = {
        ref: found
        for ref in _refs(known, asked.namespace, resource.kind, asked.name)
        if (found := metrics.selected(known.scalers.get(ref, ()), selector))
    }
    if not scalers:
        whose = f"{asked.resource} in namespace" if asked.name == ALL else f"{asked.resource} {shown(asked.name)} of"
        raise metrics.nobody(known, f"no workload of Tidegate scales {whose} {shown(asked.namespace)}")
    return [
        Value(resource, ref.namespace, ref.name, _largest(board, workloads, metric, now))
        for ref, workloads in scalers.items()
    ]


def _refs(known: Known, namespace: str, kind: str, name: str) -> list[Ref]:
    if name != ALL:
        return [Ref(namespace, kind, name)]
    return sorted(ref for ref in known.scalers if (ref.namespace, ref.kind) == (namespace, kind))


def _largest(board: Board, workloads: tuple[WorkloadKey, ...], metric: str, now: float) -> Number:
    return max(metrics.number(METRICS[metric], board, workload, now) for workload in workloads)
