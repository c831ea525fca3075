"""Computes the numbers of single pods, and of single targets, for API callers and people. Pure.

They are computed on request from the latest responses, and no decision depends on them. Nothing is smoothed, nothing is
imputed for a pod that does not answer, and a GPU that is shared, or may be, belongs to no pod. Unknown is None.

Worked example: the engine of pod `ai/chat-0` has 3 requests waiting and 5 running, and its node's exporter shows two
GPUs that it has exclusively, 40 % and 80 % active: `waiting` 3, `running` 5, `queue` 8 and `gpu_engine_active` 0.6. An
engine that answered 4 s ago has `age_s` 4.0 and `fresh` True; one that never answered has None and False.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import NamedTuple, TypeAlias

import numpy as np

from exporter.attribution import Owners
from exporter.catalog.gpus import share
from exporter.model import Attribution, Gpu, PodKey, Quantity, Role, Samples, Target, WorkloadKey

from .slots import Column, Slots

# Engine activity is never divided by process, so an attribution by process is none of these.
_ALONE = frozenset({Attribution.EXCLUSIVE, Attribution.MIG})

Chosen: TypeAlias = Callable[[PodKey], bool]


class Gauge(NamedTuple):
    """A measured number. at: POSIX seconds of its oldest part, at the earliest."""

    value: float
    at: float


@dataclass(frozen=True, slots=True)
class PodNumbers:
    """One pod of one workload; fresh readings only.

    waiting, running: requests. queue: both. gpu_engine_active: a ratio, the mean over its exclusive GPUs, MIG instances
    by their share of one.
    stale_engines, stale_gpus: URLs of its targets that are not fresh.
    """

    workload: WorkloadKey
    waiting: Gauge | None = None
    running: Gauge | None = None
    queue: Gauge | None = None
    gpu_engine_active: Gauge | None = None
    stale_engines: tuple[str, ...] = ()
    stale_gpus: tuple[str, ...] = ()


class PodEngine(NamedTuple):
    """The last response of one pod's engine, for one workload.

    waiting, running: requests; NaN if not exposed. at: POSIX seconds, NaN if it never answered.
    fresh: young enough and complete.
    """

    pod: PodKey
    workload: WorkloadKey
    url: str
    waiting: float
    running: float
    at: float
    fresh: bool


class GpuPage(NamedTuple):
    """The last response of one target with GPUs. limit_s: for how long it is fresh.

    at: POSIX seconds of receipt, or since when it does not change. lag_s: by how much its values may be older.
    """

    url: str
    samples: Samples
    at: float
    limit_s: float
    lag_s: float


@dataclass(frozen=True, slots=True)
class TargetReading:
    """The last response of one target, for one workload. Counts and ratios are None if not exposed.

    name:    its pod, if known, and URL.
    of:      the role of the target: "pods", "gateway", "gpus".
    age_s:   seconds since it was received; None if it never was.
    fresh:   it counts in full. why: why it does not, or a remark; "" is none.
    waiting, running, held: requests. kv_cache: ratio.
    gpus:    those that are exclusively the workload's. gpu_active: the mean of their engine activity, a ratio.
    """

    name: str
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


def numbers(
    engines: Iterable[PodEngine], gpus: Iterable[GpuPage], owners: Owners, chosen: Chosen, now: float
) -> Mapping[PodKey, tuple[PodNumbers, ...]]:
    """The numbers of each pod with an engine, and of each chosen pod with a GPU: one entry per workload of it.

    Several targets of one pod and workload are several engines: they add up, and one that is not fresh makes the sums
    unknown. engines: of chosen pods. now: POSIX seconds.
    """
    pages: dict[PodKey, dict[WorkloadKey, list[PodEngine]]] = {}
    for page in engines:
        pages.setdefault(page.pod, {}).setdefault(page.workload, []).append(page)
    devices = _devices(gpus, owners, chosen, now)
    for pod, device in devices.items():
        for workload in device.workloads:
            pages.setdefault(pod, {}).setdefault(workload, [])
    return {
        pod: tuple(_numbers(workload, by_workload[workload], devices.get(pod)) for workload in sorted(by_workload))
        for pod, by_workload in pages.items()
    }


def read_pages(
    slots: Slots, members: Mapping[int, Target], incomplete: Mapping[int, Collection[str]], now: float
) -> tuple[TargetReading, ...]:
    """The targets of a workload, sorted by role and name.

    members: the target of each slot. incomplete: the incomplete series of a slot, with reasons. now: POSIX seconds.
    """
    pages = [_read(slots, slot, target, incomplete.get(slot, ()), now) for slot, target in members.items()]
    return tuple(sorted(pages, key=lambda page: (page.of, page.name)))


@dataclass(slots=True)
class _Devices:
    """The GPUs of one pod. active: the known activity of those that are exclusive and fresh, and their share of a GPU;
    by UUID and MIG instance, because two targets may show the same one.
    """

    workloads: set[WorkloadKey] = field(default_factory=set)
    active: dict[tuple[str, str | None], tuple[Gauge, float]] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)

    def add(self, gpu: Gpu, gauge: Gauge) -> None:
        before = self.active.get((gpu.uuid, gpu.instance))
        if before is None or before[0].at < gauge.at:
            self.active[gpu.uuid, gpu.instance] = gauge, share(gpu)

    def mean(self) -> Gauge | None:
        if not self.active:
            return None
        parts = self.active.values()
        weight = sum(part for _, part in parts)
        return Gauge(sum(gauge.value * part for gauge, part in parts) / weight, min(gauge.at for gauge, _ in parts))


def _devices(pages: Iterable[GpuPage], owners: Owners, chosen: Chosen, now: float) -> Mapping[PodKey, _Devices]:
    found: dict[PodKey, _Devices] = {}
    for page, row, gpu, pod in _named(pages, chosen):
        at = min(float(page.samples.at[row]), page.at)
        measured = at - page.lag_s
        workloads = owners(pod, measured)
        if not workloads:  # another workload's, or a reading from before the pod existed
            continue
        devices = found.setdefault(pod, _Devices())
        devices.workloads.update(workloads)
        value = float(page.samples.column(Quantity.GPU_ENGINE_ACTIVE)[row])
        if not now - at <= page.limit_s:
            devices.stale.add(page.url)
        elif gpu.attribution in _ALONE and len(gpu.pods) == 1 and not isnan(value):
            devices.add(gpu, Gauge(value, measured))
    return found


def _named(pages: Iterable[GpuPage], chosen: Chosen) -> Iterator[tuple[GpuPage, int, Gpu, PodKey]]:
    for page in pages:
        for row, gpu in enumerate(page.samples.subjects):
            if isinstance(gpu, Gpu):
                yield from ((page, row, gpu, pod) for pod in gpu.pods if chosen(pod))


def _numbers(workload: WorkloadKey, pages: list[PodEngine], devices: _Devices | None) -> PodNumbers:
    return PodNumbers(
        workload,
        waiting=_sum(pages, lambda page: page.waiting),
        running=_sum(pages, lambda page: page.running),
        queue=_sum(pages, _queue),
        gpu_engine_active=devices.mean() if devices is not None else None,
        stale_engines=tuple(sorted(page.url for page in pages if not page.fresh)),
        stale_gpus=tuple(sorted(devices.stale)) if devices is not None else (),
    )


def _queue(page: PodEngine) -> float:
    """Requests in hand of an engine, without a metric of running requests those that wait."""
    requests = [value for value in (page.waiting, page.running) if not isnan(value)]
    return sum(requests) if requests else float("nan")


def _sum(pages: list[PodEngine], read: Callable[[PodEngine], float]) -> Gauge | None:
    if not pages or not all(page.fresh for page in pages):
        return None
    value = sum(read(page) for page in pages)
    return None if isnan(value) else Gauge(value, min(page.at for page in pages))


def _read(slots: Slots, slot: int, target: Target, incomplete: Collection[str], now: float) -> TargetReading:
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
    return TargetReading(
        name=target.named,
        of=str(target.role),
        age_s=age,
        fresh=young and not incomplete,
        why=why,
        waiting=_optional(values[Column.WAITING]),
        running=_optional(values[Column.RUNNING]),
        held=_optional(values[Column.HELD]),
        kv_cache=_optional(values[Column.KV_CACHE]),
        gpus=_optional(values[Column.GPU_COUNT]) if gpus else None,
        gpu_active=_optional(active) if gpus else None,
    )


def _optional(value: float) -> float | None:
    return None if isnan(value) else float(value)
