"""All GPUs of this node, read once: a table, or why there is none.

It knows when the driver is opened and closed and what becomes of a GPU that is lost; the questions are `Gpus`'. NVML is
opened once and kept open, because opening it may start the driver, and is opened anew after the driver was gone. It
blocks for as long as the driver likes: call it in a thread.

Worked example: of two GPUs the second falls off the bus. The table still has both; the second's row names
the pod it had, says GPU_LOST 1 and nothing else, and one entry of `dropped` is "GPU 1 (GPU-…): power: GPU_IS_LOST: …".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from exporter.model import Dropped, Failure, FailureKind, Gpu, Quantity, Samples

from .asking import Lost, Shut
from .gpm import Key
from .gpus import GpuReading, NvmlGpus, ReadContext
from .holders import Holders, PodOf
from .library import DEAD, Library, NvmlCode, code_of

KIND = "nvml"
QUANTITIES = (
    Quantity.GPU_ENGINE_ACTIVE,
    Quantity.GPU_UTILIZATION,
    Quantity.GPU_SM_ACTIVE,
    Quantity.GPU_TENSOR_ACTIVE,
    Quantity.GPU_DRAM_ACTIVE,
    Quantity.GPU_MEMORY_USED,
    Quantity.GPU_MEMORY_TOTAL,
    Quantity.GPU_POWER,
    Quantity.GPU_ENERGY,
    Quantity.GPU_TEMPERATURE,
    Quantity.GPU_LOST,
)
# A lost GPU may have been reset or taken out meanwhile, which an open library does not learn. Opening anew costs its
# neighbours the activity of one reading.
REOPEN_S = 300.0


class NvmlNode:
    """The library, opened when it is first read. Not for two threads at a time."""

    def __init__(self, library: Library, pod_of: PodOf, proc: Path) -> None:
        self._library = library
        self._gpus = NvmlGpus(library, Holders(library, pod_of, proc))
        self._opened_at: float | None = None
        self._known: dict[int, tuple[Gpu, ...]] = {}  # by number, as last seen
        self._any_lost = False

    def read(self, now: float) -> Samples | Failure:
        """What the node's GPUs say at `now`, POSIX seconds. Blocks."""
        if self._any_lost and self._opened_at is not None and now - self._opened_at >= REOPEN_S:
            self.close()
        try:
            opened_at, count = self._open(now), self._count()
            return self._table(count, opened_at, now)
        except Shut as shut:
            self.close()
            kind = FailureKind.TIMEOUT if shut.code == NvmlCode.TIMEOUT else FailureKind.REFUSED
            return Failure(kind, f"NVML: {shut}")

    def close(self) -> None:
        """Let the driver go, as far as it still answers. Blocks."""
        if self._opened_at is None:
            return
        self._opened_at = None
        self._gpus.gpm.keep_only(())
        try:
            self._library.nvmlShutdown()
        except self._library.NVMLError:
            return  # gone already, which is what was asked for

    def _open(self, now: float) -> float:
        if self._opened_at is None:
            try:
                self._library.nvmlInit()
            except self._library.NVMLError as error:
                raise Shut(code_of(error)) from error
            self._opened_at = now
        return self._opened_at

    def _count(self) -> int:
        try:
            return self._library.nvmlDeviceGetCount()
        except self._library.NVMLError as error:
            raise Shut(code_of(error)) from error

    def _table(self, count: int, opened_at: float, now: float) -> Samples | Failure:
        """Raises Shut."""
        rows: list[GpuReading] = []
        keys: list[Key] = []
        dropped: list[Dropped] = []
        self._any_lost = False
        for index in range(count):
            told: list[str] = []
            try:
                found, sampled = self._gpus.rows(index, ReadContext(now, opened_at, told))
                self._known[index] = tuple(row.gpu for row in found)
                keys += sampled
            except Lost as lost:
                self._any_lost = True
                told.append(str(lost))
                # As it was last seen, and silent: a GPU that vanished would read as one that its pod gave back.
                values = {Quantity.GPU_LOST: 1.0} if lost.code in DEAD else {}
                found = [GpuReading(gpu, values) for gpu in self._known.get(index, ())]
            rows += found
            name = f"GPU {index} ({found[0].gpu.uuid})" if found else f"GPU {index}"
            dropped += [Dropped(index + 1, f"{name}: {reason}") for reason in dict.fromkeys(told)]
        self._gpus.gpm.keep_only(keys)
        if not rows:
            reasons = "; ".join(entry.reason for entry in dropped)
            return Failure(FailureKind.EMPTY, f"NVML: {reasons or 'no GPU is visible in this container'}")
        return Samples(
            kind=KIND,
            subjects=tuple(row.gpu for row in rows),
            quantities=QUANTITIES,
            values=_values(rows),
            at=np.full(len(rows), now),
            dropped=tuple(dropped),
        )


def _values(rows: Sequence[GpuReading]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array([[row.values.get(quantity, np.nan) for quantity in QUANTITIES] for row in rows], dtype=np.float64)
