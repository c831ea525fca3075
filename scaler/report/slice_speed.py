"""Predicts the speed of a workload on a MIG slice, relative to the whole GPU, with an error band.

The time T of a unit of work, 1 on the whole GPU, grows with the compute and the bandwidth that a slice lacks:

    T = 1 + max(0, k * lack - slack),    lack = (1 - b) * (1 / compute - 1) + b * (1 / memory - 1)

This is Amdahl's law (1967) with a bandwidth term; `compute` and `memory` are the slice's shares of the GPU. k is the
workload's busy part. `slack` is GPU time that hides behind the host: a job whose input pipeline is the bottleneck
loses nothing until the GPU is slower than that. b and slack are the same for all workloads; they, the weight of an MPS
percentage and the bands were fitted on the 145 (job, slice) cells of MISO (SoCC 2022, boringlee24/socc22-miso, MIT
licence; one A100-40GB, training). `benchmarks/rightsizing/mig.py` fits them again and measures each predictor on model
families that it was not fitted on; the results are in `benchmarks/RIGHTSIZING.md`.

Evidence, and what follows from it:

- **a measured slice**: k is solved from its speed. Two: the prediction is interpolated between those of the nearest
  measured slices on either side.
- **throughputs on slices**, without one of the whole GPU: k is solved from the ratio of the largest to the smallest
  slice, and `ratio_bounds` are over all speeds that such a ratio allows. The error is not known.
- **an MPS profile**: speeds at active thread percentages from 14 to 50. MPS limits SMs and not bandwidth: a percentage
  p lacks `mps * (1 / p - 1)`.
- **activity**: DRAM activity is bandwidth, the rest of SM activity is compute. T = 1 - u + (u - d) / compute +
  d / memory, where d is DRAM activity and u the larger of both. No public data has activity beside speeds on slices, so
  the error of this estimate is not known.

**Band.** On the GPU model and the profiles that were measured, `low` and `high` hold about 90 % of the truths of MISO
and of MIGPerf (MLSysOps/MIGProfiler, MIT licence; inference and fine-tuning on an A100-40GB, not used for the fit);
88 % in model families that the band was not taken from. Everywhere else they are bounds that follow from the evidence
without a fit: work slows down at most in proportion to compute and bandwidth, and at least as fast as Amdahl's line
through the measured slice. They ignore that a slice has less L2 cache, and hold 96 % of MISO's and 90 % of MIGPerf's
truths. `measured` says which of both a band is. A slice on which a workload loses less than 5 % tells nothing about
smaller ones: the host is the bottleneck there, and where the GPU becomes it is not known. So those have bounds.

Worked example: a job has 0.70 of its speed on the 3g.20gb of an A100-40GB: T = 1.429. lack is 0.5 * 1.333 + 0.5 * 1 =
1.167, so k = (0.429 + 0.075) / 1.167 = 0.432. 1g.5gb lacks 0.5 * 6 + 0.5 * 7 = 6.5: T = 1 + 0.432 * 6.5 - 0.075 = 3.73,
and the speed is 0.268.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import inf, log
from typing import NamedTuple

from .mig import MigModel, SliceProfile

HIGHEST_SPEED = 1.1  # measured on a slice; more is another workload, or another clock
NO_LOSS = 0.95  # a speed from which on a slice tells nothing about smaller ones
RATIO_STEPS = 200  # of speeds that are tried on a slice
LOWEST_PERCENT, HIGHEST_PERCENT, ALL_PERCENT = 14, 50, 100  # of MPS: the least and the most that were measured


class SliceShare(NamedTuple):
    """A slice's shares of the whole GPU, 0..1. compute: of SMs. memory: of memory slices, and so of bandwidth."""

    compute: float
    memory: float


class SpeedConstants(NamedTuple):
    """What is the same for all workloads. bandwidth: b. slack: in units of T. mps: weight of an MPS percentage."""

    bandwidth: float
    slack: float
    mps: float


class GpuActivity(NamedTuple):
    """Means while the workload is loaded on a whole GPU, 0..1; None if it is not measured.

    engine: time with any kernel. sm, dram: DCGM's profiling fields 1002 and 1005.
    """

    engine: float | None
    sm: float | None
    dram: float | None


class SpeedEvidence(NamedTuple):
    """What was measured of a workload. slices: speed by profile name. mps: speed by active thread percentage.

    Speeds are relative to the same workload alone on the whole GPU. relative: throughputs in any unit on two or more
    slices, of a workload whose throughput on the whole GPU is not known.
    """

    slices: Mapping[str, float] = {}
    mps: Mapping[int, float] = {}
    activity: GpuActivity | None = None
    relative: Mapping[str, float] = {}


class SliceSpeed(NamedTuple):
    """A speed relative to the whole GPU. low, high: its band. basis: `whole`, `measured`, `one slice`, `two slices`,
    `ratio of slices`, `mps` or `activity`. measured: whether the band is a measured one (see the module).
    """

    value: float
    low: float
    high: float
    basis: str
    measured: bool


CONSTANTS = SpeedConstants(bandwidth=0.5, slack=0.075, mps=0.68)

# Half the width of the measured bands: the 95 % quantile of the absolute errors on families that were not fitted, the
# larger one of both data sets. By measured profile and target, by target between two measured profiles, and by target
# from MPS (MISO only).
MEASURED_MODEL = "A100-40GB"
ONE_SLICE: Mapping[str, Mapping[str, float]] = {
    "4g.20gb": {"3g.20gb": 0.079, "2g.10gb": 0.153, "1g.5gb": 0.187},
    "3g.20gb": {"4g.20gb": 0.068, "2g.10gb": 0.091, "1g.5gb": 0.137},
    "2g.10gb": {"4g.20gb": 0.106, "3g.20gb": 0.073, "1g.5gb": 0.289},
    "1g.5gb": {"4g.20gb": 0.120, "3g.20gb": 0.163, "2g.10gb": 0.238},
}
BETWEEN: Mapping[str, float] = {"3g.20gb": 0.078, "2g.10gb": 0.112}
MPS: Mapping[str, float] = {"4g.20gb": 0.179, "3g.20gb": 0.127, "2g.10gb": 0.126, "1g.5gb": 0.072}


def share(model: MigModel, profile: SliceProfile) -> SliceShare:
    """The shares of a profile of this model."""
    return SliceShare(profile.sms / model.whole.sms, profile.memory / model.whole.memory)


def lack(target: SliceShare, constants: SpeedConstants = CONSTANTS) -> float:
    """How much a slice lacks, in units of k; 0 for the whole GPU."""
    b = constants.bandwidth
    return (1.0 - b) * (1.0 / target.compute - 1.0) + b * (1.0 / target.memory - 1.0)


def slowed(busy: float, target: SliceShare, constants: SpeedConstants = CONSTANTS) -> float:
    """The speed on a slice of a workload with this k."""
    return 1.0 / (1.0 + max(0.0, busy * lack(target, constants) - constants.slack))


def busy_part(speed: float, lacking: float, constants: SpeedConstants = CONSTANTS) -> float:
    """The k of a workload that has this speed where it lacks `lacking`."""
    return (max(1.0 / speed - 1.0, 0.0) + constants.slack) / lacking


def from_slices(slices: Mapping[SliceShare, float], target: SliceShare, constants: SpeedConstants = CONSTANTS) -> float:
    """The speed on `target` from measured speeds on other slices, at least one, none of them the whole GPU."""
    points = sorted((lack(each, constants), speed) for each, speed in slices.items())
    predictions = [(at, slowed(busy_part(speed, at, constants), target, constants)) for at, speed in points]
    wanted = lack(target, constants)
    for (lower, first), (upper, second) in pairwise(predictions):
        if lower <= wanted < upper:
            part = (log(wanted) - log(lower)) / (log(upper) - log(lower))
            return first + part * (second - first)
    return predictions[0][1] if wanted < predictions[0][0] else predictions[-1][1]


def from_mps(profile: Mapping[int, float], target: SliceShare, constants: SpeedConstants = CONSTANTS) -> float:
    """The speed on `target` from speeds at MPS percentages within the supported range."""
    busy = [
        busy_part(speed, constants.mps * (ALL_PERCENT / percent - 1.0), constants) for percent, speed in profile.items()
    ]
    return slowed(sum(busy) / len(busy), target, constants)


def from_activity(activity: GpuActivity, target: SliceShare) -> float | None:
    """Amdahl's curve with a bandwidth term; None without SM or DRAM activity."""
    if activity.sm is None or activity.dram is None:
        return None
    used = max(activity.sm, activity.dram)
    return 1.0 / (1.0 - used + (used - activity.dram) / target.compute + activity.dram / target.memory)


def slice_bounds(measured: SliceShare, speed: float, target: SliceShare) -> tuple[float, float]:
    """The least and the highest speed on `target` of a workload with this speed on `measured`, without a fit."""
    excess = max(1.0 / speed - 1.0, 0.0)
    ratios = [wanted / had for wanted, had in zip(target, measured, strict=True)]
    growth = [
        (1.0 / wanted - 1.0) / (1.0 / had - 1.0) for wanted, had in zip(target, measured, strict=True) if had < 1.0
    ]
    if lack(target) > lack(measured):
        bounds = min(1.0, speed) * min(1.0, *ratios), 1.0 / (1.0 + excess * min(growth))
    else:
        bounds = max(min(1.0, speed), 1.0 / (1.0 + excess * max(growth))), min(1.0, speed * max(1.0, *ratios))
    return min(bounds), max(bounds)  # in reverse order if the measured slice is slower than in proportion


def from_ratio(
    first: SliceShare, second: SliceShare, ratio: float, target: SliceShare, constants: SpeedConstants = CONSTANTS
) -> float:
    """The speed on `target` if a workload has `ratio` of its speed on `first` on the smaller `second`, with 1 + k *
    lack - slack as the time on both. A ratio that no k gives is as good as the nearest one: `ratio_bounds` limit it.
    """
    one, other = lack(first, constants), lack(second, constants)
    growth = 1.0 / min(ratio, 1.0)
    if growth >= other / one:
        return 0.0
    return slowed((1.0 - constants.slack) * (growth - 1.0) / (other - growth * one), target, constants)


def ratio_bounds(first: SliceShare, second: SliceShare, ratio: float, target: SliceShare) -> tuple[float, float]:
    """The least and the highest speed on `target`, over all speeds on `first` that allow this ratio; without a fit."""
    least, ratio = min(first), min(ratio, 1.0)
    speeds = [least + (1.0 - least) * step / RATIO_STEPS for step in range(RATIO_STEPS + 1)]
    bounds = [(speed, slice_bounds(first, speed, second)) for speed in speeds]
    # Less than in proportion, as with less cache, is allowed by no speed: then any may be.
    allowed = [speed for speed, (low, high) in bounds if low <= ratio * speed <= high] or speeds
    ends = [(slice_bounds(first, speed, target), slice_bounds(second, ratio * speed, target)) for speed in allowed]
    found = [sorted((max(one[0], other[0]), min(one[1], other[1]))) for one, other in ends]
    return min(low for low, _ in found), max(high for _, high in found)


def activity_bounds(activity: GpuActivity, target: SliceShare) -> tuple[float, float]:
    """The least and the highest speed on `target` of a workload with this activity on the whole GPU.

    While no kernel runs, a slice takes nothing away; while one does, at most the larger of both shortages. Bytes that
    a second of the whole GPU moved take at least `dram / memory` seconds.
    """
    engine = 1.0 if activity.engine is None else activity.engine
    least = 1.0 / (1.0 - engine + engine / min(target))
    return least, 1.0 / max(1.0, (activity.dram or 0.0) / target.memory)


def predict(model: MigModel, profile: SliceProfile, evidence: SpeedEvidence) -> SliceSpeed | None:
    """The speed on a profile of this model; None if the evidence supports none.

    A measured band wins over bounds, then the narrower one. Errors: ValueError if a speed, a percentage or an activity
    is outside its bounds, or a profile is none of the model's.
    """
    shares = {each.name: share(model, each) for each in model.profiles}
    validate(model, evidence)
    if profile == model.whole:
        return SliceSpeed(1.0, 1.0, 1.0, "whole", measured=True)
    if profile.name in evidence.slices:
        speed = evidence.slices[profile.name]
        return SliceSpeed(speed, speed, speed, "measured", measured=True)
    candidates = _candidates(model.name, profile.name, shares, evidence)
    return min(candidates, key=lambda each: (not each.measured, each.high - each.low), default=None)


def _candidates(
    model: str, target: str, shares: Mapping[str, SliceShare], evidence: SpeedEvidence
) -> Iterator[SliceSpeed]:
    wanted = shares[target]
    slices = {name: speed for name, speed in evidence.slices.items() if lack(shares[name]) > 0.0}
    if slices:
        value = from_slices({shares[name]: speed for name, speed in slices.items()}, wanted)
        smaller = [name for name in slices if lack(shares[name]) > lack(wanted)]
        larger = [name for name in slices if lack(shares[name]) < lack(wanted)]
        if smaller and larger:
            basis, width = "two slices", BETWEEN.get(target)
        else:  # the nearest one decides
            nearest = min(slices, key=lambda name: abs(log(lack(shares[name]) / lack(wanted))))
            informative = bool(smaller) or slices[nearest] < NO_LOSS
            basis, width = "one slice", ONE_SLICE.get(nearest, {}).get(target) if informative else None
        bounds = [slice_bounds(shares[name], speed, wanted) for name, speed in slices.items()]
        low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
        yield _banded(value, width if model == MEASURED_MODEL else None, (min(low, high), max(low, high)), basis)
    if len(evidence.relative) > 1:
        ordered = sorted((shares[name] for name in evidence.relative), key=lack)
        rates = {shares[name]: rate for name, rate in evidence.relative.items()}
        pair = ordered[0], ordered[-1], rates[ordered[-1]] / rates[ordered[0]]
        yield _banded(from_ratio(*pair, wanted), None, ratio_bounds(*pair, wanted), "ratio of slices")
    percentages = {
        percent: speed for percent, speed in evidence.mps.items() if LOWEST_PERCENT <= percent <= HIGHEST_PERCENT
    }
    if percentages and model == MEASURED_MODEL and target in MPS and min(percentages.values()) < NO_LOSS:
        yield _banded(from_mps(percentages, wanted), MPS[target], (0.0, 1.0), "mps")
    if evidence.activity is not None:
        estimate = from_activity(evidence.activity, wanted)
        if estimate is not None:
            yield _banded(estimate, None, activity_bounds(evidence.activity, wanted), "activity")


def _banded(value: float, width: float | None, bounds: tuple[float, float], basis: str) -> SliceSpeed:
    if width is not None:
        return SliceSpeed(value, max(0.0, value - width), min(HIGHEST_SPEED, value + width), basis, measured=True)
    low, high = bounds
    return SliceSpeed(min(max(value, low), high), low, high, basis, measured=False)


def validate(model: MigModel, evidence: SpeedEvidence) -> None:
    """Raises ValueError as `predict` does."""
    shares = {each.name: share(model, each) for each in model.profiles}
    for name, speed in evidence.slices.items():
        if name not in shares:
            raise ValueError(f"slices.{name}: must be a profile of the GPU ({', '.join(shares)}), got {name!r}")
        if not 0.0 < speed <= HIGHEST_SPEED:
            raise ValueError(f"slices.{name}: must be above 0 and at most {HIGHEST_SPEED}, got {speed}")
    for name, rate in evidence.relative.items():
        if name not in shares or not lack(shares[name]) > 0.0:
            raise ValueError(f"relative.{name}: must be a profile of a part of the GPU, got {name!r}")
        if not 0.0 < rate < inf:
            raise ValueError(f"relative.{name}: must be above 0, got {rate}")
    for percent, speed in evidence.mps.items():
        if not 0 < percent <= ALL_PERCENT:
            raise ValueError(f"mps: a percentage must be above 0 and at most {ALL_PERCENT}, got {percent}")
        if not 0.0 < speed <= HIGHEST_SPEED:
            raise ValueError(f"mps.{percent}: must be above 0 and at most {HIGHEST_SPEED}, got {speed}")
    for name, value in evidence.activity._asdict().items() if evidence.activity else ():
        if value is not None and not 0.0 <= value <= 1.0:
            raise ValueError(f"activity.{name}: must be from 0 to 1, got {value}")
