"""What one workload's entry on the Board says for one metric: a number with its time, or an error. Never a made-up 0.

    tidegate-replicas   what the decision tells, held or fresh: 0 only when it is inactive; its replicas, rounded
                        outward past the HPA's tolerance where that would drop a step up
    tidegate-demand     the replicas that its objectives ask for, before rounding, bounds and hysteresis

The replicas of a held decision stand as decided (law 1). Its demand does not: that is a reading, and the readings are
what is missing. A workload that is only observed is an error to whoever asks, and so is one of which nothing is known.

Worked example: decided at 3 replicas because 11 requests at 4 per replica ask for 2.75: `replicas` is `Number(3, ...)`
and `demand` is `Number(2.75, ...)`.

custom.metrics.k8s.io: numbers of the objects that workloads scale, by the object's name. Pure.

Where several workloads scale one object (triggers of a ScaledObject), the largest number holds, as it does with KEDA;
one of them without an answer makes the answer an error, for it might be the largest. Numbers of single pods are not on
the Board: `pods` has those.

Worked example: `values(known, board, Asked("ai", "deployments.apps", "chat"), DEMAND, (), now)` is
`[Value(DEPLOYMENTS, "ai", "chat", Number(2.75, ...))]`.

external.metrics.k8s.io: the replicas of a namespace's workloads, chosen by label. Pure.

A HorizontalPodAutoscaler adds up what it gets, so a list of which one workload is missing would be too small: one that
is selected and has no answer makes the whole answer an error. So does a selector that chooses nobody: an empty list
reads as 0 to some.

Worked example: `values(known, board, "ai", parse("workload=chat"), now)` of a workload decided at 3 replicas is
`[Value({"workload": "chat"}, Number(3, ...))]`.

Which workloads can be asked about, and by which objects: the census, turned so that an answer is a look-up. Pure.

It is made once per census and never changes. `whole` is whether it is all there is: while the cluster's word is awaited
nobody can say that a workload does not exist.

Worked example: of a census in which `ai/chat` scales Deployment `ai/chat`, `workloads["ai"]` is `(ai/chat,)` and
`scalers[Ref("ai", "Deployment", "chat")]` is `(ai/chat,)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple, TypeAlias, TypeVar

from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import (
    DEPLOYMENTS,
    INFERENCESERVICES,
    LEADERWORKERSETS,
    ROLLOUTS,
    SCALEDJOBS,
    STATEFULSETS,
    Resource,
)
from exporter.model import WorkloadKey
from scaler.config.errors import shown
from scaler.model import Board, Decision
from scaler.workloads import Registry

from .errors import ApiError
from .selectors import Selector, matches

REPLICAS = "tidegate-replicas"
DEMAND = "tidegate-demand"

# Enough to find the culprit; all pods of a large workload would not fit into a condition of an HPA.
_STALE_SHOWN = 5


class Number(NamedTuple):
    """at: POSIX seconds of the oldest reading behind it, or of the decision where it rests on none."""

    value: float
    at: float


Metric: TypeAlias = Callable[[Decision, float], Number]


def replicas(decision: Decision, now: float) -> Number:
    """Raises Refusal."""
    if decision.told is None:
        raise _unknown(decision, now, "")
    return Number(decision.told, _measured_at(decision))


def demand(decision: Decision, now: float) -> Number:
    """Raises Refusal."""
    if decision.replicas is None or decision.held_since is not None:
        raise _unknown(decision, now, "demand is ")
    # The guard of the KV cache only ever adds; an engine whose page has none is sized by the others.
    asked = [each.replicas for each in decision.evidence.objectives if each.name != "kv_cache"]
    if not asked or None in asked:
        raise _unknown(decision, now, "demand is ")
    every = (each.replicas for each in decision.evidence.objectives)
    return Number(max(value for value in every if value is not None), _measured_at(decision))


METRICS: dict[str, Metric] = {REPLICAS: replicas, DEMAND: demand}


def number(metric: Metric, board: Board, workload: WorkloadKey, now: float) -> Number:
    """now: POSIX seconds, for the age in an error. Raises Refusal."""
    decision = board.get(workload)
    if decision is None:
        words = f"{workload}: nothing is decided yet; the first readings are awaited"
        raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, words)
    refuse_observed(decision)
    return metric(decision, now)


def refuse_observed(decision: Decision) -> None:
    """Raises Refusal."""
    if decision.observed:
        words = f"{decision.workload}: only observed (`mode: observe`): nobody is told its number"
        raise ApiError(HTTPStatus.FORBIDDEN, words)


def labels(workload: WorkloadKey) -> dict[str, str]:
    """What a metric's selector may ask for."""
    return {"workload": workload.label}


def selected(workloads: tuple[WorkloadKey, ...], selector: Selector) -> tuple[WorkloadKey, ...]:
    return tuple(workload for workload in workloads if matches(selector, labels(workload)))


def nobody(known: Known, words: str) -> ApiError:
    """Nothing is there to be asked for, as far as is known. words: what was looked for, and where."""
    if known.whole:
        return ApiError(HTTPStatus.NOT_FOUND, words)
    return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, f"{words}; but not all that the cluster says is known at present")


def _unknown(decision: Decision, now: float, what: str) -> ApiError:
    since = decision.held_since if decision.held_since is not None else decision.decided_at
    words = f"{decision.workload}: {what}unknown for {max(0.0, now - since):.0f} s ({decision.reason})"
    return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, words + nothing_fresh(decision.evidence.stale))


def nothing_fresh(stale: Sequence[str]) -> str:
    """How a sentence goes on that has to name stale sources, if there are any. stale: their URLs."""
    more = f" and {len(stale) - _STALE_SHOWN} more" if len(stale) > _STALE_SHOWN else ""
    return f"; nothing fresh from {', '.join(map(shown, stale[:_STALE_SHOWN]))}{more}" if stale else ""


def _measured_at(decision: Decision) -> float:
    return decision.decided_at if decision.measured_at is None else decision.measured_at


ALL = "*"

# As discovery names them, and as clients ask: "deployments.apps".
SCALED = {
    str(resource): resource
    for resource in (DEPLOYMENTS, STATEFULSETS, LEADERWORKERSETS, ROLLOUTS, INFERENCESERVICES, SCALEDJOBS)
}


class ObjectRequest(NamedTuple):
    """resource: one of SCALED. name: of an object, or ALL."""

    namespace: str
    resource: str
    name: str


class ObjectValue(NamedTuple):
    resource: Resource
    namespace: str
    name: str
    number: Number


def matching_object_values(
    known: Known, board: Board, asked: ObjectRequest, metric: str, selector: Selector, now: float
) -> list[ObjectValue]:
    """Ordered by object. metric: one of METRICS. selector: of the workload's labels. Raises Refusal."""
    resource = SCALED[asked.resource]
    scalers = {
        ref: found
        for ref in _refs(known, asked.namespace, resource.kind, asked.name)
        if (found := selected(known.scalers.get(ref, ()), selector))
    }
    if not scalers:
        whose = f"{asked.resource} in namespace" if asked.name == ALL else f"{asked.resource} {shown(asked.name)} of"
        raise nobody(known, f"no workload of Tidegate scales {whose} {shown(asked.namespace)}")
    return [
        ObjectValue(resource, ref.namespace, ref.name, _largest(board, workloads, metric, now))
        for ref, workloads in scalers.items()
    ]


def _refs(known: Known, namespace: str, kind: str, name: str) -> list[Ref]:
    if name != ALL:
        return [Ref(namespace, kind, name)]
    return sorted(ref for ref in known.scalers if (ref.namespace, ref.kind) == (namespace, kind))


def _largest(board: Board, workloads: tuple[WorkloadKey, ...], metric: str, now: float) -> Number:
    return max(number(METRICS[metric], board, workload, now) for workload in workloads)


class ExternalValue(NamedTuple):
    labels: dict[str, str]
    number: Number


def matching_external_values(
    known: Known, board: Board, namespace: str, selector: Selector, now: float
) -> list[ExternalValue]:
    """Ordered by workload. Raises Refusal."""
    found = selected(known.workloads.get(namespace, ()), selector)
    if not found:
        wanted = " that the selector chooses" if selector else ""
        words = (
            f"namespace {shown(namespace)} has no workload{wanted}. The selector is `matchLabels: {{workload: NAME}}`, "
            f"with a name of Tidegate's configuration or of an object with tidegate.dev/ annotations"
        )
        raise nobody(known, words)
    return [ExternalValue(labels(workload), number(replicas, board, workload, now)) for workload in found]


K = TypeVar("K")


class Known(NamedTuple):
    workloads: Mapping[str, tuple[WorkloadKey, ...]]
    scalers: Mapping[Ref, tuple[WorkloadKey, ...]]
    whole: bool


NOTHING = Known({}, {}, whole=False)


def known(census: Registry) -> Known:
    keys = sorted(workload.key for workload in census.workloads)
    targets = ((census.targets[key], key) for key in keys if key in census.targets)
    return Known(_grouped((key.namespace, key) for key in keys), _grouped(targets), whole=True)


def _grouped(pairs: Iterable[tuple[K, WorkloadKey]]) -> dict[K, tuple[WorkloadKey, ...]]:
    groups: dict[K, list[WorkloadKey]] = {}
    for group, key in pairs:
        groups.setdefault(group, []).append(key)
    return {group: tuple(keys) for group, keys in groups.items()}
