"""Numbers and times are written short, and an unknown value is null."""

from math import inf, nan

import numpy as np
import pytest

from scaler.explain.formats import clock, counted, lasting, number
from scaler.explain.steps import ExplainTable, Step


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (40.0, "40"), (2.5, "2.5"), (2.1111, "2.11"), (0.125, "0.125"), (0.0004, "0"), (1e6, "1000000"), (100.0, "100"),
        (-0.5, "-0.5"), (nan, "–"), (inf, "unlimited"), (10.0001, "10"),
    ],
)  # fmt: skip
def test_number_is_written_short(value, written):
    assert number(value) == written


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0.0, "0 s"), (0.34, "0.3 s"), (4.0, "4 s"), (59.6, "60 s"), (119.0, "119 s"), (120.0, "2 min"),
        (305.0, "5 min 5 s"), (3600.0, "1 h"), (4800.0, "1 h 20 min"), (86400.0, "24 h"), (200_000.0, "2 d"),
    ],
)  # fmt: skip
def test_duration_is_written_short(seconds, written):
    assert lasting(seconds) == written


def test_count_of_one_is_singular():
    assert [counted(value, "replica") for value in (0.0, 1.0, 2.0, 2.5)] == [
        "0 replicas", "1 replica", "2 replicas", "2.5 replicas"
    ]  # fmt: skip


def test_time_is_written_in_utc():
    assert clock(1795341600.4) == "2026-11-22 10:00:00Z"


def test_unknown_cell_is_null_and_flag_stays_a_flag():
    table = ExplainTable(("a", "b", "c", "d", "e"), ((nan, inf, np.float64(2.0), True, "x"),))
    document = Step("raw", "What", ("It is.",), table).to_document()
    (row,) = document["table"]["rows"]
    assert (row, type(row[2]), type(row[3])) == ([None, None, 2.0, True, "x"], float, bool)
    assert Step("raw", "What", ("It is.",)).to_document()["table"] is None
