"""What people order of the workloads: `tidegate.dev/brake` of the cluster's objects, and the configuration's own words.

A brake stands on the ScaledObject or ScaledJob, or on what it scales; on several of them, all are read. It is read also
where the configuration turns annotations off, or speaks for the object itself: those make workloads, and a brake makes
none. One that cannot be read is its object's trouble, and counts as `never_down` until it is mended.

Worked example: Deployment `ai/chat` with `tidegate.dev/brake: frieze` is the trouble "must be freeze, never_down or
floor N ...", and workload `ai/chat` is never taken down meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from exporter.cluster.objects import Ref, Scalable, ScaledObject
from exporter.model import WorkloadKey

from ..config.bad_words import BadWord
from ..config.kinds import did_you_mean
from ..config.trigger import ANNOTATION, BRAKE
from ..orders import BadOrder, Brake, Ordered, read_brake, unreadable
from .record import Census, Trouble, trouble
from .words import MOST_WORDS, plain

_KEY = ANNOTATION + BRAKE


class Braked(NamedTuple):
    """brakes: of each workload that has one."""

    brakes: dict[WorkloadKey, tuple[Brake, ...]]
    troubles: list[Trouble]


def brakes(spoken: Mapping[WorkloadKey, set[Ref]], objects: Iterable[ScaledObject | Scalable]) -> Braked:
    """spoken: the objects whose brake a workload obeys. objects: all that are seen; few of them have one."""
    read: dict[Ref, Brake] = {}
    troubles: list[Trouble] = []
    for each in objects:
        if isinstance(each, ScaledObject):
            troubles += (trouble(each.ref, bad) for bad in _misspelt(each.annotations))
        if BRAKE not in each.annotations:
            continue
        text, source = each.annotations[BRAKE], plain(str(each.ref))
        try:
            read[each.ref] = read_brake(text, source)
        except BadOrder as bad:
            read[each.ref] = unreadable(source)
            troubles.append(trouble(each.ref, BadWord(_KEY, f"{bad}. Until then it counts as never_down", text)))
    obeyed = {key: sorted(refs & read.keys()) for key, refs in spoken.items()} if read else {}
    heard = {ref for refs in obeyed.values() for ref in refs}
    troubles += [
        trouble(ref, BadWord(_KEY, "stops nothing: no workload of Tidegate's is scaled by it", severity="warning"))
        for ref in sorted(read.keys() - heard)
    ]
    return Braked({key: tuple(read[ref] for ref in refs) for key, refs in obeyed.items() if refs}, troubles)


def _misspelt(annotations: Mapping[str, str]) -> Iterator[BadWord]:
    """A ScaledObject has no other word of ours: one that looks like a brake must not be passed over in silence."""
    for key in sorted(annotations.keys() - {BRAKE})[:MOST_WORDS]:
        if did_you_mean(key.lower(), [BRAKE]):
            yield BadWord(ANNOTATION + key, f"stops nothing; did you mean {BRAKE}?")


def ordered(census: Census) -> list[Ordered]:
    """What is ordered of each of the census's workloads, in their order. The brake for all is the configuration's."""
    return [
        Ordered(
            brakes=(
                *census.brakes.get(workload.key, ()),
                *((workload.brake,) if workload.brake is not None else ()),
            ),
            schedules=tuple(schedule.order for schedule in workload.schedules),
        )
        for workload in census.workloads
    ]
