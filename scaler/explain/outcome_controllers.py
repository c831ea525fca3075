"""From one replica to many: what the HPA will do with what it is told, by the arithmetic of `controllers.hpa`.

It knows an HPA's bounds and behaviour and what it reports; it refuses to guess what an HPA keeps to itself, its past
recommendations and how much of a policy's period is spent. Of those it takes the most that can be: until the number
became what it is, the HPA was told what there is. So "at most" is a bound, and it may be sooner.

Worked example: 2 are told since 100 s where 4 are, and the window downwards is 300 s: `stabilised`, "waits for its
300 s stabilisation window: in at most 215 s it sets 2". 200 s are left of the window, 15 s until the sync that sees it.

Between nothing and something: what KEDA will do, by the arithmetic of `controllers.keda`.

From one replica to many is the HPA's; here it is None. What KEDA remembers it reports as `lastActiveTime`.

Worked example: inactive since 100 s with a cooldownPeriod of 300 s and polls every 30 s: `cooling_down`, "in at most
230 s KEDA goes to zero: its cooldownPeriod of 300 s has begun when a trigger was active last".
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

# Half an hour of syncs that each change something: more is no outlook any more.
_MOST_SYNCS = 120
# Some keep what is exactly as old as the window, some do not.
_PAST_S = 0.001


class PublishedReplicas(NamedTuple):
    """What an HPA hears.

    replicas: decided. told: now. since: POSIX seconds when that became so. tolerance: the HPA's for going up, a ratio.
    late_s:   seconds until the HPA hears it, at most.
    others:   what the other workloads that scale the same are told.
    ready:    None where the metric is an AverageValue, else the pods that are ready, by which a Value is multiplied.
    most:     replicas that a schedule allows.
    """

    replicas: int
    told: int
    since: float
    tolerance: float
    late_s: float = 0.0
    others: tuple[int, ...] = ()
    ready: int | None = None
    most: float = math.inf


def hpa_outcome(
    spec: HpaSpec, told: PublishedReplicas, current: int, now: float, scaled_at: float | None = None
) -> ControllerOutcome:
    """current: replicas there are, at least 1. now, scaled_at: POSIX seconds; when the HPA scaled last."""
    if not told.others and told.ready is None and told.told == current and _allows(spec, current):
        return ControllerOutcome(OutcomeCode.SETTLED, (_settled(current),))  # most of a fleet, most of the time
    memory = HpaMemory(recommended=(TimedReplicas(told.since, current),))
    first, _ = step(spec, memory, _metrics(told, told.told), current, current, now)
    acts = _acts(spec, told, memory, first, current, now)
    code = _code(spec, first, current, up=max((told.told, *told.others)) > current)
    answer = _SENTENCES[code](spec, told, first, current, acts)
    return ControllerOutcome(code, (answer, *_not_told(spec, code, acts, current, now, scaled_at)), acts)


def _not_told(
    spec: HpaSpec, code: OutcomeCode, acts: Sequence[Act], current: int, now: float, scaled_at: float | None
) -> Iterator[str]:
    """What an HPA keeps to itself, where it bears on the answer."""
    if code is OutcomeCode.STABILISED:
        yield f"an HPA does not tell what it recommended before: this is the longest, at a sync every {SYNC_S:g} s"
    if acts and spec.behavior is None and acts[0].replicas > current:
        yield f"without a behavior it follows the largest number of its last {spec.window_s:g} s: that may be more"
    if not acts or scaled_at is None or spec.behavior is None:
        return
    rules = spec.behavior.up if acts[0].replicas > current else spec.behavior.down
    period_s = max((policy.period_s for policy in rules.policies), default=0.0)
    if now - scaled_at < period_s:
        yield (
            f"it scaled {max(0.0, now - scaled_at):.0f} s ago, and does not tell how much of its policies that has "
            f"spent: it may take up to {period_s:g} s longer"
        )


def _metrics(told: PublishedReplicas, number: int) -> list[HpaMetric | WholeMetric]:
    if told.ready is not None:
        return [WholeMetric(float(each), 1.0, told.ready) for each in (number, *told.others)]
    return [HpaMetric(float(each), 1.0) for each in (number, *told.others)]


def _acts(
    spec: HpaSpec, told: PublishedReplicas, memory: HpaMemory, first: HpaStep, current: int, now: float
) -> tuple[Act, ...]:
    """Sync after sync until one does nothing and waits for nothing, and the first of them as late as it may be."""
    acts: list[Act] = []
    number = told.told
    at = now + told.late_s
    if first.limit is Limit.STABILISED:
        # What was recommended last before this leaves the window then, and a sync may just have been.
        at = max(at, told.since + told.late_s + windows(spec)[int(max(number, *told.others, 0) > current)] + _PAST_S)
    for _ in range(_MOST_SYNCS):
        at += SYNC_S
        outcome, memory = step(spec, memory, _metrics(told, number), current, current, at)
        if outcome.replicas == current:
            if outcome.limit is Limit.STABILISED:
                continue  # after a number rounded outward it comes back, once its window is over
            break
        current = outcome.replicas
        acts.append(Act(at - now, current, outcome.why))
        number = _told_at(told, current)
    return tuple(acts)


def _told_at(told: PublishedReplicas, current: int) -> int:
    """What Tidegate will tell once there are so many."""
    columns = (np.array([float(number)]) for number in (told.replicas, current, told.tolerance, told.most))
    return int(past_band(*columns)[0])


def _code(spec: HpaSpec, first: HpaStep, current: int, *, up: bool) -> OutcomeCode:
    if first.limit in (Limit.RATE, Limit.STABILISED) and _is_disabled(spec, up=up):
        return OutcomeCode.DISABLED  # a window comes first, and nothing comes after it
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


def _moves(_spec: HpaSpec, told: PublishedReplicas, first: HpaStep, current: int, _acts: Sequence[Act]) -> str:
    limited = f", {first.why}" if first.limit in (Limit.RATE, Limit.MIN, Limit.MAX) else ""
    return (
        f"in at most {SYNC_S + told.late_s:g} s the HPA sets {first.replicas}: {current} -> {first.replicas}{limited}"
    )


def _allows(spec: HpaSpec, replicas: int) -> bool:
    return spec.min_replicas <= replicas <= spec.max_replicas


def _settled(current: int) -> str:
    return f"nothing: there are {current}, and that is what is told"


def _in_band(spec: HpaSpec, told: PublishedReplicas, _first: HpaStep, current: int, _acts: Sequence[Act]) -> str:
    number = max((told.told, *told.others))
    down, up = tolerances(spec)
    if number > current:
        return f"nothing: {number} is within its {up:.3g} tolerance of the {current} there are"
    # The first number that is not within the band downwards: strictly less than its edge.
    below = math.ceil(current * (1.0 - down) - 1e-9) - 1
    return (
        f"nothing: {number} is within its {down:.3g} tolerance of the {current} there are; "
        f"it goes down when {max(below, 0)} or fewer are told"
    )


def _stabilised(spec: HpaSpec, told: PublishedReplicas, _first: HpaStep, current: int, acts: Sequence[Act]) -> str:
    window_s = windows(spec)[1 if max((told.told, *told.others)) > current else 0]
    then = f"in at most {acts[0].within_s:.0f} s it sets {acts[0].replicas}" if acts else "it goes when that is over"
    return f"waits for its {window_s:g} s stabilisation window: {then}"


def _bounded(spec: HpaSpec, told: PublishedReplicas, first: HpaStep, _current: int, _acts: Sequence[Act]) -> str:
    bound = f"maxReplicas {spec.max_replicas}" if first.limit is Limit.MAX else f"its minReplicas, {spec.min_replicas}"
    return f"held by {bound}: {max((told.told, *told.others))} are told"


def _disabled(_spec: HpaSpec, told: PublishedReplicas, _first: HpaStep, current: int, _acts: Sequence[Act]) -> str:
    way = "up" if max((told.told, *told.others)) > current else "down"
    return f"nothing: scaling {way} is disabled (selectPolicy: Disabled)"


_SENTENCES: dict[OutcomeCode, Callable[[HpaSpec, PublishedReplicas, HpaStep, int, Sequence[Act]], str]] = {
    OutcomeCode.UP: _moves,
    OutcomeCode.DOWN: _moves,
    OutcomeCode.SETTLED: lambda _spec, _told, _first, current, _acts: _settled(current),
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
    """None: it leaves the replicas to the HPA. active: a trigger of it is. now: POSIX seconds."""
    spec = of_scaled(scaled)
    if paused := _paused(spec, current):
        return paused
    active_at = None if scaled.status is None else scaled.status.active_at
    memory = KedaMemory(created_at=scaled.created_at or 0.0, last_active_at=active_at)
    order, _, why = keda.step(spec, memory, Poll(PollResult.ACTIVE if active else PollResult.INACTIVE), current, now)
    if active:
        return _waking(scaled, spec, order, current, why)
    if current == 0:
        return ControllerOutcome(OutcomeCode.ASLEEP, ("nothing: it is at zero, and inactive",))
    return _sleeping(spec, memory, order, current, now)


def _paused(spec: keda.ScaledObjectSpec, current: int) -> ControllerOutcome | None:
    annotation = "autoscaling.keda.sh/paused"
    if spec.paused_replicas is not None:
        act = Act(spec.polling_interval_s, spec.paused_replicas, "paused-replicas")
        held = f"paused at {spec.paused_replicas} replicas by the annotation {annotation}-replicas: nobody is asked"
        return ControllerOutcome(OutcomeCode.PAUSED, (held,), () if current == spec.paused_replicas else (act,))
    if spec.paused:
        return ControllerOutcome(
            OutcomeCode.PAUSED, (f"paused by the annotation {annotation}: KEDA has taken its HPA away",)
        )
    return None


def _waking(
    scaled: ScaledObject, spec: keda.ScaledObjectSpec, order: int | None, current: int, why: str
) -> ControllerOutcome | None:
    if current == 0 and spec.pause_scale_out:
        return ControllerOutcome(
            OutcomeCode.PAUSED, ("stays at zero: the annotation autoscaling.keda.sh/paused-scale-out holds it",)
        )
    if order is None:
        return None
    pushed = any(trigger.type == "external-push" for trigger in scaled.triggers)
    polled = f"in at most {spec.polling_interval_s:g} s, at its next poll,"
    when = "at once, by the push," if pushed else polled
    act = Act(0.0 if pushed else spec.polling_interval_s, order, why)
    return ControllerOutcome(
        OutcomeCode.WAKES, (f"{when} KEDA sets {order}: {current} -> {order}; from there on the HPA goes",), (act,)
    )


def _sleeping(
    spec: keda.ScaledObjectSpec, memory: KedaMemory, order: int | None, current: int, now: float
) -> ControllerOutcome | None:
    """Something runs that is not active."""
    floor = spec.min_replicas if spec.idle_replicas is None else spec.idle_replicas
    if spec.idle_replicas is None and spec.min_replicas > 0:
        return None  # the HPA takes it down to its minimum, and nobody further
    if current <= floor:
        return ControllerOutcome(OutcomeCode.ASLEEP, (f"nothing: it is at {floor}, and inactive",))
    if spec.pause_scale_in:
        return ControllerOutcome(
            OutcomeCode.PAUSED, (f"not taken to {floor}: the annotation autoscaling.keda.sh/paused-scale-in holds it",)
        )
    if order is not None:
        act = Act(spec.polling_interval_s, order, "inactive")
        words = f"in at most {spec.polling_interval_s:g} s, at its next poll, KEDA sets {order}: {current} -> {order}"
        return ControllerOutcome(OutcomeCode.SLEEPS, (words,), (act,))
    if memory.last_active_at is None:
        since, cooldown_s, what = memory.created_at, spec.initial_cooldown_s, "initialCooldownPeriod"
        began = "began when it was made"
    else:
        since, cooldown_s, what = memory.last_active_at, spec.cooldown_s, "cooldownPeriod"
        began = "began when a trigger was active last"
    within_s = max(0.0, since + cooldown_s - now) + spec.polling_interval_s
    words = f"in at most {within_s:.0f} s KEDA sets {floor}: its {what} of {cooldown_s:g} s {began}"
    return ControllerOutcome(OutcomeCode.COOLING_DOWN, (words,), (Act(within_s, floor, f"{what} over"),))
