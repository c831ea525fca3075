"""Keeps how each workload uses its GPUs and engines, as decaying histograms and moments. Pure, on columns.

The decay is that of the Kubernetes Vertical Pod Autoscaler (kubernetes/autoscaler, vertical-pod-autoscaler/pkg/
recommender: `util/decaying_histogram.go`, and `model/aggregations_config.go` for the half-life of 24 hours). A value
weighs the seconds that it held, halved every 24 hours; weights grow with time instead of decaying, so older ones need
no work. Buckets grow exponentially as in VPA (`util/histogram_options.go`): bucket n is first * growth**n wide. VPA has
176 buckets that grow by 5 %. Here 32 reach as far, with a growth that follows from the first width and the end; a
quantile is interpolated in its bucket and is at most the peak.

Beside the buckets are moments: weight and sum over all time and over busy time, which is time with requests in hand,
or, if an engine shows none, with an active GPU. A mean over busy time is what the workload does while it works. The
peak is the highest value of the last 4 to 8 days (VPA aggregates memory over 8).

Operating points are means while requests run, apart for each range of requests per engine: how an engine speeds up with
its batch. The ranges are half octaves: 1, 1.4, 2, 2.8 and so on requests.

An unknown value adds nothing, and neither does the time of a gap. GPU values are those that are exclusively the
workload's (`signals.gpus`), as a mean over its GPUs.

Per workload: 12 x 32 + 24 x 6 single-precision and 24 x 6 + 3 double-precision floats, 3,288 bytes.

Worked example: 60 s of 0.5 and 60 s of 0.9 while requests run, then 120 s of 0 without any: the mean is 0.35, the mean
over busy time 0.7, the peak 0.9, and the 75th percentile in the bucket of 0.5.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import NamedTuple, TypeAlias

import numpy as np
from numba import types
from numpy.typing import NDArray

from exporter.model import Floats
from scaler.columns import Array, Columns, Mask, Rows, copy_into, named, zero_if_unknown
from scaler.jit import INDICES, NUMBER, in_place_kernel, part
from scaler.policy.capacity import WorkRate

from .aggregate import Aggregate
from .gpu_usage import MEANS, GpuUsage

Weights: TypeAlias = NDArray[np.float32]


@unique
class Usage(IntEnum):
    """What is kept of a workload. The first BUCKETED have a histogram, all have moments.

    GPU quantities are means over its GPUs or MIG instances, per GPU.
    """

    ENGINE = 0  # ratio, as the next five
    SM = 1
    OCCUPANCY = 2
    TENSOR = 3
    DRAM = 4
    KV_CACHE = 5  # mean over its engines
    MEMORY = 6  # bytes
    POWER = 7  # watts
    PCIE = 8  # bytes per second, both ways
    NVLINK = 9  # bytes per second, both ways
    RUNNING = 10  # requests per engine
    WAITING = 11  # requests of the workload
    MEMORY_TOTAL = 12  # bytes
    REQUESTS = 13  # finished requests per second
    PROMPT = 14  # tokens per second
    GENERATED = 15  # tokens per second
    PREEMPTED = 16  # requests per second
    QUEUED_FULL = 17  # 1 while requests wait and the GPUs or the KV cache are full, else 0
    RUNNING_ALL = 18  # requests of the workload
    CEILING = 19  # the most that ENGINE may be, ratio: less than 1 on MIG instances of several slices
    QUEUED = 20  # per second: requests of which the engine measured the time in its queue
    QUEUED_SECONDS = 21  # per second: the sum of these times
    SERVED = 22  # as QUEUED, of the time in service
    SERVED_SECONDS = 23


class Scale(NamedTuple):
    """The buckets of one quantity. first: width of the first. last: where the last, open one begins."""

    first: float
    last: float


@unique
class Moment(IntEnum):
    """The sums of one quantity. Weights are seconds, decayed. NaN peaks: none yet."""

    WEIGHT = 0
    SUM = 1
    BUSY_WEIGHT = 2
    BUSY_SUM = 3
    PEAK = 4  # of the present period
    PEAK_BEFORE = 5  # of the one before


BUCKETED, BUCKETS = 12, 32
HALF_LIFE_S = 86400.0  # VPA: DefaultMemoryHistogramDecayHalfLife, DefaultCPUHistogramDecayHalfLife
PEAK_S = 4 * 86400.0  # two periods are VPA's memory window of 8 days
# A scrape interval by default: a sample that is read more often is the same sample.
STEP_S = 5.0
# GPUs whose engines are active for less of the time do nothing: of idle ones 0.00 to 0.01 is exposed.
QUIET = 0.01
# An engine that is active 90 % of the time has no room; vLLM preempts when the cache is full.
FULL = 0.9
_RATIO = Scale(0.01, 0.95)
SCALES: tuple[Scale, ...] = (
    *(_RATIO,) * 6,
    Scale(2.0**28, 2.0**38),  # 256 MiB to 256 GiB
    Scale(10.0, 1500.0),
    Scale(1e7, 1e12),
    Scale(1e7, 1e12),
    Scale(1.0, 4096.0),
    Scale(1.0, 4096.0),
)
# Weights are kept in single precision, whose largest is 2**127 (`policy.estimators.histograms` has the same bound).
_MOST_HALVINGS, _HEAVIEST = 60.0, 2.0**100
_LARGEST = 1e200  # of a restored moment: weight times value
# Of operating points: half octaves of requests per engine from 1 on, the last one open. Of each its weight, and the
# weighted sums of POINT_USAGE.
BATCHES = 24
POINT_USAGE = (Usage.RUNNING, Usage.RUNNING_ALL, Usage.REQUESTS, Usage.PROMPT, Usage.GENERATED)
_FASTEST = 1e9  # tokens per second: more is no rate
_HEAVIEST_SUM = 2.0**120  # in single precision: 60 halvings, two days of weight and the fastest rate are 2**107
LEAST_POINT_S = 60.0  # of measured time, decayed: less is one burst


def _growth(scale: Scale) -> float:
    """The growth with which BUCKETS - 1 buckets end at `last`: first * (g**n - 1) / (g - 1) = last, by bisection."""
    low, high = 1.0 + 1e-9, 4.0
    for _ in range(80):
        middle = (low + high) / 2.0
        if scale.first * (middle ** (BUCKETS - 1) - 1.0) / (middle - 1.0) < scale.last:
            low = middle
        else:
            high = middle
    return high


_FIRST = np.array([scale.first for scale in SCALES])
# A kernel takes plain numbers.
_STEP_S, _PHASES = STEP_S, int(STEP_S)
_POINT_USAGE = tuple(map(int, POINT_USAGE))
_PEAK, _HALF_LIFE_S, _PEAK_S = int(Moment.PEAK), HALF_LIFE_S, PEAK_S
GROWTH: Floats = np.array([_growth(scale) for scale in SCALES])
# Where buckets begin, shape (BUCKETED, BUCKETS).
EDGES: Floats = _FIRST[:, None] * (GROWTH[:, None] ** np.arange(BUCKETS) - 1.0) / (GROWTH[:, None] - 1.0)


def bucket_of(values: Floats, quantity: Rows) -> Rows:
    """The bucket of each value; `quantity`: the Usage of each."""
    growth = GROWTH[quantity]
    index = np.floor(np.log1p(values * (growth - 1.0) / _FIRST[quantity]) / np.log(growth) + 1e-9)
    return np.minimum(index, BUCKETS - 1).astype(np.int64)


@part
def _begin(
    i: int,
    weights: Weights,
    moments: Floats,
    points: Weights,
    reference_at: Floats,
    added_at: Floats,
    since: Floats,
    now: float,
) -> None:
    """Starts a row without an update, moves an old reference, and ends a period of peaks."""
    if not reference_at[i] <= now:  # the first update, or a clock that was set back
        reference_at[i] = now
    halvings = (now - reference_at[i]) / _HALF_LIFE_S
    if halvings > _MOST_HALVINGS:
        decay = 2.0**-halvings
        reference_at[i] = now
        # Assigned one by one: numba compiles the assignment of an array for 2.7 s.
        for quantity in range(weights.shape[1]):
            for bucket in range(weights.shape[2]):
                weights[i, quantity, bucket] *= np.float32(decay)
        for quantity in range(moments.shape[1]):
            for moment in range(_PEAK):
                moments[i, quantity, moment] *= decay
        for batch in range(points.shape[1]):
            for column in range(points.shape[2]):
                points[i, batch, column] *= np.float32(decay)
    periods = np.floor(now / _PEAK_S) - np.floor(added_at[i] / _PEAK_S)
    if periods >= 1.0:
        for quantity in range(moments.shape[1]):
            moments[i, quantity, _PEAK + 1] = moments[i, quantity, _PEAK] if periods == 1.0 else np.nan
            moments[i, quantity, _PEAK] = np.nan
    if np.isnan(since[i]):
        since[i] = now
    added_at[i] = now


@part
def _add_point(points: Weights, values: Floats, weight: float) -> None:
    """Adds a moment with running requests. A rate may be 0: requests do not end in every moment."""
    requests = values[_POINT_USAGE[0]]
    if not requests > 0.0:
        return
    for quantity in _POINT_USAGE:
        if not 0.0 <= values[quantity] <= _FASTEST:  # NaN is not
            return
    batch = min(int(2.0 * np.log2(max(requests, 1.0)) + 1e-9), points.shape[0] - 1)
    points[batch, 0] += np.float32(weight)
    for column in range(len(_POINT_USAGE)):
        points[batch, column + 1] += np.float32(weight * values[_POINT_USAGE[column]])


_SERIES, _TABLE = types.Array(types.float64, 1, "C"), types.Array(types.float64, 2, "C")
_MOMENTS, _WEIGHTS = types.Array(types.float64, 3, "C"), types.Array(types.float32, 3, "C")


@in_place_kernel(
    types.void(
        _WEIGHTS, _MOMENTS, _WEIGHTS, _SERIES, _SERIES, _SERIES, _TABLE, _SERIES, NUMBER, NUMBER, _SERIES, _SERIES
    )
)  # fmt: skip
def _add(
    weights: Weights,
    moments: Floats,
    points: Weights,
    reference_at: Floats,
    added_at: Floats,
    since: Floats,
    values: Floats,
    busy: Floats,
    now: float,
    longest_s: float,
    first: Floats,
    growth: Floats,
) -> None:
    for i in range(values.shape[0]):
        elapsed, phase = now - added_at[i], float(i % _PHASES)
        if np.floor((now + phase) / _STEP_S) == np.floor((added_at[i] + phase) / _STEP_S):
            continue
        seconds = min(elapsed, longest_s) if elapsed > 0.0 else 0.0
        _begin(i, weights, moments, points, reference_at, added_at, since, now)
        if seconds == 0.0:
            continue
        weight = seconds * 2.0 ** ((now - reference_at[i]) / _HALF_LIFE_S)
        for quantity in range(values.shape[1]):
            value = values[i, quantity]
            if not 0.0 <= value <= _LARGEST:
                continue
            row = moments[i, quantity]
            row[0] += weight
            row[1] += weight * value
            if busy[i] == 1.0:
                row[2] += weight
                row[3] += weight * value
            row[_PEAK] = np.fmax(row[_PEAK], value)
            if quantity < weights.shape[1]:
                grown = np.log1p(value * (growth[quantity] - 1.0) / first[quantity]) / np.log(growth[quantity])
                weights[i, quantity, min(int(grown + 1e-9), weights.shape[2] - 1)] += np.float32(weight)
        _add_point(points[i], values[i], weight)


class UsageHistograms:
    """The usage of a fixed list of workloads.

    weights: shape (rows, BUCKETED, BUCKETS), relative to `reference_at`.
    moments: shape (rows, len(Usage), len(Moment)).
    points:  shape (rows, BATCHES, 1 + len(POINT_USAGE)), relative to `reference_at`.
    reference_at, added_at, since: POSIX seconds, shape (rows,): when a second weighs 1, the last update, the first.
    """

    def __init__(self, rows: int) -> None:
        self.weights: Weights = np.zeros((rows, BUCKETED, BUCKETS), dtype=np.float32)
        self.moments: Floats = np.zeros((rows, len(Usage), len(Moment)))
        self.moments[:, :, [Moment.PEAK, Moment.PEAK_BEFORE]] = np.nan
        self.points: Weights = np.zeros((rows, BATCHES, 1 + len(POINT_USAGE)), dtype=np.float32)
        self.reference_at, self.added_at, self.since = np.full((3, rows), np.nan)

    def add(self, values: Floats, busy: Floats, now: float, longest_s: float) -> None:
        """Adds what holds since the last update, to each row every STEP_S: a fifth of the rows in each sweep.

        values: shape (rows, len(Usage)); NaN unknown. busy: shape (rows,): 1, 0, or NaN unknown. now: POSIX seconds.
        longest_s: of a longer time since the last update only so much counts.
        """
        arrays = (self.weights, self.moments, self.points, self.reference_at, self.added_at, self.since)
        _add(*arrays, values, busy, now, longest_s, _FIRST, GROWTH)

    def add_series(self, values: Floats, busy: Floats, seconds: float, until: float) -> None:
        """Adds samples of the only row that held for `seconds` each, until `until` in POSIX seconds, without decay.

        values: shape (samples, len(Usage)). busy: shape (samples,), as in `add`.
        """
        self.since[:], self.added_at[:] = until - seconds * len(values), until
        self.reference_at[:] = until
        valid = (values >= 0.0) & (values <= _LARGEST)
        amounts, worked = np.where(valid, values, 0.0), (busy == 1.0)[:, None]
        moments = self.moments[0]
        moments[:, Moment.WEIGHT] += seconds * valid.sum(axis=0)
        moments[:, Moment.SUM] += seconds * amounts.sum(axis=0)
        moments[:, Moment.BUSY_WEIGHT] += seconds * (valid & worked).sum(axis=0)
        moments[:, Moment.BUSY_SUM] += seconds * (amounts * worked).sum(axis=0)
        peaks = np.fmax.reduce(np.where(valid, values, np.nan), axis=0, initial=np.nan)
        moments[:, Moment.PEAK] = np.fmax(moments[:, Moment.PEAK], peaks)
        samples, quantity = np.nonzero(valid[:, :BUCKETED])
        bucket = bucket_of(values[samples, quantity], quantity)
        np.add.at(self.weights[0], (quantity, bucket), np.float32(seconds))

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps; live arrays."""
        return named(
            "usage",
            {
                "weights": self.weights,
                "moments": self.moments,
                "points": self.points,
                "reference_at": self.reference_at,
                "added_at": self.added_at,
                "since": self.since,
            },
        )

    def take(self, columns: Columns, rows: Rows, source_rows: Rows) -> None:
        """Copies state from `columns[source_rows]` into `rows`, pairwise. What no version writes becomes none."""
        copy_into(self.columns(), columns, rows, source_rows)
        if "usage.points" not in columns:  # of an older version
            self.points[rows] = 0.0
        weights, moments, points = self.weights[rows], self.moments[rows], self.points[rows]
        peaks = moments[:, :, Moment.PEAK :]
        sound = ((weights >= 0.0) & (weights <= _HEAVIEST)).all(axis=(1, 2))
        sound &= ((moments[:, :, : Moment.PEAK] >= 0.0) & (moments[:, :, : Moment.PEAK] <= _LARGEST)).all(axis=(1, 2))
        sound &= ((points >= 0.0) & (points <= _HEAVIEST_SUM)).all(axis=(1, 2))
        sound &= (np.isnan(peaks) | (peaks >= 0.0)).all(axis=(1, 2))
        if not sound.all():
            bad, blank = rows[~sound], UsageHistograms(int((~sound).sum()))
            copy_into(self.columns(), blank.columns(), bad, np.arange(len(bad)))


class Distribution(NamedTuple):
    """One quantity of one workload; NaN: not measured.

    mean, busy_mean, peak: in its unit. quantiles: those of QUANTILES; NaN of a quantity without buckets.
    seconds: of measured time, decayed. busy_seconds: of these, while it worked.
    """

    mean: float
    busy_mean: float
    peak: float
    quantiles: tuple[float, ...]
    seconds: float
    busy_seconds: float


QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def distribution(usage: UsageHistograms, row: int, quantity: Usage) -> Distribution:
    """What is kept of one quantity of one workload."""
    weight, total, busy_weight, busy_total, now, before = usage.moments[row, quantity].tolist()
    peak = float(np.fmax(now, before))
    # Of seconds of now: weights are relative to the reference.
    halvings = (usage.added_at[row] - usage.reference_at[row]) / HALF_LIFE_S
    scale = float(np.exp2(-halvings)) if np.isfinite(halvings) else 1.0
    quantiles = (np.nan,) * len(QUANTILES)
    if quantity < BUCKETED:
        quantiles = tuple(_quantile(usage.weights[row, quantity], EDGES[quantity], q, peak) for q in QUANTILES)
    return Distribution(
        total / weight if weight > 0.0 else np.nan,
        busy_total / busy_weight if busy_weight > 0.0 else np.nan,
        peak,
        quantiles,
        weight * scale,
        busy_weight * scale,
    )


def point_means(usage: UsageHistograms, row: int) -> list[tuple[float, ...]]:
    """The means of POINT_USAGE in each range of requests that was measured for LEAST_POINT_S, by rising requests."""
    halvings = (usage.added_at[row] - usage.reference_at[row]) / HALF_LIFE_S
    seconds, *sums = usage.points[row].T.astype(np.float64)
    measured = seconds * np.exp2(-halvings) >= LEAST_POINT_S  # NaN is not
    means: list[list[float]] = (np.array(sums)[:, measured] / seconds[measured]).T.tolist()
    return [tuple(each) for each in means]


def _quantile(weights: Weights, edges: Floats, q: float, peak: float) -> float:
    """Interpolates in the bucket of the quantile; the last bucket ends at the peak, and the first one counts as 0."""
    running = weights.cumsum(dtype=np.float64)
    if not running[-1] > 0.0:
        return np.nan
    wanted = q * running[-1]
    bucket = int(np.searchsorted(running, wanted * (1.0 - 1e-9)))
    before = running[bucket - 1]
    begin = float(edges[bucket])
    end = float(edges[bucket + 1]) if bucket + 1 < len(edges) else max(peak, begin)
    if not bucket:  # less than the width of the first bucket is no use, as a queue of 0
        return 0.0
    value = begin + (end - begin) * (wanted - before) / (running[bucket] - before)
    return float(np.fmin(value, peak))


def usage_of(totals: Aggregate, gpus: Floats) -> tuple[Floats, Floats]:
    """The `values` and `busy` of `UsageHistograms.add`, from what a sweep has read.

    gpus: shape (rows, len(GpuUsage)), see `LatestSamples.usage`.
    """
    readings, rates = totals.readings, totals.rates
    values = np.full((len(gpus), len(Usage)), np.nan)
    values[:, Usage.ENGINE], values[:, Usage.KV_CACHE] = totals.gpu_engine, totals.kv_cache
    for quantity, column in _FROM_GPUS.items():
        values[:, quantity] = gpus[:, column]
    waiting = _sum_measured(readings.waiting, readings.held)
    engines = np.where(readings.pods_fresh > 0.0, readings.pods_fresh, np.nan)
    values[:, Usage.WAITING], values[:, Usage.RUNNING_ALL] = waiting, readings.running
    values[:, Usage.RUNNING] = readings.running / engines
    whole = np.where(totals.gpus.shown > 0.0, 1.0, np.nan)
    values[:, Usage.CEILING] = np.where(np.isnan(totals.gpus.ceiling), whole, totals.gpus.ceiling)
    values[:, Usage.REQUESTS] = rates[:, WorkRate.FINISHED]
    values[:, Usage.PROMPT], values[:, Usage.GENERATED] = rates[:, WorkRate.PROMPT], rates[:, WorkRate.GENERATED]
    values[:, Usage.QUEUED_FULL] = queued_full(waiting, totals.gpu_engine, totals.kv_cache)
    return values, busy_of(_sum_measured(waiting, readings.running), totals.gpu_engine)


_FROM_GPUS = {
    Usage.SM: GpuUsage.SM,
    Usage.OCCUPANCY: GpuUsage.OCCUPANCY,
    Usage.TENSOR: GpuUsage.TENSOR,
    Usage.DRAM: GpuUsage.DRAM,
    Usage.MEMORY: GpuUsage.MEMORY,
    Usage.MEMORY_TOTAL: GpuUsage.MEMORY_TOTAL,
    Usage.POWER: GpuUsage.POWER,
    Usage.PCIE: GpuUsage.PCIE,
    Usage.NVLINK: GpuUsage.NVLINK,
    Usage.PREEMPTED: GpuUsage.PREEMPTED,
    Usage.QUEUED: GpuUsage.QUEUED,
    Usage.QUEUED_SECONDS: GpuUsage.QUEUED_SECONDS,
    Usage.SERVED: GpuUsage.SERVED,
    Usage.SERVED_SECONDS: GpuUsage.SERVED_SECONDS,
}


def queued_full(waiting: Floats, engine: Floats, kv_cache: Floats) -> Floats:
    """1 while requests wait and the GPUs or the KV cache are FULL, 0 while not; NaN unless it is known.

    waiting: requests. engine, kv_cache: ratios. Shape (rows,).
    """
    fullest = np.fmax(engine, kv_cache)
    return np.where(np.isnan(waiting) | np.isnan(fullest), np.nan, (waiting > 0.0) & (fullest >= FULL))


def busy_of(in_hand: Floats, engine: Floats) -> Floats:
    """1 while requests are in hand; of a workload that shows none, while its GPUs are active; NaN if neither is known.

    in_hand: requests. engine: ratio. Shape (rows,).
    """
    by_gpu = np.where(np.isnan(engine), np.nan, engine > QUIET)
    return np.where(np.isnan(in_hand), by_gpu, in_hand > 0.0)


def _sum_measured(first: Floats, second: Floats) -> Floats:
    neither = np.isnan(first) & np.isnan(second)
    return np.where(neither, np.nan, zero_if_unknown(first) + zero_if_unknown(second))


def means(usage: Floats, owner: Rows, fresh: Mask, rows: int) -> Floats:
    """The means of each workload over its fresh slots, shape (rows, len(GpuUsage)); NaN unknown. Rates are sums.

    usage: shape (slots, USAGE_WIDTH). owner: the workload of each slot, -1 for none.
    """
    found = np.zeros((rows, len(GpuUsage)))
    _add_up_slots(usage, owner, fresh, found, np.zeros((rows, len(GpuUsage))))
    return found


@in_place_kernel(types.void(_TABLE, INDICES, types.Array(types.boolean, 1, "C"), _TABLE, _TABLE))
def _add_up_slots(usage: Floats, owner: Rows, fresh: Mask, found: Floats, weights: Floats) -> None:
    for slot in range(usage.shape[0]):
        to = owner[slot]
        if to < 0 or not fresh[slot]:
            continue
        for column in range(found.shape[1]):
            weight = usage[slot, found.shape[1] + column]
            if weight > 0.0:  # NaN is not
                found[to, column] += usage[slot, column]
                weights[to, column] += weight
    for to in range(found.shape[0]):
        for column in range(found.shape[1]):
            if weights[to, column] == 0.0:
                found[to, column] = np.nan
            elif column < MEANS:
                found[to, column] /= weights[to, column]
