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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from .arrays import Bools, Ints, Signal, Specs, Verdicts
from .shares import NOBODY, Sharing, allotted, told_apart

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
