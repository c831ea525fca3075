"""Writes the decisions of a replay as CSV: one row for each change of the replicas that a policy orders.

Rows are written while the replay runs, load by load and policy by policy, each in order of time. A number that the
policy does not have is an empty cell, never 0.

Worked example: `recorder("office", "tidegate")(ReplayDecision(3600.0, 3, 2, "serving", 41, 2.13))` writes the row
`office,tidegate,3600,3,2,serving,41,2.13`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from math import isnan
from typing import NamedTuple, TextIO, TypeAlias


class ReplayDecision(NamedTuple):
    """A change of the replicas that a policy orders.

    at_s:     seconds of the load.
    wanted:   replicas from now on.
    ready:    replicas at this moment.
    reason:   of the policy; empty if it has none.
    requests: waiting, running and held by the gateway.
    work:     replicas of arriving work; NaN if the policy does not estimate it.
    """

    at_s: float
    wanted: int
    ready: int
    reason: str
    requests: int
    work: float


Record: TypeAlias = Callable[[ReplayDecision], None]
HEADER = ("load", "policy", "second", "wanted", "ready", "reason", "requests", "arriving_work")


class DecisionsFile:
    """The rows of all loads and policies of one replay, written to an open text file at once."""

    def __init__(self, file: TextIO) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._write(HEADER)

    def recorder(self, load: str, policy: str) -> Record:
        """A function that writes one decision of this policy on this load."""

        def record(decision: ReplayDecision) -> None:
            at_s, wanted, ready, reason, requests, work = decision
            shown_work = "" if isnan(work) else f"{work:.6g}"
            self._write((load, policy, f"{at_s:.10g}", wanted, ready, reason, requests, shown_work))

        return record

    def _write(self, row: Sequence[object]) -> None:
        self._writer.writerow(row)
