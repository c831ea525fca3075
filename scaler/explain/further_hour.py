"""Writes what one more hour of keep-warm would cost and save: a document for programs, and sentences for people. Pure.

Worked example: 21 pauses, 11.3 GPU-hours a day at 3, and one cold start a day of 75 s that is avoided, are "By its last
21 pauses, one more hour of keep-warm would cost 34 a day (11.33 GPU-hours) and save 1.12: 1 cold start of 75 s."
Without a price it is "… would hold 11.33 GPU-hours a day and avoid 1 cold start of 75 s. No price is configured."
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import TypeAlias

from scaler.policy.estimators.further_hour import HOUR_S, FurtherHour

from .formats import counted, lasting, number

Document: TypeAlias = Mapping[str, float | None]


def documents(columns: FurtherHour) -> list[Document | None]:
    """One per workload, per day except `pauses`; None if it has no recorded pause, or never sleeps."""
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [None if isnan(row[0]) else _document(FurtherHour._fields, row) for row in rows]


def _document(names: tuple[str, ...], row: tuple[float, ...]) -> Document:
    return {name: None if isnan(value) else value for name, value in zip(names, row, strict=True)}


def sentences(hour: Document | None) -> list[str]:
    """No sentence if the cold starts or the GPUs are unknown."""
    if hour is None or hour["cold_starts"] is None or hour["gpu_seconds"] is None:
        return []
    gpu_hours, starts, waiting = hour["gpu_seconds"] / HOUR_S, hour["cold_starts"], hour["waiting_s"]
    avoided = counted(starts, "cold start")
    if starts and waiting is not None:
        avoided += f" of {lasting(waiting / starts)}"
    cost, saved, held = hour["cost"], hour["saved"], counted(gpu_hours, "GPU-hour")
    more = f"By its last {counted(max(round(hour['pauses'] or 0.0), 1), 'pause')}, one more hour of keep-warm would"
    if cost is None:
        return [f"{more} hold {held} a day and avoid {avoided}. No price is configured."]
    if saved is None:
        return [f"{more} cost {number(cost)} a day ({held}) and avoid {avoided}."]
    return [f"{more} cost {number(cost)} a day ({held}) and save {number(saved)}: {avoided}."]
