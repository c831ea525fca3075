"""One sentence for one decision: the answer, its reason, and the numbers that decided. Pure.

Worked example: "3 replicas, serving: 40 requests wait or run and a replica should carry 16".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isnan

import numpy as np

from ..board import Reason
from ..policy import Signal
from .case import Case
from .sized import largest, ready_replicas
from .steps import clock, count, lasting, number


def summary(case: Case) -> str:
    replicas = case.verdict.replicas
    answer = "no answer" if isnan(replicas) else count(replicas, "replica")
    why = _grouped if _group_decides(case) else _WHY[case.reason]
    return f"{answer}, {case.reason}: {why(case)}"


def _group_decides(case: Case) -> bool:
    """Is it its group alone that wants so many? Where it holds its own answer, that is said first."""
    asked = case.aside.asked
    return asked > 0.0 and asked == case.verdict.replicas and case.alone.replicas < asked and not case.held


def _grouped(case: Case) -> str:
    return f"its group asks for {count(case.aside.asked, 'replica')} of it; alone {_alone(case)}"


def _serving(case: Case) -> str:
    signal, hand = largest(case), f"{count(case.work, 'request')} wait or run"
    if signal is None:
        return hand
    target, value = dict(case.plan.spec.targets)[signal], float(case.seen.signals[signal])
    if signal is Signal.WORK:
        smooth = "" if value == case.work else f" ({number(value)} smoothed)"
        return f"{hand}{smooth} and a replica should carry {number(target)}"
    what = "of its KV cache is used" if signal is Signal.KV_CACHE else "of its GPUs' engines are active"
    return f"{number(value)} {what} and it should be {number(target)}; {hand}"


def _queued(case: Case) -> str:
    waiting = float(np.nansum([case.seen.waiting, case.seen.held]))
    if not waiting:
        return "somebody was turned away for want of a replica"
    return f"{count(waiting, 'request')} wait and none is being worked on"


def _gpu_busy(case: Case) -> str:
    return f"no request is seen, and its busiest GPU is {number(case.seen.busiest_gpu)} active"


def _loading(case: Case) -> str:
    if not case.seen.wanted > 0.0:
        return "a start is under way, and nothing is ready yet"
    return f"{number(ready_replicas(case))} of {count(case.seen.wanted, 'replica')} ready, the rest load"


def _warm(case: Case) -> str:
    since = case.after.idle_since
    if isnan(since):
        return "nothing of its own is to be done, and it is kept awake"
    idle = f"nothing has been to do for {lasting(case.at - since)}"
    if not case.may_sleep:
        return f"{idle}, and its minimum is {case.plan.spec.minimum}"
    return f"{idle}, and it is kept warm for {lasting(case.stands.keep_warm)}"


def _asleep(case: Case) -> str:
    since = case.after.idle_since
    idle = "" if isnan(since) else f" for {lasting(case.at - since)}"
    return f"nothing has been to do{idle}, and what lives at zero replicas would show the next request"


def _held(case: Case) -> str:
    since = case.after.held_since
    stands = (
        "what is seen to do is asked for"
        if case.plan.spec.jobs and case.after.replicas > 0
        else "the last answer stands"
    )
    return f"readings are missing, and {stands}" + ("" if isnan(since) else f", since {clock(since)}")


def _incomplete(case: Case) -> str:
    since = case.after.incomplete_since
    when = "" if isnan(since) else f" since {clock(since)}"
    return f"some readings are lower bounds{when}, so replicas may rise and none is taken away; {_known(case)}"


def _known(case: Case) -> str:
    return "no request is known" if isnan(case.work) else f"{count(case.work, 'request')} at least in hand"


def _unknown(case: Case) -> str:
    since = case.after.held_since
    if isnan(since):
        return "what is there, and whether it has anything to do, nobody says: an error to whoever asks"
    held = "and no number of Jobs is held" if case.plan.spec.jobs else "with no answer to hold any more"
    return f"readings are missing since {clock(since)}, {held}: an error to whoever asks"


def _no_waker(_: Case) -> str:
    return "nothing is to be done, and nothing that lives at zero replicas would show the next request"


def _scheduled(case: Case) -> str:
    return f"a schedule decides; without it {_alone(case)}"


def _frozen(case: Case) -> str:
    return f"somebody's brake decides; without it {_alone(case)}"


def _alone(case: Case) -> str:
    replicas = case.alone.replicas
    return "nothing would be known" if isnan(replicas) else f"it would be {count(replicas, 'replica')}"


def _capped(case: Case) -> str:
    return f"{number(case.demand)} are asked for, and {case.plan.spec.maximum} are the most that is allowed"


_WHY: Mapping[Reason, Callable[[Case], str]] = {
    Reason.SERVING: _serving,
    Reason.QUEUED: _queued,
    Reason.GPU_BUSY: _gpu_busy,
    Reason.LOADING: _loading,
    Reason.WARM: _warm,
    Reason.ASLEEP: _asleep,
    Reason.HELD: _held,
    Reason.INCOMPLETE: _incomplete,
    Reason.UNKNOWN: _unknown,
    Reason.NO_WAKER: _no_waker,
    Reason.SCHEDULED: _scheduled,
    Reason.FROZEN: _frozen,
    Reason.CAPPED: _capped,
}
