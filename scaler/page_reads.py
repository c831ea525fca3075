"""What each page says of one workload just now, for a person: made when somebody asks. Pure; no decision rests on it.

Worked example: of an engine that answered 4 s ago with 3 requests waiting, `age_s` is 4.0, `waiting` 3.0, `held` None
and `fresh` True; of one that never answered, `age_s` is None and `fresh` False.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import isnan

import numpy as np

from exporter.model import Role, Target, without_user

from .slots import Column, Slots


@dataclass(frozen=True, slots=True)
class PageRead:
    """Counts and ratios are None where the page does not say.

    of:      what the page is of: "pods", "gateway", "gpus".
    age_s:   seconds since it was received; None if it never was.
    fresh:   it counts in full. why: why it does not, or what else is to be known of it; "" is nothing.
    waiting, running, held: requests. kv_cache: ratio.
    gpus:    that are wholly the workload's. gpu_active: the mean of their engines' activity, a ratio.
    """

    url: str
    of: str
    age_s: float | None
    fresh: bool
    why: str = ""
    waiting: float | None = None
    running: float | None = None
    held: float | None = None
    kv_cache: float | None = None
    gpus: float | None = None
    gpu_active: float | None = None


def read_pages(
    slots: Slots, members: Mapping[int, Target], incomplete: Mapping[int, Collection[str]], now: float
) -> tuple[PageRead, ...]:
    """members: whose page each slot of the workload is. incomplete: series of a slot that are not complete, and why.
    now: POSIX seconds.
    """
    pages = [_read(slots, slot, target, incomplete.get(slot, ()), now) for slot, target in members.items()]
    return tuple(sorted(pages, key=lambda page: (page.of, page.url)))


def _read(slots: Slots, slot: int, target: Target, incomplete: Collection[str], now: float) -> PageRead:
    at, values = float(slots.at[slot]), slots.values[slot]
    age = None if isnan(at) else max(0.0, now - at)
    young = bool(now - at <= slots.limit[slot])
    why = "no: it never answered" if age is None else "no: too old"
    if young:
        why = "as activity: its pod is on its way out" if slots.leaving[slot] else ""
    if young and incomplete:
        more = f" and {len(incomplete) - 1} more" if len(incomplete) > 1 else ""
        why = f"as a lower bound: {next(iter(incomplete))}{more}"
    gpus = target.role is Role.GPUS
    with np.errstate(invalid="ignore", divide="ignore"):
        active = values[Column.GPU_SUM] / values[Column.GPU_WEIGHT]
    return PageRead(
        url=without_user(target.url),
        of=str(target.role),
        age_s=age,
        fresh=young and not incomplete,
        why=why,
        waiting=_known(values[Column.WAITING]),
        running=_known(values[Column.RUNNING]),
        held=_known(values[Column.HELD]),
        kv_cache=_known(values[Column.KV_CACHE]),
        gpus=_known(values[Column.GPU_COUNT]) if gpus else None,
        gpu_active=_known(active) if gpus else None,
    )


def _known(value: float) -> float | None:
    return None if isnan(value) else float(value)
