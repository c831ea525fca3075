"""Moves the time to the first token between GPU kinds in every way that was tried, and compares with what was measured.

    python benchmarks/rightsizing/first_token.py FOLDER [--fetch] [--any-version]

FOLDER has `silicon_sample.csv` of ai-dynamo/aiconfigurator (Apache-2.0); --fetch downloads it first. Pairs are those of
`speed.py`: one deployment and load on two GPU kinds, both in one version of the engine unless --any-version. Fits are
those of the workload's own history on the source; the powers of the last row are learned without the family of the
pair. The band is that of all other families: the 2.5 and the 97.5 % quantile, both ways within a generation.

The row "measured step" is no prediction: it moves the time as the step between tokens really moved. No model of the
GPU's speed alone can be much better.

Worked example: between generations the measured step moves the time to the first token with an error of 21.6 %, while
the best prediction is off by 22.9 %, with a band from 0.18 to 3.02.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from report import table
from serving_points import Deployment, Point, family_of, fetch, load, load_any_version
from speed import LEVELS, MODELS

from exporter.model import Floats
from scaler.report.speed import (
    FEWEST_POINTS,
    RIDGE,
    GpuSpeed,
    MeasuredTime,
    StepFit,
    fit_history,
    nonnegative_least_squares,
    speed_of,
)

# Terms of a fit of the time to the first token; each moves with nothing, the bandwidth, or the peak.
FITS = {
    "a + c x flops of one prompt": ("fixed", "prompt"),
    "a + c x flops of the batch's prompts": ("fixed", "prompts"),
    "a + b x bytes + c x flops of the batch's prompts": ("fixed", "bytes", "prompts"),
    "a + c x flops of one prompt + d x of the batch's": ("fixed", "prompt", "prompts"),
}
POWERS = ("predicted step", "arithmetic ratio")


class Move(NamedTuple):
    """A point on two GPU kinds. truth: target / source. ratios: the same, as each way predicts it."""

    family: str
    engine: str
    generations: tuple[str, str]
    batch: float
    truth: float
    ratios: Mapping[str, float]


Predict: TypeAlias = Callable[[Sequence[Move], Sequence[Move]], Floats]  # of the second, learned from the first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fetch", action="store_true", help="download the data (Apache-2.0)")
    parser.add_argument("--any-version", action="store_true", help="versions of an engine count as one")
    options = parser.parse_args()
    if options.fetch:
        fetch(options.folder)
    found = list(moves(load_any_version(options.folder) if options.any_version else load(options.folder)))
    within = [each for each in found if len(set(each.generations)) == 1]
    between = [each for each in found if len(set(each.generations)) == 2]
    for title, group in (
        ("Within a generation", within),
        ("Between generations", between),
        ("Between generations, at most 8 requests at once", [each for each in between if each.batch <= 8]),
        *(
            (f"Between generations, {engine}", [each for each in between if each.engine == engine])
            for engine in ENGINES
        ),
    ):
        if len({each.family for each in group}) == 1:
            print(f"\n{title}: {len(group)} pairs of one family, so nothing can be learned without it")
            continue
        print(f"\n{title}: {len(group)} pairs of {len({each.family for each in group})} families\n")
        print(table(list(lines(group))))


ENGINES = ("trtllm", "vllm", "sglang")


def moves(points: Sequence[Point]) -> Iterator[Move]:
    by_deployment: dict[Deployment, dict[str, dict[tuple[float, ...], Point]]] = defaultdict(lambda: defaultdict(dict))
    for each in points:
        if each.ttft is not None and each.tpot is not None:
            by_deployment[each.deployment][each.gpu][each.load] = each
    for deployment, by_gpu in by_deployment.items():
        for source, target in product(by_gpu, repeat=2):
            shared = by_gpu[source].keys() & by_gpu[target].keys()
            history = list(by_gpu[source].values())
            if source == target or not shared or len(history) < FEWEST_POINTS:
                continue
            here, there = (speed_of(MODELS[gpu], deployment.precision) for gpu in (source, target))
            step = fit_history([MeasuredTime(each.decode, each.tpot or 0.0) for each in history])
            if not (isinstance(here, GpuSpeed) and isinstance(there, GpuSpeed) and isinstance(step, StepFit)):
                continue
            factors = {"fixed": 1.0, "bytes": here.bandwidth / there.bandwidth, "prompt": here.peak / there.peak}
            factors["prompts"] = factors["prompt"]
            fits = {name: fitted(history, columns) for name, columns in FITS.items()}
            for asked in sorted(shared):
                before, after = by_gpu[source][asked], by_gpu[target][asked]
                ratios = {
                    "unchanged": 1.0,
                    "bandwidth ratio": factors["bytes"],
                    "arithmetic ratio": factors["prompt"],
                    "measured step": (after.tpot or 0.0) / (before.tpot or 1.0),
                    "predicted step": float(np.dot(step.shares(before.decode), list(factors.values())[:3])),
                }
                for name, columns in FITS.items():
                    parts = terms(before, columns) * fits[name]
                    ratios[name] = float(np.dot(parts, [factors[each] for each in columns]) / parts.sum())
                generations = MODELS[source].generation, MODELS[target].generation
                truth = (after.ttft or 0.0) / (before.ttft or 1.0)
                requests = asked.batch * deployment.data
                yield Move(family_of(deployment.model), deployment.engine, generations, requests, truth, ratios)


def terms(point: Point, columns: Sequence[str]) -> Floats:
    values = {
        "fixed": 1.0,
        "bytes": point.decode.bytes,
        "prompt": point.prefill.flops / point.load.batch,
        "prompts": point.prefill.flops,
    }
    return np.array([values[each] for each in columns])


def fitted(history: Sequence[Point], columns: Sequence[str]) -> Floats:
    """The coefficients with the least relative error, none negative."""
    seconds = np.array([each.ttft for each in history])
    work = np.array([terms(each, columns) for each in history])
    return nonnegative_least_squares(work / seconds[:, None], np.ones(len(history)), RIDGE)


def lines(group: Sequence[Move]) -> Iterator[dict[str, object]]:
    """The error and the band of each way, learned without the family of the pair."""

    def named(name: str) -> Predict:
        return lambda _, asked: np.log([each.ratios[name] for each in asked])

    def powers(learned: Sequence[Move], asked: Sequence[Move]) -> Floats:
        """A power of each of two ratios, each family with the same weight."""
        families = [each.family for each in learned]
        weights = np.sqrt([1.0 / families.count(each) for each in families])
        columns = np.array([[np.log(each.ratios[name]) for name in POWERS] for each in learned])
        truths = np.log([each.truth for each in learned])
        found = np.linalg.lstsq(columns * weights[:, None], truths * weights, rcond=None)[0]
        return np.array([[np.log(each.ratios[name]) for name in POWERS] for each in asked]) @ found

    ways: dict[str, Predict] = {name: named(name) for name in group[0].ratios}
    ways["learned powers of predicted step and arithmetic ratio"] = powers
    families = sorted({each.family for each in group})
    for name, predict in ways.items():
        residuals, inside, bands = [], [], []
        for family in families:
            learned = [each for each in group if each.family != family]
            asked = [each for each in group if each.family == family]
            if not learned:
                continue
            off = np.log([each.truth for each in learned]) - predict(learned, learned)
            if len(set(group[0].generations)) == 1:
                off = np.concatenate([off, -off])
            else:  # to an older generation the band is the inverse
                off = np.where([each.generations[0] == "hopper" for each in learned], off, -off)
            low, high = np.quantile(off, LEVELS)
            truth = np.log([each.truth for each in asked]) - predict(learned, asked)
            newer = np.array([each.generations[0] == "hopper" or len(set(each.generations)) == 1 for each in asked])
            residuals += truth.tolist()
            inside += ((np.where(newer, truth, -truth) >= low) & (np.where(newer, truth, -truth) <= high)).tolist()
            bands.append((float(np.exp(low)), float(np.exp(high))))
        if residuals:
            yield {
                "way": name,
                "median error": f"{np.median(np.abs(np.expm1(-np.array(residuals)))):.1%}",
                "nine of ten within": f"{np.quantile(np.abs(np.expm1(-np.array(residuals))), 0.9):.0%}",
                "in the band": f"{np.mean(inside):.1%}",
                "band, widest": f"{min(low for low, _ in bands):.2f} to {max(high for _, high in bands):.2f}",
            }


if __name__ == "__main__":
    main()
