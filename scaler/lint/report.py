"""`tidegate check`: what was asked on the command line -> lines for a person, or what was wrong with asking.

Worked example: `checked(Asked(files=["config.yaml"])).lines(failed=False)` ends with "1 file(s) fine" and what would
wake each workload.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

import click

from exporter.kubernetes.client import connect
from exporter.kubernetes.protocol import ApiFailure, CannotConnect
from scaler.config.rules import RULES

from .findings import UnknownRule, known
from .pages import listed, page
from .run import STDIN, LintReport, check_cluster, check_files
from .triggers import LARGEST_BYTES

MOST_SHOWN = 50  # a person reads so many; all are on the Board
_COUNTED = {"warning": "warning(s)", "info": "hint(s)"}


class CheckRequest(NamedTuple):
    """files, or a namespace, or everywhere. ignored: ids of rules, as they were given."""

    files: Sequence[str] = ()
    namespace: str | None = None
    everywhere: bool = False
    kubeconfig: str | None = None
    context: str | None = None
    ignored: Sequence[str] = ()


class CheckResult(NamedTuple):
    """what: how much was looked at, in words."""

    report: LintReport
    what: str

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
        said = "".join(f", {count} {_COUNTED[severity]}" for severity, count in counts.items() if count)
        others = f", {report.passed_over} document(s) not Tidegate's business" if report.passed_over else ""
        yield f"{self.what} fine{said}{others}"
        yield from (f"  {workload}: {words}" for workload, words in list(report.wakers.items())[:MOST_SHOWN])
        if len(report.wakers) > MOST_SHOWN:
            yield f"  and {len(report.wakers) - MOST_SHOWN} more"
        yield from _orders(report.orders)


def explained(rule: str | None) -> str:
    """A rule's page; None: the list of all."""
    if rule is None:
        return listed()
    if rule not in RULES:
        raise click.BadParameter(f"{rule} is no rule: --rules lists them", param_hint="--explain")
    return page(RULES[rule])


def checked(asked: CheckRequest) -> CheckResult:
    """Raises what click says of bad arguments."""
    if bool(asked.files) == (asked.namespace is not None or asked.everywhere):
        raise click.UsageError("FILES, or --namespace, or --all-namespaces: one of them says what to check")
    try:
        ignored = known(asked.ignored)
    except UnknownRule as unknown:
        raise click.BadParameter(f"{unknown} is no rule: --rules lists them", param_hint="--ignore") from None
    if not asked.files:
        return _of_cluster(asked, ignored)
    stdin = sys.stdin.buffer.read(LARGEST_BYTES + 1) if STDIN in asked.files else b""
    report = check_files(asked.files, time.time(), ignored, stdin)
    return CheckResult(report, f"{len(asked.files)} file(s)")


def _of_cluster(asked: CheckRequest, ignored: frozenset[str]) -> CheckResult:
    """What RBAC refuses is said on stderr."""
    namespace = None if asked.everywhere else asked.namespace

    async def ask() -> CheckResult:
        client = await connect(asked.kubeconfig, asked.context, Random())  # noqa: S311  jitter
        try:
            live = await check_cluster(client, namespace, time.time(), ignored)
        finally:
            await client.close()
        for reason in live.refused:
            click.echo(f"not read: {reason}", err=True)
        if live.blind:
            raise click.ClickException("nothing was checked: no kind of object could be read")
        if not live.seen:
            where = "the cluster" if namespace is None else f"namespace {namespace}, if there is one"
            click.echo(f"nothing to check: no object of a kind that is read is in {where}", err=True)
        return CheckResult(LintReport(live.problems, 0, {}, {}), f"{live.seen} object(s)")

    try:
        return asyncio.run(ask())
    except (ApiFailure, CannotConnect) as failure:
        raise click.ClickException(str(failure)) from failure


def _orders(orders: Mapping[str, list[str]]) -> Iterator[str]:
    """What people have ordered, now and next."""
    for workload, lines in list(orders.items())[:MOST_SHOWN]:
        yield from (f"  {workload}: {line}" for line in lines)
    if len(orders) > MOST_SHOWN:
        yield f"  and orders of {len(orders) - MOST_SHOWN} more"
