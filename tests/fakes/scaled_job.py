"""Models KEDA for a ScaledJob: how many Jobs one poll starts. It never ends one.

Source: KEDA 2.19 `scale_jobs.go` (pkg/scaling/executor), getScalingDecision and createJobs.

Worked example: a value of 3 while 2 Jobs run starts 1 by the default strategy. `accurate` subtracts only those that
have no pod yet, and so starts 3: it is for numbers that no longer count what a Job has taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ScaledJobSpec:
    min_replicas: int = 0
    max_replicas: int = 100
    strategy: Literal["default", "accurate"] = "default"


def jobs_started(spec: ScaledJobSpec, number: int | None, running: int, pending: int = 0) -> int:
    """number: the trigger's answer, for a target of 1; 0 is inactive, None an error. running: Jobs that have not ended,
    those that are pending, which have no running pod yet, among them.
    """
    if running < spec.min_replicas:
        return spec.min_replicas - running
    if not number:  # an error counts for nothing: scale_handler.go getScaledJobMetrics
        return 0
    # Those of the minimum work beside the number.
    wanted, running = min(number, spec.max_replicas), running - spec.min_replicas
    if spec.strategy == "default":
        more = wanted - running
    elif wanted + running > spec.max_replicas:
        more = spec.max_replicas - running
    else:
        more = wanted - pending
    return max(0, min(more, number))
