"""One workload with an SLO, the rates of its counters, and a clock that the test moves."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest

from scaler.policy import capacity, sizing
from scaler.policy.capacity import (
    DEFAULTS,
    Estimate,
    WorkRate,
)
from scaler.policy.sizing import (
    SizingInputs,
    SloColumns,
)

LONGEST_S = 15.0  # three intervals of 5 s, as the daemon has it


def rates_of(requests=0.0, prompt=500.0, output=200.0, sequences=0.0, gaps=None, cached=0.0, **more):
    """The rates of traffic in equilibrium: as many requests arrive as are read and finish.

    requests: per second. sequences: sequence-seconds per second. gaps: tokens after a first one, per second; by default
    those of these requests. cached: the share of the prompts that a cache has. more: other rates, by name.
    """
    rates = np.zeros(len(WorkRate))
    rates[[WorkRate.ARRIVED, WorkRate.FIRST_TOKENS, WorkRate.FINISHED]] = requests
    rates[WorkRate.PROMPT], rates[WorkRate.GENERATED] = requests * prompt, requests * output
    rates[WorkRate.COMPUTED] = (1.0 - cached) * rates[WorkRate.PROMPT]
    rates[WorkRate.GAPS] = requests * (output - 1.0) if gaps is None else gaps
    rates[WorkRate.GAP_SECONDS] = sequences
    for name, value in more.items():
        rates[WorkRate[name.upper()]] = value
    return rates


class Sized:
    """Updates the estimates of one workload. Times are seconds of its clock."""

    def __init__(self, ttft=2.0, itl=0.05, start=75.0, constants=DEFAULTS):
        self.estimates, self.now, self.constants = capacity.blank(1), 1.7e9, constants
        self.slo, self.start = SloColumns(np.array([ttft]), np.array([itl])), start
        self.after(0.0, rates_of())  # the first update has no time before it

    def after(self, seconds, rates, *, waiting=0.0, running=0.0, kv_used=nan, ready=1.0, misses=nan, longest=LONGEST_S):
        """One update, `seconds` after the last. Returns the size."""
        self.now += seconds
        numbers = (np.array([float(value)]) for value in (waiting, running, kv_used, ready, self.start, misses))
        inputs = SizingInputs(rates[None], *numbers)
        sizing.update(self.estimates, self.slo, inputs, self.now, longest, self.constants)
        return self[Estimate.SIZE]

    def during(self, seconds, rates, every=5.0, **inputs):
        """Updates for so many seconds with the same inputs. Returns every size."""
        return [self.after(every, rates, **inputs) for _ in range(round(seconds / every))]

    def __getitem__(self, estimate):
        return float(self.estimates[0, estimate])

    @property
    def step_s(self):
        return self[Estimate.STEP_SUM] / self[Estimate.STEP_WEIGHT]

    @property
    def factor(self):
        return self[Estimate.FACTOR_SUM] / self[Estimate.FACTOR_WEIGHT]

    def knows_step(self, step_s):
        """Sets the empty step, as if it had been learned."""
        self.estimates[0, Estimate.STEP_SUM] = step_s * self[Estimate.STEP_WEIGHT]
        return self


@pytest.fixture(scope="session")
def sized():
    return Sized


@pytest.fixture(scope="session")
def rates():
    return rates_of
