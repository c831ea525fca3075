"""Tests the invariants of the rings."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.signals.smoothing import Windows

NOTHING = float("nan")
TIMES = st.one_of(st.integers(0, 20).map(float), st.sampled_from([NOTHING, float("inf")]))
VALUES = st.one_of(st.floats(-1e9, 1e9), st.sampled_from([NOTHING, float("inf"), float("-inf")]))


def push(windows, row, at, value):
    windows.push(np.array([row]), np.array([float(at)]), np.array([float(value)]))


def contents(windows, row):
    """The samples of a ring in order of time, as every kernel reads them: from `head`, once around."""
    times = np.roll(windows.times[row], -windows.head[row])
    values = np.roll(windows.values[row], -windows.head[row])
    return [(at, value) for at, value in zip(times, values, strict=True) if not np.isnan(at)]


def test_worked_example_of_the_module():
    windows = Windows(1, 3)
    for at, value in [(1, 5), (2, 6), (3, 7), (4, 8)]:
        push(windows, 0, at, value)
    np.testing.assert_array_equal(windows.times, [[4, 2, 3]])
    np.testing.assert_array_equal(windows.values, [[8, 6, 7]])
    np.testing.assert_array_equal(windows.head, [1])


def test_unwritten_slot_is_unknown_and_not_zero():
    windows = Windows(2, 3)
    assert np.isnan(windows.times).all()
    assert np.isnan(windows.values).all()


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 5), st.lists(st.lists(st.tuples(st.integers(0, 2), TIMES, VALUES), max_size=6), max_size=12))
def test_ring_holds_the_last_values_in_order_of_time(length, calls):
    """Compares with three deques, for pushes to any groups of rows."""
    windows, expected = Windows(3, length), [deque(maxlen=length) for _ in range(3)]
    for entries in calls:
        distinct = list({row: (row, at, value) for row, at, value in entries}.values())
        rows, at, values = np.array(distinct, np.float64).reshape(-1, 3).T
        windows.push(rows.astype(np.int64), at, values)
        for row, moment, value in distinct:
            last = expected[row][-1][0] if expected[row] else float("-inf")
            if np.isfinite(moment) and moment > last:
                expected[row].append((moment, value if np.isfinite(value) else NOTHING))
    for row in range(3):
        np.testing.assert_array_equal(contents(windows, row), list(expected[row]))


@pytest.mark.parametrize("at", [10.0, 9.0, NOTHING, float("inf")])
def test_repeat_is_no_new_sample(at):
    windows = Windows(1, 3)
    push(windows, 0, 10, 5)
    push(windows, 0, at, 6)
    assert contents(windows, 0) == [(10.0, 5.0)]


def test_gap_is_stored_as_unknown():
    windows = Windows(1, 3)
    push(windows, 0, 1, 5)
    push(windows, 0, 2, NOTHING)
    push(windows, 0, 3, float("inf"))
    np.testing.assert_array_equal(contents(windows, 0), [(1, 5), (2, NOTHING), (3, NOTHING)])


def test_later_of_two_entries_for_a_row_in_one_call_counts():
    windows = Windows(2, 3)
    windows.push(np.array([1, 0, 1]), np.array([1.0, 1.0, 2.0]), np.array([5.0, 6.0, 7.0]))
    assert contents(windows, 0) == [(1.0, 6.0)]
    assert contents(windows, 1) == [(2.0, 7.0)]


def test_cleared_row_is_empty_and_its_neighbour_unchanged():
    windows = Windows(2, 2)
    for at in (1, 2, 3):
        push(windows, 0, at, at)
        push(windows, 1, at, at)
    windows.clear(np.array([0]))
    assert contents(windows, 0) == []
    assert windows.head[0] == 0
    assert contents(windows, 1) == [(2.0, 2.0), (3.0, 3.0)]
    push(windows, 0, 1, 9)  # older than the cleared samples, and accepted
    assert contents(windows, 0) == [(1.0, 9.0)]


def take(new, rows, old, source_rows):
    new.take(np.array(rows), old.times[source_rows], old.values[source_rows], old.head[source_rows])


def test_row_can_be_copied_from_other_rings():
    old, new = Windows(1, 2), Windows(2, 2)
    for at in (1, 2, 3):
        push(old, 0, at, at)
    take(new, [1], old, [0])
    push(old, 0, 4, 4)  # not visible in the copy
    assert [contents(new, row) for row in range(2)] == [[], [(2.0, 2.0), (3.0, 3.0)]]
    push(new, 1, 3, 9)  # already stored: a restart makes no sample new
    push(new, 1, 5, 5)
    assert contents(new, 1) == [(3.0, 3.0), (5.0, 5.0)]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 14), st.integers(0, 8))
def test_newest_values_of_longer_or_shorter_rings_are_copied_and_the_ring_continues(theirs, length, before, after):
    old, new = Windows(1, theirs), Windows(1, length)
    for at in range(before):
        push(old, 0, at, at)
    take(new, [0], old, [0])
    expected = deque([float(at) for at in range(before)][-theirs:], maxlen=length)
    assert contents(new, 0) == [(at, at) for at in expected]
    for at in range(before, before + after):
        push(new, 0, at, at)
        expected.append(float(at))
    assert contents(new, 0) == [(at, at) for at in expected]


@pytest.mark.parametrize("length", [2, 3])
@pytest.mark.parametrize("head", [-1, 2, 2**40])
def test_invalid_head_empties_only_its_ring(length, head):
    old, new = Windows(2, 2), Windows(2, length)
    for row in range(2):
        push(old, row, 1, 5)
        push(new, row, 7, 7)
    old.head[0] = head
    take(new, [0, 1], old, [0, 1])
    assert [contents(new, row) for row in range(2)] == [[], [(1.0, 5.0)]]
    push(new, 0, 2, 6)
    assert contents(new, 0) == [(2.0, 6.0)]


@pytest.mark.parametrize(("rows", "length"), [(1, 0), (-1, 3)])
def test_rings_without_slots_are_refused(rows, length):
    with pytest.raises(ValueError, match=f"got {rows} and {length}"):
        Windows(rows, length)
