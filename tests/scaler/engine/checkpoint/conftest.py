"""Draws states with arbitrary content."""

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from exporter.model import WorkloadKey
from scaler.columns import State

CHAT, CODE = WorkloadKey("ai", "chat"), WorkloadKey("ai", "code", "decode")
NAMES = st.text(max_size=8)
DTYPES = st.sampled_from(["f8", "f4", "i8", "i4", "i1", "u1", "?"])
KEYS = st.lists(st.builds(WorkloadKey, NAMES, NAMES, NAMES), max_size=4, unique=True)


def columns(rows):
    shapes = st.lists(st.integers(0, 3), max_size=2).map(lambda more: (rows, *more))
    return st.dictionaries(NAMES, DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, shapes)), max_size=4)


@st.composite
def states(draw):
    workloads = draw(KEYS)
    rows = len(workloads)
    tables = {}
    for name in draw(st.lists(NAMES, max_size=2, unique=True)):
        length = draw(st.integers(0, 3)) if rows else 0
        tables[name] = draw(columns(length)) | {
            "row": draw(arrays.arrays(np.int64, length, elements=st.integers(0, max(0, rows - 1))))
        }
    at = draw(st.floats(-1e12, 1e12))
    targets = tuple(draw(st.sampled_from(["", "Deployment/a", "Deployment/b"])) for _ in workloads)
    return State(at, tuple(workloads), draw(columns(rows)), tables, draw(st.sampled_from([(), targets])))


def same(one, other):
    """Asserts that both states are equal bit by bit."""
    np.testing.assert_equal((one.at, one.workloads), (other.at, other.workloads))
    assert one.targets == other.targets
    _same_columns(one.columns, other.columns)
    assert list(one.tables) == list(other.tables)
    for name, table in one.tables.items():
        _same_columns(table, other.tables[name])


def _same_columns(one, other):
    assert [(n, c.dtype, c.shape, c.tobytes()) for n, c in one.items()] == [
        (n, c.dtype, c.shape, c.tobytes()) for n, c in other.items()
    ]


@pytest.fixture
def small():
    """The state of two workloads, as a checkpoint may hold it."""
    return State(
        1000.0,
        (CHAT, CODE),
        {
            "memory.replicas": np.array([3.0, np.nan]),
            "memory.active": np.array([True, False]),
            "memory.idle_since": np.array([np.nan, 900.0]),
            "windows.times": np.array([[1.0, 2.0], [3.0, np.nan]]),
        },
        {"pages": {"row": np.array([1, 1]), "key": np.array([[1, 2], [3, 4]], np.uint8), "heard_at": np.ones(2)}},
    )
