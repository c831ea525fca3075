"""Writes the report as one HTML file that needs nothing else: a statement with tables and plots.

Plots are inline SVG. The page has no script, prints, and follows the reader's light or dark mode.

Worked example: `page(build(accounts, profiles), "2026-11-01 to 2026-11-30")` has a bar of GPU-hours by state for each
workload, the table behind it, and a card for each profile with its verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from scaler.signals.usage import BUCKETED, Distribution, Usage

from .binding import Verdict, percent
from .ledger import HELD, OVERSIZED_PART, Document, label
from .profile import NAMES, P50, P95, QUANTILE_NAMES, of_document
from .statement import UNKNOWN, ReportSection, amount, keep_warm_section, reconciled, verdict_name

_P05, _P25, _P75 = (QUANTILE_NAMES.index(name) for name in ("p05", "p25", "p75"))
SHOWN_STATES = (*HELD, "pending", "asleep")
_STATE_NAMES = {"idle_warm": "idle"}

STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --dim: #5d6975; --line: #d9dfe5; --paper: #fbfcfd; --card: #fff;
  --serving: #1f7a5c; --idle_warm: #c98a1b; --loading: #7b61c4; --unknown: #b3261e; --free: #9aa7b3; --deep: #0b3c4d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --dim: #9aa8b5; --line: #2d3843; --paper: #11171d;
  --card: #182027; --serving: #57c785; --idle_warm: #e6c06a; --loading: #b79cf0; --unknown: #ff8a80; --free: #5a6874;
  --deep: #8fd0e6; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 28px 18px 56px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 25px; margin: 0 0 2px; } h2 { font-size: 19px; margin: 36px 0 6px; } h3 { font-size: 16px; margin: 0; }
p { margin: 4px 0 10px; color: var(--dim); max-width: 84ch; } ul { margin: 6px 0; padding-left: 18px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; margin: 12px 0;
  overflow-x: auto; break-inside: avoid; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 14px 0; }
.tile { flex: 1 1 150px; background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 14px; }
.tile b { display: block; font-size: 22px; font-weight: 600; } .tile span { color: var(--dim); font-size: 13px; }
.head { display: flex; gap: 12px; align-items: baseline; flex-wrap: wrap; justify-content: space-between; }
.head .verdict { color: var(--deep); font-weight: 600; font-size: 15px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { text-align: right; padding: 4px 8px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--dim); font-weight: 500; } th:first-child, td:first-child { text-align: left; }
td.text { text-align: left; white-space: normal; min-width: 14ch; } tr:last-child td { border-bottom: 0; }
tr.sum td { color: var(--dim); } svg { display: block; }
.days { width: 100%; margin-top: 8px; } .days text { font-size: 9px; fill: var(--dim); text-anchor: middle; }
.stripe { fill: var(--free); } .head span { color: var(--dim); font-size: 13px; }
.strip { width: 160px; height: 14px; } .bar { width: 100%; min-width: 120px; height: 14px; }
.key { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin: 0 5px 0 12px; }
.axis { stroke: var(--line); } .range { stroke: var(--dim); } .box { fill: var(--serving); opacity: .8; }
.median { stroke: var(--ink); stroke-width: 2; }
@media (max-width: 600px) { body { padding: 18px 10px; } h1 { font-size: 21px; } .strip { width: 90px; } }
@media print { body { max-width: none; padding: 0; background: none; } .card, .tile { border-color: #bbb; }
  .card { overflow: visible; } h2 { break-after: avoid; } }
"""


def page(report: Document, span: str, more: Sequence[ReportSection] = ()) -> str:
    """The HTML of a report. span: the time that it is about. more: sections of other parts."""
    body = "".join(
        (
            f"<h1>{escape(_title_of(report))}</h1><p>{escape(span)}. Costs are in the currency of the prices.</p>",
            _tiles(report),
            _ledger(report),
            _days(report),
            _cost(report),
            *(_section(each) for each in (keep_warm_section(report["workloads"]),) if each.rows),
            _profiles(report["profiles"]),
            *(_section(section) for section in more),
        )
    )
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(_title_of(report))}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def _title_of(report: Document) -> str:
    return f"GPU statement of {report['month']}" if report.get("month") else "GPU statement"


def _tiles(report: Document) -> str:
    total, nodes = report["total"], report["nodes"]
    hours = total["gpu_hours"]
    tiles = [
        (_hours(total["gpu_hours_held"]), "GPU-hours held"),
        (UNKNOWN if total["idle_share"] is None else percent(total["idle_share"]), "of them idle"),
        (_hours(hours["asleep"]), "GPU-hours saved by sleep"),
        (_money(total["cost_held"]), "cost"),
        (_money(total["cost"]["idle_warm"]), "cost of idle GPUs"),
    ]
    if nodes is not None:
        tiles.append((_hours(nodes["gpu_hours_unallocated"]), f"of {_hours(nodes['gpu_hours'])} GPU-hours unallocated"))
    return f"<div class=tiles>{''.join(f'<div class=tile><b>{a}</b><span>{b}</span></div>' for a, b in tiles)}</div>"


def _ledger(report: Document) -> str:
    rows = _groups(report)
    if not report["workloads"]:
        return "<h2>GPU-hours</h2><p>No workload was accounted in this time.</p>"
    most = max((each["gpu_hours_held"] or 0.0 for _, each, _ in rows[: len(report["workloads"])]), default=0.0)
    names = [_STATE_NAMES.get(state, state) for state in SHOWN_STATES]
    head = "".join(f"<th>{name}</th>" for name in ("workload", "", *names, "held", "idle of it", "oversized"))
    lines = "".join(
        f"<tr{' class=sum' if group else ''}><td>{escape(name)}</td><td>{'' if group else _bar(each, most)}</td>"
        + "".join(f"<td>{_hours(each['gpu_hours'][state])}</td>" for state in SHOWN_STATES)
        + f"<td>{_hours(each['gpu_hours_held'])}</td><td>{_ratio(each['idle_share'])}</td>"
        f"<td>{_hours(each['gpu_hours_oversized'])}</td></tr>"
        for name, each, group in rows
    )
    keys = "".join(
        f"<i class=key style='background:var(--{state})'></i>{_STATE_NAMES.get(state, state)}" for state in HELD
    )
    table = f"<div class=card><table><tr>{head}</tr>{lines}</table></div>"
    oversized = f"<p>Oversized: of the held hours that were not idle, the part of the GPU that {OVERSIZED_PART}.</p>"
    return f"<h2>GPU-hours by state</h2><p>{keys}</p>{table}{oversized}{_reconciliation(report)}"


_DAY_WIDTH, _DAY_HEIGHT = 20, 60  # of the plot, in its own units


def _days(report: Document) -> str:
    """The days of a month as a time axis: of all workloads, then of each."""
    days = report.get("days") or ()
    if not days:
        return ""
    plots = [("all", days)] if len(report["workloads"]) > 1 else []
    plots += [(label(each), each["days"]) for each in report["workloads"] if each.get("days")]
    cards = "".join(
        f"<div class=card><div class=head><h3>{escape(name)}</h3><span>{escape(_day_facts(of))}</span></div>"
        f"{_day_plot(of)}</div>"
        for name, of in plots
    )
    note = "Days are in UTC. A striped day is unknown, and in no sum; a day without a bar held no GPU."
    return f"<h2>GPU-hours by day</h2><p>{note}</p>{cards}"


def _day_facts(days: Sequence[Document]) -> str:
    unknown = sum(each["gpu_hours_held"] is None for each in days)
    most = max((each["gpu_hours_held"] or 0.0 for each in days), default=0.0)
    facts = f"at most {_hours(most)} GPU-hours in a day"
    return f"{facts}, {unknown} of {len(days)} days unknown" if unknown else facts


def _day_plot(days: Sequence[Document]) -> str:
    """A bar of states for each day, with the day of the month below."""
    most = max((each["gpu_hours_held"] or 0.0 for each in days), default=0.0)
    bars = "".join(_day_bar(each, index * _DAY_WIDTH, most) for index, each in enumerate(days))
    numbers = "".join(
        f"<text x={index * _DAY_WIDTH + _DAY_WIDTH // 2} y={_DAY_HEIGHT + 14}>{int(each['day'][-2:])}</text>"
        for index, each in enumerate(days)
    )
    width = _DAY_WIDTH * len(days)
    stripes = (
        "<defs><pattern id=gap width=6 height=6 patternUnits=userSpaceOnUse patternTransform='rotate(45)'>"
        "<rect width=2 height=6 class=stripe /></pattern></defs>"
    )
    line = f"<line class=axis x1=0 x2={width} y1={_DAY_HEIGHT} y2={_DAY_HEIGHT} />"
    size = f"viewBox='0 0 {width} {_DAY_HEIGHT + 20}' style='max-width:{2 * width}px;min-width:{width}px'"
    return f"<svg class=days {size}>{stripes}{bars}{line}{numbers}</svg>"


def _day_bar(each: Document, left: int, most: float) -> str:
    held = each["gpu_hours_held"]
    if held is None:
        gap = f"<rect x={left + 2} y=0 width={_DAY_WIDTH - 4} height={_DAY_HEIGHT} fill='url(#gap)'/>"
        return f"<g><title>{each['day']}: unknown</title>{gap}</g>"
    parts, top = [], float(_DAY_HEIGHT)
    for state in HELD:
        height = _DAY_HEIGHT * (each["gpu_hours"][state] or 0.0) / most if most else 0.0
        if height > 0.0:
            top -= height
            box = f"x={left + 2} y={top:.2f} width={_DAY_WIDTH - 4} height={height:.2f}"
            parts.append(f"<rect {box} fill='var(--{state})'/>")
    cost = "" if each["cost"] is None else f", cost {_money(each['cost'])}"
    return f"<g><title>{each['day']}: {_hours(held)} GPU-hours held{cost}</title>{''.join(parts)}</g>"


def _groups(report: Document) -> list[tuple[str, Document, bool]]:
    """Label and account of each row, and whether it is a sum."""
    rows = [(label(each), each, False) for each in report["workloads"]]
    rows += [(f"all of {each['namespace']}", each, True) for each in report["namespaces"]]
    rows += [(f"team {each['team']}", each, True) for each in report["teams"]]
    return [*rows, ("all", report["total"], True)]


def _bar(each: Document, most: float) -> str:
    """The held GPU-hours by state, on the scale of the workload with most of them."""
    if not most:
        return ""
    parts, begin = [], 0.0
    for state in HELD:
        width = 100.0 * (each["gpu_hours"][state] or 0.0) / most
        if width > 0.0:
            parts.append(f"<rect x='{begin:.2f}' width='{width:.2f}' height=10 fill='var(--{state})'/>")
        begin += width
    title = f"<title>{_hours(each['gpu_hours_held'])} GPU-hours held</title>"
    return f"<svg class=bar viewBox='0 0 100 10' preserveAspectRatio=none>{title}{''.join(parts)}</svg>"


def _reconciliation(report: Document) -> str:
    found = report["reconciliation"]
    if found is None:
        return "<p>The GPU-hours of the nodes are unknown, so the sums are not reconciled with them.</p>"
    verb = "Reconciled" if reconciled(found["difference"]) else "Not reconciled"
    return (
        f"<p>{verb}: {_hours(found['held'])} held + {_hours(found['unallocated'])} unallocated, against "
        f"{_hours(found['nodes'])} GPU-hours of the nodes ({100.0 * found['difference']:+.2f} %).</p>"
    )


def _cost(report: Document) -> str:
    columns = (
        "workload",
        "cost",
        "idle",
        "saved (max)",
        "saved (peak)",
        "1M input",
        "1M output",
        "J/1M in",
        "J/1M out",
    )
    rows = [
        (
            name,
            *map(_money, (each["cost_held"], each["cost"]["idle_warm"], *each["saved"].values())),
            *map(_money, _tokens(each, "cost")),
            *map(_hours, _tokens(each, "joules")),
        )
        for name, each, _ in _groups(report)
    ]
    priced = [row for row in rows if any(text != UNKNOWN for text in row[1:])]
    section = ReportSection(
        "Cost and energy", columns, priced, "Saved: against always on, at the maximum and at daily peaks."
    )
    return _section(section) if priced else "<h2>Cost and energy</h2><p>No price and no power is known.</p>"


def _tokens(each: Document, what: str) -> tuple[float | None, float | None]:
    found = each.get("per_million_tokens", {}).get(what, {})
    return found.get("prompt"), found.get("generation")


def _profiles(profiles: Sequence[Document]) -> str:
    cards = "".join(_card(each) for each in profiles if each["usage"])
    return f"<h2>Profiles and verdicts</h2>{cards or '<p>No usage has been measured.</p>'}"


def _card(each: Document) -> str:
    profile, binding = of_document(each), each["binding"]
    evidence = "".join(f"<li>{escape(sentence)}</li>" for sentence in binding["evidence"])
    if binding["missing"] and binding["verdict"] != Verdict.UNMEASURED:
        evidence += f"<li>not exposed: {escape(', '.join(binding['missing']))}</li>"
    lines = "".join(
        _line(usage, profile.of(usage)) for usage in Usage if usage < Usage.QUEUED and profile.of(usage).seconds > 0.0
    )
    head = "".join(f"<th>{name}</th>" for name in ("", "p05 to p95", "mean", "while busy", "p50", "p95", "peak"))
    facts = ", ".join(_facts(each))
    return (
        f"<div class=card><div class=head><h3>{escape(label(each))}</h3>"
        f"<span class=verdict>{escape(verdict_name(binding))}</span></div>"
        f"<ul>{evidence}</ul><p>Usual cause: {escape(binding['cause'])}.</p><p>{escape(facts)}</p>"
        f"<table><tr>{head}</tr>{lines}</table></div>"
    )


def _facts(each: Document) -> Iterable[str]:
    if each["busy_ratio"] is not None:
        yield f"Busy {percent(each['busy_ratio'])} of the time"
    for name, what in (("queue_seconds", "in the queue"), ("service_seconds", "in service")):
        if each[name] is not None:
            yield f"{each[name]:.2f} s {what} on average"
    start = each["cold_start_seconds"]
    if start["p50"] is not None:
        yield f"a start takes {start['p50']:.0f} s (p90 {start['p90'] or start['p50']:.0f} s)"


def _line(usage: Usage, each: Distribution) -> str:
    values = (each.mean, each.busy_mean, each.quantiles[P50], each.quantiles[P95], each.peak)
    cells = "".join(f"<td>{amount(value, usage)}</td>" for value in values)
    strip = _strip(each, 1.0 if usage <= Usage.KV_CACHE else each.peak) if usage < BUCKETED else ""
    return f"<tr><td>{_title(usage)}</td><td>{strip}</td>{cells}</tr>"


def _title(usage: Usage) -> str:
    """The name for people; the unit stands beside each value."""
    name = NAMES[usage]
    for unit in ("_bytes_per_second", "_bytes", "_watts"):
        name = name.removesuffix(unit)
    return name.replace("_", " ").replace("gpu", "GPU").replace("kv", "KV")


def _strip(each: Distribution, top: float) -> str:
    """A box from p25 to p75 with the median, on a line from p05 to p95."""
    if not top > 0.0:
        return ""
    at = [min(100.0 * value / top, 100.0) for value in each.quantiles]
    box = max(at[_P75] - at[_P25], 0.8)
    return (
        "<svg class=strip viewBox='0 0 100 10' preserveAspectRatio=none><line class=axis x1=0 x2=100 y1=9.5 y2=9.5 />"
        f"<line class=range x1='{at[_P05]:.1f}' x2='{at[P95]:.1f}' y1=5 y2=5 />"
        f"<rect class=box x='{at[_P25]:.1f}' y=2 width='{box:.1f}' height=6 />"
        f"<line class=median x1='{at[P50]:.1f}' x2='{at[P50]:.1f}' y1=1 y2=9 /></svg>"
    )


def _section(section: ReportSection) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in section.columns)
    lines = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in section.rows)
    note = f"<p>{escape(section.note)}</p>" if section.note else ""
    return f"<h2>{escape(section.title)}</h2>{note}<div class=card><table><tr>{head}</tr>{lines}</table></div>"


_LONG = 24  # characters; a longer cell is text and wraps


def _cell(text: str) -> str:
    return f"<td{' class=text' if len(text) > _LONG else ''}>{escape(text)}</td>"


def _hours(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.1f}" if value >= 10.0 or not value else f"{value:.2f}"  # noqa: PLR2004 - three digits


def _money(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.2f}"


def _ratio(value: Any) -> str:
    return UNKNOWN if value is None else percent(value)
