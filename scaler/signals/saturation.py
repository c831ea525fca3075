"""Measures what the engines of each workload do per second at saturation, apart for each GPU or MIG slice. Pure.

An engine is saturated between two responses that both show waiting requests, at most LONGEST_S apart. It ran on a kind
of GPU if, at both times, its pod held exactly one GPU or MIG instance, the same kind. An engine without the name of
such a pod counts if it is the workload's only one. `scaler.report.saturation` has the same rule for a history.

A workload has the last KINDS kinds. Sums of a kind are halved every HALF_LIFE_S of the time between two of its
additions, so they keep their ratio while the workload runs elsewhere: a slice is compared with the whole GPU of last
week. After KEPT_S they count no more. All sums of a kind are of the same seconds: a time in which one of its counters
is not exposed is left out, and with a counter more they begin anew.

Per workload: KINDS times 64 bytes of names and 5 double-precision floats, 520 bytes.

Worked example: an engine on a 3g.20gb with a queue generates 1,300 tokens per second for 10 minutes. Its sums are 600
seconds, and 780,000 tokens. Moved to a 1g.5gb, it begins a second kind; the first one stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isnan, nan
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.catalog.engine_memory import smallest
from exporter.model import EngineMemory, Floats, Gpu, PodKey, Target, WorkloadKey
from scaler.columns import Array, Rows, named

LONGEST_S = 300.0  # between two responses, and the age of a GPU's: a queue at both ends says nothing of a longer time
KINDS = 5  # a whole GPU and the four slices of 7 that are not the same size
HALF_LIFE_S = 7 * 86400.0  # a queue of half a minute a day adds up to the 300 s that a comparison needs
KEPT_S = 30 * 86400.0
_LARGEST = 1e18  # of a restored sum

Names: TypeAlias = NDArray[np.uint8]
_GPU_BYTES, _PROFILE_BYTES = 48, 16  # "NVIDIA RTX PRO 6000 Blackwell Server Edition" has 44, "1g.180gb+me.all" has 15


class EngineDevice(NamedTuple):
    """What an engine runs on. gpu: the model, "" if the exporter names none. profile: of the MIG instance; "" for a
    whole GPU.
    """

    gpu: str
    profile: str


class SaturatedSums(NamedTuple):
    """What a workload's engines did on one kind of GPU while requests waited; NaN: not counted."""

    kind: EngineDevice
    seconds: float
    requests: float
    prompt: float
    generated: float


class PodGpu(NamedTuple):
    """A GPU or instance that one pod holds alone. kind: None if it is not known."""

    pod: PodKey
    kind: EngineDevice | None


def pod_gpu(gpu: Gpu) -> PodGpu | None:
    """None if no single pod holds the GPU."""
    if len(gpu.pods) != 1:
        return None
    return PodGpu(gpu.pods[0], kind_of(gpu))


def kind_of(gpu: Gpu) -> EngineDevice | None:
    """None of an instance without a profile."""
    if gpu.instance is None:
        return EngineDevice(gpu.model or "", "")
    return None if gpu.profile is None else EngineDevice(gpu.model or "", gpu.profile)


class GpusByPod:
    """The GPUs that pods hold alone, by the last response of each target."""

    def __init__(self) -> None:
        self._held: dict[tuple[WorkloadKey, PodKey | None], dict[Target, list[EngineDevice | None]]] = {}
        self._of: dict[Target, tuple[float, list[tuple[WorkloadKey, PodKey | None]]]] = {}

    def land(self, target: Target, gpus: Mapping[WorkloadKey, Sequence[PodGpu]], at: float) -> None:
        """Replaces what a target showed. at: POSIX seconds."""
        self.retire(target)
        keys: list[tuple[WorkloadKey, PodKey | None]] = []
        for workload, held in gpus.items():
            for each in held:
                for key in ((workload, each.pod), (workload, None)):  # None: all of the workload
                    self._held.setdefault(key, {}).setdefault(target, []).append(each.kind)
                    keys.append(key)
        if keys:
            self._of[target] = at, keys

    def retire(self, target: Target) -> None:
        for key in self._of.pop(target, (0.0, ()))[1]:
            by_target = self._held.get(key, {})
            by_target.pop(target, None)
            if not by_target:
                self._held.pop(key, None)

    def held(self, workload: WorkloadKey, pod: PodKey | None, at: float) -> list[EngineDevice | None]:
        """The kinds of the GPUs of a pod at a time, None for an unknown one. pod: None for all of the workload."""
        shown = self._held.get((workload, pod), {})
        return [kind for target, kinds in shown.items() if at - self._of[target][0] <= LONGEST_S for kind in kinds]


class _QueuedResponse(NamedTuple):
    """The last response of an engine with waiting requests. counts: requests, prompt and generated tokens."""

    at: float
    kind: EngineDevice
    counts: Floats


class SaturationMeter:
    """Adds up the work of a fixed list of workloads at saturation, by the slots of their engines.

    sums: shape (rows, KINDS, 4): seconds, requests, prompt tokens, generated tokens. at: shape (rows, KINDS): POSIX
    seconds of the last addition; NaN: no kind there. names: shape (rows, KINDS, 64), UTF-8.
    """

    def __init__(self, rows: int) -> None:
        self.sums = np.zeros((rows, KINDS, 4))
        self.at = np.full((rows, KINDS), np.nan)
        self.names: Names = np.zeros((rows, KINDS, _GPU_BYTES + _PROFILE_BYTES), dtype=np.uint8)
        self._last: dict[int, _QueuedResponse] = {}

    def land(self, row: int, slot: int, at: float, kind: EngineDevice | None, counts: Floats) -> None:
        """Takes a response of an engine that shows waiting requests. counts: see `_QueuedResponse`; NaN not exposed."""
        last = self._last.pop(slot, None)
        if kind is None:
            return
        self._last[slot] = _QueuedResponse(at, kind, counts)
        if last is None or last.kind != kind or not 0.0 < at - last.at <= LONGEST_S:
            return
        # A counter that has fallen belongs to another process.
        if (counts >= last.counts).any() and not (counts < last.counts).any():
            self._add(row, kind, np.array([at - last.at, *(counts - last.counts)]), at)

    def interrupt(self, slot: int) -> None:
        """Ends the saturation of an engine, which shows no waiting request, or is gone."""
        self._last.pop(slot, None)

    def _add(self, row: int, kind: EngineDevice, rise: Floats, at: float) -> None:
        name = _encoded(kind)
        if name is None:
            return
        here = np.flatnonzero((self.names[row] == name).all(axis=1) & ~np.isnan(self.at[row]))
        if len(here):
            index = int(here[0])
            elapsed, sums = max(at - float(self.at[row, index]), 0.0), self.sums[row, index]
            lacks, more = np.isnan(rise) & ~np.isnan(sums), ~np.isnan(rise) & np.isnan(sums)
            if lacks.any() and elapsed <= KEPT_S:
                return  # the sums that it has would be of more seconds than the others
            sums[:] = 0.0 if more.any() or elapsed > KEPT_S else sums * 0.5 ** (elapsed / HALF_LIFE_S)
        else:
            index = int(np.argmin(np.where(np.isnan(self.at[row]), -np.inf, self.at[row])))
            self.sums[row, index], self.names[row, index] = 0.0, name
        self.sums[row, index] += rise
        self.at[row, index] = at

    def of(self, row: int, now: float) -> tuple[SaturatedSums, ...]:
        """The kinds of one workload, by name. now: POSIX seconds."""
        indices = np.flatnonzero(now - self.at[row] <= KEPT_S).tolist()
        found = ((_decoded(self.names[row, index]), self.sums[row, index].tolist()) for index in indices)
        return tuple(SaturatedSums(kind, *sums) for kind, sums in sorted(found) if sums[0] > 0.0)

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps; live arrays."""
        return named("saturation", {"sums": self.sums, "at": self.at, "names": self.names})

    def make_sound(self, rows: Rows) -> None:
        """Removes restored kinds that cannot have been added."""
        sums = self.sums[rows]
        sound = (np.isnan(sums) | ((sums >= 0.0) & (sums <= _LARGEST))).all(axis=2) & (sums[:, :, 0] > 0.0)
        self.at[rows] = np.where(sound, self.at[rows], np.nan)
        self.sums[rows] = np.where(sound[:, :, None], sums, 0.0)

    def adopt(self, other: SaturationMeter) -> None:
        """Takes over the responses of another list of workloads with the same slots."""
        self._last = other._last


def _encoded(kind: EngineDevice) -> Names | None:
    """None if a name is too long, which no GPU's is."""
    parts = kind.gpu.encode(), kind.profile.encode()
    if len(parts[0]) > _GPU_BYTES or len(parts[1]) > _PROFILE_BYTES:
        return None
    padded = parts[0].ljust(_GPU_BYTES, b"\0") + parts[1].ljust(_PROFILE_BYTES, b"\0")
    return np.frombuffer(padded, dtype=np.uint8)


def _decoded(name: Names) -> EngineDevice:
    text = name.tobytes()
    parts = text[:_GPU_BYTES], text[_GPU_BYTES:]
    return EngineDevice(*(part.rstrip(b"\0").decode(errors="replace") for part in parts))


class EngineMemories:
    """The memory that the engines of a fixed list of workloads expose, as they last did.

    values: shape (rows, 2): the tokens of the smallest KV cache, and the ratio of the GPU's memory that its engine
    takes; NaN not exposed. 16 bytes per workload.
    """

    def __init__(self, rows: int) -> None:
        self.values = np.full((rows, 2), np.nan)
        self._of_slot: dict[int, EngineMemory] = {}

    def land(self, row: int, slot: int, memory: EngineMemory, slots: Iterable[int]) -> None:
        """Takes what one engine exposes. slots: those of the workload."""
        if self._of_slot.get(slot) != memory:
            self._of_slot[slot] = memory
            self._choose(row, slots)

    def forget(self, row: int, slot: int, slots: Iterable[int]) -> None:
        """Forgets an engine that is gone; the last one of a workload is remembered."""
        if self._of_slot.pop(slot, None) is not None:
            self._choose(row, slots)

    def drop(self, slot: int) -> None:
        """Forgets an engine of a workload that is gone."""
        self._of_slot.pop(slot, None)

    def _choose(self, row: int, slots: Iterable[int]) -> None:
        shown = smallest(self._of_slot.get(slot) for slot in slots)
        if shown is not None:
            self.values[row] = [nan if value is None else value for value in shown]

    def of(self, row: int) -> EngineMemory | None:
        """Of one workload; None if nothing was exposed."""
        tokens, ratio = self.values[row].tolist()
        if isnan(tokens) and isnan(ratio):
            return None
        return EngineMemory(None if isnan(tokens) else int(tokens), None if isnan(ratio) else ratio)

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps; live arrays."""
        return named("engine_memory", {"values": self.values})

    def make_sound(self, rows: Rows) -> None:
        values = self.values[rows]
        self.values[rows] = np.where((values > 0.0) & (values <= [_LARGEST, 1.0]), values, np.nan)

    def adopt(self, other: EngineMemories) -> None:
        self._of_slot = other._of_slot
