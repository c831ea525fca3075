"""Collects a report from a running daemon.

Worked example: `collect(DaemonReportRequest(("ai/chat",), "http://localhost:8080"), progress)` reads documents of the
daemon and returns the report of `ai/chat`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from scaler.cli.client import document
from scaler.report import ledger, statement
from scaler.report.profile import of_document

TIMEOUT_S = 10.0  # the daemon answers from memory
Progress = Callable[[str, float], None]  # what is read, and the share that is


class BadReportRequest(ValueError):  # noqa: N818 - named for what is wrong
    """The options do not fit together, or name what is not there."""


@dataclass(frozen=True, slots=True)
class DaemonReportRequest:
    """names: workloads as NAMESPACE/NAME; empty is all. server: URL of the daemon.

    month: as "2026-11", "" the present one by the daemon's clock; None: the daemon's whole time.
    """

    names: Sequence[str]
    server: str
    month: str | None = None


def collect(request: DaemonReportRequest, progress: Progress) -> dict[str, Any]:
    """The report of a running daemon. Raises Unanswered, BadReportRequest."""
    chosen_month = () if request.month is None else (request.month,)
    accounts = document(request.server, f"/api/v1/accounts{_query('month', chosen_month)}", TIMEOUT_S)
    month = accounts.get("month")
    if request.month is not None and month is None:
        raise BadReportRequest(f"--month: {request.server} has no accounts of months")
    progress("accounts", 0.4)
    if month is not None and month not in accounts["months_kept"]:
        kept = ", ".join(accounts["months_kept"]) or "none"
        raise BadReportRequest(f"--month: must be a month that is kept ({kept}), got {month}")
    # Profiles are of the last days, so they say nothing of a month before the present one.
    profiles: list[Any] = []
    if month in (None, datetime.fromtimestamp(accounts["now"], UTC).strftime("%Y-%m")):
        query = _query("workload", request.names)
        profiles = document(request.server, f"/api/v1/profiles{query}", TIMEOUT_S)["profiles"]
    progress("profiles", 0.9)
    chosen = ledger.chosen(accounts, request.names)
    present = {ledger.label(each) for each in chosen["workloads"]}
    absent = [name for name in request.names if name not in present]
    if absent:
        raise BadReportRequest(f"{', '.join(absent)}: no such workload of {request.server}")
    report = statement.build(chosen, [of_document(each) for each in profiles])
    if request.names:  # sums of some workloads are not to be compared with the nodes
        report["nodes"] = report["reconciliation"] = None
    report["gpus_unmatched"] = document(request.server, "/api/v1/rows", TIMEOUT_S).get("gpus_unmatched")
    progress("", 1.0)
    return report


def _query(name: str, values: Iterable[str]) -> str:
    pairs = [(name, value) for value in values]
    return f"?{urlencode(pairs)}" if pairs else ""


def span(report: ledger.Document) -> str:
    """The time of a report: "2026-11-01 00:00 to 2026-11-30 23:59 UTC"."""
    if report["since"] is None:
        return "No data yet"
    begin, end = (datetime.fromtimestamp(report[name], UTC) for name in ("since", "now"))
    return f"{begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"
