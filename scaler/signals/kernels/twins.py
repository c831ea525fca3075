"""Every kernel once more, written to be read: the oracle of the tests, and the place to look what a kernel means.

Same names, same arguments, same answers; no numba, no speed. A twin sees one ring at a time: `t` and `v` are its known
samples in order of time, the rest are that row's parameters and `now`. Where it can, a twin takes another road
than its kernel (a closed form, a diff, a sort), so that one mistake does not sit in both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from exporter.model import Floats


def _known(times: Floats, values: Floats, head: int) -> tuple[Floats, Floats]:
    t, v = np.roll(times, -head), np.roll(values, -head)
    known = ~(np.isnan(t) | np.isnan(v))
    return t[known], v[known]


def _per_ring(twin: Callable[..., Any]) -> Callable[..., Any]:
    """Give each ring that knows anything, with its row of every array and the scalars as they are, to `twin`."""

    def over_rows(times: Floats, values: Floats, head: Any, *rest: Any) -> Any:
        answers = []
        for row in range(len(times)):
            t, v = _known(times[row], values[row], head[row])
            own = [x[row] if np.ndim(x) else x for x in rest]
            answers.append(twin(t, v, *own) if len(t) else np.nan)
        return np.array(answers, np.float64)

    return over_rows


def _alpha(dt: Any, half_life_s: float) -> Any:
    return -np.expm1(-np.log(2.0) * dt / half_life_s) if half_life_s > 0.0 else np.ones_like(dt)


@_per_ring
def ewma(t: Floats, v: Floats, half_life_s: float, now: float) -> float:
    """The sum of v[i] * (2**(-age when it ended / h) - 2**(-age when it began / h)), and what is left to v[0]."""
    if half_life_s <= 0.0:
        return float(v[-1])
    ages = now - np.append(np.minimum(t, now), now)
    forgotten = np.exp2(-ages / half_life_s)
    return float(forgotten[0] * v[0] + np.sum(v * np.diff(forgotten)))


@_per_ring
def ewma_fast_slow(t: Floats, v: Floats, up_s: float, down_s: float, now: float) -> float:
    state = v[0]
    for value, seconds in zip(v, np.diff(np.append(np.minimum(t, now), now)), strict=True):
        state += _alpha(seconds, up_s if value > state else down_s) * (value - state)
    return float(state)


def holt(
    times: Floats, values: Floats, head: Any, level_half_life_s: Floats, trend_half_life_s: Floats, now: float
) -> tuple[Floats, Floats]:
    rows = zip(times, values, head, level_half_life_s, trend_half_life_s, strict=True)
    both = [_holt(*_known(t, v, h), level_h, trend_h, now) for t, v, h, level_h, trend_h in rows]
    level, trend = np.array(both, np.float64).reshape(-1, 2).T
    return level, trend


def _holt(t: Floats, v: Floats, level_half_life_s: float, trend_half_life_s: float, now: float) -> tuple[float, float]:
    if len(t) < 2:  # noqa: PLR2004 - two points make a line
        return (float(v[0]) if len(v) else np.nan), np.nan
    level, trend = v[1], (v[1] - v[0]) / (t[1] - t[0])
    for i in range(2, len(t)):
        dt, before = t[i] - t[i - 1], level
        share = _alpha(dt, level_half_life_s)
        level = (1.0 - share) * (before + trend * dt) + share * v[i]
        share = _alpha(dt, trend_half_life_s) / _alpha(t[i] - t[0], trend_half_life_s)
        trend = (1.0 - share) * trend + share * (level - before) / dt
    return float(level + trend * max(0.0, now - t[-1])), float(trend)


def _in_window(t: Floats, v: Floats, window_s: float, now: float) -> tuple[Floats, Floats]:
    """The values in force at any moment after `now - window_s`, newest first, and for how many seconds of it."""
    t = np.minimum(t, now)
    kept = np.append(t[1:], np.inf) > now - window_s
    seconds = np.diff(np.clip(np.append(t, now), now - window_s, now))
    return v[kept][::-1], seconds[kept][::-1]


@_per_ring
def window_max(t: Floats, v: Floats, window_s: float, now: float) -> float:
    return float(np.max(_in_window(t, v, window_s, now)[0]))


@_per_ring
def window_mean(t: Floats, v: Floats, window_s: float, now: float) -> float:
    inside, seconds = _in_window(t, v, window_s, now)
    return float(np.average(inside, weights=seconds)) if seconds.sum() > 0.0 else float(v[-1])


@_per_ring
def window_quantile(t: Floats, v: Floats, window_s: float, q: float, now: float) -> float:
    inside, seconds = _in_window(t, v, window_s, now)
    order = np.argsort(inside, kind="stable")
    stood = np.cumsum(seconds[order])
    if stood[-1] == 0.0:
        return float(v[-1])
    return float(inside[order][np.searchsorted(stood, q * stood[-1]) if q < 1.0 else -1])


def _increases(v: Floats) -> Floats:
    return np.where(np.diff(v) >= 0.0, np.diff(v), v[1:])


@_per_ring
def counter_rate(t: Floats, v: Floats, window_s: float, now: float) -> float:
    inside = t >= now - window_s
    if inside.sum() < 2:  # noqa: PLR2004 - a rate needs two samples
        return np.nan
    return float(_increases(v[inside]).sum() / np.ptp(t[inside]))


@_per_ring
def last_rise(t: Floats, v: Floats) -> float:
    rises = t[1:][_increases(v) > 0.0]
    return float(rises[-1]) if len(rises) else np.nan


def hysteresis(demand: Floats, current: Floats, band: float) -> Floats:
    up, down = np.ceil(demand - 1e-9), np.ceil(demand + band - 1e-9)
    return np.where(np.isnan(current), up, np.maximum(up, np.minimum(current, down)))
