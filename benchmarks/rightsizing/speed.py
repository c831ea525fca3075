"""Moves measured serving times between GPU kinds, and compares with what was measured there.

    python benchmarks/rightsizing/speed.py FOLDER [--fetch] [--phase decode|prefill] [--any-version] [--tried]

FOLDER has `silicon_sample.csv` of ai-dynamo/aiconfigurator (Apache-2.0); --fetch downloads it first. For each
deployment that was measured on two GPU kinds, its points on the one are the history, and each point that both have is
moved to the other by `scaler.report.speed`. Nothing is fitted on the other kind. The band is learned from the pairs of
all other model families, so that the coverage is of models that were left out. Then the bands of all pairs are printed:
they are `BANDS` in scaler/report/speed.py. Both times are of one version of the engine, unless --any-version.

--tried: other ridges, short histories, and corrections that were learned with one family left out.

Worked example: in the row `H100 80GB HBM3 | H200` are 88 pairs; the time is off by 5.1 % if moved, 14.8 % if unchanged.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from serving_points import Deployment, Point, family_of, fetch, load, load_any_version

from exporter.model import Floats
from scaler.policy.prices import PriceList
from scaler.report.gpus import parse
from scaler.report.speed import (
    RIDGE,
    Band,
    GpuSpeed,
    MeasuredTime,
    Phase,
    Unsupported,
    fit_history,
    move,
    speed_of,
)

ROOT = Path(__file__).resolve().parents[2]
MODELS = parse((ROOT / "scaler/report/gpus.yaml").read_text(encoding="utf-8"), "gpus.yaml")
WIDE = {(phase, *pair): Band(1.0, 1.0) for phase in Phase for pair in product(("hopper", "blackwell"), repeat=2)}
# The 2.5 and the 97.5 % quantile, to hold for nine of ten: seven families are few, and a new one is further off.
LEVELS = (0.025, 0.975)
GENERATIONS = (("hopper", "hopper"), ("hopper", "blackwell"), ("blackwell", "blackwell"))


class Pair(NamedTuple):
    """One operating point on two GPU kinds. shares: of the history on the source, at this point."""

    family: str
    source: str
    target: str
    seconds: float
    truth: float
    moved: float
    shares: tuple[float, float, float]
    bandwidth: float  # source / target
    peak: float  # source / target
    gpus: int

    @property
    def generations(self) -> tuple[str, str]:
        return MODELS[self.source].generation, MODELS[self.target].generation

    @property
    def log_residual(self) -> float:
        return float(np.log(self.truth / self.moved))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fetch", action="store_true", help="download the data (Apache-2.0)")
    parser.add_argument("--phase", type=Phase, choices=list(Phase), default=Phase.DECODE)
    parser.add_argument("--any-version", action="store_true", help="versions of an engine count as one")
    parser.add_argument("--tried", action="store_true")
    options = parser.parse_args()
    if options.fetch:
        fetch(options.folder)
    points = load_any_version(options.folder) if options.any_version else load(options.folder)
    found, refused = pairs_of(points, options.phase)
    print(f"{len(points)} points, {len(found)} ordered pairs moved, {sum(refused.values())} not known:")
    for reason, number in refused.items():
        print(f"  {number} x {reason}")
    print_errors(found)
    print_bands(found)
    print_ranking(found)
    if options.tried:
        print_ridges(points, options.phase)
        print_short_histories(points, options.phase)
        print_corrections(found)


def pairs_of(
    points: Sequence[Point], phase: Phase, ridge: float = RIDGE, most_history: int | None = None
) -> tuple[list[Pair], dict[str, int]]:
    """All ordered pairs, and how many are not known by reason. most_history: points of a history, spread by work."""
    times: dict[Deployment, dict[str, dict[tuple[float, ...], MeasuredTime]]] = defaultdict(lambda: defaultdict(dict))
    for each in points:
        work, seconds = (each.decode, each.tpot) if phase is Phase.DECODE else (each.prefill, each.ttft)
        if seconds is not None:
            times[each.deployment][each.gpu][each.load] = MeasuredTime(work, seconds)
    found: list[Pair] = []
    refused: dict[str, int] = defaultdict(int)
    for deployment, by_gpu in times.items():
        for source, target in product(by_gpu, repeat=2):
            shared = by_gpu[source].keys() & by_gpu[target].keys()
            if source == target or not shared:
                continue
            speeds = [speed_of(MODELS[gpu], deployment.precision) for gpu in (source, target)]
            history = sorted(by_gpu[source].values())
            if most_history is not None and len(history) > most_history:
                history = [history[index] for index in np.linspace(0, len(history) - 1, most_history).astype(int)]
            fit = fit_history(history, ridge)
            for asked in sorted(shared):
                measured, truth = by_gpu[source][asked], by_gpu[target][asked].seconds
                here, there = speeds
                assert isinstance(here, GpuSpeed)
                assert isinstance(there, GpuSpeed)
                if isinstance(fit, Unsupported):
                    refused[fit.reason.split(" by ")[0]] += 1
                    continue
                moved = move(fit, measured, here, there, phase, WIDE)
                if isinstance(moved, Unsupported):
                    refused[moved.reason.split(" per step")[0]] += 1
                    continue
                found.append(
                    Pair(
                        family_of(deployment.model), source, target, measured.seconds, truth, moved.value,
                        fit.shares(measured.work), here.bandwidth / there.bandwidth, here.peak / there.peak,
                        deployment.tensor * deployment.data,
                    )
                )  # fmt: skip
    return found, dict(refused)


def median_error(predicted: Iterable[float], truths: Iterable[float]) -> float:
    return float(np.median(np.abs(np.array(list(predicted)) / np.array(list(truths)) - 1.0)))


def print_errors(pairs: Sequence[Pair]) -> None:
    print("\n| from | to | pairs | families | unchanged, % | bandwidth ratio, % | moved, % | in the band, % |")
    print("| :--- | :--- | ---: | ---: | ---: | ---: | ---: | ---: |")
    covered = dict(zip(map(id, pairs), coverage(pairs), strict=True))
    kinds = sorted({(pair.source, pair.target) for pair in pairs})
    groups = [(*kind, [pair for pair in pairs if (pair.source, pair.target) == kind]) for kind in kinds]
    groups.append(("all", "all", list(pairs)))
    groups.append(("other generation", "", [pair for pair in pairs if len(set(pair.generations)) == 2]))
    groups.append(("same generation", "", [pair for pair in pairs if len(set(pair.generations)) == 1]))
    for source, target, group in groups:
        truths = [pair.truth for pair in group]
        unchanged = median_error([pair.seconds for pair in group], truths)
        ratio = median_error([pair.seconds * pair.bandwidth for pair in group], truths)
        moved = median_error([pair.moved for pair in group], truths)
        held = np.mean([covered[id(pair)] for pair in group])
        families = len({pair.family for pair in group})
        print(
            f"| {source} | {target} | {len(group)} | {families} | {unchanged:.1%} | {ratio:.1%} | {moved:.1%} "
            f"| {held:.1%} |".replace("%", "")
        )
    by_family = defaultdict(list)
    for pair in pairs:
        by_family[pair.family].append(pair)
    for family, group in sorted(by_family.items()):
        error = median_error([pair.moved for pair in group], [pair.truth for pair in group])
        held = np.mean([covered[id(pair)] for pair in group])
        print(f"{family}: {len(group)} pairs, median error {error:.1%}, in the band {held:.1%}")


def band_of(logs: Floats, levels: tuple[float, float]) -> Band:
    low, high = np.exp(np.quantile(logs, levels))
    return Band(float(low), float(high))


def band_across(pairs: Sequence[Pair], generations: tuple[str, str], levels: tuple[float, float]) -> Band:
    """The band between two generations. A pair in the other direction counts with the inverse."""
    forward = [pair.log_residual for pair in pairs if pair.generations == generations]
    backward = [-pair.log_residual for pair in pairs if pair.generations == generations[::-1]]
    return band_of(np.array(forward + backward), levels)


def learn_bands(pairs: Sequence[Pair], levels: tuple[float, float]) -> dict[tuple[str, str], Band]:
    """A band for a move within a generation, learned from all generations together, and one between generations."""
    same = [pair._replace(source=pair.source, target=pair.source) for pair in pairs if len(set(pair.generations)) == 1]
    logs = np.array([pair.log_residual for pair in same])
    low, high = np.exp(np.quantile(np.concatenate([logs, -logs]), levels))
    within = Band(float(low), float(high))
    return {each: within if each[0] == each[1] else band_across(pairs, each, levels) for each in GENERATIONS}


def is_inside(pair: Pair, bands: dict[tuple[str, str], Band]) -> bool:
    band, log = bands.get(pair.generations), pair.log_residual
    if band is None:
        band, log = bands[pair.generations[::-1]], -log
    return bool(np.log(band.low) <= log <= np.log(band.high))


def coverage(pairs: Sequence[Pair], levels: tuple[float, float] = LEVELS) -> list[bool]:
    """Whether each truth is inside the band that was learned without its family."""
    families = {pair.family for pair in pairs}
    bands = {left: learn_bands([pair for pair in pairs if pair.family != left], levels) for left in families}
    return [is_inside(pair, bands[pair.family]) for pair in pairs]


def print_bands(pairs: Sequence[Pair]) -> None:
    print("\nBands of all pairs:")
    for generations, band in learn_bands(pairs, LEVELS).items():
        print(f"  {generations[0]} -> {generations[1]}: {band.low:.2f} to {band.high:.2f}")
    for tail in (0.05, 0.04, 0.03, 0.025, 0.02, 0.01):
        print(f"  quantiles {tail}, {1 - tail}: {np.mean(coverage(pairs, (tail, 1 - tail))):.1%} of truths inside")
    print(f"  quantiles chosen without the family too: {np.mean(list(nested_coverage(pairs))):.1%} inside")


def nested_coverage(pairs: Sequence[Pair]) -> Iterator[bool]:
    """As `coverage`, but the quantiles are the narrowest that cover 90 % of each other family, left out in turn."""
    for left in sorted({pair.family for pair in pairs}):
        rest = [pair for pair in pairs if pair.family != left]
        tails = [tail for tail in np.arange(0.005, 0.0501, 0.005) if np.mean(coverage(rest, (tail, 1 - tail))) >= 0.9]
        tail = max(tails, default=0.005)
        bands = learn_bands(rest, (tail, 1 - tail))
        yield from (is_inside(pair, bands) for pair in pairs if pair.family == left)


def print_ranking(pairs: Sequence[Pair]) -> None:
    prices = PriceList()
    print("\nThe faster GPU of a pair, and the cheaper per token at list prices (scaler/policy/prices.py):")
    groups = {"all": list(pairs)}
    groups["other generation"] = [pair for pair in pairs if len(set(pair.generations)) == 2]
    groups["same generation"] = [pair for pair in pairs if len(set(pair.generations)) == 1]
    for name, group in groups.items():
        speed = np.mean([(pair.moved < pair.seconds) == (pair.truth < pair.seconds) for pair in group])
        by_bandwidth = np.mean([(pair.bandwidth < 1.0) == (pair.truth < pair.seconds) for pair in group])
        cost = [
            ((pair.moved / pair.seconds < ratio) == (pair.truth / pair.seconds < ratio))
            for pair in group
            if np.isfinite(ratio := prices.hour(pair.source) / prices.hour(pair.target))
        ]
        print(
            f"  {name}: faster first in {speed:.1%} of {len(group)} (more bandwidth first: {by_bandwidth:.1%}), "
            f"cheaper first in {np.mean(cost):.1%} of {len(cost)}"
        )


def print_ridges(points: Sequence[Point], phase: Phase) -> None:
    print("\nRidge:")
    for ridge in (0.001, 0.003, 0.01, 0.03, 0.1):
        pairs, _ = pairs_of(points, phase, ridge)
        error = median_error([pair.moved for pair in pairs], [pair.truth for pair in pairs])
        print(f"  {ridge}: {error:.1%} of {len(pairs)}")


def print_short_histories(points: Sequence[Point], phase: Phase) -> None:
    print("\nAt most N points of each history:")
    for most in (4, 5, 6, 8, 12):
        pairs, refused = pairs_of(points, phase, most_history=most)
        error = median_error([pair.moved for pair in pairs], [pair.truth for pair in pairs])
        held = np.mean(coverage(pairs))
        print(f"  {most}: {error:.1%} of {len(pairs)}, {held:.1%} inside, {sum(refused.values())} not known")


def print_corrections(pairs: Sequence[Pair]) -> None:
    """Corrections of a move to another generation, each parameter the best of a grid without the family left out."""
    grid = np.arange(-0.4, 0.41, 0.05)
    tried: dict[str, tuple[Callable[[Pair, Sequence[float]], float], list[Floats]]] = {
        "none": (lambda pair, _: corrected(pair, 0.0, 0.0, 0.0), []),
        "all terms by one factor": (lambda pair, v: corrected(pair, v[0], v[0], v[0]), [grid]),
        "the fixed term": (lambda pair, v: corrected(pair, v[0], 0.0, 0.0), [grid]),
        "memory and arithmetic": (lambda pair, v: corrected(pair, 0.0, v[0], v[0]), [grid]),
        "fixed, and memory with arithmetic": (lambda pair, v: corrected(pair, v[0], v[1], v[1]), [grid, grid]),
        "interconnect in the fixed term": (interconnected, [np.arange(0.0, 1.01, 0.1)]),
        "bandwidth ratio to a power": (
            lambda pair, v: pair.seconds * pair.bandwidth ** v[0],
            [np.arange(0.0, 1.3, 0.05)],
        ),
    }
    across = [pair for pair in pairs if len(set(pair.generations)) == 2]
    print(f"\nCorrections between generations, {len(across)} pairs, learned without the family left out:")
    for name, (predict, axes) in tried.items():
        predicted = left_out(across, predict, axes)
        print(f"  {name}: {median_error(predicted, [pair.truth for pair in across]):.1%}")


def corrected(pair: Pair, fixed: float, memory: float, arithmetic: float) -> float:
    """The move with a factor exp(x) on each term to the newer generation, and its inverse to the older one."""
    sign = 1.0 if pair.generations[0] == "hopper" else -1.0
    terms = np.array([1.0, pair.bandwidth, pair.peak]) * np.exp(sign * np.array([fixed, memory, arithmetic]))
    return pair.seconds * float(np.dot(pair.shares, terms))


def interconnected(pair: Pair, values: Sequence[float]) -> float:
    """A part of the fixed term moves with NVLink (900 and 1,800 GB/s), the more the more GPUs a replica has."""
    part = values[0] * (1.0 - 1.0 / pair.gpus)
    link = 0.5 if pair.generations[0] == "hopper" else 2.0
    fixed = 1.0 - part + part * link
    return pair.seconds * float(np.dot(pair.shares, [fixed, pair.bandwidth, pair.peak]))


def left_out(
    pairs: Sequence[Pair], predict: Callable[[Pair, Sequence[float]], float], axes: Sequence[Floats]
) -> list[float]:
    """Predictions with the parameters that fit all other families best; each family has the same weight."""
    settings = [tuple(map(float, each)) for each in product(*axes)]
    errors = np.abs(np.log([[predict(pair, each) / pair.truth for pair in pairs] for each in settings]))
    families = np.array([pair.family for pair in pairs])
    best = {}
    for left in set(families):
        rest = set(families) - {left}
        scores = [
            np.mean([errors[index, families == family].mean() for family in rest]) for index in range(len(settings))
        ]
        best[left] = settings[int(np.argmin(scores))]
    return [predict(pair, best[pair.family]) for pair in pairs]


if __name__ == "__main__":
    main()
