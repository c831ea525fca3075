"""Draws the demo's day on a terminal, or prints it as plain lines without one.

The charts' width is the whole day, so nothing scrolls: they fill from left to right. All times are simulated.

Worked example:

    with open_screen(Console(), DemoLinks(8080, "tidegate")) as show:
        show(frame)  # as often as needed
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from scaler.explain.summary import STATES as STATE_WORDS
from scaler.explain.summary import WorkloadState
from scaler.explain.terminal import STATES, curve, gauges, stack

from .cluster import DemoSlo
from .summary import slo_phrase
from .world import ScreenFrame

DEFAULT_PORT = 8080  # the default of `--server`
PLAIN_INTERVAL_S = 30.0  # simulated: longest time between two plain lines
PLAIN_HEAD = "time     state      demand wanted ready  requests/s  held waiting running"
_KEPT_FRAMES = 480  # of a day: more than the columns of any terminal
_LABEL, _VALUE = 10, 22
_LOADING = STATES[WorkloadState.LOADING][1]
_BLUE, _LIGHT, _YELLOW, _DARK, _DIM = "#3aa6b9", "#9bd8d3", "#e6c88c", "#27404f", "grey50"


@dataclass(frozen=True, slots=True)
class DemoLinks:
    """Where a user looks at the demo's daemon. program: how the user calls it."""

    port: int
    program: str

    @property
    def page(self) -> str:
        return f"http://localhost:{self.port}/"

    def command(self, arguments: str) -> str:
        server = "" if self.port == DEFAULT_PORT else f" --server localhost:{self.port}"
        return f"{self.program} {arguments}{server}"

    def next_steps(self) -> str:
        return (
            f"\nThe daemon runs on until Ctrl-C. Live page: {self.page}\n"
            "Its times are simulated, from 2000-01-01 on. In another terminal:\n"
            f"  {self.command('explain demo/chat')}\n"
            f"  {self.command('top')}\n"
            "Next, in a cluster to zero and back: docs/tutorials/quickstart.md"
        )


@contextmanager
def open_screen(console: Console, links: DemoLinks) -> Iterator[Callable[[ScreenFrame], None]]:
    """Yields a function that shows a frame: a live view on a terminal, else plain lines."""
    if not console.is_terminal:
        head = [f"live page: {links.page}", f"in another terminal: {links.command('top')}"]
        head += [f"SLO: {slo_phrase(DemoSlo())}", "Times are simulated.", PLAIN_HEAD]
        for line in head:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        yield plain_printer(console)
        return
    history: list[ScreenFrame] = []
    # No refresh thread: a frame is drawn in the event loop when it is shown.
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

        def show(frame: ScreenFrame) -> None:
            remember(history, frame)
            live.update(draw(history, links, console.width, console.height), refresh=True)

        yield show


def remember(history: list[ScreenFrame], frame: ScreenFrame) -> None:
    """Appends the frame, or replaces the last one if less than a column of the chart lies between the two before."""
    if history and frame.at_s < history[-1].at_s:
        history.clear()  # another day
    if len(history) > 1 and history[-1].at_s - history[-2].at_s < frame.duration_s / _KEPT_FRAMES:
        history[-1] = frame
    else:
        history.append(frame)


def clock_text(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{rest:02d}"


def draw(history: Sequence[ScreenFrame], links: DemoLinks, width: int, height: int) -> RenderableType:
    """The whole view. history: at least one frame, the present one last."""
    frame = history[-1]
    chart_width = max(20, min(width, 160) - _LABEL - _VALUE - 4)
    columns = by_column(history, chart_width)
    # Three curves of `rows` lines among 17 others, and a free line for a prompt below.
    rows = max(1, min(4, (height - 18) // 3))
    body = Table.grid(padding=(0, 1))
    body.add_column(width=_LABEL, style=_DIM)
    body.add_column(width=chart_width, no_wrap=True)
    body.add_column(width=_VALUE, no_wrap=True)
    load = [math.nan if column is None else column.arrivals_per_s for column in columns]
    body.add_row("load", _lines(curve(load, _top(load, 1.0), rows, _BLUE)), f"{frame.arrivals_per_s:.1f} requests/s")
    queue = [math.nan if column is None else float(column.held + column.waiting) for column in columns]
    body.add_row("queues", _lines(curve(queue, _top(queue, 10.0), rows, _YELLOW)), _queues(frame))
    body.add_row("GPUs", gauges(frame.gpu_active, chart_width, _LIGHT, _DARK), _gpus(frame))
    demand = [math.nan if column is None or column.demand is None else column.demand for column in columns]
    demand_text = Text("unknown", _DIM) if frame.demand is None else Text(f"{frame.demand:.2f} replicas")
    body.add_row("demand", _lines(curve(demand, _top(demand, 8.0), rows, _LIGHT)), demand_text)
    most = max([8, *(column.wanted + column.draining for column in columns if column)])
    body.add_row("replicas", _lines(stack([_units(column) for column in columns], -(-most // 2))), _replicas(frame))
    body.add_row("", _axis(frame.duration_s, chart_width), "")
    return Group(_header(frame, width), Text(), body, Text(), _texts(frame, links, width))


def by_column(history: Sequence[ScreenFrame], width: int) -> list[ScreenFrame | None]:
    """One frame for each column of the day: the last of its span, else the one before; None in the future."""
    columns: list[ScreenFrame | None] = [None] * width
    for frame in history:
        columns[min(width - 1, int(frame.at_s / frame.duration_s * width))] = frame
    now = min(width - 1, int(history[-1].at_s / history[-1].duration_s * width))
    for column in range(1, now + 1):
        columns[column] = columns[column] or columns[column - 1]
    return columns


def plain_line(frame: ScreenFrame, before: ScreenFrame | None = None) -> str:
    """One line below PLAIN_HEAD, and one for the last action of the stand-in if it is new."""
    demand = "unknown" if frame.demand is None else f"{frame.demand:.1f}"
    line = (
        f"{clock_text(frame.at_s):<9}{_word(frame):<10}{demand:>7}{frame.wanted:>7}{frame.ready:>6}"
        f"{frame.arrivals_per_s:>12.1f}{frame.held:>6}{frame.waiting:>8}{frame.running:>8}"
    )
    is_news = bool(frame.autoscaler) and (before is None or before.autoscaler != frame.autoscaler)
    return f"{line}\n{'':9}{frame.autoscaler}" if is_news else line


def _word(frame: ScreenFrame) -> str:
    return "starting" if frame.state is None else STATE_WORDS[frame.state].word


def plain_printer(console: Console, interval_s: float = PLAIN_INTERVAL_S) -> Callable[[ScreenFrame], None]:
    """A function that prints a frame if it differs, or after `interval_s`."""
    shown: list[ScreenFrame] = []

    def show(frame: ScreenFrame) -> None:
        if shown and not _differs(shown[-1], frame) and frame.at_s - shown[-1].at_s < interval_s:
            return
        console.print(plain_line(frame, shown[-1] if shown else None), markup=False, highlight=False, soft_wrap=True)
        shown[:] = [frame]

    return show


def _differs(before: ScreenFrame, after: ScreenFrame) -> bool:
    return (before.state, before.wanted, before.ready) != (after.state, after.wanted, after.ready)


def _top(values: Sequence[float], least: float) -> float:
    return max([least, *(value for value in values if not math.isnan(value))])


def _units(column: ScreenFrame | None) -> list[str]:
    """The pods of a column from the bottom: ready, loading, draining."""
    if column is None:
        return []
    return [_BLUE] * column.ready + [_LOADING] * column.loading + [_DARK] * column.draining


def _lines(lines: Sequence[Text]) -> Text:
    return Text("\n", no_wrap=True).join(lines)


def _queues(frame: ScreenFrame) -> Text:
    """At most two lines, for a constant height."""
    held = f"{frame.held} held" if frame.held else ""
    waiting = f"{frame.waiting} waiting" if frame.waiting else ""
    text = Text(", ".join(part for part in (held, waiting) if part), _YELLOW)
    return text.append("\n" if held or waiting else "").append(f"{frame.running} running", "default")


def _gpus(frame: ScreenFrame) -> Text:
    if not frame.gpu_active:
        return Text("none", _DIM)
    return Text(f"{sum(frame.gpu_active) / len(frame.gpu_active):.0%} busy".replace("%", " %"))


def _replicas(frame: ScreenFrame) -> Text:
    lines = [Text(f"{frame.wanted} wanted", "bold"), Text(f"{frame.ready} ready", _BLUE)]
    if frame.loading:
        lines.append(Text(f"{frame.loading} loading", _LOADING))
    if frame.draining:
        lines.append(Text(f"{frame.draining} draining", _DIM))
    return _lines(lines)


def _axis(duration_s: float, width: int) -> Text:
    """Minutes at the quarters of the day."""
    marks = [" "] * width
    for quarter in range(4):
        label = f"└{duration_s * quarter / 4 / 60:g} min"
        start = width * quarter // 4
        marks[start : start + len(label)] = label[: width - start]
    return Text("".join(marks[:width]), _DIM, no_wrap=True)


def _header(frame: ScreenFrame, width: int) -> RenderableType:
    table = Table.grid(expand=False)
    table.width = min(width, 160)
    table.add_column(ratio=1, no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    left = Text.assemble(("tidegate demo", f"bold {_LIGHT}"), f"  simulated {clock_text(frame.at_s)}")
    is_over = frame.at_s > frame.duration_s
    left.append(", the day is over" if is_over else f" of {clock_text(frame.duration_s)}", _DIM)
    table.add_row(left, Text(f"up to {frame.speed:g} s per second", _DIM))
    return table


def _texts(frame: ScreenFrame, links: DemoLinks, width: int) -> RenderableType:
    """Tidegate's decision, the last action of the stand-in, the SLO, the legend and the links: a line each."""
    room = max(20, min(width, 160) - _LABEL - 2)
    table = Table.grid(padding=(0, 1))
    table.add_column(width=_LABEL, style=_DIM)
    table.add_column(width=room, no_wrap=True)
    state = Text()
    if frame.state is not None:
        sign, colour = STATES[frame.state]
        state.append(f"{sign} {_word(frame)}", f"bold {colour}")
    if frame.reason:
        state.append(f"  {shorten(frame.reason, room - len(state) - 2)}")
    table.add_row("tidegate", state or Text("starting", _DIM))
    table.add_row("KEDA, HPA", Text(shorten(frame.autoscaler or "no action yet (a stand-in plays both)", room), _DIM))
    table.add_row("result", Text(shorten(_result(frame), room), _DIM))
    table.add_row("SLO", Text(shorten(slo_phrase(DemoSlo()), room), _DIM))
    table.add_row("legend", _legend())
    table.add_row("live page", Text(links.page, _LIGHT))
    table.add_row("terminal", Text(links.command("top"), _LIGHT))
    return table


def _result(frame: ScreenFrame) -> str:
    met = "" if frame.slo_met_ratio is None else f", {frame.slo_met_ratio:.1%} within the SLO".replace("%", " %")
    return f"{frame.answered:,} of {frame.sent:,} answered{met}, {frame.gpu_hours:.2f} GPU-hours"


def _legend() -> Text:
    blocks = ((_BLUE, "ready"), (_LOADING, "loading"), (_DARK, "draining"))
    replicas = [part for colour, name in blocks for part in (("█", colour), (f" {name}  ", _DIM))]
    return Text.assemble(*replicas, ("GPUs: a bar each, held: at gateway", _DIM))


def shorten(text: str, width: int) -> str:
    """The words that fit, and "…" if some do not."""
    if len(text) <= width:
        return text
    return f"{text[: width - 1].rpartition(' ')[0]} …"[:width]
