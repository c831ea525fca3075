"""What an explanation is made of: steps with a title, sentences, and perhaps a table. Pure.

The page, the terminal and the documents show every step alike, so a new kind of step needs nothing of them.

Worked example: `Step("winner", "What decides", ("work asks for most: 2.5, so 3 replicas",)).to_document()` has `table`
None; a NaN in a table's row is None.

The steps from pages to signals: what was read, what of it counts, and how it was smoothed. Pure.

Worked example: three pods must answer, one page is 40 s old: `raw` lists the three, `cleaned` says "2 of the 3 pods
that must answer do", and nothing of the third is in its sums.

The steps from signals to a number of replicas: what each objective asks for, which decides, and within which bounds.
Pure.

Worked example: 40 requests at 16 per replica are "40 requests / 16 per replica = 2.5"; the clamp says "2.5 is 3 whole
replicas", and at a maximum of 2 that "at most 2 are allowed".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, inf, isclose, isfinite, isnan, nan
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from scaler.policy.columns import Signal
from scaler.signals.kernels import ewma_fast_slow
from scaler.signals.pods import PageRead
from scaler.signals.smoothing import Rings

from .trace import Case

Cell: TypeAlias = str | float | int | bool | None
Kind: TypeAlias = Literal["raw", "cleaned", "smoothed", "objectives", "winner", "clamp", "orders", "told", "controller"]

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
_LAST = 253402300799.0  # 9999-12-31 23:59:59Z; a keep-warm time of a million years is how some say "never"


@dataclass(frozen=True, slots=True)
class ExplainTable:
    """rows: of as many cells as there are columns. None is not known."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def to_document(self) -> dict[str, Any]:
        rows = [[_plain(cell) for cell in row] for row in self.rows]
        return {"columns": list(self.columns), "rows": rows}


@dataclass(frozen=True, slots=True)
class Step:
    """One step from a page to what the controller does with the number."""

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
    return float(cell) if isfinite(cell) else None


def number(value: float) -> str:
    """As a person writes it: 40, 2.5, 0.125; – where it is not known."""
    if isnan(value):
        return "–"
    if not isfinite(value):
        return "no end"
    places = 2 if abs(value) >= 1.0 else 3
    return f"{value:.{places}f}".rstrip("0").rstrip(".") if value % 1.0 else f"{value:.0f}"


def count(value: float, noun: str, plural: str = "") -> str:
    """`count(1, "replica")` is "1 replica"."""
    return f"{number(value)} {noun if value == 1.0 else plural or noun + 's'}"


def clock(at: float) -> str:
    """ "2026-11-22 10:36:13Z" """  # noqa: D210, D415 - it begins and ends with a quote
    if at > _LAST:
        return "the year 10000 or later"
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%SZ}"


def lasting(seconds: float) -> str:
    """A while: "4 s", "5 min", "1 h 20 min", "3 d"."""
    whole = round(seconds)
    if abs(seconds) < 10.0 and seconds % 1.0:  # noqa: PLR2004 - of so few seconds the tenth counts
        return f"{seconds:.1f} s"
    if whole < 2 * MINUTE_S:
        return f"{whole} s"
    if whole < HOUR_S:
        rest = f" {whole % 60} s" if whole % 60 else ""
        return f"{whole // 60} min{rest}"
    if whole < 2 * DAY_S:
        rest = f" {whole // 60 % 60} min" if whole // 60 % 60 else ""
        return f"{whole // 3600} h{rest}"
    return f"{whole / DAY_S:.0f} d"


NAMES = {Signal.WORK: "work", Signal.KV_CACHE: "kv_cache", Signal.GPU_ENGINE: "gpu_engine"}
UNITS = {Signal.WORK: "requests", Signal.KV_CACHE: "of the KV cache", Signal.GPU_ENGINE: "engine activity"}
# A ring that has turned begins elsewhere than it did: what has left it weighed about 1/1024.
_SAME = 1e-6


def raw(case: Case, pages: Sequence[PageRead] | None) -> Step:
    """pages: as they are now; None where another moment is asked about: single pages are not kept."""
    if pages is None:
        said = f"Single pages are not kept. Of {clock(case.at)} there are the sums below."
        return Step("raw", "What the pages said", (said,))
    columns = ("page", "of", "age", "waiting", "running", "held", "KV", "GPUs", "active", "counts")
    rows = tuple(_row(page) for page in pages)
    fresh = sum(page.fresh for page in pages)
    if not pages:
        return Step("raw", "What the pages say", ("No page is asked for it, and none speaks of it.",))
    said = f"{count(fresh, 'page')} of {len(pages)} can be believed." if fresh < len(pages) else ""
    every = f"All {len(pages)} pages can be believed." if len(pages) > 1 else "Its page can be believed."
    return Step("raw", "What the pages say", (said or every,), ExplainTable(columns, rows))


def _row(page: PageRead) -> tuple[Cell, ...]:
    age = "never" if page.age_s is None else lasting(page.age_s)
    counts = page.why or ("yes" if page.fresh else "no: too old")
    numbers = (page.waiting, page.running, page.held, page.kv_cache, page.gpus, page.gpu_active)
    return page.url, page.of, age, *(None if n is None else round(n, 3) for n in numbers), counts


def cleaned(case: Case) -> Step:
    said = [*_pods(case), *_requests(case), *_replicas(case), *_gpus(case)]
    seen, aside = case.seen, case.aside
    rows: tuple[tuple[Cell, ...], ...] = (
        ("requests waiting", seen.waiting),
        ("requests running", seen.running),
        ("requests held by a gateway", seen.held),
        ("work: requests in hand", aside.latest[Signal.WORK]),
        ("KV cache used, mean", aside.latest[Signal.KV_CACHE]),
        ("GPU engine active, mean", aside.latest[Signal.GPU_ENGINE]),
        ("busiest GPU", seen.busiest_gpu),
    )
    return Step("cleaned", "What of it counts", tuple(said), ExplainTable(("quantity", "value"), _rounded(rows)))


def _pods(case: Case) -> list[str]:
    spec, seen = case.plan.spec, case.seen
    said = []
    if spec.pods and isnan(seen.pods_listed):
        said.append("Which pods must answer is not known: nobody lists them now.")
    elif spec.pods and seen.pods_listed == 0.0:
        said.append("No pod must answer: none is ready, by the list of them.")
    elif spec.pods:
        said.append(f"{number(seen.pods_fresh)} of the {count(seen.pods_listed, 'pod')} that must answer do.")
    if case.aside.imputed:
        factor = seen.pods_listed / seen.pods_fresh
        said.append(
            f"The others are taken to be like them: what is in the pods counts {number(factor)} times. That sizes the "
            "workload and proves no idleness."
        )
    if spec.gateway:
        said.append("Its gateway's page is fresh." if seen.gateway_fresh else "Its gateway does not answer.")
    if case.held:
        said.append(
            f"So its demand is not wholly known, since {clock(case.after.held_since)}. What is fresh is a lower bound."
        )
    if not isnan(case.after.incomplete_since):
        said.append(
            f"Some series are missing, invalid or repeated since {clock(case.after.incomplete_since)}: the sums below "
            "are lower bounds. They may raise the answer; they lower none and prove no idleness."
        )
    if case.aside.sleeping > 0.0:
        said.append(f"{count(case.aside.sleeping, 'engine')} of it are in sleep mode: no capacity until woken.")
    return said


def _requests(case: Case) -> list[str]:
    seen = case.seen
    parts = (("wait", seen.waiting), ("run", seen.running), ("are held by a gateway", seen.held))
    known = [f"{number(value)} {word}" for word, value in parts if not isnan(value)]
    unknown = [
        word for word, value in parts if isnan(value) and (word != "are held by a gateway" or case.plan.spec.gateway)
    ]
    said = [f"Requests: {', '.join(known)}; {number(case.work)} in hand."] if known else []
    if unknown:
        said.append(f"How many {' or '.join(unknown)} is not known.")
    if not isnan(seen.active_at):
        said.append(f"A counter of requests or tokens last rose {_ago(case.at, seen.active_at)}.")
    return [*said, *_probes(case)]


def _probes(case: Case) -> list[str]:
    """Whether regular requests keep it awake, and until when that holds."""
    period, until = case.aside.probe_period, case.aside.regular_until
    if not isnan(until):
        why = "taken for probes, they woke it right after it fell asleep. Then they are looked at anew"
        return [f"Regular requests count until {clock(until)}: {why}."]
    if not isnan(period):
        return [f"Requests as regular as a clock, one each {lasting(period)}, are taken for probes and do not count."]
    return []


def _replicas(case: Case) -> list[str]:
    seen = case.seen
    if isnan(seen.wanted):
        return ["How many replicas the cluster was told to run is not known."]
    said = f"The cluster was told to run {count(seen.wanted, 'replica')}"
    more = [f"{number(seen.ready)} ready" if not isnan(seen.ready) else ""]
    more += [f"{number(seen.pending)} not begun on any node" if seen.pending > 0.0 else ""]
    return [f"{said}; {', '.join(part for part in more if part)}." if any(more) else f"{said}."]


def _gpus(case: Case) -> list[str]:
    aside, seen = case.aside, case.seen
    shown, said = aside.gpus_shown, []
    if not shown + aside.gpus_parts > 0.0:
        return ["No page shows a GPU that is wholly its own."] if aside.gpus_held > 0.0 else []
    engine = shown - aside.gpus_lost - aside.gpus_utilised - aside.gpus_silent
    ways = (
        (engine, "by engine activity"),
        (aside.gpus_utilised, "by utilisation (proves idleness, sizes nothing)"),
        (aside.gpus_silent, "say no activity"),
        (aside.gpus_lost, "lost to a fatal error"),
    )
    told = ", ".join(f"{number(many)} {way}" for many, way in ways if many > 0.0)
    if shown > 0.0:
        held = "" if isnan(aside.gpus_held) else f" of the {number(aside.gpus_held)} that its pods hold"
        said.append(f"Pages show {count(shown, 'GPU')}{held} as wholly its own: {told}.")
    if aside.gpus_parts > 0.0:
        said.append(f"{count(aside.gpus_parts, 'pod')} on shared GPUs are measured by process: idleness alone.")
    if seen.gpus_stale:
        said.append("Some of its GPUs are not seen now, so that idleness cannot be proven.")
    if seen.unproven:
        said.append("A counter of requests or tokens is incomplete, so that idleness cannot be proven.")
    if seen.gpus_blind:
        said.append("One of its GPUs no longer says its activity, so that idleness cannot be proven.")
    return said


def smoothed(case: Case, rings: Rings | None) -> Step:
    """rings: as they are now; None where they are not known."""
    up, down = case.plan.smoothing.up_s, case.plan.smoothing.down_s
    rows: list[tuple[Cell, ...]] = []
    said = [f"A rise is followed with a half-life of {lasting(up)}, a fall with one of {lasting(down)}."]
    for signal, _ in case.plan.spec.targets:
        latest, value = float(case.aside.latest[signal]), float(case.seen.signals[signal])
        rows.append((NAMES[signal], latest, value))
        if isnan(value):
            said.append(f"{NAMES[signal]}: not known.")
            continue
        same = isclose(latest, value, rel_tol=_SAME)
        moved = f"{number(value)}, now and smoothed" if same else f"{number(latest)} now, {number(value)} smoothed"
        said.append(f"{NAMES[signal]}: {moved}.")
        again = None if rings is None else _again(case, rings, signal)
        if again is not None:
            said.append(again)
    if not rows:
        said = ["It has no objective, so nothing is smoothed."]
    return Step("smoothed", "Smoothed once", tuple(said), ExplainTable(("signal", "now", "smoothed"), _rounded(rows)))


def _again(case: Case, rings: Rings, signal: Signal) -> str | None:
    """Whether its window, if that still holds the moment, comes to the same value."""
    then = rings.times <= case.at
    times, values = rings.times[then], rings.values[signal, then]
    known = ~np.isnan(values)
    if not known.any():
        return None
    smoothing = case.plan.smoothing
    up, down = np.array([smoothing.up_s]), np.array([smoothing.down_s])
    first = np.zeros(1, dtype=np.int64)
    value = ewma_fast_slow(times[None].copy(), values[None].copy(), first, up, down, case.at)[0]
    if not isclose(value, case.seen.signals[signal], rel_tol=_SAME, abs_tol=1e-12):
        return "Its window has heard more since, and comes to another value by now."
    back = case.at - times[known][0]
    return f"Its window says the same: {count(known.sum(), 'value')} of the last {lasting(back)}."


def _ago(now: float, at: float) -> str:
    return "just now" if now - at < 1.0 else f"{lasting(now - at)} ago" if now - at < inf else "never"


def _rounded(rows: Sequence[tuple[Cell, ...]]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(tuple(round(cell, 3) if isinstance(cell, float) else cell for cell in row) for row in rows)


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


def _table(rows: tuple[tuple[Cell, ...], ...]) -> ExplainTable:
    return ExplainTable(("objective", "smoothed", "per replica", "replicas"), rows)


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
    return Step(
        "clamp", title, tuple(said), ExplainTable(("bound", "replicas"), tuple((b.name, b.replicas) for b in found))
    )


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
