"""What a rest costs: GPU time while it is kept warm, and a start and somebody who waits for it if it was not.

It knows the arithmetic of one rest under one schedule, and the two rules that need no past. It refuses to know how long
rests are. Everything is by column, of any shape that fits together; costs are in the money of the prices.

Worked example: a start takes 75 s, a second of the replica's GPUs costs 1, a second of somebody waiting 12. A start
then costs 75 * (1 + 12) = 975, which is what 975 s of keeping warm cost: the break-even. Slept through from second 300
on, a rest of an hour costs 300 + 975 = 1275; kept warm to its end 3600; knowing it beforehand 975.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exporter.model import Floats


class Stakes(NamedTuple):
    """start, lead: seconds a start takes: as a rule (p50), and to be on the safe side (p90); NaN unknown.
    idle:        money per second that one replica is up, with all its GPUs.
    waiting:     money per second that a request waits for a start.
    """

    start: Floats
    lead: Floats
    idle: Floats
    waiting: Floats


class Schedule(NamedTuple):
    """What is done in a rest, in seconds since it began: up until `keep_warm`, then asleep; started at `prewarm_from`
    and kept up until `prewarm_until`, then asleep again. NaN in the latter two: it is not started in advance.
    """

    keep_warm: Floats
    prewarm_from: Floats
    prewarm_until: Floats


def kept_warm(seconds: Floats) -> Schedule:
    """Up for so long, and nothing else."""
    nothing = np.full(np.shape(seconds), np.nan)
    return Schedule(np.asarray(seconds, dtype=np.float64), nothing, nothing)


def start_cost(stakes: Stakes) -> Floats:
    """Of one start that somebody waits for: its GPU time and the wait."""
    return stakes.start * (stakes.idle + stakes.waiting)


def break_even(stakes: Stakes) -> Floats:
    """Seconds after which keeping warm has cost as much as a start: the ski-rental rule's window.

    Who keeps warm for just so long never pays more than twice what it would have cost knowing the rest's length
    beforehand: a shorter rest costs both the same, and of a longer one both halves of the sum are what a start costs
    (A. Karlin et al., "Competitive snoopy caching", Algorithmica 1988: no rule without a past does better).
    """
    return start_cost(stakes) / stakes.idle


def clairvoyant(rests: Floats, stakes: Stakes) -> Floats:
    """What a rest costs him who knows its length when it begins, and keeps warm or sleeps at once."""
    return np.minimum(rests * stakes.idle, start_cost(stakes))


def up_seconds(rests: Floats, schedule: Schedule, stakes: Stakes) -> Floats:
    """For how long a replica is up in a rest, its starts included, the last of which ends the rest."""
    ready = schedule.prewarm_from + stakes.start
    slept = rests > schedule.keep_warm
    plain = np.minimum(rests, schedule.keep_warm) + np.where(slept, stakes.start, 0.0)
    met = rests >= schedule.prewarm_from  # not so where it is NaN
    in_advance = np.maximum(np.minimum(rests, schedule.prewarm_until) - ready, 0.0)
    # Given up before the rest ended: that start was for nothing, and there is one more.
    again = np.where(rests >= schedule.prewarm_until, stakes.start, 0.0)
    return plain + np.where(met & slept, in_advance + again, 0.0)


def waited_seconds(rests: Floats, schedule: Schedule, stakes: Stakes) -> Floats:
    """For how long the request that ends a rest waits for a start."""
    ready = schedule.prewarm_from + stakes.start
    met = (rests >= schedule.prewarm_from) & (rests < schedule.prewarm_until)
    left = np.where(met, np.maximum(ready - rests, 0.0), stakes.start)
    return np.where(rests > schedule.keep_warm, left, 0.0)


def cost(rests: Floats, schedule: Schedule, stakes: Stakes) -> Floats:
    """What rests of such lengths (seconds) cost under a schedule."""
    return up_seconds(rests, schedule, stakes) * stakes.idle + waited_seconds(rests, schedule, stakes) * stakes.waiting


def worst_regret(schedule: Schedule, window: Floats, stakes: Stakes) -> Floats:
    """By how much a rest can at most cost more under `schedule` than if it were just kept warm for `window` seconds.

    Shorter than the window: it may end a moment after it was put to sleep, and a start is paid for nothing. Longer: the
    seconds beyond. A start in advance: all of it, if the rest does not end in it.
    """
    beyond = (schedule.keep_warm - window) * stakes.idle
    plain = np.where(schedule.keep_warm < window, start_cost(stakes), np.maximum(beyond, 0.0))
    advance = (schedule.prewarm_until - schedule.prewarm_from) * stakes.idle
    return plain + np.where(np.isnan(advance), 0.0, advance)
