"""The command itself: its options, and how it ends. It imports what it needs when it runs, so that `--help` is quick.

Worked example: `tidegate top --once | grep chat`.
"""

from __future__ import annotations

import click

from ..output import SERVER


@click.command(short_help="Watch a running daemon's workloads in the terminal.")
@SERVER
@click.option(
    "--interval", default=2.0, type=click.FloatRange(min=0.1), show_default=True, help="Seconds between two looks."
)
@click.option("--once", is_flag=True, help="Print all rows and end; also where the output is no terminal.")
def top(server: str, interval: float, once: bool) -> None:
    """Watch a running daemon's workloads in the terminal, trouble first: the rows of its live page. q ends it."""
    from ..client import Unanswered
    from . import watch

    try:
        if once:
            watch.once(server)
        else:
            watch.watch(server, interval)
    except Unanswered as error:
        raise click.ClickException(str(error)) from None
