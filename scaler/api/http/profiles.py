"""Exposes the usage profiles of workloads: `/api/v1/profiles`, or some of them by `?workload=NAMESPACE/NAME`.

Any replica answers: the histograms are part of the replicated state. Quantities that were never measured are left out.

Worked example: `{"now": 1.7e9, "profiles": [{"namespace": "ai", "name": "chat", "usage": {"gpu_dram_active": {"mean":
0.41, "busy_mean": 0.66, "p95": 0.8, …}}, …}]}`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Sequence
from math import isnan
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from aiohttp import web

from exporter.model import WorkloadKey

if TYPE_CHECKING:
    from scaler.engine.decider import Decider
    from scaler.report.profile import ColdStartSeconds
    from scaler.signals.usage import UsageHistograms

PATH = "/api/v1/profiles"
Source: TypeAlias = "Callable[[], Decider | None]"  # None until the first configuration runs


class UsageCopy(NamedTuple):
    """The usage of some workloads at one moment: a thread reads it while the loop goes on."""

    workloads: Sequence[WorkloadKey]
    usage: UsageHistograms
    starts: Sequence[ColdStartSeconds]


def copy_usage(decider: Decider, names: Collection[str] = ()) -> UsageCopy:
    """Copies the usage of these workloads ("ai/chat", "ai/chat/decode" of a further trigger), or of all."""
    from scaler.report.profile import ColdStartSeconds  # noqa: PLC0415 - compiles kernels
    from scaler.signals.usage import UsageHistograms  # noqa: PLC0415 - likewise

    rows = [row for row, key in enumerate(decider.workloads) if not names or str(key) in names]
    rows.sort(key=lambda row: decider.workloads[row])
    usage, times = UsageHistograms(len(rows)), decider.start_times
    usage.take(decider.usage.columns(), np.arange(len(rows)), np.array(rows, dtype=np.int64))
    starts = [ColdStartSeconds(_or_none(times.p50[row]), _or_none(times.p90[row])) for row in rows]
    return UsageCopy([decider.workloads[row] for row in rows], usage, starts)


def routes(source: Source, now: Callable[[], float]) -> list[web.RouteDef]:
    """For `WebServer(more=...)`."""

    async def get(request: web.Request) -> web.Response:
        decider = source()
        copied = None if decider is None else copy_usage(decider, request.query.getall("workload", []))
        return web.json_response(text=await asyncio.to_thread(_text, copied, now()))

    return [web.get(PATH, get)]


def _text(copied: UsageCopy | None, now: float) -> str:
    from scaler.report.profile import of_histograms  # noqa: PLC0415 - compiles kernels

    rows = [] if copied is None else enumerate(zip(copied.workloads, copied.starts, strict=True))
    profiles = [] if copied is None else [of_histograms(key, copied.usage, row, start) for row, (key, start) in rows]
    return json.dumps({"now": now, "profiles": [each.to_document() for each in profiles]}, allow_nan=False)


def _or_none(value: float) -> float | None:
    return None if isnan(value) else float(value)
