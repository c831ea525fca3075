"""Moves the measured time of a decode step, or of a prefill, from one GPU model to another, with an error band. Pure.

A workload's history on its present GPU, at several batches and contexts, is fitted by

    seconds = a + b * bytes / bandwidth + c * flops / peak        a, b, c >= 0; on one GPU both divisors are constants

(least squares of the relative error, with a small ridge). `a` is what no faster memory or arithmetic shortens:
launches, scheduling, communication. At one operating point each term has a share of the time, and on another GPU

    seconds' = seconds * (share_a + share_b * bandwidth / bandwidth' + share_c * peak / peak')

So the prediction starts from a measured time, never from a bare roofline. No exponent and no correction is learned:
of those that were tried on public measurements, none made the error on a model that was left out smaller by more than
a percentage point (benchmarks/RIGHTSIZING.md). The band is learned: how far truth was from the prediction, with the
same version of the engine on both GPUs. Outside of what was measured the answer is `Unsupported` with the reason:
another vendor or generation, another precision, a GPU many times faster, an operating point outside of the history, a
history with too few points, a fit that does not describe it.

Worked example: at an operating point of 20 ms on an H100 (3.35 TB/s) the shares are 0.4, 0.5 and 0.1. On an H200
(4.8 TB/s, the same peak) the step takes 20 * (0.4 + 0.5 * 3.35 / 4.8 + 0.1) = 17.0 ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import combinations
from math import isfinite
from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from .gpus import GpuModel
from .work import GpuWork

# Four points of three unknowns; the measured pairs below had at least as many.
FEWEST_POINTS = 4
# The error differs by less than 0.5 percentage points between 0.01 and 0.1 (benchmarks/RIGHTSIZING.md).
RIDGE = 0.03
# A history that the three terms describe worse than this, in the median, is not described by them.
MOST_FIT_ERROR = 0.25
# How far outside of the history's bytes and operations a point may be: rounding of a batch, not another load.
RANGE_SLACK = 0.05
# The largest ratios among the measured pairs: 7.75 / 3.35 TB/s, and 9,000 / 989.5 TFLOPS (4-bit weights).
MOST_BANDWIDTH_RATIO = 2.35
MOST_PEAK_RATIO = 9.2

# The precisions of weights that were measured, and in which arithmetic each is computed: the first that the GPU has.
# GPUs without FP4 units compute 4-bit weights in BF16.
ARITHMETIC = {"bf16": ("bf16",), "fp8": ("fp8",), "fp4": ("fp4", "bf16"), "int4": ("bf16",)}


class Phase(StrEnum):
    """decode: the time between two tokens. prefill: the time to the first token at the same concurrency."""

    DECODE = "decode"
    PREFILL = "prefill"


class Band(NamedTuple):
    """Nine of ten measured times were between `low` and `high` times the predicted one."""

    low: float
    high: float


# By phase, generation of the measured GPU, and of the other one. To an older generation the band is the inverse.
# Learned from the public points of H100 SXM, H200, B200, B300, with vLLM, SGLang and TensorRT-LLM, in
# ai-dynamo/aiconfigurator 095f58a, `silicon_sample.csv` (Apache-2.0): the 2.5 and 97.5 % quantiles of 896 pairs, both
# of one version of the engine, by `python benchmarks/rightsizing/speed.py FOLDER`. Learned without a model family, they
# held for 95.3 % of its pairs. The prefill has none: see benchmarks/RIGHTSIZING.md.
Bands = Mapping[tuple[Phase, str, str], Band]
BANDS: Bands = {
    (Phase.DECODE, "hopper", "hopper"): Band(0.82, 1.21),
    (Phase.DECODE, "hopper", "blackwell"): Band(0.75, 1.39),
    (Phase.DECODE, "blackwell", "blackwell"): Band(0.82, 1.21),
}

# Rows of gpus.yaml that these points are of; other models of their generations have the same band.
MEASURED_GPUS = frozenset({"H100 80GB HBM3", "H200", "B200", "B300"})


class MeasuredTime(NamedTuple):
    """One operating point of a history. seconds: the mean at this work."""

    work: GpuWork
    seconds: float


class GpuSpeed(NamedTuple):
    """The figures of one GPU that a prediction uses. bandwidth: bytes/s. peak: operations/s in `arithmetic`."""

    vendor: str
    generation: str
    precision: str
    arithmetic: str
    bandwidth: float
    peak: float


class StepFit(NamedTuple):
    """A fitted history. seconds = fixed + per_byte * bytes + per_flop * flops, on the GPU that was measured.

    error:       the median of |fitted / measured - 1|.
    least, most: the range of the history's work.
    points:      how many different points it has.
    """

    fixed: float
    per_byte: float
    per_flop: float
    error: float
    least: GpuWork
    most: GpuWork
    points: int

    def shares(self, work: GpuWork) -> tuple[float, float, float]:
        """The parts of the time at this work that are fixed, memory, arithmetic; their sum is 1."""
        terms = (self.fixed, self.per_byte * work.bytes, self.per_flop * work.flops)
        total = sum(terms)
        return terms[0] / total, terms[1] / total, terms[2] / total


class Prediction(NamedTuple):
    """A predicted number and its band: nine of ten truths are expected between `low` and `high`."""

    value: float
    low: float
    high: float


class Unsupported(NamedTuple):
    """No number, because the evidence does not support one. reason: what is missing."""

    reason: str


def speed_of(model: GpuModel, precision: str) -> GpuSpeed | Unsupported:
    """The figures of a GPU for weights of this precision (bf16, fp8, fp4, int4)."""
    if precision not in ARITHMETIC:
        return Unsupported(f"speed with {precision} weights was not measured on two GPUs")
    arithmetic = next((each for each in ARITHMETIC[precision] if each in model.throughput), None)
    if arithmetic is None:
        return Unsupported(f"{model.name} has no {' or '.join(ARITHMETIC[precision])} throughput in the table")
    if model.bandwidth is None:
        return Unsupported(f"{model.name} has no memory bandwidth in the table")
    peak = model.throughput[arithmetic].value
    return GpuSpeed(model.vendor, model.generation, precision, arithmetic, model.bandwidth.value, peak)


def fit_history(history: Sequence[MeasuredTime], ridge: float = RIDGE) -> StepFit | Unsupported:
    """The three terms of a history. The order of the points is of no effect; equal points count as one."""
    points = sorted({point for point in history if _is_usable(point)})
    if len(points) < FEWEST_POINTS:
        return Unsupported(f"the history has {len(points)} usable points, needs {FEWEST_POINTS}")
    work = np.array([[1.0, *point.work] for point in points])
    seconds = np.array([point.seconds for point in points])
    coefficients = nonnegative_least_squares(work / seconds[:, None], np.ones(len(points)), ridge)
    error = float(np.median(np.abs(work @ coefficients / seconds - 1.0)))
    if error > MOST_FIT_ERROR:
        return Unsupported(f"the fit of the history is off by {error:.0%} in the median, allowed {MOST_FIT_ERROR:.0%}")
    least, most = (GpuWork(float(each[1]), float(each[2])) for each in (work.min(axis=0), work.max(axis=0)))
    fixed, per_byte, per_flop = (float(each) for each in coefficients)
    return StepFit(fixed, per_byte, per_flop, error, least, most, len(points))


def move(
    fit: StepFit,
    measured: MeasuredTime,
    source: GpuSpeed,
    target: GpuSpeed,
    phase: Phase = Phase.DECODE,
    bands: Bands = BANDS,
) -> Prediction | Unsupported:
    """The seconds of the measured operating point on another GPU with the same batch, context and parallelism."""
    if not _is_usable(measured):
        return Unsupported(f"no usable time at the operating point: {measured.seconds:g} s")
    if source == target:
        return Prediction(measured.seconds, measured.seconds, measured.seconds)
    band = _band(source, target, phase, bands)
    if isinstance(band, Unsupported):
        return band
    outside = _outside(fit, measured.work)
    if outside is not None:
        return outside
    fixed, memory, arithmetic = fit.shares(measured.work)
    ratio = fixed + memory * source.bandwidth / target.bandwidth + arithmetic * source.peak / target.peak
    seconds = measured.seconds * ratio
    return Prediction(seconds, seconds * band.low, seconds * band.high)


def nonnegative_least_squares(columns: Floats, target: Floats, ridge: float) -> Floats:
    """The x >= 0 with the least mean((columns @ x - target)**2) + ridge * |x * scale|**2. columns: [n, k], k small.

    `scale` is the root mean square of each column, so that the ridge does not depend on units. By enumeration: the
    solution without bounds on the right subset of columns is the bounded one (the problem is convex), and it has the
    least objective of all subsets whose solution is nowhere negative. Source: Lawson, Hanson, Solving Least Squares
    Problems, 1974, chapter 23.
    """
    scale: Floats = np.sqrt(np.mean(columns**2, axis=0))
    scale[scale == 0.0] = 1.0
    scaled = columns / scale
    gram = scaled.T @ scaled / len(target) + ridge * np.eye(columns.shape[1])
    right = scaled.T @ target / len(target)
    best: Floats = np.zeros(columns.shape[1])
    least = 0.0  # the objective, relative to the one of x = 0
    for size in range(1, columns.shape[1] + 1):
        for subset in map(list, combinations(range(columns.shape[1]), size)):
            solution = np.linalg.solve(gram[np.ix_(subset, subset)], right[subset])
            objective = -float(right[subset] @ solution)
            if solution.min() >= 0.0 and objective < least:
                best, least = np.zeros(columns.shape[1]), objective
                best[subset] = solution
    solved: Floats = best / scale
    return solved


def _is_usable(point: MeasuredTime) -> bool:
    numbers = (*point.work, point.seconds)
    return all(isfinite(each) and each > 0.0 for each in numbers)


def _outside(fit: StepFit, work: GpuWork) -> Unsupported | None:
    for name, value, least, most in zip(GpuWork._fields, work, fit.least, fit.most, strict=True):
        if not least * (1.0 - RANGE_SLACK) <= value <= most * (1.0 + RANGE_SLACK):
            return Unsupported(f"{name} per step {value:.3g} are outside of the history, {least:.3g} to {most:.3g}")
    return None


def _band(source: GpuSpeed, target: GpuSpeed, phase: Phase, bands: Bands) -> Band | Unsupported:
    """The band of a move, if what it needs was measured."""
    if source.vendor != target.vendor:
        return Unsupported(f"no measurement of the same workload on {source.vendor} and {target.vendor}")
    if source.precision != target.precision:
        return Unsupported(f"no measurement of a change from {source.precision} to {target.precision} weights")
    forward = bands.get((phase, source.generation, target.generation))
    backward = bands.get((phase, target.generation, source.generation))
    band = forward or (Band(1.0 / backward.high, 1.0 / backward.low) if backward is not None else None)
    if band is None:
        return Unsupported(f"no error band for the {phase} time between {source.generation} and {target.generation}")
    for name, ratio, most in (
        ("memory bandwidth", target.bandwidth / source.bandwidth, MOST_BANDWIDTH_RATIO),
        ("arithmetic", target.peak / source.peak, MOST_PEAK_RATIO),
    ):
        if not 1.0 / most <= ratio <= most:
            return Unsupported(f"{name} changes by a factor of {ratio:.2f}, measured were {1 / most:.2f} to {most:.2f}")
    return band
