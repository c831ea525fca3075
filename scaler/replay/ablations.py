"""The parts of Tidegate's policy that a replay can switch off, one at a time, to measure what each is worth.

A part of the sizing is switched off by its constants, which are an argument of the kernel: what is replayed is the
kernel of the daemon. The keep-warm time is fixed instead of estimated. Without counters of tokens the time of a
request sizes the load (`scaler.policy.service_time`).

Worked example: 2.4 replicas of work that lasts, of requests of 0.1 replica-seconds, have the size 2.4 with
PARTS["headroom"]; by default sqrt((0.7 * 0.15)**2 + 0.1**2 * 2.4) = 0.19 more.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import MappingProxyType

from scaler.policy.attainment import BUDGET
from scaler.policy.capacity import (
    ARRIVAL_S,
    DEFAULTS,
    SizingConstants,
)

NOTHING = "nothing"
KEEP_WARM = "learned-keep-warm"
TOKENS = "token-counters"

# Neither keep-warm nor what is read is a part of the sizing: there the constants stay.
PARTS: Mapping[str, SizingConstants] = MappingProxyType(
    {
        "noise": DEFAULTS._replace(noise=0.0),
        "lead": DEFAULTS._replace(lead=0.0),
        "headroom": DEFAULTS._replace(headroom=0.0, drift=0.0),
        "short-outputs": DEFAULTS._replace(shortest_peak_s=ARRIVAL_S),
        "error-budget": DEFAULTS._replace(stretch=0.0),
        "shared-budget": DEFAULTS._replace(least_budget=BUDGET),
        "burst-guard": DEFAULTS._replace(burst_share=inf),
        "headroom-for-starts": DEFAULTS._replace(headroom_power=0.0),
        "rounding": DEFAULTS._replace(rounded_down=0.0),
        # Shorter than a scrape: each size counts for itself.
        "hold": DEFAULTS._replace(shortest_hold_s=1.0, longest_hold_s=1.0),
        "longer-hold": DEFAULTS._replace(reversals_a_day=inf),
        "backlog": DEFAULTS._replace(backlog_of_ttft=inf),
        "backlog-limit": DEFAULTS._replace(backlog_more=inf),
        "residence": DEFAULTS._replace(longest_residence_s=ARRIVAL_S),
        "learned-factor": DEFAULTS._replace(lowest_factor=1.0, highest_factor=1.0),
        # Without the factor too, which would compensate.
        "learned-capacity": DEFAULTS._replace(sharpest=inf, lowest_factor=1.0, highest_factor=1.0),
        "kv-limit": DEFAULTS._replace(full_kv=inf),
        KEEP_WARM: DEFAULTS,
        TOKENS: DEFAULTS,
    }
)
CHOICES = (NOTHING, *PARTS)


def constants_without(part: str) -> SizingConstants:
    """part: one of CHOICES."""
    return PARTS.get(part, DEFAULTS)
