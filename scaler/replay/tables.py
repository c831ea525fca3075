"""What `tidegate replay` shows to people: a table per load, and what it was played on.

Worked example: a row is `tidegate work=16   99.63 %   170.2   1.17x   0.21 s   1.32 s   812   4.1   13`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from rich.box import Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .score import Score
from .verdict import Verdict, in_words

_HEAD, _DIM, _GOOD, _BAD = "bold #9bd8d3", "grey50", "#57c785", "#e6806c"
_BOX = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
_COLUMNS = (
    "promise kept",
    "GPU-hours",
    "of the plan",
    "TTFT mean",
    "TTFT p99",
    "changes",
    "flaps a day",
    "cold starts",
)
PIPE_WIDTH = 1000


def replay_tables(verdicts: Sequence[Verdict], console: Console | None = None) -> None:
    out = console or Console()
    if not out.is_terminal:
        out = Console(file=out.file, width=PIPE_WIDTH, force_terminal=False, color_system=None)
    for verdict in verdicts:
        out.print(Text(verdict.load.name, _HEAD), Text(_facts(verdict), _DIM))
        out.print(Text(f"Server {verdict.profile.name}; {in_words(verdict.profile.promise)}.", _DIM))
        for note in verdict.notes:
            out.print(Text(note, _DIM))
        out.print()
        out.print(_table(verdict))
        out.print()
        out.print(Text(verdict.bounds(), _DIM))
        out.print()


def _facts(verdict: Verdict) -> str:
    load = verdict.load
    return (
        f"{len(load.at):,} requests in {load.span_s / 3600:.2f} h, {load.prompt.mean():,.0f} prompt and "
        f"{load.output.mean():,.0f} output tokens on average"
    )


def _table(verdict: Verdict) -> Table:
    table = Table(box=_BOX, pad_edge=False, header_style=_DIM)
    table.add_column("policy")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for one in verdict.played:
        score = one.score
        kept = score.slo_met_ratio >= verdict.profile.promise.share
        policy = Text.assemble(one.name, (f" {one.label}" if one.label else "", _DIM))
        table.add_row(policy, *_cells(score, verdict.ratio(score.gpu_hours), kept=kept))
    return table


def _cells(score: Score, ratio: float, *, kept: bool) -> list[Text]:
    return [
        Text(_number(100 * score.slo_met_ratio, 2, " %"), _GOOD if kept else _BAD),
        *(
            Text(words)
            for words in (
                _number(score.gpu_hours, 1),
                _number(ratio, 2, "x"),
                _number(score.ttft_mean_s, 2, " s"),
                _number(score.ttft_p99_s, 2, " s"),
                f"{score.changes:,}",
                _number(score.flaps_per_day, 1),
                f"{score.cold_starts:,}",
            )
        ),
    ]


def _number(value: float, digits: int, unit: str = "") -> str:
    return "\N{EN DASH}" if isnan(value) else f"{value:,.{digits}f}{unit}"
