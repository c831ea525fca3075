"""Builds decisions of the workload `ai/chat`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exporter.model import WorkloadKey
from scaler.model import Decision, Evidence, Reason

CHAT = WorkloadKey("ai", "chat")


@pytest.fixture
def decide():
    """`decide(2)`: a decision for `ai/chat`; 0 is asleep, None is unknown; evidence: fields of Evidence."""

    def decide(replicas, reason=None, *, workload=CHAT, at=1000.0, idle_since=None, observed=False, **evidence):
        usual = Reason.UNKNOWN if replicas is None else Reason.SERVING if replicas else Reason.ASLEEP
        decision = Decision(workload, replicas, replicas != 0, reason or usual, at, idle_since=idle_since)
        return replace(decision, observed=observed, evidence=Evidence(**evidence))

    return decide
