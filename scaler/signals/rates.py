"""Computes the rates of a target's counters from two responses: arriving requests, tokens, times between tokens.

A rate holds from one response to the next, so a sum over targets that are scraped at different moments is right at any
moment. Requests arrive where their number rises: finished ones and those in hand together. At a gateway these are the
requests that it holds: what it passes on arrives at an engine, and has left the gateway.

Rates of an engine are known together, or none of them is; those of the times between tokens for themselves.

Worked example: in 5 s an engine finishes 10 requests and has 4 more in hand than before: 2.8 arrive per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, nan

import numpy as np

from exporter.model import Floats, Quantity
from scaler.policy.sizing import WorkRate

from .slots import Column

_COUNTERS = {
    WorkRate.FIRST_TOKENS: Quantity.FIRST_TOKENS,
    WorkRate.PROMPT: Quantity.TOKENS_PROMPT,
    WorkRate.GENERATED: Quantity.TOKENS_GENERATED,
    WorkRate.GAPS: Quantity.ITL_COUNT,
    WorkRate.GAP_SECONDS: Quantity.ITL_SECONDS,
}
# Without these there is no size: the mean prompt is tokens read over first tokens.
_NEEDED = (Quantity.TOKENS_PROMPT, Quantity.TOKENS_GENERATED, Quantity.FIRST_TOKENS)
AT = len(WorkRate)  # of a slot's `work`: POSIX seconds of the response; the other columns are those of WorkRate


def of_engine(values: Floats, sums: Mapping[Quantity, float], before: Floats, at: float) -> None:
    """Writes the rates of an engine's response into `values`, and the response into `before`.

    values: shape (slots.WIDTH,), with the requests in hand. before: shape (len(WorkRate) + 1,); NaN: none.
    at: POSIX seconds of the response.
    """
    failed = sums.get(Quantity.REQUESTS_FAILED, nan)
    finished = sums.get(Quantity.REQUESTS_FINISHED, nan) + (0.0 if isnan(failed) else failed)
    in_hand = values[Column.WAITING] + values[Column.RUNNING]
    values[Column.UNCOUNTED] = float(isnan(finished + in_hand) or any(isnan(sums.get(each, nan)) for each in _NEEDED))
    elapsed = at - before[AT]
    gone = _rise(before, WorkRate.FINISHED, finished, elapsed)
    for rate, quantity in _COUNTERS.items():
        values[Column.RATES + rate] = _rise(before, rate, sums.get(quantity, nan), elapsed)
    values[Column.RATES + WorkRate.FINISHED] = gone
    values[Column.RATES + WorkRate.ARRIVED] = gone + _change(before, in_hand, elapsed)
    before[AT] = at
    # A request that is counted and its tokens that are not would change the means.
    measured = values[Column.RATES :]
    if np.isnan(measured[: WorkRate.GAPS]).any():
        measured[:] = nan
    elif np.isnan(measured[WorkRate.GAPS :]).any():
        measured[WorkRate.GAPS :] = nan


def of_gateway(values: Floats, before: Floats, at: float) -> None:
    """As `of_engine`, of the requests that a gateway holds."""
    values[Column.RATES + WorkRate.ARRIVED] = _change(before, values[Column.HELD], at - before[AT])
    before[AT] = at


def _rise(before: Floats, rate: WorkRate, value: float, elapsed: float) -> float:
    """A counter's rise per second. One that has fallen was restarted at 0. NaN: unknown, or the first response."""
    last, before[rate] = before[rate], value
    if not elapsed > 0.0 or isnan(last):
        return nan
    return (value - last if value >= last else value) / elapsed


def _change(before: Floats, value: float, elapsed: float) -> float:
    last, before[WorkRate.ARRIVED] = before[WorkRate.ARRIVED], value
    return (value - last) / elapsed if elapsed > 0.0 else nan
