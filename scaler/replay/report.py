"""Writes the results of a replay: the document of `-o json`, and one HTML file that needs nothing else.

The HTML file has a table, the trace, and every policy's replicas over time. Charts are SVG drawn here; the page has no
script, prints, and follows the reader's light or dark mode. Rows are sorted by value: first the policies that met the
SLO, the cheapest on top, then the others by the share of requests that met it.

Worked example: two policies on one trace make `{"load": "office", "server": "A", "slo": {…}, "policies": [{"name":
"tidegate", "slo_met_ratio": 0.996, "gpu_hours": 170.2, "ratio_to_clairvoyant": 1.17, …}, …]}`, and a page with one
table of two rows and three charts: the trace, and one per policy with the plan behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite, nan
from typing import Any

import numpy as np

from exporter.model import Floats
from scaler.policy.constraints import PRICES

from .clairvoyant import ClairvoyantPlan
from .columns import Trace
from .comparison import Compared, causes, sentences, sleep_sentences
from .run import Replayed, Score, score, shown, slo_met
from .servers import ReplaySlo, ServerProfile
from .walk import BIN_S


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """One policy on one load. parameters: those that are not the default, in the words of `--policy`."""

    name: str
    parameters: Mapping[str, int | float | str]
    course: Replayed

    @property
    def score(self) -> Score:
        return score(self.course)

    @property
    def label(self) -> str:
        return ",".join(f"{key}={value}" for key, value in self.parameters.items())


@dataclass(frozen=True, slots=True, eq=False)
class TraceResult:
    """One trace. plan: the clairvoyant one; None if it was not searched. fluid_gpu_hours: the lower bound of any
    policy; gap_gpu_hours: of one that starts on a request (`gap_clairvoyant`). gpu_hour: money for a GPU-hour.

    notes: about how the load was read.
    """

    load: Trace
    profile: ServerProfile
    played: Sequence[Played]
    plan: ClairvoyantPlan | None
    fluid_gpu_hours: float
    gap_gpu_hours: float
    notes: Sequence[str] = ()
    gpu_hour: float = PRICES.gpu_hour

    def ratio(self, gpu_hours: float) -> float:
        return gpu_hours / self.plan.gpu_hours if self.plan is not None and self.plan.gpu_hours else nan

    def to_document(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "load": self.load.name,
            "server": self.profile.name,
            "slo": _slo_document(self.profile.slo),
            "requests": len(self.load.at),
            "span_s": self.load.span_s,
            "fluid_bound_gpu_hours": self.fluid_gpu_hours,
            "gap_clairvoyant_gpu_hours": self.gap_gpu_hours,
            "clairvoyant": None,
            "gpu_hour": self.gpu_hour,
            "comparison": self.comparison(),
            "policies": [self._policy(one) for one in self.played],
            "notes": list(self.notes),
        }
        if self.plan is not None:
            document["clairvoyant"] = {"gpu_hours": self.plan.gpu_hours, "slo_met_ratio": self.plan.slo_met_ratio}
        return document

    def _policy(self, one: Played) -> dict[str, Any]:
        numbers = one.score
        document = {"name": one.name, "parameters": dict(one.parameters), **numbers._asdict()}
        document["ratio_to_clairvoyant"] = self.ratio(numbers.gpu_hours)
        document["late"] = causes(one.course)._asdict()
        order = ("name", "parameters", "slo_met_ratio", "gpu_hours", "ratio_to_clairvoyant")
        document = {key: document[key] for key in order} | document
        return {key: _or_null(value) for key, value in document.items()}

    def to_section(self) -> TraceSection:
        share = self.profile.slo.share
        return TraceSection(
            load=self.load,
            server=_server(self.profile),
            slo=describe_slo(self.profile.slo),
            rows=[
                ResultRow(
                    one.name, one.label, one.course, one.score, one.score.slo_met_ratio >= share, self.ratio(hours)
                )
                for one in self.played
                for hours in (one.score.gpu_hours,)
            ],
            plan=None if self.plan is None else self.plan.ready.astype(float),
            bin_s=BIN_S,
            comparison=self.comparison(),
            bounds=self.bounds(),
            notes=self.notes,
        )

    def comparison(self) -> list[str]:
        """Which policy won, why the others did not, and what sleep mode did: a sentence each."""
        policies = [Compared(f"{one.name} {one.label}".rstrip(), one.course) for one in self.played]
        return [*sentences(policies, self.fluid_gpu_hours, self.gpu_hour), *sleep_sentences(policies, self.gpu_hour)]

    def bounds(self) -> str:
        """The plan, if it was searched, and the two lower bounds: a sentence each."""
        bounds = (
            f"gap-clairvoyant: at least {self.gap_gpu_hours:.1f} GPU-hours for a policy that starts on a request, even "
            f"if it knows all gaps, without sleep mode. {self.fluid_gpu_hours:.1f} GPU-hours are a lower bound: full "
            "batches, and starting is free."
        )
        if self.plan is None:
            return bounds
        kept = f"{100 * self.plan.slo_met_ratio:.2f} %"
        return (
            f"The plan with the load known in advance takes {self.plan.gpu_hours:.1f} GPU-hours and keeps {kept}, as "
            f"far as descent in the same simulator found one. {bounds}"
        )


def _server(profile: ServerProfile) -> str:
    gpus = f"{profile.gpus} GPU{'s' * (profile.gpus > 1)} a replica"
    return f"{profile.name}, {gpus}, which is ready {profile.start_s:g} s after it was ordered"


def describe_slo(slo: ReplaySlo) -> str:
    """Worked example: `99 % of requests: first token in 2 s + 0.17 s per 1,000 prompt tokens, the rest in 0.5 s + 60 ms
    per token`.
    """
    first = f"first token in {slo.first_s:g} s"
    if slo.first_per_prompt_s:
        first += f" + {1000 * slo.first_per_prompt_s:.2g} s per 1,000 prompt tokens"
    if not isfinite(slo.rest_s):
        return f"{100 * slo.share:g} % of requests: {first}"
    per_token = f"{1000 * slo.rest_per_token_s:g} ms per token"
    return f"{100 * slo.share:g} % of requests: {first}, the rest in {slo.rest_s:g} s + {per_token}"


def _slo_document(slo: ReplaySlo) -> dict[str, Any]:
    return {
        "share": slo.share,
        "first_token_s": slo.first_s,
        "first_token_s_per_prompt_token": slo.first_per_prompt_s,
        "rest_s": _or_null(slo.rest_s),
        "rest_s_per_token": slo.rest_per_token_s,
    }


def _or_null(value: Any) -> Any:
    """JSON has no NaN and no infinity: what is unknown, or has no limit, is null."""
    return None if isinstance(value, float) and not isfinite(value) else value


WIDTH, TALL, LOW, GUTTER = 1040, 110, 34, 44  # of a chart, in its own units: y axes stand in the gutter
BINS = 260
TICKS = 8  # at the most
PLANS = 2.0
ROUND_S = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 604_800)

STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --dim: #66727f; --line: #d9dfe5; --paper: #fbfcfd; --card: #fff;
  --sea: #1f6f8b; --deep: #0b3c4d; --plan: #c8553d; --queue: #b98a1d; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --dim: #93a1ae; --line: #2d3843; --paper: #11171d;
  --card: #182027; --sea: #4fa8c5; --deep: #8fd0e6; --plan: #ee8a73; --queue: #dcb45a; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1140px; padding: 32px 20px 64px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 20px; margin: 44px 0 2px; } h3 { font-size: 15px; margin: 0; }
ul { margin: 4px 0 12px; padding-left: 18px; max-width: 100ch; } li { margin: 2px 0; }
p { margin: 4px 0 12px; color: var(--dim); max-width: 80ch; }
section { margin-bottom: 24px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px 8px;
  margin: 12px 0; overflow-x: auto; }
.head { display: flex; gap: 16px; align-items: baseline; flex-wrap: wrap; } .head span { color: var(--dim); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--dim); font-weight: 500; } th:first-child, td:first-child { text-align: left; white-space: normal; }
tr:last-child td { border-bottom: 0; } .missed { color: var(--bad); } .best { font-weight: 650; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--dim); font: 11px system-ui, sans-serif; }
.grid { stroke: var(--line); } .wanted { fill: var(--sea); opacity: .28; } .ready { fill: var(--sea); opacity: .75; }
.plan { fill: none; stroke: var(--plan); stroke-width: 1.2; } .queue { fill: var(--queue); opacity: .8; }
.rate { fill: var(--sea); opacity: .75; } .late { fill: var(--bad); opacity: .8; }
.legend { max-width: none; } .legend b { font-weight: 500; } .key { display: inline-block; width: 11px;
  height: 11px; border-radius: 2px; margin: 0 5px 0 12px; vertical-align: -1px; }
"""


@dataclass(frozen=True, slots=True, eq=False)
class ResultRow:
    """One policy's outcome. kept: the SLO was met. ratio: GPU-hours over the plan's; NaN without a plan."""

    name: str
    parameters: str
    course: Replayed
    score: Score
    kept: bool
    ratio: float


@dataclass(frozen=True, slots=True, eq=False)
class TraceSection:
    """One load. plan: shape (bins,) replicas ready in each of `bin_s` seconds; None where none was looked for.

    notes: about how the load was read.
    """

    load: Trace
    server: str
    slo: str
    rows: Sequence[ResultRow]
    plan: Floats | None
    bin_s: float
    bounds: str
    notes: Sequence[str] = ()
    comparison: Sequence[str] = ()


def page(sections: Sequence[TraceSection]) -> str:
    body = "".join(_section(section) for section in sections)
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Tidegate replay</title><style>{STYLE}</style></head><body><h1>Tidegate replay</h1>"
        "<p>What each policy would have cost on these loads, and what it would have met of the SLO, in a "
        "simulated Deployment. Start-up times, batching and the age of metrics are modelled; prefix caches, preemption "
        f"and the provisioning of nodes are not.</p>{body}</body></html>\n"
    )


def _section(section: TraceSection) -> str:
    load = section.load
    facts = (
        f"{len(load.at):,} requests in {_span(load.span_s)}, {load.prompt.mean():,.0f} prompt and "
        f"{load.output.mean():,.0f} output tokens on average. Server {escape(section.server)}. "
        f"SLO: {escape(section.slo)}. {escape(section.bounds)}"
    )
    notes = "".join(f"<p>{escape(note)}</p>" for note in section.notes)
    won = "".join(f"<li>{escape(sentence)}</li>" for sentence in section.comparison)
    top, rows = _top(section), sorted(section.rows, key=_worth)
    charts = "".join(_policy(section, row, top) for row in rows)
    return (
        f"<section><h2>{escape(load.name)}</h2><p>{facts}</p>{notes}{_table(rows)}"
        f"{f'<ul>{won}</ul>' if won else ''}"
        f"<div class=card><div class=head><h3>Load</h3><span>requests per second</span></div>{_rate(load)}</div>"
        f"{_legend(section, top)}{charts}</section>"
    )


def _worth(row: ResultRow) -> tuple[bool, float]:
    return (False, row.score.gpu_hours) if row.kept else (True, -row.score.slo_met_ratio)


def _top(section: TraceSection) -> float:
    """The top of the scale that all policies share, in replicas: with a plan, at most PLANS times its peak.

    A policy that orders its maximum would otherwise flatten the others. A higher curve is cut, and its head says so.
    """
    highest = max([1.0, *(float(row.course.chart[:, 1:3].max()) for row in section.rows)])
    if section.plan is None:
        return highest
    peak = max(1.0, float(section.plan.max()))
    return min(max(highest, peak), PLANS * peak)


def _legend(section: TraceSection, top: float) -> str:
    """The legend of these charts. top: the end of their scale, replicas."""
    keys = [("background:var(--sea)", "ready"), ("background:var(--sea);opacity:.35", "ordered")]
    if section.plan is not None:
        keys.append(("background:var(--plan)", "the plan with the load known in advance"))
    if any(row.course.chart[:, 5].any() for row in section.rows):
        keys.append(("background:var(--queue)", "requests held because nothing is ready"))
    if any(not slo_met(row.course).all() for row in section.rows):
        keys.append(
            (
                "background:var(--bad)",
                "requests where the SLO was missed, by arrival; the first minutes are not judged",
            )
        )
    named = "".join(f"<i class=key style='{style}'></i><b>{text}</b>" for style, text in keys)
    cut = any(row.course.chart[:, 1].max() > top for row in section.rows)
    return f"<p class=legend>{named}{f' &nbsp; Charts are cut at {top:.0f} replicas.' if cut else ''}</p>"


def _table(rows: Sequence[ResultRow]) -> str:
    head = ("policy", "SLO met", "GPU-hours", "of the plan", "TTFT mean", "TTFT p99", "changes", "flaps a day")
    cells = "".join(f"<th>{name}</th>" for name in (*head, "cold starts"))
    cheapest = min((row.score.gpu_hours for row in rows if row.kept), default=None)
    return f"<div class=card><table><tr>{cells}</tr>{''.join(_line(row, cheapest) for row in rows)}</table></div>"


def _line(row: ResultRow, cheapest: float | None) -> str:
    score = row.score
    name = escape(row.name) + (
        f" <span style='color:var(--dim)'>{escape(row.parameters)}</span>" if row.parameters else ""
    )
    kept = f"<span{'' if row.kept else ' class=missed'}>{shown(100 * score.slo_met_ratio, 2, ' %')}</span>"
    best = " class=best" if row.kept and score.gpu_hours == cheapest else ""
    values = (
        f"<td>{kept}</td><td{best}>{shown(score.gpu_hours, 1)}</td>",
        f"<td>{shown(row.ratio, 2, '×')}</td><td>{shown(score.ttft_mean_s, 2, ' s')}</td>",
        f"<td>{shown(score.ttft_p99_s, 2, ' s')}</td><td>{score.changes:,}</td>",
        f"<td>{shown(score.flaps_per_day, 1)}</td><td>{score.cold_starts:,}</td>",
    )
    return f"<tr><td>{name}</td>{''.join(values)}</tr>"


def _policy(section: TraceSection, row: ResultRow, top: float) -> str:
    chart, span = row.course.chart, section.load.span_s
    upto = chart[chart[:, 0] <= span]
    second, wanted, ready, held = upto[:, 0], upto[:, 1], upto[:, 3], upto[:, 5]
    parts = [_frame(TALL, top, span), _steps("wanted", second, wanted, TALL, top, span)]
    parts.append(_steps("ready", second, ready, TALL, top, span))
    if section.plan is not None:
        moments = np.arange(len(section.plan), dtype=np.float64) * section.bin_s
        parts.append(_outline(moments, section.plan, TALL, top, span))
    below = ""
    if held.any():
        highest = float(held.max())
        queue = _frame(LOW, highest, span, ticks=False) + _steps("queue", second, held, LOW, highest, span)
        below = _svg(LOW, queue, f"{row.name}: requests held")
    below += _late(row)
    numbers = f"{shown(100 * row.score.slo_met_ratio, 2, ' %')} kept, {shown(row.score.gpu_hours, 1)} GPU-hours"
    most = max([int(wanted.max(initial=0.0)), *(order.after for order in row.course.orders if order.at <= span)])
    numbers += f", at most {most} replicas"
    return (
        f"<div class=card><div class=head><h3>{escape(row.name)}</h3><span>{escape(row.parameters)}</span>"
        f"<span>{numbers}</span></div>{_svg(TALL + 16, ''.join(parts), f'{row.name}: replicas')}{below}</div>"
    )


def _late(row: ResultRow) -> str:
    """Requests outside the SLO, by their arrivals; empty if there is none."""
    load, broken = row.course.load, ~slo_met(row.course)
    if not broken.any():
        return ""
    moments, counts = _binned(load.at[broken], load.span_s)
    top = float(counts.max())
    drawn = _frame(LOW, top, load.span_s, ticks=False) + _steps("late", moments, counts, LOW, top, load.span_s)
    return _svg(LOW, drawn, f"{row.name}: SLO misses")


def _binned(at: Floats, span_s: float) -> tuple[Floats, Floats]:
    """The beginnings of BINS parts of the load, and how many moments are in each."""
    width = span_s / BINS or 1.0
    counts = np.bincount(np.minimum((at / width).astype(np.int64), BINS - 1), minlength=BINS)
    return width * np.arange(BINS, dtype=np.float64), counts.astype(np.float64)


def _rate(load: Trace) -> str:
    moments, counts = _binned(load.at, load.span_s)
    rates = counts * BINS / (load.span_s or float(BINS))
    top = float(rates.max())
    drawn = _steps("rate", moments, rates, TALL, top, load.span_s)
    return _svg(TALL + 16, _frame(TALL, top, load.span_s) + drawn, f"{load.name}: requests per second")


def _svg(height: int, content: str, label: str) -> str:
    box = f"0 0 {GUTTER + WIDTH} {height}"
    return f"<svg viewBox='{box}' role=img aria-label='{escape(label, quote=True)}'>{content}</svg>"


def _frame(height: int, top: float, span: float, *, ticks: bool = True) -> str:
    """The axes: the highest value and zero, and a few round moments."""
    lines = [f"<line class=grid x1={GUTTER} x2={GUTTER + WIDTH} y1={y} y2={y} />" for y in (0.5, height - 0.5)]
    lines.append(f"<text x={GUTTER - 6} y=10 text-anchor=end>{top:,.3g}</text>")
    lines.append(f"<text x={GUTTER - 6} y={height} text-anchor=end>0</text>")
    if ticks:
        every = _tick_s(span)
        for second in np.arange(0.0, span + 1.0, every):
            x = GUTTER + WIDTH * second / max(span, 1e-9)
            anchor = "start" if second == 0.0 else "end" if x > WIDTH else "middle"
            lines.append(f"<text x={x:.0f} y={height + 13} text-anchor={anchor}>{_span(second)}</text>")
    return "".join(lines)


def _tick_s(span: float) -> float:
    return float(next((size for size in ROUND_S if span / size <= TICKS), max(ROUND_S[-1], span / TICKS)))


def _points(moments: Floats, values: Floats, height: int, top: float, span: float) -> list[str]:
    """Corners of a line that stands until the next value."""
    x = GUTTER + WIDTH * np.clip(moments / max(span, 1e-9), 0.0, 1.0)
    y = height - (height - 2) * np.minimum(values, top) / top
    turns = np.flatnonzero(np.diff(values, prepend=np.nan) != 0.0)
    corners: list[str] = []
    for turn in turns:
        if turn:
            corners.append(f"{x[turn]:.1f},{y[turn - 1]:.1f}")
        corners.append(f"{x[turn]:.1f},{y[turn]:.1f}")
    corners.append(f"{GUTTER + WIDTH},{y[-1]:.1f}")
    return corners


def _steps(kind: str, moments: Floats, values: Floats, height: int, top: float, span: float) -> str:
    if not len(values):
        return ""
    corners = _points(moments, values, height, top, span)
    start = corners[0].split(",")[0]
    return f"<path class={kind} d='M{start},{height} L{' '.join(corners)} L{GUTTER + WIDTH},{height} Z' />"


def _outline(moments: Floats, values: Floats, height: int, top: float, span: float) -> str:
    return f"<polyline class=plan points='{' '.join(_points(moments, values, height, top, span))}' />"


def _span(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}".replace(".0 ", " ")
    return f"{seconds:.0f} s"
