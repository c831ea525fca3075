"""The loop of `tidegate top`: ask, draw, wait for a key. What was shown last stays when nobody answers, with its age.

Worked example: `watch("http://localhost:8080", interval_s=2.0)` ends when somebody presses q.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from rich.console import Console
from rich.live import Live

from scaler.explain import terminal

from ..client import Unanswered, document
from .keys import keys
from .screen import Key, Row, TopView, drawn, key, rows_that_fit

PATIENCE_S = 10.0
HISTORY_S = 15.0  # an hour of 20 columns: one of them is three minutes
POINTS = 20
SMALL_FLEET = 200  # workloads whose histories are asked for at once; of more, only those on the screen, one by one


@dataclass(slots=True)
class ServerRows:
    """What a server has said. Times are a steady clock's seconds."""

    server: str
    rows: Mapping[str, Any] | None = None
    answered_at: float = 0.0
    silent: str | None = None
    histories: dict[Key, Mapping[str, Any]] = field(default_factory=dict)
    charted_at: float = float("-inf")

    def ask(self, fitting: int, at: float) -> None:
        """fitting: how many rows a screen shows."""
        try:
            self.rows = document(self.server, "/api/v1/rows", PATIENCE_S)
        except Unanswered as unanswered:
            self.silent = str(unanswered)
            return
        self.silent, self.answered_at = None, at
        if at - self.charted_at >= HISTORY_S:
            self.charted_at = at
            self._chart(self.rows["workloads"], fitting)

    def view(self, at: float) -> TopView:
        silent = None if self.silent is None else (self.silent, at - self.answered_at)
        return TopView(self.rows, self.histories, silent)

    def _chart(self, rows: Sequence[Row], fitting: int) -> None:
        small = len(rows) <= SMALL_FLEET
        asked = (
            ["/api/v1/history?" + urlencode({"points": POINTS})] if small else [_path(row) for row in rows[:fitting]]
        )
        try:
            said = [series for path in asked for series in document(self.server, path, PATIENCE_S)["workloads"]]
        except Unanswered:
            return  # charts are a part that may be missing; that nobody answers at all, the rows say
        self.histories = {key(series): series for series in said}


def once(server: str) -> None:
    """Print all rows. Raises Unanswered."""
    out = terminal.console(None)
    asked = begun(server, 0)
    out.print(drawn(asked.view(asked.answered_at), out.width, None), soft_wrap=not out.is_terminal)


def begun(server: str, fitting: int) -> ServerRows:
    """After the first answer. Raises Unanswered."""
    asked = ServerRows(server)
    asked.ask(fitting, time.monotonic())
    if asked.silent is not None:
        raise Unanswered(asked.silent)
    return asked


def watch(server: str, interval_s: float) -> None:
    """Until somebody presses q, Esc or Ctrl-C, or hangs up. Raises Unanswered where there was no answer at all."""
    console = Console()
    if not console.is_terminal:
        once(server)
        return
    asked = begun(server, rows_that_fit(console.height))
    with (
        suppress(KeyboardInterrupt),
        keys(sys.stdin) as pressed,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            view = asked.view(time.monotonic())
            live.update(drawn(view, console.width, console.height), refresh=True)
            if ends(pressed(interval_s)):
                return
            asked.ask(rows_that_fit(console.height), time.monotonic())


def ends(typed: str | None) -> bool:
    """typed: None is nothing yet, "" is that the terminal is gone and nobody looks any more. An arrow key begins with
    Esc, and is none.
    """
    return typed is not None and (typed in ("", "\x1b") or "q" in typed.lower())


def _path(row: Row) -> str:
    namespace, name, trigger = key(row)
    more = {"trigger": trigger} if trigger else {}
    return f"/api/v1/history/{quote(namespace, safe='')}/{quote(name, safe='')}?{urlencode({'points': POINTS, **more})}"
