"""One workload without counters of tokens, a server that shares its time, and a clock that the test moves."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest

from scaler.policy import capacity, service_time
from scaler.policy.capacity import DEFAULTS, Estimate
from scaler.policy.service_time import TimeInputs

LONGEST_S = 45.0  # three intervals of 15 s, as the daemon has it


class Timed:
    """Updates the estimates of one workload. Times are seconds of its clock."""

    def __init__(self, start=75.0, constants=DEFAULTS):
        self.times, self.estimates = service_time.blank(1), capacity.blank(1)
        self.now, self.start, self.constants = 1.7e9, start, constants
        self.after(0.0, 0.0, in_hand=0.0)  # the first update has no time before it

    def after(
        self, seconds, rate, *, in_hand, finished=None, waiting=0.0, ready=1.0, ttft=nan, longest=LONGEST_S, chosen=True
    ):
        """One update, `seconds` after the last. rate: requests per second that arrive, and finish. Returns the size."""
        self.now += seconds
        numbers = (rate, rate if finished is None else finished, in_hand, waiting, ready, ttft, self.start)
        inputs = TimeInputs(*(np.array([float(number)]) for number in numbers))
        mask = np.array([chosen])
        service_time.update(self.times, self.estimates, mask, inputs, self.now, longest, self.constants)
        return self[Estimate.SIZE]

    def during(self, seconds, rate, every=15.0, **inputs):
        """Updates for so many seconds with the same inputs. Returns every size."""
        return [self.after(every, rate, **inputs) for _ in range(round(seconds / every))]

    def serves(self, seconds, rate, *, alone_s, slower, ready=1.0, **inputs):
        """Traffic of a server on which a request takes `alone_s * (1 + slower * n)`, in equilibrium."""
        each = rate / ready
        stays = alone_s / (1.0 - slower * alone_s * each)  # n = each * stays
        return self.during(seconds, rate, in_hand=rate * stays, ready=ready, **inputs)

    @property
    def shown(self):
        return {
            name: float(column[0])
            for name, column in service_time.request_times(self.times, self.estimates, self.now)._asdict().items()
        }

    def __getitem__(self, estimate):
        return float(self.estimates[0, estimate])


@pytest.fixture(scope="session")
def timed():
    return Timed
