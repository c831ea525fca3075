"""Makes moments of a profile from responses that were recorded one by one, at any times. Pure.

Each target has its own times. A moment has of each target the response next to it, if that is not older than MOST_STEPS
steps; a step is the median time between two responses of a target. Rates are those of each target's counters between
its own responses.

Worked example: an engine that was recorded every 10 s for an hour has 361 moments. One whose recording ends after half
an hour is in the first 183 of them, while another goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from exporter.model import Floats, Gpu, PodKey, Queue, Samples
from scaler.report.history import RATES, counters_of
from scaler.report.profile import usage_at

MOST_MOMENTS = 10_000  # a day of every 10 s
MOST_STEPS = 2.5  # a response is as old as that and still counts
SINGLE_S = 60.0  # of targets with one response each


class RecordedPage(NamedTuple):
    """A response. at: POSIX seconds."""

    at: float
    samples: Samples


class Moments(NamedTuple):
    """values: one row of `usage_at` for each of `step_s` seconds until `until`, POSIX seconds."""

    values: list[Floats]
    step_s: float
    since: float
    until: float


def moments_of(targets: Mapping[str, Sequence[RecordedPage]], matches: Callable[[PodKey], bool]) -> Moments:
    """targets: the responses of each, in order of time; at least one. matches: whether a pod is of the workload."""
    begin = min(pages[0].at for pages in targets.values())
    end = max(pages[-1].at for pages in targets.values())
    step_s = _step(targets.values(), end - begin)
    times = {name: np.array([page.at for page in pages]) for name, pages in targets.items()}
    rates = {name: _rates(pages) for name, pages in targets.items()}
    found = []
    for moment in np.arange(begin, end + step_s / 2.0, step_s).tolist():
        last = {name: int(np.searchsorted(at, moment + step_s / 2.0, side="right")) - 1 for name, at in times.items()}
        fresh = [
            name for name, index in last.items() if index >= 0 and moment - times[name][index] <= MOST_STEPS * step_s
        ]
        pages = [targets[name][last[name]].samples for name in fresh]
        engines = [each for each in pages if any(isinstance(subject, Queue) for subject in each.subjects)]
        gpus = [each for each in pages if any(isinstance(subject, Gpu) for subject in each.subjects)]
        values = usage_at(engines, gpus, matches)
        measured = [rates[name][last[name]] for name in fresh if not np.isnan(rates[name][last[name]]).all()]
        if measured:
            values[list(RATES)] = np.sum(measured, axis=0)
        if not np.isnan(values).all():
            found.append(values)
    return Moments(found, step_s, begin, end)


def _step(targets: Iterable[Sequence[RecordedPage]], span_s: float) -> float:
    between = [b.at - a.at for pages in targets for a, b in pairwise(pages) if b.at > a.at]
    return max(float(np.median(between)), span_s / MOST_MOMENTS) if between else SINGLE_S


def _rates(pages: Sequence[RecordedPage]) -> Floats:
    """Per second since the response before, shape (pages, len(RATES)); NaN of the first one."""
    found = np.full((len(pages), len(RATES)), np.nan)
    for index, (before, page) in enumerate(pairwise(pages), 1):
        if page.at > before.at:
            last, now = counters_of(before.samples), counters_of(page.samples)
            found[index] = np.where(now >= last, now - last, now) / (page.at - before.at)
    return found
