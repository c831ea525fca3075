# ruff: noqa: N802, N803 - the names are NVML's own
"""Calls NVML through `pynvml` (distribution `nvidia-ml-py`), and classifies its errors.

Each error costs a field of a GPU, the GPU, or the whole reading. Unknown is None, never 0. The library is imported when
it is first used: Tidegate runs without it.

Worked example: with `problems = []`, `call(library, "power", lambda: library.nvmlDeviceGetPowerUsage(gpu), problems)`
returns 71234. It returns None where the GPU has no sensor (NOT_SUPPORTED); UNKNOWN returns None too and adds a problem.
GPU_IS_LOST raises GpuLost, and UNINITIALIZED, of an unloaded driver, DriverGone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, IntEnum
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast

Value = TypeVar("Value")

# Lists are requested twice, first for their length: one that grew in between is requested again.
TRIES = 3


class NvmlCode(IntEnum):
    """The members of nvmlReturn_t that this package uses."""

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
    """The effect of an error."""

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
    # The driver gives up after seconds: each further call for this GPU would take as long.
    NvmlCode.TIMEOUT: Cost.GPU,
}
# The GPU, driver or library does not have the field: no problem is reported.
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
# Such a GPU does not work until it is reset. (One that timed out may answer the next call.)
DEAD: frozenset[int] = frozenset({NvmlCode.GPU_IS_LOST, NvmlCode.RESET_REQUIRED})
# The driver is older than the function.
FUNCTION_MISSING: frozenset[int] = frozenset({NvmlCode.FUNCTION_NOT_FOUND, NvmlCode.ARGUMENT_VERSION_MISMATCH})
# Cause and remedy.
_ADVICE: Mapping[int, str] = {
    NvmlCode.UNINITIALIZED: "the driver was shut down meanwhile; it is opened again at the next reading",
    NvmlCode.NO_PERMISSION: "this process has no access: give the container the GPUs' device files",
    NvmlCode.DRIVER_NOT_LOADED: "the NVIDIA kernel module is not loaded on this node, or /dev/nvidiactl is not in "
    "the container: set NVIDIA_VISIBLE_DEVICES=all and runtimeClassName: nvidia",
    NvmlCode.TIMEOUT: "the driver gave up waiting for the GPU; see the node's kernel log for Xid lines",
    NvmlCode.LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 is not in the container: set NVIDIA_VISIBLE_DEVICES=all, "
    "NVIDIA_DRIVER_CAPABILITIES=utility and runtimeClassName: nvidia",
    NvmlCode.GPU_IS_LOST: "the GPU fell off the bus: drain the node and reset or replace the GPU",
    NvmlCode.RESET_REQUIRED: "the GPU needs a reset before it can be used again: drain the node, then nvidia-smi -r",
    NvmlCode.LIB_RM_VERSION_MISMATCH: "the driver was upgraded under this process: restart the pod, or the node if "
    "that does not help",
    NvmlCode.UNKNOWN: "the driver gives no reason; see the node's kernel log",
}


class Library(Protocol):
    """The used part of the module `pynvml`. Functions raise `NVMLError`, which has the return code in `value`."""

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


class NotInstalled(Exception):  # noqa: N818 - not always an error: most nodes have DCGM
    """`nvidia-ml-py` is not installed; the message says how to install it."""


class GpuLost(Exception):  # noqa: N818 - the state of a GPU
    """A GPU does not answer; others may."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {describe(code)}")
        self.code = code


class DriverGone(Exception):  # noqa: N818 - the state of the driver
    """No call succeeds any more: the driver or the library is gone."""

    def __init__(self, code: int) -> None:
        super().__init__(describe(code))
        self.code = code


def installed() -> Library:
    """The module `pynvml`, without a call of the driver. Raises NotInstalled."""
    try:
        return cast(Library, import_module("pynvml"))
    except ImportError as error:
        raise NotInstalled(
            "gpus.nvml: needs the library nvidia-ml-py, which is not installed: pip install 'tidegate[nvml]'"
        ) from error


def call(library: Library, what: str, function: Callable[[], Value], problems: list[str]) -> Value | None:
    """The result, or None if there is none. Raises GpuLost and DriverGone.

    what: the noun that a problem begins with. problems: errors are added, unless the GPU does not have the field.
    """
    try:
        return function()
    except library.NVMLError as error:
        code = code_of(error)
        match cost_of(code):
            case Cost.READING:
                raise DriverGone(code) from error
            case Cost.GPU:
                raise GpuLost(what, code) from error
        if code not in QUIET:
            problems.append(f"{what}: {describe(code)}")
        return None


def require(library: Library, what: str, function: Callable[[], Value]) -> Value:
    """The result of a call without which a GPU cannot be read. Raises GpuLost for every error, and DriverGone."""
    try:
        return function()
    except library.NVMLError as error:
        code = code_of(error)
        if cost_of(code) is Cost.READING:
            raise DriverGone(code) from error
        raise GpuLost(what, code) from error


def retried(library: Library, function: Callable[[], Value]) -> Callable[[], Value]:
    """The function, called again while its result is larger than the buffer for it."""

    def call_again() -> Value:
        for _ in range(TRIES - 1):
            try:
                return function()
            except library.NVMLError as error:
                if code_of(error) != NvmlCode.INSUFFICIENT_SIZE:
                    raise
        return function()

    return call_again


def or_empty(library: Library, function: Callable[[], Any], codes: Collection[int]) -> Callable[[], Any]:
    """The function, with an empty result in place of these return codes."""

    def call_or_empty() -> Any:
        try:
            return function()
        except library.NVMLError as error:
            if code_of(error) not in codes:
                raise
            return ()

    return call_or_empty


def or_older(library: Library, function: Callable[[], Any], older: Callable[[], Any]) -> Callable[[], Any]:
    """The function, or an older one where the driver does not have it."""

    def call_either() -> Any:
        try:
            return function()
        except library.NVMLError as error:
            if code_of(error) not in FUNCTION_MISSING:
                raise
            return older()

    return call_either


def code_of(error: Any) -> int:
    """The return code in an NVMLError."""
    return int(error.value)


def cost_of(code: int) -> Cost:
    """The effect of a return code; an unknown one costs the field."""
    return _COSTS.get(code, Cost.FIELD)


def describe(code: int) -> str:
    """The name of a return code, and the remedy where it is known."""
    if code not in _NAMES:
        return f"NVML error {code}"
    return f"{_NAMES[code]}: {_ADVICE[code]}" if code in _ADVICE else _NAMES[code]
