"""Explains how bounded replicas become published ones: idleness, overrides, and what KEDA and the HPA get. Pure.

Worked example: a workload is idle for two of five minutes: "It goes to zero at 10:05:00Z, in 3 min, without requests".
A schedule's floor of 3 is active: "A schedule keeps at least 3 replicas".
"""

from __future__ import annotations

from math import inf, isfinite, isnan

import numpy as np

from scaler.controllers.hpa import past_band
from scaler.model import Decision, Reason
from scaler.policy.attainment import BUDGET
from scaler.policy.columns import CAPACITY_LIMITED, FROZEN, NO_REASON, REASONS, SCHEDULED
from scaler.policy.trace import GPU, GRACE, REQUESTS, UNPROVEN

from . import further_hour
from .formats import clock, counted, lasting, number
from .steps import Step
from .trace import Case


def overrides(case: Case, decision: Decision | None, hour: further_hour.Document | None = None) -> Step:
    """decision: the Board's, if it is of this moment, for the text of its overrides. hour: one more of keep-warm."""
    idle = not isnan(case.after.idle_since) and case.may_sleep
    sentences = [*_idleness(case), *(further_hour.sentences(hour) if idle else ()), *_start(case, decision)]
    sentences += [*_budget(case, decision), *_sleep(decision)]
    sentences += [*_brake(case, decision), *_schedule(case, decision), *_share(case)]
    if decision is not None and decision.evidence.queue_order is not None:
        sentences.append(f"Its place in the queue of its group is {decision.evidence.queue_order}.")
    if case.aside.group_floor > 0.0:
        sentences.append(f"Its group is awake and needs at least {counted(case.aside.group_floor, 'replica')} of it.")
    if case.raise_only:
        sentences.append("It was decided at a scrape between two ticks, which may raise or activate and never lowers.")
    active = case.constraints
    if not (active.frozen or active.never_down or active.floor > 0.0 or isfinite(active.ceiling)):
        sentences.append("No override is active.")
    return Step("overrides", "Idleness and overrides", tuple(sentences))


def _idleness(case: Case) -> list[str]:
    since, keep_warm, spec = case.after.idle_since, case.constraints.keep_warm, case.plan.spec
    if isnan(since):
        return [_busy(case)]
    idle_s = case.at - since
    idle = f"It is idle since {clock(since)}" + (f", for {lasting(idle_s)}." if idle_s >= 1.0 else ".")
    if not case.may_sleep:
        return [idle, f"It does not go to zero: its minimum is {spec.minimum}."]
    warm = f"It is kept warm for {lasting(keep_warm)}"
    match REASONS[case.trace.reason]:
        case Reason.ASLEEP:
            zero = "It stays at zero" if case.before.replicas == 0.0 else f"{warm}, and that is over: it goes to zero"
            return [idle, f"{zero}; a wake source shows the next request."]
        case Reason.NO_WAKE_SOURCE:
            stays = "stays at zero all the same" if case.trace.replicas == 0.0 else "is kept awake"
            return [idle, f"No wake source would show the next request: it {stays}."]
        case Reason.QUEUED:
            refused = clock(case.readings.refused_at)
            return [idle, f"A request was rejected at {refused} because no replica existed, so one is wanted."]
    if case.after.floor > 0.0:
        return [idle, f"It does not go to zero before {clock(case.after.floor_until)}: it began without state."]
    until = since + keep_warm
    if not case.at < until < inf:
        return [idle, f"{warm}."]
    source = "" if case.readings.waker_fresh else ", if it has a wake source then"
    zero = f"at {clock(until)}, in {lasting(until - case.at)}"
    return [idle, f"{warm}. It goes to zero {zero}, without requests{source}."]


def _start(case: Case, decision: Decision | None) -> list[str]:
    """What the next request after zero would wait for."""
    evidence = None if decision is None else decision.evidence
    if evidence is None or evidence.zero_start_mean_s is None or evidence.zero_start_p90_s is None:
        return []
    if isnan(case.after.idle_since) or not case.may_sleep:
        return []
    usual, slow = lasting(evidence.zero_start_mean_s), lasting(evidence.zero_start_p90_s)
    return [f"Its first replica after zero starts in {usual} on average, and in {slow} nine times of ten."]


def _budget(case: Case, decision: Decision | None) -> list[str]:
    """How many cold starts the error budget of an SLO still covers."""
    evidence = None if decision is None else decision.evidence
    if evidence is None or evidence.cold_start_requests is None or evidence.cold_starts_covered is None:
        return []
    if isnan(case.after.idle_since) or not case.may_sleep:
        return []
    covered = evidence.cold_starts_covered
    left = f"covers {number(covered)} more" if covered > 0.0 else "is spent, so keeping warm is worth more"
    delays = counted(round(evidence.cold_start_requests), "request")
    return [f"A cold start delays about {delays}; the error budget ({100.0 * BUDGET:g} % of requests) {left}."]


def _sleep(decision: Decision | None) -> list[str]:
    """The state of its sleep mode."""
    evidence = None if decision is None else decision.evidence
    if evidence is None or evidence.sleep_tier is None:
        return []
    return [f"Its sleep mode is at {evidence.sleep_tier}: {evidence.sleep}."]


def _busy(case: Case) -> str:
    """Why it is not idle."""
    readings, activity, woken_at = case.readings, case.trace.activity, case.before.woken_at
    if activity == UNPROVEN:
        return "Idleness is unknown: the proof needs fresh and complete readings of every target."
    if activity == REQUESTS:
        why = f"{counted(case.work, 'request')} in hand"
    elif activity == GPU:
        why = f"its busiest GPU is at {number(readings.busiest_gpu)}, above {number(case.plan.spec.gpu_quiet)}"
    elif activity == GRACE:
        until = clock(woken_at + case.constraints.lease)
        why = f"woken at {clock(woken_at)}, it has a start-up grace until {until}"
    elif readings.wanted > 0.0:
        why = f"{number(case.ready)} of {counted(readings.wanted, 'replica')} ready, the rest load"
    else:
        why = "it loads"
    return f"It is not idle: {why}."


def _brake(case: Case, decision: Decision | None) -> list[str]:
    active = case.constraints
    text = None if decision is None else decision.evidence.brake
    if text is None:
        text = "; ".join(str(brake) for brake in case.plan.ordered.brakes if brake.holds(case.at))
    of = f": {text}" if text else ""
    if active.frozen:
        return [f"A freeze is active{of}. {'No Job starts' if case.plan.spec.jobs else 'The last decision holds'}."]
    if not active.never_down:
        return []
    return [f"A brake allows no scale-down{of}.{_without(case, FROZEN)}"]


def _without(case: Case, override: int, *, lowers: bool = False) -> str:
    """The decision without the overrides of this reason, if it is a lower one. lowers: if it is a higher one."""
    without = case.without(override)
    more, less = (without, case.after) if lowers else (case.after, without)
    return f" Without it: {_verdict(without)}." if more.replicas > less.replicas else ""


def _schedule(case: Case, decision: Decision | None) -> list[str]:
    active, sentences = case.constraints, []
    text = None if decision is None else decision.evidence.schedule
    if text is None:
        texts = (schedule.said_at(case.at) for schedule in case.plan.ordered.schedules)
        text = "; ".join(each.removeprefix("now: ") for each in texts if each.startswith("now: "))
    of = f" ({text})" if text else ""
    if isfinite(active.ceiling):
        lowered = " That lowers it." if case.after.replicas < case.without(SCHEDULED).replicas else ""
        sentences.append(f"A schedule allows at most {counted(active.ceiling, 'replica')}{of}.{lowered}")
    if active.floor > 0.0 and active.floor_reason != NO_REASON:
        least = f"at least {counted(active.floor, 'replica')}"
        sentence = {
            Reason.SCHEDULED: f"A schedule keeps {least}{of}.",
            Reason.FROZEN: f"A brake keeps {least}.",
            Reason.WARM: f"The next request is predicted by its idle times, and a start begins in advance: {least}.",
        }[REASONS[active.floor_reason]]
        sentences.append(sentence + _without(case, active.floor_reason))
    return sentences


def _share(case: Case) -> list[str]:
    """Its share of the GPUs, if those are shared."""
    if not isfinite(case.constraints.room):
        return []
    share = case.plan.share
    of = f"priority {share.priority}, weight {number(share.weight)}"
    room = f"The GPUs have room for {counted(case.constraints.room, 'replica')} of it ({of})."
    return [room + _without(case, CAPACITY_LIMITED, lowers=True)]


def published(case: Case, decision: Decision | None, follows: str | None) -> Step:
    """follows: HOST:PORT of the leader whose Board this replica repeats."""
    sentences = _published(case, _published_replicas(case, decision if follows is None else None))
    if follows is not None and decision is not None:
        same = _same(case, decision)
        replicas = decision.replicas
        text = "unknown" if replicas is None else f"{counted(replicas, 'replica')}, {decision.reason}"
        differs = "" if same else " The steps above are of its own decision."
        sentences.append(f"This replica repeats the decision of the leader at {follows}: {text}.{differs}")
    if follows is None and decision is not None and not _same(case, decision):
        many = "unknown" if decision.replicas is None else counted(decision.replicas, "replica")
        sentences.append(f"The published decision is newer than these steps: {many}, {decision.reason}.")
    return Step("published", "Published replicas", tuple(sentences))


def _published_replicas(case: Case, decision: Decision | None) -> float:
    """decision: the Board's, if it is of this moment. For the past the number is computed: a scrape while the HPA takes
    a step lowers nothing, and the log does not have that.
    """
    if decision is not None and decision.published is not None and _same(case, decision):
        return decision.published
    most = case.constraints.ceiling if case.verdict.replicas > case.constraints.floor else inf
    most = min(most, max(1.0, case.plan.spec.minimum, case.constraints.room))
    columns = (case.verdict.replicas, case.readings.wanted, case.plan.tolerance, most)
    return float(past_band(*(np.array([column]) for column in columns))[0])


def _published(case: Case, replicas: float) -> list[str]:
    verdict = case.verdict
    if case.plan.observed:
        return [f"Nothing: it is only observed, and callers get an error. It would be {_verdict(verdict)}."]
    if isnan(verdict.replicas):
        return ["An error: without a fallback, KEDA and the HPA change nothing."]
    if not verdict.active:
        return ["Inactive, and 0: KEDA scales to zero once its cooldownPeriod since the last active answer is over."]
    sentences = [f"Active, and tidegate-replicas = {number(replicas)} at a target of 1 per replica."]
    if replicas > verdict.replicas:
        sentences.append(_why_more(case, replicas))
    return sentences


def _why_more(case: Case, replicas: float) -> str:
    wanted, decided, more = case.readings.wanted, number(case.verdict.replicas), number(replicas)
    if isnan(wanted):
        return f"The replicas of the cluster are unknown: {more} was published before, and stays until then."
    if wanted >= case.verdict.replicas:
        return f"The HPA has just gone past {decided}: {more} stays until the next tick."
    band = f"its tolerance of {number(case.plan.tolerance)} around {number(wanted)}"
    return f"The HPA would ignore {decided}, within {band}; {more} is the next that it does not."


def _same(case: Case, decision: Decision) -> bool:
    replicas = None if isnan(case.verdict.replicas) else case.verdict.replicas
    return (replicas, bool(case.verdict.active)) == (decision.replicas, decision.active)


def _verdict(verdict: object) -> str:
    replicas, reason = verdict.replicas, REASONS[verdict.reason]  # type: ignore[attr-defined]  # a slot of columns
    return "unknown" if isnan(replicas) else f"{counted(replicas, 'replica')}, {reason}"
