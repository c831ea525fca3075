# ruff: noqa: N802, N803 - the names are NVML's own
"""NVML as `pynvml` (distribution `nvidia-ml-py`) speaks it, and what its refusals mean.

It knows the names and the return codes of nvml.h and asks nothing itself. The library is imported when it is first
wanted: Tidegate runs without it. Each refusal has one of three costs: a field of a GPU, a GPU, or the whole reading.

Worked example: `nvmlDeviceGetTotalEnergyConsumption` of a GPU older than Volta raises an error of `value` 3,
NOT_SUPPORTED. That costs the field: `cost_of(3)` is `Cost.FIELD`; 15, GPU_IS_LOST, costs the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum
from importlib import import_module
from typing import Any, Protocol, cast


class NvmlCode(IntEnum):
    """nvmlReturn_t, as far as its members are spoken of here."""

    SUCCESS = 0
    UNINITIALIZED = 1
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18
    NO_DATA = 21
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    NOT_READY = 27
    GPU_NOT_FOUND = 28
    UNKNOWN = 999


class Cost(Enum):
    """What a refusal takes with it."""

    FIELD = "field"
    GPU = "gpu"
    READING = "reading"


_NAMES: Mapping[int, str] = {code: code.name for code in NvmlCode}
_COSTS: Mapping[int, Cost] = {
    NvmlCode.UNINITIALIZED: Cost.READING,
    NvmlCode.DRIVER_NOT_LOADED: Cost.READING,
    NvmlCode.LIBRARY_NOT_FOUND: Cost.READING,
    NvmlCode.LIB_RM_VERSION_MISMATCH: Cost.READING,
    NvmlCode.GPU_IS_LOST: Cost.GPU,
    NvmlCode.GPU_NOT_FOUND: Cost.GPU,
    NvmlCode.RESET_REQUIRED: Cost.GPU,
    # The driver gives up after seconds: the other questions about this GPU would take as long each.
    NvmlCode.TIMEOUT: Cost.GPU,
}
# A GPU, driver or library that does not have the field: nothing is wrong, so nothing is told.
QUIET: frozenset[int] = frozenset(
    {
        NvmlCode.NOT_SUPPORTED,
        NvmlCode.NOT_FOUND,
        NvmlCode.FUNCTION_NOT_FOUND,
        NvmlCode.NO_DATA,
        NvmlCode.ARGUMENT_VERSION_MISMATCH,
        NvmlCode.DEPRECATED,
        NvmlCode.NOT_READY,
    }
)
# No work is done on such a GPU until it is reset. (One that timed out may be back at the next question.)
DEAD: frozenset[int] = frozenset({NvmlCode.GPU_IS_LOST, NvmlCode.RESET_REQUIRED})
# The driver is older than the question.
FUNCTION_MISSING: frozenset[int] = frozenset({NvmlCode.FUNCTION_NOT_FOUND, NvmlCode.ARGUMENT_VERSION_MISMATCH})
# Whose fault it is and what to do.
_ADVICE: Mapping[int, str] = {
    NvmlCode.UNINITIALIZED: "the driver was shut down meanwhile; it is opened again at the next reading",
    NvmlCode.NO_PERMISSION: "this process may not ask: give the container the GPUs' device files",
    NvmlCode.DRIVER_NOT_LOADED: "the NVIDIA kernel module is not loaded on this node, or /dev/nvidiactl is not in "
    "the container: set NVIDIA_VISIBLE_DEVICES=all and runtimeClassName: nvidia",
    NvmlCode.TIMEOUT: "the driver gave up waiting for the GPU; see the node's kernel log for Xid lines",
    NvmlCode.LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 is not in the container: set NVIDIA_VISIBLE_DEVICES=all, "
    "NVIDIA_DRIVER_CAPABILITIES=utility and runtimeClassName: nvidia",
    NvmlCode.GPU_IS_LOST: "the GPU fell off the bus: drain the node and reset or replace the GPU",
    NvmlCode.RESET_REQUIRED: "the GPU needs a reset before it can be used again: drain the node, then nvidia-smi -r",
    NvmlCode.LIB_RM_VERSION_MISMATCH: "the driver was upgraded under this process: restart the pod, or the node if "
    "that does not help",
    NvmlCode.UNKNOWN: "the driver does not say what is wrong; see the node's kernel log",
}


class Library(Protocol):
    """What is used of the module `pynvml`. Every function raises `NVMLError`, whose `value` is the return code."""

    @property
    def NVMLError(self) -> Any: ...
    @property
    def c_nvmlGpmMetricsGet_t(self) -> Any: ...

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetUUID(self, handle: Any) -> str: ...
    def nvmlDeviceGetName(self, handle: Any) -> str: ...
    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any: ...  # .gpu, percent
    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any: ...  # .used, .total, bytes
    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int: ...  # milliwatts
    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int: ...  # millijoules since the driver was loaded
    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int: ...  # degrees Celsius

    def nvmlDeviceGetMigMode(self, device: Any) -> Sequence[int]: ...  # current, pending
    def nvmlDeviceGetMaxMigDeviceCount(self, device: Any) -> int: ...
    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, index: int) -> Any: ...
    def nvmlDeviceGetGpuInstanceId(self, device: Any) -> int: ...

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any) -> Sequence[Any]: ...  # .pid
    def nvmlDeviceGetComputeRunningProcesses_v2(self, handle: Any) -> Sequence[Any]: ...
    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: Any) -> Sequence[Any]: ...
    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle: Any) -> Sequence[Any]: ...
    def nvmlDeviceGetProcessUtilization(self, handle: Any, timeStamp: int) -> Sequence[Any]: ...  # .pid .smUtil …

    def nvmlGpmQueryDeviceSupport(self, device: Any) -> Any: ...  # .isSupportedDevice
    def nvmlGpmSampleAlloc(self) -> Any: ...
    def nvmlGpmSampleFree(self, gpmSample: Any) -> None: ...
    def nvmlGpmSampleGet(self, device: Any, gpmSample: Any) -> Any: ...
    def nvmlGpmMigSampleGet(self, device: Any, gpuInstanceId: int, gpmSample: Any) -> Any: ...
    def nvmlGpmMetricsGet(self, metricsGet: Any) -> Any: ...


class NotInstalled(Exception):  # noqa: N818 - it is not always an error: most nodes have DCGM
    """`nvidia-ml-py` is not there; the words say how it gets there."""


def installed() -> Library:
    """The module `pynvml`, without asking the driver anything. Raises NotInstalled."""
    try:
        return cast(Library, import_module("pynvml"))
    except ImportError as error:
        raise NotInstalled(
            "gpus.nvml: needs the library nvidia-ml-py, which is not installed: pip install 'tidegate[nvml]'"
        ) from error


def code_of(error: Any) -> int:
    """The return code that a library's NVMLError carries."""
    return int(error.value)


def cost_of(code: int) -> Cost:
    """What a return code costs; one that is not known costs the field that was asked for."""
    return _COSTS.get(code, Cost.FIELD)


def words(code: int) -> str:
    """A return code in words: its name, and what to do where that is known."""
    if code not in _NAMES:
        return f"NVML error {code}"
    return f"{_NAMES[code]}: {_ADVICE[code]}" if code in _ADVICE else _NAMES[code]
