"""Chooses the size that counts as the signal SLO of each workload: by tokens, by the time of requests, or by its queue.

The time of a request sizes a workload while its engines expose no counters of tokens. Where no engine is, nothing is
exposed: what is known decides. A size counts for as long as a decision is held. A response without counters is an
incomplete one if its workload has counted requests before. Pure; kernels.

Worked example: a workload with an SLO has counted 100 requests, was sized by them 10 s ago to 2.4 replicas, and all of
its engines answer: its signal SLO is 2.4. An hour later without readings it is NaN.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import typeof, types

from exporter.model import Floats
from scaler.columns import Mask, Rows
from scaler.jit import FLOATS, INDICES, NUMBER, in_place_kernel, part

from .batch import JobEstimate
from .capacity import PRIOR_REQUESTS, Estimate
from .columns import SLO, WORK, Bools, Specs
from .service_time import FEWEST_TIMED, RequestTime


class SizeEstimates(NamedTuple):
    """The estimates of all workloads, a table of shape (rows, WIDTH) from each of three modules.

    by_tokens: of `capacity`. by_time: of `service_time`. of_queue: of `batch`.
    """

    by_tokens: Floats
    by_time: Floats
    of_queue: Floats


class SizeRules(NamedTuple):
    """What is configured of all workloads: columns of `Specs`."""

    targets: Floats
    itl: Floats
    hold: Floats
    start_within: Floats
    falls_back: Bools
    by_time: Bools

    @classmethod
    def of(cls, specs: Specs) -> SizeRules:
        return cls(specs.targets, specs.itl, specs.hold, specs.start_within, specs.falls_back, specs.by_time)


_TABLE = types.Array(types.float64, 2, "C")
_RULES = typeof(SizeRules.of(Specs.stack([])))
_ESTIMATES = typeof(SizeEstimates(*np.empty((3, 0, 1))))
_MASK = types.bool_[::1]


@part
def _has_tokens(rules: SizeRules, row: int) -> bool:
    """Whether an SLO is to size the workload by tokens."""
    return not np.isnan(rules.targets[row, SLO]) and rules.itl[row] > 0.0


@part
def _is_timed(rules: SizeRules, estimates: SizeEstimates, row: int, uncounted: float, pods_fresh: float) -> bool:
    if not rules.by_time[row] or estimates.by_tokens[row, Estimate.OUTPUTS] > PRIOR_REQUESTS:
        return False
    if np.isnan(rules.targets[row, SLO]) or np.isnan(rules.itl[row]) or uncounted > 0.0:
        return True
    return pods_fresh == 0.0 and estimates.by_time[row, RequestTime.REQUESTS] >= FEWEST_TIMED


@in_place_kernel(types.void(_RULES, _ESTIMATES, INDICES, FLOATS, FLOATS, _MASK))
def _find_timed(
    rules: SizeRules, estimates: SizeEstimates, rows: Rows, uncounted: Floats, pods_fresh: Floats, timed: Mask
) -> None:
    for i in range(rows.shape[0]):
        timed[i] = _is_timed(rules, estimates, rows[i], uncounted[i], pods_fresh[i])


def find_timed(rules: SizeRules, estimates: SizeEstimates, rows: Rows, uncounted: Floats, pods_fresh: Floats) -> Mask:
    """Which of these workloads the time of a request sizes now.

    uncounted: engines without counters of tokens, pods_fresh: engines that answer, both of `rows`.
    """
    timed = np.empty(len(rows), dtype=np.bool_)
    _find_timed(rules, estimates, rows, uncounted, pods_fresh, timed)
    return timed


@in_place_kernel(types.void(_RULES, _ESTIMATES, INDICES, FLOATS, FLOATS, _TABLE, NUMBER, NUMBER, _TABLE, _TABLE))
def _add_sizes(
    rules: SizeRules,
    estimates: SizeEstimates,
    rows: Rows,
    uncounted: Floats,
    pods_fresh: Floats,
    smoothed: Floats,
    longest_s: float,
    now: float,
    latest: Floats,
    signals: Floats,
) -> None:
    by_tokens, by_time, of_queue = estimates
    for i in range(rows.shape[0]):
        row = rows[i]
        held_s = rules.hold[row] + longest_s
        is_counted = by_tokens[row, Estimate.OUTPUTS] > PRIOR_REQUESTS or not uncounted[i] > 0.0
        is_sized = _has_tokens(rules, row) and is_counted
        if _is_timed(rules, estimates, row, uncounted[i], pods_fresh[i]):
            is_sized = is_sized or by_time[row, RequestTime.REQUESTS] >= FEWEST_TIMED
        is_sized = is_sized and not now - by_tokens[row, Estimate.AT] > held_s
        work, size = by_tokens[row, Estimate.WORK], by_tokens[row, Estimate.SIZE]
        is_queue = rules.start_within[row] > 0.0
        if is_queue:
            work, size = of_queue[row, JobEstimate.NEED], of_queue[row, JobEstimate.SIZE]
            is_sized = is_sized or not now - of_queue[row, JobEstimate.AT] > held_s
        latest[i, SLO] = work if is_sized else np.nan
        size = size if is_sized else np.nan
        for signal in range(SLO):
            signals[i, signal] = smoothed[i, signal]
        signals[i, SLO] = size
        # At a start two responses make the first rate. Until then its replicas stay: requests in hand are no demand.
        is_pending = rules.falls_back[row] and not is_queue and np.isnan(size) and not uncounted[i] > 0.0
        if is_pending and pods_fresh[i] > 0.0:
            signals[i, WORK] = np.nan


def add_sizes(
    rules: SizeRules,
    estimates: SizeEstimates,
    rows: Rows,
    uncounted: Floats,
    pods_fresh: Floats,
    smoothed: Floats,
    longest_s: float,
    now: float,
    latest: Floats,
) -> Floats:
    """The signals of these workloads, shape (rows, SLO + 1): the smoothed ones and the size that counts.

    uncounted, pods_fresh: as for `find_timed`. smoothed: shape (rows, SLO). longest_s: a reading is fresh for so many
    seconds. now: POSIX seconds. latest: the signals as they are read, where the arriving work is written; of a queue
    what would be enough without the hold.
    """
    signals = np.empty((len(rows), SLO + 1))
    _add_sizes(rules, estimates, rows, uncounted, pods_fresh, smoothed, longest_s, now, latest, signals)
    return signals
