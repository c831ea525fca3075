"""Overrides: brakes (freeze, never down, at least so many) and schedules, and which of them are active. Pure.

Reads their text and returns columns over all workloads.

Worked example: `Overrides([WorkloadOverrides(brakes=(read_brake("floor 3 until 2026-11-23T08:00Z"),))])` has
`at(now, lead_s).floor[0] == 3` until eight o'clock UTC, and 0 from then on.
"""

from .active import ActiveOverride, BrakeEnded, OverrideChanges, OverrideColumns, Overrides, WorkloadOverrides
from .brake import EXAMPLE, Brake, BrakeWord, OverrideError, moment, read_brake, unreadable, written
from .schedule import (
    AUTO,
    LONGEST_LEAD_S,
    UNLEARNED_LEAD_S,
    Cron,
    Prewarm,
    ReplicaSchedule,
    Times,
    check,
    read_cron,
    read_schedules,
    read_zone,
    times_of,
)

__all__ = [
    "AUTO",
    "EXAMPLE",
    "LONGEST_LEAD_S",
    "UNLEARNED_LEAD_S",
    "ActiveOverride",
    "Brake",
    "BrakeEnded",
    "BrakeWord",
    "Cron",
    "OverrideChanges",
    "OverrideColumns",
    "OverrideError",
    "Overrides",
    "Prewarm",
    "ReplicaSchedule",
    "Times",
    "WorkloadOverrides",
    "check",
    "moment",
    "read_brake",
    "read_cron",
    "read_schedules",
    "read_zone",
    "times_of",
    "unreadable",
    "written",
]
