"""The past of a workload whose pages are in a Prometheus: its windows are full when the daemon has just begun.

The pages of the last minutes are read again, moment by moment, by a decider of their own, as if they had come in then;
what is kept of that is its windows. Its answers are nobody's: nothing that was is told to anybody now. Pure; who has
the pages of the past is somebody else's business.

Worked example: 128 moments of 5 s each, of three pods: 384 pages are read in about 0.1 s, and a fall in demand two
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
    """What the pages said at one moment, POSIX seconds. Who was not there, or failed, has no page."""

    at: float
    pages: Mapping[Target, bytes]


def replay_past(
    plan: WorkloadSpec, moments: Iterable[PastScrape], *, interval_s: float, fresh_intervals: float
) -> Decider:
    """A decider of this workload alone that has seen those moments, oldest first."""
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
