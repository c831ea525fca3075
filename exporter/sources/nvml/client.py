"""Reads all GPUs of this node from an event loop.

A failing driver blocks a caller for seconds, or for ever, and a thread cannot be stopped. So each reading has its
own daemon thread, never two at a time, and while it hangs every further reading is a `Failure` at once.

NVML is opened once and kept open, because opening it may start the driver; it is opened again after the driver was
gone.

Worked example: of two GPUs the second falls off the bus. The table still has both; the second's row names its last pod,
has GPU_LOST 1 and nothing else, and one entry of `dropped` is "GPU 1 (GPU-…): power: GPU_IS_LOST: …". With a driver
that hangs, `await nvml.samples(now)` is `Failure(TIMEOUT, …)` after `timeout_s`, and the next one at once; when the
driver returns, its late answer is dropped, and the next reading is a table again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np

from exporter.model import Dropped, Failure, FailureKind, Gpu, Quantity, Samples

from .device import DeviceKey, GpuReading, NvmlDevices, ReadContext
from .library import DEAD, DriverGone, GpuLost, Library, NvmlCode, code_of
from .processes import PodOf, Processes

PROC = Path("/proc")
KIND = "nvml"
QUANTITIES = (
    Quantity.GPU_ENGINE_ACTIVE,
    Quantity.GPU_UTILIZATION,
    Quantity.GPU_SM_ACTIVE,
    Quantity.GPU_SM_OCCUPANCY,
    Quantity.GPU_TENSOR_ACTIVE,
    Quantity.GPU_DRAM_ACTIVE,
    Quantity.GPU_MEMORY_USED,
    Quantity.GPU_MEMORY_TOTAL,
    Quantity.GPU_POWER,
    Quantity.GPU_ENERGY,
    Quantity.GPU_TEMPERATURE,
    Quantity.GPU_LOST,
)
# A lost GPU may have been reset or removed meanwhile, which an open library does not notice. Opening it again costs the
# other GPUs the activity of one reading.
REOPEN_S = 300.0

Value = TypeVar("Value")


class Nvml:
    """The node's GPUs.

    library:   `installed()`, or a replacement.
    pod_of:    a pod of this node by its UID in the API, None if unknown; called in a thread.
    timeout_s: wall-clock seconds for one reading.
    """

    def __init__(self, library: Library, pod_of: PodOf, timeout_s: float, proc: Path = PROC) -> None:
        self._node = NvmlNode(library, pod_of, proc)
        self._timeout_s = timeout_s
        self._running = False

    async def samples(self, now: float) -> Samples | Failure:
        """A row per GPU and MIG instance, or why there are none. now: POSIX seconds, the time of every row."""
        if self._running:
            return Failure(FailureKind.TIMEOUT, "NVML: the driver hangs: the last reading has not ended")
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._in_thread(lambda: self._node.read(now))
        except TimeoutError:
            return Failure(FailureKind.TIMEOUT, f"NVML: no answer of the driver within {self._timeout_s:g} s")

    async def close(self) -> None:
        """Close the driver: before, its kernel module cannot be unloaded. Does nothing while the driver hangs."""
        if self._running:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await self._in_thread(self._node.close)

    def _in_thread(self, function: Callable[[], Value]) -> asyncio.Future[Value]:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Value] = loop.create_future()

        def finish(value: Value | None, error: Exception | None) -> None:
            self._running = False
            if result.done():  # the caller has given up
                return
            if error is not None:
                result.set_exception(error)
            else:
                result.set_result(value)  # type: ignore[arg-type]  # None only where Value is

        def run() -> None:
            value, failed = None, None
            try:
                value = function()
            except Exception as error:  # noqa: BLE001 - raised in the caller
                failed = error
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish, value, failed)

        threading.Thread(target=run, name="nvml", daemon=True).start()
        self._running = True  # `finish` is called by this loop, so not before
        return result


class NvmlNode:
    """Reads all GPUs. Blocks for as long as the driver does; not for two threads at a time."""

    def __init__(self, library: Library, pod_of: PodOf, proc: Path) -> None:
        self._library = library
        self._devices = NvmlDevices(library, Processes(library, pod_of, proc))
        self._opened_at: float | None = None
        self._last_rows: dict[int, tuple[Gpu, ...]] = {}  # by index
        self._any_lost = False

    def read(self, now: float) -> Samples | Failure:
        """now: POSIX seconds."""
        if self._any_lost and self._opened_at is not None and now - self._opened_at >= REOPEN_S:
            self.close()
        try:
            return self._table(self._open(now), now)
        except DriverGone as gone:
            self.close()
            kind = FailureKind.TIMEOUT if gone.code == NvmlCode.TIMEOUT else FailureKind.REFUSED
            return Failure(kind, f"NVML: {gone}")

    def close(self) -> None:
        if self._opened_at is None:
            return
        self._opened_at = None
        self._devices.gpm.keep_only(())
        with suppress(self._library.NVMLError):  # it is closed already
            self._library.nvmlShutdown()

    def _open(self, now: float) -> float:
        """Opens the library if it is closed; returns when it was opened. Raises DriverGone."""
        if self._opened_at is None:
            try:
                self._library.nvmlInit()
            except self._library.NVMLError as error:
                raise DriverGone(code_of(error)) from error
            self._opened_at = now
        return self._opened_at

    def _table(self, opened_at: float, now: float) -> Samples | Failure:
        """Raises DriverGone."""
        try:
            count = self._library.nvmlDeviceGetCount()
        except self._library.NVMLError as error:
            raise DriverGone(code_of(error)) from error
        rows: list[GpuReading] = []
        keys: list[DeviceKey] = []
        dropped: list[Dropped] = []
        self._any_lost = False
        for index in range(count):
            problems: list[str] = []
            try:
                found, sampled = self._devices.rows(index, ReadContext(now, opened_at, problems))
                self._last_rows[index] = tuple(row.gpu for row in found)
                keys += sampled
            except GpuLost as lost:
                self._any_lost = True
                problems.append(str(lost))
                # Its last rows, without values: a GPU that vanished would read as one that its pod released.
                values = {Quantity.GPU_LOST: 1.0} if lost.code in DEAD else {}
                found = [GpuReading(gpu, values) for gpu in self._last_rows.get(index, ())]
            rows += found
            name = f"GPU {index} ({found[0].gpu.uuid})" if found else f"GPU {index}"
            dropped += [Dropped(index + 1, f"{name}: {problem}") for problem in dict.fromkeys(problems)]
        self._devices.gpm.keep_only(keys)
        if not rows:
            reasons = "; ".join(entry.reason for entry in dropped)
            return Failure(FailureKind.EMPTY, f"NVML: {reasons or 'no GPU is visible in this container'}")
        table = [[row.values.get(quantity, np.nan) for quantity in QUANTITIES] for row in rows]
        return Samples(
            kind=KIND,
            subjects=tuple(row.gpu for row in rows),
            quantities=QUANTITIES,
            values=np.array(table, dtype=np.float64),
            at=np.full(len(rows), now),
            dropped=tuple(dropped),
        )
