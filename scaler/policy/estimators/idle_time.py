"""Histograms that forget: how long things took, per workload, over buckets that grow with what they hold.

It knows buckets, weights and their decay, for all workloads at once; it refuses to know what was measured. A value
counts half as much after one half-life, a quarter after two. The scheme is that of the Kubernetes Vertical Pod
Autoscaler (kubernetes/autoscaler, vertical-pod-autoscaler/pkg/recommender/util: `histogram_options.go` for the buckets,
`decaying_histogram.go` for the decay): bucket n is first * growth**n wide, so it begins at first * (growth**n - 1) /
(growth - 1), and a sample at `at` weighs 2**((at - reference) / half_life), which makes the decay of everything that
is there already no work at all. Where nothing was seen, every answer is NaN, never 0.

Worked example, `Histograms(1, scale(1.0, 1.05, 86400.0), half_life=7 * 86400.0)`: it is told of 71 s and 78 s now, and
of 300 s a half-life later, when the weights are 0.5, 0.5 and 1. So the median lies in the bucket of 78 s, which goes
from 75.3 s to 80.1 s, and `quantile(0.5)` is its upper end, 80.1.

How long workloads rest: from the end of the last demand to the next, as histograms.

It knows when a rest began and when demand ended it, and what to do with a rest of which it did not see the end. It
refuses to know what demand is: its caller says who has some (`busy`) and when a counter last rose (`active_at`). Being
started in advance, loading, and being held awake are no demand, and so do not end a rest.

A rest that is going on counts nothing until it ends: it says only that it is longer than it has been so far, and what
is decided for it was decided when it began. One whose end was not seen, because nothing was for longer than `blind_s`,
is known to have lasted until then at least: `Histograms.add_at_least`. A shorter blindness ends no rest: what came and
went in it would have moved a counter.

Worked example: demand was last seen at 1000 s and is gone at 1005; at 1305 a request waits. A gap of 300 s is over, and
`observe` returns its row with 300.0. Had nothing been heard from 1105 on until 2105, the gap would be "100 s at least".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats
from scaler.columns import Array, Columns, Mask, Rows, copy_into, fitting

GROWTH = 1.05  # VPA's HistogramBucketSizeGrowth (model/aggregations_config.go): no quantile is wrong by more than 5 %

# Weights are kept in single precision, whose largest is 2**127: a row whose newest sample would weigh more than this
# power of two has its reference moved. VPA's maxDecayExponent is 100, in double precision.
_MOST_HALVINGS = 60.0
# What is added to it must stay finite.
_HEAVIEST = 2.0**100
# A weight below this is nothing: VPA's epsilon is 0.001 of a sample, and this too.
EPSILON = 1e-3


def scale(first: float, growth: float, last: float) -> Floats:
    """Where buckets begin, ascending, shape (buckets,): from 0 on, `first` wide at the start, until `last` is inside.

    The last bucket is open: it holds whatever is longer. All in the unit of the values.
    """
    count = int(np.ceil(np.log(last * (growth - 1.0) / first + 1.0) / np.log(growth))) + 1
    return np.asarray(first * (growth ** np.arange(count) - 1.0) / (growth - 1.0), dtype=np.float64)


class Histograms:
    """edges: where buckets begin, shape (buckets,).
    weights:   shape (rows, buckets), as seen from each row's `reference`.
    reference: POSIX seconds, shape (rows,); NaN where nothing was seen.
    """

    def __init__(self, rows: int, edges: Floats, half_life: float) -> None:
        """half_life: seconds."""
        self.edges, self.half_life = edges, half_life
        self.weights: NDArray[np.float32] = np.zeros((rows, len(edges)), dtype=np.float32)
        self.reference: Floats = np.full(rows, np.nan)

    def add(self, rows: Rows, values: Floats, at: float) -> None:
        """One value for each of `rows`, measured at `at`; what is not a number of 0 or more is nothing."""
        known = np.isfinite(values) & (values >= 0.0)
        rows, values = rows[known], values[known]
        np.add.at(self.weights, (rows, self._bucket(values)), self._weigh(rows, at).astype(np.float32))

    def add_at_least(self, rows: Rows, bounds: Floats, at: float) -> None:
        """Of each of `rows` a value of which only is known that it is not less than `bounds`: it was cut off.

        Its weight goes to the buckets from there on, as what was seen to its end is spread over them; where nothing so
        long was seen, to the bound's own. That is Efron's redistribution to the right, which makes the estimate that
        of Kaplan and Meier (B. Efron, "The two sample problem with censored data", 1967). To leave it out would forget
        just the long ones, because those are cut off most.
        """
        known = np.isfinite(bounds) & (bounds >= 0.0)
        rows, bounds = rows[known], bounds[known]
        weight, bucket = self._weigh(rows, at), self._bucket(bounds)
        beyond = np.where(np.arange(len(self.edges)) >= bucket[:, None], self.weights[rows], 0.0)
        mass = beyond.sum(axis=1)
        alone = mass <= EPSILON
        beyond[alone, bucket[alone]] = mass[alone] = 1.0
        np.add.at(self.weights, rows, (weight / mass)[:, None].astype(np.float32) * beyond)

    def weight(self, now: float, rows: Rows | None = None) -> Floats:
        """How many values there are, each for as much as it still counts; 0 where there are none."""
        weights, reference = self._of(rows)
        said = weights.sum(axis=1, dtype=np.float64) * 2.0 ** -((now - reference) / self.half_life)
        return np.where(np.isnan(reference), 0.0, said)

    def shares(self, rows: Rows | None = None) -> Floats:
        """What part of the values each bucket has, shape (rows, buckets); NaN where there are none."""
        weights = self._of(rows)[0].astype(np.float64)
        total = weights.sum(axis=1, keepdims=True)
        # Decay divides all by the same: the shares do not depend on the time.
        return weights / np.where(total > 0.0, total, np.nan)

    def quantile(self, q: float, rows: Rows | None = None) -> Floats:
        """So that a part `q` (0..1) of the values is not above it: the upper end of its bucket, as VPA answers.

        It errs to the long side, by at most the growth of the buckets. Of the last bucket, which has no end, its
        beginning. NaN where there are none.
        """
        return self.quantiles((q,), rows)[0]

    def quantiles(self, qs: Sequence[float], rows: Rows | None = None) -> list[Floats]:
        """Each of these, as `quantile`, for the price of one."""
        running = self._of(rows)[0].cumsum(axis=1, dtype=np.float64)
        total = running[:, -1]
        found = []
        for q in qs:
            # A cumulated sum of singles may miss its own total by a hair.
            place = ((running >= (q * total * (1.0 - 1e-9))[:, None]) & (running > 0.0)).argmax(axis=1)
            ends = self.edges[np.minimum(place + 1, len(self.edges) - 1)]
            found.append(np.asarray(np.where(total > 0.0, ends, np.nan), dtype=np.float64))
        return found

    def columns(self, name: str) -> dict[str, Array]:
        """What must survive, by column: `NAME.weights` and `NAME.reference_at`."""
        return {f"{name}.weights": self.weights, f"{name}.reference_at": self.reference}

    def take(self, name: str, columns: Columns, rows: Rows, others: Rows) -> None:
        """Own `rows` from the slots `others` of such columns; nothing, where those have other buckets."""
        weights = fitting(columns, f"{name}.weights", self.weights)
        reference = fitting(columns, f"{name}.reference_at", self.reference)
        if weights is None or reference is None:
            return
        # Whoever wrote it: a weight that is none would spoil every answer of its row.
        known = weights[others]
        known[~((known >= 0.0) & (known <= _HEAVIEST))] = 0.0
        self.weights[rows] = known
        self.reference[rows] = np.where(np.isfinite(reference[others]), reference[others], np.nan)

    def _of(self, rows: Rows | None) -> tuple[NDArray[np.float32], Floats]:
        return (self.weights, self.reference) if rows is None else (self.weights[rows], self.reference[rows])

    def _bucket(self, values: Floats) -> Rows:
        return np.searchsorted(self.edges, values, side="right").astype(np.int64) - 1

    def _weigh(self, rows: Rows, at: float) -> Floats:
        """What a sample of `at` weighs in each of `rows`; where that would be too much, the reference moves first."""
        self.reference[rows] = np.where(np.isnan(self.reference[rows]), at, self.reference[rows])
        halvings = (at - self.reference[rows]) / self.half_life
        late = np.unique(rows[halvings > _MOST_HALVINGS])
        self.weights[late] *= np.exp2(-(at - self.reference[late]) / self.half_life).astype(np.float32)[:, None]
        self.reference[late] = at
        return np.asarray(np.exp2((at - self.reference[rows]) / self.half_life), dtype=np.float64)


SHORTEST_S, LONGEST_S = 1.0, 14 * 86400.0
EDGES = scale(SHORTEST_S, GROWTH, LONGEST_S)
# Two weekends. Half as long and a weekend's gaps are forgotten before the next; twice, and a new habit takes a month.
HALF_LIFE_S = 7 * 86400.0
BLIND_S = 300.0


class IdleEnds(NamedTuple):
    """Rests that ended: whose, and how long they were, in seconds. A row stands in it once at the most."""

    rows: Rows
    lengths: Floats


class Gaps:
    """idle_since: POSIX seconds since when there has been no demand, shape (rows,); NaN while there is, or not known.
    seen_at:       POSIX seconds when that was last known; NaN never.
    """

    def __init__(self, rows: int, *, half_life: float = HALF_LIFE_S, blind_s: float = BLIND_S) -> None:
        self.histograms = Histograms(rows, EDGES, half_life)
        self.idle_since: Floats = np.full(rows, np.nan)
        self.seen_at: Floats = np.full(rows, np.nan)
        self._blind_s = blind_s

    def observe(self, rows: Rows, busy: Mask, active_at: Floats, known: Mask, now: float) -> IdleEnds:
        """What is so `now` of each of `rows`, which are named once each.

        busy:      there is demand: requests wait or run, or a GPU of its own works.
        active_at: POSIX seconds when a counter of requests or tokens last rose; NaN never.
        known:     all that would show demand is fresh. Of the others nothing is taken but that.
        Returns the rests that ended.
        """
        since, seen = self.idle_since[rows], self.seen_at[rows]
        resting = ~np.isnan(since)
        cut = known & resting & (now - seen > self._blind_s)
        self.histograms.add_at_least(rows[cut], (seen - since)[cut], now)
        resting &= ~cut

        # A counter's rise is older than its page: a request that came and went in between ended one rest and began
        # another.
        came_and_went = active_at > since
        ended = known & resting & (busy | came_and_went)
        until = np.where(came_and_went, np.minimum(active_at, now), now)
        lengths = (until - since)[ended]
        self.histograms.add(rows[ended], lengths, now)

        begun = np.where(resting & ~ended, since, np.where(ended & came_and_went, until, now))
        self.idle_since[rows] = np.where(known, np.where(busy, np.nan, begun), since)
        self.seen_at[rows] = np.where(known, now, seen)
        return IdleEnds(rows[ended], lengths)

    def columns(self) -> dict[str, Array]:
        """What must survive, one slot per workload."""
        return {**self.histograms.columns("gaps"), **self._moments()}

    def _moments(self) -> Columns:
        return {"gaps.idle_since": self.idle_since, "gaps.seen_at": self.seen_at}

    def take(self, columns: Columns, rows: Rows, others: Rows) -> None:
        """Own `rows` from the slots `others` of somebody's columns; what those lack stays as it is."""
        self.histograms.take("gaps", columns, rows, others)
        copy_into(self._moments(), columns, rows, others)
