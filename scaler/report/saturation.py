"""Measures the throughput of a workload's engines at saturation, apart for each MIG slice that they ran on. Pure.

An engine is saturated between two responses that both show waiting requests, at most LONGEST_S apart. It ran on a slice
if, at both times, its pod held exactly one GPU or MIG instance, the same kind. An engine whose target has no name of
such a pod counts if it is the workload's only one. The throughput is generated tokens per second or, if the engine
generates none, finished requests per second.

Speeds relative to the whole GPU are ratios of throughputs. Requests must be alike: the prompt tokens per unit of work
may differ by MIX, because a batch of longer prompts generates fewer tokens at the same speed.

Worked example: an engine of `chat-0` generates 2,000 tokens per second on a whole A100-40GB with requests in its queue,
and later 1,300 on a 3g.20gb: the speed there is 0.65, from which `slice_speed` predicts the other slices.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from exporter.model import Floats, Gpu, PodKey, Quantity, Queue, Samples
from scaler.signals.saturation import LONGEST_S, EngineDevice, SaturatedSums, kind_of
from scaler.signals.usage import Usage

from .history import RATES, counters_of
from .mig import MigModel, base, find
from .profile import SliceThroughput, own_gpus
from .recorded import RecordedPage
from .slice_speed import HIGHEST_SPEED

LEAST_S = 300.0  # of saturation on a slice: ten scrapes of 30 s
MIX = 1.25  # ratio of prompt tokens per unit of work: what a fifth less prefill changes is within the bands
_COUNTED = [list(RATES).index(usage) for usage in (Usage.REQUESTS, Usage.PROMPT, Usage.GENERATED)]


class SliceSpeeds(NamedTuple):
    """What throughputs say of the slices of a GPU model.

    slices:   speeds relative to the whole GPU.
    relative: throughputs by slice if the whole GPU was not measured, in any unit; else empty.
    notes:    what was measured and cannot be used, and why.
    """

    slices: Mapping[str, float]
    relative: Mapping[str, float]
    notes: tuple[str, ...]


def throughputs(
    engines: Mapping[str, Sequence[RecordedPage]],
    gpus: Iterable[Sequence[RecordedPage]],
    matches: Callable[[PodKey], bool],
) -> tuple[SliceThroughput, ...]:
    """engines: responses by the name of the pod, in order of time. gpus: of each exporter. matches: the workload's."""
    exporters = [(pages, [page.at for page in pages]) for pages in gpus]
    sums: dict[EngineDevice, Floats] = {}
    for pod, pages in engines.items():
        for before, page in pairwise(pages):
            seconds = page.at - before.at
            if not 0.0 < seconds <= LONGEST_S or not (_waiting(before.samples) > 0.0 and _waiting(page.samples) > 0.0):
                continue
            kinds = {_kind(_held(exporters, at, matches), pod, only=len(engines) == 1) for at in (before.at, page.at)}
            last, now = (counters_of(each.samples)[_COUNTED] for each in (before, page))
            if len(kinds) == 1 and (kind := kinds.pop()) is not None and (now >= last).any() and not (now < last).any():
                sums[kind] = sums.get(kind, np.zeros(4)) + np.array([seconds, *(now - last)])
    return tuple(SliceThroughput.of(SaturatedSums(kind, *each.tolist())) for kind, each in sorted(sums.items()))


def _waiting(samples: Samples) -> float:
    rows = [row for row, subject in enumerate(samples.subjects) if isinstance(subject, Queue)]
    return float(samples.column(Quantity.REQUESTS_WAITING)[rows].sum()) if rows else float("nan")


def _held(
    exporters: Iterable[tuple[Sequence[RecordedPage], Sequence[float]]], at: float, matches: Callable[[PodKey], bool]
) -> list[Gpu]:
    """The GPUs and instances of the workload's pods alone at a time, by the last response of each exporter."""
    found: dict[tuple[str, str | None], Gpu] = {}
    for pages, times in exporters:
        last = bisect_right(times, at) - 1
        if last >= 0 and at - times[last] <= LONGEST_S:
            samples = pages[last].samples
            # A row without a value is of a GPU that is missing from the response, such as one that was divided.
            present = set(np.flatnonzero(~np.isnan(samples.values).all(axis=1)).tolist())
            found |= {
                (gpu.uuid, gpu.instance): gpu for row, gpu in own_gpus(samples, matches).items() if row in present
            }
    return list(found.values())


def _kind(held: Sequence[Gpu], pod: str, *, only: bool) -> EngineDevice | None:
    mine = [gpu for gpu in held if gpu.pods[0].pod == pod] or (list(held) if only else [])
    return kind_of(mine[0]) if len(mine) == 1 else None


def speeds_of(measured: Iterable[SliceThroughput], mig: MigModel) -> SliceSpeeds:
    """The speeds that throughputs on a GPU of this model show. A GPU that the exporter does not name counts as one."""
    notes: list[str] = []
    by_name: dict[str, SliceThroughput] = {}
    order = [profile.name for profile in mig.profiles]
    for each in measured:
        name = base(each.profile) or mig.whole.name
        where = f"{name} of {each.gpu}" if each.gpu else name
        if each.gpu and find(each.gpu) != mig:
            notes.append(f"{where}: not an {mig.name}")
        elif name not in order:
            notes.append(f"{where}: no profile of an {mig.name}")
        elif each.seconds < LEAST_S:
            notes.append(f"{where}: saturated for {each.seconds:.0f} s, {LEAST_S:.0f} s are needed")
        elif not each.rate > 0.0:
            notes.append(f"{where}: no work was done")
        elif name not in by_name or each.seconds > by_name[name].seconds:
            by_name[name] = each
    ordered = sorted(by_name, key=order.index)
    rates: dict[str, float] = {}
    for name in ordered:
        each, largest = by_name[name], by_name[ordered[0]]
        if each.unit != largest.unit or not _alike(each.prompt_per_unit, largest.prompt_per_unit):
            notes.append(f"{name}: other requests than on {ordered[0]}")
        elif each.rate > HIGHEST_SPEED * largest.rate:
            notes.append(f"{name}: faster than {ordered[0]}")
        else:
            rates[name] = each.rate
    if mig.whole.name in rates:
        whole = rates.pop(mig.whole.name)
        return SliceSpeeds({name: rate / whole for name, rate in rates.items()}, {}, tuple(notes))
    if len(rates) == 1:
        notes.append(f"{ordered[0]}: {rates[ordered[0]]:,.1f} per second, and no whole GPU or second slice to compare")
    return SliceSpeeds({}, rates if len(rates) > 1 else {}, tuple(notes))


def _alike(first: float | None, second: float | None) -> bool:
    """Whether prompts are alike. If no prompts are counted, they are taken as alike."""
    if not first or not second:
        return first == second
    return max(first, second) <= MIX * min(first, second)
