"""Collects a report from the source that the options name: a daemon, a Prometheus history, or recorded responses.

Worked example: `collect(ReportRequest(("ai/chat",), "http://localhost:8080", pages="pages"), progress)` reads the files
of the folder and asks no server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import run
from .run import Progress


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """names: workloads as NAMESPACE/NAME; empty is all. server: URL of the daemon.

    prometheus, pages: URL and folder to read instead. since_s, bearer_file: of a history: seconds, and its token.
    month: as "2026-11", "" the present one, instead of `since_s`; None: no calendar month.
    """

    names: Sequence[str]
    server: str
    prometheus: str | None = None
    since_s: float = 0.0
    bearer_file: str | None = None
    pages: str | None = None
    month: str | None = None


def collect(request: ReportRequest, progress: Progress) -> dict[str, Any]:
    """Raises Unanswered, BadReportRequest."""
    # Each source takes as long to import as `tidegate version` to run.
    if request.pages is not None:
        from .pages import read_pages  # noqa: PLC0415

        return read_pages(tuple(request.names), Path(request.pages), progress)
    if request.prometheus is not None:
        from .history import read_history  # noqa: PLC0415

        of_time = request.since_s, request.month
        return read_history(request.names, request.prometheus, of_time, request.bearer_file, progress)
    return run.collect(run.DaemonReportRequest(request.names, request.server, request.month), progress)
