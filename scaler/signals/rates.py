"""Computes the rates of a target's counters from two responses: arriving requests, tokens, times between tokens.

A rate holds from one response to the next, so a sum over targets that are scraped at different moments is right at any
moment. Requests arrive where their number rises: finished ones and those in hand together. At a gateway these are the
requests that it holds: what it passes on arrives at an engine, and has left the gateway.

Rates of an engine are known together, or none of them is; those of the times between tokens for themselves, and so are
those of each latency of the SLO. A histogram is split at the SLO into four counters (`exporter.histogram`); if one of
them has fallen, the engine was restarted and all four are counted from 0. At another SLO than before they are other
counters, so their rates are not known for one response.

Worked example: in 5 s an engine finishes 10 requests and has 4 more in hand than before: 2.8 arrive per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from exporter.histogram import Split
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
# Of a slot's `work`: POSIX seconds of the response, and the limits that its histograms were split at. The other columns
# are those of WorkRate; those of a latency have the four counters of its split.
AT = len(WorkRate)
TTFT_LIMIT, TPOT_LIMIT = AT + 1, AT + 2
_SPLIT = len(Split._fields)
# Interpolated counters are rounded: they may fall by a part in 10**15, and a restart is a fall by whole observations.
_ROUNDED = 1e-12


class SloSplits(NamedTuple):
    """The latencies of one response at the SLO of its workload.

    ttft_s, itl_s: the SLO, seconds; NaN without one. ttft, tpot: None if the response has no buckets near the SLO.
    """

    ttft_s: float = nan
    itl_s: float = nan
    ttft: Split | None = None
    tpot: Split | None = None


NO_SPLITS = SloSplits()


def of_engine(
    values: Floats, sums: Mapping[Quantity, float], before: Floats, at: float, splits: SloSplits = NO_SPLITS
) -> None:
    """Writes the rates of an engine's response into `values`, and the response into `before`.

    values: shape (slots.WIDTH,), with the requests in hand. before: shape (slots.WORK_WIDTH,); NaN: none.
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
    measured = values[Column.RATES : Column.RATES + WorkRate.TTFT]
    if np.isnan(measured[: WorkRate.GAPS]).any():
        measured[:] = nan
    elif np.isnan(measured[WorkRate.GAPS :]).any():
        measured[WorkRate.GAPS :] = nan
    _of_latency(values, before, WorkRate.TTFT, TTFT_LIMIT, splits.ttft_s, splits.ttft, elapsed)
    _of_latency(values, before, WorkRate.TPOT, TPOT_LIMIT, splits.itl_s, splits.tpot, elapsed)


def of_gateway(values: Floats, before: Floats, at: float) -> None:
    """As `of_engine`, of the requests that a gateway holds."""
    values[Column.RATES + WorkRate.ARRIVED] = _change(before, values[Column.HELD], at - before[AT])
    before[AT] = at


def _of_latency(
    values: Floats, before: Floats, first: WorkRate, limit_at: int, limit: float, split: Split | None, elapsed: float
) -> None:
    """Writes the four rates of a latency: all observations, and the late ones as estimated, at least and at most."""
    columns = slice(first, first + _SPLIT)
    last, same = before[columns].copy(), before[limit_at] == limit
    before[limit_at] = limit
    before[columns] = now = np.full(_SPLIT, nan) if split is None else np.array(split)
    if not (same and elapsed > 0.0):
        return
    rises = now - last
    if (rises < -_ROUNDED * now.sum()).any():  # not so where one is NaN
        rises = now
    within, likely_within, likely_late, late = np.maximum(rises, 0.0).tolist()
    total, most = within + likely_within + likely_late + late, likely_within + likely_late + late
    at = Column.RATES + first
    values[at : at + _SPLIT] = np.array([total, likely_late + late, late, most]) / elapsed


def _rise(before: Floats, rate: WorkRate, value: float, elapsed: float) -> float:
    """A counter's rise per second. One that has fallen was restarted at 0. NaN: unknown, or the first response."""
    last, before[rate] = before[rate], value
    if not elapsed > 0.0 or isnan(last):
        return nan
    return (value - last if value >= last else value) / elapsed


def _change(before: Floats, value: float, elapsed: float) -> float:
    last, before[WorkRate.ARRIVED] = before[WorkRate.ARRIVED], value
    return (value - last) / elapsed if elapsed > 0.0 else nan
