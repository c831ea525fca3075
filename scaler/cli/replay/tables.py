"""What `tidegate replay` shows to people: a table per load, and what it was played on.

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


def replay_tables(verdicts: Sequence[TraceResult], console: Console | None = None) -> None:
    out = terminal.console(console)
    for verdict in verdicts:
        out.print(Text(verdict.load.name, HEAD), Text(_facts(verdict), DIM))
        out.print(Text(f"Server {verdict.profile.name}; {describe_slo(verdict.profile.slo)}.", DIM))
        for note in verdict.notes:
            out.print(Text(note, DIM))
        out.print()
        out.print(_table(verdict))
        out.print()
        out.print(Text(verdict.bounds(), DIM))
        out.print()


def _facts(verdict: TraceResult) -> str:
    load = verdict.load
    return (
        f"{len(load.at):,} requests in {load.span_s / 3600:.2f} h, {load.prompt.mean():,.0f} prompt and "
        f"{load.output.mean():,.0f} output tokens on average"
    )


def _table(verdict: TraceResult) -> Table:
    table = bare_table()
    table.add_column("policy")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for one in verdict.played:
        score = one.score
        kept = score.slo_met_ratio >= verdict.profile.slo.share
        policy = Text.assemble(one.name, (f" {one.label}" if one.label else "", DIM))
        table.add_row(policy, *_cells(score, verdict.ratio(score.gpu_hours), kept=kept))
    return table


def _cells(score: Score, ratio: float, *, kept: bool) -> list[Text]:
    return [
        Text(shown(100 * score.slo_met_ratio, 2, " %"), GOOD if kept else BAD),
        *(
            Text(words)
            for words in (
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
