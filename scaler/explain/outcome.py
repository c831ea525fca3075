"""The outlook of one workload: who acts on its number, and what they will do.

What stands in the way is said first: nobody may ask, nobody is there, somebody has paused it, something is broken. Then
KEDA, between nothing and something; then the HPA. Besides the answer the sentences say what else holds.

The outlook as a step of `explain`, and of every workload for /metrics.

Worked example: `View(lambda: board, lambda: census, cluster, clock.now).step(WorkloadKey("ai", "chat"))` is `{"step":
"controller", "title": "What KEDA and the HPA do with it", "sentences": ["up: in at most 15 s ..."], "table": ...}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Condition, Hpa, HpaMetricSpec, Ref, ScaledObject
from exporter.model import WorkloadKey
from scaler.config import Workload
from scaler.model import Board, Decision
from scaler.workloads import Registry

from . import outcome_controllers
from .outcome_inputs import ControllerOutcome, Facts, OutcomeCode, Shown, of_hpa, of_hpa_to_be, of_scaled, shown, survey

# KEDA calls a formula over all triggers so (scalingModifiers): it may well have our number in it.
_FORMULA = "composite-metric"


def outlook(decision: Decision, facts: Facts, now: float, others: Sequence[Decision] = ()) -> ControllerOutcome:
    """What will become of what a decision tells. now: POSIX seconds.

    others: the decisions of other workloads that scale the same.
    """
    answer = (
        _nobody_may(decision)
        or _nobody_there(facts)
        or _unknown(decision, facts)
        or _acting(decision, facts, now, [each for each in others if not each.observed])
    )
    troubles = tuple(_troubles(facts))
    asides = tuple(_asides(facts, answer, others, now))
    if not troubles or answer.code in _EXPLAINED:
        return replace(answer, sentences=(*answer.sentences, *troubles, *asides))
    return replace(answer, code=OutcomeCode.CONTROLLER_ERROR, sentences=(*troubles, *answer.sentences, *asides))


# Where these hold, it is no wonder that a controller says it cannot scale.
_EXPLAINED = (OutcomeCode.PAUSED, OutcomeCode.OBSERVED, OutcomeCode.UNKNOWN, OutcomeCode.FALLBACK)


def _nobody_may(decision: Decision) -> ControllerOutcome | None:
    if not decision.observed:
        return None
    words = "nothing: the workload is only observed (`mode: observe`), and whoever asks for its number gets an error"
    return ControllerOutcome(OutcomeCode.OBSERVED, (words,))


def _nobody_there(facts: Facts) -> ControllerOutcome | None:
    if not facts.asked:
        words = "who acts on the number is not seen: no Kubernetes API is asked (`kubernetes` is not configured)"
        return ControllerOutcome(OutcomeCode.UNSEEN, (words,))
    if facts.target is None:
        words = "what the workload scales is not known: no ScaledObject names it, nor its `pods.target`"
        return ControllerOutcome(OutcomeCode.UNSEEN, (words,))
    if facts.target.kind == "ScaledJob":
        return ControllerOutcome(
            OutcomeCode.JOBS, ("KEDA makes Jobs of the number, by the ScaledJob's scalingStrategy",)
        )
    if len(facts.hpas) > 1:
        names = ", ".join(each.ref.name for each in facts.hpas)
        return ControllerOutcome(
            OutcomeCode.TWO_HPAS, (f"nothing: {names} all name {facts.target}, and Kubernetes then obeys none",)
        )
    if facts.scaled is None and not facts.hpas:
        if not (facts.hpas_known and facts.scaled_known):
            words = "who acts on the number is not seen: HPAs or ScaledObjects are not known (RBAC, or the API is away)"
            return ControllerOutcome(OutcomeCode.UNSEEN, (words,))
        return ControllerOutcome(OutcomeCode.NO_SCALER, (f"nothing: no ScaledObject and no HPA names {facts.target}",))
    if facts.scaled is not None and not facts.speaks:
        words = f"nothing: {facts.scaled.ref} scales it, and no trigger of that asks for this workload"
        return ControllerOutcome(OutcomeCode.NOT_ASKED, (words,))
    return None


def _unknown(decision: Decision, facts: Facts) -> ControllerOutcome | None:
    if decision.told is not None:
        return None
    fallback = None if facts.scaled is None else of_scaled(facts.scaled).fallback
    if fallback is None:
        who = "the HPA keeps" if facts.scaled is None else "KEDA and the HPA keep"
        return ControllerOutcome(
            OutcomeCode.UNKNOWN, (f"nothing: whoever asks gets an error, and {who} what there is",)
        )
    words = (
        f"after more than {fallback.failure_threshold} failed reads in a row KEDA takes its fallback, "
        f"{fallback.replicas} replicas, for the number, and wakes what sleeps"
    )
    return ControllerOutcome(OutcomeCode.FALLBACK, (words,))


def _acting(decision: Decision, facts: Facts, now: float, others: Sequence[Decision]) -> ControllerOutcome:
    current = _current(decision, facts)
    if current is None:
        return ControllerOutcome(
            OutcomeCode.UNSEEN, (f"how many replicas {facts.target} has been told to run is not known",)
        )
    if facts.scaled is not None:
        active = decision.active or any(each.active for each in others)
        ordered = outcome_controllers.keda_outcome(facts.scaled, active=active, current=current, now=now)
        if ordered is not None:
            return ordered
    if current == 0:
        return _at_zero(decision)
    return _hpa(decision, facts, current, now, others)


def _current(decision: Decision, facts: Facts) -> int | None:
    if facts.current is not None:
        return facts.current
    if decision.evidence.replicas_wanted is not None:
        return decision.evidence.replicas_wanted
    return facts.hpa.status.current if facts.hpa is not None and facts.hpa.status is not None else None


def _at_zero(decision: Decision) -> ControllerOutcome:
    if not decision.active:
        return ControllerOutcome(OutcomeCode.ASLEEP, ("nothing: it is at zero, and inactive",))
    words = "nothing: an HPA does nothing at 0 replicas, and without KEDA nobody takes it up; scale it to 1 by hand"
    return ControllerOutcome(OutcomeCode.NO_WAKER, (words,))


def _hpa(decision: Decision, facts: Facts, current: int, now: float, others: Sequence[Decision]) -> ControllerOutcome:
    found, scaled = facts.hpa, facts.scaled
    if found is None and facts.hpas_known:
        words = "nothing from 1 to many: KEDA has made no HPA for it; see the conditions of the ScaledObject"
        return ControllerOutcome(OutcomeCode.NO_HPA, (words,))
    ours = () if found is None else _ours(found)
    if found is not None and found.metrics is not None and not ours:
        by = ", ".join(each.name or each.type for each in found.metrics) or "nothing"
        return ControllerOutcome(
            OutcomeCode.NOT_ASKED, (f"nothing: {found.ref.name} scales by {by}, and not by tidegate-replicas",)
        )
    if found is not None:
        spec = of_hpa(found, facts.tolerance)
    else:
        assert scaled is not None  # noqa: S101 - one of the two is there: see `_nobody_there`
        spec = of_hpa_to_be(scaled, facts.tolerance)
    told = outcome_controllers.PublishedReplicas(
        replicas=decision.replicas or 0,
        told=decision.told or 0,
        since=decision.decided_at,
        tolerance=outcome_controllers.tolerances(spec)[1],
        late_s=_late_s(scaled),
        others=tuple(each.told for each in others if each.told is not None),
        ready=(decision.evidence.replicas_ready or 0) if ours and ours[0].target == "Value" else None,
        most=_allowed(decision),
    )
    scaled_at = None if found is None or found.status is None else found.status.scaled_at
    return outcome_controllers.hpa_outcome(spec, told, current, now, scaled_at)


def _allowed(decision: Decision) -> float:
    """Past which nobody rounds: a schedule's ceiling, unless a floor asks for as many; `past_band` says why."""
    floor, ceiling = decision.evidence.schedule_floor, decision.evidence.schedule_ceiling
    return inf if ceiling is None or (floor is not None and (decision.replicas or 0) <= floor) else ceiling


def _late_s(scaled: ScaledObject | None) -> float:
    """How old what the HPA hears may be: with useCachedMetrics as old as KEDA's last poll."""
    if scaled is None or not any(trigger.cached for trigger in scaled.triggers):
        return 0.0
    return of_scaled(scaled).polling_interval_s


def _ours(found: Hpa) -> list[HpaMetricSpec]:
    """The metrics by which an HPA asks for a number of ours. Adapters may write them with underscores."""
    names = [(metric, metric.name.replace("_", "-")) for metric in found.metrics or ()]
    return [metric for metric, name in names if "tidegate" in name or name.endswith(_FORMULA)]


def _troubles(facts: Facts) -> Iterator[str]:
    """What the controllers themselves say they cannot do. At zero an HPA is not active, and that is as it should be."""
    if facts.hpa is not None and facts.hpa.status is not None:
        for each in facts.hpa.status.conditions:
            broken = each.type in ("ScalingActive", "AbleToScale") and each.status == "False"
            if broken and each.reason != "ScalingDisabled":
                yield _says(f"the HPA {facts.hpa.ref.name}", each)
    if facts.scaled is not None and facts.scaled.status is not None:
        for each in facts.scaled.status.conditions:
            if each.type == "Ready" and each.status == "False":
                yield _says(f"the ScaledObject {facts.scaled.ref.name}", each)


def _says(who: str, condition: Condition) -> str:
    return f"{who} says {condition.type}={condition.status} {condition.reason}: {condition.message}".rstrip(": ")


def _asides(facts: Facts, answer: ControllerOutcome, others: Sequence[Decision], now: float) -> Iterator[str]:
    """What else holds."""
    if others:
        yield f"{len(others) + 1} workloads scale {facts.target}: the largest number holds"
    if facts.scaled is not None:
        yield from _of_scaled(facts.scaled)
    found = facts.hpa
    if found is None:
        if facts.scaled is not None and not facts.hpas_known:
            yield "its HPA is not seen: this reckons with the one that KEDA makes of the ScaledObject"
        return
    foreign = len(found.metrics or ()) - len(_ours(found))
    if foreign > 0 and answer.code is not OutcomeCode.NOT_ASKED:
        yield f"{foreign} of the metrics of {found.ref.name} are not Tidegate's: if one asks for more, that holds"
    yield from _of_hpa(found, now)


def _of_scaled(scaled: ScaledObject) -> Iterator[str]:
    foreign = sum(trigger.type not in ("external", "external-push") for trigger in scaled.triggers)
    if foreign:
        yield f"{foreign} triggers of {scaled.ref.name} are not Tidegate's: while one is active it does not sleep"
    pauses = None if scaled.pace is None else scaled.pace.pauses
    if pauses is not None and (pauses.scale_in or pauses.scale_out):
        ways = [word for word, is_set in (("in", pauses.scale_in), ("out", pauses.scale_out)) if is_set]
        held = " and ".join(f"autoscaling.keda.sh/paused-scale-{way}" for way in ways)
        yield f"{held} of {scaled.ref.name}: KEDA writes selectPolicy: Disabled into its HPA for as long"
    for each in scaled.status.conditions if scaled.status is not None else ():
        if each.type == "Fallback" and each.status == "True":
            yield _says(f"the ScaledObject {scaled.ref.name}", each)


def _of_hpa(found: Hpa, now: float) -> Iterator[str]:
    status = found.status
    if status is None:
        return
    bounds = f"{found.ref.name} keeps {found.minimum} to {found.maximum} replicas"
    if status.desired is None:
        yield f"{bounds}, and has not yet said how many it wants"
        return
    ago = "" if status.scaled_at is None else f"; it scaled {max(0.0, now - status.scaled_at):.0f} s ago"
    seen = "" if status.current is None else f" saw {status.current} and"
    yield f"{bounds}; last it{seen} wanted {status.desired}{ago}"


_NONE = Ref("", "", "")  # what nothing scales
TITLE = "What KEDA and the HPA do with it"


class OutcomeRow(NamedTuple):
    """One workload, who acts on its number, and what they will do."""

    decision: Decision
    facts: Facts
    outlook: ControllerOutcome


def controller_step(found: ControllerOutcome) -> dict[str, Any]:
    """A step of explain's chain."""
    rows = [[round(act.within_s), act.replicas, act.why] for act in found.acts]
    table = {"columns": ["within s", "replicas", "why"], "rows": rows} if rows else None
    sentences = [f"{found.code}: {found.sentences[0]}", *found.sentences[1:]]
    return {"step": "controller", "title": TITLE, "sentences": sentences, "table": table}


@dataclass(slots=True)
class ClusterView:
    """Of a daemon's Board, census and cluster, as they are when something is asked. now: POSIX seconds."""

    board: Callable[[], Board]
    census: Callable[[], Registry]
    cluster: Cluster | None
    now: Callable[[], float]
    _still: Mapping[WorkloadKey, OutcomeRow] = field(default_factory=dict)

    def all(self) -> Callable[[], list[OutcomeRow]]:
        """Every workload on the Board, as of now; it is worked out when that is called, which may be in a thread: ten
        thousand workloads take a second. Of those about whom nothing has changed, and whom time does not change, ages
        in the sentences may be those of an earlier call: most of a fleet, most of the time.
        """
        now, board, census, cluster = self.now(), self.board(), self.census(), shown(self.cluster, self.now())

        def seen() -> list[OutcomeRow]:
            around = _around(board, census, census.workloads, cluster)
            found = [self._seen(*each, now) for each in around]
            self._still = {each.decision.workload: each for each in found if _is_still(each.outlook)}
            return found

        return seen

    def _seen(self, decision: Decision, facts: Facts, others: Sequence[Decision], now: float) -> OutcomeRow:
        before = self._still.get(decision.workload)
        if before is not None and before.decision is decision and before.facts == facts and not others:
            return before
        return OutcomeRow(decision, facts, outlook(decision, facts, now, others))

    def step(self, workload: WorkloadKey) -> dict[str, Any] | None:
        """The last step of a workload's explanation. None: there is no such workload, or nothing is decided of it."""
        now, census = self.now(), self.census()
        target = census.targets.get(workload)
        mates = [
            each for each in census.workloads if each.key == workload or census.targets.get(each.key, _NONE) == target
        ]
        for decision, facts, others in _around(self.board(), census, mates, shown(self.cluster, now)):
            if decision.workload == workload:
                return controller_step(outlook(decision, facts, now, others))
        return None


def _is_still(found: ControllerOutcome) -> bool:
    """It waits for nothing that time alone brings."""
    return not found.acts and found.code is not OutcomeCode.STABILISED


def _around(
    board: Board, census: Registry, workloads: Iterable[Workload], cluster: Shown | None
) -> Iterator[tuple[Decision, Facts, Sequence[Decision]]]:
    """The decision of each of these, who acts on it, and what else is decided for what it scales."""
    facts = survey(workloads, census, cluster)
    decided = {key: decision for key, decision in board.decisions.items() if key in facts}
    mates: dict[Ref, list[Decision]] = {}
    for key, decision in decided.items():
        target = facts[key].target
        if target is not None:
            mates.setdefault(target, []).append(decision)
    for key, decision in decided.items():
        target = facts[key].target
        others = [] if target is None else [each for each in mates[target] if each is not decision]
        yield decision, facts[key], others
