"""One moment of the demo, as plain numbers: what the screen draws.

It knows neither the world that fills it in nor the daemon whose opinion is added to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from scaler.explain.summary import WorkloadState


@dataclass(frozen=True, slots=True)
class ScreenFrame:
    """Times are simulated seconds. None and empty texts are what nobody has said yet.

    gpu_active:  ratio of each ready replica's GPU, in the pods' order.
    demand:      replicas that Tidegate asks for, before rounding; state, word, reason: as `scaler.explain.rows` says
    them. autoscaler:  what the stand-in for KEDA + HPA said last.
    """

    at_s: float
    duration_s: float
    speed: float
    arrivals_per_s: float
    held: int
    waiting: int
    running: int
    gpu_active: tuple[float, ...]
    wanted: int
    ready: int
    loading: int
    draining: int
    sent: int
    answered: int
    slo_met_ratio: float | None
    gpu_hours: float
    demand: float | None = None
    state: WorkloadState | None = None
    word: str = ""
    reason: str = ""
    autoscaler: str = ""
