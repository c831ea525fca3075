"""Models KEDA for a ScaledJob: how many Jobs one poll starts. KEDA never ends a Job.

Source: KEDA 2.19 `scale_jobs.go` (pkg/scaling/executor), getScalingDecision and createJobs.

Worked example: with a value of 3 and 2 running Jobs the default strategy starts 1. `accurate` subtracts only Jobs that
have no pod yet, and so starts 3: it is for metrics that no longer count work that a Job has started.
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
    """number: the metric of the trigger, for a target of 1; 0 is inactive, None an error. running: Jobs that have not
    ended, including `pending`, which have no running pod yet.
    """
    if running < spec.min_replicas:
        return spec.min_replicas - running
    if not number:  # an error counts as 0: scale_handler.go getScaledJobMetrics
        return 0
    # The Jobs of the minimum are not part of the number.
    wanted, running = min(number, spec.max_replicas), running - spec.min_replicas
    if spec.strategy == "default":
        more = wanted - running
    elif wanted + running > spec.max_replicas:
        more = spec.max_replicas - running
    else:
        more = wanted - pending
    return max(0, min(more, number))
