"""Between nothing and something: what KEDA will do, by the arithmetic of `controllers.keda`.

From one replica to many is the HPA's; here it is None. What KEDA remembers it reports as `lastActiveTime`.

Worked example: inactive since 100 s with a cooldownPeriod of 300 s and polls every 30 s: `cooling_down`, "in at most
230 s KEDA goes to zero: its cooldownPeriod of 300 s has begun when a trigger was active last".
"""

from __future__ import annotations

from exporter.cluster.objects import ScaledObject

from ..controllers import keda
from ..controllers.keda import Answer, Memory, Poll
from .codes import Code
from .record import Act, Outlook
from .specs import of_scaled


def outlook(scaled: ScaledObject, *, active: bool, current: int, now: float) -> Outlook | None:
    """None: it leaves the replicas to the HPA. active: a trigger of it is. now: POSIX seconds."""
    spec = of_scaled(scaled)
    if paused := _paused(spec, current):
        return paused
    active_at = None if scaled.status is None else scaled.status.active_at
    memory = Memory(created_at=scaled.created_at or 0.0, last_active_at=active_at)
    order, _, why = keda.step(spec, memory, Poll(Answer.ACTIVE if active else Answer.INACTIVE), current, now)
    if active:
        return _waking(scaled, spec, order, current, why)
    if current == 0:
        return Outlook(Code.ASLEEP, ("nothing: it is at zero, and inactive",))
    return _sleeping(spec, memory, order, current, now)


def _paused(spec: keda.Spec, current: int) -> Outlook | None:
    annotation = "autoscaling.keda.sh/paused"
    if spec.paused_replicas is not None:
        act = Act(spec.polling_interval_s, spec.paused_replicas, "paused-replicas")
        held = f"paused at {spec.paused_replicas} replicas by the annotation {annotation}-replicas: nobody is asked"
        return Outlook(Code.PAUSED, (held,), () if current == spec.paused_replicas else (act,))
    if spec.paused:
        return Outlook(Code.PAUSED, (f"paused by the annotation {annotation}: KEDA has taken its HPA away",))
    return None


def _waking(scaled: ScaledObject, spec: keda.Spec, order: int | None, current: int, why: str) -> Outlook | None:
    if current == 0 and spec.pause_scale_out:
        return Outlook(Code.PAUSED, ("stays at zero: the annotation autoscaling.keda.sh/paused-scale-out holds it",))
    if order is None:
        return None
    pushed = any(trigger.type == "external-push" for trigger in scaled.triggers)
    polled = f"in at most {spec.polling_interval_s:g} s, at its next poll,"
    when = "at once, by the push," if pushed else polled
    act = Act(0.0 if pushed else spec.polling_interval_s, order, why)
    return Outlook(Code.WAKES, (f"{when} KEDA sets {order}: {current} -> {order}; from there on the HPA goes",), (act,))


def _sleeping(spec: keda.Spec, memory: Memory, order: int | None, current: int, now: float) -> Outlook | None:
    """Something runs that is not active."""
    floor = spec.min_replicas if spec.idle_replicas is None else spec.idle_replicas
    if spec.idle_replicas is None and spec.min_replicas > 0:
        return None  # the HPA takes it down to its minimum, and nobody further
    if current <= floor:
        return Outlook(Code.ASLEEP, (f"nothing: it is at {floor}, and inactive",))
    if spec.pause_scale_in:
        return Outlook(
            Code.PAUSED, (f"not taken to {floor}: the annotation autoscaling.keda.sh/paused-scale-in holds it",)
        )
    if order is not None:
        act = Act(spec.polling_interval_s, order, "inactive")
        words = f"in at most {spec.polling_interval_s:g} s, at its next poll, KEDA sets {order}: {current} -> {order}"
        return Outlook(Code.SLEEPS, (words,), (act,))
    if memory.last_active_at is None:
        since, cooldown_s, what = memory.created_at, spec.initial_cooldown_s, "initialCooldownPeriod"
        began = "began when it was made"
    else:
        since, cooldown_s, what = memory.last_active_at, spec.cooldown_s, "cooldownPeriod"
        began = "began when a trigger was active last"
    within_s = max(0.0, since + cooldown_s - now) + spec.polling_interval_s
    words = f"in at most {within_s:.0f} s KEDA sets {floor}: its {what} of {cooldown_s:g} s {began}"
    return Outlook(Code.COOLING_DOWN, (words,), (Act(within_s, floor, f"{what} over"),))
