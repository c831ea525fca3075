from __future__ import annotations

from dataclasses import replace

import pytest

from exporter.model import WorkloadKey
from scaler.model import Decision, Evidence, Reason

CHAT = WorkloadKey("ai", "chat")


@pytest.fixture
def decide():
    """`decide(2)`: an entry of `ai/chat`; 0 is asleep, None unknown; more: its evidence."""

    def decide(replicas, reason=None, *, workload=CHAT, at=1000.0, idle_since=None, observed=False, **evidence):
        usual = Reason.UNKNOWN if replicas is None else Reason.SERVING if replicas else Reason.ASLEEP
        made = Decision(workload, replicas, replicas != 0, reason or usual, at, idle_since=idle_since)
        return replace(made, observed=observed, evidence=Evidence(**evidence))

    return decide
