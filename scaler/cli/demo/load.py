"""Generates the requests of the demo's day: arrival times and sizes.

A day has a quiet begin, a morning that ramps up, a burst at noon, a falling evening and a night without requests,
stretched to the length of the run: the rate stays, so a longer run has more requests.

Worked example: 3,600 s begin with 180 s without requests and three minutes of a few, keep 5 replicas busy at 1,224 s
and 7 at 1,692 s, and send the last request before 2,592 s: some 10,000 in total. The burst adds 3 replicas within two
starts of 75 s. A night of 336 s would suffice to become idle (120 s), cool down (30 s) and be put to sleep.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats

# (share of the day, replicas that the rate keeps busy)
_DAY = (
    (0.00, 0.0),
    (0.05, 0.0),
    (0.06, 0.3),
    (0.12, 0.4),
    (0.34, 5.0),
    (0.42, 4.5),
    (0.47, 7.2),
    (0.54, 6.8),
    (0.58, 3.5),
    (0.70, 1.5),
    (0.72, 0.0),
    (1.00, 0.0),
)
# A request has on average 4,000 tokens in and 600 out. At the SLO of 60 ms per token, one replica of
# the engine's profile sustains r per second where 0.0115 / (1 - r · (4000/12000 + 600 · (1e-4 + 6.5e-8 · 4300))) is
# 0.060, which is r = 1.44; four fifths of that is what a well-run replica gets.
REQUESTS_PER_S_AND_REPLICA = 1.15
_PROMPT_MEAN, _PROMPT_SIGMA, _PROMPT_RANGE = 4000.0, 0.7, (16, 16_000)
_OUTPUT_MEAN, _OUTPUT_SIGMA, _OUTPUT_RANGE = 600.0, 0.5, (8, 1_500)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """at_s: seconds since the start, ascending. The others: tokens of each request."""

    at_s: Floats
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.at_s)


def shape(duration_s: float, seed: int) -> Arrivals:
    """A day of `duration_s` seconds: a Poisson process of varying rate, by inversion of its cumulative rate."""
    generator = np.random.default_rng(seed)
    grid = np.linspace(0.0, 1.0, 2001)
    parts, replicas = np.array(_DAY).T
    rate = np.interp(grid, parts, replicas) * REQUESTS_PER_S_AND_REPLICA
    cumulative = np.concatenate(([0.0], np.cumsum((rate[1:] + rate[:-1]) / 2 * np.diff(grid)))) * duration_s
    count = int(generator.poisson(cumulative[-1]))
    at_s = np.interp(np.sort(generator.uniform(0.0, cumulative[-1], count)), cumulative, grid * duration_s)
    return Arrivals(
        at_s,
        _lognormal(generator, _PROMPT_MEAN, _PROMPT_SIGMA, _PROMPT_RANGE, count),
        _lognormal(generator, _OUTPUT_MEAN, _OUTPUT_SIGMA, _OUTPUT_RANGE, count),
    )


def _lognormal(
    generator: np.random.Generator, mean: float, sigma: float, span: tuple[int, int], count: int
) -> NDArray[np.int64]:
    """Whole tokens. The mean of a lognormal is exp(mu + sigma²/2)."""
    drawn = generator.lognormal(np.log(mean) - sigma**2 / 2, sigma, count)
    return np.clip(np.rint(drawn), *span).astype(np.int64)
