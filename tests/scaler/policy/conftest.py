"""Steps one workload: readings in, (replicas, active, reason) out."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from scaler.model import Reason
from scaler.policy.columns import REASONS, Constraints, Memory, Readings, Signal, Spec, Specs
from scaler.policy.kernel import step, traced

NAN = math.nan


@dataclass
class Workload:
    """Steps one workload; `now` is the fake clock. A column that is not given is unknown."""

    spec: Spec
    memory: Memory = field(default_factory=lambda: Memory.blank(1))
    now: float = 1000.0
    overrides: dict = field(default_factory=dict)

    def step(self, *, after=0.0, raise_only=False, work=None, gpu_engine=NAN, overrides=None, **columns):
        """Advances the clock and decides. Returns (replicas, active, reason). `work` is the smoothed signal, by default
        the requests that wait, run and are held now."""
        self.now += after
        specs, readings, constraints = self._columns(work, gpu_engine, overrides, columns)
        verdicts, self.memory = step(specs, readings, constraints, self.memory, self.now, raise_only=raise_only)
        replicas = verdicts.replicas[0]
        return None if np.isnan(replicas) else int(replicas), bool(verdicts.active[0]), REASONS[verdicts.reason[0]]

    def trace(self, *, after=0.0, work=None, gpu_engine=NAN, overrides=None, **columns):
        """The trace of a decision after so many seconds; decides nothing."""
        specs, readings, constraints = self._columns(work, gpu_engine, overrides, columns)
        return traced(specs, readings, constraints, self.memory, self.now + after)[1]

    def _columns(self, work, gpu_engine, overrides, columns):
        readings = Readings.unknown(1)
        for name, value in columns.items():
            getattr(readings, name)[0] = value
        parts = [columns[name] for name in ("waiting", "running", "held") if name in columns]
        readings.signals[0, Signal.WORK] = work if work is not None else _total(parts)
        readings.signals[0, Signal.GPU_ENGINE] = gpu_engine
        specs = Specs.stack([self.spec])
        constraints = Constraints.plain(specs)
        for name, value in {**self.overrides, **(overrides or {})}.items():
            getattr(constraints, name)[0] = value
        return specs, readings, constraints


def fresh_readings(waiting=0, running=0, held=0, pods=1, **more):
    """Returns fresh readings: `pods` of `pods` answer, and the gateway answers and shows its queue."""
    return {
        "waiting": waiting, "running": running, "held": held, "pods_listed": pods, "pods_fresh": pods,
        "gateway_fresh": True, "waker_fresh": True, "measured_at": 1.0, **more,
    }  # fmt: skip


def _total(parts):
    present = [part for part in parts if not math.isnan(part)]
    return float(sum(present)) if present else NAN


@pytest.fixture
def chat():
    """16 requests per replica, 0 to 8 replicas, a keep-warm time and a hold of five minutes, and a gateway."""
    return Workload(Spec(0, 8, ((Signal.WORK, 16.0),), keep_warm=300.0, hold=300.0, gateway=True))


@pytest.fixture
def workload():
    return Workload


@pytest.fixture
def fresh():
    return fresh_readings


@pytest.fixture
def reason():
    return Reason
