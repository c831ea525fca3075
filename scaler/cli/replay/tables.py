"""Prints the results of `tidegate replay`: a table for each trace, and the server profile.

Worked example: a row is `tidegate work=16   99.63 %   170.2   1.17x   0.21 s   1.32 s   812   4.1   13`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scaler.explain import terminal
from scaler.explain.terminal import BAD, DIM, GOOD, HEAD, bare_table
from scaler.replay.report import TraceResult, describe_slo
from scaler.replay.run import Score, shown

_COLUMNS = ("SLO met", "GPU-hours", "of the plan", "TTFT mean", "TTFT p99", "changes", "flaps a day", "cold starts")


def replay_tables(results: Sequence[TraceResult], console: Console | None = None) -> None:
    out = terminal.console(console)
    for result in results:
        out.print(Text(result.load.name, HEAD), Text(_summary(result), DIM))
        out.print(Text(f"Server {result.profile.name}; {describe_slo(result.profile.slo)}.", DIM))
        for note in result.notes:
            out.print(Text(note, DIM))
        out.print()
        out.print(_table(result))
        out.print()
        if comparison := result.comparison():
            out.print(Text("\n".join(comparison)))
            out.print()
        out.print(Text(result.bounds(), DIM))
        out.print()


def _summary(result: TraceResult) -> str:
    load = result.load
    return (
        f"{len(load.at):,} requests in {load.span_s / 3600:.2f} h, {load.prompt.mean():,.0f} prompt and "
        f"{load.output.mean():,.0f} output tokens on average"
    )


def _table(result: TraceResult) -> Table:
    table = bare_table()
    table.add_column("policy")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for one in result.played:
        score = one.score
        kept = score.slo_met_ratio >= result.profile.slo.share
        policy = Text.assemble(one.name, (f" {one.label}" if one.label else "", DIM))
        table.add_row(policy, *_cells(score, result.ratio(score.gpu_hours), kept=kept))
    return table


def _cells(score: Score, ratio: float, *, kept: bool) -> list[Text]:
    return [
        Text(shown(100 * score.slo_met_ratio, 2, " %"), GOOD if kept else BAD),
        *(
            Text(cell)
            for cell in (
                shown(score.gpu_hours, 1),
                shown(ratio, 2, "x"),
                shown(score.ttft_mean_s, 2, " s"),
                shown(score.ttft_p99_s, 2, " s"),
                f"{score.changes:,}",
                shown(score.flaps_per_day, 1),
                f"{score.cold_starts:,}",
            )
        ),
    ]
