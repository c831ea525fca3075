"""Measures the advice on MIG: the speed on a slice, the partition, and MISO's jobs with our search.

    python benchmarks/rightsizing/mig.py MISO MIGPERF [--only speed|partition|jobs] [--download]

MISO and MIGPERF are folders with clones of github.com/boringlee24/socc22-miso and github.com/MLSysOps/MIGProfiler, both
under the MIT licence; `--download` clones them there. Nothing is kept in this repository.

Everything that is fitted is fitted without the model family that it is measured on (leave one family out): b, slack
and the MPS weight by grid, the bands as quantiles of the other families' errors. MIGPerf is never fitted on.

Worked example: the row `3g.20gb | 0.027 | | 0.032 | 0.058` says that from the speed on 3g the speed on 1g is predicted
with a mean absolute error of 0.058 of the whole GPU's speed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations, permutations
from pathlib import Path
from typing import TypeAlias

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import cluster_jobs
import migperf
import miso
from report import table

from scaler.report import slice_speed
from scaler.report.mig import compositions, find, name
from scaler.report.partition import MOST_INSTANCES, plan
from scaler.report.slice_speed import SliceShare, SpeedConstants, from_mps, from_slices

MODEL = find("A100-40GB")
assert MODEL is not None
SHARES: dict[str, SliceShare] = {each.name: slice_speed.share(MODEL, each) for each in MODEL.profiles}
SLICES = ("4g.20gb", "3g.20gb", "2g.10gb", "1g.5gb")
LEVEL = 0.95  # of the quantile that is a band: with 0.9 the held-out families are inside in 78 to 90 % of the cells
NOISE = 0.02
GPUS = 8
JOB_SOURCES = ("3g.20gb", "ratio of 3g.20gb to 2g.10gb", "ratio of 3g.20gb to 1g.5gb", "MPS")
MISO_STATIC = "3g.20gb + 2 x 2g.10gb"  # of exp_static.py
SMALLEST_STATIC = "7 x 1g.5gb"
NOT_LISTED = "4g.20gb + 3g.20gb"  # not in MISO's partition_code.json
Cells: TypeAlias = Mapping[str, Mapping[str, float]]
Predictor: TypeAlias = Callable[[str, str], float | None]  # job, target
GRID = [(b, slack) for b in np.linspace(0.0, 1.0, 21) for slack in np.linspace(0.0, 0.2, 9)]
MPS_GRID = np.linspace(0.4, 1.2, 41)


def fit(cells: Cells, profiles: Mapping[str, Mapping[int, float]], jobs: Iterable[str]) -> SpeedConstants:
    """The constants with the least mean absolute error over these jobs and all pairs of measured and target slice."""
    jobs = list(jobs)
    triples = [
        (cells[job][one], SHARES[one], SHARES[other], cells[job][other])
        for job in jobs
        for one, other in permutations(SLICES, 2)
        if one in cells[job] and other in cells[job]
    ]

    def of_slices(b: float, slack: float) -> float:
        constants = SpeedConstants(b, slack, 1.0)
        return float(np.mean([abs(from_slices({m: speed}, t, constants) - true) for speed, m, t, true in triples]))

    b, slack = min(GRID, key=lambda each: of_slices(*each))

    def of_mps(weight: float) -> float:
        constants = SpeedConstants(b, slack, weight)
        targets = [(job, name) for job in jobs for name in SLICES if name in cells[job]]
        return float(np.mean([abs(from_mps(profiles[j], SHARES[t], constants) - cells[j][t]) for j, t in targets]))

    return SpeedConstants(float(b), float(slack), float(min(MPS_GRID, key=of_mps)))


def errors(cells: Cells, predictor: Predictor, target: str) -> dict[str, float]:
    """The absolute error by job, of the jobs that have a truth and a prediction."""
    predictions = {job: predictor(job, target) for job in cells if target in cells[job]}
    return {job: abs(value - cells[job][target]) for job, value in predictions.items() if value is not None}


def predictors(cells: Cells, constants: Callable[[str], SpeedConstants]) -> dict[str, Predictor]:
    """Those with one measured slice, and with two on either side of the target."""

    def one(measured: str) -> Predictor:
        return lambda job, target: (
            from_slices({SHARES[measured]: cells[job][measured]}, SHARES[target], constants(job))
            if measured in cells[job] and measured != target
            else None
        )

    def between(larger: str, smaller: str) -> Predictor:
        return lambda job, target: (
            from_slices({SHARES[each]: cells[job][each] for each in (larger, smaller)}, SHARES[target], constants(job))
            if {larger, smaller} <= cells[job].keys() and larger > target > smaller
            else None
        )

    pairs = combinations(SLICES, 2)
    return {each: one(each) for each in SLICES} | {f"{a} and {b}": between(a, b) for a, b in pairs}


def ratios(cells: Cells, constants: Callable[[str], SpeedConstants]) -> dict[str, Predictor]:
    """Those that know the ratio of two slices, and no speed relative to the whole GPU."""

    def of(larger: str, smaller: str) -> Predictor:
        def predict(job: str, target: str) -> float | None:
            if not {larger, smaller} <= cells[job].keys():
                return None
            pair = SHARES[larger], SHARES[smaller], cells[job][smaller] / cells[job][larger]
            low, high = slice_speed.ratio_bounds(*pair, SHARES[target])
            return min(max(slice_speed.from_ratio(*pair, SHARES[target], constants(job)), low), high)

        return predict

    return {f"ratio of {one} to {other}": of(one, other) for one, other in combinations(SLICES, 2)}


def ratio_bounded(label: str, cells: Cells) -> list[dict[str, object]]:
    """How `ratio_bounds` of two slices holds, for all slices that a job was measured on."""
    lines: list[dict[str, object]] = []
    for one, other in combinations(SLICES, 2):
        found = [
            (*slice_speed.ratio_bounds(SHARES[one], SHARES[other], row[other] / row[one], SHARES[t]), min(1.0, row[t]))
            for row in cells.values()
            if {one, other} <= row.keys()
            for t in SLICES
            if t in row
        ]
        if found:
            inside = [low - NOISE <= true <= high + NOISE for low, high, true in found]
            width = float(np.mean([high - low for low, high, _ in found]))
            counts = {"cells": len(found), "inside": round(float(np.mean(inside)), 3), "width": round(width, 2)}
            lines.append({"data": label, "ratio of": f"{one} to {other}", **counts})
    return lines


def amdahl(cells: Cells, measured: str) -> Predictor:
    """The anchor: Amdahl's law on compute slices alone, through one measured slice."""

    def predict(job: str, target: str) -> float | None:
        if measured not in cells[job] or measured == target:
            return None
        part = (1 / cells[job][measured] - 1) / (1 / SHARES[measured].compute - 1)
        return 1 / (1 + part * (1 / SHARES[target].compute - 1))

    return predict


def rows(cells: Cells, named: Mapping[str, Predictor]) -> list[dict[str, object]]:
    """Mean absolute error by predictor and target, and the cells that it was measured on."""
    lines = []
    for label, predictor in named.items():
        found = {target: list(errors(cells, predictor, target).values()) for target in SLICES}
        if any(found.values()):
            means = {target: round(float(np.mean(each)), 3) if each else None for target, each in found.items()}
            lines.append({"from": label, **means, "cells": sum(map(len, found.values()))})
    return lines


def covered(cells: Cells, predictor: Predictor, target: str) -> float | None:
    """The part of the truths inside a band that is the quantile of the other families' errors."""
    found = errors(cells, predictor, target)
    inside = []
    for job, error in found.items():
        others = [each for other, each in found.items() if miso.family(other) != miso.family(job)]
        inside.append(error <= np.quantile(others, LEVEL))
    return round(float(np.mean(inside)), 2) if inside else None


def speed(miso_folder: Path, migperf_folder: Path) -> None:
    cells, profiles = miso.cells(miso_folder), miso.mps_profiles(miso_folder)
    families = sorted({miso.family(job) for job in cells})
    print(f"MISO: {len(cells)} jobs of {len(families)} families, {sum(map(len, cells.values()))} cells")
    print("all families:", fit(cells, profiles, cells), "in use:", slice_speed.CONSTANTS)
    held_out = {each: fit(cells, profiles, [job for job in cells if miso.family(job) != each]) for each in families}
    print("without one family:", *sorted({tuple(round(x, 3) for x in each) for each in held_out.values()}))
    named = predictors(cells, lambda job: held_out[miso.family(job)])
    named["MPS 14 and 50 %"] = lambda job, target: from_mps(profiles[job], SHARES[target], held_out[miso.family(job)])
    named["MPS 14 %"] = lambda job, target: from_mps(
        {14: profiles[job][14]}, SHARES[target], held_out[miso.family(job)]
    )
    anchors = {"slices / 7": lambda _, target: SHARES[target].compute}
    anchors |= {f"Amdahl from {each}": amdahl(cells, each) for each in SLICES}
    print("\nMean absolute error, leave one family out\n")
    print(table(rows(cells, anchors | named | alternatives(cells, families))))
    print("\nThe same from the ratio of two slices, without the whole GPU\n")
    print(table(rows(cells, ratios(cells, lambda job: held_out[miso.family(job)]))))
    print("\nPart of the truths inside the band that the other families give\n")
    print(table([{"from": n, **{t: covered(cells, p, t) for t in SLICES}} for n, p in named.items()]))
    outside = migperf.cells(migperf_folder)
    fixed = predictors(outside, lambda _: slice_speed.CONSTANTS)
    losing = {name: only_with_loss(outside, name, fixed[name]) for name in SLICES}
    print(f"\nMIGPerf, {len(outside)} jobs, constants of MISO\n")
    print(table(rows(outside, {f"Amdahl from {each}": amdahl(outside, each) for each in SLICES} | fixed)))
    print("\nThe same, of the jobs that lose 5 % or more on the measured slice\n")
    print(table(rows(outside, losing)))
    print("\nPart of the truths inside the bounds without a fit, and their mean width\n")
    print(table([bounded("MISO", cells), bounded("MIGPerf", outside)]))
    print("\nThe same from the ratio of two slices\n")
    print(table([*ratio_bounded("MISO", cells), *ratio_bounded("MIGPerf", outside)]))
    print("\nMIGPerf, from the ratio of two slices, constants of MISO\n")
    print(table(rows(outside, ratios(outside, lambda _: slice_speed.CONSTANTS))))
    print("\nBands: the larger quantile of both, over jobs whose evidence supports a prediction\n")
    bands(cells, named, outside, fixed)


def alternatives(cells: Cells, families: Sequence[str]) -> dict[str, Predictor]:
    """What was tried instead of the curve, from 3g (the last one: and 4g), leave one family out."""
    without = {each: [job for job in cells if miso.family(job) != each] for each in families}

    @cache
    def share_without_slack(held_out: str) -> SpeedConstants:
        jobs = [(job, target) for job in without[held_out] for target in SLICES if target in cells[job]]

        def error(b: float) -> float:
            constants = SpeedConstants(b, 0.0, 1.0)
            predictions = (from_slices({SHARES["3g.20gb"]: cells[j]["3g.20gb"]}, SHARES[t], constants) for j, t in jobs)
            return float(np.mean([abs(p - cells[j][t]) for p, (j, t) in zip(predictions, jobs, strict=True)]))

        return SpeedConstants(float(min(np.linspace(0, 1, 21), key=error)), 0.0, 1.0)

    def no_slack(job: str, target: str) -> float | None:
        constants = share_without_slack(miso.family(job))
        speed = from_slices({SHARES["3g.20gb"]: cells[job]["3g.20gb"]}, SHARES[target], constants)
        return speed if target != "3g.20gb" else None

    def regression(job: str, target: str) -> float | None:
        known = [cells[other] for other in without[miso.family(job)] if target in cells[other]]
        slope, offset = np.polyfit([1 / row["3g.20gb"] for row in known], [1 / row[target] for row in known], 1)
        return float(1 / (offset + slope / cells[job]["3g.20gb"])) if target != "3g.20gb" else None

    def two_terms(job: str, target: str) -> float | None:
        lacking = {each: (1 / SHARES[each].compute - 1, 1 / SHARES[each].memory - 1) for each in SLICES}
        matrix = np.array([lacking["4g.20gb"], lacking["3g.20gb"]])
        compute, memory = np.linalg.solve(matrix, [1 / cells[job][each] - 1 for each in ("4g.20gb", "3g.20gb")])
        terms = np.clip([compute, memory], 0.0, None)
        return float(1 / (1 + terms @ lacking[target])) if target < "3g.20gb" else None

    return {
        "3g, no slack": no_slack,
        "3g, regression of time on time": regression,
        "4g and 3g, compute and bandwidth solved": two_terms,
    }


def bounded(label: str, cells: Cells) -> dict[str, object]:
    """How `slice_bounds` holds from one slice to another. Speeds above 1 are noise of jobs that lose nothing."""
    found = [
        (*slice_speed.slice_bounds(SHARES[one], row[one], SHARES[other]), min(1.0, row[other]))
        for row in cells.values()
        for one, other in permutations(SLICES, 2)
        if one in row and other in row
    ]
    inside = [low - NOISE <= true <= high + NOISE for low, high, true in found]
    widths = [high - low for low, high, _ in found]
    return {"data": label, "pairs": len(found), "inside": round(float(np.mean(inside)), 3), "width": np.mean(widths)}


def only_with_loss(cells: Cells, measured: str, predictor: Predictor) -> Predictor:
    """The predictor for jobs that lose on the measured slice, or for larger slices: the rest is not supported."""
    return lambda job, target: (
        predictor(job, target) if target > measured or cells[job].get(measured, 1.0) < slice_speed.NO_LOSS else None
    )


def bands(cells: Cells, named: Mapping[str, Predictor], outside: Cells, fixed: Mapping[str, Predictor]) -> None:
    """Prints the constants ONE_SLICE, BETWEEN and MPS of `scaler.report.slice_speed`."""

    def width(name: str, target: str) -> float | None:
        quantiles = []
        for data, all_named in ((cells, named), (outside, fixed)):
            predictor = all_named.get(name)
            if predictor is None:
                continue
            supported = only_with_loss(data, name, predictor) if name in SLICES else predictor
            found = list(errors(data, supported, target).values())
            quantiles += [float(np.quantile(found, LEVEL))] if found else []
        return round(max(quantiles), 3) if quantiles else None

    for measured in SLICES:
        print("ONE_SLICE", measured, {target: width(measured, target) for target in SLICES if target != measured})
    pairs = [name for name in named if " and " in name and name[0] in "4321"]
    print("BETWEEN", {t: max((w for name in pairs if (w := width(name, t)) is not None), default=None) for t in SLICES})
    print("MPS", {target: width("MPS 14 and 50 %", target) for target in SLICES})


def predicted(cells: Cells, profiles: Mapping[str, Mapping[int, float]], evidence: str) -> dict[str, dict[str, float]]:
    """Speeds as our predictor has them from one kind of evidence, without the job's family in the fit.

    evidence: `3g.20gb`, `3g.20gb and 1g.5gb`, `MPS`, or `ratio of 3g.20gb to 1g.5gb`. That a job does not fit a profile
    is not predicted. A job that does not fit the measured slices is predicted from MPS.
    """
    if evidence.startswith("ratio"):
        return predicted_by_ratio(cells, profiles, evidence)
    families = sorted({miso.family(job) for job in cells})
    held_out = {each: fit(cells, profiles, [job for job in cells if miso.family(job) != each]) for each in families}
    speeds: dict[str, dict[str, float]] = {}
    for job, row in cells.items():
        constants = held_out[miso.family(job)]
        slices = {name: row[name] for name in evidence.split(" and ") if name in row}
        shares = {SHARES[name]: speed for name, speed in slices.items()}
        speeds[job] = {
            name: slices[name]
            if name in slices
            else from_slices(shares, SHARES[name], constants)
            if slices
            else from_mps(profiles[job], SHARES[name], constants)
            for name in row
            if name != miso.WHOLE
        } | {miso.WHOLE: 1.0}
    return speeds


def predicted_by_ratio(
    cells: Cells, profiles: Mapping[str, Mapping[int, float]], evidence: str
) -> dict[str, dict[str, float]]:
    """As `predicted`, from the ratio of two slices."""
    families = sorted({miso.family(job) for job in cells})
    held_out = {each: fit(cells, profiles, [job for job in cells if miso.family(job) != each]) for each in families}
    by_ratio = ratios(cells, lambda job: held_out[miso.family(job)])[evidence]
    speeds: dict[str, dict[str, float]] = {}
    for job, row in cells.items():
        found = {each: by_ratio(job, each) for each in row if each != miso.WHOLE}
        constants = held_out[miso.family(job)]
        speeds[job] = {
            each: from_mps(profiles[job], SHARES[each], constants) if speed is None else speed
            for each, speed in found.items()
        } | {miso.WHOLE: 1.0}
    return speeds


def chooser(speeds: Cells) -> Callable[[tuple[str, ...]], tuple[str, ...] | None]:
    """The best partition of one GPU for these jobs, the profile of each; None if they do not all fit."""
    names = [profile.name for profile in MODEL.profiles]

    @cache
    def choose(jobs: tuple[str, ...]) -> tuple[str, ...] | None:
        if len(jobs) > MOST_INSTANCES:
            return None
        table = np.array([[speeds[job].get(name, np.nan) for name in names] for job in jobs])
        found = plan([MODEL], {MODEL.name: table}, [1] * len(jobs))
        (gpu,) = found.gpus
        placed = {row: profile.name for profile, row in zip(gpu.profiles, gpu.workloads, strict=True)}
        return tuple(placed[row] for row in range(len(jobs))) if sum(found.placed) == len(jobs) else None

    return choose


def total(cells: Cells, jobs: Sequence[str], profiles: Sequence[str]) -> float:
    return sum(cells[job][profile] for job, profile in zip(jobs, profiles, strict=True))


def partition(miso_folder: Path, mixes: int = 2000) -> None:
    """Throughput of the partition by predicted speeds, as a part of the best one, over random mixes that fit."""
    cells, profiles = miso.cells(miso_folder), miso.mps_profiles(miso_folder)
    random = np.random.default_rng(1)
    names = sorted(cells)
    oracle = chooser(cells)
    drawn = []
    while len(drawn) < mixes:
        jobs = tuple(sorted(random.choice(names, random.integers(2, MOST_INSTANCES + 1))))
        if oracle(jobs) is not None:
            drawn.append(jobs)
    best = np.array([total(cells, jobs, oracle(jobs) or ()) for jobs in drawn])
    lines = []
    measured = ("3g.20gb", "4g.20gb", "2g.10gb", "1g.5gb", "3g.20gb and 1g.5gb")
    for evidence in (*measured, "ratio of 3g.20gb to 2g.10gb", "ratio of 3g.20gb to 1g.5gb", "MPS"):
        choose = chooser(predicted(cells, profiles, evidence))
        reached = np.array([total(cells, jobs, choose(jobs) or ()) for jobs in drawn]) / best
        lines.append(part_of(evidence, reached))
    lines += [
        part_of(f"measured; static {name(MODEL, c)}", np.array([static_total(cells, jobs, c) for jobs in drawn]) / best)
        for c in compositions(MODEL)
        if name(MODEL, c) in {MISO_STATIC, NOT_LISTED, SMALLEST_STATIC}
    ]
    print(f"{len(drawn)} mixes of 2 to 7 jobs that fit one GPU; median best {np.median(best):.2f} GPUs of work\n")
    print(table(lines))


def part_of(label: str, reached: np.ndarray) -> dict[str, object]:
    """reached: part of the best throughput by mix, NaN where the jobs do not all fit."""
    fits = reached[~np.isnan(reached)]
    return {
        "speeds": label,
        "mixes that fit": f"{len(fits) / len(reached):.0%}",
        "mean": round(float(fits.mean()), 3),
        "5 % quantile": round(float(np.quantile(fits, 0.05)), 3),
        "least": round(float(fits.min()), 3),
    }


def static_total(cells: Cells, jobs: Sequence[str], composition: tuple[int, ...]) -> float:
    """The best throughput of these jobs on one fixed partition; NaN if they do not all fit there."""
    instances = [p.name for p, count in zip(MODEL.profiles, composition, strict=True) for _ in range(count)]
    if len(instances) < len(jobs):
        return float("nan")
    values = [
        total(cells, jobs, chosen)
        for chosen in set(permutations(instances, len(jobs)))
        if all(profile in cells[job] for job, profile in zip(jobs, chosen, strict=True))
    ]
    return max(values, default=float("nan"))


def jobs(miso_folder: Path, seeds: int = 20) -> None:
    """MISO's trace with each policy: mean completion time relative to static partitions and whole GPUs."""
    cells, profiles = miso.cells(miso_folder), miso.mps_profiles(miso_folder)
    work = miso.trace(miso_folder)
    order = [profile.name for profile in MODEL.profiles]
    plain = [c for c in compositions(MODEL) if not c[order.index("1g.10gb")]]  # the driver of 2022 had no 1g.10gb
    sources = {"measured": cells} | {each: predicted(cells, profiles, each) for each in JOB_SOURCES}
    policies = {label: cluster_jobs.dynamic(chooser(speeds), speeds) for label, speeds in sources.items()}
    policies["measured, MISO's choice of the GPU"] = cluster_jobs.dynamic(
        chooser(cells), cells, cluster_jobs.fewest_jobs
    )
    # MISO runs the jobs of a GPU under MPS for 30 s when one joins them. Here they stand still, the worst case.
    policies["MPS, 30 s of it without work"] = cluster_jobs.dynamic(
        chooser(sources["MPS"]), sources["MPS"], probe_s=cluster_jobs.PAUSE_S
    )
    lines: dict[str, list[list[float]]] = {label: [] for label in policies}
    for seed in range(1, seeds + 1):
        arriving = cluster_jobs.arrivals(work, seed)
        statics = {}
        for c in plain:
            parts = [p.name for p, count in zip(MODEL.profiles, c, strict=True) for _ in range(count)]
            schedule = cluster_jobs.static(parts, cells, order)
            statics[name(MODEL, c)] = cluster_jobs.simulate(arriving, GPUS, cells, schedule)
        listed = {label: time for label, time in statics.items() if label != NOT_LISTED}
        bases = [
            statics[MISO_STATIC],
            min(listed.values()),
            min(statics.values()),
            cluster_jobs.simulate(arriving, GPUS, cells, cluster_jobs.whole),
        ]
        for label, schedule in policies.items():
            time = cluster_jobs.simulate(arriving, GPUS, cells, schedule)
            lines[label].append([1.0 - time / base for base in bases])
    columns = (f"less than {MISO_STATIC}", "than the best of MISO's 18", "than the best of all 19", "than whole GPUs")
    for title, part in (("seed 1, MISO's order", slice(1)), (f"mean of {seeds} seeds", slice(None))):
        rows_of = [
            {"speeds": label, **dict(zip(columns, np.round(np.mean(found[part], axis=0), 3).tolist(), strict=True))}
            for label, found in lines.items()
        ]
        print(f"\nMean completion time, {title}\n")
        print(table(rows_of))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("miso", type=Path)
    parser.add_argument("migperf", type=Path)
    parser.add_argument("--only", choices=("speed", "partition", "jobs"))
    parser.add_argument("--download", action="store_true")
    arguments = parser.parse_args()
    if arguments.download:
        miso.fetch(arguments.miso)
        migperf.fetch(arguments.migperf)
    if arguments.only in {None, "speed"}:
        speed(arguments.miso, arguments.migperf)
    if arguments.only in {None, "partition"}:
        partition(arguments.miso)
    if arguments.only in {None, "jobs"}:
        jobs(arguments.miso)
