"""Decaying histograms of durations, one per workload. Pure.

They are those of the Kubernetes Vertical Pod Autoscaler (kubernetes/autoscaler,
vertical-pod-autoscaler/pkg/recommender/util: `histogram_options.go` for the buckets, `decaying_histogram.go` for the
decay). A value counts half as much after one half-life, a quarter after two. Bucket n is first * growth**n wide, so it
begins at first * (growth**n - 1) / (growth - 1), and a sample at `at` weighs 2**((at - reference) / half_life), so the
decay of older samples needs no work. Without samples every result is NaN, never 0.

Worked example, `Histograms(1, scale(1.0, 1.05, 86400.0), half_life=7 * 86400.0)`: 71 s and 78 s are added now, and
300 s a half-life later, when the weights are 0.5, 0.5 and 1. So the median is in the bucket of 78 s, from 75.3 s to
80.1 s, and `quantile(0.5)` is its upper end, 80.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats
from scaler.columns import Array, Columns, Rows, fitting

GROWTH = 1.05  # VPA's HistogramBucketSizeGrowth (model/aggregations_config.go): no quantile is wrong by more than 5 %

SHORTEST_S, LONGEST_S = 1.0, 14 * 86400.0
# Two weekends. Half as long and a weekend's gaps are forgotten before the next; twice, and a new habit takes a month.
HALF_LIFE_S = 7 * 86400.0
# Weights are kept in single precision, whose largest is 2**127: a row whose newest sample would weigh more than this
# power of two has its reference moved. VPA's maxDecayExponent is 100, in double precision.
_MOST_HALVINGS = 60.0
# The highest restored weight: sums must stay finite.
_HEAVIEST = 2.0**100
# A weight below this counts as none: VPA's epsilon, 0.001 of a sample.
EPSILON = 1e-3


def scale(first: float, growth: float, last: float) -> Floats:
    """Where buckets begin, ascending, shape (buckets,): from 0, the first one `first` wide, until `last` is inside.

    The last bucket is open: it holds all longer values. All in the unit of the values.
    """
    count = int(np.ceil(np.log(last * (growth - 1.0) / first + 1.0) / np.log(growth))) + 1
    return np.asarray(first * (growth ** np.arange(count) - 1.0) / (growth - 1.0), dtype=np.float64)


def middles(edges: Floats) -> Floats:
    """The value that a bucket stands for: its middle; of the open last one, its beginning."""
    return np.append((edges[:-1] + edges[1:]) / 2.0, edges[-1])


def decayed_time(seconds: Floats, half_life: float) -> Floats:
    """The seconds that a decayed sum holds after so many: the sum of a steady rate r is r times this.

    It is the integral of 2**(-t / half_life): half_life / ln 2 * (1 - 2**(-seconds / half_life)).
    """
    return half_life / np.log(2.0) * (1.0 - 2.0 ** -(seconds / half_life))


EDGES = scale(SHORTEST_S, GROWTH, LONGEST_S)


class Histograms:
    """A decaying histogram for each row.

    edges:     where buckets begin, shape (buckets,).
    weights:   shape (rows, buckets), relative to each row's `reference`.
    reference: POSIX seconds, shape (rows,); NaN without samples.
    """

    def __init__(self, rows: int, edges: Floats, half_life: float) -> None:
        """half_life: seconds."""
        self.edges, self.half_life = edges, half_life
        self.weights: NDArray[np.float32] = np.zeros((rows, len(edges)), dtype=np.float32)
        self.reference: Floats = np.full(rows, np.nan)

    def add(self, rows: Rows, values: Floats, at: float) -> None:
        """Adds one value for each of `rows`, measured at `at`; a negative or unknown one is ignored."""
        if not len(rows):  # as in most calls
            return
        valid = np.isfinite(values) & (values >= 0.0)
        rows, values = rows[valid], values[valid]
        np.add.at(self.weights, (rows, self._bucket(values)), self._weigh(rows, at).astype(np.float32))

    def add_at_least(self, rows: Rows, bounds: Floats, at: float) -> None:
        """Adds a censored value for each of `rows`: it is at least `bounds`.

        Its weight is spread over the buckets from there on like the complete values in them; if there is none, it goes
        to the bound's bucket. That is Efron's redistribution to the right, which makes the estimate that of Kaplan and
        Meier (B. Efron, "The two sample problem with censored data", 1967). Without it the long values would be
        missing, because those are censored most.
        """
        if not len(rows):
            return
        valid = np.isfinite(bounds) & (bounds >= 0.0)
        rows, bounds = rows[valid], bounds[valid]
        weight, bucket = self._weigh(rows, at), self._bucket(bounds)
        beyond = np.where(np.arange(len(self.edges)) >= bucket[:, None], self.weights[rows], 0.0)
        mass = beyond.sum(axis=1)
        alone = mass <= EPSILON
        beyond[alone, bucket[alone]] = mass[alone] = 1.0
        np.add.at(self.weights, rows, (weight / mass)[:, None].astype(np.float32) * beyond)

    def weight(self, now: float, rows: Rows | None = None) -> Floats:
        """The number of values, each with its decayed weight; 0 if there are none."""
        weights, reference = self._of(rows)
        total = weights.sum(axis=1, dtype=np.float64) * 2.0 ** -((now - reference) / self.half_life)
        return np.where(np.isnan(reference), 0.0, total)

    def shares(self, rows: Rows | None = None) -> Floats:
        """The part of the values in each bucket, shape (rows, buckets); NaN if there are none."""
        weights = self._of(rows)[0].astype(np.float64)
        total = weights.sum(axis=1, keepdims=True)
        # Decay divides all by the same: the shares do not depend on the time.
        return weights / np.where(total > 0.0, total, np.nan)

    def quantile(self, q: float, rows: Rows | None = None) -> Floats:
        """The quantile `q` (0..1): the upper end of its bucket, as in VPA; NaN without values.

        It is too long by at most the growth of the buckets. Of the last bucket, which has no end, its beginning.
        """
        return self.quantiles((q,), rows)[0]

    def quantiles(self, qs: Sequence[float], rows: Rows | None = None) -> list[Floats]:
        """Several quantiles, for the price of one."""
        running = self._of(rows)[0].cumsum(axis=1, dtype=np.float64)
        total = running[:, -1]
        found = []
        for q in qs:
            # A cumulated sum of single-precision numbers may miss its total by a rounding error.
            bucket = ((running >= (q * total * (1.0 - 1e-9))[:, None]) & (running > 0.0)).argmax(axis=1)
            ends = self.edges[np.minimum(bucket + 1, len(self.edges) - 1)]
            found.append(np.asarray(np.where(total > 0.0, ends, np.nan), dtype=np.float64))
        return found

    def columns(self, name: str) -> dict[str, Array]:
        """The state that a checkpoint keeps: `NAME.weights` and `NAME.reference_at`."""
        return {f"{name}.weights": self.weights, f"{name}.reference_at": self.reference}

    def take(self, name: str, columns: Columns, rows: Rows, source_rows: Rows) -> None:
        """Copies state from `columns[source_rows]` into `rows`, pairwise, if it has the same buckets."""
        weights = fitting(columns, f"{name}.weights", self.weights)
        reference = fitting(columns, f"{name}.reference_at", self.reference)
        if weights is None or reference is None:
            return
        # An invalid weight would spoil every result of its row.
        valid = weights[source_rows]
        valid[~((valid >= 0.0) & (valid <= _HEAVIEST))] = 0.0
        self.weights[rows] = valid
        self.reference[rows] = np.where(np.isfinite(reference[source_rows]), reference[source_rows], np.nan)

    def _of(self, rows: Rows | None) -> tuple[NDArray[np.float32], Floats]:
        return (self.weights, self.reference) if rows is None else (self.weights[rows], self.reference[rows])

    def _bucket(self, values: Floats) -> Rows:
        return np.searchsorted(self.edges, values, side="right").astype(np.int64) - 1

    def _weigh(self, rows: Rows, at: float) -> Floats:
        """The weight of a sample of `at` in each of `rows`; if it would be too high, the reference moves first."""
        self.reference[rows] = np.where(np.isnan(self.reference[rows]), at, self.reference[rows])
        halvings = (at - self.reference[rows]) / self.half_life
        late = np.unique(rows[halvings > _MOST_HALVINGS])
        self.weights[late] *= np.exp2(-(at - self.reference[late]) / self.half_life).astype(np.float32)[:, None]
        self.reference[late] = at
        return np.asarray(np.exp2((at - self.reference[rows]) / self.half_life), dtype=np.float64)
