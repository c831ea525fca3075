"""Builds the aggregate of one workload in which everything is unknown, except what a test sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scaler.engine.accounting import Circumstances
from scaler.policy.capacity import WorkRate
from scaler.policy.columns import Readings, Signal
from scaler.signals.aggregate import Aggregate, HeldGpus, VisibleGpus


def column(values):
    return np.array(values, dtype=float)


@pytest.fixture
def totals():
    """`totals(wanted=4, ready=2, gpus=24)`: the aggregate of one workload; everything else is unknown."""

    def make(gpus=np.nan, shown=0.0, sleeping=np.nan, leaving=0.0, **readings_by_name):
        nan, none = column([np.nan]), column([0.0])
        readings = Readings.unknown(1)._replace(
            **{
                name: np.array([value], dtype=getattr(Readings.unknown(1), name).dtype)
                for name, value in readings_by_name.items()
            }
        )
        gpus_attributed = VisibleGpus(column([shown]), none, none, none, none, nan, nan)
        latest, rates = np.full((1, len(Signal)), np.nan), np.full((1, len(WorkRate)), np.nan)
        held = HeldGpus(column([shown or np.nan if np.isnan(gpus) else gpus]), nan, nan)
        held_by_pods, rest = column([gpus]), [nan] * 4
        totals = Aggregate(readings, held_by_pods, gpus_attributed, nan, latest, rates, none, *rest, held)
        return replace(totals, sleeping=column([sleeping]), leaving=column([leaving]))

    return make


@pytest.fixture
def circumstances():
    """The demand is completely known, the workload is awake, and a counter's rise shows 5 s of work."""

    def make(whole=True, zero=False, minimum=0.0):
        bounds = column([minimum]), column([8.0])
        return Circumstances(np.array([whole]), np.array([zero]), *bounds, column([0.02]), rise_s=5.0)

    return make
