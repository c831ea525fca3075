"""Generates loads with shapes that are hard to scale for, each with a few parameters.

Requests come by chance at a rate that has the shape (a Poisson process), lengths are log-normal. Same seed, same load.
`each` and `batch` are by the clock: that is their point.

- `diurnal`: a day's wave, from `low` at midnight to `high` at noon.
- `onoff`:   `rate` for a while, then nothing for a while; both lengths by chance, around `on` and `off`.
- `flash`:   `rate`, and at `at` a crowd that comes within `rise` to `peak` and goes, halving every `fall`.
- `each`:    one request every so often: what keep-warm is for.
- `batch`:   every so often `jobs` at once; `output` is a job's work (tokens, or seconds on profile C).

Worked example: `generate("each", {"every": 420.0, "for": 3600.0}, seed=0)` has requests at 420, 840 … 3360 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from exporter.model import Floats

from .recorded import MOST_REQUESTS, BadLoad, Recorded, recorded

RESOLUTION_S = 1.0  # of a rate's shape
NOON_S, DAY_S = 43_200.0, 86_400.0
FOR = "for"  # its word for how long; no word for a Python argument
LENGTHS = {"prompt": 1000.0, "output": 200.0, "sigma": 0.8}

Numbers = Mapping[str, float]
Draw = Callable[[Numbers, np.random.Generator], Floats]


@dataclass(frozen=True, slots=True)
class Generator:
    """numbers: what can be turned, and where it stands. durations: those that are seconds. first: needs no name."""

    draw: Draw
    numbers: Numbers
    durations: frozenset[str]
    first: str


def generate(kind: str, numbers: Numbers, seed: int, name: str | None = None) -> Recorded:
    """A load of a kind of GENERATORS, with these numbers and its own for the rest. Raises BadLoad."""
    generator = GENERATORS[kind]
    settings = {**generator.numbers, **numbers}
    for key, value in settings.items():
        lowest = 0.0 if key in ("sigma", "low", "rate", "at") else 1e-9
        if not lowest <= value < np.inf:
            raise BadLoad(f"{kind}: {key}: must be {'from' if lowest == 0.0 else 'above'} 0, got {value:g}")
    rng = np.random.default_rng(seed)
    at = generator.draw(settings, rng)
    if not len(at):
        raise BadLoad(f"{name or kind}: has no request in {settings[FOR]:g} s: a longer {FOR}, or more of them?")
    prompt, output = (_lengths(settings[which], settings["sigma"], len(at), rng) for which in ("prompt", "output"))
    return recorded(name or kind, at, prompt, output)


def _lengths(mean: float, sigma: float, count: int, rng: np.random.Generator) -> Floats:
    """Whole, at least 1, and so many on average: exp(mu + sigma²/2) is the mean of a log-normal."""
    drawn = rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, count)
    lengths: Floats = np.clip(np.rint(drawn), 1.0, 1e6)
    return lengths


def _poisson(rate: Floats, rng: np.random.Generator) -> Floats:
    """Arrivals by chance. rate: shape (seconds,), requests/s in each."""
    due = np.concatenate([[0.0], np.cumsum(rate) * RESOLUTION_S])
    _bounded(due[-1])
    drawn = np.sort(rng.uniform(0.0, due[-1], rng.poisson(due[-1]))) if due[-1] > 0.0 else np.zeros(0)
    # Without arrivals `due` is constant: interp would put an arrival at either end, and both are right.
    arrivals: Floats = np.interp(drawn, due, np.arange(len(due)) * RESOLUTION_S)
    return arrivals


def _bounded(count: float) -> None:
    if count > MOST_REQUESTS:
        raise BadLoad(f"{count:.3g} requests are more than a replay can hold ({MOST_REQUESTS})")


def _seconds(numbers: Numbers) -> Floats:
    _bounded(numbers[FOR])
    seconds: Floats = np.arange(max(1.0, round(numbers[FOR] / RESOLUTION_S))) * RESOLUTION_S
    return seconds


def _diurnal(numbers: Numbers, rng: np.random.Generator) -> Floats:
    wave = (1.0 + np.cos(2 * np.pi * (_seconds(numbers) - NOON_S) / DAY_S)) / 2
    return _poisson(numbers["low"] + (numbers["high"] - numbers["low"]) * wave, rng)


def _onoff(numbers: Numbers, rng: np.random.Generator) -> Floats:
    seconds = _seconds(numbers)
    count = int(numbers[FOR] / (numbers["on"] + numbers["off"])) * 2 + 20
    spans = rng.exponential(1.0, (count, 2)) * (numbers["on"], numbers["off"])
    edges = np.cumsum(spans.ravel())  # on until the first, off until the second, …
    is_on = np.searchsorted(edges, seconds, side="right") % 2 == 0
    return _poisson(numbers["rate"] * is_on, rng)


def _flash(numbers: Numbers, rng: np.random.Generator) -> Floats:
    since = _seconds(numbers) - numbers["at"]
    rising = np.clip(since / numbers["rise"], 0.0, 1.0)
    falling = 0.5 ** (np.maximum(since - numbers["rise"], 0.0) / numbers["fall"])
    return _poisson(numbers["rate"] + (numbers["peak"] - numbers["rate"]) * rising * falling, rng)


def _each(numbers: Numbers, _: np.random.Generator) -> Floats:
    every = numbers["every"]
    _bounded(numbers[FOR] / every)
    return np.arange(every, numbers[FOR] + every / 1e6, every)


def _batch(numbers: Numbers, _: np.random.Generator) -> Floats:
    _bounded(numbers[FOR] / numbers["every"] * numbers["jobs"])
    return np.repeat(_each(numbers, _), max(1, round(numbers["jobs"])))


def _of(draw: Draw, first: str, durations: str, **numbers: float) -> Generator:
    for_s = numbers.pop("for_s")
    return Generator(draw, {**numbers, FOR: for_s, **LENGTHS}, frozenset((*durations.split(), FOR)), first)


GENERATORS: Mapping[str, Generator] = MappingProxyType({
    "diurnal": _of(_diurnal, "high", "", low=0.5, high=10.0, for_s=3 * DAY_S),
    "onoff": _of(_onoff, "rate", "on off", rate=5.0, on=1200.0, off=3600.0, for_s=DAY_S),
    "flash": _of(_flash, "peak", "at rise fall", rate=1.0, peak=30.0, at=1800.0, rise=30.0, fall=300.0, for_s=7200.0),
    "each": _of(_each, "every", "every", every=420.0, for_s=DAY_S),
    "batch": _of(_batch, "jobs", "every", jobs=50.0, every=3600.0, for_s=DAY_S),
})  # fmt: skip
