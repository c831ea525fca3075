"""Orders the members of one queue by price, so that it fills the cheapest first; seldom anew. Pure.

The members of a queue serve the same requests on different GPUs. What counts is the price of one request, not of a
replica: a replica that costs nine times as much and serves ten times as many requests is the cheaper one. Its unit is,
of the following, the first that is known of every member, so that never two units are compared:

    REQUESTS  the requests per second of one replica, learned from its engine (`sizing`), at the mean request of all
              members: with a mean of its own, a member that was sent shorter requests would seem faster. It is learned
              from LEARNED requests on: with fewer, the priors decide.
    IN_HAND   the requests in hand that one replica is configured to hold.
    REPLICAS  one replica.

If the price of a member is not known, the order stays as it was; if there is none yet, weights divide the queue. That
ends by itself: each member then gets requests, runs, and shows its GPUs.

**Hysteresis.** An order is made anew only if a member has been dearer than a later one by more than BAND, for
SETTLE_S without a break. In a wrong order within the band a request costs at most that much too much, and a change
costs starts. To change back, the ratio must cross the band on its other side. What is learned moves: in replays of
eight public loads on two servers the price of one engine's request, at one mean request, is out of the band around its
median for 33 minutes at most while it is learned (up to 17 times the median), and then for 2 minutes or less on three
loads of days, for 124 on one with surges. On an office load it is 0.43 of the median on two quiet days. That flips
nothing: an engine that is not used keeps its last price, so the member that is used becomes the cheaper one.

Worked example: an L4 at 0.8 an hour serves 2 requests a second, an H100 at 6.9 serves 20. A million requests cost 111
on the L4 and 96 on the H100: the H100 is first, if there is no order yet. If the L4 was first it stays: 111 / 96 = 1.16
is within the band. Before both have served LEARNED requests the L4 is first, at 0.8 a replica. If the tokens of a
request may take 8 s, an L4 is full with 2 * 8 = 16 requests, and an H100 with 160.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from .capacity import DEFAULTS, TARGET, Estimate
from .columns import Bools, Ints
from .sizing import capacity

UNORDERED = -1  # of a queue whose members have no order
# Of a ratio of two prices, and seconds: see the module.
BAND, SETTLE_S = 0.25, 3600.0
# `capacity` keeps the means of 200 requests. Half of them: the priors count for 5.
LEARNED = 100.0
_MIX = [Estimate.PROMPT_SUM, Estimate.PROMPTS, Estimate.OUTPUT_SUM, Estimate.OUTPUTS, Estimate.CACHED_SUM]


class PriceUnit(IntEnum):
    """The unit that a price is for."""

    REPLICAS = 0
    IN_HAND = 1
    REQUESTS = 2


class UnitPrices(NamedTuple):
    """price: money per hour for one `unit`: a replica, a request in hand, a request per second; NaN unknown.

    Shape (members,).
    """

    price: Floats
    unit: Ints


class Learned(NamedTuple):
    """What one replica of each member can do at the mean request of its queue, shape (members,); NaN: not learned.

    rate:  requests per second.
    holds: requests in hand at that rate, if tokens come as slowly as the SLO allows; fewer where the KV cache is full.
    """

    rate: Floats
    holds: Floats


def learned_capacity(estimates: Floats, itl: Floats, queue: Ints) -> Learned:
    """What the engines have shown.

    estimates: shape (members, WIDTH). itl: of the SLO, seconds; NaN without one. queue: the number of each one's queue.
    """
    learned = (estimates[:, Estimate.OUTPUTS] >= LEARNED) & ~np.isnan(itl)
    alike = estimates.copy()
    for column in _MIX:
        # A member that is not learned yet has the priors as its requests.
        sums = np.bincount(queue, weights=np.where(learned, estimates[:, column], 0.0), minlength=len(queue))
        alike[:, column] = np.where(learned, sums[queue], estimates[:, column])
    rate = 1.0 / np.where(learned, capacity(alike, itl, 0.0).request_replica_s, np.nan)
    output_s = alike[:, Estimate.OUTPUT_SUM] / alike[:, Estimate.OUTPUTS] * TARGET * itl
    return Learned(rate, np.minimum(rate * output_s, DEFAULTS.full_kv / alike[:, Estimate.KV_PER_REQUEST]))


def prices(hour: Floats, holds: Floats, rates: Floats, queue: Ints) -> UnitPrices:
    """The price of each member in the unit of its queue.

    hour: of one replica; NaN unknown. holds: requests in hand by configuration; NaN without. rates: learned ones.
    """
    unit = np.full(len(queue), PriceUnit.REPLICAS, dtype=np.int64)
    divisor = np.ones(len(queue))
    for each, amounts in ((PriceUnit.IN_HAND, holds), (PriceUnit.REQUESTS, rates)):
        unknown = np.bincount(queue, weights=~(amounts > 0.0), minlength=len(queue))[queue] > 0.0
        unit = np.where(unknown, unit, each)
        divisor = np.where(unknown, divisor, amounts)
    return UnitPrices(hour / divisor, unit)


class Ranks(NamedTuple):
    """The order of the members of each queue, shape (members,); part of a checkpoint.

    rank:  in its queue: 0 is filled first; UNORDERED: weights divide it.
    since: POSIX seconds since when its queue has been out of the band; NaN: it is not.
    """

    rank: Ints
    since: Floats

    @classmethod
    def blank(cls, members: int) -> Ranks:
        """There is no order yet."""
        return cls(np.full(members, UNORDERED, dtype=np.int64), np.full(members, np.nan))


def ordered(queue: Ints, price: Floats, before: Ranks, now: float) -> Ranks:
    """The order after these prices, shape (members,); NaN unknown. now: POSIX seconds.

    before: of another list of members or another version too: any numbers, of which the lower comes first.
    """
    members = len(queue)
    by_rank = np.lexsort((np.arange(members), before.rank, queue))
    mine, rank = queue[by_rank], before.rank[by_rank]
    # Of a queue of other members than before, ranks are missing or twice.
    twice = np.zeros(members, dtype=np.bool_)
    twice[1:] = (mine[1:] == mine[:-1]) & (rank[1:] == rank[:-1])
    unsound = _any((rank < 0) | twice, mine)
    unknown = _any(np.isnan(price), queue)
    outside = _any(_out_of_band(mine, price[by_rank]), mine) & ~unsound & ~unknown
    since = np.full(members, np.nan)
    np.fmin.at(since, queue, before.since)
    since = np.where(outside, np.fmin(since, now), np.nan)
    anew = ~unknown & (unsound | (now - since >= SETTLE_S))
    since[anew] = np.nan
    by_price = np.lexsort((before.rank, price, queue))
    after = np.where(anew[queue], _numbered(queue, by_price), _numbered(queue, by_rank))
    return Ranks(np.where((unknown & unsound)[queue], UNORDERED, after), since[queue])


def _numbered(queue: Ints, order: Ints) -> Ints:
    """The number of each member in its queue, from 0. order: the members sorted, queue by queue."""
    sizes = np.bincount(queue)
    numbers = np.empty(len(queue), dtype=np.int64)
    numbers[order] = np.arange(len(queue)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return numbers


def _out_of_band(queue: Ints, price: Floats) -> Bools:
    """Which members are cheaper by more than BAND than one before them. They are sorted by queue and rank."""
    by_price = np.argsort(price, kind="stable")
    dearness = np.empty(len(price), dtype=np.int64)
    dearness[by_price] = np.arange(len(price))
    # The dearest so far: in a later queue each number is lifted above all of the one before.
    lift = queue * len(price)
    dearest = price[by_price[np.maximum.accumulate(dearness + lift) - lift]]
    found: Bools = price * (1.0 + BAND) < dearest  # not so if one is NaN
    return found


def _any(which: Bools, queue: Ints) -> Bools:
    """Whether one of its members is so, by number of the queue; as many as there are members, so that all fit."""
    found: Bools = np.bincount(queue, weights=which, minlength=len(queue)) > 0.0
    return found
