"""Tests the state as a value: which row belongs to which workload, and which columns fit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.columns import State, copy_into, pairs, translated
from tests.scaler.engine.checkpoint.conftest import CHAT, CODE, same, states


def test_worked_example_of_the_module():
    source = {"memory.replicas": np.array([3.0, 0.0]), "memory.idle_since": np.array([np.nan, 100.0])}
    columns = {name: np.full(2, 7.0) for name in source}
    copy_into(columns, source, np.array([1]), np.array([0]))
    np.testing.assert_equal(columns, {"memory.replicas": [7.0, 3.0], "memory.idle_since": [7.0, np.nan]})


@pytest.mark.parametrize("other", [np.array([1]), np.array([[1.0]]), np.array([True])], ids=["ints", "wide", "bools"])
def test_column_of_another_type_or_shape_counts_as_missing(other):
    columns = {"x": np.array([5.0]), "y": np.array([6.0])}
    copy_into(columns, {"x": other, "z": np.array([9.0])}, np.array([0]), np.array([0]))
    np.testing.assert_equal(columns, {"x": [5.0], "y": [6.0]})


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.lists(st.sampled_from("abcdef"), unique=True))
def test_workloads_are_paired_by_name_in_any_order(left, right):
    keys = [[(WorkloadKey("ai", name), "Deployment/a") for name in names] for names in (left, right)]
    rows, source_rows = pairs(*keys)
    assert (
        [left[row] for row in rows] == [right[row] for row in source_rows] == [name for name in left if name in right]
    )


@pytest.mark.parametrize(
    ("target", "other", "is_pair"),
    [
        ("Deployment/a", "Deployment/a", True),
        ("Deployment/a", "Deployment/b", False),
        ("Deployment/a", "StatefulSet/a", False),
        ("Deployment/a", "", True),
        ("", "Deployment/a", True),
        ("", "", True),
    ],
)
def test_different_scale_targets_are_no_pair_and_an_unknown_target_matches_any(target, other, is_pair):
    assert len(pairs([(CHAT, target)], [(CHAT, other)])[0]) == is_pair


@given(states(), st.data())
def test_split_state_is_complete(state, data):
    chosen = data.draw(st.sets(st.sampled_from(state.workloads)) if state.workloads else st.just(set()))
    parts = state.only(chosen), state.without(chosen)
    assert sorted(parts[0].workloads + parts[1].workloads) == sorted(state.workloads)
    for part in parts:
        assert set(part.identities) <= set(state.identities)
        rows, source_rows = pairs(part.identities, state.identities)
        for name, column in part.columns.items():
            np.testing.assert_array_equal(column[rows], state.columns[name][source_rows])
        for name, table in part.tables.items():
            keys = [state.workloads[row] for row in state.tables[name]["row"]]
            assert [part.workloads[row] for row in table["row"]] == [key for key in keys if key in part.workloads]


def test_copy_does_not_change_with_its_original(small):
    copy = small.copied()
    small.columns["memory.replicas"][0] = 9.0
    small.tables["pages"]["row"][0] = 0
    assert copy.columns["memory.replicas"][0] == 3.0
    assert copy.tables["pages"]["row"].tolist() == [1, 1]


def test_translation_to_another_clock_moves_only_times(small):
    moved = translated(small, -100.0)
    assert moved.at == 900.0
    np.testing.assert_equal(moved.columns["memory.idle_since"], [np.nan, 800.0])
    np.testing.assert_equal(moved.columns["windows.times"], [[-99.0, -98.0], [-97.0, np.nan]])
    np.testing.assert_equal(moved.tables["pages"]["heard_at"], [-99.0, -99.0])
    for name in ("memory.replicas", "memory.active"):
        np.testing.assert_equal(moved.columns[name], small.columns[name])
    same(translated(moved, 100.0), small)


def test_flag_with_a_name_like_a_time_is_not_moved():
    state = State(0.0, (CHAT, CODE), {"x.idle_since": np.array([True, False]), "x.boat": np.zeros(2)})
    np.testing.assert_equal(translated(state, 5.0).columns, state.columns)
