from __future__ import annotations

import pytest

from exporter.model import WorkloadKey
from scaler.model import Decision, Reason


@pytest.fixture
def key():
    return lambda name: WorkloadKey("ai", name)


@pytest.fixture
def decide():
    """`decide("chat", 3)`: a decision; 0 is asleep, None unknown."""

    def decide(name, replicas, at=1000.0):
        reason = Reason.UNKNOWN if replicas is None else Reason.SERVING if replicas else Reason.ASLEEP
        return Decision(WorkloadKey("ai", name), replicas, active=replicas != 0, reason=reason, decided_at=at)

    return decide
