"""Stores the latest samples of every target, and adds up the fresh ones of each workload. Pure.

Each target of a workload has a *slot*: an engine, a gateway, or its share of one node's GPUs. A slot holds the last
reading and its time; a reading older than its limit does not count. Adding up is a handful of `bincount`s over all
slots: ten thousand workloads take milliseconds, one takes the price of the calls.

A response without any queue is no empty queue: it counts as absent (a new engine that has not published its gauges yet,
an exporter that reloads). An incomplete response is a lower bound.

Worked example: `TargetRules(WorkloadKey("ai", "chat"), pods=True, queue="llama")` is a workload with engines that are
scraped directly; of their responses only the queue of `llama` counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np

from exporter.attribution import KnownPods, Owners
from exporter.model import (
    EngineMemory,
    Floats,
    Gap,
    GapReason,
    GpuPart,
    PodKey,
    Quantity,
    ReplicaCount,
    Role,
    Samples,
    Target,
    WorkloadKey,
)
from scaler.columns import Array, Columns, Rows
from scaler.policy.capacity import WorkRate
from scaler.policy.columns import Readings, Signal
from scaler.policy.groups import Sharing

from . import gpu_usage, queues, rates, usage
from .activity import Activity
from .aggregate import Aggregate, HeldGpus, VisibleGpus
from .gpus import GpuShares, Price, beside, no_price, on_page
from .open_gaps import OpenGaps
from .pods import Chosen, GpuPage, PodEngine, PodNumbers, TargetReading, numbers, read_pages
from .queues import Incomplete, WakeSource
from .restart_proof import RestartProof, key_table, keys_of, page_key, page_table
from .saturation import EngineMemories, GpusByPod, SaturationMeter
from .slot_sums import PerWorkload, SlotSums, add_up
from .slots import ACTIVITY, ROLE_CODE, Column, Slots

MOST_GAPS = 20  # incomplete series of a workload that are named to people
# Of ACTIVITY: finished requests, prompt tokens and generated tokens.
_WORK_DONE = [
    ACTIVITY.index(quantity)
    for quantity in (Quantity.REQUESTS_FINISHED, Quantity.TOKENS_PROMPT, Quantity.TOKENS_GENERATED)
]
_NO_SHARE = np.full(16, np.nan)

# Replica counts from the cluster. A checkpoint has none of them: the cluster is read again.
COUNTED = ("_wanted", "_ready", "_pending", "_gpus_held", "_existing", "_going")
# The state of each workload's targets together; not in a checkpoint either.
PER_WORKLOAD = ("_listed", *COUNTED, "_in_pods", "_gpus_owed_until")


@dataclass(frozen=True, slots=True)
class TargetRules:
    """How the responses of one workload's targets are read.

    pods:  its engines are scraped themselves, so metrics that a gateway repeats of them are not added.
    queue: only this queue of a response (a model's name); None is all of them.
    probe_period: seconds; regular requests that are no further apart are probes. With 0 every request counts.
    gpu_quiet: engine activity (ratio) above which a GPU works.
    hold: seconds for which the last known requests of an engine that does not answer count as in hand.
    slo:  seconds until the first token, and per output token; None without an SLO.
    """

    workload: WorkloadKey
    pods: bool
    queue: str | None = None
    probe_period: float = 0.0
    gpu_quiet: float = 0.0
    hold: float = 300.0
    slo: tuple[float, float] | None = None


class LatestSamples:
    """The latest samples of all targets of a fixed list of workloads."""

    def __init__(
        self,
        sources: Sequence[TargetRules],
        owners: Owners,
        limit_s: float,
        pods: KnownPods | None = None,
        sharing: Sharing | None = None,
        hour: Price = no_price,
    ) -> None:
        """limit_s: seconds after which a reading is no longer fresh. sharing: which workloads share a queue.

        hour: the price of an hour of one GPU of a model; NaN if there is none.
        """
        self._hour = hour
        self.sources = tuple(sources)
        self._sharing = sharing or Sharing.none(len(self.sources))
        self._row = {source.workload: row for row, source in enumerate(self.sources)}
        self._owners, self._gpus = owners, GpuShares(owners, pods, hour)
        self._limit = limit_s
        self._slots = Slots.empty(64)
        self._where: dict[Target, dict[int, int]] = {}  # target -> row -> slot
        # slot -> its incomplete series, and since when, POSIX seconds
        self._gaps: dict[int, dict[tuple[str, GapReason], float]] = {}
        self._free = list(range(63, -1, -1))
        rows = len(self.sources)
        self._hold = np.array([s.hold for s in sources], dtype=np.float64)
        self._has_pods = np.array([s.pods for s in self.sources], dtype=np.bool_)
        self.activity = Activity(np.array([s.probe_period for s in self.sources], dtype=np.float64), 64)
        self._listed, self._wanted, self._ready = np.full((3, rows), np.nan)
        self._pending, self._gpus_held, self._existing, self._going = np.full((4, rows), np.nan)
        self._gpus_whole, self._gpus_hour = np.full((2, rows), np.nan)
        self.room = np.full(rows, np.inf)  # replicas, by the last sweep
        self.parts: list[tuple[GpuPart, ...]] = [()] * rows  # the GPUs that the cluster counts, by model
        self.awaited = RestartProof(rows)
        self.open_gaps = OpenGaps()
        self.saturation, self.engine_memories, self._pod_gpus = SaturationMeter(rows), EngineMemories(rows), GpusByPod()
        self._in_pods, self._gpus_owed_until = np.full((2, rows), np.nan)  # the first as last added up
        self._leaving: list[frozenset[Target]] = [frozenset()] * rows
        self._members: list[dict[int, Target]] = [{} for _ in range(rows)]  # row -> its slots, and the target of each

    def adopt(self, other: LatestSamples, rows: Rows, source_rows: Rows) -> None:
        """Copies the state of another instance with the same targets: `source_rows` into `rows`, pairwise.

        Targets of workloads that are gone are forgotten. Those of a workload that both have and that is not among
        `rows` are expected, as if they had never answered.
        """
        for name in PER_WORKLOAD:
            getattr(self, name)[rows] = getattr(other, name)[source_rows]
        self._adopt_parts(other, rows, source_rows)
        self.awaited.adopt(other.awaited, rows, source_rows)
        self._gpus.adopt(other._gpus)
        self.activity.adopt(other.activity, rows, source_rows)
        self._slots, self._gaps, self._free = other._slots, other._gaps, other._free
        self.open_gaps = other.open_gaps
        self.saturation.adopt(other.saturation)
        self.engine_memories.adopt(other.engine_memories)
        self._pod_gpus = other._pod_gpus
        row_of = dict(zip(source_rows.tolist(), rows.tolist(), strict=True))
        begun = (target for target, slots in other._where.items() if not slots.keys() <= row_of.keys())
        expected = [target for target in begun if target.role is not Role.GPUS and target.owner in self._row]
        for old, row in row_of.items():
            self._leaving[row] = other._leaving[old]
        for target, slots in other._where.items():
            for old, slot in slots.items():
                row = row_of.get(old)
                if row is None:
                    self._clear(slot)
                    continue
                self._where.setdefault(target, {})[row] = slot
                self._members[row][slot] = target
                self._slots.owner[slot] = row
                self._slots.limit[slot] = max(self._limit, target.max_age_s or 0.0)
        for target in expected:
            self.expect(target)

    def adopt_counts(self, other: LatestSamples, rows: Rows, source_rows: Rows) -> None:
        """Copies the replica counts of the workloads that both have: `source_rows` into `rows`, pairwise."""
        for name in COUNTED:
            getattr(self, name)[rows] = getattr(other, name)[source_rows]
        self._adopt_parts(other, rows, source_rows)

    def _adopt_parts(self, other: LatestSamples, rows: Rows, source_rows: Rows) -> None:
        """Prices may be others."""
        for mine, theirs in zip(rows.tolist(), source_rows.tolist(), strict=True):
            self.parts[mine] = other.parts[theirs]
            self._price(mine)

    def replan(self, sources: Sequence[TargetRules], rows: Rows) -> None:
        """Replaces the sources of `rows`. sources: those of `rows`, in their order, each of the same workload."""
        every = list(self.sources)
        for row, source in zip(rows.tolist(), sources, strict=True):
            every[row] = source
        self.sources = tuple(every)
        self._hold[rows] = [source.hold for source in sources]
        self._has_pods[rows] = [source.pods for source in sources]
        self.activity.probes.replan(rows, np.array([source.probe_period for source in sources], dtype=np.float64))

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps; live arrays."""
        return {**self.activity.columns(), **self.saturation.columns(), **self.engine_memories.columns()}

    def make_sound(self, rows: Rows, now: float) -> None:
        """Resets restored values of `rows` that this version could not have produced. now: POSIX seconds."""
        self.activity.make_sound(rows, now)
        self.saturation.make_sound(rows)
        self.engine_memories.make_sound(rows)

    def tables(self, rows: slice = slice(None)) -> dict[str, dict[str, Array]]:
        """The tables that a checkpoint keeps of a range of workloads: the counters of their targets, their missing
        series, and the GPUs that have ever exposed their activity.
        """
        first, last, _ = rows.indices(len(self.sources))
        spoken = ((self._row.get(workload, -1), key) for workload, key in self._gpus.spoken())
        gpus = key_table([(row - first, key) for row, key in spoken if first <= row < last])
        return {"pages": page_table(self._slots, first, last), "gpus": gpus, **self.missing(rows)}

    def missing(self, rows: slice = slice(None)) -> dict[str, dict[str, Array]]:
        """The table of the missing series of a range of workloads; empty if none is missing."""
        first, last, _ = rows.indices(len(self.sources))
        table = self.open_gaps.table(first, last, self._row, self._owners)
        return {"missing": table} if table else {}

    def take_missing(self, tables: Mapping[str, Columns], rows: Rows, source_rows: Rows, now: float) -> None:
        """Makes the missing series of a checkpoint's workloads `source_rows` pending in `rows`, pairwise."""
        if "missing" in tables:
            workloads = [self.sources[row].workload for row in rows.tolist()]
            self.open_gaps.take(tables["missing"], workloads, source_rows, now)

    def take(self, tables: Mapping[str, Columns], rows: Rows, source_rows: Rows, until: Floats) -> None:
        """Takes the tables of a checkpoint: those of `source_rows` into `rows`, pairwise.

        until: POSIX seconds by workload: for so long its GPUs are expected to answer, then they are no longer its.
        """
        self.awaited.expect(tables.get("pages", {}), len(ACTIVITY), rows, source_rows)
        owed, keys = keys_of(tables.get("gpus", {}), rows, source_rows)
        self._gpus.believe(keys)
        self._gpus_owed_until[owed] = until[owed]

    def land(self, target: Target, samples: Samples, at: float) -> list[int]:
        """Takes one response. Returns the rows of the workloads that it is about. `at`: POSIX seconds of receipt."""
        if target.role is Role.GPUS:
            self._gpus.restore(target, self.open_gaps.pending(target))
            touched = self._land_gpus(target, samples, at)
            self.open_gaps.land(target, samples.missing + self._gpus.unlabelled(target))
            return touched
        self.open_gaps.land(target, samples.missing)
        row = self._row.get(target.owner) if target.owner else None
        if row is None:
            return []
        source, slot = self.sources[row], self._slot(target, row)
        namespace = source.workload.namespace
        page = queues.read(
            samples, target.role, source.queue, at, pods=source.pods, namespace=namespace, slo=source.slo
        )
        if target.role is Role.PODS:
            rates.of_engine(
                page.values, page.sums, self._slots.work[slot], at, page.splits, lags=page.lags, forgets=page.forgets
            )
            gpu_usage.count_rates(self._slots.usage[slot], page.sums, at)
            self._note_engine(target, row, slot, page, samples.memory, at)
        else:
            rates.of_gateway(page.values, self._slots.work[slot], at)
        self._slots.values[slot] = page.values
        self._slots.at[slot] = page.at
        self._slots.wake_source[slot] = page.wake_source
        self._slots.incomplete[slot] = page.incomplete
        self._note_gaps(slot, page.gaps, at)
        if target.role is Role.PODS or not self._sharing.gets_nothing(row):
            if self.awaited.pending(row) and not self.awaited.meet(self._slots, slot, page.counters):
                self.activity.active_at[row] = at
            # A gateway repeats the finished requests of its engines.
            counts = target.role is Role.PODS or not source.pods
            self.activity.land(row, slot, self._slots.counters[slot], page, at, counts=counts)
        gpus = beside(target, samples)
        return [row] if gpus is None else [row, *(set(self._land_gpus(on_page(target), gpus, at)) - {row})]

    def _note_engine(
        self, target: Target, row: int, slot: int, page: queues.QueuePage, memory: EngineMemory | None, at: float
    ) -> None:
        """Keeps what the advice on GPUs and slices needs of an engine."""
        if memory is not None:
            self.engine_memories.land(row, slot, memory, self._members[row])
        if not page.values[Column.WAITING] > 0.0:
            self.saturation.interrupt(slot)
            return
        workload, members = self.sources[row].workload, self._members[row].values()
        held = self._pod_gpus.held(workload, target.pod, at) if target.pod is not None else ()
        if not held and sum(each.role is Role.PODS for each in members) == 1:
            held = self._pod_gpus.held(workload, None, at)
        kind = held[0] if len(held) == 1 else None
        self.saturation.land(row, slot, at, kind, page.counters[_WORK_DONE])

    def _note_gaps(self, slot: int, gaps: Sequence[Gap], at: float) -> None:
        """Keeps since when each series of a slot's response is incomplete. at: POSIX seconds of receipt."""
        if not gaps:
            self._gaps.pop(slot, None)
            return
        before = self._gaps.get(slot, {})
        since = [at if isnan(gap.since) else gap.since for gap in gaps]
        keys = [(gap.series, gap.reason) for gap in gaps]
        self._gaps[slot] = {key: before.get(key, begun) for key, begun in zip(keys, since, strict=True)}

    def _land_gpus(self, target: Target, samples: Samples, at: float) -> list[int]:
        touched = []
        readings = self._gpus.read(target, samples, at)
        self._pod_gpus.land(target, {workload: reading.pods for workload, reading in readings.items()}, at)
        for workload, reading in readings.items():
            row = self._row.get(workload)
            if row is None:
                continue
            slot = self._slot(target, row)
            self._slots.values[slot], self._slots.usage[slot] = reading.values, reading.usage
            self._slots.at[slot] = reading.at
            self._note_gaps(slot, reading.gaps, at)
            if reading.values[Column.GPU_BUSIEST] > self.sources[row].gpu_quiet:
                self.activity.probes.worked(row, at)
            self._gpus_owed_until[row] = np.nan
            touched.append(row)
        for row in set(self._where.get(target, ())) - set(touched):
            self._forget(target, row)  # its pods left these GPUs, by a fresh response
        return touched

    def listed(self, workload: WorkloadKey, pods: int | None) -> None:
        """Takes the number of pods of a workload that should answer; None: the list is not known now."""
        row = self._row.get(workload)
        if row is not None:
            self._listed[row] = np.nan if pods is None else float(pods)

    def expect(self, target: Target) -> None:
        """Adds a target that will be scraped: it is stale until it answers. The owners of GPUs are not known yet."""
        row = self._row.get(target.owner) if target.owner else None
        if row is not None:
            self._slot(target, row)

    def rows_of(self, target: Target) -> list[int]:
        """The rows of the workloads that a target is about."""
        return list(self._where.get(target, ()))

    def retire(self, target: Target) -> None:
        """Removes a target and all its readings: a series never outlives its pod."""
        self.open_gaps.retire(target)
        for each in (target, on_page(target)):
            self._gpus.forget(each)
            self._pod_gpus.retire(each)
            for row in list(self._where.get(each, ())):
                self._forget(each, row)

    def distrust(self, target: Target) -> None:
        """Marks a target as stale until its next response: the last one may have been processed by half."""
        for each in (target, on_page(target)):
            for slot in self._where.get(each, {}).values():
                self._slots.at[slot] = np.nan

    def leaving(self, workload: WorkloadKey, targets: Collection[Target]) -> None:
        """Takes the targets of a workload with Terminating pods; the others are not Terminating."""
        row = self._row.get(workload)
        if row is not None:
            self._leaving[row] = frozenset(targets)
            for slot, target in self._members[row].items():
                self._slots.leaving[slot] = target in targets

    def counted(self, workload: WorkloadKey, count: ReplicaCount | None) -> None:
        """Takes the replica count of a workload; None if the cluster has none."""
        row = self._row.get(workload)
        if row is not None:
            self._wanted[row] = np.nan if count is None else float(count.wanted)
            self._ready[row] = np.nan if count is None else float(count.ready)
            self._pending[row] = np.nan if count is None else float(count.pending)
            self._going[row] = np.nan if count is None else float(count.leaving)
            self._existing[row] = np.nan if count is None or count.existing is None else float(count.existing)
            self._gpus_held[row] = np.nan if count is None or count.gpus is None else float(count.gpus)
            self.parts[row] = () if count is None else count.parts or (GpuPart(None, self._gpus_held[row]),)
            self._price(row)

    def _price(self, row: int) -> None:
        parts = self.parts[row]
        whole = sum(part.whole for part in parts)
        money = sum(part.whole * self._hour(part.model) for part in parts)
        self._gpus_whole[row] = whole if parts else np.nan
        self._gpus_hour[row] = money / whole if whole else np.nan

    def has_gateway(self, workload: WorkloadKey) -> bool:
        """Whether a workload has a gateway, whether or not it answers."""
        return any(target.role is Role.GATEWAY for target in self._members[self._row[workload]].values())

    def wake_source(self, workload: WorkloadKey, now: float) -> tuple[WakeSource, str]:
        """The series that would show the next request at zero replicas, and the URL of its target."""
        slots = self._slots
        pages = [
            (WakeSource(int(slots.wake_source[slot])), target.url)
            for slot, target in self._members[self._row[workload]].items()
            if target.role is Role.GATEWAY and now - slots.at[slot] <= slots.limit[slot]
        ]
        return max(pages, default=(WakeSource.NOTHING, ""))

    def stale(self, workload: WorkloadKey, now: float) -> tuple[str, ...]:
        """The names of a workload's targets that should be fresh and are not."""
        slots = self._slots
        members = self._members[self._row[workload]]
        return tuple(
            sorted(
                target.named
                for slot, target in members.items()
                if not slots.leaving[slot] and not now - slots.at[slot] <= slots.limit[slot]
            )
        )

    def untimed(self, workload: WorkloadKey, now: float) -> tuple[str, ...]:
        """The latencies of the SLO, "ttft" or "itl", of which a fresh engine shows no buckets near the limit."""
        slots = self._slots
        fresh = [
            slot
            for slot, target in self._members[self._row[workload]].items()
            if target.role is Role.PODS and now - slots.at[slot] <= slots.limit[slot]
        ]
        latencies = (("ttft", WorkRate.TTFT), ("itl", WorkRate.TPOT))
        return tuple(name for name, first in latencies if any(isnan(slots.work[slot, first]) for slot in fresh))

    def incomplete(self, workload: WorkloadKey, now: float) -> tuple[str, ...]:
        """The incomplete series of a workload's fresh targets, as text."""
        slots = self._slots
        found = [
            (since, f"{series} of {target.named} is {reason} for {now - since:.0f} s")
            for slot, target in self._members[self._row[workload]].items()
            if now - slots.at[slot] <= slots.limit[slot]
            for (series, reason), since in self._gaps.get(slot, {}).items()
        ]
        return tuple(text for _, text in sorted(found)[:MOST_GAPS])

    def gpu_responses(self) -> list[Samples]:
        """The last response of each target with GPUs."""
        return [samples for _, samples, _ in self._gpus.pages()]

    def pods(self, namespace: str, chosen: Chosen, now: float) -> Mapping[PodKey, tuple[PodNumbers, ...]]:
        """The numbers of each chosen pod, all of one namespace. `now`: POSIX seconds."""
        gpus = (
            GpuPage(target.url, samples, at, max(self._limit, target.max_age_s or 0.0), self._gpus.lag_s(target))
            for target, samples, at in self._gpus.pages()
        )
        return numbers(self._engines(namespace, chosen, now), gpus, self._owners, chosen, now)

    def pages(self, workload: WorkloadKey, now: float) -> tuple[TargetReading, ...]:
        """The last response of each of a workload's targets. `now`: POSIX seconds."""
        members = self._members[self._row[workload]]
        gaps = {slot: self._gaps[slot] for slot in members if slot in self._gaps}
        incomplete = {slot: [f"{series} is {reason}" for series, reason in found] for slot, found in gaps.items()}
        return read_pages(self._slots, members, incomplete, now)

    def _engines(self, namespace: str, chosen: Chosen, now: float) -> Iterator[PodEngine]:
        slots = self._slots
        for source, members in zip(self.sources, self._members, strict=True):
            if source.workload.namespace != namespace:
                continue
            for slot, target in members.items():
                if target.pod is None or target.role is not Role.PODS or not chosen(target.pod):
                    continue
                waiting, running = slots.values[slot, [Column.WAITING, Column.RUNNING]].tolist()
                at = float(slots.at[slot])
                fresh = now - at <= slots.limit[slot] and not slots.incomplete[slot] & Incomplete.IN_HAND
                yield PodEngine(target.pod, source.workload, target.url, waiting, running, at, fresh=bool(fresh))

    def _slot(self, target: Target, row: int) -> int:
        places = self._where.setdefault(target, {})
        slot = places.get(row)
        if slot is None:
            if not self._free:
                size = len(self._slots.owner)
                self._slots.grow()
                self.activity.probes.grow(2 * size)
                self._free = list(range(2 * size - 1, size - 1, -1))
            slot = places[row] = self._free.pop()
            self._slots.owner[slot] = row
            self._slots.role[slot] = ROLE_CODE[target.role]
            self._slots.leaving[slot] = target in self._leaving[row]
            self._slots.limit[slot] = max(self._limit, target.max_age_s or 0.0)
            self._slots.key[slot] = page_key(target, self.sources[row].workload)
            self._members[row][slot] = target
        return slot

    def _forget(self, target: Target, row: int) -> None:
        slot = self._where[target].pop(row)
        if not self._where[target]:
            del self._where[target]
        del self._members[row][slot]
        self.engine_memories.forget(row, slot, self._members[row])
        self._clear(slot)

    def _clear(self, slot: int) -> None:
        self._slots.clear(slot)
        self.activity.probes.clear(slot)
        self._gaps.pop(slot, None)
        self.saturation.interrupt(slot)
        self.engine_memories.drop(slot)
        self._free.append(slot)

    def engines(self, row: int) -> Iterator[tuple[Target, bool, float]]:
        """The engines of a workload that must answer and show whether they sleep: that, and POSIX seconds of it."""
        slots = self._slots
        for slot, target in self._members[row].items():
            sleeping = slots.values[slot, Column.SLEEPING]
            if target.role is Role.PODS and not slots.leaving[slot] and not isnan(sleeping):
                yield target, bool(sleeping > 0.0), float(slots.at[slot])

    def usage(self, now: float) -> Floats:
        """What profiles need beside `totals`, of all workloads; shape (rows, len(GpuUsage)), NaN unknown."""
        slots = self._slots
        fresh = (now - slots.at <= slots.limit) & ~slots.leaving
        return usage.means(slots.usage, slots.owner, fresh, len(self.sources))

    def totals(self, rows: Rows, now: float) -> Aggregate:
        """Add up what is fresh at `now` for these workloads; no row twice."""
        chosen, position = self._slots_of(rows)
        share = _NO_SHARE[: len(rows)] if len(rows) <= len(_NO_SHARE) else np.full(len(rows), np.nan)
        workloads = PerWorkload(self._listed, self._wanted, self._ready, self._hold, self._has_pods)
        sums, flags, latest, per_second = add_up(self._slots, rows, chosen, position, workloads, share, now)
        self._in_pods[rows] = sums.in_pods
        if self._sharing.shares(rows).any():
            room = self._sharing.capacity(self._in_pods, self._wanted, self._pending, self.room)
            share = np.where(self._sharing.shares(rows), self._sharing.parts(rows, sums.at_gateway, room), np.nan)
            sums, flags, latest, per_second = add_up(self._slots, rows, chosen, position, workloads, share, now)
        readings = Readings(
            signals=np.full((len(rows), len(Signal)), np.nan),
            waiting=sums.waiting,
            running=sums.running,
            held=sums.held,
            busiest_gpu=sums.busiest_gpu,
            active_at=self.activity.active_at[rows],
            pods_listed=self._listed[rows],
            pods_fresh=sums.pods_fresh,
            pods_partial=sums.pods_partial,
            in_hand_at_least=sums.in_hand_at_least,
            refused_at=self.activity.refused_at[rows],
            wanted=self._wanted[rows],
            ready=sums.ready,
            existing=self._existing[rows],
            pending=self._pending[rows],
            measured_at=sums.measured_at,
            **flags._asdict(),
        )
        readings.gpus_stale[now <= self._gpus_owed_until[rows]] = True
        return Aggregate(
            readings=readings,
            gpus_held=self._gpus_held[rows],
            gpus=VisibleGpus(
                sums.gpus_shown,
                sums.gpus_utilised,
                sums.gpus_silent,
                sums.gpus_lost,
                sums.gpus_parts,
                sums.gpu_memory,
                sums.gpu_ceiling,
            ),
            in_pods=sums.in_pods,
            latest=latest,
            rates=per_second,
            uncounted=sums.uncounted,
            finished=self.activity.finished[rows],
            sleeping=sums.sleeping,
            open=sums.open,
            leaving=self._going[rows],
            held=self._held(rows, sums),
        )

    def _held(self, rows: Rows, sums: SlotSums) -> HeldGpus:
        """What the cluster counts, else what GPU targets show. Power counts only if they show all that it counts."""
        whole, hour, count = self._gpus_whole[rows], self._gpus_hour[rows], self._gpus_held[rows]
        shown = np.where(np.isnan(whole), sums.gpus_whole, whole)
        watts = np.where(np.isnan(count) | (count == sums.gpus_shown), sums.gpu_watts, np.nan)
        return HeldGpus(shown, np.where(np.isnan(hour), sums.gpu_hour, hour), watts)

    def _slots_of(self, rows: Rows) -> tuple[Rows, Rows]:
        """The slots of these workloads, and for each the index of its owner in `rows`."""
        if len(rows) == len(self.sources):
            slots = np.flatnonzero(self._slots.owner >= 0)
        elif len(rows) == 1:
            slots = np.array(sorted(self._members[rows[0]]), dtype=np.int64)
            return slots, np.zeros(len(slots), dtype=np.int64)
        else:
            slots = np.array(sorted(slot for row in rows for slot in self._members[row]), dtype=np.int64)
        position = np.empty(len(self.sources), dtype=np.int64)
        position[rows] = np.arange(len(rows))
        return slots, position[self._slots.owner[slots]]
