"""One queue, several who work on it: how much of what waits there is each one's. Pure.

A member gets its weight's part of the queue, but no more than it has room for while another has room left: what a full
member cannot take spills over to the others, by their weights. What nobody has room for is everybody's again by weight,
so that all of them ask for more than they may have, and say so. Whatever the weights and rooms, the shares add up to
what waits: never to twice it, and nothing vanishes.

Worked example: 100 requests, weights 9 and 1, room for 40 and 1000: by weight 90 and 10; the first can take 40 of its
90, so the shares are 40 and 60. With room for 40 and 20 they are 40 and 20 and then 36 and 4 more: 76 and 24.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from .arrays import Bools, Ints

NOBODY = -1  # no queue is shared

# Room that is less than this is none: sums of shares are off by some 1e-16 of their size.
DUST = 1e-9


def allotted(amount: Floats, weights: Floats, room: Floats, queue: Ints) -> Floats:
    """Each member's part of its queue, shape (members,).

    amount:  shape (queues,), what is to be shared. weights, room: shape (members,), in any unit and in the amount's.
    queue:   shape (members,), the number of each member's queue. Members of weight 0 get nothing.
    A queue whose members all have weight 0 is shared by nobody: see `told_apart`, which does not let that be.
    """
    queues = len(amount)
    given, left, open_ = np.zeros(len(weights)), amount.astype(np.float64), weights > 0.0
    while open_.any():
        weight = np.where(open_, weights, 0.0)
        wish = _by_weight(left, weight, queue)
        fits = np.where(open_, np.minimum(wish, room - given), 0.0).clip(min=0.0)
        given += fits
        left = (left - np.bincount(queue, weights=fits, minlength=queues)).clip(min=0.0)
        full = open_ & (room - given <= DUST)
        if not full.any():
            return given
        open_ &= ~full
    return given + _by_weight(left, weights, queue)


def _by_weight(amount: Floats, weights: Floats, queue: Ints) -> Floats:
    total = np.bincount(queue, weights=weights, minlength=len(amount))[queue]
    return amount[queue] * np.divide(weights, total, out=np.zeros(len(weights)), where=total > 0.0)


class Sharing(NamedTuple):
    """Who stands behind one queue with whom; a slot per workload.

    queue:  the number of the queue that it shares; NOBODY where it has its queue to itself.
    weight: its part of it, in any unit.
    most:   replicas it may have. work: requests that one of them should hold; NaN where it is not sized by that.
    """

    queue: Ints
    weight: Floats
    most: Floats
    work: Floats

    @classmethod
    def nobody(cls, rows: int) -> Sharing:
        return cls(np.full(rows, NOBODY, dtype=np.int64), np.ones(rows), np.full(rows, np.inf), np.full(rows, np.nan))

    def shares(self, rows: Ints) -> Bools:
        """Which of `rows` share their queue."""
        mask: Bools = self.queue[rows] != NOBODY
        return mask

    def gets_nothing(self, row: int) -> bool:
        """Is none of the queue that it shares its own?"""
        return bool(self.queue[row] != NOBODY and self.weight[row] == 0.0)

    def room(self, in_pods: Floats, wanted: Floats, pending: Floats) -> Floats:
        """Requests that each could take beside those in its pods, shape (rows,).

        While a replica of it waits for a node, a member has room for what the replicas it was given can hold and not
        for more: what comes besides goes to those who can grow. NaN of the arguments: not known, and no limit.
        """
        stuck = (pending > 0.0) & ~np.isnan(wanted)
        replicas = np.where(stuck, np.minimum(self.most, wanted), self.most)
        held = np.where(np.isnan(in_pods), 0.0, in_pods)
        return np.where(np.isnan(self.work), np.inf, np.maximum(replicas * self.work - held, 0.0))

    def parts(self, rows: Ints, amount: Floats, room: Floats) -> Floats:
        """Which part (0..1) of what the queue of each of `rows` shows is its own; 1 where it shares with nobody.

        amount: shape (len(rows),), requests on the queue's page as that workload last read it. room: of all workloads.
        """
        part = np.ones(len(rows))
        sharing = np.flatnonzero(self.shares(rows))
        if not len(sharing):
            return part
        members = np.flatnonzero(np.isin(self.queue, self.queue[rows[sharing]]))
        order = members[np.argsort(self.queue[members], kind="stable")]
        first, last = (
            np.searchsorted(self.queue[order], self.queue[rows[sharing]], side) for side in ("left", "right")
        )
        count = last - first
        asker = np.repeat(np.arange(len(sharing)), count)  # a pair for each of the sharing rows and each of its mates
        mate = order[np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - first, count)]
        waits = np.where(amount[sharing] > 0.0, amount[sharing], 1.0)  # an empty queue is shared like one with little
        given = allotted(waits, self.weight[mate], room[mate], asker)
        own = mate == rows[sharing][asker]
        part[sharing] = given[own] / waits
        return part


def told_apart(sharing: Sharing) -> Sharing:
    """The same without queues of one, and where all weights of a queue are 0, all of them 1: demand never vanishes."""
    shared = sharing.queue != NOBODY
    members = np.bincount(sharing.queue[shared])
    alone = shared & (members[np.where(shared, sharing.queue, 0)] < 2) if shared.any() else shared  # noqa: PLR2004
    queue = np.where(alone, NOBODY, sharing.queue)
    shared = queue != NOBODY
    total = np.bincount(queue[shared], weights=sharing.weight[shared])
    nothing = np.zeros(len(queue), dtype=np.bool_)
    nothing[shared] = total[queue[shared]] == 0.0
    return sharing._replace(queue=queue, weight=np.where(nothing, 1.0, sharing.weight))
