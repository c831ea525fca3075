"""Every kernel in plain NumPy: the reference for the compiled kernels.

A reference takes one ring at a time: `t` and `v` are its known samples in order of time, the rest are the parameters of
that row and `now`. If possible it computes in another way than its kernel (a closed form, a diff), so that both do not
have the same mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from exporter.model import Floats


def _per_ring(reference: Callable[..., Any]) -> Callable[..., Any]:
    """Calls `reference` with each ring that has values, its row of every array, and the scalars."""

    def over_rows(times: Floats, values: Floats, head: Any, *rest: Any) -> Any:
        results = []
        for row in range(len(times)):
            t, v = np.roll(times[row], -head[row]), np.roll(values[row], -head[row])
            usable = ~(np.isnan(t) | np.isnan(v))
            parameters = [x[row] if np.ndim(x) else x for x in rest]
            results.append(reference(t[usable], v[usable], *parameters) if usable.any() else np.nan)
        return np.array(results, np.float64)

    return over_rows


def _alpha(dt: Any, half_life_s: float) -> Any:
    with np.errstate(over="ignore"):
        return -np.expm1(-np.log(2.0) * dt / half_life_s) if half_life_s > 0.0 else np.ones_like(dt)


@_per_ring
def ewma(t: Floats, v: Floats, half_life_s: float, now: float) -> float:
    """The sum of v[i] * (2**(-age of its end / h) - 2**(-age of its begin / h)), and the remaining weight for v[0]."""
    if half_life_s <= 0.0:
        return float(v[-1])
    ages = now - np.append(np.minimum(t, now), now)
    with np.errstate(over="ignore"):  # a half-life of 5e-324 s: the number of half-lives is infinite
        weights = np.exp2(-ages / half_life_s)
    return float(weights[0] * v[0] + np.sum(v * np.diff(weights)))


@_per_ring
def ewma_fast_slow(t: Floats, v: Floats, up_s: float, down_s: float, now: float) -> float:
    state = v[0]
    for value, seconds in zip(v, np.diff(np.append(np.minimum(t, now), now)), strict=True):
        state += _alpha(seconds, up_s if value > state else down_s) * (value - state)
    return float(state)


@_per_ring
def counter_rate(t: Floats, v: Floats, window_s: float, now: float) -> float:
    inside = t >= now - window_s
    if inside.sum() < 2:
        return np.nan
    changes = np.diff(v[inside])
    return float(np.where(changes >= 0.0, changes, v[inside][1:]).sum() / np.ptp(t[inside]))


def at_times(samples):
    """(seconds since the last, value) of each sample as (time, value)."""
    times = np.cumsum([step for step, _ in samples])
    return [(at, value) for at, (_, value) in zip(times, samples, strict=True)]
