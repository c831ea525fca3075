"""Exposes the usage profiles of workloads: `/api/v1/profiles`, or some of them by `?workload=NAMESPACE/NAME`.

Any replica answers: the histograms are part of the replicated state. Quantities that were never measured are left out.

Worked example: `{"now": 1.7e9, "profiles": [{"namespace": "ai", "name": "chat", "usage": {"gpu_dram_active": {"mean":
0.41, "busy_mean": 0.66, "p95": 0.8, …}}, …}]}`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import isnan
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from aiohttp import web

from exporter.model import EngineMemory, WorkloadKey

if TYPE_CHECKING:
    from scaler.engine.decider import Decider
    from scaler.report.profile import ColdStartSeconds, Profile
    from scaler.signals.saturation import SaturatedSums
    from scaler.signals.usage import UsageHistograms

PATH = "/api/v1/profiles"
Source: TypeAlias = "Callable[[], Decider | None]"  # None until the first configuration runs


class EngineRecord(NamedTuple):
    """What the advice on GPUs and slices needs of one workload's engines."""

    saturated: Sequence[SaturatedSums]
    memory: EngineMemory | None


class UsageCopy(NamedTuple):
    """The usage of some workloads at one moment: a thread reads it while the loop goes on."""

    workloads: Sequence[WorkloadKey]
    usage: UsageHistograms
    starts: Sequence[ColdStartSeconds]
    engines: Sequence[EngineRecord]


def copy_usage(decider: Decider, names: Collection[str], now: float) -> UsageCopy:
    """Copies the usage of these workloads ("ai/chat", "ai/chat/decode" of a further trigger), or of all if no name is
    given. now: POSIX seconds.
    """
    from scaler.report.profile import ColdStartSeconds  # noqa: PLC0415 - compiles kernels
    from scaler.signals.usage import UsageHistograms  # noqa: PLC0415 - likewise

    rows = [row for row, key in enumerate(decider.workloads) if not names or str(key) in names]
    rows.sort(key=lambda row: decider.workloads[row])
    usage, times = UsageHistograms(len(rows)), decider.start_times
    usage.take(decider.usage.columns(), np.arange(len(rows)), np.array(rows, dtype=np.int64))
    starts = [ColdStartSeconds(_or_none(times.p50[row]), _or_none(times.p90[row])) for row in rows]
    latest = decider.latest
    engines = [EngineRecord(latest.saturation.of(row, now), latest.engine_memories.of(row)) for row in rows]
    return UsageCopy([decider.workloads[row] for row in rows], usage, starts, engines)


def routes(source: Source, now: Callable[[], float]) -> list[web.RouteDef]:
    """For `WebServer(more=...)`."""

    async def get(request: web.Request) -> web.Response:
        decider = source()
        at = now()
        copied = None if decider is None else copy_usage(decider, request.query.getall("workload", []), at)
        return web.json_response(text=await asyncio.to_thread(_text, copied, at))

    return [web.get(PATH, get)]


def _text(copied: UsageCopy | None, now: float) -> str:
    profiles = [] if copied is None else _profiles(copied)
    return json.dumps({"now": now, "profiles": [each.to_document() for each in profiles]}, allow_nan=False)


def _profiles(copied: UsageCopy) -> list[Profile]:
    from scaler.report.profile import SliceThroughput, of_histograms  # noqa: PLC0415 - compiles kernels

    rows = zip(copied.workloads, copied.starts, copied.engines, strict=True)
    return [
        replace(
            of_histograms(key, copied.usage, row, start),
            slices=tuple(map(SliceThroughput.of, engines.saturated)),
            engine=engines.memory,
        )
        for row, (key, start, engines) in enumerate(rows)
    ]


def _or_none(value: float) -> float | None:
    return None if isnan(value) else float(value)
