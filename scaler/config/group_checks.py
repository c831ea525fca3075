"""What must hold between the members of a group, and between workloads that look at one queue. Pure.

The same for workloads of the file and for those of triggers and annotations: a `Fault` names the member that has to
change and the other one, and whoever asks says where their words stand. Of two that contradict each other the later
one is at fault, in the order given.

Worked example: `ai/d1` and `ai/d2` of role decode with `ratio: {to: prefill, max: 2}` and `{to: prefill, max: 3}` give
one fault, of `ai/d2` at `ratio`: "must be what ai/d1 says of role decode: from 0 to 2 for each of prefill".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .problem import Loc
from .rules import EVERYBODYS_QUEUE, GROUP_INCOMPLETE, NO_WAKER, WEIGHTS_ALL_ZERO, Rule, Severity
from .workload import RoleRatio, Workload


class Fault(NamedTuple):
    """member, other: places in the list that was asked about. key: of the member's words."""

    member: int
    other: int
    key: Loc
    message: str
    severity: Severity = "error"
    rule: Rule | None = None


def group_faults(workloads: Sequence[Workload]) -> Iterator[Fault]:
    groups: dict[tuple[str, str], list[int]] = {}
    for place, workload in enumerate(workloads):
        if workload.group is not None:
            groups.setdefault((workload.namespace, workload.group), []).append(place)
    for members in groups.values():
        yield from _within(workloads, members)
    yield from _strangers(workloads)


def _within(workloads: Sequence[Workload], members: list[int]) -> Iterator[Fault]:
    if len(members) == 1:
        bound = "has no other member in this namespace: a group of one is no group"
        yield Fault(members[0], members[0], ("group",), bound, "warning", GROUP_INCOMPLETE)
        return
    yield from _ratios(workloads, members)
    roles: dict[str | None, list[int]] = {}
    for place in members:
        roles.setdefault(workloads[place].role, []).append(place)
    for role, players in roles.items():
        if all(workloads[place].weight == 0 for place in players):
            bound = f"is 0 for every member {_of(role)}: they share it evenly, as demand must not vanish"
            yield Fault(players[-1], players[0], ("weight",), bound, "warning", WEIGHTS_ALL_ZERO)
    seers = [place for place in members if workloads[place].gateway is not None]
    if len(roles) > 1 and not seers:
        for place in members:
            if workloads[place].replicas.sleeps:
                bound = "0 without a gateway at any member of its group: nothing can wake it (reason no_waker)"
                yield Fault(place, members[0], ("replicas",), bound, "warning", NO_WAKER)


def _ratios(workloads: Sequence[Workload], members: list[int]) -> Iterator[Fault]:
    """Two bounds of one role, bounds in a circle, and bounds on a role that nobody plays."""
    roles = {workloads[place].role for place in members}
    first: dict[str, int] = {}
    for place in members:
        role, ratio = workloads[place].role, workloads[place].ratio
        if role is None or ratio is None:
            continue
        if ratio.to not in roles:
            bound = "is a role that no member of the group has"
            yield Fault(place, place, ("ratio", "to"), bound, "warning", GROUP_INCOMPLETE)
        before = first.setdefault(role, place)
        said = workloads[before].ratio
        if before != place and said is not None and said != ratio:
            bound = f"must be what {workloads[before].key} says of role {role}: {_words(said)}"
            yield Fault(place, before, ("ratio",), bound)
        elif before == place and (circle := _circle(workloads, first, role)):
            names = ", ".join(str(workloads[each].key) for each in circle if each != place)
            bound = f"must not close a circle of bounds: those of {names} lead back to role {role}"
            del first[role]
            yield Fault(place, circle[0] if circle[0] != place else circle[-1], ("ratio", "to"), bound)


def _circle(workloads: Sequence[Workload], first: dict[str, int], role: str) -> list[int]:
    """The members by whose bounds one gets from a role back to it; none where one does not."""
    way: list[int] = []
    at = role
    while at in first and first[at] not in way:
        way.append(first[at])
        ratio = workloads[first[at]].ratio
        at = ratio.to if ratio is not None else ""
    return way if at == role and len(way) > 1 else []


def _strangers(workloads: Sequence[Workload]) -> Iterator[Fault]:
    """Workloads that look at the same queue of the same page and are in no common group: each counts the whole."""
    first: dict[tuple[object, str], list[int]] = {}
    for place, workload in enumerate(workloads):
        if workload.gateway is None:
            continue
        page = workload.gateway
        where = workload.namespace if page.service_in("") != page.service_in(workload.namespace) else ""
        for before in first.setdefault((page, where), []):
            one = workloads[before]
            same_queue = one.model == workload.model or one.model is None or workload.model is None
            same_group = (one.group, one.namespace) == (workload.group, workload.namespace) and one.group is not None
            if same_queue and not same_group:
                bound = (
                    f"shows the same queue as that of {one.key}, and they are in no common group: each counts the "
                    "whole of it. Name a model for each, or a group"
                )
                yield Fault(place, before, ("gateway",), bound, "warning", EVERYBODYS_QUEUE)
                break
        first[page, where].append(place)


def _of(role: str | None) -> str:
    return "of the group" if role is None else f"of role {role}"


def _words(ratio: RoleRatio) -> str:
    most = "" if ratio.max is None else f" to {ratio.max:g}"
    return f"from {ratio.min:g}{most} for each of {ratio.to}"
