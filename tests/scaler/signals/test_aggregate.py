"""Readings are added up by workload, and ratios and counts are derived from the sums."""

from __future__ import annotations

import numpy as np
import pytest

from scaler.policy.capacity import WorkRate
from scaler.policy.columns import Readings, Signal
from scaler.signals.aggregate import Aggregate, HeldGpus, VisibleGpus

NAN = float("nan")


def aggregate(rows, *, in_pods=NAN, gpus_held=NAN, whole=NAN, leaving=0.0, **readings):
    """`rows` workloads with the same readings; what is not given is unknown."""
    unknown = np.full(rows, NAN)
    columns = Readings.unknown(rows)
    for name, value in readings.items():
        getattr(columns, name)[:] = value
    latest, rates = np.full((rows, len(Signal)), 30.0), np.full((rows, len(WorkRate)), 6.0)
    held = HeldGpus(np.full(rows, whole), unknown, unknown)
    return Aggregate(
        columns, np.full(rows, gpus_held), VisibleGpus(*[unknown] * 7), np.full(rows, in_pods), latest, rates,
        *[unknown] * 4, np.full(rows, leaving), held,
    )  # fmt: skip


@pytest.mark.parametrize(("existing", "pending", "leaving", "each"), [
    (4.0, 1.0, 2.0, 2.0),  # ten GPUs in three replicas that run and two that end
    (1.0, 0.0, 0.0, 10.0),
    (1.0, 1.0, 0.0, NAN),
    (NAN, 0.0, 0.0, NAN),
])  # fmt: skip
def test_gpus_of_a_replica_are_those_of_all_that_run_or_end(existing, pending, leaving, each):
    found = aggregate(1, existing=existing, pending=pending, leaving=leaving, gpus_held=10.0, whole=5.0)
    np.testing.assert_equal([found.gpus_each[0], found.whole_each[0]], [each, each / 2.0])


def test_withheld_readings_are_unknown_but_for_the_last_activity_and_those_of_others_stay():
    found = aggregate(2, waiting=3.0, active_at=900.0, refused_at=800.0, gateway_fresh=True, signals=7.0)
    kept = found.withhold(np.array([False, True]))
    np.testing.assert_equal(kept.readings.waiting, [3.0, NAN])
    np.testing.assert_equal(kept.readings.signals, [[7.0] * len(Signal), [NAN] * len(Signal)])
    assert kept.readings.gateway_fresh.tolist() == [True, False]
    assert (kept.readings.active_at.tolist(), kept.readings.refused_at.tolist()) == ([900.0] * 2, [800.0] * 2)
    np.testing.assert_equal(kept.latest[:, Signal.WORK], [30.0, NAN])
    np.testing.assert_equal(kept.rates[:, WorkRate.ARRIVED], [6.0, NAN])
    assert found.withhold(np.array([False, False])) is found


def test_pods_that_do_not_answer_are_imputed_for_their_workload_alone():
    found = aggregate(2, pods_listed=4.0, pods_fresh=3.0, in_pods=24.0)
    found.impute(np.array([True, False]))
    # Six of the 30 requests are at the gateway: eight of each pod.
    assert found.latest[:, Signal.WORK].tolist() == pytest.approx([38.0, 30.0])
    assert found.latest[:, Signal.KV_CACHE].tolist() == [30.0, 30.0]
    assert found.rates[:, WorkRate.ARRIVED].tolist() == pytest.approx([8.0, 6.0])
    unknown = aggregate(1, pods_listed=4.0, pods_fresh=3.0)
    unknown.impute(np.array([True]))
    assert unknown.latest[0, Signal.WORK] == 30.0
