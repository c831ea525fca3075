"""Backfills the windows of a workload with targets in a Prometheus: they are full when the daemon starts.

A decider of its own reads the responses of the last minutes again, moment by moment; its windows are kept, and its
decisions are published nowhere.

Worked example: 128 moments of 5 s each, of three pods: 384 responses are read in about 0.1 s, and a fall in demand two
minutes ago is still being smoothed, where an empty window would have made it a fall of this moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from exporter.catalog import Reader
from exporter.discovery import Discovery
from exporter.model import Failure, Role, Target
from exporter.scrape.request import read
from exporter.sources.promql import PromqlTargets
from exporter.textformat import Scanner
from scaler.config import Config
from scaler.signals.smoothing import LENGTH
from scaler.workloads.spec import WorkloadSpec

from .decider import Decider


class PastScrape(NamedTuple):
    """The responses of one moment, POSIX seconds. A target that failed has none."""

    at: float
    pages: Mapping[Target, bytes]


async def relive(plan: WorkloadSpec, found: Sequence[Discovery], config: Config, until: float) -> Decider | None:
    """A decider of the workload with full windows; None if not all its targets are in a Prometheus, or it fails.

    found: the discoveries of its targets. until: POSIX seconds.
    """
    targets = [source for source in found if isinstance(source, PromqlTargets)]
    if not targets or len(targets) < len(found):
        return None
    log, step = structlog.get_logger(), config.scrape.interval
    moments = await fetch_past(targets, until, step)
    if isinstance(moments, Failure):
        log.warning("backfill failed", workload=str(plan.workload), detail=moments.detail)
        return None
    times = {"interval_s": step, "fresh_intervals": config.freshness.intervals}
    relived = await asyncio.to_thread(replay_past, plan, moments, **times)
    log.info("backfill complete", workload=str(plan.workload), moments=len(moments))
    return relived


async def fetch_past(sources: Sequence[PromqlTargets], until: float, step: float) -> list[PastScrape] | Failure:
    """Returns what fills the windows until `until`, POSIX seconds, one moment every `step` seconds; oldest first.

    The failure of one source is that of all: a part of a sum is no sum.
    """
    pasts = [await source.history(until - step * (LENGTH - 1), until, step) for source in sources]
    frames = []
    for past in pasts:
        if isinstance(past, Failure):
            return past
        frames.append(past)
    return [
        PastScrape(same[0].at, {target: page for frame in same for target, page in frame.pages.items()})
        for same in zip(*frames, strict=True)
    ]


def replay_past(
    plan: WorkloadSpec, moments: Iterable[PastScrape], *, interval_s: float, fresh_intervals: float
) -> Decider:
    """Returns a decider of this workload alone after those moments, oldest first."""
    decider = Decider([plan], interval_s=interval_s, fresh_intervals=fresh_intervals)
    readers: dict[Target, tuple[Reader, Scanner]] = {}
    there: set[Target] = set()
    for moment in moments:
        for gone in there - moment.pages.keys():
            decider.retire(gone)
        there = set(moment.pages)
        decider.listed(plan.workload, sum(target.role is Role.PODS for target in there))
        for target in there:
            decider.expect(target)
        for target, page in moment.pages.items():
            reader, scanner = readers.setdefault(target, (Reader(target.kind), Scanner()))
            samples = read(page, reader, scanner, moment.at)
            if not isinstance(samples, Failure):
                decider.land(target, samples, moment.at, moment.at)
    return decider
