"""Computes what one more hour of keep-warm would cost and save per day, from the recorded pauses of a workload. Pure.

A pause that is shorter than the keep-warm time costs the same with and without the hour. One that ends within the hour
is kept warm to its end, and its cold start is avoided. A longer one is kept warm for the whole hour and is followed by
its cold start all the same. A pause that is going on counts when it ends.

Worked example: a workload has three pauses a day, of 10 min, 40 min and 3 h, and is kept warm for 15 min. One hour more
adds 0, 25 and 60 min, and avoids the start after the second pause. With 8 GPUs at 3 per hour that is 11.3 GPU-hours,
which cost 34. The start takes 75 s: its GPU time costs 0.5, and the wait at 30 per hour 0.63, so 1.13 is saved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats

from .histograms import middles

HOUR_S = 3600.0
# Before, a single pause would be extrapolated to dozens per day.
SHORTEST_COUNTED_S = HOUR_S


class RecordedPauses(NamedTuple):
    """The recorded pauses of some workloads, and their starts; shape (rows,) where not given. NaN unknown.

    weights:  shape (rows, buckets), relative numbers of pauses. edges: where buckets begin, seconds, shape (buckets,).
    number:   of pauses, with decayed weights. per_day: how many a day has; unknown if the workload never sleeps.
    keep_warm: seconds. starts_again: seconds since the begin of a pause of a start in advance; NaN: none.
    start:    seconds that a start takes. waiting: money per second of a start that requests wait for.
    """

    weights: NDArray[np.float32]
    edges: Floats
    number: Floats
    per_day: Floats
    keep_warm: Floats
    starts_again: Floats
    start: Floats
    waiting: Floats


class FurtherHour(NamedTuple):
    """Per day, except `pauses`; every column has shape (rows,), NaN unknown.

    pauses:      the number on which the others are based, with decayed weights.
    gpu_seconds: idle, held for the further hour. cost: their money.
    cold_starts: that are avoided. waiting_s: seconds of these starts.
    saved:       money of these starts: their GPU time and the wait.
    """

    pauses: Floats
    gpu_seconds: Floats
    cost: Floats
    cold_starts: Floats
    waiting_s: Floats
    saved: Floats


def further_hour(pauses: RecordedPauses, gpus: Floats, hour: Floats) -> FurtherHour:
    """Returns the cost and the saving of one more hour, all unknown if a start in advance begins within that hour.

    gpus: whole GPUs of the smallest active size, shape (rows,). hour: money for an hour of one of them; NaN unknown.
    """
    total = pauses.weights.sum(axis=1, dtype=np.float64, keepdims=True)
    shares = pauses.weights / np.where(total > 0.0, total, np.nan)
    lengths, before = middles(pauses.edges), pauses.keep_warm[:, None]
    after = before + HOUR_S
    held = (shares * (np.minimum(lengths, after) - np.minimum(lengths, before))).sum(axis=1)
    ended = (shares * ((lengths > before) & (lengths <= after))).sum(axis=1)
    per_day = np.where(pauses.starts_again < pauses.keep_warm + HOUR_S, np.nan, pauses.per_day)
    gpu_seconds, cold_starts = held * gpus * per_day, ended * per_day
    waiting_s = cold_starts * pauses.start
    return FurtherHour(
        pauses=np.where(np.isnan(cold_starts), np.nan, pauses.number),
        gpu_seconds=gpu_seconds,
        cost=gpu_seconds * hour / HOUR_S,
        cold_starts=cold_starts,
        waiting_s=waiting_s,
        saved=waiting_s * (gpus * hour / HOUR_S + pauses.waiting),
    )
