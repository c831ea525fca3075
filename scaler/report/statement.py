"""Puts accounts, profiles and verdicts together: the document, the rows of the CSV, and sections for people. Pure.

A section is a titled table of text. The terminal and the HTML page print any section, so another part of the report is
one more function that returns one.

Worked example: `build(accounts, [profile])` is the document of `-o json`: the ledger with `profiles`, each with its
`binding`; `verdict_section` of it has one row: `ai/chat`, `memory bandwidth`, the evidence and the usual cause.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any, NamedTuple

from scaler.signals.usage import Distribution, Usage

from .binding import judge, oversized_share, percent
from .ledger import HELD, STATES, Document, build_report, label, reconciliation
from .profile import NAMES, P50, P95, Profile, of_document

UNKNOWN = "\N{EN DASH}"
HOUR_S = 3600.0
MOST_DIFFERENCE = 0.001  # of the nodes' GPU-hours: more is not reconciled


class ReportSection(NamedTuple):
    """A table with a title. note: a sentence below it. rows: text per column."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


def build(accounts: Document, profiles: Sequence[Profile]) -> dict[str, Any]:
    """The document of the report: the ledger, with the profile and verdict of each workload."""
    report = build_report(accounts, {label(each.workload._asdict()): oversized_share(each) for each in profiles})
    report["reconciliation"] = reconciliation(report)
    report["profiles"] = [{**each.to_document(), "binding": judge(each).to_document()} for each in profiles]
    return report


def sections(report: Document) -> list[ReportSection]:
    """The sections of the days, keep-warm, the profiles and the verdicts, as far as there is data for them."""
    profiles = report["profiles"]
    found = [
        day_section(report["days"]),
        keep_warm_section(report["workloads"]),
        profile_section(profiles),
        verdict_section(profiles),
    ]
    return [each for each in found if each.rows]


def day_section(days: Sequence[Document]) -> ReportSection:
    """The days of a month, in UTC. An unknown one has no number."""
    columns = ("day", *(state.replace("idle_warm", "idle") for state in HELD), "held", "cost")
    rows = [
        (
            each["day"],
            *(_decimals(each["gpu_hours"][state]) for state in HELD),
            _decimals(each["gpu_hours_held"]),
            _decimals(each["cost"]),
        )
        for each in days
    ]
    return ReportSection("GPU-hours by day", columns, rows, "Days are in UTC. A day without a number is unknown.")


def keep_warm_section(workloads: Sequence[Document]) -> ReportSection:
    """What one more hour of keep-warm would cost and save, of workloads with recorded pauses."""
    columns = ("workload", "pauses", "GPU-hours", "cost", "cold starts avoided", "saved")
    rows = [
        (
            label(each),
            f"{max(round(hour['pauses']), 1):,}",
            _decimals(hour["gpu_seconds"], HOUR_S),
            _decimals(hour["cost"]),
            _decimals(hour["cold_starts"]),
            _decimals(hour["saved"]),
        )
        for each in workloads
        if (hour := each["further_hour"]) is not None
    ]
    return ReportSection("One more hour of keep-warm", columns, rows, "Per day, by the recorded pauses.")


def _decimals(value: float | None, unit: float = 1.0) -> str:
    return UNKNOWN if value is None else f"{value / unit:,.2f}"


def profile_section(profiles: Sequence[Document]) -> ReportSection:
    columns = ("workload", "busy", *(title for _, title in _SHOWN), "queue s", "service s", "start s")
    rows = [
        (
            label(each),
            _percent(each["busy_ratio"]),
            *(cell(profile.of(usage), usage) for usage, _ in _SHOWN),
            *(_seconds(each[name]) for name in ("queue_seconds", "service_seconds")),
            _seconds(each["cold_start_seconds"]["p50"]),
        )
        for each in profiles
        if each["usage"]
        for profile in (of_document(each),)
    ]
    return ReportSection("Profile", columns, rows, "GPU activity is the mean while the workload worked, then the p95.")


_SHOWN = (
    (Usage.ENGINE, "engine"),
    (Usage.SM, "SM"),
    (Usage.TENSOR, "tensor"),
    (Usage.DRAM, "DRAM"),
    (Usage.KV_CACHE, "KV"),
    (Usage.MEMORY, "memory peak"),
    (Usage.POWER, "power"),
    (Usage.RUNNING, "running"),
)


def cell(each: Distribution, usage: Usage) -> str:
    """A quantity of a profile in one cell."""
    if usage is Usage.MEMORY:
        return amount(each.peak, usage)
    if usage <= Usage.KV_CACHE:
        both = (amount(each.busy_mean, usage), amount(each.quantiles[P95], usage))
        return " / ".join(both) if each.seconds > 0.0 else UNKNOWN
    return amount(each.busy_mean, usage)


def amount(value: float, usage: Usage) -> str:
    """A value of a quantity with its unit, for people."""
    if isnan(value):
        return UNKNOWN
    if usage <= Usage.KV_CACHE or usage in (Usage.QUEUED_FULL, Usage.CEILING):
        return percent(value)
    if usage in (Usage.MEMORY, Usage.MEMORY_TOTAL):
        return f"{value / 2**30:.1f} GiB"
    if usage is Usage.POWER:
        return f"{value:.0f} W"
    if usage in (Usage.PCIE, Usage.NVLINK):
        return f"{value / 1e9:.1f} GB/s"
    return f"{value:,.1f}"


def verdict_section(profiles: Sequence[Document]) -> ReportSection:
    columns = ("workload", "bound by", "evidence", "usual cause, and what helps")
    rows = [
        (label(each), verdict_name(each["binding"]), "; ".join(each["binding"]["evidence"]), each["binding"]["cause"])
        for each in profiles
        if each["usage"]
    ]
    return ReportSection("What binds", columns, rows)


def verdict_name(binding: Mapping[str, Any]) -> str:
    """The verdict for people, with what else the signals show: "memory bandwidth (also undersized)"."""
    also = ", ".join(each["verdict"].replace("_", " ") for each in binding["also"])
    name = str(binding["verdict"]).replace("_", " ")
    return f"{name} (also {also})" if also else name


def reconciled(difference: float) -> bool:
    return abs(difference) <= MOST_DIFFERENCE


def to_csv(report: Document) -> str:
    """One row per workload; an unknown number is an empty field."""
    by_label = {label(each): each for each in report["profiles"]}
    columns = [*_KEYS, *(f"gpu_hours_{state}" for state in STATES), *_HELD_KEYS, *_RATIO_COLUMNS]
    columns += ["verdict", "busy_ratio", *(f"{NAMES[usage]}_{name}" for usage, name, _ in _CSV_USAGE)]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    for each in report["workloads"]:
        writer.writerow(_row(each, by_label.get(label(each))))
    return out.getvalue()


_KEYS = ("namespace", "name", "trigger", "team")
_HELD_KEYS = ("gpu_hours_held", "cost_held", "gpu_hours_oversized", "cost_oversized")
_RATIO_COLUMNS = tuple(
    f"{what}_per_million_{kind}_tokens" for what in ("cost", "joules") for kind in ("prompt", "generation")
)
_CSV_USAGE = tuple(
    (usage, name, pick)
    for usage in (Usage.ENGINE, Usage.SM, Usage.TENSOR, Usage.DRAM, Usage.KV_CACHE, Usage.MEMORY, Usage.RUNNING)
    for name, pick in (("p50", P50), ("p95", P95), ("peak", None))
)


def _row(each: Document, profile: Document | None) -> dict[str, Any]:
    row = {key: each[key] for key in _KEYS}
    row |= {f"gpu_hours_{state}": each["gpu_hours"][state] for state in STATES}
    row |= {key: each[key] for key in _HELD_KEYS}
    for what in ("cost", "joules"):
        for kind in ("prompt", "generation"):
            row[f"{what}_per_million_{kind}_tokens"] = each["per_million_tokens"].get(what, {}).get(kind)
    if profile is not None:
        usage = of_document(profile)
        row |= {"verdict": profile["binding"]["verdict"], "busy_ratio": profile["busy_ratio"]}
        for quantity, name, pick in _CSV_USAGE:
            found = usage.of(quantity)
            value = found.peak if pick is None else found.quantiles[pick]
            row[f"{NAMES[quantity]}_{name}"] = None if isnan(value) else value
    return row


def _percent(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else percent(ratio)


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"
