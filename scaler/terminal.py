"""How tables look wherever a command prints some: colours, a thin line, and one line per row in a pipe; and how the
states of workloads look.

Worked example: `console(None)` is the terminal as it is, or, in a pipe, a console of `PIPE_WIDTH` without colours.
"""

from __future__ import annotations

from rich.box import Box
from rich.console import Console
from rich.table import Table

from exporter.model import printable

from .rows import Severity, State

HEAD, DIM, GOOD, WARN, BAD = "bold #9bd8d3", "grey50", "#57c785", "#e6c88c", "#e6806c"
STATES = {
    State.SERVING: ("●", GOOD),
    State.IDLE_WARM: ("○", WARN),
    State.LOADING: ("◐", "#b79cf0"),
    State.PENDING: ("◌", "#d59be0"),
    State.ASLEEP: ("☾", "#6f8fcf"),
    State.UNKNOWN: ("◆", BAD),
}  # a sign of its own, so that nobody needs its colour
SEVERITIES = {Severity.TROUBLE: BAD, Severity.NOTICE: WARN, Severity.FINE: DIM}
UNKNOWN = "\N{EN DASH}"
PIPE_WIDTH = 1000  # wider than any row: nothing is folded where nobody looks
# A thin line under the head and nothing else.
_BOX = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")


def console(given: Console | None) -> Console:
    out = given or Console()
    if out.is_terminal:
        return out
    return Console(file=out.file, width=PIPE_WIDTH, force_terminal=False, color_system=None)


def bare_table() -> Table:
    return Table(box=_BOX, show_edge=False, pad_edge=True, header_style=DIM, border_style=DIM)


def plain(text: str) -> str:
    """A stranger's words, with nothing in them that a terminal would obey."""
    return printable(text)
