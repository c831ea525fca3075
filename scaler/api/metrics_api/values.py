"""Computes the values of the external and custom metrics from the Board: numbers with their time, or an error. Pure.

    tidegate-replicas   published replicas, held or fresh: 0 only if inactive; rounded outward past the HPA's tolerance
                        where the HPA would drop a step up
    tidegate-demand     replicas that the objectives ask for, before rounding, bounds and hysteresis

The replicas of a held decision are valid, its demand is not: demand is a reading, and readings are missing. A workload
that is only observed is an error, and so is an unknown one: never an invented 0.

An object that several workloads scale (triggers of a ScaledObject) has the largest of their numbers, as with KEDA. If
one of them is unknown the answer is an error, because it might be the largest. An HPA sums the values of an external
metric, so an error of one selected workload makes the whole answer an error. A selector that matches nothing is an
error too: some clients read an empty list as 0.

Worked example: a workload is decided at 3 replicas because 11 requests at 4 per replica ask for 2.75: `replicas` is
`Number(3, ...)`, `demand` is `Number(2.75, ...)`, and `matching_external_values(index, board, "ai",
parse("workload=chat"), now)` is `[ExternalValue({"workload": "chat"}, Number(3, ...))]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple, TypeAlias, TypeVar

from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import (
    DEPLOYMENTS,
    INFERENCESERVICES,
    INFERENCESETS,
    LEADERWORKERSETS,
    ROLLOUTS,
    SCALEDJOBS,
    STATEFULSETS,
    Resource,
)
from exporter.model import WorkloadKey
from scaler.config.errors import shown
from scaler.model import METRIC, Board, Decision, Reason
from scaler.workloads import Registry

from .errors import ApiError
from .selectors import Selector, matches

REPLICAS = METRIC
DEMAND = "tidegate-demand"

# All pods of a large workload would not fit into a condition of an HPA.
_STALE_SHOWN = 5
ALL = "*"
# By the name in discovery: "deployments.apps".
_SCALED = (DEPLOYMENTS, STATEFULSETS, LEADERWORKERSETS, ROLLOUTS, INFERENCESERVICES, INFERENCESETS, SCALEDJOBS)
SCALED = {str(resource): resource for resource in _SCALED}
K = TypeVar("K")


class Number(NamedTuple):
    """at: POSIX seconds of its oldest reading, or of the decision if it has none."""

    value: float
    at: float


Metric: TypeAlias = Callable[[Decision, float], Number]


def replicas(decision: Decision, now: float) -> Number:
    """Raises ApiError."""
    if decision.published is None:
        raise _unknown(decision, now, "")
    return Number(decision.published, _measured_at(decision))


def demand(decision: Decision, now: float) -> Number:
    """Raises ApiError."""
    if decision.replicas is None or decision.held_since is not None:
        raise _unknown(decision, now, "demand is ")
    # The KV cache objective only raises: an engine without that metric is sized by the others.
    required = [each.replicas for each in decision.evidence.objectives if each.name != "kv_cache"]
    if not required or None in required:
        raise _unknown(decision, now, "demand is ")
    every = (each.replicas for each in decision.evidence.objectives)
    return Number(max(value for value in every if value is not None), _measured_at(decision))


METRICS: dict[str, Metric] = {REPLICAS: replicas, DEMAND: demand}


def number(metric: Metric, board: Board, workload: WorkloadKey, now: float) -> Number:
    """now: POSIX seconds, for the age in an error. Raises ApiError."""
    decision = board.get(workload)
    if decision is None:
        raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, f"{workload}: no decision yet; waiting for readings")
    refuse_observed(decision)
    return metric(decision, now)


def refuse_observed(decision: Decision) -> None:
    """Raises ApiError."""
    if decision.observed:
        message = f"{decision.workload}: only observed (`mode: observe`): its number is not published"
        raise ApiError(HTTPStatus.FORBIDDEN, message)


def labels(workload: WorkloadKey) -> dict[str, str]:
    """The labels that a metric selector matches."""
    return {"workload": workload.label}


def selected(workloads: tuple[WorkloadKey, ...], selector: Selector) -> tuple[WorkloadKey, ...]:
    return tuple(workload for workload in workloads if matches(selector, labels(workload)))


def not_found(index: WorkloadIndex, message: str) -> ApiError:
    """Nothing matches. message: what was requested, and where."""
    if index.complete:
        return ApiError(HTTPStatus.NOT_FOUND, message)
    return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, f"{message}; but the cluster's data is not complete at present")


def _unknown(decision: Decision, now: float, what: str) -> ApiError:
    since = decision.held_since if decision.held_since is not None else decision.decided_at
    reason = "" if decision.reason is Reason.UNKNOWN else f" ({decision.reason})"
    message = f"{decision.workload}: {what}unknown for {max(0.0, now - since):.0f} s{reason}"
    why = nothing_fresh(decision.evidence.stale) or "; not enough readings"
    return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, message + why)


def nothing_fresh(stale: Sequence[str]) -> str:
    """A clause that names stale targets; empty if there are none. stale: their URLs."""
    more = f" and {len(stale) - _STALE_SHOWN} more" if len(stale) > _STALE_SHOWN else ""
    return f"; no fresh readings from {', '.join(map(shown, stale[:_STALE_SHOWN]))}{more}" if stale else ""


def _measured_at(decision: Decision) -> float:
    return decision.decided_at if decision.measured_at is None else decision.measured_at


class ObjectRequest(NamedTuple):
    """Objects that workloads scale. resource: one of SCALED. name: of an object, or ALL."""

    namespace: str
    resource: str
    name: str


class ObjectValue(NamedTuple):
    resource: Resource
    namespace: str
    name: str
    number: Number


def matching_object_values(
    index: WorkloadIndex, board: Board, request: ObjectRequest, metric: str, selector: Selector, now: float
) -> list[ObjectValue]:
    """Ordered by object. metric: one of METRICS. selector: of the workload's labels. Raises ApiError."""
    resource = SCALED[request.resource]
    scalers = {
        ref: found
        for ref in _refs(index, request.namespace, resource.kind, request.name)
        if (found := selected(index.scalers.get(ref, ()), selector))
    }
    if not scalers:
        name = "in namespace" if request.name == ALL else f"{shown(request.name)} of"
        raise not_found(index, f"no workload scales {request.resource} {name} {shown(request.namespace)}")
    return [
        ObjectValue(resource, ref.namespace, ref.name, _largest(board, workloads, metric, now))
        for ref, workloads in scalers.items()
    ]


def _refs(index: WorkloadIndex, namespace: str, kind: str, name: str) -> list[Ref]:
    if name != ALL:
        return [Ref(namespace, kind, name)]
    return sorted(ref for ref in index.scalers if (ref.namespace, ref.kind) == (namespace, kind))


def _largest(board: Board, workloads: tuple[WorkloadKey, ...], metric: str, now: float) -> Number:
    return max(number(METRICS[metric], board, workload, now) for workload in workloads)


class ExternalValue(NamedTuple):
    labels: dict[str, str]
    number: Number


def matching_external_values(
    index: WorkloadIndex, board: Board, namespace: str, selector: Selector, now: float
) -> list[ExternalValue]:
    """Ordered by workload. Raises ApiError."""
    found = selected(index.workloads.get(namespace, ()), selector)
    if not found:
        wanted = " that the selector matches" if selector else ""
        message = (
            f"namespace {shown(namespace)} has no workload{wanted}. The selector is `matchLabels: {{workload: NAME}}`, "
            f"with a name of Tidegate's configuration or of an object with tidegate.dev/ annotations"
        )
        raise not_found(index, message)
    return [ExternalValue(labels(workload), number(replicas, board, workload, now)) for workload in found]


class WorkloadIndex(NamedTuple):
    """Workloads by namespace and by the object that they scale, so that a request is a look-up.

    complete: whether the registry is current; if not, a workload that it lacks may exist.
    """

    workloads: Mapping[str, tuple[WorkloadKey, ...]]
    scalers: Mapping[Ref, tuple[WorkloadKey, ...]]
    complete: bool


NO_WORKLOADS = WorkloadIndex({}, {}, complete=False)


def index(registry: Registry) -> WorkloadIndex:
    keys = sorted(workload.key for workload in registry.workloads)
    targets = ((registry.targets[key], key) for key in keys if key in registry.targets)
    return WorkloadIndex(_grouped((key.namespace, key) for key in keys), _grouped(targets), complete=True)


def _grouped(pairs: Iterable[tuple[K, WorkloadKey]]) -> dict[K, tuple[WorkloadKey, ...]]:
    groups: dict[K, list[WorkloadKey]] = {}
    for group, key in pairs:
        groups.setdefault(group, []).append(key)
    return {group: tuple(keys) for group, keys in groups.items()}
