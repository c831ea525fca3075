"""The steps from a number within its bounds to what is told: idleness, people's orders, and the words of the protocol.
Pure.

Worked example: nothing has been to do for two of five minutes: "It sleeps at 10:05:00Z, in 3 min, if nothing comes". A
schedule's floor of 3 stands: "A schedule's floor: at least 3 replicas".
"""

from __future__ import annotations

from math import inf, isfinite, isnan

import numpy as np

from scaler.controllers.hpa import past_band
from scaler.model import Decision, Reason
from scaler.policy.columns import OWN, REASONS

from .steps import Step, clock, count, lasting, number, ready_replicas
from .trace import Case


def orders(case: Case, decision: Decision | None) -> Step:
    """decision: the Board's, of this very moment, for the words of its orders; None of any other."""
    said = [*_idleness(case), *_brake(case, decision), *_bounds(case, decision), *_group(case), *_arrival(case)]
    if not _ordered(case):
        said.append("Nobody has ordered otherwise.")
    return Step("orders", "Idleness, and what people have ordered", tuple(said))


def _ordered(case: Case) -> bool:
    stands = case.stands
    return bool(stands.frozen or stands.never_down or stands.floor > 0.0 or isfinite(stands.ceiling))


def _idleness(case: Case) -> list[str]:
    since, keep_warm = case.after.idle_since, case.stands.keep_warm
    if isnan(since):
        return [_busy(case)]
    idle = case.at - since
    said = [f"Nothing is to be done since {clock(since)}" + (f", for {lasting(idle)}." if idle >= 1.0 else ".")]
    if not case.may_sleep:
        return [*said, f"It does not sleep: its minimum is {case.plan.spec.minimum}."]
    kept = f"It is kept warm for {lasting(keep_warm)}"
    if case.alone.reason == REASONS.index(Reason.ASLEEP):
        done = "It is at zero, and stays" if case.before.replicas == 0.0 else f"{kept}, and that is over: it may sleep"
        return [*said, f"{done}; what lives at zero replicas would show the next request."]
    if case.alone.reason == REASONS.index(Reason.NO_WAKER):
        kept = "it stays at zero all the same" if case.alone.replicas == 0.0 else "so it is kept awake"
        return [*said, f"Nothing that lives at zero replicas would show the next request now: {kept}."]
    if case.alone.reason == REASONS.index(Reason.QUEUED):
        refused = clock(case.seen.refused_at)
        return [*said, f"Somebody was turned away at {refused} for want of a replica, so one is wanted."]
    if case.after.floor > 0.0:
        return [*said, f"It does not sleep before {clock(case.after.floor_until)}: it began without a memory."]
    until = since + keep_warm
    when = f"It sleeps at {clock(until)}, in {lasting(until - case.at)}, if nothing comes" if until < inf else ""
    return [*said, f"{kept}. {when}{'' if case.seen.waker_fresh else ' and a waker is seen then'}."]


def _busy(case: Case) -> str:
    """Why it is not idle, in the policy's order."""
    seen, after, stands = case.seen, case.after, case.stands
    if case.work > 0.0:
        return f"It is not idle: {count(case.work, 'request')} in hand."
    if not case.whole:
        return "Whether it is idle is not known: that takes proof from every source, each complete."
    if seen.busiest_gpu > case.plan.spec.gpu_quiet:
        quiet = number(case.plan.spec.gpu_quiet)
        return f"It is not idle: its busiest GPU is {number(seen.busiest_gpu)} active, and {quiet} counts as quiet."
    if not isnan(after.woken_at) and case.at - after.woken_at < stands.lease:
        until = clock(after.woken_at + stands.lease)
        return f"It is not idle: it was woken at {clock(after.woken_at)}, and is kept up until {until} for its start."
    if seen.wanted > 0.0 and not seen.ready >= seen.wanted:
        ready = number(ready_replicas(case))
        return f"It is not idle: {ready} of {count(seen.wanted, 'replica')} ready, the rest load."
    return "It is not idle: it loads."


def _brake(case: Case, decision: Decision | None) -> list[str]:
    stands = case.stands
    words = None if decision is None else decision.evidence.brake
    if words is None:
        words = "; ".join(str(brake) for brake in case.plan.ordered.brakes if brake.holds(case.at))
    of = f": {words}" if words else ""
    if stands.frozen:
        what = "No Job is started" if case.plan.spec.jobs else "The last answer stands"
        return [f"A freeze holds{of}. {what}, whatever is read."]
    if not stands.never_down:
        return []
    held = case.verdict.replicas > case.alone.replicas
    return [f"A brake lets nothing down{of}." + (f" Without it: {_answer(case.alone)}." if held else "")]


def _bounds(case: Case, decision: Decision | None) -> list[str]:
    stands, said = case.stands, []
    words = None if decision is None else decision.evidence.schedule
    if words is None:
        spoken = (schedule.said_at(case.at) for schedule in case.plan.ordered.schedules)
        words = "; ".join(text.removeprefix("now: ") for text in spoken if text.startswith("now: "))
    of = f" ({words})" if words else ""
    if isfinite(stands.ceiling):
        lowered = " That lowers it." if case.alone.replicas > max(1.0, stands.ceiling) else ""
        said.append(f"A schedule allows at most {count(stands.ceiling, 'replica')}{of}.{lowered}")
    if stands.floor > 0.0 and stands.floor_reason != OWN:
        raised = not case.alone.replicas >= stands.floor
        whose = {
            REASONS.index(Reason.SCHEDULED): f"A schedule keeps at least {count(stands.floor, 'replica')}{of}.",
            REASONS.index(Reason.FROZEN): f"A brake keeps at least {count(stands.floor, 'replica')}.",
            REASONS.index(Reason.WARM): (
                "It is expected back soon, by what its rests were like: a start begins in advance, "
                f"{count(stands.floor, 'replica')} at least."
            ),
        }
        said.append(whose[stands.floor_reason] + (f" Without it: {_answer(case.alone)}." if raised else ""))
    return said


def _group(case: Case) -> list[str]:
    if not case.aside.asked > 0.0:
        return []
    return [f"Its group is awake and asks for {count(case.aside.asked, 'replica')} of it at least."]


def _arrival(case: Case) -> list[str]:
    if not case.raise_only:
        return []
    return ["It was decided when a page came in, between two ticks: that may raise or activate, and lowers nothing."]


def told(case: Case, decision: Decision | None, follows: str | None) -> Step:
    """follows: HOST:PORT of the replica of Tidegate whose Board is repeated."""
    said = _told(case, _number_told(case, decision if follows is None else None))
    if follows is not None and decision is not None:
        leader = f"This replica repeats the answer of the leader at {follows}: {_decision(decision)}."
        differs = " What is above is what it would answer itself."
        said.append(leader + ("" if _same(case, decision) else differs))
    return Step("told", "What KEDA and the HPA are told", tuple(said))


def _number_told(case: Case, decision: Decision | None) -> float:
    """decision: the Board's, of this very moment. Of the past it is reckoned: a page that comes in while the HPA takes
    a step lowers no number, and that is not kept.
    """
    if decision is not None and decision.told is not None and _same(case, decision):
        return decision.told
    most = case.stands.ceiling if case.verdict.replicas > case.stands.floor else inf
    known = (case.verdict.replicas, case.seen.wanted, case.plan.tolerance, most)
    return float(past_band(*(np.array([number]) for number in known))[0])


def _told(case: Case, number_told: float) -> list[str]:
    verdict = case.verdict
    if case.plan.observed:
        return [f"Nothing: it is observed only, and whoever asks gets an error. It would be {_answer(verdict)}."]
    if isnan(verdict.replicas):
        return ["An error, so that KEDA and the HPA keep what there is: never a number that is not known."]
    if not verdict.active:
        return ["Inactive, and 0: KEDA writes the zero once its cooldownPeriod is over since the last active answer."]
    said = [f"Active, and tidegate-replicas = {number(number_told)} at a target of 1 for each replica."]
    if number_told > verdict.replicas:
        said.append(_why_more(case, number_told))
    return said


def _why_more(case: Case, number_told: float) -> str:
    wanted, replicas = case.seen.wanted, case.verdict.replicas
    if isnan(wanted):
        return f"How many there are is not known: {number(number_told)} was told before, and stands until it is."
    if wanted >= replicas:
        return (
            f"The step past {number(replicas)} has just been taken: {number(number_told)} stands until the next tick."
        )
    return (
        f"{number(replicas)} would be within the HPA's tolerance of {number(case.plan.tolerance)} around the "
        f"{number(wanted)} there are, and dropped; {number(number_told)} is the next that is not."
    )


def _same(case: Case, decision: Decision) -> bool:
    replicas = None if isnan(case.verdict.replicas) else case.verdict.replicas
    return (replicas, bool(case.verdict.active)) == (decision.replicas, decision.active)


def _answer(verdict: object) -> str:
    replicas, reason = verdict.replicas, REASONS[verdict.reason]  # type: ignore[attr-defined]  # a slot of columns
    return "not known" if isnan(replicas) else f"{count(replicas, 'replica')}, {reason}"


def _decision(decision: Decision) -> str:
    return "not known" if decision.replicas is None else f"{count(decision.replicas, 'replica')}, {decision.reason}"
