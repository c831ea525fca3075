"""Explains how targets become replicas: samples, aggregate, smoothing, demand, bounds. Pure.

A step has a title, sentences, and perhaps a table. The page, the terminal and the documents show every step alike, so a
new kind of step needs nothing of them.

Worked example: three pods must answer, one sample is 40 s old: `raw` lists the three, and `cleaned` has "2 of 3 pods
that must answer have fresh samples.", and nothing of the third in its sums. 40 requests at 16 per replica are "40
requests / 16 per replica = 2.5"; the bounds make that 3, and at a maximum of 2 "Not more than 2, its maximum."
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isclose, isfinite, isnan
from typing import Any, Literal, TypeAlias

import numpy as np

from scaler.model import Decision, Evidence
from scaler.policy.columns import OBJECTIVES, Signal
from scaler.policy.trace import LOWER_BOUND
from scaler.signals.kernels import ewma_fast_slow
from scaler.signals.pods import TargetReading
from scaler.signals.smoothing import Rings

from .formats import clock, counted, lasting, number
from .trace import Case

Cell: TypeAlias = str | float | int | bool | None
Kind: TypeAlias = Literal[
    "raw", "cleaned", "smoothed", "objectives", "winner", "clamp", "overrides", "published", "controller"
]

UNITS = {Signal.WORK: "requests", Signal.KV_CACHE: "of the KV cache", Signal.GPU_ENGINE: "engine activity"}
# A ring that is full has lost samples that weighed about 1/1024.
_SAME = 1e-6


@dataclass(frozen=True, slots=True)
class ExplainTable:
    """rows: with as many cells as there are columns. None is unknown. The document has three decimals."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def to_document(self) -> dict[str, Any]:
        rows = [[_plain(cell) for cell in row] for row in self.rows]
        return {"columns": list(self.columns), "rows": rows}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an explanation. Its document: `table` is None without one; a NaN in a row is None."""

    step: Kind
    title: str
    sentences: tuple[str, ...]
    table: ExplainTable | None = None

    def to_document(self) -> dict[str, Any]:
        table = None if self.table is None else self.table.to_document()
        return {"step": self.step, "title": self.title, "sentences": list(self.sentences), "table": table}


def _plain(cell: Cell) -> Cell:
    if not isinstance(cell, float):
        return cell
    return round(float(cell), 3) if isfinite(cell) else None


def raw(case: Case, reads: Sequence[TargetReading] | None, now: float) -> Step:
    """reads: the latest samples of each target at `now`, POSIX seconds; None for the past, of which single targets are
    not stored.
    """
    title = "What the targets report"
    if reads is None:
        return Step("raw", title, (f"Single targets are not stored. The sums of {clock(case.at)} are below.",))
    if not reads:
        return Step("raw", title, ("It has no target.",))
    columns = ("target", "of", "age", "waiting", "running", "held", "KV", "GPUs", "active", "counts")
    fresh = sum(read.fresh for read in reads)
    sentence = f"{fresh} of {counted(len(reads), 'target')} {'has' if fresh == 1 else 'have'} fresh samples."
    newer = sum(read.age_s is not None and now - read.age_s > case.at for read in reads)
    news = (f"{counted(newer, 'target')} answered after this decision: the rows below are newer.",) if newer else ()
    return Step("raw", title, (sentence, *news), ExplainTable(columns, tuple(_row(read) for read in reads)))


def _row(read: TargetReading) -> tuple[Cell, ...]:
    age = "never" if read.age_s is None else lasting(read.age_s)
    counts = read.why or ("yes" if read.fresh else "no: too old")
    numbers = (read.waiting, read.running, read.held, read.kv_cache, read.gpus, read.gpu_active)
    return read.name, read.of, age, *numbers, counts


def cleaned(case: Case) -> Step:
    sentences = [*_pods(case), *_requests(case), *_replicas(case), *_gpus(case)]
    readings, aside = case.readings, case.aside
    rows: tuple[tuple[Cell, ...], ...] = (
        ("requests waiting", readings.waiting),
        ("requests running", readings.running),
        ("requests held by a gateway", readings.held),
        ("work: requests in hand", aside.latest[Signal.WORK]),
        ("KV cache used, mean", aside.latest[Signal.KV_CACHE]),
        ("GPU engine active, mean", aside.latest[Signal.GPU_ENGINE]),
        ("slo: replicas of the work", aside.latest[Signal.SLO]),
        ("busiest GPU", readings.busiest_gpu),
    )
    return Step("cleaned", "What counts", tuple(sentences), ExplainTable(("quantity", "value"), rows))


def _pods(case: Case) -> list[str]:
    spec, readings = case.plan.spec, case.readings
    sentences = []
    if spec.pods and isnan(readings.pods_listed):
        sentences.append("The list of its pods is unknown.")
    elif spec.pods and readings.pods_listed == 0.0:
        sentences.append("No pod must answer: none is ready.")
    elif spec.pods:
        pods = counted(readings.pods_listed, "pod")
        sentences.append(f"{number(readings.pods_fresh)} of {pods} that must answer have fresh samples.")
    if case.aside.imputed:
        factor = readings.pods_listed / readings.pods_fresh
        sentences.append(
            f"The others are imputed: sums over pods are multiplied by {number(factor)}. That sizes it, and proves no "
            "idleness."
        )
    if spec.gateway:
        sentences.append(f"Its gateway has {'' if readings.gateway_fresh else 'no '}fresh samples.")
    if case.held:
        since = clock(case.after.held_since)
        sentences.append(f"Its demand is not completely known since {since}: fresh samples are a lower bound.")
    if not isnan(case.after.incomplete_since):
        sentences.append(
            f"Some series are missing, invalid or repeated since {clock(case.after.incomplete_since)}: the sums below "
            "are lower bounds. They may raise the decision; they neither lower it nor prove idleness."
        )
    if case.aside.sleeping > 0.0:
        sentences.append(f"{counted(case.aside.sleeping, 'engine')} in sleep mode: no capacity until woken.")
    return sentences


def _requests(case: Case) -> list[str]:
    readings, gateway = case.readings, case.plan.spec.gateway
    parts = (("waiting", readings.waiting), ("running", readings.running), ("held by a gateway", readings.held))
    numbers = [f"{number(value)} {word}" for word, value in parts if not isnan(value)]
    unknown = [word for word, value in parts if isnan(value) and (gateway or word != "held by a gateway")]
    sentences = [f"Requests: {', '.join(numbers)}; {number(case.work)} in hand."] if numbers else []
    if unknown:
        sentences.append(f"Unknown: requests {' or '.join(unknown)}.")
    if not isnan(readings.active_at):
        sentences.append(f"A counter of requests or tokens last rose {_ago(case.at, readings.active_at)}.")
    return [*sentences, *_probes(case)]


def _probes(case: Case) -> list[str]:
    """Whether regular requests keep it awake, and until when."""
    period, until = case.aside.probe_period, case.aside.regular_until
    if not isnan(until):
        why = "they were taken for probes, and woke it right after it fell asleep"
        return [f"Regular requests count until {clock(until)}: {why}."]
    if not isnan(period):
        return [f"Regular requests, one each {lasting(period)}, are probes and do not count."]
    return []


def _replicas(case: Case) -> list[str]:
    readings = case.readings
    if isnan(readings.wanted):
        return ["The replicas of the cluster are unknown."]
    parts = [f"The cluster should run {counted(readings.wanted, 'replica')}"]
    parts += [f"{number(readings.ready)} ready"] if not isnan(readings.ready) else []
    parts += [f"{number(readings.pending)} without a node"] if readings.pending > 0.0 else []
    return [f"{', '.join(parts)}."]


def _gpus(case: Case) -> list[str]:
    aside, readings = case.aside, case.readings
    shown = aside.gpus_shown
    if not shown + aside.gpus_parts > 0.0:
        return ["No target shows a GPU that only this workload uses."] if aside.gpus_held > 0.0 else []
    engine = shown - aside.gpus_lost - aside.gpus_utilised - aside.gpus_silent
    ways = (
        (engine, "by engine activity"),
        (aside.gpus_utilised, "by utilization (proves idleness, sizes nothing)"),
        (aside.gpus_silent, "without activity"),
        (aside.gpus_lost, "lost to a fatal error"),
    )
    sentences = []
    if shown > 0.0:
        held = f" of {number(aside.gpus_held)} that its pods request" if shown <= aside.gpus_held else ""
        parts = ", ".join(f"{number(many)} {way}" for many, way in ways if many > 0.0)
        sentences.append(f"Targets show {counted(shown, 'GPU')}{held} as its own: {parts}.")
    if shown > aside.gpus_held:
        sentences.append(
            f"Its running pods request {number(aside.gpus_held)}: a pod has ended since that sample, or uses more."
        )
    if aside.gpus_parts > 0.0:
        sentences.append(f"{counted(aside.gpus_parts, 'pod')} on shared GPUs, measured by process: for idleness alone.")
    if readings.gpus_stale:
        sentences.append("Some of its GPUs have no fresh samples, so idleness cannot be proven.")
    if readings.unproven:
        sentences.append("A counter of requests or tokens is incomplete, so idleness cannot be proven.")
    if readings.gpus_blind:
        sentences.append("A GPU no longer reports its activity, so idleness cannot be proven.")
    return sentences


def smoothed(case: Case, rings: Rings | None) -> Step:
    """rings: the sample windows as of now; None if unknown."""
    up, down = case.plan.smoothing.up_s, case.plan.smoothing.down_s
    rows: list[tuple[Cell, ...]] = []
    sentences = [f"Half-life of a rise: {lasting(up)}, of a fall: {lasting(down)}."]
    for signal, _ in case.targets:
        if signal is Signal.SLO:
            continue
        latest, value = float(case.aside.latest[signal]), float(case.readings.signals[signal])
        rows.append((OBJECTIVES[signal], latest, value))
        if isnan(value):
            sentences.append(f"{OBJECTIVES[signal]}: unknown.")
            continue
        same = isclose(latest, value, rel_tol=_SAME)
        text = f"{number(value)}, now and smoothed" if same else f"{number(latest)} now, {number(value)} smoothed"
        sentences.append(f"{OBJECTIVES[signal]}: {text}.")
        if rings is not None and (check := _window_check(case, rings, signal)) is not None:
            sentences.append(check)
    if not rows:
        sentences = [
            "Arriving work is smoothed as it is counted."
            if case.targets
            else "It has no objective, so nothing is smoothed."
        ]
    table = ExplainTable(("signal", "now", "smoothed"), tuple(rows)) if rows else None
    return Step("smoothed", "Smoothed signals", tuple(sentences), table)


def _window_check(case: Case, rings: Rings, signal: Signal) -> str | None:
    """Whether the window, if it still has that moment, gives the same value."""
    then = rings.times <= case.at
    times, values = rings.times[then], rings.values[signal, then]
    valid = ~np.isnan(values)
    if not valid.any():
        return None
    smoothing = case.plan.smoothing
    up, down = np.array([smoothing.up_s]), np.array([smoothing.down_s])
    first = np.zeros(1, dtype=np.int64)
    value = ewma_fast_slow(times[None].copy(), values[None].copy(), first, up, down, case.at)[0]
    if not isclose(value, case.readings.signals[signal], rel_tol=_SAME, abs_tol=1e-12):
        return "Its window has newer samples, and gives another value now."
    since = lasting(case.at - times[valid][0])
    return f"Its window gives the same: {counted(valid.sum(), 'value')} of the last {since}."


def _ago(now: float, at: float) -> str:
    return "just now" if now - at < 1.0 else f"{lasting(now - at)} ago" if now - at < inf else "never"


def objectives(case: Case, decision: Decision | None = None) -> Step:
    """decision: the one of the Board, with the attainment of the SLO; None for the past."""
    sentences, rows = [], []
    for signal, target in case.targets:
        # Of an SLO the arriving work; its signal is the size that follows from it.
        value = float((case.aside.latest if signal is Signal.SLO else case.readings.signals)[signal])
        rows.append((OBJECTIVES[signal], value, target, float(case.verdict.demand[signal])))
        sentences.append(_demand(case, signal, target))
    if not rows:
        sentences = ["It has no objective: while awake it has its minimum."]
    if decision is not None and decision.evidence.slo is not None:
        slo = decision.evidence.slo
        sentences.append(f"{slo[0].upper()}{slo[1:]}.")
        sentences.extend(_capacity(decision.evidence))
    if decision is not None:
        sentences.extend(_request_time(decision.evidence))
    table = ExplainTable(("objective", "smoothed", "per replica", "replicas"), tuple(rows))
    return Step("objectives", "Demand of each objective", tuple(sentences), table)


def _capacity(evidence: Evidence) -> Iterator[str]:
    """The request rate of one replica, and why the headroom is larger than usual."""
    if evidence.request_replica_s is None or evidence.step_s is None:
        return
    rate, step = number(1.0 / evidence.request_replica_s), number(1000.0 * evidence.step_s)
    yield f"One replica serves {rate} requests per second: an empty decode step takes {step} ms, as the engine shows."
    if evidence.headroom_times is not None and evidence.headroom_times > 1.0:
        times = number(evidence.headroom_times)
        yield f"More requests missed the SLO than the error budget allows: the headroom is {times} times as large."
    yield from _burst(evidence)


def _burst(evidence: Evidence) -> Iterator[str]:
    if evidence.burst_replicas:
        yield f"{counted(evidence.burst_replicas, 'replica')} stay for a burst like the last one, two hours at most."


def _request_time(evidence: Evidence) -> Iterator[str]:
    """How the time of a request sizes the workload, without counters of tokens."""
    seconds, each, slower, full, work = (
        evidence.request_s,
        evidence.replica_requests,
        evidence.request_slowdown,
        evidence.replica_full,
        evidence.request_replica_s,
    )
    if seconds is None or each is None or slower is None or full is None or work is None:
        return
    rate = number(each / seconds)
    yield (
        f"No tokens are counted. {counted(each, 'request')} in hand per replica at {rate} requests per second, the "
        f"means of the last ones: a request takes {number(seconds)} s (Little's law)."
    )
    yield (
        f"Each further one adds {number(100.0 * slower)} % of the time of one alone, so a replica is full at "
        f"{counted(full, 'request')}, and serves {number(1.0 / work)} per second."
    )
    yield from _burst(evidence)


def _demand(case: Case, signal: Signal, target: float) -> str:
    name, value, demand = OBJECTIVES[signal], float(case.readings.signals[signal]), float(case.verdict.demand[signal])
    if isnan(demand):
        effect = "It only raises, so the others decide." if signal is Signal.KV_CACHE else "So nothing is lowered."
        return f"{name}: unknown. {effect}"
    if signal is Signal.SLO and case.plan.spec.start_within is not None:
        enough = number(float(case.aside.latest[signal]))
        return f"{name}: {enough} would start each job in time now; with the hold it needs {number(demand)}."
    if signal is Signal.SLO:
        work = counted(float(case.aside.latest[signal]), "replica")
        return f"{name}: work for {work} arrives; with headroom, rounding and the hold it needs {number(demand)}."
    if isnan(value):
        return f"{name}: no replica is ready, so it needs none."
    if signal is Signal.WORK:
        return f"{name}: {counted(value, 'request')} / {number(target)} per replica = {number(demand)}."
    if demand == 0.0 and value > 0.0:
        return f"{name}: no replica is ready to carry it, so it needs none."
    carried = f"{number(value)} {UNITS[signal]} on average × {counted(case.ready, 'replica')}"
    return f"{name}: {carried} / target {number(target)} = {number(demand)}."


def winner(case: Case) -> Step:
    demand, whole = case.trace.demand, case.trace.bounds.whole
    if case.held:
        sentence = "None: a reading of its demand is missing. The rest is a lower bound."
    elif case.largest is None:
        sentence = "None: no objective has demand."
    else:
        which = "The only one" if len(case.targets) == 1 else "The largest"
        so = f"{number(demand)}, so {counted(whole, 'replica')}" if whole != demand else number(whole)
        sentence = f"{which}, {OBJECTIVES[case.largest]}: {so}."
    return Step("winner", "Deciding objective", (sentence,))


def _bounds(case: Case) -> list[tuple[str, float, str]]:
    """The demand, and each bound that changes the replicas of an awake workload, in the policy's order: its name, the
    replicas after it, and its sentence.
    """
    spec, after, lower_bound = case.plan.spec, case.after, case.trace.branch == LOWER_BOUND
    whole, sized, minimum, start, maximum, last = case.trace.bounds
    least = "one replica while it is awake" if spec.minimum <= 1 else f"{spec.minimum}, its minimum"
    young = f"it began without state and has short windows until {clock(after.floor_until)}"
    partial = "a mean is over a part of its engines or GPUs"
    if lower_bound:
        partial = f"readings are lower bounds since {clock(after.incomplete_since)}"
    requests = f"Readings are lower bounds: the requests that are known need {number(sized)}."
    hysteresis = ("requests", sized, requests) if lower_bound else ("band", *_band(case))
    chain = (
        ("demand", whole, ""),
        hysteresis,
        ("minimum", minimum, f"Not fewer than {least}."),
        ("start", start, f"Not fewer than the {number(start)} of the cluster: {young}."),
        ("maximum", maximum, f"Not more than {spec.maximum}, its maximum."),
        ("last answer", last, f"Not fewer than the last {number(last)}: {partial}."),
    )
    return [chain[0], *(bound for before, bound in pairwise(chain) if bound[1] != before[1])]


def _band(case: Case) -> tuple[float, str]:
    """The replicas after hysteresis, and its sentence. No demand is below zero: if only such a demand went lower, the
    minimum decides, and hysteresis changes nothing.
    """
    stepped, last, band = case.trace.bounds.sized, case.before.replicas, case.plan.spec.band
    edge = stepped - 1 - band
    if edge < 0.0:
        return case.trace.bounds.whole, ""
    way = "stays at" if stepped == last else f"goes down from {number(last)} to"
    below, demand = f"{number(stepped - 1)} - {number(band)} = {number(edge)}", number(case.trace.demand)
    return stepped, f"It {way} {number(stepped)}: hysteresis goes lower at a demand of {below}, and it is {demand}."


def clamp(case: Case) -> Step:
    title, spec = "Bounds", case.plan.spec
    if case.held:
        return Step("clamp", title, tuple(_held(case)))
    if isnan(case.trace.replicas) and case.trace.branch == LOWER_BOUND:
        return Step("clamp", title, ("Its demand is unknown, and there is no decision to hold.",))
    found, end = _bounds(case), counted(case.trace.bounds.last, "replica")
    sentences = [sentence for *_, sentence in found if sentence]
    if not sentences:
        sentences = [f"{end}, within {spec.minimum} to {spec.maximum}: no bound changes it."]
    table = ExplainTable(("bound", "replicas"), tuple((name, replicas) for name, replicas, _ in found))
    awake = f"Awake it would have {end}" if case.trace.replicas == 0.0 else f"So {end} while it is awake"
    return Step("clamp", title, (*sentences, f"{awake}."), table)


def _held(case: Case) -> list[str]:
    spec, since, last = case.plan.spec, case.after.held_since, case.before.replicas
    missing = f"Readings are missing since {clock(since)}"
    if spec.jobs and case.trace.replicas != 0.0:
        return [
            f"{missing}. A number of Jobs is never held, because each Job that ends would be replaced.",
            "Only requests that are known count; without any the decision is unknown.",
        ]
    if isnan(case.trace.replicas) and case.at - since <= spec.hold:
        return [f"{missing}, and there is no decision to hold."]
    if isnan(case.trace.replicas):
        return [f"{missing}, for longer than {lasting(spec.hold)}, the time of a hold: the decision is unknown."]
    sentences = [f"{missing}, so its last decision holds."]
    if not isnan(last):
        sentences.append(f"The last was {counted(last, 'replica')}. Fresh samples may raise it and never lower it.")
    else:
        sentences.append("There was none: the replicas of the cluster are held.")
    if case.trace.replicas == 0.0:
        sentences.append("It stays asleep: an error would let KEDA's fallback wake it.")
    elif since + spec.hold < inf:
        sentences.append(f"After {clock(since + spec.hold)} callers get an error.")
    return sentences
