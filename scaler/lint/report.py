"""Runs `tidegate check`: arguments of the command line become lines for a person, or an error about the arguments.

Worked example: `checked(CheckRequest(files=["config.yaml"])).lines(failed=False)` ends with "1 file(s) fine" and what
would wake each workload.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

import click

from exporter.kubernetes.client import connect
from exporter.kubernetes.protocol import ApiFailure, CannotConnect
from scaler.config.rules import RULES

from .findings import UnknownRule, read_ignored
from .pages import listed, page
from .run import STDIN, LintReport, check_cluster, check_files
from .triggers import LARGEST_BYTES

MOST_SHOWN = 50  # enough for a person; the HTTP API has all
_COUNTED = {"warning": "warning(s)", "info": "hint(s)"}


class CheckRequest(NamedTuple):
    """files, or a namespace, or everywhere. ignored: `--ignore` options."""

    files: Sequence[str] = ()
    namespace: str | None = None
    everywhere: bool = False
    kubeconfig: str | None = None
    context: str | None = None
    ignored: Sequence[str] = ()


class CheckResult(NamedTuple):
    """subject: what was checked, such as "1 file(s)"."""

    report: LintReport
    subject: str

    def fails(self, *, strict: bool) -> bool:
        """strict: warnings fail too."""
        failing = ("error", "warning") if strict else ("error",)
        return any(problem.severity in failing for problem in self.report.problems)

    def lines(self, failed: bool) -> Iterator[str]:
        report = self.report
        yield from map(str, report.problems)
        if failed:
            return
        counts = {severity: sum(one.severity == severity for one in report.problems) for severity in _COUNTED}
        counted = "".join(f", {count} {_COUNTED[severity]}" for severity, count in counts.items() if count)
        skipped = f", {report.skipped} document(s) skipped" if report.skipped else ""
        yield f"{self.subject} {'checked' if counted else 'fine'}{counted}{skipped}"
        yield from (f"  {workload}: {source}" for workload, source in list(report.wake_sources.items())[:MOST_SHOWN])
        if len(report.wake_sources) > MOST_SHOWN:
            yield f"  and {len(report.wake_sources) - MOST_SHOWN} more"
        for workload, lines in list(report.overrides.items())[:MOST_SHOWN]:
            yield from (f"  {workload}: {line}" for line in lines)
        if len(report.overrides) > MOST_SHOWN:
            yield f"  and overrides of {len(report.overrides) - MOST_SHOWN} more"


def explained(rule: str | None) -> str:
    """A rule's page; None: the list of all."""
    if rule is None:
        return listed()
    if rule not in RULES:
        raise click.BadParameter(f"{rule} is no rule: --rules lists them", param_hint="--explain")
    return page(RULES[rule])


def checked(request: CheckRequest) -> CheckResult:
    """Runs the check; raises click's errors for bad arguments."""
    if bool(request.files) == (request.namespace is not None or request.everywhere):
        raise click.UsageError("give one of FILES, --namespace, --all-namespaces")
    try:
        ignored = read_ignored(request.ignored)
    except UnknownRule as unknown:
        raise click.BadParameter(f"{unknown} is no rule: --rules lists them", param_hint="--ignore") from None
    if not request.files:
        return _check_cluster(request, ignored)
    stdin = sys.stdin.buffer.read(LARGEST_BYTES + 1) if STDIN in request.files else b""
    report = check_files(request.files, time.time(), ignored, stdin)
    return CheckResult(report, f"{len(request.files)} file(s)")


def _check_cluster(request: CheckRequest, ignored: frozenset[str]) -> CheckResult:
    """Reports kinds that RBAC forbids on stderr."""
    namespace = None if request.everywhere else request.namespace

    async def run() -> CheckResult:
        client = await connect(request.kubeconfig, request.context, Random())  # noqa: S311  jitter
        try:
            live = await check_cluster(client, namespace, time.time(), ignored)
        finally:
            await client.close()
        for reason in live.refused:
            click.echo(f"not read: {reason}", err=True)
        if live.blind:
            raise click.ClickException("nothing was checked: no kind of object could be read")
        if not live.objects:
            where = "the cluster" if namespace is None else f"namespace {namespace}"
            click.echo(f"nothing to check: {where} has no object of a checked kind", err=True)
        return CheckResult(LintReport(live.problems, 0, {}, {}), f"{live.objects} object(s)")

    try:
        return asyncio.run(run())
    except (ApiFailure, CannotConnect) as failure:
        raise click.ClickException(str(failure)) from failure
