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
from exporter.model import (
    Floats,
    Gap,
    Gpu,
    MissingSeries,
    Part,
    Quantity,
    Role,
    Samples,
    Subject,
    Target,
    WorkloadKey,
)
from exporter.scrape.interval import CollectInterval

from .aggregate import Aggregate
from .gpu_usage import gpu_columns, of_gpus, weights_of
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
_NOTHING = np.empty((0, 0))
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


class _Exclusive(NamedTuple):
    """The GPUs of one workload alone, and what follows from their labels and models: each list is in their order.

    rows: of the response. tops: the maximum of each one's activity, times its share. prices: of an hour of each.
    pods: the number of theirs. weights: see `gpu_usage.weights_of`.
    """

    rows: tuple[int, ...]
    identities: list[tuple[str, str | None]]
    shares: list[float]
    tops: list[float]
    prices: list[float]
    pods: int
    held: tuple[PodGpu | None, ...]
    weights: Floats

    @classmethod
    def of(cls, subjects: Sequence[Subject], rows: Iterable[int], hour: Price) -> _Exclusive:
        found = {row: gpu for row in rows if isinstance(gpu := subjects[row], Gpu)}
        gpus = list(found.values())
        shares = [share(gpu) for gpu in gpus]
        return cls(
            rows=tuple(found),
            identities=[(gpu.uuid, gpu.instance) for gpu in gpus],
            shares=shares,
            tops=[(ceiling(gpu) or 1.0) * part for gpu, part in zip(gpus, shares, strict=True)],
            prices=[hour(gpu.model) for gpu in gpus],
            pods=len({pod for gpu in gpus for pod in gpu.pods}),
            held=tuple(map(pod_gpu, gpus)),
            weights=weights_of(gpus),
        )


@dataclass(slots=True)
class _Page:
    """The state of one target.

    spoke: GPUs and instances that have ever exposed their activity. silent: the rows of the others in `subjects`.
    exclusive: those that are exclusively one workload's, as of the last response.
    subjects: of the last response, with resolved labels. fixed: of these, the last rows of each workload.
    """

    labels: Labels = field(default_factory=Labels)
    beats: CollectInterval = field(default_factory=CollectInterval)
    spoke: set[tuple[str, str | None]] = field(default_factory=set)
    silent: list[tuple[int, tuple[str, str | None]]] = field(default_factory=list)
    exclusive: dict[WorkloadKey, list[tuple[str, str | None]]] = field(default_factory=dict)
    last: tuple[Samples, float] | None = None
    subjects: tuple[Subject, ...] = ()
    fixed: dict[WorkloadKey, _Exclusive] = field(default_factory=dict)

    def follow(self, subjects: tuple[Subject, ...]) -> None:
        """Drops what follows from other subjects. Most responses have the same tuple as the one before."""
        if subjects is self.subjects:
            return
        self.subjects, self.fixed = subjects, {}
        rows = [(row, (gpu.uuid, gpu.instance)) for row, gpu in enumerate(subjects) if isinstance(gpu, Gpu)]
        self.silent = [(row, identity) for row, identity in rows if identity not in self.spoke]

    def hear(self, measured: _GpuValues) -> None:
        """Moves what exposes its activity now from `silent` to `spoke`."""
        spoke = [identity for row, identity in self.silent if measured.is_measured(row)]
        if spoke:
            self.spoke.update(spoke)
            self.silent = [(row, identity) for row, identity in self.silent if identity not in self.spoke]


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
        page.follow(samples.subjects)
        # A value from before a pod began may carry its name: it may be as old as the interval.
        times = samples.at.tolist()
        shares = assign(samples.subjects, [each - lag for each in times], self._owners)
        found, measured, used = {}, _GpuValues.of(samples), gpu_columns(samples) if shares else _NOTHING
        missing = {gap.row for gap in samples.gaps if np.isnan(samples.values[gap.row]).all()}
        for workload, rows in shares.items():
            parts = list(self._parts(samples, rows.shared, workload, lag))
            counting = rows.exclusive
            if missing:
                counting = tuple(row for row in counting if self._still_counts(samples, row, missing, at))
            left: Sequence[int] = ()
            if page.labels.lost_at:
                left = [row for row in counting if self._may_have_ended(page, samples.subjects[row], at)]
                counting = tuple(row for row in counting if row not in left)
            if not counting and not left and not parts:
                continue
            exclusive = page.fixed.get(workload)
            if exclusive is None or exclusive.rows != counting:
                exclusive = page.fixed[workload] = _Exclusive.of(samples.subjects, counting, self._hour)
            page.exclusive[workload] = exclusive.identities
            gaps = tuple(gap for gap in samples.gaps if gap.row in counting)
            values = _values(measured, exclusive, page.spoke, {gap.row for gap in gaps})
            values[Column.GPU_LAG] = lag
            # A GPU of a pod that may have ended sizes nothing; its activity may still be the pod's.
            also = [*(measured.activity(row) for row in left), *(part.utilization for part in parts)]
            if also:
                values[Column.GPU_BUSIEST] = _largest([values[Column.GPU_BUSIEST], *also])
            if parts:
                values[Column.GPU_PARTS] = len(parts)
                values[Column.GPU_MEMORY] = _sum([values[Column.GPU_MEMORY], *(p.memory for p in parts)])
            oldest = min([at, *(times[row] for row in (*rows.exclusive, *rows.shared) if row not in missing)])
            oldest = oldest if stopped_at is None else min(oldest, stopped_at)
            # A GPU that is missing may have been divided; its pod may run on an instance of it now.
            present = zip(exclusive.rows, exclusive.held, strict=True)
            pods = tuple(each for row, each in present if each is not None and row not in missing)
            usage = of_gpus(used, exclusive.rows, exclusive.weights)
            found[workload] = GpuShareReading(np.array(values), oldest, usage, gaps, pods)
        page.hear(measured)
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

    def _may_have_ended(self, page: _Page, gpu: Subject, at: float) -> bool:
        """Whether the pod of a GPU without a label may have ended: only a cluster would show that."""
        lost_at = page.labels.lost_at.get((gpu.uuid, gpu.instance)) if isinstance(gpu, Gpu) else None
        return self._known_pods is None and lost_at is not None and at - lost_at > LABEL_MEMORY_S

    def forget(self, target: Target) -> None:
        """Forgets a target."""
        self._pages.pop(target, None)

    def adopt(self, other: GpuShares) -> None:
        """Takes over the state of the targets, which go on being scraped. Owners of pods and prices may be others."""
        self._pages, self._spoke_before = other._pages, other._spoke_before
        for page in self._pages.values():
            page.fixed = {}

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


class _GpuValues(NamedTuple):
    """The values of a response, by row: for the few GPUs of a workload lists are faster than arrays."""

    engine: list[float]
    utilisation: list[float]
    memory: list[float]
    lost: list[float]
    watts: list[float]

    @classmethod
    def of(cls, samples: Samples) -> _GpuValues:
        columns = dict(zip(samples.quantities, samples.values.T.tolist(), strict=True))
        unknown = [nan] * len(samples.subjects)
        return cls(*(columns.get(quantity, unknown) for quantity in _GPU_QUANTITIES))

    def activity(self, row: int) -> float:
        """Engine activity, else utilisation; NaN if neither is known."""
        return self.utilisation[row] if isnan(self.engine[row]) else self.engine[row]

    def is_measured(self, row: int) -> bool:
        return not isnan(self.activity(row))


def _values(
    measured: _GpuValues, gpus: _Exclusive, spoke: set[tuple[str, str | None]], incomplete: Collection[int]
) -> list[float]:
    """The columns for these GPUs, shape (slots.WIDTH,). incomplete: rows with an incomplete series."""
    total, weights, tops, utilised, silent, blind, lost = 0.0, 0.0, 0.0, 0, 0, 0, 0
    rows = zip(gpus.rows, gpus.identities, gpus.shares, gpus.tops, strict=True)
    for row, identity, weight, top in rows:
        engine, is_lost = measured.engine[row], measured.lost[row] == 1.0
        if not isnan(engine):
            total, weights, tops = total + engine * weight, weights + weight, tops + top
            blind += row in incomplete and not is_lost
            continue
        silenced = not measured.is_measured(row) and identity in spoke
        blind += not is_lost and (row in incomplete or silenced)
        if not isnan(measured.utilisation[row]):
            utilised += 1
        elif is_lost:
            lost += 1
        else:
            silent += 1
    values = [nan] * WIDTH
    if weights:
        values[Column.GPU_SUM], values[Column.GPU_WEIGHT], values[Column.GPU_CEILING] = total, weights, tops
    values[Column.GPU_BUSIEST] = _largest(map(measured.activity, gpus.rows))
    values[Column.GPU_COUNT], values[Column.GPU_UTILISED], values[Column.GPU_SILENT] = len(gpus.rows), utilised, silent
    values[Column.GPU_BLIND], values[Column.GPU_LOST] = blind, lost
    values[Column.GPU_MEMORY] = _sum(measured.memory[row] for row in gpus.rows)
    if gpus.rows:
        values[Column.GPU_PODS] = gpus.pods
    _add_held(values, measured, gpus)
    return values


def _add_held(values: list[float], measured: _GpuValues, gpus: _Exclusive) -> None:
    """Adds the GPUs in whole ones, and the price and power of those of which they are known."""
    priced = [(part, price) for part, price in zip(gpus.shares, gpus.prices, strict=True) if not isnan(price)]
    powered = [watts for row in gpus.rows if not isnan(watts := measured.watts[row])]
    values[Column.GPU_WHOLE], values[Column.GPU_PRICED] = sum(gpus.shares), sum(part for part, _ in priced)
    values[Column.GPU_HOUR] = sum(part * price for part, price in priced)
    values[Column.GPU_POWERED], values[Column.GPU_WATTS] = len(powered), sum(powered)


def _sum(values: Iterable[float]) -> float:
    """The sum of the known values; NaN if there is none."""
    present = [value for value in values if not isnan(value)]
    return sum(present) if present else nan


def _largest(values: Iterable[float]) -> float:
    return max((value for value in values if not isnan(value)), default=nan)
