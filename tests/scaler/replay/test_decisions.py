"""Tests the CSV of decisions: each change of the replicas is one row, written at once."""

from __future__ import annotations

import csv
from io import StringIO
from math import nan

import pytest

from scaler.cli.replay.run import BadReplayRequest, ReplayRequest, replayed
from scaler.replay.decisions import HEADER, DecisionsFile, ReplayDecision

BURSTS = "each:10m,for=2h"


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_row_has_the_numbers_of_the_decision_and_an_empty_cell_for_an_unknown_one():
    file = StringIO()
    record = DecisionsFile(file).recorder("diurnal:high=4,for=1d", "tidegate")
    record(ReplayDecision(3600.0, 3, 2, "serving", 41, 2.13))
    assert file.getvalue().splitlines() == [
        ",".join(HEADER),
        '"diurnal:high=4,for=1d",tidegate,3600,3,2,serving,41,2.13',
    ], "written before the next decision"
    record(ReplayDecision(1_234_567.5, 0, 1, "", 0, nan))
    assert file.getvalue().endswith(",tidegate,1234567.5,0,1,,0,\n")


def test_each_change_of_each_policy_is_a_row_after_the_replicas_at_the_beginning(tmp_path):
    path = tmp_path / "decisions.csv"
    policies = ["tidegate:keep-warm=60", "knative", "static:replicas=2"]
    (result,) = replayed(ReplayRequest([BURSTS], policies=policies, decisions=str(path)))

    rows = rows_of(path)
    assert list(rows[0]) == list(HEADER)
    assert {row["load"] for row in rows} == {BURSTS}
    for policy, played in zip(("tidegate:keep-warm=60.0", "knative", "static:replicas=2"), result.played, strict=True):
        found = [(float(row["second"]), int(row["wanted"])) for row in rows if row["policy"] == policy]
        orders = played.course.orders
        assert found[1:] == [(order.at, order.after) for order in orders]
        assert found[0] == (0.0, orders[0].before if orders else 2)
    assert len([row for row in rows if row["policy"] == "static:replicas=2"]) == 1


def test_reason_and_arriving_work_are_those_of_the_policy_and_empty_where_it_has_none(tmp_path):
    path = tmp_path / "decisions.csv"
    replayed(ReplayRequest([BURSTS], policies=["tidegate:keep-warm=60", "knative"], decisions=str(path)))

    rows = rows_of(path)
    asleep = [row for row in rows if row["policy"].startswith("tidegate") and row["wanted"] == "0"]
    woken = [row for row in rows if row["policy"].startswith("tidegate") and row["requests"] == "1"]
    assert asleep
    assert {row["reason"] for row in asleep} == {"asleep"}
    assert {row["wanted"] for row in woken} == {"1"}
    assert all(float(row["arriving_work"]) >= 0.0 for row in asleep)
    assert {(row["reason"], row["arriving_work"]) for row in rows if row["policy"] == "knative"} == {("", "")}


def test_file_that_cannot_be_written_is_a_wrong_option(tmp_path):
    with pytest.raises(BadReplayRequest, match=r"--decisions: .*No such file or directory"):
        replayed(ReplayRequest([BURSTS], decisions=str(tmp_path / "missing" / "decisions.csv")))
