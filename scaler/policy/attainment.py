"""Counts the requests that met the SLO, and what is left of the error budget. Pure.

A request misses the SLO if its time to first token or its time per output token is above it. Engines count the two
apart, so the misses are the sum of both: an upper bound, since a request that misses both counts twice. Over a window
they are at most all requests. The first token of a request and its end may be in different updates, so the misses of
one update may be those of requests of an earlier one.

A time per output token is one observation per finished request, or, of engines without such a histogram, one per
token. So that a request weighs the same, each late time counts as requests / times of the last hours, at most 1.

Requests of one moment have nearly the same time per output token, and buckets are wide: vLLM's between 50 and 75 ms may
hold all of them. So those in the bucket of the SLO are divided by the mean time between tokens.

Both windows are slots: `SLOTS` full ones and the present one. Of the oldest slot the part counts that is still inside
the window. A changed SLO holds from then on: requests of before were judged by the SLO of their time.

Worked example: 10 first tokens per second, 0.2 of them late, and 1990 times per output token, 19.9 of them late: for
10 s these are 100 requests and 2 + 199 x 100 / 19900 = 3 misses. An hour of that has an attainment of 0.97, and of an
error budget of 1 % it has used three times as much as there was: -2 is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, unique
from typing import NamedTuple

import numpy as np
from numba import types

from exporter.model import Floats
from scaler.columns import Array, Mask, zero_if_unknown
from scaler.jit import FLOATS, NUMBER, in_place_kernel, part

from .capacity import WorkRate


@unique
class Count(IntEnum):
    """The columns of what is counted. Misses are estimated by interpolation, and bounded by the engine's buckets."""

    REQUESTS = 0
    MISSES = 1
    MISSES_LEAST = 2
    MISSES_MOST = 3


class SloWindow(NamedTuple):
    """A sliding window. slot_s: seconds of each of its `SLOTS` slots."""

    name: str
    slot_s: float


SLOTS = 12
HOUR, DAYS = SloWindow("1h", 300.0), SloWindow("3d", 21600.0)
WINDOWS = (HOUR, DAYS)
OBJECTIVE = 0.99  # of the requests meet the SLO; the rest is the error budget
BUDGET = 0.009  # of the requests may miss the SLO by a decision: a tenth below the error budget
FEWEST = 1.0  # requests below which there is no ratio: the oldest slot leaves a part of one
SPREAD = 0.3  # of the SLO: times per output token in the bucket around it are within so much of each other
WEIGHT_S = 3600.0  # time constant of requests and times, whose ratio weighs a late time
LARGEST = 1e15  # of a restored count
# Floats per workload: the time, two totals, two sums of the weight, and two windows of 13 slots with four counts each.
WIDTH = 1 + 2 + 2 + len(WINDOWS) * (SLOTS + 1) * len(Count)
# A kernel takes plain numbers.
_COUNTS, _TTFT, _TPOT = len(Count), int(WorkRate.TTFT), int(WorkRate.TPOT)
_GAPS, _GAP_SECONDS = int(WorkRate.GAPS), int(WorkRate.GAP_SECONDS)
_LATE, _LEAST, _MOST = int(WorkRate.TPOT_LATE), int(WorkRate.TPOT_LATE_LEAST), int(WorkRate.TPOT_LATE_MOST)
_HOUR_SLOT_S, _DAYS_SLOT_S = HOUR.slot_s, DAYS.slot_s


class Attainment(NamedTuple):
    """The counts of all workloads, one row each; part of a checkpoint.

    at:      shape (rows,), POSIX seconds of the last update; NaN: none yet.
    totals:  shape (rows, 2), requests and misses since the first update.
    weights: shape (rows, 2), the last requests and times per output token.
    hour, days: shape (rows, SLOTS + 1, len(Count)), the newest slot first.
    """

    at: Floats
    totals: Floats
    weights: Floats
    hour: Floats
    days: Floats

    def of(self, window: SloWindow) -> Floats:
        return self.hour if window is HOUR else self.days


class Served(NamedTuple):
    """What one update adds, shape (rows,); NaN unknown. Misses may be those of requests of an earlier update."""

    requests: Floats
    misses: Floats


class Attained(NamedTuple):
    """What a window holds, shape (rows,).

    requests: how many are measured.
    ratio:    the requests that met the SLO; NaN if fewer than FEWEST are measured. The truth, but for what counts
              twice, is between `least` and `most`.
    budget:   what is left of the error budget: 1 is all, 0 none, below 0 more misses than allowed; NaN as `ratio`.
    """

    requests: Floats
    ratio: Floats
    least: Floats
    most: Floats
    budget: Floats


def blank(rows: int) -> Attainment:
    """Workloads without a measured request."""
    windows = (np.zeros((rows, SLOTS + 1, len(Count))) for _ in WINDOWS)
    return Attainment(np.full(rows, np.nan), np.zeros((rows, 2)), np.zeros((rows, 2)), *windows)


@part
def _slide(slots: Floats, i: int, at: float, now: float, slot_s: float) -> None:
    """Begins a new slot where one has ended since `at`. Slots begin at multiples of their length."""
    passed = np.floor(now / slot_s) - np.floor(at / slot_s)
    if not passed > 0.0:  # also at the first update, and where the clock was set back
        return
    many = int(min(passed, SLOTS + 1.0))
    for slot in range(SLOTS, -1, -1):
        for count in range(_COUNTS):
            slots[i, slot, count] = slots[i, slot - many, count] if slot >= many else 0.0


@part
def _late(rates: Floats, i: int, itl: float) -> float:
    """Late times per output token, per second: those in the bucket of the SLO are divided by the mean time between
    tokens. Half of them are late if the mean is the SLO, none at `SPREAD / 2` below it, all at as much above. Without a
    mean they stay as they are.
    """
    mean = rates[i, _GAP_SECONDS] / rates[i, _GAPS] if rates[i, _GAPS] > 0.0 else np.nan
    share = (mean / itl - 1.0) / SPREAD + 0.5
    if share < 0.0:
        share = 0.0
    elif share > 1.0:
        share = 1.0
    late = rates[i, _LEAST] + share * (rates[i, _MOST] - rates[i, _LEAST])
    return rates[i, _LATE] if np.isnan(late) else late


_SERIES, _ROWS = types.Array(types.float64, 1, "C"), types.Array(types.float64, 2, "C")
_SLOTS, _RATES = types.Array(types.float64, 3, "C"), types.Array(types.float64, 2, "A", readonly=True)


@in_place_kernel(types.void(_SERIES, _ROWS, _ROWS, _SLOTS, _SLOTS, _RATES, FLOATS, NUMBER, NUMBER, _ROWS))
def _update(
    at: Floats,
    totals: Floats,
    weights: Floats,
    hour: Floats,
    days: Floats,
    rates: Floats,
    itl: Floats,
    now: float,
    longest_s: float,
    added: Floats,
) -> None:
    for i in range(at.shape[0]):
        elapsed = now - at[i]
        _slide(hour, i, at[i], now, _HOUR_SLOT_S)
        _slide(days, i, at[i], now, _DAYS_SLOT_S)
        at[i] = now
        if not elapsed > 0.0 or np.isnan(rates[i, _TTFT]) or np.isnan(rates[i, _TPOT]):
            continue
        seconds = min(elapsed, longest_s)
        kept = np.exp(-seconds / WEIGHT_S)
        weights[i, 0] = kept * weights[i, 0] + rates[i, _TTFT] * seconds
        weights[i, 1] = kept * weights[i, 1] + rates[i, _TPOT] * seconds
        weight = weights[i, 0] / weights[i, 1] if weights[i, 1] > weights[i, 0] else 1.0
        added[i, 0] = rates[i, _TTFT] * seconds
        for count in range(1, _COUNTS):
            times = rates[i, _TPOT + count] if _TPOT + count != _LATE else _late(rates, i, itl[i])
            added[i, count] = (rates[i, _TTFT + count] + weight * times) * seconds
        for count in range(_COUNTS):
            hour[i, 0, count] += added[i, count]
            days[i, 0, count] += added[i, count]
        totals[i, 0] += added[i, 0]
        totals[i, 1] += added[i, 1]


def update(counts: Attainment, rates: Floats, itl: Floats, now: float, longest_s: float) -> Served:
    """Adds what was served since the last update, in place.

    rates: shape (rows, len(WorkRate)), per second; rows without both latencies add nothing. itl: of the SLO, seconds,
    shape (rows,). now: POSIX seconds. longest_s: the rates hold for so many seconds at most.
    """
    added = np.full((len(counts.at), len(Count)), np.nan)
    _update(*counts, rates, itl, now, longest_s, added)
    return Served(added[:, Count.REQUESTS], added[:, Count.MISSES])


def attained(counts: Attainment, window: SloWindow) -> Attained:
    """What a window holds as of the last update."""
    slots = counts.of(window)
    inside = 1.0 - zero_if_unknown(counts.at % window.slot_s) / window.slot_s
    requests, *misses = (slots[:, :SLOTS].sum(axis=1) + slots[:, SLOTS] * inside[:, None]).T
    enough = requests >= FEWEST
    missed, least, most = (
        np.where(enough, np.minimum(each, requests) / np.where(enough, requests, 1.0), np.nan) for each in misses
    )
    return Attained(requests, 1.0 - missed, 1.0 - most, 1.0 - least, 1.0 - missed / (1.0 - OBJECTIVE))


def made_sound(counts: Mapping[str, Array]) -> Mask:
    """Which rows this version could have written: other counts are of another one. Shape (rows,).

    counts: the columns of `Attainment` by name.
    """
    sound = np.ones(len(counts["at"]), dtype=np.bool_)
    for name, column in counts.items():
        if name != "at":
            # NaN compares as False.
            sound &= ((column >= 0.0) & (column <= LARGEST)).all(axis=tuple(range(1, column.ndim)))
    return sound
