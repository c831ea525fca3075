"""Deciding workloads with their mates: everybody alone, what that asks of the others, and again with it. Pure.

What a mate asks for is a floor like a schedule's, and not activity: it is made anew from what each member wants alone,
so it ends in the tick in which nobody wants anything. Where there are no groups this is `step` and costs nothing more.

Worked example: prefill has one request waiting, decode is asleep. Alone they are at 1 and 0; prefill is awake, so
decode's floor is 1, and both are at 1 from this very scrape on: prefill `queued`, decode `warm`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from .arrays import OWN, Memory, Readings, Specs, Standing, Verdicts
from .groups import Groups, floors, woken_with
from .step import choose, step


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
    standing: Standing


def decide_groups(
    groups: Groups,
    specs: Specs,
    readings: Readings,
    standing: Standing,
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
