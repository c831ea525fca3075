"""Declares the trace of a decision: the intermediate values of the kernel that an explanation needs.

Worked example: demand is 2.5, the last decision was 1, and the maximum is 2: of the bounds, `whole`, `sized`, `minimum`
and `start` are 3, `maximum` and `last` are 2. A schedule's floor of 4 decides 4, and `replicas` is still 2.
"""

from __future__ import annotations

from typing import NamedTuple

# The readings that decide: all fresh; some pods imputed; fresh, but lower bounds; some missing.
COMPLETE, IMPUTED, LOWER_BOUND, STALE = range(4)
# Why a workload is not idle. UNPROVEN: no request is known, and its readings are not complete.
IDLE, REQUESTS, UNPROVEN, GPU, GRACE, LOADS = range(6)


class ReplicaBounds(NamedTuple):
    """The replicas of an awake workload after each bound, in order; NaN while readings are missing.

    whole:   the largest known demand, rounded up.
    sized:   after hysteresis; if readings are lower bounds, what the known requests need.
    minimum: at least its minimum, and 1.
    start:   at least the replicas of the cluster, after a start without earlier decisions.
    maximum: at most its maximum.
    last:    at least the last decision, while readings are lower bounds.
    """

    whole: float
    sized: float
    minimum: float
    start: float
    maximum: float
    last: float


class DecisionTrace(NamedTuple):
    """How the decision about one workload came about.

    branch:   the readings that decide, COMPLETE to STALE. activity: IDLE, or why it is not, REQUESTS to LOADS.
    demand:   the largest known one, in replicas; NaN if none is known. winner: its signal; -1 if none is above zero.
    replicas, reason: the decision before overrides and the floor of its group.
    """

    branch: int
    activity: int
    demand: float
    winner: int
    bounds: ReplicaBounds
    replicas: float
    reason: int
