"""Workloads that belong together: prefill and decode that sleep and wake as one, variants behind one queue. Pure.

A member may play a role. Members of one role, or of none, stand behind one queue: `shares` says what is whose. Of a
group of several roles each request needs every role, so the members sleep and wake together, and bounds may be set on
how many replicas one role has for each of another. Members of weight 0 are not part of either.

The order of things is the decider's: everybody is decided alone; `floors` says what that asks of the mates; whoever
has less than that is decided again with it. What a mate asks for never counts as activity of one's own, so a group
whose members are all idle falls asleep, in one tick, and nobody keeps anybody awake in a circle.

Worked example: prefill wants 4 replicas, decode is idle and wants 0, with `ratio: {to: prefill, min: 0.5, max: 2}` on
decode. The group is awake, so each has at least 1; 0.5 x 4 = 2, so the floors are 4 for prefill and 2 for decode. Were
decode at 10 and prefill at 4, prefill would be raised to 10 / 2 = 5: the lower one is raised, nobody is lowered.

Deciding workloads with their mates: everybody alone, what that asks of the others, and again with it. Pure.

What a mate asks for is a floor like a schedule's, and not activity: it is made anew from what each member wants alone,
so it ends in the tick in which nobody wants anything. Where there are no groups this is `step` and costs nothing more.

Worked example: prefill has one request waiting, decode is asleep. Alone they are at 1 and 0; prefill is awake, so
decode's floor is 1, and both are at 1 from this very scrape on: prefill `queued`, decode `warm`.

One queue, several who work on it: how much of what waits there is each one's. Pure.

A member gets its weight's part of the queue, but no more than it has room for while another has room left: what a full
member cannot take spills over to the others, by their weights. What nobody has room for is everybody's again by weight,
so that all of them ask for more than they may have, and say so. Whatever the weights and rooms, the shares add up to
what waits: never to twice it, and nothing vanishes.

Worked example: 100 requests, weights 9 and 1, room for 40 and 1000: by weight 90 and 10; the first can take 40 of its
90, so the shares are 40 and 60. With room for 40 and 20 they are 40 and 20 and then 36 and 4 more: 76 and 24.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from .columns import OWN, Bools, Constraints, Ints, Memory, Readings, Signal, Specs, Verdicts
from .kernel import choose, step

NONE = -1
# 3 replicas at a ratio of 1/3 are 1.0000000000000002 of the other.
DUST = 1e-9


@dataclass(frozen=True, slots=True)
class Membership:
    """What a workload says of its group.

    namespace, name: of the group.
    role:   "" is none.
    weight: its part of the queue that members of its role stand behind.
    to:     the role whose replicas its own role's are bounded by; None is: by none's.
    least, most: replicas of its role for each replica of that one.
    observed: it is only looked at. Those who are make a group of their own: nobody who acts may hang on them.
    """

    namespace: str
    name: str
    role: str = ""
    weight: float = 1.0
    to: str | None = None
    least: float = 0.0
    most: float = np.inf
    observed: bool = False


class Groups(NamedTuple):
    """Many memberships, by column; numbers are the same for the same name, NONE where there is none.

    group:    which. A group of one is no group.
    role:     the number of its role in its group. to: of the role that bounds it.
    together: its group has several roles, and its weight is above 0: it sleeps and wakes with its mates.
    weight, least, most: as in `Membership`.
    """

    group: Ints
    role: Ints
    to: Ints
    together: Bools
    weight: Floats
    least: Floats
    most: Floats

    @classmethod
    def stack(cls, memberships: Sequence[Membership | None]) -> Groups:
        """Of members of one role that set different bounds the first one's hold: such a configuration is refused."""
        groups: dict[tuple[str, str, bool], list[tuple[int, Membership]]] = {}
        for row, member in enumerate(memberships):
            if member is not None:
                groups.setdefault((member.namespace, member.name, member.observed), []).append((row, member))
        rows = len(memberships)
        group, role, to = (np.full(rows, NONE, dtype=np.int64) for _ in range(3))
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
                said = bounds.get(member.role)
                if said is not None and said.to is not None:
                    to[row], least[row], most[row] = roles[number, said.to], said.least, said.most
        return cls(group, role, to, together, weight, least, most)

    def sharing(self, specs: Specs) -> Sharing:
        """Who shares the queue on its gateway's page with whom: members of one role that have a gateway."""
        return told_apart(
            Sharing(
                queue=np.where(specs.gateway, self.role, NOBODY),
                weight=self.weight,
                most=specs.maximum,
                work=specs.targets[:, Signal.WORK],
            )
        )


def closure(groups: Groups, rows: Ints) -> Ints:
    """These workloads and those who sleep and wake with them, in order: who has to be decided together."""
    numbers = groups.group[rows[groups.together[rows]]]
    if not len(numbers):
        return np.unique(rows)
    mates = np.flatnonzero(groups.together & np.isin(groups.group, numbers))
    return np.union1d(rows, mates)


def woken_with(groups: Groups, waker: Bools) -> Bools:
    """Whom the next request would wake: those who see it, and those who sleep and wake with one that does.

    waker: shape (rows,), whole groups. What comes back has the same shape.
    """
    rows = np.flatnonzero(groups.together)
    if not len(rows):
        return waker
    names, group = np.unique(groups.group[rows], return_inverse=True)
    seen = np.bincount(group, weights=waker[rows], minlength=len(names)) > 0.0
    out = waker.copy()
    out[rows] = seen[group]
    return out


def floors(groups: Groups, verdicts: Verdicts, maxima: Floats) -> Floats:
    """At least so many replicas for the mates' sake, shape (rows,); 0 is: nothing is asked.

    verdicts: of each member decided alone, whole groups. An unknown one is awake, and says nothing of how many.
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
    """What the bounds on ratios ask of awake members. alone, maxima: shape (len(rows),), and so is the answer."""
    bound = np.flatnonzero(groups.to[rows] != NONE)
    names, role = np.unique(groups.role[rows], return_inverse=True)
    bound = bound[np.isin(groups.to[rows[bound]], names)]  # a role may be there with weight 0 alone
    if not len(bound):
        return alone
    have = np.bincount(role, weights=alone)
    most = np.maximum(have, np.bincount(role, weights=maxima))
    one, other = role[bound], np.searchsorted(names, groups.to[rows[bound]])
    least, ceiling = groups.least[rows[bound]], groups.most[rows[bound]]
    # Bounds are a forest over the roles, and are followed unrounded: a raise to the one bound cannot break the other
    # one of the same pair. So it comes to rest after as many rounds as there are roles in a group, at most.
    need = have.copy()
    for _ in range(len(names)):
        before = need.copy()
        np.maximum.at(need, one, least * before[other])
        np.maximum.at(need, other, before[one] / ceiling)
        need = np.minimum(need, most)
        if (need == before).all():
            break
    missing = np.ceil(need - DUST) - have
    return alone + _whole_parts(missing, groups.weight[rows], maxima - alone, role)


def _whole_parts(missing: Floats, weights: Floats, room: Floats, role: Ints) -> Floats:
    """`allotted` in whole replicas that add up to what is missing. missing: shape (roles,)."""
    parts = allotted(missing.clip(min=0.0), weights, room.clip(min=0.0), role)
    order = np.argsort(role, kind="stable")
    reached = np.cumsum(parts[order])
    before = np.concatenate([[0.0], reached[:-1]])
    # What all roles before have got is a whole number, so each role's own steps add up to its own.
    whole = np.empty(len(parts))
    whole[order] = np.floor(reached + DUST) - np.floor(before + DUST)
    return whole


class Decided(NamedTuple):
    """What `step` returned, and what it was given at last: with that each workload can be decided again, alone.

    asked:    how many replicas its group asks for where that is more than a member wants alone: shape (rows,), else 0.
    readings: `waker_fresh` is the group's.
    standing: with what its group asks for as a floor.
    """

    verdicts: Verdicts
    memory: Memory
    asked: Floats
    readings: Readings
    standing: Constraints


def decide_groups(
    groups: Groups,
    specs: Specs,
    readings: Readings,
    standing: Constraints,
    memory: Memory,
    now: float,
    *,
    raise_only: bool = False,
) -> Decided:
    """`step` for workloads of which some belong together; whole groups (see `closure`)."""
    asked = np.zeros(specs.minimum.shape[0])
    mates = np.flatnonzero(groups.together)
    if len(mates):
        readings = readings._replace(waker_fresh=woken_with(groups, readings.waker_fresh))
        # Asked without `raise_only`: an answer that stands because nothing falls between ticks is no need of a member.
        own_specs, own_readings, own_standing, own_memory = (
            choose(mates, columns) for columns in (specs, readings, standing, memory)
        )
        alone, _ = step(own_specs, own_readings, own_standing, own_memory, now)
        most = np.minimum(specs.maximum, np.maximum(standing.ceiling, 1.0))[mates]
        floor = floors(choose(mates, groups), alone, most)
        asked[mates] = np.where(floor > np.where(alone.active, np.fmax(alone.replicas, 0.0), 0.0), floor, 0.0)
        higher = asked > standing.floor
        standing = standing._replace(
            floor=np.where(higher, asked, standing.floor),
            floor_reason=np.where(higher, OWN, standing.floor_reason),
        )
    verdicts, memory = step(specs, readings, standing, memory, now, raise_only=raise_only)
    return Decided(verdicts, memory, asked, readings, standing)


NOBODY = -1  # no queue is shared

# Room that is less than this is none: sums of shares are off by some 1e-16 of their size.


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
