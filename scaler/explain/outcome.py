"""Computes the controller outcome: what KEDA and the HPA will do with each workload's number, and why not. Pure.

Obstacles come first: nothing is published, nothing acts on it, it is paused or broken. Then KEDA, between zero and one;
then the HPA. Further sentences say what else matters.

Worked example: `ClusterView(lambda: board, lambda: registry, cluster, clock.now).of(WorkloadKey("ai", "chat"))` has
the code `up` and the sentence "in at most 15 s ...".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Condition, Hpa, HpaMetricSpec, Pod, Ref, ScaledObject
from exporter.model import WorkloadKey, printable
from scaler.config import Workload
from scaler.model import Board, Decision
from scaler.workloads import Registry

from .outcome_controllers import PublishedReplicas, hpa_outcome, keda_outcome, tolerances
from .outcome_inputs import ControllerOutcome, Facts, OutcomeCode, Shown, of_hpa, of_hpa_to_be, of_scaled, shown, survey
from .rows import Placement

TITLE = "What KEDA and the HPA do"
# KEDA's name for a formula over all triggers (scalingModifiers), which may use our number.
_FORMULA = "composite-metric"
# In these cases a controller reports for good reason that it cannot scale.
_EXPLAINED = (OutcomeCode.PAUSED, OutcomeCode.OBSERVED, OutcomeCode.UNKNOWN, OutcomeCode.FALLBACK)
_NO_TARGET = Ref("", "", "")


class OutcomeRow(NamedTuple):
    """One workload, the objects that act on its number, and the outcome."""

    decision: Decision
    facts: Facts
    outcome: ControllerOutcome


@dataclass(slots=True)
class ClusterView:
    """Computes outcomes from the current Board, registry and cluster. now: POSIX seconds."""

    board: Callable[[], Board]
    registry: Callable[[], Registry]
    cluster: Cluster | None
    now: Callable[[], float]
    _still: Mapping[WorkloadKey, OutcomeRow] = field(default_factory=dict)

    def all(self) -> Callable[[], list[OutcomeRow]]:
        """Copies the cluster. What it returns computes every workload of the Board, for 10,000 in a second, and may run
        in a thread. Rows that neither changed nor depend on time are reused, so ages in their sentences may be older.
        """
        now, board, registry, cluster = self.now(), self.board(), self.registry(), shown(self.cluster, self.now())

        def rows() -> list[OutcomeRow]:
            computed = [self._row(*each, now) for each in _around(board, registry, registry.workloads, cluster)]
            self._still = {each.decision.workload: each for each in computed if _is_still(each.outcome)}
            return computed

        return rows

    def placements(self) -> dict[WorkloadKey, Placement]:
        """What each workload scales, and where its pods run."""
        now, cluster = self.now(), self.cluster
        if cluster is None:
            return {}
        return {
            key: Placement(target, _nodes(cluster.pods_of(target, now)))
            for key, target in self.registry().targets.items()
        }

    def _row(self, decision: Decision, facts: Facts, mates: Sequence[Decision], now: float) -> OutcomeRow:
        before = self._still.get(decision.workload)
        if before is not None and before.decision is decision and before.facts == facts and not mates:
            return before
        return OutcomeRow(decision, facts, controller_outcome(decision, facts, now, mates))

    def of(self, workload: WorkloadKey) -> ControllerOutcome | None:
        """None without such a workload or without a decision."""
        now, registry = self.now(), self.registry()
        target = registry.targets.get(workload)
        related = [
            each
            for each in registry.workloads
            if each.key == workload or registry.targets.get(each.key, _NO_TARGET) == target
        ]
        for decision, facts, mates in _around(self.board(), registry, related, shown(self.cluster, now)):
            if decision.workload == workload:
                return controller_outcome(decision, facts, now, mates)
        return None


def _nodes(pods: Sequence[Pod] | None) -> tuple[str, ...] | None:
    return None if pods is None else tuple(sorted({pod.node for pod in pods if pod.node is not None}))


def controller_step(outcome: ControllerOutcome) -> dict[str, Any]:
    """The document of a step of the explanation."""
    rows = [[round(act.within_s), act.replicas, act.why] for act in outcome.acts]
    table = {"columns": ["within s", "replicas", "why"], "rows": rows} if rows else None
    sentences = [f"{outcome.code}: {outcome.sentences[0]}", *outcome.sentences[1:]]
    return {"step": "controller", "title": TITLE, "sentences": sentences, "table": table}


def _is_still(outcome: ControllerOutcome) -> bool:
    """Whether time alone changes nothing."""
    return not outcome.acts and outcome.code is not OutcomeCode.STABILISED


def _around(
    board: Board, registry: Registry, workloads: Iterable[Workload], cluster: Shown | None
) -> Iterator[tuple[Decision, Facts, Sequence[Decision]]]:
    """For each workload its decision, its facts, and the decisions of others with the same target."""
    facts = survey(workloads, registry, cluster)
    decided = {key: decision for key, decision in board.decisions.items() if key in facts}
    by_target: dict[Ref, list[Decision]] = {}
    for key, decision in decided.items():
        target = facts[key].target
        if target is not None:
            by_target.setdefault(target, []).append(decision)
    for key, decision in decided.items():
        target = facts[key].target
        mates = [] if target is None else [each for each in by_target[target] if each is not decision]
        yield decision, facts[key], mates


def controller_outcome(
    decision: Decision, facts: Facts, now: float, mates: Sequence[Decision] = ()
) -> ControllerOutcome:
    """now: POSIX seconds. mates: the decisions of other workloads with the same target."""
    outcome = (
        _observed(decision)
        or _unattended(facts)
        or _unknown(decision, facts)
        or _acting(decision, facts, now, [each for each in mates if not each.observed])
    )
    errors = tuple(_errors(facts))
    asides = tuple(_asides(facts, outcome, mates, now))
    if not errors or outcome.code in _EXPLAINED:
        return replace(outcome, sentences=(*outcome.sentences, *errors, *asides))
    return replace(outcome, code=OutcomeCode.CONTROLLER_ERROR, sentences=(*errors, *outcome.sentences, *asides))


def _of(code: OutcomeCode, sentence: str) -> ControllerOutcome:
    return ControllerOutcome(code, (sentence,))


def _observed(decision: Decision) -> ControllerOutcome | None:
    if not decision.observed:
        return None
    return _of(
        OutcomeCode.OBSERVED, "nothing: the workload is only observed (`mode: observe`), and callers get an error"
    )


def _unattended(facts: Facts) -> ControllerOutcome | None:
    """The outcome if nothing acts on the number, or that is unknown."""
    if not facts.watched:
        return _of(OutcomeCode.UNKNOWN_SCALER, "unknown: no Kubernetes API is configured (`kubernetes`)")
    if facts.target is None:
        return _of(OutcomeCode.UNKNOWN_SCALER, "unknown: no ScaledObject defines its target, nor does `pods.target`")
    if facts.target.kind == "ScaledJob":
        return _of(OutcomeCode.JOBS, "KEDA makes Jobs of the number, by the ScaledJob's scalingStrategy")
    if len(facts.hpas) > 1:
        names = ", ".join(each.ref.name for each in facts.hpas)
        return _of(OutcomeCode.TWO_HPAS, f"nothing: {names} all target {facts.target}, and Kubernetes follows none")
    if facts.scaled is None and not facts.hpas:
        if not (facts.hpas_complete and facts.scaled_complete):
            return _of(
                OutcomeCode.UNKNOWN_SCALER, "unknown: HPAs or ScaledObjects are unreadable (RBAC, or no API server)"
            )
        return _of(OutcomeCode.NO_SCALER, f"nothing: no ScaledObject and no HPA targets {facts.target}")
    if facts.scaled is not None and not facts.speaks:
        return _of(OutcomeCode.OTHER_METRICS, f"nothing: {facts.scaled.ref} has no trigger for this workload")
    return None


def _unknown(decision: Decision, facts: Facts) -> ControllerOutcome | None:
    if decision.published is not None:
        return None
    fallback = None if facts.scaled is None else of_scaled(facts.scaled).fallback
    if fallback is None:
        keep = "the HPA changes" if facts.scaled is None else "KEDA and the HPA change"
        return _of(OutcomeCode.UNKNOWN, f"nothing: callers get an error, and {keep} nothing")
    return _of(
        OutcomeCode.FALLBACK,
        f"after more than {fallback.failure_threshold} failed reads in a row KEDA uses its fallback, "
        f"{fallback.replicas} replicas, and wakes a workload at zero",
    )


def _acting(decision: Decision, facts: Facts, now: float, mates: Sequence[Decision]) -> ControllerOutcome:
    current = _current(decision, facts)
    if current is None:
        return _of(OutcomeCode.UNKNOWN_SCALER, f"unknown: spec.replicas of {facts.target} cannot be read")
    if facts.scaled is not None:
        active = decision.active or any(each.active for each in mates)
        outcome = keda_outcome(facts.scaled, active=active, current=current, now=now)
        if outcome is not None:
            return outcome
    if current == 0:
        return _at_zero(decision)
    return _hpa(decision, facts, current, now, mates)


def _current(decision: Decision, facts: Facts) -> int | None:
    if facts.current is not None:
        return facts.current
    if decision.evidence.replicas_wanted is not None:
        return decision.evidence.replicas_wanted
    return facts.hpa.status.current if facts.hpa is not None and facts.hpa.status is not None else None


def _at_zero(decision: Decision) -> ControllerOutcome:
    if not decision.active:
        return _of(OutcomeCode.ASLEEP, "nothing: at zero and inactive")
    sentence = "nothing: an HPA ignores a target at 0 replicas, and there is no ScaledObject; scale it to 1 by hand"
    return _of(OutcomeCode.NO_WAKE_SOURCE, sentence)


def _hpa(decision: Decision, facts: Facts, current: int, now: float, mates: Sequence[Decision]) -> ControllerOutcome:
    found, scaled = facts.hpa, facts.scaled
    if found is None and facts.hpas_complete:
        sentence = "nothing from 1 to many: KEDA has created no HPA for it; see the conditions of the ScaledObject"
        return _of(OutcomeCode.NO_HPA, sentence)
    ours = () if found is None else _ours(found)
    if found is not None and found.metrics is not None and not ours:
        by = ", ".join(each.name or each.type for each in found.metrics) or "nothing"
        return _of(OutcomeCode.OTHER_METRICS, f"nothing: {found.ref.name} scales by {by}, and not by tidegate-replicas")
    if found is not None:
        spec = of_hpa(found, facts.tolerance)
    else:
        assert scaled is not None  # noqa: S101 - one of the two is there: see `_unattended`
        spec = of_hpa_to_be(scaled, facts.tolerance)
    published = PublishedReplicas(
        decided=decision.replicas or 0,
        number=decision.published or 0,
        since=decision.decided_at,
        tolerance=tolerances(spec)[1],
        late_s=_late_s(scaled),
        mates=tuple(each.published for each in mates if each.published is not None),
        ready=(decision.evidence.replicas_ready or 0) if ours and ours[0].target == "Value" else None,
        most=_allowed(decision),
    )
    scaled_at = None if found is None or found.status is None else found.status.scaled_at
    return hpa_outcome(spec, published, current, now, scaled_at)


def _allowed(decision: Decision) -> float:
    """The limit of rounding outward: a schedule's ceiling, unless a floor needs as many; see `past_band`."""
    floor, ceiling = decision.evidence.schedule_floor, decision.evidence.schedule_ceiling
    return inf if ceiling is None or (floor is not None and (decision.replicas or 0) <= floor) else ceiling


def _late_s(scaled: ScaledObject | None) -> float:
    """The age of the number that the HPA reads: with useCachedMetrics up to KEDA's polling interval."""
    if scaled is None or not any(trigger.cached for trigger in scaled.triggers):
        return 0.0
    return of_scaled(scaled).polling_interval_s


def _ours(found: Hpa) -> list[HpaMetricSpec]:
    """Tidegate's metrics of an HPA. Adapters may write them with underscores."""
    names = [(metric, metric.name.replace("_", "-")) for metric in found.metrics or ()]
    return [metric for metric, name in names if "tidegate" in name or name.endswith(_FORMULA)]


def _errors(facts: Facts) -> Iterator[str]:
    """The errors that the controllers report. At zero an HPA is not active, which is no error."""
    if facts.hpa is not None and facts.hpa.status is not None:
        for each in facts.hpa.status.conditions:
            broken = each.type in ("ScalingActive", "AbleToScale") and each.status == "False"
            if broken and each.reason != "ScalingDisabled":
                yield _condition(f"the HPA {facts.hpa.ref.name}", each)
    if facts.scaled is not None and facts.scaled.status is not None:
        for each in facts.scaled.status.conditions:
            if each.type == "Ready" and each.status == "False":
                yield _condition(f"the ScaledObject {facts.scaled.ref.name}", each)


def no_node(pod: Pod) -> str:
    """Quotes the scheduler."""
    why = f": {printable(pod.unscheduled_why)}" if pod.unscheduled_why else ""
    return f"pod {pod.key.pod} waits for a node{why}"


def _condition(name: str, condition: Condition) -> str:
    return f"{name} reports {condition.type}={condition.status} {condition.reason}: {condition.message}".rstrip(": ")


def _asides(facts: Facts, outcome: ControllerOutcome, mates: Sequence[Decision], now: float) -> Iterator[str]:
    """Further conditions that matter."""
    if facts.unscheduled is not None:
        yield no_node(facts.unscheduled)
    if mates:
        yield f"{len(mates) + 1} workloads scale {facts.target}: the largest number counts"
    if facts.scaled is not None:
        yield from _of_scaled(facts.scaled)
    found = facts.hpa
    if found is None:
        if facts.scaled is not None and not facts.hpas_complete:
            yield "its HPA cannot be read: this is for the one that KEDA makes of the ScaledObject"
        return
    foreign = len(found.metrics or ()) - len(_ours(found))
    if foreign > 0 and outcome.code is not OutcomeCode.OTHER_METRICS:
        yield f"{foreign} of the metrics of {found.ref.name} are not Tidegate's: the largest number counts"
    yield from _of_hpa(found, now)


def _of_scaled(scaled: ScaledObject) -> Iterator[str]:
    foreign = sum(trigger.type not in ("external", "external-push") for trigger in scaled.triggers)
    if foreign:
        yield f"{foreign} triggers of {scaled.ref.name} are not Tidegate's: while one is active it does not go to zero"
    pauses = None if scaled.pace is None else scaled.pace.pauses
    if pauses is not None and (pauses.scale_in or pauses.scale_out):
        ways = [word for word, is_set in (("in", pauses.scale_in), ("out", pauses.scale_out)) if is_set]
        held = " and ".join(f"autoscaling.keda.sh/paused-scale-{way}" for way in ways)
        yield f"{held} of {scaled.ref.name}: KEDA sets selectPolicy: Disabled in its HPA meanwhile"
    for each in scaled.status.conditions if scaled.status is not None else ():
        if each.type == "Fallback" and each.status == "True":
            yield _condition(f"the ScaledObject {scaled.ref.name}", each)


def _of_hpa(found: Hpa, now: float) -> Iterator[str]:
    status = found.status
    if status is None:
        return
    bounds = f"{found.ref.name} keeps {found.minimum} to {found.maximum} replicas"
    if status.desired is None:
        yield f"{bounds}, and has no desired number yet"
        return
    ago = "" if status.scaled_at is None else f"; it scaled {max(0.0, now - status.scaled_at):.0f} s ago"
    found_current = "" if status.current is None else f" counted {status.current} and"
    yield f"{bounds}; last it{found_current} wanted {status.desired}{ago}"
