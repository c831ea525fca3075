"""Counters through time to a load: how many requests were finished between two looks, and how many tokens they had.

It knows counters of sources (pods) at moments that are evenly apart, and which moments the server knew anything at. An
engine counts what is finished, so a request arrives here when it was finished: late by as long as its answer took.

What counters say, and what they do not:
- Of sources that are there at the beginning only what they count from then on is known. A later source began at
  zero; a falling counter was reset by a restart, and counts from zero again.
- What was counted between two looks that are far apart (a failed scrape, a server that was down) is spread evenly over
  the time between: how much is known, when is not. What pods counted that did not outlive such a gap is not known at
  all, so gaps are said, and are not taken for silence.
- A workload without any pod while the server scrapes others was at zero: that is silence.

Within a step requests are spread by chance, and have the step's mean lengths; tokens of a step in which nothing was
finished belong to whatever is finished next. Sums are kept to the token.

Worked example: finished [10, 12, 12, 3] with 15 s between is 2 requests in the first step, none in the second, and 3
in the third, in which the pod was restarted.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from exporter.model import Floats
from scaler.config.scalars import write_duration

from ..columns import Ints, Mask
from .recorded import BadLoad, Recorded, recorded

REQUESTS, PROMPT, OUTPUT = range(3)
COUNTERS = 3
SETTLING_S = 60.0  # who is first seen so soon after the beginning may have been there before


class CountedSample(NamedTuple):
    """The samples that a Prometheus has of a workload.

    at:       shape (moments,), POSIX seconds, evenly apart.
    heard:    shape (moments,), whether the server knew anything of anybody.
    counters: shape (sources, moments, COUNTERS), NaN where nothing is known.
    """

    at: Floats
    answered: Mask
    counters: Floats


def load_of(name: str, counted: CountedSample, seed: int) -> Recorded:
    """The load behind the counters; it begins at the first moment that is known. Raises BadLoad."""
    has_values = np.isfinite(counted.counters).any(axis=(0, 2))
    if not has_values.any():
        raise BadLoad(f"{name}: no counter of its requests is known in this time")
    begin = int(np.argmax(has_values | counted.answered))
    rises = increases(counted)
    whole = np.round(np.cumsum(rises[:, REQUESTS])).astype(np.int64)
    if not whole[-1]:
        raise BadLoad(f"{name}: no request was finished in this time")
    if not rises[:, PROMPT].any() and not rises[:, OUTPUT].any():
        raise BadLoad(f"{name}: its pages count {whole[-1]} requests and no tokens: lengths cannot be made up")
    step_s = float(counted.at[1] - counted.at[0])
    counts = np.diff(whole, prepend=0)
    steps = np.repeat(np.arange(len(counts)), counts)
    chance = np.random.default_rng(seed).uniform(size=len(steps))
    # What was counted at a moment came in the step before it.
    at = np.sort((steps - 1 + chance) * step_s) - begin * step_s
    prompt, output = (_shares(rises[:, which], counts) for which in (PROMPT, OUTPUT))
    return recorded(name, np.maximum(at, 0.0), prompt, output, _notes(name, counted, rises, begin))


def increases(counted: CountedSample) -> Floats:
    """Increases in the step before each moment, shape (moments, COUNTERS); fractions where one was spread."""
    at, answered, counters = counted
    rises = np.zeros((len(at), COUNTERS))
    is_finite = np.isfinite(counters)
    beginning = int(np.argmax(is_finite.any(axis=(0, 2))))
    settled = np.searchsorted(at, at[beginning] + SETTLING_S, side="right")
    spoke = answered | is_finite.any(axis=(0, 2))
    for source, which in np.ndindex(len(counters), COUNTERS):
        values = counters[source, :, which]
        places = np.flatnonzero(is_finite[source, :, which])
        if not len(places):
            continue
        first = int(places[0])
        if first >= settled and values[first] > 0.0:
            before = np.flatnonzero(spoke[:first])
            _spread(rises[:, which], int(before[-1]) if len(before) else first - 1, first, values[first])
        for one, two in pairwise(places):
            rise = values[two] - values[one] if values[two] >= values[one] else values[two]
            if rise > 0.0:
                _spread(rises[:, which], int(one), int(two), rise)
    return rises


def _spread(rises: Floats, one: int, two: int, amount: float) -> None:
    rises[one + 1 : two + 1] += amount / (two - one)


def _shares(rises: Floats, counts: Ints) -> Ints:
    """Tokens of each request: those since the requests before, in equal parts that are whole; shape (requests,)."""
    busy = np.flatnonzero(counts)
    until = np.round(np.cumsum(rises)).astype(np.int64)
    ends = np.append(until[busy[:-1]], until[-1])  # what is counted after the last request is its own
    each, more = np.divmod(np.diff(ends, prepend=0), counts[busy])
    rank = np.arange(counts.sum()) - np.repeat(np.cumsum(counts[busy]) - counts[busy], counts[busy])
    return np.repeat(each, counts[busy]) + (rank < np.repeat(more, counts[busy]))


def _notes(name: str, counted: CountedSample, rises: Floats, begin: int) -> tuple[str, ...]:
    at, answered, counters = counted
    notes = [f"{name}: arrivals are when requests were finished, as engines count them; lengths are means of a step"]
    for which, kind in ((PROMPT, "prompt"), (OUTPUT, "generated")):
        if not rises[:, which].any():
            notes.append(f"{name}: its pages count no {kind} tokens: each request has 1")
    if begin:
        notes.append(f"{name}: the server knows nothing from before {_moment(at[begin])}")
    spoke = answered | np.isfinite(counters).any(axis=(0, 2))
    edges = np.flatnonzero(np.diff(np.concatenate([[True], spoke[begin:], [True]]).astype(int)))
    gaps = [(begin + one, begin + two) for one, two in zip(edges[::2], edges[1::2], strict=True)]
    if gaps:
        step_s = float(at[1] - at[0])
        longest = max(gaps, key=lambda gap: gap[1] - gap[0])
        total = sum(two - one for one, two in gaps) * step_s
        notes.append(
            f"{name}: the server knew nothing for {write_duration(round(total))} in {len(gaps)} "
            f"gap{'s' * (len(gaps) > 1)}, the longest from {_moment(at[longest[0]])}: what was counted across is "
            "spread evenly over it, what was counted by pods that did not outlive it is missing"
        )
    return tuple(notes)


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
