"""What people order: brakes (freeze, never down, at least so many) and schedules, and what of them stands now. Pure.

Words in, columns over all workloads out. Where the words stand (a configuration, an annotation) and what a policy does
with the columns is others' business.

Worked example: `Orders([Ordered(brakes=(read_brake("floor 3 until 2026-11-23T08:00Z"),))], CODES)` has
`at(now, lead_s).floor[0] == 3` until eight o'clock UTC, and 0 from then on.
"""

from .brake import EXAMPLE, Brake, BrakeWord, read_brake, unreadable
from .cron import Cron, read_cron, read_zone
from .moment import BadOrder, moment, written
from .schedule import AUTO, LONGEST_LEAD_S, UNLEARNED_LEAD_S, Prewarm, Schedule, Times, check, read_schedules, times_of
from .standing import Codes, Columns, Ended, News, Ordered, Orders, Said

__all__ = [
    "AUTO",
    "EXAMPLE",
    "LONGEST_LEAD_S",
    "UNLEARNED_LEAD_S",
    "BadOrder",
    "Brake",
    "BrakeWord",
    "Codes",
    "Columns",
    "Cron",
    "Ended",
    "News",
    "Ordered",
    "Orders",
    "Prewarm",
    "Said",
    "Schedule",
    "Times",
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
