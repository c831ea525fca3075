"""The latest of each source, added up per workload: from scrapes to the columns of `policy.Readings`.

Each source of a workload has a *slot*: one engine's page, its gateway's page, or its share of one node's GPUs. A slot
keeps the last reading and its time; a reading older than its limit is not there. Adding up is a handful of
`bincount`s over all slots, so ten thousand workloads cost what a hundred do.

What it refuses to do: treat a page that does not speak of queues as an empty queue. Such a page is as good as absent
(a fresh engine that has not published its gauges yet, an exporter that reloads).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.attribution import assign
from exporter.catalog import KINDS
from exporter.model import Floats, PodKey, Quantity, ReplicaCount, Role, Samples, Target, WorkloadKey

from .policy import Readings

Rows: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


class Column(IntEnum):
    """What a slot keeps of a page. Counts are sums over the page; ratios are means."""

    WAITING = 0
    RUNNING = 1
    HELD = 2
    KV_CACHE = 3
    READY = 4  # ready backends, as a gateway counts them
    GPU_SUM = 5  # engine activity, summed over the GPUs that are wholly the workload's
    GPU_COUNT = 6
    GPU_BUSIEST = 7
    GPU_PODS = 8  # pods on those GPUs


# Counters whose rise is activity: a request that started and ended between two scrapes moves one of them.
ACTIVITY = (
    Quantity.REQUESTS_FINISHED,
    Quantity.REQUESTS_FAILED,
    Quantity.TOKENS_PROMPT,
    Quantity.TOKENS_GENERATED,
)


@dataclass(frozen=True, slots=True)
class Source:
    """How one workload's pages are to be read.

    pods:  its engines are asked themselves, so what a gateway repeats of them is not added.
    queue: only this queue of a page (a model's name); None is all of them.
    """

    workload: WorkloadKey
    pods: bool
    queue: str | None = None


@dataclass(slots=True)
class Slots:
    """Structure of arrays over slots; free slots have owner -1."""

    owner: Rows
    role: NDArray[np.int8]
    at: Floats
    values: Floats  # (slots, len(Column)), NaN where the page does not say
    counters: Floats  # (slots, len(ACTIVITY)), the last reading of each, NaN never read

    @classmethod
    def empty(cls, size: int) -> Slots:
        return cls(
            owner=np.full(size, -1, dtype=np.int64),
            role=np.zeros(size, dtype=np.int8),
            at=np.full(size, np.nan),
            values=np.full((size, len(Column)), np.nan),
            counters=np.full((size, len(ACTIVITY)), np.nan),
        )

    def clear(self, slot: int) -> None:
        self.owner[slot] = -1
        self.at[slot] = np.nan
        self.values[slot] = np.nan
        self.counters[slot] = np.nan

    def grow(self) -> None:
        more = Slots.empty(len(self.owner))
        for name in self.__slots__:
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)]))


ROLE_CODE = {role: code for code, role in enumerate(Role)}
PODS, GATEWAY, GPUS = ROLE_CODE[Role.PODS], ROLE_CODE[Role.GATEWAY], ROLE_CODE[Role.GPUS]


@dataclass(frozen=True, slots=True)
class Totals:
    """What is fresh of some workloads, added up; every column has shape (rows,), NaN where nothing is known.

    seen:       the policy's columns; its `signals` are still unknown: smoothing is not done here.
    kv_cache:   ratio, mean over the pods that say.
    gpu_engine: ratio, mean over the GPUs that are wholly the workload's.
    finished:   requests finished since this process began to look, corrected for restarts.
    """

    seen: Readings
    kv_cache: Floats
    gpu_engine: Floats
    finished: Floats

    def work(self) -> Floats:
        """Requests in hand, wherever they are; NaN if no source says anything of them."""
        parts = np.stack([self.seen.waiting, self.seen.running, self.seen.held])
        known = ~np.isnan(parts)
        return np.where(known.any(axis=0), np.where(known, parts, 0.0).sum(axis=0), np.nan)

    def said(self) -> Mask:
        """Which signals are read at present, shape (rows, len(Signal)): a smoothed value must not outlive its source."""
        return ~np.isnan(np.stack([self.work(), self.kv_cache, self.gpu_engine], axis=1))


class Intake:
    """What is known of every source of a fixed list of workloads. No clock: `now` is an argument."""

    def __init__(
        self,
        sources: Sequence[Source],
        owner_of: Callable[[PodKey], WorkloadKey | None],
        limit_s: float,
    ) -> None:
        """`limit_s`: seconds after which a reading is no longer fresh."""
        self.sources = tuple(sources)
        self._row = {source.workload: row for row, source in enumerate(self.sources)}
        self._owner_of = owner_of
        self._limit = limit_s
        self._slots = Slots.empty(64)
        self._where: dict[Target, dict[int, int]] = {}  # target -> row -> slot
        self._free = list(range(63, -1, -1))
        rows = len(self.sources)
        self._has_pods = np.array([s.pods for s in self.sources], dtype=np.bool_)
        self._listed = np.full(rows, np.nan)
        self._finished = np.full(rows, np.nan)
        self._active_at = np.full(rows, np.nan)
        self._wanted = np.full(rows, np.nan)
        self._ready = np.full(rows, np.nan)
        self._members: list[list[int]] = [[] for _ in range(rows)]

    def row(self, workload: WorkloadKey) -> int | None:
        return self._row.get(workload)

    def land(self, target: Target, samples: Samples, at: float) -> list[int]:
        """Take in one page; returns the rows of the workloads it speaks of. `at`: receipt, POSIX seconds."""
        if target.role is Role.GPUS:
            return self._land_gpus(target, samples, at)
        row = self._row.get(target.owner) if target.owner else None
        if row is None:
            return []
        chosen = _chosen(samples, self.sources[row].queue)
        slot = self._slot(target, row)
        values = np.full(len(Column), np.nan)
        values[Column.WAITING] = _total(samples, chosen, Quantity.REQUESTS_WAITING)
        values[Column.RUNNING] = _total(samples, chosen, Quantity.REQUESTS_RUNNING)
        values[Column.HELD] = _total(samples, chosen, Quantity.REQUESTS_HELD)
        values[Column.KV_CACHE] = _mean(samples.column(Quantity.KV_CACHE_USED)[chosen])
        values[Column.READY] = _total(samples, chosen, Quantity.REPLICAS_READY)
        if target.role is Role.GATEWAY and self._has_pods[row] and KINDS[samples.kind].repeats_engines:
            # Its averages are our own engines' queues over again; only what it holds itself is more.
            values[[Column.WAITING, Column.RUNNING, Column.KV_CACHE]] = np.nan
        measured = float(samples.at[chosen].min()) if len(chosen) else at
        self._slots.values[slot] = values
        self._slots.at[slot] = min(measured, at)
        self._count_activity(row, slot, samples, chosen, at)
        return [row]

    def _land_gpus(self, target: Target, samples: Samples, at: float) -> list[int]:
        shares = assign(samples, self._owner_of)
        touched = []
        engine = samples.column(Quantity.GPU_ENGINE_ACTIVE)
        # Utilisation stands in for the idle verdict alone: it never sizes demand (one request pegs it).
        busy = np.where(np.isnan(engine), samples.column(Quantity.GPU_UTILIZATION), engine)
        for workload, share in shares.items():
            row = self._row.get(workload)
            if row is None or not len(share.own):
                continue
            own = np.asarray(share.own)
            pods = {pod for index in share.own for pod in getattr(samples.subjects[index], "pods", ())}
            slot = self._slot(target, row)
            values = np.full(len(Column), np.nan)
            values[Column.GPU_SUM] = np.nan if np.isnan(engine[own]).all() else float(np.nansum(engine[own]))
            values[Column.GPU_COUNT] = float((~np.isnan(engine[own])).sum())
            values[Column.GPU_BUSIEST] = _largest(busy[own])
            values[Column.GPU_PODS] = float(len(pods))
            self._slots.values[slot] = values
            self._slots.at[slot] = min(float(samples.at[own].min()), at)
            touched.append(row)
        for row in set(self._where.get(target, ())) - set(touched):
            self._forget(target, row)  # its pods left these GPUs: the page is fresh and says so
        return touched

    def _count_activity(self, row: int, slot: int, samples: Samples, chosen: Rows, at: float) -> None:
        before = self._slots.counters[slot]
        after = np.array([_total(samples, chosen, quantity) for quantity in ACTIVITY])
        # A fall is a restart from zero: all of the new value happened since. The first sight is a baseline.
        rise = np.where(after >= before, after - before, after)
        rise[np.isnan(rise) | np.isnan(before)] = 0.0
        if (rise > 0.0).any():
            self._active_at[row] = at
        known = ~np.isnan(after)
        self._slots.counters[slot][known] = after[known]
        if known[0]:
            finished = self._finished[row]
            self._finished[row] = rise[0] + (0.0 if np.isnan(finished) else finished)

    def listed(self, workload: WorkloadKey, pods: int | None) -> None:
        """How many pods of a workload should answer; None is: the listing itself is not known now."""
        row = self._row.get(workload)
        if row is not None:
            self._listed[row] = np.nan if pods is None else float(pods)

    def expect(self, target: Target) -> None:
        """A target that will be asked: until it answers it counts as stale. Whose GPUs a node has is not yet known."""
        row = self._row.get(target.owner) if target.owner else None
        if row is not None:
            self._slot(target, row)

    def rows_of(self, target: Target) -> list[int]:
        """Rows of the workloads a target has spoken of, or is expected to."""
        return list(self._where.get(target, ()))

    def retire(self, target: Target) -> None:
        """A target is no longer there to be asked: a series never outlives its pod."""
        for row in list(self._where.get(target, ())):
            self._forget(target, row)

    def counted(self, workload: WorkloadKey, count: ReplicaCount | None) -> None:
        """What the cluster says of a workload's replicas; None is: it does not say."""
        row = self._row.get(workload)
        if row is not None:
            self._wanted[row] = np.nan if count is None else float(count.wanted)
            self._ready[row] = np.nan if count is None else float(count.ready)

    def stale(self, workload: WorkloadKey, now: float) -> tuple[str, ...]:
        """URLs of a workload's sources that should be fresh and are not, for a person to read."""
        row = self._row[workload]
        slots = self._slots
        return tuple(
            sorted(
                target.url
                for target, places in self._where.items()
                if row in places and not now - slots.at[places[row]] <= self._limit
            )
        )

    def _slot(self, target: Target, row: int) -> int:
        places = self._where.setdefault(target, {})
        slot = places.get(row)
        if slot is None:
            if not self._free:
                size = len(self._slots.owner)
                self._slots.grow()
                self._free = list(range(2 * size - 1, size - 1, -1))
            slot = places[row] = self._free.pop()
            self._slots.owner[slot] = row
            self._slots.role[slot] = ROLE_CODE[target.role]
            self._members[row].append(slot)
        return slot

    def _forget(self, target: Target, row: int) -> None:
        slot = self._where[target].pop(row)
        if not self._where[target]:
            del self._where[target]
        self._members[row].remove(slot)
        self._slots.clear(slot)
        self._free.append(slot)

    def totals(self, rows: Rows, now: float) -> Totals:
        """Add up what is fresh at `now` for these workloads."""
        index = np.array([slot for row in rows for slot in self._members[row]], dtype=np.int64)
        place = np.empty(len(self.sources), dtype=np.int64)
        place[rows] = np.arange(len(rows))
        owner, role = place[self._slots.owner[index]], self._slots.role[index]
        values, at = self._slots.values[index], self._slots.at[index]
        fresh = now - at <= self._limit
        speaks = ~np.isnan(values[:, [Column.WAITING, Column.RUNNING, Column.HELD]]).all(axis=1)
        pods, gateway, gpus = fresh & (role == PODS) & speaks, fresh & (role == GATEWAY), fresh & (role == GPUS)
        waker = gateway & speaks

        def count(mask: Mask) -> Floats:
            return np.bincount(owner[mask], minlength=len(rows)).astype(np.float64)

        def add(mask: Mask, column: Column) -> Floats:
            said = mask & ~np.isnan(values[:, column])
            sums = np.bincount(owner[said], weights=values[said, column], minlength=len(rows))
            return np.where(count(said) > 0, sums, np.nan)

        def mean(mask: Mask, column: Column) -> Floats:
            said = mask & ~np.isnan(values[:, column])
            return add(said, column) / np.maximum(count(said), 1.0)

        busiest, measured = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        np.fmax.at(busiest, owner[gpus], values[gpus, Column.GPU_BUSIEST])
        np.fmin.at(measured, owner[fresh], at[fresh])
        ready = _first(self._ready[rows], add(gateway, Column.READY))
        # Batch work without a queue: its pods are known by the GPUs they hold.
        ready = np.where(np.isnan(ready) & ~self._has_pods[rows], add(gpus, Column.GPU_PODS), ready)
        seen = Readings.unknown(len(rows))._replace(
            waiting=add(pods | waker, Column.WAITING),
            running=add(pods | waker, Column.RUNNING),
            held=add(pods | waker, Column.HELD),
            busiest_gpu=busiest,
            active_at=self._active_at[rows],
            pods_listed=self._listed[rows],
            pods_fresh=count(pods),
            gateway_fresh=count(gateway) > 0,
            waker_fresh=count(waker) > 0,
            gpus_stale=count(~fresh & (role == GPUS)) > 0,
            wanted=self._wanted[rows],
            ready=ready,
            measured_at=measured,
        )
        gpu_count = np.maximum(_count(add(gpus, Column.GPU_COUNT)), 1.0)
        return Totals(
            seen=seen,
            kv_cache=mean(pods, Column.KV_CACHE),
            gpu_engine=add(gpus, Column.GPU_SUM) / gpu_count,
            finished=self._finished[rows],
        )


def _count(values: Floats) -> Floats:
    return np.where(np.isnan(values), 0.0, values)


def _first(first: Floats, second: Floats) -> Floats:
    return np.where(np.isnan(first), second, first)


def _chosen(samples: Samples, queue: str | None) -> Rows:
    """Rows of the queues that count for a workload."""
    rows = [
        index
        for index, subject in enumerate(samples.subjects)
        if (name := getattr(subject, "name", None)) is not None and (queue is None or name == queue)
    ]
    return np.array(rows, dtype=np.int64)


def _total(samples: Samples, rows: Rows, quantity: Quantity) -> float:
    """Sum over queues. One that does not say makes the sum unknown: unknown is never zero."""
    values = samples.column(quantity)[rows]
    return float(values.sum()) if len(values) else float("nan")


def _mean(values: Floats) -> float:
    said = values[~np.isnan(values)]
    return float(said.mean()) if len(said) else float("nan")


def _largest(values: Floats) -> float:
    said = values[~np.isnan(values)]
    return float(said.max()) if len(said) else float("nan")


def owner_lookup(patterns: Mapping[WorkloadKey, str | None]) -> Callable[[PodKey], WorkloadKey | None]:
    """Which workload a pod belongs to, remembered per pod: pods are few and asked about on every page."""
    from exporter.attribution import owner_of  # noqa: PLC0415

    workloads = list(patterns.items())
    known: dict[PodKey, WorkloadKey | None] = {}

    def lookup(pod: PodKey) -> WorkloadKey | None:
        if pod not in known:
            if len(known) > 100_000:  # pods come and go: forget them all now and then rather than never
                known.clear()
            known[pod] = owner_of(pod, workloads)
        return known[pod]

    return lookup
