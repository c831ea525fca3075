"""Summarizes a run of the demo, compares it with always-on replicas, and decides whether it is successful.

A request is lost if it is unanswered after the grace period at the end. A working loop loses none, because waiting
requests keep a replica alive.

Worked example: `{"requests": {"sent": 3493, "answered": 3493, "lost": 0}, "replicas": {"max": 8, "final": 0,
"changes": 16}, "simulated_s": 3600, "woke_after_s": 0.6, "slept": true, "slo_met_ratio": 0.97, "gpu_hours": 1.03,
"always_on": {"replicas": 8, "gpu_hours": 8.0, "slo_met_ratio": 1.0}}`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .cluster import DemoSlo, DemoTally, SimulatedCluster
from .engine import Request
from .load import Arrivals

# After the last completion: keep-warm 120 s, KEDA's cooldown 30 s, one poll, one collection of DCGM. The night is 28 %
# of the day, so the shortest day for that has 15 minutes.
SLEEPS_FROM_S = 900.0
# A quiet begin of 5 %, and half a minute to detect the first request.
WAKES_FROM_S = 120.0
# A share of fewer requests says nothing.
JUDGED_FROM_REQUESTS = 100
SLOW_TIMES = 1.5


@dataclass(frozen=True, slots=True)
class AlwaysOn:
    """The same load on replicas that always run. slo_met_ratio: None if it was not simulated."""

    replicas: int
    gpu_hours: float
    slo_met_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """simulated_s: length of the run. woke_after_s: from the first request held at zero until the first replica is
    requested; None if it never was. slo_met_ratio: None if the run is too short for a judgement.
    """

    sent: int
    answered: int
    lost: int
    max_replicas: int
    final_replicas: int
    changes: int
    simulated_s: float
    woke_after_s: float | None
    slept: bool
    slo_met_ratio: float | None
    gpu_hours: float

    def to_document(self, always_on: AlwaysOn) -> dict[str, Any]:
        return {
            "requests": {"sent": self.sent, "answered": self.answered, "lost": self.lost},
            "replicas": {"max": self.max_replicas, "final": self.final_replicas, "changes": self.changes},
            "simulated_s": round(self.simulated_s),
            "woke_after_s": _rounded(self.woke_after_s, 2),
            "slept": self.slept,
            "slo_met_ratio": _rounded(self.slo_met_ratio, 4),
            "gpu_hours": round(self.gpu_hours, 3),
            "always_on": {
                "replicas": always_on.replicas,
                "gpu_hours": round(always_on.gpu_hours, 3),
                "slo_met_ratio": _rounded(always_on.slo_met_ratio, 4),
            },
        }


def attainment(tally: DemoTally, duration_s: float) -> float | None:
    """Share of the answered requests within the SLO. None if the first start, during which every request misses it,
    decides the number: for a day below SLEEPS_FROM_S, or before JUDGED_FROM_REQUESTS found a ready replica.
    """
    if duration_s < SLEEPS_FROM_S or tally.answered - tally.held < JUDGED_FROM_REQUESTS:
        return None
    return tally.met / tally.answered


def summarise(cluster: SimulatedCluster, duration_s: float, elapsed_s: float) -> Summary:
    """duration_s: of the simulated day. elapsed_s: simulated seconds since the first day began."""
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
        simulated_s=elapsed_s,
        woke_after_s=woken,
        slept=tally.slept,
        slo_met_ratio=attainment(tally, duration_s),
        gpu_hours=cluster.gpu_seconds() / 3600.0,
    )


def simulate_always_on(arrivals: Arrivals, replicas: int, duration_s: float, elapsed_s: float) -> AlwaysOn:
    """Simulates one day's load on `replicas` that are ready from its begin to its end."""
    cluster = SimulatedCluster("always-on", 0, 0.0, startup_s=0.0)
    cluster.scale(replicas, 0.0)
    requests = zip(
        arrivals.at_s.tolist(), arrivals.prompt_tokens.tolist(), arrivals.output_tokens.tolist(), strict=True
    )
    for number, (at_s, prompt_tokens, output_tokens) in enumerate(requests):
        cluster.submit(Request(number, at_s, prompt_tokens, output_tokens), at_s)
    cluster.advance(max(duration_s, elapsed_s))
    return AlwaysOn(replicas, replicas * elapsed_s / 3600.0, attainment(cluster.tally, duration_s))


def comparison(summary: Summary, always_on: AlwaysOn, gpu_hour: float) -> str:
    """One sentence: what always-on and Tidegate cost, and the requests within the SLO. gpu_hour: money."""
    ours, theirs = _cost(summary.gpu_hours, gpu_hour), _cost(always_on.gpu_hours, gpu_hour)
    judged = summary.slo_met_ratio is not None
    unjudged = "" if judged else "; the run is too short to judge the SLO"
    return (
        f"Always-on with {always_on.replicas} replicas takes {theirs}{_within(always_on.slo_met_ratio)}; "
        f"Tidegate took {ours}{_within(summary.slo_met_ratio)}{unjudged}."
    )


def conclusion(summary: Summary, in_progress: int, always_on: AlwaysOn, gpu_hour: float) -> list[str]:
    """The last sentences of a run. in_progress: requests. gpu_hour: money."""
    waiting = f", {in_progress} in progress" if in_progress else ""
    minutes = f"{summary.simulated_s / 60:.0f} simulated minutes"
    sentences = [
        f"{summary.answered} of {summary.sent} requests answered, {summary.lost} lost{waiting}, in {minutes}.",
        f"Up to {summary.max_replicas} replicas in {summary.changes} changes, {summary.final_replicas} at the end.",
    ]
    if summary.woke_after_s is not None:
        asleep = ", and put to sleep again" if summary.slept else ""
        waited = f"{summary.woke_after_s:.1f} simulated seconds after the gateway held the first request"
        sentences.append(f"Woken {waited}{asleep}.")
    return [*sentences, comparison(summary, always_on, gpu_hour)]


def slowness(summary: Summary, speed: float, took_s: float) -> list[str]:
    """A sentence if the run took SLOW_TIMES as long as it should. took_s: real time."""
    planned_s = summary.simulated_s / speed
    if took_s < SLOW_TIMES * planned_s:
        return []
    times = f"{took_s:.0f} s instead of {planned_s:.0f} s"
    return [f"This machine was busy: that took {times}. Simulated time waited for it."]


def slo_phrase(slo: DemoSlo) -> str:
    return (
        f"first token within {slo.first_token_s:g} s (more for long prompts), "
        f"then {1000 * slo.per_token_s:g} ms per token"
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


def _cost(gpu_hours: float, gpu_hour: float) -> str:
    return f"{gpu_hours:.2f} GPU-hours (money: {gpu_hours * gpu_hour:.2f})"


def _within(ratio: float | None) -> str:
    return "" if ratio is None else f" with {_percent(ratio, 1)} of the requests within the SLO"


def _percent(ratio: float, digits: int = 0) -> str:
    return f"{ratio:.{digits}%}".replace("%", " %")


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
