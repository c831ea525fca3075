"""Divides the GPUs of a response among workloads, as the columns of a slot. Pure.

A GPU counts for a workload only if it is exclusively its; the activity of a shared one belongs to no workload.
Engine activity sizes and proves idleness; without it utilisation decides idleness alone, because one request pegs it;
without both, requests decide. A GPU that has exposed its activity and no longer does is not idle: it is not visible.
What a response omits now and then (the label of a pod, the activity of a GPU), and the age of its values, are kept from
one response to the next.

Worked example: a node has two GPUs of one pod of `ai/chat`, 40 % and 80 % active. The share of `ai/chat` is GPU_SUM
1.2, GPU_WEIGHT 2, GPU_COUNT 2, GPU_BUSIEST 0.8, GPU_PODS 1. Of MIG instances 3g and 1g instead, at 30 % and 100 %,
GPU_SUM is 3/7 x 0.3 + 1/7 x 1.0 and GPU_WEIGHT 4/7: a mean of 0.475, with a ceiling of 0.5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from math import isnan, nan
from typing import NamedTuple, TypeAlias

import numpy as np

from exporter.attribution import LABEL_MEMORY_S, KnownPods, Labels, Owners, assign, named, on_node
from exporter.catalog.gpus import ceiling, share
from exporter.catalog.missing_series import read_label, write_label
from exporter.model import Floats, Gap, Gpu, MissingSeries, Part, Quantity, Role, Samples, Target, WorkloadKey
from exporter.scrape.interval import CollectInterval

from .aggregate import Aggregate
from .gpu_usage import gpu_columns, of_gpus
from .saturation import PodGpu, pod_gpu
from .slots import WIDTH, Column

# A GPU that is no longer in the responses counts as its pod's for as long as the cluster has the pod; if no cluster is
# configured, for so long (the default hold).
MISSING_S = 300.0
_GPU_QUANTITIES = (
    Quantity.GPU_ENGINE_ACTIVE,
    Quantity.GPU_UTILIZATION,
    Quantity.GPU_MEMORY_USED,
    Quantity.GPU_LOST,
    Quantity.GPU_POWER,
)
_COUNTS = [Column.GPU_COUNT, Column.GPU_UTILISED, Column.GPU_SILENT, Column.GPU_BLIND, Column.GPU_LOST]


# Those that `_held` returns, in its order.
_HELD = [Column.GPU_WHOLE, Column.GPU_PRICED, Column.GPU_HOUR, Column.GPU_POWERED, Column.GPU_WATTS]
Price: TypeAlias = Callable[[str | None], float]  # of an hour of one GPU of a model; NaN if there is none


def no_price(model: str | None) -> float:  # noqa: ARG001 - no model has a price
    return nan


class GpuShareReading(NamedTuple):
    """The GPUs of one workload in one response.

    values: shape (slots.WIDTH,), NaN if not exposed. at: POSIX seconds of its oldest part.
    usage:  shape (gpu_usage.USAGE_WIDTH,). gaps: the incomplete series of its GPUs.
    pods:   the GPUs that one of its pods holds alone.
    """

    values: Floats
    at: float
    usage: Floats
    gaps: tuple[Gap, ...] = ()
    pods: tuple[PodGpu, ...] = ()


@dataclass(slots=True)
class _Page:
    """The state of one target. spoke: GPUs and instances that have ever exposed their activity. exclusive: those that
    are exclusively one workload's, as of the last response.
    """

    labels: Labels = field(default_factory=Labels)
    beats: CollectInterval = field(default_factory=CollectInterval)
    spoke: set[tuple[str, str | None]] = field(default_factory=set)
    exclusive: dict[WorkloadKey, list[tuple[str, str | None]]] = field(default_factory=dict)
    last: tuple[Samples, float] | None = None


def on_page(target: Target) -> Target:
    """The key for the GPUs of a target that is scraped for its queues, which are stored apart from them."""
    return replace(target, role=Role.GPUS, owner=None)


def beside(target: Target, samples: Samples) -> Samples | None:
    """The GPUs that an engine's response has beside its queues, as that of `tidegate export`; None if there are none.

    Only GPUs of the target's own pod count: a tenant could expose any pod's name. A response without GPUs does not end
    them: their last reading becomes stale.
    """
    rows = [
        row
        for row, subject in enumerate(samples.subjects)
        if isinstance(subject, Gpu) and subject.pods and (target.pod is None or subject.pods == (target.pod,))
    ]
    if target.role is not Role.PODS or not rows:
        return None
    subjects = tuple(samples.subjects[row] for row in rows)
    index_of = {row: index for index, row in enumerate(rows)}
    gaps = tuple(gap._replace(row=index_of[gap.row]) for gap in samples.gaps if gap.row in index_of)
    return replace(samples, subjects=subjects, values=samples.values[rows], at=samples.at[rows], gaps=gaps)


@lru_cache(maxsize=2**16)
def gpu_key(uuid: str, instance: str | None) -> bytes:
    """The key of a GPU or MIG instance in a checkpoint, 16 bytes."""
    return blake2b(f"{uuid}\0{instance or ''}".encode(), digest_size=16).digest()


class GpuShares:
    """The shares of all targets with GPUs, and the state of each target from one response to the next."""

    def __init__(self, owners: Owners, pods: KnownPods | None = None, hour: Price = no_price) -> None:
        """pods: None without a cluster. hour: prices of GPU models."""
        self._owners, self._known_pods, self._hour = owners, pods, hour
        self._pages: dict[Target, _Page] = {}
        self._spoke_before: set[bytes] = set()

    def spoken(self) -> Iterator[tuple[WorkloadKey, bytes]]:
        """Each workload with the key of each of its exclusive GPUs that has ever exposed its activity."""
        for page in self._pages.values():
            for workload, gpus in page.exclusive.items():
                yield from ((workload, gpu_key(*gpu)) for gpu in gpus if gpu in page.spoke)

    def unlabelled(self, target: Target) -> tuple[MissingSeries, ...]:
        """The GPUs of a target that have lost their pod label, as a checkpoint holds them."""
        page = self._pages.get(target)
        lost = () if page is None or not page.labels.lost_at else page.labels.lost()
        written = ((write_label(gpu), gpu.pods, at) for gpu, at in lost)
        return tuple(MissingSeries(each, pods, nan, at, nan, False, nan) for each, pods, at in written if each)

    def restore(self, target: Target, missing: Iterable[MissingSeries]) -> None:
        """Takes lost labels from a checkpoint."""
        for each in missing:
            gpu = read_label(each.identity)
            if gpu is not None:
                self._pages.setdefault(target, _Page()).labels.restore(gpu, each.at)

    def believe(self, spoken: Iterable[bytes]) -> None:
        """Takes from a checkpoint the GPUs that have exposed their activity: without it now, they are not idle."""
        self._spoke_before.update(spoken)

    def read(self, target: Target, samples: Samples, at: float) -> Mapping[WorkloadKey, GpuShareReading]:
        """The share of each workload with a GPU in a response. `at`: POSIX seconds of receipt."""
        page = self._pages.get(target)
        if page is None:
            page = self._pages[target] = _Page()
            gpus = ((each.uuid, each.instance) for each in samples.subjects if isinstance(each, Gpu))
            page.spoke.update(gpu for gpu in gpus if self._spoke_before and gpu_key(*gpu) in self._spoke_before)
        page.exclusive = {}
        if self._known_pods is not None:
            samples = named(samples, self._known_pods)
        samples = page.labels.resolve(samples, self._owners, at)
        if self._known_pods is not None and target.node is not None:
            samples = on_node(samples, target.node, self._known_pods)
        page.beats.update(samples)
        lag, stopped_at = page.beats.interval_s, page.beats.stopped_at(at)
        page.last = samples, at if stopped_at is None else min(at, stopped_at)
        # A value from before a pod began may carry its name: it may be as old as the interval.
        shares = assign(replace(samples, at=samples.at - lag), self._owners)
        found, measured, used = {}, _GpuValues.of(samples), gpu_columns(samples)
        missing = {gap.row for gap in samples.gaps if np.isnan(samples.values[gap.row]).all()}
        for workload, rows in shares.items():
            parts = list(self._parts(samples, rows.shared, workload, lag))
            exclusive = _gpus(samples, (row for row in rows.exclusive if self._still_counts(samples, row, missing, at)))
            left = {
                row: exclusive.pop(row) for row in list(exclusive) if self._may_have_ended(page, exclusive[row], at)
            }
            if not exclusive and not left and not parts:
                continue
            page.exclusive[workload] = [(gpu.uuid, gpu.instance) for gpu in exclusive.values()]
            gaps = tuple(gap for gap in samples.gaps if gap.row in exclusive)
            values = _values(measured, exclusive, page.spoke, {gap.row for gap in gaps})
            values[_HELD] = _held(measured, exclusive, self._hour)
            values[Column.GPU_LAG] = lag
            # A GPU of a pod that may have ended sizes nothing; its activity may still be the pod's.
            also = [*(measured.activity(row) for row in left), *(part.utilization for part in parts)]
            if also:
                values[Column.GPU_BUSIEST] = _largest([values[Column.GPU_BUSIEST], *also])
            if parts:
                values[Column.GPU_PARTS] = len(parts)
                values[Column.GPU_MEMORY] = _sum([values[Column.GPU_MEMORY], *(p.memory for p in parts)])
            read = [row for row in (*rows.exclusive, *rows.shared) if row not in missing]
            oldest = min([at, *samples.at[read].tolist()])
            oldest = oldest if stopped_at is None else min(oldest, stopped_at)
            # A GPU that is missing may have been divided; its pod may run on an instance of it now.
            present = (gpu for row, gpu in exclusive.items() if row not in missing)
            pods = tuple(each for gpu in present if (each := pod_gpu(gpu)) is not None)
            found[workload] = GpuShareReading(values, oldest, of_gpus(used, exclusive), gaps, pods)
        every = _gpus(samples, range(len(samples.subjects)))
        page.spoke.update((gpu.uuid, gpu.instance) for row, gpu in every.items() if measured.is_measured(row))
        return found

    def _parts(self, samples: Samples, shared: Sequence[int], workload: WorkloadKey, lag: float) -> Iterator[Part]:
        """The measurements by process of this workload's pods on shared GPUs.

        The numbers of the GPU itself belong to no workload. Utilisation by process may keep a workload awake, and sizes
        nothing, as utilisation never does.
        """
        for row in shared:
            at = float(samples.at[row]) - lag
            for part in getattr(samples.subjects[row], "parts", ()):
                if workload in self._owners(part.pod, at):
                    yield part

    def _still_counts(self, samples: Samples, row: int, missing: Collection[int], at: float) -> bool:
        """Whether a GPU that is not in the response still counts: a cluster would show that the pod has ended."""
        return row not in missing or self._known_pods is not None or at - float(samples.at[row]) <= MISSING_S

    def _may_have_ended(self, page: _Page, gpu: Gpu, at: float) -> bool:
        """Whether the pod of a GPU without a label may have ended: only a cluster would show that."""
        lost_at = page.labels.lost_at.get((gpu.uuid, gpu.instance))
        return self._known_pods is None and lost_at is not None and at - lost_at > LABEL_MEMORY_S

    def forget(self, target: Target) -> None:
        """Forgets a target."""
        self._pages.pop(target, None)

    def adopt(self, other: GpuShares) -> None:
        """Takes over the state of the targets, which go on being scraped. The owners of pods may be others."""
        self._pages, self._spoke_before = other._pages, other._spoke_before

    def pages(self) -> Iterator[tuple[Target, Samples, float]]:
        """The last response of each target, with recalled labels; POSIX seconds of receipt, or of its last change."""
        for target, page in self._pages.items():
            if page.last is not None:
                yield target, *page.last

    def lag_s(self, target: Target) -> float:
        """Seconds by which the values of a target may be older than their receipt."""
        return self._pages[target].beats.interval_s


def gpu_activity(totals: Aggregate, row: int) -> str | None:
    """The source of the activity of a workload's GPUs: "engine", "utilisation", "process" (utilisation by process, on
    shared GPUs), "mixed", "none"; None without a GPU that is exclusively its or measured for it.
    """
    gpus = totals.gpus
    alive = gpus.shown[row] - gpus.lost[row]
    engine = alive - gpus.utilised[row] - gpus.silent[row]
    if not gpus.shown[row] + gpus.parts[row] > 0.0:
        return None
    ways = {"engine": engine, "utilisation": gpus.utilised[row], "none": gpus.silent[row]}
    ways["process"] = gpus.parts[row]
    found = [way for way, count in ways.items() if count > 0.0]
    return found[0] if len(found) == 1 else "mixed" if found else "none"


def gpu_notes(totals: Aggregate, row: int, target: float | None) -> list[str]:
    """Remarks on the GPUs of a workload. target: the engine activity that it is sized by, if it is."""
    gpus, readings = totals.gpus, totals.readings
    shown, held = gpus.shown[row], totals.gpus_held[row]
    found = []
    if readings.gpus_stale[row]:
        found.append("its GPUs are not visible now, so idleness cannot be proven")
    if readings.gpus_blind[row]:
        found.append(
            "one of its GPUs no longer exposes its activity (profiling paused, or a failed exporter), so idleness "
            "cannot be proven"
        )
    elif gpus.silent[row] > 0.0:
        found.append(
            f"{gpus.silent[row]:.0f} of its {shown:.0f} GPUs expose no activity: requests alone decide idleness"
        )
    if gpus.utilised[row] > 0.0:
        found.append(
            f"{gpus.utilised[row]:.0f} of its {shown:.0f} GPUs expose no engine activity: utilisation "
            "decides idleness, and sizes nothing"
        )
    if gpus.parts[row] > 0.0:
        found.append(
            f"{gpus.parts[row]:.0f} of its pods are on shared GPUs that are measured by process: that utilisation "
            "decides idleness, and sizes nothing"
        )
    if gpus.lost[row] > 0.0:
        found.append(
            f"{gpus.lost[row]:.0f} of its {shown:.0f} GPUs expose nothing since a fatal Xid error: no capacity, and "
            "left out of the mean (tidegate_gpu_lost shows which)"
        )
    if target is not None and gpus.ceiling[row] <= target:
        found.append(
            f"its engine activity has a maximum of {gpus.ceiling[row]:.2f}, which is not above the target of "
            f"{target:g}: a single busy compute instance fills no MIG instance of several slices"
        )
    if 0 < shown < held:
        found.append(
            f"its pods hold {held:.0f} GPUs, of which {shown:.0f} are visible as exclusively its: the others are "
            "shared, or not labelled"
        )
    return found


def _gpus(samples: Samples, rows: Iterable[int]) -> dict[int, Gpu]:
    chosen = ((row, samples.subjects[row]) for row in rows)
    return {row: subject for row, subject in chosen if isinstance(subject, Gpu)}


class _GpuValues(NamedTuple):
    """The values of a response, by row: for the few GPUs of a workload lists are faster than arrays."""

    engine: list[float]
    utilisation: list[float]
    memory: list[float]
    lost: list[float]
    watts: list[float]

    @classmethod
    def of(cls, samples: Samples) -> _GpuValues:
        return cls(*(samples.column(quantity).tolist() for quantity in _GPU_QUANTITIES))

    def activity(self, row: int) -> float:
        """Engine activity, else utilisation; NaN if neither is known."""
        return self.utilisation[row] if isnan(self.engine[row]) else self.engine[row]

    def is_measured(self, row: int) -> bool:
        return not isnan(self.activity(row))


def _values(
    measured: _GpuValues, gpus: Mapping[int, Gpu], spoke: set[tuple[str, str | None]], incomplete: Collection[int]
) -> Floats:
    """The columns for these GPUs, which are exclusively one workload's. incomplete: rows with an incomplete series."""
    total, weights, tops, utilised, silent, blind, lost = 0.0, 0.0, 0.0, 0, 0, 0, 0
    for row, gpu in gpus.items():
        engine = measured.engine[row]
        silenced = not measured.is_measured(row) and (gpu.uuid, gpu.instance) in spoke
        blind += measured.lost[row] != 1.0 and (row in incomplete or silenced)
        if not isnan(engine):
            weight = share(gpu)
            total, weights, tops = total + engine * weight, weights + weight, tops + (ceiling(gpu) or 1.0) * weight
        elif not isnan(measured.utilisation[row]):
            utilised += 1
        elif measured.lost[row] == 1.0:
            lost += 1
        else:
            silent += 1
    values = np.full(WIDTH, np.nan)
    if weights:
        values[[Column.GPU_SUM, Column.GPU_WEIGHT, Column.GPU_CEILING]] = total, weights, tops
    values[Column.GPU_BUSIEST] = _largest(measured.activity(row) for row in gpus)
    values[_COUNTS] = len(gpus), utilised, silent, blind, lost
    values[Column.GPU_MEMORY] = _sum(measured.memory[row] for row in gpus)
    if gpus:
        values[Column.GPU_PODS] = len({pod for gpu in gpus.values() for pod in gpu.pods})
    return values


def _held(measured: _GpuValues, gpus: Mapping[int, Gpu], hour: Price) -> tuple[float, ...]:
    """The columns `_HELD`: GPUs in whole ones, and the price and power of those of which they are known."""
    parts = [(share(gpu), hour(gpu.model), measured.watts[row]) for row, gpu in gpus.items()]
    priced = [(part, price) for part, price, _ in parts if not isnan(price)]
    powered = [watts for *_, watts in parts if not isnan(watts)]
    money = sum(part * price for part, price in priced)
    return sum(part for part, *_ in parts), sum(part for part, _ in priced), money, len(powered), sum(powered)


def _sum(values: Iterable[float]) -> float:
    """The sum of the known values; NaN if there is none."""
    present = [value for value in values if not isnan(value)]
    return sum(present) if present else nan


def _largest(values: Iterable[float]) -> float:
    return max((value for value in values if not isnan(value)), default=nan)
