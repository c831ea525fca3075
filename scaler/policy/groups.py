"""Decides workloads that belong together: roles that sleep and wake as one, and members of one queue. Pure.

A member may have a role. Members of one role, or of none, work on one queue: `Sharing` divides it. In a group of
several roles each request needs every role, so the members sleep and wake together, and bounds may be set on the
replicas of one role for each replica of another. Members of weight 0 take part in neither.

`decide_groups` decides every member alone, derives from that a floor for its mates, and decides again with it. A floor
is not activity: it ends in the tick in which no member wants anything, so no cycle keeps a group awake. Without groups
it is `step` and costs nothing more.

A member gets its weight's part of the queue, but no more than its capacity while another has capacity left: what a full
member cannot take goes to the others, by their weights. Members of a lower order come first: one of a higher order gets
what those cannot take. So a cheap variant is full before a dear one gets, or is woken by, a request. What exceeds all
capacities is divided by weight again, so all of them ask for more than they may have, and say so. The shares always add
up to the queue.

Worked example of roles: prefill wants 4 replicas, decode is idle and wants 0, with `ratio: {to: prefill, min: 0.5,
max: 2}` on decode. The group is awake, so each has at least 1; 0.5 x 4 = 2, so the floors are 4 for prefill and 2 for
decode. With decode at 10 and prefill at 4, prefill is raised to 10 / 2 = 5: the lower one is raised, none is lowered.

Worked example of shares: 100 requests, weights 9 and 1, capacities 40 and 1000: by weight 90 and 10; the first can take
40 of its 90, so the shares are 40 and 60. With capacities 40 and 20 they are 40 and 20 and then 36 and 4 more: 76 and
24. If the second is of a higher order and the first can take all 100, they are 100 and 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from .columns import NO_REASON, Bools, Constraints, Ints, Memory, Readings, Signal, Specs, Verdicts
from .demand import DUST
from .kernel import choose, step

NONE = -1  # no group, no role, no shared queue
BY_PRICE = -1  # an order that prices decide: see `variants`


@dataclass(frozen=True, slots=True)
class Membership:
    """A workload's membership in a group.

    namespace, name: of the group.
    role:   "" is none.
    weight: its part of the queue that the members of its role share.
    order:  of the members of its role, those of a lower order get the queue first; or BY_PRICE.
    holds:  requests in hand that one replica is configured to hold; NaN if that is not configured.
    to:     the role that bounds the replicas of its own role; None if none does.
    least, most: replicas of its role for each replica of that one.
    observed: whether it is only observed. Observed members are a group apart: no acting workload depends on them.
    """

    namespace: str
    name: str
    role: str = ""
    weight: float = 1.0
    to: str | None = None
    least: float = 0.0
    most: float = np.inf
    observed: bool = False
    order: int = 0
    holds: float = np.nan


class Groups(NamedTuple):
    """Many memberships, by column; numbers are the same for the same name, NONE where there is none.

    group:    its group. A group of one is no group.
    role:     the number of its role in its group. to: of the role that bounds it.
    together: its group has several roles, and its weight is above 0: it sleeps and wakes with its mates.
    weight, least, most: as in `Membership`. order: likewise, and 0 until prices decide; `Sharing` has the same array.
    """

    group: Ints
    role: Ints
    to: Ints
    together: Bools
    weight: Floats
    least: Floats
    most: Floats
    order: Ints

    @classmethod
    def stack(cls, memberships: Sequence[Membership | None]) -> Groups:
        """The columns of these memberships. If members of one role have different bounds, those of the first hold:
        such a configuration is refused.
        """
        groups: dict[tuple[str, str, bool], list[tuple[int, Membership]]] = {}
        for row, member in enumerate(memberships):
            if member is not None:
                groups.setdefault((member.namespace, member.name, member.observed), []).append((row, member))
        rows = len(memberships)
        group, role, to = (np.full(rows, NONE, dtype=np.int64) for _ in range(3))
        order = np.array([0 if member is None else max(member.order, 0) for member in memberships], dtype=np.int64)
        together, weight = np.zeros(rows, dtype=np.bool_), np.ones(rows)
        least, most = np.zeros(rows), np.full(rows, np.inf)
        roles: dict[tuple[int, str], int] = {}
        for number, members in enumerate(members for members in groups.values() if len(members) > 1):
            names = {member.role for _, member in members}
            bounds: dict[str, Membership] = {}
            for row, member in members:
                group[row], weight[row] = number, member.weight
                role[row] = roles.setdefault((number, member.role), len(roles))
                together[row] = len(names) > 1 and member.weight > 0.0
                if member.to in names and member.to != member.role:
                    bounds.setdefault(member.role, member)
            for row, member in members:
                bound = bounds.get(member.role)
                if bound is not None and bound.to is not None:
                    to[row], least[row], most[row] = roles[number, bound.to], bound.least, bound.most
        return cls(group, role, to, together, weight, least, most, order)

    def sharing(self, specs: Specs) -> Sharing:
        """Which workloads share the queue of their gateway: members of one role that have a gateway."""
        return only_shared(
            Sharing(
                queue=np.where(specs.gateway, self.role, NONE),
                weight=self.weight,
                most=specs.maximum,
                work=specs.targets[:, Signal.WORK],
                order=self.order,
                learned=np.full(len(self.role), np.nan),
            )
        )


class Decided(NamedTuple):
    """The result of `step` and its final arguments, so that each workload can be decided again, alone.

    needed:   replicas that its group needs, if that is more than the member wants alone: shape (rows,), else 0.
    readings: `waker_fresh` is that of the group.
    standing: the constraints, with what its group needs as a floor.
    """

    verdicts: Verdicts
    memory: Memory
    needed: Floats
    readings: Readings
    standing: Constraints


def decide_groups(
    groups: Groups,
    specs: Specs,
    readings: Readings,
    constraints: Constraints,
    memory: Memory,
    now: float,
    *,
    raise_only: bool = False,
) -> Decided:
    """`step` for workloads some of which belong together; whole groups (see `closure`)."""
    needed = np.zeros(specs.minimum.shape[0])
    mates = np.flatnonzero(groups.together)
    if len(mates):
        readings = readings._replace(waker_fresh=woken_with(groups, readings.waker_fresh))
        # Without `raise_only`: a decision that stays because nothing falls between ticks is no need of a member.
        alone, _ = step(
            choose(mates, specs), choose(mates, readings), choose(mates, constraints), choose(mates, memory), now
        )
        most = np.minimum(specs.maximum, np.maximum(constraints.ceiling, 1.0))[mates]
        floor = floors(choose(mates, groups), alone, most)
        needed[mates] = np.where(floor > np.where(alone.active, np.fmax(alone.replicas, 0.0), 0.0), floor, 0.0)
        higher = needed > constraints.floor
        constraints = constraints._replace(
            floor=np.where(higher, needed, constraints.floor),
            floor_reason=np.where(higher, NO_REASON, constraints.floor_reason),
        )
    verdicts, memory = step(specs, readings, constraints, memory, now, raise_only=raise_only)
    return Decided(verdicts, memory, needed, readings, constraints)


def closure(groups: Groups, rows: Ints) -> Ints:
    """These workloads and those that sleep and wake with them, in order: they are decided together."""
    numbers = groups.group[rows[groups.together[rows]]]
    if not len(numbers):
        return np.unique(rows)
    mates = np.flatnonzero(groups.together & np.isin(groups.group, numbers))
    return np.union1d(rows, mates)


def woken_with(groups: Groups, visible: Bools) -> Bools:
    """The workloads that the next request would wake: those with a wake source, and their mates.

    visible: shape (rows,), whole groups: which have a wake source themselves. The result has the same shape.
    """
    rows = np.flatnonzero(groups.together)
    if not len(rows):
        return visible
    names, group = np.unique(groups.group[rows], return_inverse=True)
    woken = np.bincount(group, weights=visible[rows], minlength=len(names)) > 0.0
    out = visible.copy()
    out[rows] = woken[group]
    return out


def floors(groups: Groups, verdicts: Verdicts, maxima: Floats) -> Floats:
    """The replicas that the mates of each workload need at least, shape (rows,); 0 is no floor.

    verdicts: of each member decided alone, whole groups. An unknown one is awake and needs no number of replicas.
    maxima:   replicas that each may have: they win against every bound.
    """
    out = np.zeros(len(groups.group))
    rows = np.flatnonzero(groups.together)
    if not len(rows):
        return out
    names, group = np.unique(groups.group[rows], return_inverse=True)
    awake = np.bincount(group, weights=verdicts.active[rows], minlength=len(names)) > 0.0
    rows = rows[awake[group]]
    if len(rows):
        out[rows] = _bounded(groups, rows, np.fmax(verdicts.replicas[rows], 1.0), maxima[rows])
    return out


def _bounded(groups: Groups, rows: Ints, alone: Floats, maxima: Floats) -> Floats:
    """The replicas of awake members by the bounds on ratios. alone, maxima, and the result: shape (len(rows),)."""
    bound = np.flatnonzero(groups.to[rows] != NONE)
    names, role = np.unique(groups.role[rows], return_inverse=True)
    bound = bound[np.isin(groups.to[rows[bound]], names)]  # all members of a role may have weight 0
    if not len(bound):
        return alone
    have = np.bincount(role, weights=alone)
    most = np.maximum(have, np.bincount(role, weights=maxima))
    one, other = role[bound], np.searchsorted(names, groups.to[rows[bound]])
    least, ceiling = groups.least[rows[bound]], groups.most[rows[bound]]
    # Bounds are a forest over the roles, and are followed unrounded: a raise to one bound cannot break the other one
    # of the same pair. So it ends after as many rounds as there are roles in a group, at most.
    need = have.copy()
    for _ in range(len(names)):
        before = need.copy()
        np.maximum.at(need, one, least * before[other])
        np.maximum.at(need, other, before[one] / ceiling)
        need = np.minimum(need, most)
        if (need == before).all():
            break
    missing = np.ceil(need - DUST) - have
    return alone + _whole_shares(missing, groups.weight[rows], maxima - alone, role, groups.order[rows])


def _whole_shares(missing: Floats, weights: Floats, capacity: Floats, role: Ints, orders: Ints) -> Floats:
    """`allotted` in whole replicas that add up to what is missing. missing: shape (roles,)."""
    shares = allotted(missing.clip(min=0.0), weights, capacity.clip(min=0.0), role, orders)
    order = np.argsort(role, kind="stable")
    reached = np.cumsum(shares[order])
    before = np.concatenate([[0.0], reached[:-1]])
    # The sum of all roles before is a whole number, so each role's steps add up to its own sum.
    whole = np.empty(len(shares))
    whole[order] = np.floor(reached + DUST) - np.floor(before + DUST)
    return whole


def allotted(amount: Floats, weights: Floats, capacity: Floats, queue: Ints, order: Ints | None = None) -> Floats:
    """Each member's share of its queue, shape (members,).

    amount:  shape (queues,), what is shared. weights, capacity: shape (members,), the latter in the amount's unit.
    queue:   shape (members,), the number of each member's queue. Members of weight 0 get nothing.
    order:   shape (members,): members of a lower one are full before others get anything. None: all come together.
    A queue whose members all have weight 0 is not shared: `only_shared` removes such queues.
    """
    given, left = np.zeros(len(weights)), amount.astype(np.float64)
    orders = np.zeros(len(weights), dtype=np.int64) if order is None else order
    for lowest in np.unique(orders):
        open_ = (weights > 0.0) & (orders == lowest)
        left = _fill(given, left, open_, weights, capacity, queue)
        left[left <= DUST * amount] = 0.0  # less than that is an error of rounding, and would wake a member
    return given + _by_weight(left, weights, queue)


def _fill(given: Floats, left: Floats, open_: Bools, weights: Floats, capacity: Floats, queue: Ints) -> Floats:
    """Adds to `given` what the members that are open can take, and returns what is left of each queue."""
    queues = len(left)
    while open_.any():
        weight = np.where(open_, weights, 0.0)
        wish = _by_weight(left, weight, queue)
        fits = np.where(open_, np.minimum(wish, capacity - given), 0.0).clip(min=0.0)
        given += fits
        left = (left - np.bincount(queue, weights=fits, minlength=queues)).clip(min=0.0)
        full = open_ & (capacity - given <= DUST)  # sums of shares are off by some 1e-16 of their size
        if not full.any():
            break
        open_ = open_ & ~full
    return left


def _by_weight(amount: Floats, weights: Floats, queue: Ints) -> Floats:
    total = np.bincount(queue, weights=weights, minlength=len(amount))[queue]
    return amount[queue] * np.divide(weights, total, out=np.zeros(len(weights)), where=total > 0.0)


class Sharing(NamedTuple):
    """Which workloads share a queue; a slot per workload.

    queue:  the number of the queue that it shares; NONE if it shares none.
    weight: its part of it, in any unit.
    most:   replicas it may have. work: requests that one of them should hold; NaN if it is not sized by that.
    order:  those of a lower one get the queue first.
    learned: requests that one of them holds under its SLO, in place of `work`; NaN: not learned.
    """

    queue: Ints
    weight: Floats
    most: Floats
    work: Floats
    order: Ints
    learned: Floats

    @classmethod
    def none(cls, rows: int) -> Sharing:
        """No workload shares its queue."""
        none, order = np.full(rows, NONE, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        return cls(none, np.ones(rows), np.full(rows, np.inf), np.full(rows, np.nan), order, np.full(rows, np.nan))

    def shares(self, rows: Ints) -> Bools:
        """Which of `rows` share their queue."""
        mask: Bools = self.queue[rows] != NONE
        return mask

    def gets_nothing(self, row: int) -> bool:
        """Whether its share of its queue is always 0."""
        return bool(self.queue[row] != NONE and self.weight[row] == 0.0)

    def capacity(self, in_pods: Floats, wanted: Floats, pending: Floats, room: Floats) -> Floats:
        """Requests that each could take beside those in its pods, shape (rows,).

        While a replica of a member waits for a node, its capacity is that of `wanted` and not of its maximum: the rest
        goes to members that can grow. So it does where its share of the GPUs has less room, in replicas. NaN of the
        arguments: not known, and no limit.
        """
        stuck = (pending > 0.0) & ~np.isnan(wanted)
        most = np.fmin(self.most, room)
        replicas = np.where(stuck, np.minimum(most, wanted), most)
        held = np.where(np.isnan(in_pods), 0.0, in_pods)
        work = np.where(np.isnan(self.learned), self.work, self.learned)
        return np.where(np.isnan(work), np.inf, np.maximum(replicas * work - held, 0.0))

    def parts(self, rows: Ints, amount: Floats, capacity: Floats) -> Floats:
        """The part (0..1) of its queue that belongs to each of `rows`; 1 if it shares none.

        amount: shape (len(rows),), requests of the queue as that workload last read it. capacity: of all workloads.
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
        given = allotted(waits, self.weight[mate], capacity[mate], asker, self.order[mate])
        part[sharing] = given[mate == rows[sharing][asker]] / waits
        return part


def only_shared(sharing: Sharing) -> Sharing:
    """The same without queues of one, and if all weights of a queue are 0, all of them 1: demand never vanishes."""
    shared = sharing.queue != NONE
    members = np.bincount(sharing.queue[shared])
    alone = shared & (members[np.where(shared, sharing.queue, 0)] < 2) if shared.any() else shared  # noqa: PLR2004
    queue = np.where(alone, NONE, sharing.queue)
    shared = queue != NONE
    total = np.bincount(queue[shared], weights=sharing.weight[shared])
    nothing = np.zeros(len(queue), dtype=np.bool_)
    nothing[shared] = total[queue[shared]] == 0.0
    return sharing._replace(queue=queue, weight=np.where(nothing, 1.0, sharing.weight))
