"""`tidegate doctor`, as the shell sees it. It imports what it needs when it runs.

Worked example: `tidegate doctor -c config.yaml` prints a line for each check, below those that are not well what to do,
and ends with status 1 if any failed.
"""

from __future__ import annotations

import sys

import click

from ..output import EX_PROBLEMS, OUTPUT, print_document


@click.command(short_help="Look whether everything is there that Tidegate needs.")
@click.option("-c", "--config", "file", type=click.Path(), help="Configuration file (YAML).")
@click.option(
    "--server",
    envvar="TIDEGATE_SERVER",
    show_envvar=True,
    help="URL of a running daemon; one on this machine is found.",
)
@OUTPUT
def doctor(file: str | None, server: str | None, output: str) -> None:
    """Look whether everything is there that Tidegate needs, and say what to do where it is not: Python and the kernels'
    cache, ports, the configuration, a daemon that runs, the rights in Kubernetes, KEDA, each page and each clock.

    In a cluster: `kubectl exec deploy/tidegate -- tidegate doctor -c /etc/tidegate/config/config.yaml`. Nothing is
    changed.
    """
    import asyncio
    import os

    from exporter.clock import WallClock

    from .run import examine

    checks = asyncio.run(examine(file, server, os.environ, WallClock()))
    if output == "table":
        from .table import show

        show(checks)
    else:
        print_document([check.to_document() for check in checks], output)
    sys.exit(EX_PROBLEMS if any(check.status == "fail" for check in checks) else 0)
