"""Summarizes a run of the demo, and decides whether it is successful.

A request is lost if it is unanswered after the grace period at the end. A working loop loses none, because waiting
requests keep a replica alive.

Worked example: `{"requests": {"sent": 3493, "answered": 3493, "lost": 0}, "replicas": {"max": 8, "final": 0,
"changes": 16}, "woke_after_s": 0.6, "slept": true, "slo_met_ratio": 0.97, "gpu_hours": 1.03}`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .cluster import SimulatedCluster

# After the last completion: keep-warm 120 s, KEDA's cooldown 30 s, one poll, one collection of DCGM. The night is 28 %
# of the day, so the shortest day for that has 15 minutes.
SLEEPS_FROM_S = 900.0
# A quiet begin of 5 %, and half a minute to detect the first request.
WAKES_FROM_S = 120.0


@dataclass(frozen=True, slots=True)
class Summary:
    """woke_after_s: from the first request held at zero until the first replica is requested; None if it never was."""

    sent: int
    answered: int
    lost: int
    max_replicas: int
    final_replicas: int
    changes: int
    woke_after_s: float | None
    slept: bool
    slo_met_ratio: float | None
    gpu_hours: float

    def to_document(self) -> dict[str, Any]:
        return {
            "requests": {"sent": self.sent, "answered": self.answered, "lost": self.lost},
            "replicas": {"max": self.max_replicas, "final": self.final_replicas, "changes": self.changes},
            "woke_after_s": _rounded(self.woke_after_s, 2),
            "slept": self.slept,
            "slo_met_ratio": _rounded(self.slo_met_ratio, 4),
            "gpu_hours": round(self.gpu_hours, 3),
        }


def summarise(cluster: SimulatedCluster) -> Summary:
    tally = cluster.tally
    woken = None
    if tally.held_at_zero_at is not None and tally.woken_at is not None:
        woken = tally.woken_at - tally.held_at_zero_at
    return Summary(
        sent=tally.sent,
        answered=tally.answered,
        lost=tally.sent - tally.answered,
        max_replicas=tally.most_wanted,
        final_replicas=cluster.wanted,
        changes=tally.changes,
        woke_after_s=woken,
        slept=tally.slept,
        slo_met_ratio=tally.met / tally.answered if tally.answered else None,
        gpu_hours=cluster.gpu_seconds() / 3600.0,
    )


def problems(summary: Summary, duration_s: float) -> tuple[str, ...]:
    """Reasons to exit with status 1. duration_s: of the simulated day."""
    reasons = []
    if summary.lost:
        reasons.append(f"{summary.lost} of {summary.sent} requests were not answered")
    if summary.woke_after_s is None and duration_s >= WAKES_FROM_S:
        reasons.append("the workload was not woken for a request held at zero replicas")
    if not summary.slept and duration_s >= SLEEPS_FROM_S:
        reasons.append("the workload was not put to sleep again")
    return tuple(reasons)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
