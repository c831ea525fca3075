"""Compares the compiled pass over the slots with array operations, and a part of the workloads with all of them."""

import numpy as np
import pytest

from scaler.signals import slot_sums
from scaler.signals.slot_sums import PerWorkload
from scaler.signals.slots import Column, Slots
from tests.scaler.signals.latest import reference_sums

NOW, WORKLOADS, SLOTS = 1.7e9, 40, 200


@pytest.fixture(params=range(25))
def chance(request):
    return np.random.default_rng(request.param)


def sparse(chance, values, unknown):
    return np.where(chance.random(np.shape(values)) < unknown, np.nan, values)


@pytest.fixture
def slots(chance):
    """Slots of every role and age; a third of their values is unknown, and many counts are 0."""
    slots = Slots.empty(SLOTS)
    slots.owner[:] = chance.integers(0, WORKLOADS, SLOTS)
    slots.role[:] = chance.integers(0, 3, SLOTS)
    slots.at[:] = sparse(chance, NOW - chance.uniform(0.0, 60.0, SLOTS), 0.1)
    slots.limit[:] = 30.0
    zeros = chance.random(slots.values.shape) < 0.3
    slots.values[:] = sparse(chance, np.where(zeros, 0.0, chance.uniform(0.0, 3.0, slots.values.shape)), 0.3)
    slots.values[chance.random(SLOTS) < 0.2, : Column.HELD + 1] = np.nan
    slots.values[:, Column.SLEEPING] = sparse(chance, chance.integers(0, 2, SLOTS).astype(float), 0.5)
    slots.incomplete[:] = np.where(chance.random(SLOTS) < 0.3, chance.integers(0, 8, SLOTS), 0)
    slots.wake_source[:] = chance.integers(0, 3, SLOTS)
    slots.leaving[:] = chance.random(SLOTS) < 0.2
    return slots


@pytest.fixture
def workloads(chance):
    counts = [sparse(chance, chance.integers(0, 3, WORKLOADS).astype(float), 0.4) for _ in range(3)]
    return PerWorkload(*counts, chance.uniform(0.0, 40.0, WORKLOADS), chance.random(WORKLOADS) < 0.5)


@pytest.fixture
def share(chance):
    return sparse(chance, chance.random(WORKLOADS), 0.6)


def assert_same(found, expected):
    for name, mine, theirs in zip(expected._fields, found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs, err_msg=name)


def test_sums_equal_the_reference_bit_for_bit(slots, workloads, share):
    rows, chosen = np.arange(WORKLOADS), np.arange(SLOTS)
    given = (slots, rows, chosen, slots.owner.copy(), workloads, share, NOW)
    found = slot_sums.add_up(*given)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = reference_sums.add_up(*given)
    assert_same(found[0], expected[0])
    assert_same(found[1], expected[1])
    np.testing.assert_array_equal(found[2], expected[2])
    np.testing.assert_array_equal(found[3], expected[3])


def test_one_workload_alone_has_the_same_sums_as_among_all(slots, workloads, share):
    rows = np.arange(WORKLOADS)
    given = (slots, rows, np.arange(SLOTS), slots.owner.copy(), workloads, share, NOW)
    sums, flags, latest, rates = slot_sums.add_up(*given)
    for row in rows:
        chosen = np.flatnonzero(slots.owner == row)
        local_owner = np.zeros(len(chosen), dtype=np.int64)
        alone = slot_sums.add_up(slots, rows[row : row + 1], chosen, local_owner, workloads, share[row : row + 1], NOW)
        assert_same(alone[0], type(sums)(*(column[row : row + 1] for column in sums)))
        assert_same(alone[1], type(flags)(*(column[row : row + 1] for column in flags)))
        np.testing.assert_array_equal(alone[2], latest[row : row + 1])
        np.testing.assert_array_equal(alone[3], rates[row : row + 1])
