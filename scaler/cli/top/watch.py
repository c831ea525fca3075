"""Runs the loop of `tidegate top`: fetch, draw, wait for a key. If the daemon fails, the last rows stay, with their
age.

Worked example: `watch("http://localhost:8080", interval_s=2.0)` returns if q is pressed.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TextIO
from urllib.parse import quote, urlencode

from rich.console import Console
from rich.live import Live

from scaler.explain import terminal

from ..client import Unanswered, document
from .screen import Key, Row, TopView, draw, key, rows_that_fit

TIMEOUT_S = 10.0
HISTORY_INTERVAL_S = 15.0  # an hour in 20 columns: one of them is three minutes
POINTS = 20
SMALL_FLEET = 200  # so many histories are fetched at once; in a larger fleet one by one, only those on the screen
_KEY_BYTES = 64  # an arrow key is three bytes, the first of which alone would be Esc


@dataclass(slots=True)
class ServerRows:
    """The last rows and histories of a server. Times are monotonic seconds. error: of the last fetch, None if it
    succeeded.
    """

    server: str
    rows: Mapping[str, Any] | None = None
    fetched_at: float = 0.0
    error: str | None = None
    histories: dict[Key, Mapping[str, Any]] = field(default_factory=dict)
    histories_at: float = float("-inf")

    def fetch(self, shown: int, at: float) -> None:
        """shown: number of rows on the screen."""
        try:
            self.rows = document(self.server, "/api/v1/rows", TIMEOUT_S)
        except Unanswered as unanswered:
            self.error = str(unanswered)
            return
        self.error, self.fetched_at = None, at
        if at - self.histories_at >= HISTORY_INTERVAL_S:
            self.histories_at = at
            self._fetch_histories(self.rows["workloads"], shown)

    def view(self, at: float) -> TopView:
        failure = None if self.error is None else (self.error, at - self.fetched_at)
        return TopView(self.rows, self.histories, failure)

    def _fetch_histories(self, rows: Sequence[Row], shown: int) -> None:
        if len(rows) <= SMALL_FLEET:
            paths = ["/api/v1/history?" + urlencode({"points": POINTS})]
        else:
            paths = [_history_path(row) for row in rows[:shown]]
        try:
            found = [series for path in paths for series in document(self.server, path, TIMEOUT_S)["workloads"]]
        except Unanswered:
            return  # charts are optional; the fetch of the rows reports an unreachable server
        self.histories = {key(series): series for series in found}


def print_once(server: str) -> None:
    """Prints all rows. Raises Unanswered."""
    out = terminal.console(None)
    fetched = _fetch_first(server, 0)
    out.print(draw(fetched.view(fetched.fetched_at), out.width, None), soft_wrap=not out.is_terminal)


def watch(server: str, interval_s: float) -> None:
    """Returns on q, Esc, Ctrl-C or a hang-up. Raises Unanswered if the first fetch fails."""
    console = Console()
    if not console.is_terminal:
        print_once(server)
        return
    fetched = _fetch_first(server, rows_that_fit(console.height))
    with (
        suppress(KeyboardInterrupt),
        keys(sys.stdin) as wait_for_key,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            view = fetched.view(time.monotonic())
            live.update(draw(view, console.width, console.height), refresh=True)
            if ends(wait_for_key(interval_s)):
                return
            fetched.fetch(rows_that_fit(console.height), time.monotonic())


@contextmanager
def keys(source: TextIO) -> Iterator[Callable[[float], str | None]]:
    """Yields a function that waits for a key, without Enter, for some seconds: the key, None after that time, or "" if
    the terminal has hung up. Restores the terminal's mode. Without a terminal there is never a key.
    """
    if not source.isatty():
        yield _wait_without_terminal
        return
    descriptor = source.fileno()
    before = termios.tcgetattr(descriptor)

    def wait_for_key(timeout_s: float) -> str | None:
        ready, _, _ = select.select([descriptor], [], [], timeout_s)
        return _read_key(descriptor) if ready else None

    try:
        tty.setcbreak(descriptor)
        yield wait_for_key
    finally:
        with suppress(termios.error):  # the terminal has hung up
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def ends(key: str | None) -> bool:
    """key: None if there is none yet, "" after a hang-up. An arrow key begins with Esc but does not end the loop."""
    return key is not None and (key in ("", "\x1b") or "q" in key.lower())


def _fetch_first(server: str, shown: int) -> ServerRows:
    """Raises Unanswered."""
    rows = ServerRows(server)
    rows.fetch(shown, time.monotonic())
    if rows.error is not None:
        raise Unanswered(rows.error)
    return rows


def _history_path(row: Row) -> str:
    namespace, name, trigger = key(row)
    query = {"points": POINTS, **({"trigger": trigger} if trigger else {})}
    return f"/api/v1/history/{quote(namespace, safe='')}/{quote(name, safe='')}?{urlencode(query)}"


def _read_key(descriptor: int) -> str:
    """Not by the stream: select does not see what the stream has buffered."""
    try:
        return os.read(descriptor, _KEY_BYTES).decode(errors="replace")
    except OSError:  # EIO: the terminal has hung up
        return ""


def _wait_without_terminal(timeout_s: float) -> None:
    time.sleep(timeout_s)
