"""Prices the requests that wait for a start by the error budget of an SLO. Pure.

An SLO is met by 99 % of the requests. A request that arrives at zero replicas, or behind others that wait for the same
start, misses it. `BUDGET` of the requests may. This share is an account in requests: each finished request adds to it,
and each cold start subtracts the requests that it delays. They arrive all through the start, so they wait for half of
it on average, and the first one for all of it. The price of their wait, `prices.waiting_hour`, is halved for each cold
start that the account covers:

    clients = (delayed + 1) / 2 * 2**-max(account / delayed, 0)

with `delayed` the mean over the last pauses. In debt the price is the full one. An unused budget makes waiting cheap,
and GPU time alone decides. This is dual ascent on the constraint "delayed requests <= BUDGET * requests" with an
exponential price, so the account settles where the price spends what comes in (M. J. Neely, "Stochastic Network
Optimization", 2010, chapter 4: virtual queues).

How many requests a start delays is measured after each pause that is long enough to sleep in. After a cold start these
are the requests that arrive until one is ready and no request waits; if a replica was kept warm, those that arrive
within one start-up time. Nights end otherwise than lunch breaks, so the mean is one of each part of the day, with the
neighbouring parts at a lower weight: a start that delays many has a high price if the account covers few of its kind.
Before the first pause it is the mean rate of all requests times a start.

Engines in sleep mode wake faster, and may still wake too late. Of the requests that arrive until they are awake and
none waits, those of the last `within` seconds meet the SLO; the account subtracts the others.

Prices are fixed while a workload rests: a pause is settled at the price that it began with. The exponent is rounded, so
that not every request changes the price and with it the schedule.

Worked example: a start delays 50 requests, and the account is 230: 4.6 cold starts. So a cold start costs as much as
25.5 * 2**-4.6, about 1 waiting client. With the prices of the configuration and a start of 75 s the break-even is
75 * (1 + 12 * 1) s of one GPU, 16 min. In debt it is 75 * (1 + 12 * 32) s, 8 h.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from exporter.model import Floats
from scaler.columns import Array, Columns, Mask, Rows, copy_into, named
from scaler.jit import FLOATS, INDICES, NUMBER, in_place_kernel, part

from ..attainment import BUDGET
from .idle_time import IdleEnds

# The account is at most so many cold starts, in hand or in debt: 2**-32 of a price is nothing, and a debt is paid off.
MOST_STARTS = 32.0
DAY_S = 86400.0
PARTS = 8  # of a day (UTC), three hours each
NEAR_PARTS, FAR_WEIGHT = 1.0, 0.02  # standard deviation of the weight of another part; the weight of the farthest
SAMPLES = 10.0  # the mean of a part is over its last pauses, about so many
# A queue that does not drain within so many start-up times has another cause.
LONGEST_STARTS = 8.0
MOST_REQUESTS = 1e12  # of a restored account or mean


class Traffic(NamedTuple):
    """The requests of some workloads at one moment; every column has shape (rows,), NaN unknown.

    finished: a counter. in_hand: waiting, running and held. waiting: without a first token, held ones too.
    ready:    replicas.
    """

    finished: Floats
    in_hand: Floats
    waiting: Floats
    ready: Floats


def _weights() -> Floats:
    """Of the samples of each part (second axis) for a pause in each part (first axis)."""
    parts = np.arange(PARTS)
    apart = np.abs(parts[:, None] - parts)
    apart = np.minimum(apart, PARTS - apart)
    return np.asarray(FAR_WEIGHT + (1.0 - FAR_WEIGHT) * np.exp(-0.5 * (apart / NEAR_PARTS) ** 2), dtype=np.float64)


_WEIGHTS = _weights()


@part
def part_of_day(at: float) -> int:
    """The part of the day of POSIX seconds."""
    return int(at % DAY_S / DAY_S * PARTS) % PARTS


_SERIES, _TABLE = types.Array(types.float64, 1, "C"), types.Array(types.float64, 2, "C")
_MASK = types.Array(types.bool_, 1, "C", readonly=True)


@in_place_kernel(types.void(_SERIES, _TABLE, _TABLE, _SERIES, _SERIES, _MASK, FLOATS, NUMBER))
def _price(
    account: Floats,
    means: Floats,
    samples: Floats,
    since: Floats,
    clients: Floats,
    resting: Mask,
    start: Floats,
    now: float,
) -> None:
    """Bounds the accounts and prices the next cold starts.

    Before a pause has ended, a start delays the mean rate times its length: the account has BUDGET of all requests.
    """
    weights = _WEIGHTS[part_of_day(now)]
    for i in range(account.shape[0]):
        number = requests = near = near_requests = 0.0
        for other in range(weights.shape[0]):
            number += samples[i, other]
            requests += samples[i, other] * means[i, other]
            near += samples[i, other] * weights[other]
            near_requests += samples[i, other] * weights[other] * means[i, other]
        if number > 0.0:
            bound = MOST_STARTS * max(requests / number, 1.0)
            account[i] = min(max(account[i], -bound), bound)
            delayed = max(near_requests / near, 1.0)
        else:
            elapsed = now - since[i]
            delayed = np.maximum(account[i] / BUDGET * start[i] / elapsed, 1.0) if elapsed > 0.0 else np.nan
        if not (resting[i] and np.isfinite(clients[i])):
            covered = np.maximum(account[i] / delayed, 0.0)
            clients[i] = 2.0 ** np.rint(np.log2((delayed + 1.0) / 2.0) - covered)


@in_place_kernel(
    types.void(
        _SERIES, _TABLE, _TABLE, _SERIES, _SERIES, _SERIES, _SERIES, types.int64[::1], types.bool_[::1],
        INDICES, *4 * (FLOATS,), FLOATS, NUMBER,
    )
)  # fmt: skip
def _observe(
    account: Floats,
    means: Floats,
    samples: Floats,
    since: Floats,
    last_finished: Floats,
    counted_from: Floats,
    ended_at: Floats,
    parts: Rows,
    is_cold: Mask,
    rows: Rows,
    finished: Floats,
    in_hand: Floats,
    waiting: Floats,
    ready: Floats,
    start: Floats,
    now: float,
) -> None:
    """`ErrorBudget.observe`, without the pauses that ended: ends the counts that are over, and adds the requests."""
    for i in range(rows.shape[0]):
        row, took = rows[i], now - ended_at[rows[i]]
        if is_cold[row]:
            over = (ready[i] > 0.0 and waiting[i] == 0.0) or took >= LONGEST_STARTS * start[row]
        else:
            over = took >= start[row]
        if over and np.isfinite(counted_from[row]):
            delayed = finished[i] + in_hand[i] - counted_from[row]
            counted_from[row] = np.nan
            if np.isfinite(delayed) and took >= 0.0:
                of_day, delayed = parts[row], max(delayed, 1.0)
                account[row] -= delayed if is_cold[row] else 0.0
                samples[row, of_day] = min(samples[row, of_day] + 1.0, SAMPLES)
                means[row, of_day] += (delayed - means[row, of_day]) / samples[row, of_day]
        if np.isfinite(finished[i] + in_hand[i] + waiting[i]):
            gained = finished[i] - last_finished[row]
            account[row] += BUDGET * gained if gained > 0.0 else 0.0
            last_finished[row] = finished[i]
            if np.isnan(since[row]):
                since[row] = now


class ErrorBudget:
    """The accounts of a fixed list of workloads: 2 + 2 * PARTS floats each.

    account: requests that may still be delayed; below 0 too many were.
    means, samples: shape (rows, PARTS): requests that a start delays, and the number of pauses in that mean.
    since:   POSIX seconds of the first observation; NaN before.
    clients: that a cold start costs the wait of, at present; NaN unknown. Not part of a checkpoint.
    """

    def __init__(self, rows: int) -> None:
        self.account: Floats = np.zeros(rows)
        self.means: Floats = np.zeros((rows, PARTS))
        self.samples: Floats = np.zeros((rows, PARTS))
        self.since: Floats = np.full(rows, np.nan)
        self.clients: Floats = np.full(rows, np.nan)
        self._finished: Floats = np.full(rows, np.nan)  # at the last observation
        # The pause that ended last, while the requests after it are counted.
        self._counted_from: Floats = np.full(rows, np.nan)  # `finished` before it ended; NaN: nothing is counted
        self._ended_at: Floats = np.full(rows, np.nan)
        self._part: Rows = np.zeros(rows, dtype=np.int64)
        self._cold: Mask = np.zeros(rows, dtype=np.bool_)
        # The same of a pause that ended asleep, while its engines wake.
        self._woken_from: Floats = np.full(rows, np.nan)
        self._woken_at: Floats = np.full(rows, np.nan)

    def observe(self, rows: Rows, traffic: Traffic, ended: IdleEnds, lowest: Floats, start: Floats, now: float) -> None:
        """Takes the traffic of `rows`, which are unique, and the pauses that ended.

        ended:  pauses shorter than `lowest` are ignored: nothing sleeps in them. lowest: seconds, of all workloads.
        start:  seconds that a start takes, of all workloads; NaN unknown, and nothing is counted.
        """
        before = self._finished[rows] if len(ended.rows) else self._finished[:0]
        _observe(
            self.account, self.means, self.samples, self.since, self._finished,
            self._counted_from, self._ended_at, self._part, self._cold, rows, *traffic, start, now,
        )  # fmt: skip
        if len(ended.rows):  # not so in most calls
            self._begin_counts(rows, traffic, before, ended, lowest, now)

    def spend_at_wakes(
        self, rows: Rows, traffic: Traffic, ended: IdleEnds, asleep: Mask, within: Floats, start: Floats, now: float
    ) -> None:
        """Subtracts the requests that wait too long for engines in sleep mode. Called before `observe`.

        asleep: whether no engine is awake, of `rows`. within: seconds to the first token that the SLO allows, of them.
        start:  a wake that takes LONGEST_STARTS of it has failed; of all workloads.
        """
        took = now - self._woken_at[rows]
        over = (~asleep & ~(traffic.waiting > 0.0)) | (took >= LONGEST_STARTS * start[rows])
        places = np.flatnonzero(over & np.isfinite(self._woken_from[rows]))
        if len(places):
            done, took, allowed = rows[places], took[places], np.nan_to_num(within[places])
            arrived = traffic.finished[places] + traffic.in_hand[places] - self._woken_from[done]
            late = np.maximum(arrived * (took - allowed) / np.where(took > 0.0, took, 1.0), 1.0)
            self.account[done] -= np.where((took > allowed) & np.isfinite(late), late, 0.0)
            self._woken_from[done] = np.nan
        if len(ended.rows):
            begun = ended.rows[asleep[np.searchsorted(rows, ended.rows)]]
            begun = begun[np.isnan(self._woken_from[begun])]
            self._woken_from[begun], self._woken_at[begun] = self._finished[begun], now

    def _begin_counts(
        self, rows: Rows, traffic: Traffic, before: Floats, ended: IdleEnds, lowest: Floats, now: float
    ) -> None:
        enough = ended.lengths >= lowest[ended.rows]
        long_enough, began = ended.rows[enough], now - ended.lengths[enough]
        places = np.searchsorted(rows, long_enough)
        free = np.isnan(self._counted_from[long_enough]) & np.isfinite(before[places])
        long_enough, places, began = long_enough[free], places[free], began[free]
        self._counted_from[long_enough], self._ended_at[long_enough] = before[places], now
        self._part[long_enough] = [part_of_day(each) for each in began.tolist()]
        self._cold[long_enough] = traffic.ready[places] == 0.0

    def price(self, resting: Mask, start: Floats, now: float) -> Floats:
        """Clients that wait for the next cold start, at their price, shape (rows,); NaN unknown.

        resting: workloads of which it stays as it was. start: as for `observe`.
        """
        columns = (self.account, self.means, self.samples, self.since, self.clients)
        _price(*columns, resting, start, now)
        return self.clients

    @property
    def starts_covered(self) -> Floats:
        """Cold starts that the account covers, below 0 in debt; NaN before a pause has ended."""
        return self.account / self.delayed

    @property
    def delayed(self) -> Floats:
        """Requests that a start delays, the mean of all parts of the day; NaN before a pause has ended."""
        total = self.samples.sum(axis=1)
        return np.maximum((self.samples * self.means).sum(axis=1) / np.where(total > 0.0, total, np.nan), 1.0)

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps, one slot per workload."""
        parts = {"account": self.account, "means": self.means, "samples": self.samples, "since": self.since}
        return named("budget", parts)

    def take(self, columns: Columns, rows: Rows, source_rows: Rows) -> None:
        """Copies state from `columns[source_rows]` into `rows`, pairwise; what is impossible is as at the beginning."""
        copy_into(self.columns(), columns, rows, source_rows)
        self.clients[rows] = self._finished[rows] = np.nan
        self._counted_from[rows] = self._woken_from[rows] = np.nan
        sound = np.abs(self.account[rows]) <= MOST_REQUESTS
        sound &= ((self.means[rows] >= 0.0) & (self.means[rows] <= MOST_REQUESTS)).all(axis=1)
        sound &= ((self.samples[rows] >= 0.0) & (self.samples[rows] <= SAMPLES)).all(axis=1)
        broken = rows[~sound]
        self.account[broken], self.since[broken] = 0.0, np.nan
        self.means[broken] = self.samples[broken] = 0.0
