"""Runs the loop of `tidegate top`: fetch, draw, wait for a key. If the daemon fails, the last rows stay, with their
age.

Worked example: `watch("http://localhost:8080", interval_s=2.0)` returns if q is pressed. A key is drawn at once; the
rows are fetched every two seconds all the same.
"""

from __future__ import annotations

import io
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TextIO
from urllib.parse import quote, urlencode

from rich.console import Console
from rich.live import Live
from rich.text import Text

from scaler.explain import terminal

from ..client import Unanswered, document
from ..explain import BadExplainRequest, ExplainRequest, explain_tables
from ..explain import fetch as fetch_explanation
from .keys import START, Choice, Key, Row, key, matching, press, split
from .screen import TopView, draw, rows_that_fit, window

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

    def fetch(self, shown: Callable[[Sequence[Row]], Sequence[Row]], at: float) -> None:
        """shown: those of all rows that are on the screen."""
        try:
            self.rows = document(self.server, "/api/v1/rows", TIMEOUT_S)
        except Unanswered as unanswered:
            self.error = str(unanswered)
            return
        self.error, self.fetched_at = None, at
        if at - self.histories_at >= HISTORY_INTERVAL_S:
            self.histories_at = at
            self._fetch_histories(self.rows["workloads"], shown)

    @property
    def workloads(self) -> Sequence[Row]:
        return () if self.rows is None else self.rows["workloads"]

    def view(self, at: float, choice: Choice = START, explanation: Sequence[Text] = ()) -> TopView:
        failure = None if self.error is None else (self.error, at - self.fetched_at)
        return TopView(self.rows, self.histories, failure, choice, explanation)

    def explanation(self, choice: Choice, width: int) -> Sequence[Text]:
        """The explanation of the selected workload, as lines; or why there is none."""
        request = ExplainRequest("/".join(part for part in choice.selected or () if part), server=self.server)
        text = io.StringIO()
        out = Console(file=text, width=width, force_terminal=True, color_system="truecolor", highlight=False)
        try:
            explain_tables(fetch_explanation(request, time.time()), out)
        except (BadExplainRequest, Unanswered) as error:
            return [Text(terminal.plain(str(error)), terminal.BAD)]
        return list(Text.from_ansi(text.getvalue()).split("\n"))

    def _fetch_histories(self, rows: Sequence[Row], shown: Callable[[Sequence[Row]], Sequence[Row]]) -> None:
        if len(rows) <= SMALL_FLEET:
            paths = ["/api/v1/history?" + urlencode({"points": POINTS})]
        else:
            paths = [_history_path(row) for row in shown(rows)]
        try:
            found = [series for path in paths for series in document(self.server, path, TIMEOUT_S)["workloads"]]
        except Unanswered:
            return  # charts are optional; the fetch of the rows reports an unreachable server
        self.histories = {key(series): series for series in found}


def print_once(server: str) -> None:
    """Prints all rows. Raises Unanswered."""
    out = terminal.console(None)
    fetched = _fetch_first(server, lambda _: ())
    out.print(draw(fetched.view(fetched.fetched_at), out.width, None), soft_wrap=not out.is_terminal)


def watch(server: str, interval_s: float) -> None:
    """Returns on q, Ctrl-C or a hang-up. Raises Unanswered if the first fetch fails."""
    console = Console()
    if not console.is_terminal:
        print_once(server)
        return
    choice = START
    explanation: Sequence[Text] = ()

    def shown(rows: Sequence[Row]) -> Sequence[Row]:
        return window(matching(rows, choice), choice, console.height)

    fetched = _fetch_first(server, shown)
    due = time.monotonic() + interval_s
    with (
        suppress(KeyboardInterrupt),
        keys(sys.stdin) as wait_for_key,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            view = fetched.view(time.monotonic(), choice, explanation)
            live.update(draw(view, console.width, console.height), refresh=True)
            typed = wait_for_key(max(0.0, due - time.monotonic()))
            before = choice
            for each in () if typed is None else split(typed):
                changed = press(choice, each, matching(fetched.workloads, choice), rows_that_fit(console.height))
                if changed is None:
                    return
                choice = changed
            is_due = time.monotonic() >= due
            if choice.page == "explain" and (is_due or before.page != "explain"):
                explanation = fetched.explanation(choice, console.width)
            choice = replace(choice, scroll=min(choice.scroll, max(0, len(explanation) - 1)))
            if is_due:
                fetched.fetch(shown, time.monotonic())
                due = time.monotonic() + interval_s


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


def _fetch_first(server: str, shown: Callable[[Sequence[Row]], Sequence[Row]]) -> ServerRows:
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
