"""The steps from signals to a number of replicas: what each objective asks for, which decides, and within which bounds.
Pure.

Worked example: 40 requests at 16 per replica are "40 requests / 16 per replica = 2.5"; the clamp says "2.5 is 3 whole
replicas", and at a maximum of 2 that "at most 2 are allowed".
"""

from __future__ import annotations

from math import ceil, inf, isnan, nan
from typing import NamedTuple

from ..policy import Signal
from .case import Case
from .seen import NAMES, UNITS
from .steps import Cell, Step, Table, clock, count, lasting, number

# As in the policy: sums of ratios carry errors near 1e-16 of their size.
DUST = 1e-9


def objectives(case: Case) -> Step:
    said, rows = [], []
    for signal, target in case.plan.spec.targets:
        value, asked = float(case.seen.signals[signal]), float(case.verdict.demand[signal])
        said.append(_asks(case, signal, target))
        rows.append((NAMES[signal], _round(value), target, _round(asked)))
    if not rows:
        said = ["It has no objective: awake it has its minimum, and nothing asks for more."]
    return Step("objectives", "What each objective asks for", tuple(said), _table(tuple(rows)))


def _table(rows: tuple[tuple[Cell, ...], ...]) -> Table:
    return Table(("objective", "smoothed", "per replica", "replicas"), rows)


def _asks(case: Case, signal: Signal, target: float) -> str:
    name, value, asked = NAMES[signal], float(case.seen.signals[signal]), float(case.verdict.demand[signal])
    if isnan(asked):
        alone = "It only ever adds, so the others decide." if signal is Signal.KV_CACHE else "So nothing is lowered."
        return f"{name}: not known. {alone}"
    if isnan(value):
        return f"{name}: nothing is ready, so nothing is in the pods, and it asks for none."
    if signal is Signal.WORK:
        return f"{name}: {count(value, 'request')} / {number(target)} per replica = {number(asked)}."
    ready = ready_replicas(case)
    if asked == 0.0 and value > 0.0:
        return f"{name}: nothing is ready to carry it, so it asks for none."
    return (
        f"{name}: {number(value)} {UNITS[signal]} on average × {count(ready, 'replica')} / {number(target)} wanted = "
        f"{number(asked)}."
    )


def ready_replicas(case: Case) -> float:
    return float(case.seen.pods_fresh if isnan(case.seen.ready) else case.seen.ready)


def largest(case: Case) -> Signal | None:
    """The objective that asks for the most; None where none is known, or none asks for anything."""
    known = [(float(case.verdict.demand[signal]), signal) for signal, _ in case.plan.spec.targets]
    asked, signal = max(((d, s) for d, s in known if d > 0.0), key=lambda pair: pair[0], default=(0.0, None))
    return signal if asked > 0.0 else None


def winner(case: Case) -> Step:
    return Step("winner", "Which of them decides", (_winner(case),))


def _winner(case: Case) -> str:
    if case.held:
        return "None: something that its demand rests on is missing. What is known of it is a lower bound."
    signal = largest(case)
    if signal is None:
        return "None: no objective asks for anything."
    whole = ceil(case.demand - DUST)
    of = "The only one" if len(case.plan.spec.targets) == 1 else "The largest"
    so = f"{number(case.demand)}, so {count(whole, 'whole replica')}" if whole != case.demand else number(whole)
    return f"{of}, {NAMES[signal]}: {so}."


class Bound(NamedTuple):
    """One bound, the replicas after it, and why."""

    name: str
    replicas: float
    said: str = ""


def bounds(case: Case) -> list[Bound]:
    """From whole replicas to those within every bound, in the policy's order; of a demand that is wholly known."""
    spec, after, found = case.plan.spec, case.after, []
    replicas: float = ceil(case.demand - DUST)
    found.append(Bound("demand", replicas))
    stepped = steps(case.demand, case.before.replicas if case.before.active else nan, spec.band)
    if stepped != replicas:
        at = f"{number(stepped - 1)} - {number(spec.band)} = {number(stepped - 1 - spec.band)}"
        down = "stays at" if stepped == case.before.replicas else f"goes down from {number(case.before.replicas)} to"
        found.append(
            Bound(
                "band",
                stepped,
                f"It {down} {number(stepped)}: fewer are taken once the demand is at or below {at}, and it is "
                f"{number(case.demand)}.",
            )
        )
    least = max(1.0, spec.minimum)
    if least > found[-1].replicas:
        why = "one replica while it is awake" if spec.minimum <= 1 else f"at least {spec.minimum}, its minimum"
        found.append(Bound("minimum", least, f"Not fewer than {why}."))
    if after.floor > found[-1].replicas:
        found.append(
            Bound(
                "start",
                after.floor,
                f"Not fewer than the {number(after.floor)} that the cluster had: it began without a memory, and until "
                f"{clock(after.floor_until)} its windows do not say enough.",
            )
        )
    if not isnan(after.incomplete_since) and not case.aside.imputed and case.before.replicas > found[-1].replicas:
        found.append(
            Bound(
                "last answer",
                case.before.replicas,
                f"Not fewer than the {number(case.before.replicas)} of the last answer: readings are lower bounds "
                f"since {clock(after.incomplete_since)}.",
            )
        )
    if spec.maximum < found[-1].replicas:
        found.append(Bound("maximum", spec.maximum, f"Not more than {spec.maximum}, its maximum."))
    return found


def steps(demand: float, current: float, band: float) -> float:
    """As the policy's: whole replicas, up at once, down only when demand has left the step by `band`."""
    up = ceil(demand - DUST)
    if isnan(current) or up >= current:
        return up
    return min(current, ceil(demand + band - DUST))


def clamp(case: Case) -> Step:
    title = "Within its bounds"
    if case.held or isnan(case.demand):
        return Step("clamp", title, tuple(_held(case)))
    found = bounds(case)
    said = [bound.said for bound in found if bound.said]
    end = found[-1].replicas
    if not said:
        said = [f"{count(end, 'replica')}, within {_between(case)}: no bound changes it."]
    said.append(f"So {count(end, 'replica')} while it is awake.")
    return Step("clamp", title, tuple(said), Table(("bound", "replicas"), tuple((b.name, b.replicas) for b in found)))


def _between(case: Case) -> str:
    return f"{case.plan.spec.minimum} to {case.plan.spec.maximum}"


def _held(case: Case) -> list[str]:
    spec, since = case.plan.spec, case.after.held_since
    last = case.before.replicas
    if isnan(since):
        return ["Nothing of its demand is known, and there is no answer to hold."]
    if spec.jobs and case.alone.replicas != 0.0:
        return [
            f"Readings are missing since {clock(since)}. No number of Jobs is held: each that ends is replaced.",
            "Only what is seen to do is asked for; where that is nothing, nothing is known.",
        ]
    if isnan(case.alone.replicas) and case.at - since <= spec.hold:
        return [f"Readings are missing since {clock(since)}, and there is no answer to hold."]
    if isnan(case.alone.replicas):
        long = f"for longer than {lasting(spec.hold)}, which is how long an answer is held"
        return [f"Readings are missing since {clock(since)}, {long}: from then on nothing is known."]
    said = [f"Readings are missing since {clock(since)}, so its answer is held."]
    if not isnan(last):
        said.append(f"The last was {count(last, 'replica')}. What is fresh may raise it and lower nothing.")
    else:
        said.append("There was none before: what the cluster has is held.")
    if case.alone.replicas == 0.0:
        said.append("It sleeps on: an error would let KEDA's fallback wake it.")
    elif since + spec.hold < inf:
        said.append(f"Until {clock(since + spec.hold)}: then it is an error to whoever asks.")
    return said


def _round(value: float) -> float:
    return round(value, 3)
