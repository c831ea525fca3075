"""Profiles from hand-made signals: a mean over busy time, with quantiles and a peak at the same value."""

from __future__ import annotations

import pytest

from exporter.model import WorkloadKey
from scaler.report.profile import QUANTILE_NAMES, Profile
from scaler.signals.usage import Distribution, Usage

CHAT = WorkloadKey("ai", "chat")
HOUR_S = 3600.0


def steady(value, busy=1.0):
    """A quantity that never changes, in an hour of which the share `busy` had work."""
    return Distribution(value, value, value, (value,) * len(QUANTILE_NAMES), HOUR_S, busy * HOUR_S)


def make(busy=1.0, **values):
    usage = {
        Usage[name]: each if isinstance(each, Distribution) else steady(each, busy) for name, each in values.items()
    }
    return Profile(CHAT, usage, HOUR_S if usage else 0.0, since=0.0 if usage else None)


@pytest.fixture
def profile():
    """`profile(ENGINE=0.9, busy=1.0)`: a Profile of steady signals."""
    return make
