"""The steps from pages to signals: what was read, what of it counts, and how it was smoothed. Pure.

Worked example: three pods must answer, one page is 40 s old: `raw` lists the three, `cleaned` says "2 of the 3 pods
that must answer do", and nothing of the third is in its sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isclose, isnan

import numpy as np

from ..kernels import ewma_fast_slow
from ..page_reads import PageRead
from ..policy import Signal
from ..signals import Rings
from .case import Case
from .steps import Cell, Step, Table, clock, count, lasting, number

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
    return Step("raw", "What the pages say", (said or every,), Table(columns, rows))


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
    return Step("cleaned", "What of it counts", tuple(said), Table(("quantity", "value"), _rounded(rows)))


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
    return Step("smoothed", "Smoothed once", tuple(said), Table(("signal", "now", "smoothed"), _rounded(rows)))


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
