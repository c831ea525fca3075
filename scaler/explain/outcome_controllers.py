"""Predicts what the HPA and KEDA do with a published number, by the arithmetic of `scaler.controllers`. Pure.

From one replica to many it is the HPA. Its past recommendations, and how much of a policy's period is spent, are not
visible: the prediction assumes that before the number became what it is, the published number was the present one. So
"at most" is a bound, and it may be sooner. Between zero and one it is KEDA, whose `lastActiveTime` is visible.

Worked example: 2 are published since 100 s where 4 exist, and the window downwards is 300 s: `stabilised`, "waits for
its 300 s stabilization window: in at most 215 s it sets 2". 200 s are left of the window, 15 s until the sync after
it. Inactive since 100 s with a cooldownPeriod of 300 s and polls every 30 s: `cooling_down`, "in at most 230 s KEDA
sets 0: its cooldownPeriod of 300 s began when a trigger was last active".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from exporter.kubernetes.objects import ScaledObject
from scaler.controllers import keda
from scaler.controllers.hpa import (
    HpaMemory,
    HpaMetric,
    HpaSpec,
    HpaStep,
    Limit,
    Select,
    TimedReplicas,
    WholeMetric,
    past_band,
    step,
)
from scaler.controllers.keda import KedaMemory, Poll, PollResult

from .outcome_inputs import SYNC_S, Act, ControllerOutcome, OutcomeCode, of_scaled

# Half an hour of syncs that each change something: later ones cannot be predicted.
_MOST_SYNCS = 120
# Versions differ on a recommendation that is exactly as old as the window.
_PAST_S = 0.001


class PublishedReplicas(NamedTuple):
    """The number that an HPA reads.

    decided:   replicas of the decision. number: published ones. since: POSIX seconds when the number became so.
    tolerance: the HPA's for going up, a ratio.
    late_s:    seconds until the HPA reads it, at most.
    mates:     published numbers of other workloads with the same target.
    ready:     None if the metric is an AverageValue, else the ready pods, by which a Value is multiplied.
    most:      replicas that a schedule allows.
    """

    decided: int
    number: int
    since: float
    tolerance: float
    late_s: float = 0.0
    mates: tuple[int, ...] = ()
    ready: int | None = None
    most: float = math.inf

    @property
    def largest(self) -> int:
        """The HPA follows the largest."""
        return max((self.number, *self.mates))


def hpa_outcome(
    spec: HpaSpec, published: PublishedReplicas, current: int, now: float, scaled_at: float | None = None
) -> ControllerOutcome:
    """current: existing replicas, at least 1. now, scaled_at: POSIX seconds; when the HPA scaled last."""
    unchanged = published.largest == current and not published.mates and published.ready is None
    if unchanged and spec.min_replicas <= current <= spec.max_replicas:
        return ControllerOutcome(OutcomeCode.SETTLED, (_settled(current),))  # most of a fleet, most of the time
    memory = HpaMemory(recommended=(TimedReplicas(published.since, current),))
    first, _ = step(spec, memory, _metrics(published, published.number), current, current, now)
    acts = _acts(spec, published, memory, first, current, now)
    code = _code(spec, first, current, up=published.largest > current)
    sentence = _SENTENCES[code](spec, published, first, current, acts)
    return ControllerOutcome(code, (sentence, *_hidden_state(spec, code, acts, current, now, scaled_at)), acts)


def _hidden_state(
    spec: HpaSpec, code: OutcomeCode, acts: Sequence[Act], current: int, now: float, scaled_at: float | None
) -> Iterator[str]:
    """State of the HPA that is not visible and may change the outcome."""
    if code is OutcomeCode.STABILISED:
        yield f"earlier recommendations of the HPA are not visible: this is the longest, at a sync every {SYNC_S:g} s"
    if acts and spec.behavior is None and acts[0].replicas > current:
        yield f"without a behavior it uses the largest number of its last {spec.window_s:g} s, which may be more"
    if not acts or scaled_at is None or spec.behavior is None:
        return
    rules = spec.behavior.up if acts[0].replicas > current else spec.behavior.down
    period_s = max((policy.period_s for policy in rules.policies), default=0.0)
    if now - scaled_at < period_s:
        yield (
            f"it scaled {max(0.0, now - scaled_at):.0f} s ago, and how much of its policies that spent is not visible: "
            f"it may take up to {period_s:g} s longer"
        )


def _metrics(published: PublishedReplicas, number: int) -> list[HpaMetric | WholeMetric]:
    if published.ready is not None:
        return [WholeMetric(float(each), 1.0, published.ready) for each in (number, *published.mates)]
    return [HpaMetric(float(each), 1.0) for each in (number, *published.mates)]


def _acts(
    spec: HpaSpec, published: PublishedReplicas, memory: HpaMemory, first: HpaStep, current: int, now: float
) -> tuple[Act, ...]:
    """Simulates syncs until one changes nothing and waits for nothing. The first is as late as it may be."""
    acts: list[Act] = []
    number = published.number
    at = now + published.late_s
    if first.limit is Limit.STABILISED:
        # The last recommendation before this one leaves the window then, and a sync may just have been.
        window_s = windows(spec)[int(published.largest > current)]
        at = max(at, published.since + published.late_s + window_s + _PAST_S)
    for _ in range(_MOST_SYNCS):
        at += SYNC_S
        outcome, memory = step(spec, memory, _metrics(published, number), current, current, at)
        if outcome.replicas == current:
            if outcome.limit is Limit.STABILISED:
                continue  # it returns from a number rounded outward once its window is over
            break
        current = outcome.replicas
        acts.append(Act(at - now, current, outcome.why))
        number = _published_at(published, current)
    return tuple(acts)


def _published_at(published: PublishedReplicas, current: int) -> int:
    """The published number once so many replicas exist."""
    numbers = (published.decided, current, published.tolerance, published.most)
    columns = (np.array([float(number)]) for number in numbers)
    return int(past_band(*columns)[0])


def _code(spec: HpaSpec, first: HpaStep, current: int, *, up: bool) -> OutcomeCode:
    if first.limit in (Limit.RATE, Limit.STABILISED) and _is_disabled(spec, up=up):
        return OutcomeCode.DISABLED  # its window is over first, and then it changes nothing
    if first.limit is Limit.RATE:
        return OutcomeCode.RATE_LIMITED
    if first.replicas != current:
        return OutcomeCode.UP if first.replicas > current else OutcomeCode.DOWN
    return _STAYS.get(first.limit, OutcomeCode.SETTLED)


_STAYS = {
    Limit.TOLERANCE: OutcomeCode.IN_BAND,
    Limit.STABILISED: OutcomeCode.STABILISED,
    Limit.MIN: OutcomeCode.AT_MIN,
    Limit.MAX: OutcomeCode.AT_MAX,
}


def _is_disabled(spec: HpaSpec, *, up: bool) -> bool:
    if spec.behavior is None:
        return False
    rules = spec.behavior.up if up else spec.behavior.down
    return rules.select is Select.DISABLED or not rules.policies


def _moves(_spec: HpaSpec, published: PublishedReplicas, first: HpaStep, current: int, _acts: Sequence[Act]) -> str:
    limited = f", {first.why}" if first.limit in (Limit.RATE, Limit.MIN, Limit.MAX) else ""
    within_s = SYNC_S + published.late_s
    return f"in at most {within_s:g} s the HPA sets {first.replicas}: {current} -> {first.replicas}{limited}"


def _settled(current: int) -> str:
    return f"nothing: {current} exist and {current} are published"


def _in_band(spec: HpaSpec, published: PublishedReplicas, _first: HpaStep, current: int, _acts: Sequence[Act]) -> str:
    number = published.largest
    down, up = tolerances(spec)
    if number > current:
        return f"nothing: {number} is within its tolerance of {up:.3g} around {current}"
    # The first number that is not within the band downwards: strictly less than its edge.
    below = math.ceil(current * (1.0 - down) - 1e-9) - 1
    return (
        f"nothing: {number} is within its tolerance of {down:.3g} around {current}; "
        f"it goes down when {max(below, 0)} or fewer are published"
    )


def _stabilised(spec: HpaSpec, published: PublishedReplicas, _first: HpaStep, current: int, acts: Sequence[Act]) -> str:
    window_s = windows(spec)[int(published.largest > current)]
    then = f"in at most {acts[0].within_s:.0f} s it sets {acts[0].replicas}" if acts else "it scales when that is over"
    return f"waits for its {window_s:g} s stabilization window: {then}"


def _bounded(spec: HpaSpec, published: PublishedReplicas, first: HpaStep, _current: int, _acts: Sequence[Act]) -> str:
    bound = f"maxReplicas {spec.max_replicas}" if first.limit is Limit.MAX else f"minReplicas {spec.min_replicas}"
    return f"limited by {bound}: {published.largest} are published"


def _disabled(_spec: HpaSpec, published: PublishedReplicas, _first: HpaStep, current: int, _acts: Sequence[Act]) -> str:
    way = "up" if published.largest > current else "down"
    return f"nothing: scaling {way} is disabled (selectPolicy: Disabled)"


_SENTENCES: dict[OutcomeCode, Callable[[HpaSpec, PublishedReplicas, HpaStep, int, Sequence[Act]], str]] = {
    OutcomeCode.UP: _moves,
    OutcomeCode.DOWN: _moves,
    OutcomeCode.SETTLED: lambda _spec, _published, _first, current, _acts: _settled(current),
    OutcomeCode.IN_BAND: _in_band,
    OutcomeCode.STABILISED: _stabilised,
    OutcomeCode.RATE_LIMITED: _moves,
    OutcomeCode.AT_MIN: _bounded,
    OutcomeCode.AT_MAX: _bounded,
    OutcomeCode.DISABLED: _disabled,
}


def tolerances(spec: HpaSpec) -> tuple[float, float]:
    """(down, up), ratios: each direction's own, else the cluster's."""
    rules = (None, None) if spec.behavior is None else (spec.behavior.down.tolerance, spec.behavior.up.tolerance)
    down, up = (spec.tolerance if each is None else each for each in rules)
    return down, up


def windows(spec: HpaSpec) -> tuple[float, float]:
    """(down, up), seconds."""
    return (spec.window_s, 0.0) if spec.behavior is None else (spec.behavior.down.window_s, spec.behavior.up.window_s)


def keda_outcome(scaled: ScaledObject, *, active: bool, current: int, now: float) -> ControllerOutcome | None:
    """None if it leaves the replicas to the HPA. active: one of its triggers is. now: POSIX seconds."""
    spec = of_scaled(scaled)
    if paused := _paused(spec, current):
        return paused
    active_at = None if scaled.status is None else scaled.status.active_at
    memory = KedaMemory(created_at=scaled.created_at or 0.0, last_active_at=active_at)
    replicas, _, why = keda.step(spec, memory, Poll(PollResult.ACTIVE if active else PollResult.INACTIVE), current, now)
    if active:
        return _waking(scaled, spec, replicas, current, why)
    if current == 0:
        return ControllerOutcome(OutcomeCode.ASLEEP, ("nothing: at zero and inactive",))
    return _sleeping(spec, memory, replicas, current, now)


def _paused(spec: keda.ScaledObjectSpec, current: int) -> ControllerOutcome | None:
    annotation = "autoscaling.keda.sh/paused"
    if spec.paused_replicas is not None:
        act = Act(spec.polling_interval_s, spec.paused_replicas, "paused-replicas")
        held = f"paused at {spec.paused_replicas} replicas by the annotation {annotation}-replicas: nothing is read"
        return ControllerOutcome(OutcomeCode.PAUSED, (held,), () if current == spec.paused_replicas else (act,))
    if spec.paused:
        return ControllerOutcome(
            OutcomeCode.PAUSED, (f"paused by the annotation {annotation}: KEDA has removed its HPA",)
        )
    return None


def _waking(
    scaled: ScaledObject, spec: keda.ScaledObjectSpec, replicas: int | None, current: int, why: str
) -> ControllerOutcome | None:
    if current == 0 and spec.pause_scale_out:
        return ControllerOutcome(
            OutcomeCode.PAUSED, ("stays at zero by the annotation autoscaling.keda.sh/paused-scale-out",)
        )
    if replicas is None:
        return None
    pushed = any(trigger.type == "external-push" for trigger in scaled.triggers)
    polled = f"in at most {spec.polling_interval_s:g} s, at its next poll,"
    when = "at once, by the push," if pushed else polled
    act = Act(0.0 if pushed else spec.polling_interval_s, replicas, why)
    return ControllerOutcome(
        OutcomeCode.WAKES, (f"{when} KEDA sets {replicas}: {current} -> {replicas}; from there the HPA scales",), (act,)
    )


def _sleeping(
    spec: keda.ScaledObjectSpec, memory: KedaMemory, replicas: int | None, current: int, now: float
) -> ControllerOutcome | None:
    """It is inactive and has replicas."""
    floor = spec.min_replicas if spec.idle_replicas is None else spec.idle_replicas
    if spec.idle_replicas is None and spec.min_replicas > 0:
        return None  # the HPA scales it down to its minimum, and nothing goes further
    if current <= floor:
        return ControllerOutcome(OutcomeCode.ASLEEP, (f"nothing: at {floor} and inactive",))
    if spec.pause_scale_in:
        return ControllerOutcome(
            OutcomeCode.PAUSED, (f"not scaled to {floor} by the annotation autoscaling.keda.sh/paused-scale-in",)
        )
    if replicas is not None:
        act = Act(spec.polling_interval_s, replicas, "inactive")
        polled = f"in at most {spec.polling_interval_s:g} s, at its next poll,"
        return ControllerOutcome(
            OutcomeCode.SLEEPS, (f"{polled} KEDA sets {replicas}: {current} -> {replicas}",), (act,)
        )
    if memory.last_active_at is None:
        since, cooldown_s, what = memory.created_at, spec.initial_cooldown_s, "initialCooldownPeriod"
        began = "began when it was created"
    else:
        since, cooldown_s, what = memory.last_active_at, spec.cooldown_s, "cooldownPeriod"
        began = "began when a trigger was last active"
    within_s = max(0.0, since + cooldown_s - now) + spec.polling_interval_s
    sentence = f"in at most {within_s:.0f} s KEDA sets {floor}: its {what} of {cooldown_s:g} s {began}"
    return ControllerOutcome(OutcomeCode.COOLING_DOWN, (sentence,), (Act(within_s, floor, f"{what} over"),))
