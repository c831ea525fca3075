"""Splits the observations of cumulative histograms at a limit that need not be the bound of a bucket. Pure.

The bounds that matter are the largest one at or below the limit and the smallest one at or above it. Between them the
observations are divided by linear interpolation. Nothing is estimated if the bound above is further than `NEAR` times
the limit, if there is no +Inf bucket, or if the buckets are not cumulative.

Worked example: buckets up to 1, 2.5 and +Inf have 90, 96 and 100 observations. Split at 2 s, 90 are within and 4 are
late; of the 6 between 1 and 2.5 s interpolation counts (2 - 1) / 1.5 = two thirds, 4, as within and 2 as late.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Neighbouring bounds of vLLM's and SGLang's histograms from 5 ms to 160 s are at most 2.5 times apart.
NEAR = 2.5
_MOST = 1e18  # observations; more are no count


class Latency(StrEnum):
    """The latencies, in seconds, that an engine's histograms count."""

    TTFT = "time_to_first_token"  # of each request that has a first token
    TPOT = "time_per_output_token"  # mean of each finished request; of engines without it, each time between two tokens


class Split(NamedTuple):
    """The observations of histograms at a limit: four counters, which add up to all observations.

    within: at or below the bound below the limit. late: above the bound above it.
    likely_within, likely_late: those between the two bounds, divided by interpolation.
    """

    within: float
    likely_within: float
    likely_late: float
    late: float


@dataclass(frozen=True, slots=True)
class LatencyBuckets:
    """The buckets of one histogram. bounds: seconds, ascending. series: the index of each among a response's series."""

    bounds: tuple[float, ...]
    series: tuple[int, ...]


# Of a subject: its histograms, which add up, and of each one the copies, of which the one with the most observations
# counts.
Parts = tuple[tuple[LatencyBuckets, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class LatencyHistograms:
    """The histograms of one response.

    values: of all its series. parts: by the row of the subject.
    """

    values: NDArray[np.float64]
    parts: Mapping[Latency, Mapping[int, Parts]]

    def split(self, latency: Latency, rows: Iterable[int], limit: float) -> Split | None:
        """The observations of these subjects at a limit in seconds.

        None if there is no subject, or if a histogram of one of them cannot be split at the limit.
        """
        parts = self.parts.get(latency)
        if parts is None:
            return None
        splits = [self._largest(copies, limit) for row in rows for copies in parts.get(row, ((),))]
        whole = [each for each in splits if each is not None]
        if not whole or len(whole) < len(splits):
            return None
        return whole[0] if len(whole) == 1 else Split(*map(sum, zip(*whole, strict=True)))

    def _largest(self, copies: Sequence[LatencyBuckets], limit: float) -> Split | None:
        if len(copies) == 1:
            return self._split(copies[0], limit)
        splits = (self._split(buckets, limit) for buckets in copies)
        return max((each for each in splits if each is not None), key=sum, default=None)

    def _split(self, buckets: LatencyBuckets, limit: float) -> Split | None:
        bounds, series = buckets.bounds, buckets.series
        above = bisect_left(bounds, limit)
        # A limit beyond the last finite bound: all that is known is that +Inf is above.
        if above == len(bounds) or not bounds[above] <= NEAR * limit or bounds[-1] != inf:
            return None
        high, total = float(self.values[series[above]]), float(self.values[series[-1]])
        if bounds[above] == limit:
            below, low = limit, high
        elif above:
            below, low = bounds[above - 1], float(self.values[series[above - 1]])
        else:  # no time is below 0 s
            below, low = 0.0, 0.0
        if not 0.0 <= low <= high <= total <= _MOST:  # NaN too
            return None
        share = (limit - below) / (bounds[above] - below) if bounds[above] > below else 1.0
        within = (high - low) * share
        return Split(low, within, high - low - within, total - high)


NO_HISTOGRAMS = LatencyHistograms(np.empty(0), MappingProxyType({}))
