"""A freed slot belongs to no workload, and what is unknown is never a number."""

import numpy as np
import pytest

from exporter.attribution import owners_by_name
from exporter.model import Role, Target, WorkloadKey
from scaler.signals.latest import LatestSamples, TargetRules
from scaler.signals.slots import Slots, optional_floats, optional_ints, sum_present

CHAT, CODE = WorkloadKey("ai", "chat"), WorkloadKey("ai", "code")
NODE = Target("http://node-0:9400/metrics", "dcgm", Role.GPUS)


def test_retired_gpus_are_missed_by_no_workload(samples, page):
    rules = [TargetRules(CHAT, pods=True), TargetRules(CODE, pods=True)]
    intake = LatestSamples(rules, owners_by_name({CHAT: None, CODE: None}), 15.0)
    intake.land(NODE, samples(page.gpu("GPU-1", ["chat-0"], engine=0.5), at=100.0), 100.0)
    both = np.array([0, 1])
    assert intake.totals(both, 120.0).readings.gpus_stale.tolist() == [True, False]
    intake.retire(NODE)
    assert intake.totals(both, 120.0).readings.gpus_stale.tolist() == [False, False]


@pytest.mark.parametrize("name", Slots.__slots__)
def test_freed_slot_is_an_empty_one_and_a_grown_one_keeps_what_it_had(name):
    slots = Slots.empty(2)
    for column in Slots.__slots__:
        getattr(slots, column)[:] = 1
    slots.clear(0)
    if name not in ("role", "limit", "key"):  # each new owner sets these
        np.testing.assert_array_equal(getattr(slots, name)[0], getattr(Slots.empty(1), name)[0])
    slots.grow()
    assert (getattr(slots, name)[1] == 1).all()
    np.testing.assert_array_equal(getattr(slots, name)[2:], getattr(Slots.empty(2), name))


def test_sum_of_known_values_is_unknown_without_one():
    np.testing.assert_array_equal(
        sum_present(np.array([[1.0, np.nan, 2.0], [np.nan, np.nan, np.nan], [0.0, np.nan, 0.0]])), [3.0, np.nan, 0.0]
    )


def test_unknown_number_is_none_and_zero_is_zero():
    assert optional_floats(np.array([1.5, np.nan, 0.0])) == [1.5, None, 0.0]
    assert optional_ints(np.array([3.0, np.nan, 0.0])) == [3, None, 0]
