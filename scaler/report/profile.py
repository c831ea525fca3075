"""Describes how one workload uses its GPUs and engines: a distribution per quantity, waiting times, cold starts. Pure.

A profile comes from the daemon's histograms (`of_histograms`), from a history of responses (`of_moments`), or from
recorded responses, which are a history of one moment each. All three go through the arithmetic of
`scaler.signals.usage`. A quantity that was never measured is missing, and is None in a document.

Mean times in the queue and in service are those of the engine's own histograms, if it has them. Else they follow from
means of requests by Little's law, L = lambda x W (J. D. C. Little, "A Proof for the Queuing Formula", 1961): requests
that wait, over requests that finish per second. Requests that wait at a gateway are only in the latter.

Worked example: on average 3 requests wait, 12 run and 1.5 finish per second: 2 s in the queue and 8 s in service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from exporter.catalog.gpus import ceiling, share
from exporter.model import Attribution, EngineMemory, Floats, Gpu, PodKey, Quantity, Queue, Samples, WorkloadKey
from scaler.signals.gpu_usage import GpuUsage, gpu_columns
from scaler.signals.saturation import SaturatedSums
from scaler.signals.usage import (
    POINT_USAGE,
    QUANTILES,
    Distribution,
    Usage,
    UsageHistograms,
    busy_of,
    distribution,
    point_means,
    queued_full,
)

# Names in documents, and units for people.
NAMES: Mapping[Usage, str] = MappingProxyType(
    {
        Usage.ENGINE: "gpu_engine_active",
        Usage.SM: "gpu_sm_active",
        Usage.OCCUPANCY: "gpu_sm_occupancy",
        Usage.TENSOR: "gpu_tensor_active",
        Usage.DRAM: "gpu_dram_active",
        Usage.KV_CACHE: "kv_cache_used",
        Usage.MEMORY: "gpu_memory_used_bytes",
        Usage.POWER: "gpu_power_watts",
        Usage.PCIE: "gpu_pcie_bytes_per_second",
        Usage.NVLINK: "gpu_nvlink_bytes_per_second",
        Usage.RUNNING: "requests_running_per_engine",
        Usage.WAITING: "requests_waiting",
        Usage.MEMORY_TOTAL: "gpu_memory_total_bytes",
        Usage.REQUESTS: "requests_per_second",
        Usage.PROMPT: "prompt_tokens_per_second",
        Usage.GENERATED: "generated_tokens_per_second",
        Usage.PREEMPTED: "preemptions_per_second",
        Usage.QUEUED_FULL: "queued_while_full",
        Usage.RUNNING_ALL: "requests_running",
        Usage.CEILING: "gpu_engine_ceiling",
        Usage.QUEUED: "queue_times_per_second",
        Usage.QUEUED_SECONDS: "queue_seconds_per_second",
        Usage.SERVED: "service_times_per_second",
        Usage.SERVED_SECONDS: "service_seconds_per_second",
    }
)
_BY_NAME = {name: usage for usage, name in NAMES.items()}
QUANTILE_NAMES = tuple(f"p{round(100 * q):02d}" for q in QUANTILES)
P50, P95 = QUANTILE_NAMES.index("p50"), QUANTILE_NAMES.index("p95")

NOTHING = Distribution(nan, nan, nan, (nan,) * len(QUANTILES), 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ColdStartSeconds:
    """Seconds that a start takes: typical, and to be safe. None if none was measured."""

    p50: float | None = None
    p90: float | None = None


class OperatingPoint(NamedTuple):
    """How a workload runs at one load. Means.

    batch:          requests in an engine, prompts that are read included.
    prompt, output: tokens of a request.
    step_s:         seconds between two tokens of a request: by Little's law, requests that run over tokens per second.
    """

    batch: float
    prompt: float
    output: float
    step_s: float


class SliceThroughput(NamedTuple):
    """What an engine did per second on one kind of GPU or MIG instance while requests waited.

    gpu:             the GPU model, as the exporter names it; "" if it names none.
    profile:         of the MIG instance; "" on a whole GPU.
    rate, unit:      per second: generated "tokens" or, if the engine generates none, finished "requests".
    prompt_per_unit: prompt tokens per unit; None if they are not counted.
    seconds:         with waiting requests.
    """

    gpu: str
    profile: str
    rate: float
    unit: str
    prompt_per_unit: float | None
    seconds: float

    @classmethod
    def of(cls, sums: SaturatedSums) -> SliceThroughput:
        """The throughput that sums of a time show."""
        is_tokens = sums.generated > 0.0
        work, unit = (sums.generated, "tokens") if is_tokens else (sums.requests, "requests")
        prompt = sums.prompt / work if work > 0.0 and not isnan(sums.prompt) else None
        return cls(*sums.kind, work / sums.seconds, unit, prompt, sums.seconds)


@dataclass(frozen=True, slots=True)
class Profile:
    """The usage of one workload.

    usage:   what was measured.
    seconds: of measured time, decayed; of the quantity that was measured longest.
    since:   POSIX seconds of the first measurement; None if there is none.
    points:  how it ran at different loads, by rising batch.
    slices:  what its engines did on each kind of GPU and MIG slice while requests waited.
    engine:  what its engines expose of their memory.
    """

    workload: WorkloadKey
    usage: Mapping[Usage, Distribution]
    seconds: float
    since: float | None = None
    start: ColdStartSeconds = ColdStartSeconds()
    points: tuple[OperatingPoint, ...] = ()
    slices: tuple[SliceThroughput, ...] = ()
    engine: EngineMemory | None = None

    def of(self, quantity: Usage) -> Distribution:
        """The distribution of a quantity; all NaN if it was not measured."""
        return self.usage.get(quantity, NOTHING)

    @property
    def busy_ratio(self) -> float:
        """The part of the time with work, 0..1; NaN if unknown."""
        longest = max(self.usage.values(), key=lambda each: each.seconds, default=NOTHING)
        return longest.busy_seconds / longest.seconds if longest.seconds > 0.0 else nan

    @property
    def is_queue_measured(self) -> bool:
        """Whether `queue_s` is of the engine's histogram."""
        return self.of(Usage.QUEUED).mean > 0.0

    @property
    def is_service_measured(self) -> bool:
        """Whether `service_s` is of the engine's histogram."""
        return self.of(Usage.SERVED).mean > 0.0

    @property
    def queue_s(self) -> float:
        """Mean seconds in the queue; NaN if unknown."""
        if self.is_queue_measured:
            return _over(self.of(Usage.QUEUED_SECONDS).mean, self.of(Usage.QUEUED).mean)
        return _over(self.of(Usage.WAITING).mean, self.of(Usage.REQUESTS).mean)

    @property
    def service_s(self) -> float:
        """Mean seconds in service; NaN if unknown."""
        if self.is_service_measured:
            return _over(self.of(Usage.SERVED_SECONDS).mean, self.of(Usage.SERVED).mean)
        return _over(self.of(Usage.RUNNING_ALL).mean, self.of(Usage.REQUESTS).mean)

    @property
    def point(self) -> OperatingPoint | None:
        """How it ran on the mean of busy time; None if requests or tokens were not measured."""
        return _point(*(self.of(usage).busy_mean for usage in POINT_USAGE))

    def to_document(self) -> dict[str, Any]:
        """Plain JSON-able data; None where something is unknown."""
        return {
            "namespace": self.workload.namespace,
            "name": self.workload.name,
            "trigger": self.workload.trigger,
            "since": self.since,
            "seconds": self.seconds,
            "busy_ratio": _or_none(self.busy_ratio),
            "queue_seconds": _or_none(self.queue_s),
            "service_seconds": _or_none(self.service_s),
            "measured_by_engine": {
                "queue_seconds": self.is_queue_measured,
                "service_seconds": self.is_service_measured,
            },
            "cold_start_seconds": {"p50": self.start.p50, "p90": self.start.p90},
            "usage": {NAMES[usage]: _document(self.usage[usage]) for usage in self.usage},
            "operating_points": [point._asdict() for point in self.points],
            "slice_throughputs": [each._asdict() for each in self.slices],
            "engine_memory": None if self.engine is None else self.engine._asdict(),
        }


def of_document(document: Mapping[str, Any]) -> Profile:
    """The profile of a document; a quantity that only a newer version knows is left out."""
    start = document.get("cold_start_seconds") or {}
    usage = {_BY_NAME[name]: _parsed(each) for name, each in document["usage"].items() if name in _BY_NAME}
    return Profile(
        WorkloadKey(document["namespace"], document["name"], document["trigger"]),
        usage,
        document["seconds"],
        document["since"],
        ColdStartSeconds(start.get("p50"), start.get("p90")),
        tuple(OperatingPoint(**point) for point in document.get("operating_points", ())),
        tuple(SliceThroughput(**each) for each in document.get("slice_throughputs", ())),
        EngineMemory(**engine) if (engine := document.get("engine_memory")) is not None else None,
    )


def of_histograms(
    workload: WorkloadKey, usage: UsageHistograms, row: int, start: ColdStartSeconds = ColdStartSeconds()
) -> Profile:
    """The profile of one row of the daemon's histograms."""
    found = {quantity: distribution(usage, row, quantity) for quantity in Usage}
    measured = {quantity: each for quantity, each in found.items() if each.seconds > 0.0}
    since = float(usage.since[row])
    seconds = max((each.seconds for each in measured.values()), default=0.0)
    points = tuple(point for means in point_means(usage, row) if (point := _point(*means)) is not None)
    return Profile(workload, measured, seconds, None if isnan(since) else since, start, points)


def of_moments(workload: WorkloadKey, moments: Sequence[Floats], step_s: float, until: float) -> Profile:
    """The profile of a history: one row of `usage_at` for every `step_s` seconds until `until`, POSIX seconds."""
    usage = UsageHistograms(1)
    points: tuple[OperatingPoint, ...] = ()
    if moments:
        values = np.stack(moments)
        points = operating_points(values)
        in_hand = values[:, Usage.RUNNING_ALL] + np.nan_to_num(values[:, Usage.WAITING])
        in_hand = np.where(np.isnan(in_hand), values[:, Usage.WAITING], in_hand)
        usage.add_series(values, busy_of(in_hand, values[:, Usage.ENGINE]), step_s, until)
    return replace(of_histograms(workload, usage, 0), points=points)


POINTS = 8  # of a history: at least 4 must differ for a fit of three terms (`speed.FEWEST_POINTS`)


def operating_points(values: Floats) -> tuple[OperatingPoint, ...]:
    """How a workload ran at different loads. values: shape (moments, len(Usage)).

    Moments with work are ordered by batch and divided into POINTS groups; a ratio is one of the sums of its group.
    """
    used = values[:, POINT_USAGE]
    used = used[np.isfinite(used).all(axis=1) & (used > 0.0).all(axis=1)]
    ordered = used[np.argsort(used[:, 0], kind="stable")]
    found = (_point(*group.mean(axis=0).tolist()) for group in np.array_split(ordered, POINTS) if len(group))
    return tuple(point for point in found if point is not None)


def _point(batch: float, running: float, requests: float, prompt: float, generated: float) -> OperatingPoint | None:
    """The arguments are those of POINT_USAGE. batch: requests of one engine. running: of all. The rest: per second."""
    if not all(each > 0.0 for each in (batch, running, requests, prompt, generated)):  # so too if one is NaN
        return None
    return OperatingPoint(batch, prompt / requests, generated / requests, running / generated)


def usage_at(engines: Sequence[Samples], gpus: Sequence[Samples], matches: Callable[[PodKey], bool]) -> Floats:
    """What responses of one moment show of a workload, shape (len(Usage),); NaN unknown. Rates need two moments.

    engines: the responses of its engines. gpus: responses with GPUs; those that are exclusively its count.
    """
    values = np.full(len(Usage), nan)
    _read_engines(values, engines)
    rows = [(samples, own_gpus(samples, matches)) for samples in gpus]
    _read_gpus(values, [(samples, found) for samples, found in rows if found])
    queue = values[[Usage.WAITING]], values[[Usage.ENGINE]], values[[Usage.KV_CACHE]]
    values[Usage.QUEUED_FULL] = queued_full(*queue)[0]
    return values


def _read_engines(values: Floats, engines: Sequence[Samples]) -> None:
    running = [_of_queues(samples, Quantity.REQUESTS_RUNNING, np.sum) for samples in engines]
    waiting = [_of_queues(samples, Quantity.REQUESTS_WAITING, np.sum) for samples in engines]
    cache = [_of_queues(samples, Quantity.KV_CACHE_USED, np.mean) for samples in engines]
    if engines:  # a sum over some of the engines alone is unknown
        values[Usage.RUNNING_ALL], values[Usage.WAITING] = sum(running), sum(waiting)
        values[Usage.RUNNING] = values[Usage.RUNNING_ALL] / len(engines)
        shown = [each for each in cache if not isnan(each)]
        values[Usage.KV_CACHE] = sum(shown) / len(shown) if shown else nan


def _read_gpus(values: Floats, found: Sequence[tuple[Samples, Mapping[int, Gpu]]]) -> None:
    if not found:
        return
    shares = np.concatenate([[share(gpu) for gpu in gpus.values()] for _, gpus in found])
    tops = np.concatenate([[ceiling(gpu) or 1.0 for gpu in gpus.values()] for _, gpus in found])
    engine = np.concatenate([samples.column(Quantity.GPU_ENGINE_ACTIVE)[list(gpus)] for samples, gpus in found])
    columns = np.concatenate([gpu_columns(samples)[list(gpus)] for samples, gpus in found])
    values[Usage.ENGINE], values[Usage.CEILING] = _mean(engine, shares), _mean(tops, shares)
    whole = np.ones(len(shares))
    for usage, column, weights in (
        (Usage.SM, GpuUsage.SM, shares),
        (Usage.OCCUPANCY, GpuUsage.OCCUPANCY, shares),
        (Usage.TENSOR, GpuUsage.TENSOR, shares),
        (Usage.DRAM, GpuUsage.DRAM, shares),
        (Usage.MEMORY, GpuUsage.MEMORY, whole),
        (Usage.MEMORY_TOTAL, GpuUsage.MEMORY_TOTAL, whole),
        (Usage.POWER, GpuUsage.POWER, whole),
        (Usage.PCIE, GpuUsage.PCIE, whole),
        (Usage.NVLINK, GpuUsage.NVLINK, whole),
    ):
        values[usage] = _mean(columns[:, column], weights)


def pods_of(pages: Iterable[Samples]) -> list[PodKey]:
    """The pods that hold a GPU or MIG instance alone in these responses, sorted."""
    gpus = (subject for samples in pages for subject in samples.subjects if isinstance(subject, Gpu))
    return sorted({gpu.pods[0] for gpu in gpus if _is_exclusive(gpu)})


def own_gpus(samples: Samples, matches: Callable[[PodKey], bool]) -> dict[int, Gpu]:
    """The GPUs and MIG instances, by row, that one of the matching pods holds alone."""
    return {
        row: subject
        for row, subject in enumerate(samples.subjects)
        if isinstance(subject, Gpu) and _is_exclusive(subject) and matches(subject.pods[0])
    }


def _is_exclusive(gpu: Gpu) -> bool:
    return gpu.attribution in (Attribution.EXCLUSIVE, Attribution.MIG) and len(gpu.pods) == 1


def _of_queues(samples: Samples, quantity: Quantity, combine: Callable[[Floats], Any]) -> float:
    rows = [row for row, subject in enumerate(samples.subjects) if isinstance(subject, Queue)]
    return float(combine(samples.column(quantity)[rows])) if rows else nan


def _mean(values: Floats, weights: Floats) -> float:
    measured = ~np.isnan(values)
    return float(np.average(values[measured], weights=weights[measured])) if measured.any() else nan


def _over(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator > 0.0 else nan


def _or_none(value: float) -> float | None:
    return None if isnan(value) else value


def _document(each: Distribution) -> dict[str, float | None]:
    quantiles = {name: _or_none(value) for name, value in zip(QUANTILE_NAMES, each.quantiles, strict=True)}
    return {
        "mean": _or_none(each.mean),
        "busy_mean": _or_none(each.busy_mean),
        "peak": _or_none(each.peak),
        **quantiles,
        "seconds": each.seconds,
        "busy_seconds": each.busy_seconds,
    }


def _parsed(each: Mapping[str, float | None]) -> Distribution:
    def number(name: str) -> float:
        value = each.get(name)
        return nan if value is None else float(value)

    quantiles = tuple(number(name) for name in QUANTILE_NAMES)
    return Distribution(
        number("mean"),
        number("busy_mean"),
        number("peak"),
        quantiles,
        each.get("seconds") or 0.0,
        each.get("busy_seconds") or 0.0,
    )
