"""One workload on a fake clock, whose readings are reported to the constraints each 30 s."""

from dataclasses import replace

import numpy as np

from exporter.kubernetes.objects import Pod
from exporter.model import PodKey
from scaler.policy.columns import Readings, Signal, Spec, Specs
from scaler.policy.constraints import PRICES, ConstraintSource, KeepWarmConfig
from scaler.policy.overrides import WorkloadOverrides
from scaler.policy.prices import ReplicaCost

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
TICK = 30.0
ROW = np.array([0])
SPEC = Spec(0, 4, ((Signal.WORK, 16.0),), gateway=True)
WITH_SLO = replace(SPEC, ttft=2.0, itl=0.05)
NO_OVERRIDES = WorkloadOverrides()
AUTO = KeepWarmConfig(learns=True, lowest=60.0, highest=4 * HOUR)


class Played:
    """One workload that is looked at every 30 s."""

    def __init__(self, gpus=1.0, now=0.0, spec=SPEC, hour=np.nan, teaching=AUTO, overrides=NO_OVERRIDES):
        self.stands = ConstraintSource(Specs.stack([spec]), [overrides], [teaching], PRICES)
        self.cost = ReplicaCost(np.array([gpus]), np.array([hour]))
        self.now, self.finished = now, np.nan

    def started(self, seconds):
        """A pod has been loading for so long when it becomes ready."""
        pod = Pod(PodKey("ai", "chat-a"), "uid", created_at=self.now, node="n", scheduled_at=self.now)
        at = self.now + seconds
        ready = Pod(pod.key, "uid", node="n", scheduled_at=self.now, ready=True, was_ready=True, ready_at=at)
        self.stands.starts.observe(0, [pod], waiting=False, now=self.now)
        self.stands.starts.observe(0, [ready], waiting=False, now=at)
        return self

    def __call__(self, seconds, *, complete=True, ready=1.0, **given):
        """What happens so long, and the part of it in which it was held up because its return is due."""
        expected = 0
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            counts = {"waiting": 0.0, "running": 0.0, "wanted": 1.0, "existing": 1.0, "pending": 0.0, **given}
            columns = {name: np.array([value]) for name, value in {**counts, "ready": ready}.items()}
            readings = Readings.unknown(1)._replace(**columns)
            self.stands.rest(ROW, readings, np.array([complete]), self.cost, np.array([self.finished]), self.now)
            expected += bool(self.stands.expected(self.now)[0])
        return expected / round(seconds / TICK)

    def days(self, count):
        """Nine minutes of work at each full hour from eight to six, and nights: as an office's batch does."""
        held = 0.0
        for _ in range(count):
            for _ in range(10):
                self(9 * MINUTE, running=1.0)
                held = self(51 * MINUTE)
            self(9 * MINUTE, running=1.0)
            self(13 * HOUR + 51 * MINUTE)
        return held

    @property
    def window(self):
        return float(self.stands.at(self.now).keep_warm[0])
