"""What is fresh of some workloads, added up: what intake hands to signals and decider.

It knows columns and how missing pods are filled in; which pages count, intake knows, and when, policy.

Worked example: 3 of the 4 pods that must answer have 30 requests in hand. `impute` makes the work of that workload 40.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exporter.model import Floats

from .policy import Readings, Signal, choose
from .slots import Mask, Rows


@dataclass(frozen=True, slots=True)
class Totals:
    """What is fresh of some workloads, added up; every column has shape (rows,), NaN where nothing is known.

    seen:     the policy's columns; its `signals` are still unknown: smoothing is not done here.
    gpus_held, gpus_seen: GPUs that its running pods asked for, NaN where nobody says; and those among them whose
              activity a page shows as its own.
    in_pods:  requests waiting and running in the pods that must answer and do; NaN where nothing is known.
    latest:   shape (rows, len(Signal)): each signal as it is read now. Requests in hand, wherever they are; the mean
              KV-cache use of the pods that say; the mean engine activity of the GPUs that are wholly its own.
    finished: requests finished since this process began to look, corrected for restarts.
    """

    seen: Readings
    gpus_held: Floats
    gpus_seen: Floats
    in_pods: Floats
    latest: Floats
    finished: Floats

    @property
    def kv_cache(self) -> Floats:
        return self.latest[:, Signal.KV_CACHE]

    @property
    def gpu_engine(self) -> Floats:
        return self.latest[:, Signal.GPU_ENGINE]

    def choose(self, rows: Rows) -> Totals:
        """The same for some of the workloads only."""
        return Totals(
            choose(rows, self.seen),
            *(column[rows] for column in (self.gpus_held, self.gpus_seen, self.in_pods, self.latest, self.finished)),
        )

    def impute(self, rows: Mask) -> None:
        """For these workloads, take the pods that must answer and do not to be like the others: 30 requests in 3 of 4
        pods are 40 in all.
        """
        missing = self.seen.pods_listed[rows] / self.seen.pods_fresh[rows] - 1.0
        self.latest[rows, Signal.WORK] += np.nan_to_num(self.in_pods[rows] * missing)
