"""Checks which options of `tidegate report` go together.

Worked example: `month_of("2026-11")` is the same text; `month_of("2026-13")` raises BadParameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from scaler.engine.account_periods import month_name, read_month


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """As given: None without the option. month: "" for the present one."""

    workloads: Sequence[str]
    prometheus: str | None
    since: str | None
    month: str | None
    pages: str | None
    gpu: str | None
    model: str | None

    def check(self) -> None:
        """Raises click.UsageError."""
        if self.prometheus is None and self.since is not None:
            raise click.UsageError("--since: needs --prometheus; a daemon reports all of its own time")
        if self.pages is not None and (self.prometheus is not None or self.month is not None):
            raise click.UsageError("--pages: not together with --prometheus or --month")
        if self.month is not None and self.since is not None:
            raise click.UsageError("--month: not together with --since")
        if self.gpu is not None and not self.workloads:
            raise click.UsageError("--gpu: name the workloads that run on it")
        if self.model is not None and len(self.workloads) > 1:
            raise click.UsageError(f"--model: at most one workload, got {len(self.workloads)}")


def month_of(text: str | None) -> str | None:
    """The month of the statement, as given. Raises click.BadParameter."""
    try:
        return text and month_name(read_month(text))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--month") from None
