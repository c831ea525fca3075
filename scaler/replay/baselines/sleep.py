"""Decides when the simulated engines sleep, with the policy of the daemon (`policy.sleep_tiers`).

The gateway shows each request, and every engine answers: what is left out of the daemon's inputs is a failed call, a
brake, and a group.

Worked example: with `asleep=0.1,wake=2` an idle replica sleeps once the plan of its pauses says so. A request that the
gateway holds wakes it within a second, and is served two seconds later.
"""

from __future__ import annotations

import numpy as np

from scaler.policy.columns import Constraints, Memory, Readings, Verdicts
from scaler.policy.estimators.sleep_plan import SleepPlans
from scaler.policy.sleep_tiers import ASLEEP, READY, TierInputs, TierMemory, decide_tiers


class EngineTier:
    """The state of the engines of one workload. plans: of its sleep, which learn how long wakes take."""

    def __init__(self, plans: SleepPlans, wake_s: float) -> None:
        self._plans, self._wake_s = plans, wake_s
        self._memory = TierMemory.blank(1)

    @property
    def asleep(self) -> bool:
        """Whether the engines are to sleep."""
        return bool(self._memory.tier[0] == ASLEEP)

    def decide(
        self,
        verdicts: Verdicts,
        memory: Memory,
        readings: Readings,
        standing: Constraints,
        sleeping: float,
        now: float,
    ) -> None:
        """Decides after the replicas are decided. sleeping: pods with an engine asleep. now: seconds of the load."""
        yes, no = np.ones(1, dtype=np.bool_), np.zeros(1, dtype=np.bool_)
        inputs = TierInputs(
            enabled=yes,
            calls=yes,
            after=self._plans.plan.after,
            earliest=self._plans.rules.earliest,
            replicas=verdicts.replicas,
            active=verdicts.active,
            reason=verdicts.reason,
            idle_since=memory.idle_since,
            active_at=readings.active_at,
            in_hand=readings.waiting + readings.running + readings.held,
            shows_next=yes,
            engines=readings.pods_fresh,
            sleeping=np.full(1, sleeping),
            wanted_up=standing.floor > 0.0,
            stays_up=no,
        )
        slept = self.asleep
        self._memory = decide_tiers(inputs, self._memory, now)
        if slept and self._memory.tier[0] == READY:
            self._plans.wakes.learn(0, self._wake_s)
