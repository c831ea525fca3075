"""The command `tidegate check`. It imports what it needs when it runs, so that `--help` is quick.

Worked example: `tidegate check scaledobject.yaml deployment.yaml` says what is wrong with both, seen together.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from .output import EX_PROBLEMS, OUTPUT, print_document


@click.command(short_help="Check configuration files, manifests, or a live namespace.")
@click.argument("files", nargs=-1, type=click.Path(allow_dash=True))
@click.option("--namespace", "-n", help="Check what lives in this namespace instead of files.")
@click.option("--all-namespaces", "-A", "everywhere", is_flag=True, help="Check the whole cluster.")
@click.option("--kubeconfig", type=click.Path(), help="Which cluster; as kubectl's, without it.")
@click.option("--context", help="Which context of the kubeconfig.")
@click.option("--ignore", "ignored", multiple=True, metavar="ID", help="A rule to ignore; may be repeated.")
@click.option("--strict", is_flag=True, help="Warnings fail too.")
@click.option("--rules", "listing", is_flag=True, help="List the rules.")
@click.option("--explain", "explained", metavar="ID", help="Print a rule's page: what it finds, why, fix, example.")
@OUTPUT
def check(
    files: Sequence[str],
    namespace: str | None,
    everywhere: bool,
    kubeconfig: str | None,
    context: str | None,
    ignored: Sequence[str],
    strict: bool,
    listing: bool,
    explained: str | None,
    output: str,
) -> None:
    """Check configuration files, and manifests before they are applied: what scales, what is scaled, and what measures
    it, seen together. `-` is standard input: `helm template . | tidegate check -`.

    Reports everything at once, as `file:line:column: severity RULE: key: what`; a line without a rule is what Tidegate
    would refuse. Of each workload it says what would wake it from zero and what brakes and schedules order.

    Manifests are checked against the configuration that is given beside them, else against its defaults. A rule is
    silenced on an object by `tidegate.dev/check-ignore: "ID because REASON"`.
    """
    from scaler.lint import report

    if listing or explained is not None:
        click.echo(report.explained(explained))
        return
    outcome = report.checked(report.CheckRequest(files, namespace, everywhere, kubeconfig, context, ignored))
    failed = outcome.fails(strict=strict)
    if output == "table":
        click.echo("\n".join(outcome.lines(failed)))
    else:
        print_document([problem.to_document() for problem in outcome.report.problems], output)
    sys.exit(EX_PROBLEMS if failed else 0)
