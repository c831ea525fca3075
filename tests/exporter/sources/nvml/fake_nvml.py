# ruff: noqa: N802, N803 - the names are NVML's own
"""Fakes `pynvml`: GPUs made of numbers, with NVML's function names, return codes and special cases. No driver is used.

It imitates: errors carry `value`; lists that grow between their two calls are INSUFFICIENT_SIZE; empty
process samples are NOT_FOUND or, from pynvml, an error of value 0; MIG places without an instance are NOT_FOUND;
utilisation of a MIG GPU is NOT_SUPPORTED; every call on a lost GPU is GPU_IS_LOST; every call before nvmlInit is
UNINITIALIZED; samples of counters are allocated and must be freed. `refuse` makes one call of one GPU fail.
"""

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace

UNINITIALIZED, NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST = 1, 3, 6, 13, 15
INVALID_ARGUMENT, INSUFFICIENT_SIZE = 2, 7
METRIC_IDS = {1: "engine", 2: "sm", 3: "occupancy", 5: "tensor", 10: "dram"}


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(f"NVML Error with code {value}")
        self.value = value


@dataclass
class FakeInstance:
    """A compute instance of a GPU instance; NVML calls it a MIG device."""

    gi: int
    profile: str
    used: int = 0
    total: int = 0
    pids: tuple = ()
    uuid: str = "MIG-1"
    name: str = ""
    counters: dict = field(default_factory=dict)
    refuse: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)


@dataclass
class FakeGpu:
    """util: percent. power: mW. energy: mJ. parts: percent by pid. counters: seconds active since the start."""

    uuid: str = "GPU-1"
    model: str = "NVIDIA H100 80GB HBM3"
    util: int = 0
    used: int = 0
    reserved: int = 0
    total: int = 80 << 30
    power: int = 70_000
    energy: int = 0
    temperature: int = 30
    pids: tuple = ()
    graphics: tuple = ()
    mps: tuple = ()
    parts: dict | None = None
    mig: list | None = None
    places: int = 7
    gpm: bool = False
    counters: dict = field(default_factory=dict)
    lost: bool = False
    refuse: dict = field(default_factory=dict)  # function name -> a code, or a list of codes for the next calls
    calls: list = field(default_factory=list)


@dataclass
class FakeNvml:
    gpus: list = field(default_factory=list)
    clock: float = 0.0  # seconds; only samples of counters use it
    refuse: dict = field(default_factory=dict)  # for functions without a GPU
    inits: int = 0
    is_open: bool = False
    allocated: int = 0
    requested_since: list = field(default_factory=list)
    gate: threading.Event | None = None  # if present and not set, the driver hangs
    entered: threading.Event = field(default_factory=threading.Event)
    threads: set = field(default_factory=set)

    NVMLError = NVMLError

    def c_nvmlGpmMetricsGet_t(self):
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(98)])

    # Functions without a GPU.

    def nvmlInit(self):
        self.threads.add(threading.current_thread())
        self._global("nvmlInit", opened=False)
        self.inits += 1
        self.is_open = True

    def nvmlShutdown(self):
        self._global("nvmlShutdown")
        self.is_open = False

    def nvmlDeviceGetCount(self):
        self.threads.add(threading.current_thread())
        self.entered.set()
        if self.gate is not None:
            self.gate.wait()
        self._global("nvmlDeviceGetCount")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        self._global("nvmlDeviceGetHandleByIndex")
        return self._check_call("nvmlDeviceGetHandleByIndex", self.gpus[index])

    # Functions of a GPU or a MIG device.

    def nvmlDeviceGetUUID(self, handle):
        return self._check_call("nvmlDeviceGetUUID", handle).uuid

    def nvmlDeviceGetName(self, handle):
        self._check_call("nvmlDeviceGetName", handle)
        if isinstance(handle, FakeInstance):
            return handle.name or f"NVIDIA A100-SXM4-40GB MIG {handle.profile}"
        return handle.model

    def nvmlDeviceGetUtilizationRates(self, handle):
        self._check_call("nvmlDeviceGetUtilizationRates", handle)
        if isinstance(handle, FakeInstance) or handle.mig is not None:
            raise NVMLError(NOT_SUPPORTED)
        return SimpleNamespace(gpu=handle.util, memory=0)

    def nvmlDeviceGetMemoryInfo(self, handle, version=None):
        self._check_call("nvmlDeviceGetMemoryInfo_v2" if version else "nvmlDeviceGetMemoryInfo", handle)
        reserved = getattr(handle, "reserved", 0)
        return SimpleNamespace(used=handle.used + (0 if version else reserved), total=handle.total)

    def nvmlDeviceGetPowerUsage(self, handle):
        return self._check_call("nvmlDeviceGetPowerUsage", handle).power

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        return self._check_call("nvmlDeviceGetTotalEnergyConsumption", handle).energy

    def nvmlDeviceGetTemperature(self, handle, sensor):
        assert sensor == 0
        return self._check_call("nvmlDeviceGetTemperature", handle).temperature

    def nvmlDeviceGetMigMode(self, handle):
        mode = self._check_call("nvmlDeviceGetMigMode", handle).mig is not None
        return [int(mode), int(mode)]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle):
        return self._check_call("nvmlDeviceGetMaxMigDeviceCount", handle).places

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index):
        self._check_call("nvmlDeviceGetMigDeviceHandleByIndex", handle)
        if index >= len(handle.mig):
            raise NVMLError(NOT_FOUND)
        return handle.mig[index]

    def nvmlDeviceGetGpuInstanceId(self, handle):
        return self._check_call("nvmlDeviceGetGpuInstanceId", handle).gi

    # Processes.

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle):
        return self._processes("nvmlDeviceGetComputeRunningProcesses_v3", handle, "pids")

    def nvmlDeviceGetComputeRunningProcesses_v2(self, handle):
        return self._processes("nvmlDeviceGetComputeRunningProcesses_v2", handle, "pids")

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle):
        return self._processes("nvmlDeviceGetGraphicsRunningProcesses_v3", handle, "graphics")

    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle):
        return self._processes("nvmlDeviceGetMPSComputeRunningProcesses_v3", handle, "mps")

    def nvmlDeviceGetProcessUtilization(self, handle, timeStamp):
        self._check_call("nvmlDeviceGetProcessUtilization", handle)
        self.requested_since.append(timeStamp)
        if handle.parts is None:
            raise NVMLError(NOT_FOUND)
        if not handle.parts:
            raise NVMLError(0)
        at = 1_000_000 * (len(self.requested_since) + 1)
        return [SimpleNamespace(pid=pid, smUtil=part, timeStamp=at) for pid, part in handle.parts.items()]

    # Counters.

    def nvmlGpmQueryDeviceSupport(self, device):
        return SimpleNamespace(isSupportedDevice=int(self._check_call("nvmlGpmQueryDeviceSupport", device).gpm))

    def nvmlGpmSampleAlloc(self):
        self._global("nvmlGpmSampleAlloc")
        self.allocated += 1
        return SimpleNamespace(of=None, freed=False)

    def nvmlGpmSampleFree(self, sample):
        assert not sample.freed
        sample.freed = True
        self.allocated -= 1

    def nvmlGpmSampleGet(self, device, sample):
        self._check_call("nvmlGpmSampleGet", device)
        sample.of, sample.at, sample.counters = device.uuid, self.clock, dict(device.counters)
        return sample

    def nvmlGpmMigSampleGet(self, device, gi, sample):
        self._check_call("nvmlGpmMigSampleGet", device)
        part = next(part for part in device.mig if part.gi == gi)
        sample.of, sample.at, sample.counters = part.uuid, self.clock, dict(part.counters)
        return sample

    def nvmlGpmMetricsGet(self, question):
        before, after = question.sample1, question.sample2
        assert question.version == 1
        assert not before.freed
        assert not after.freed
        assert before.of == after.of
        self._global("nvmlGpmMetricsGet")
        for metric in question.metrics[: question.numMetrics]:
            name = METRIC_IDS[metric.metricId]
            if name not in after.counters:
                metric.nvmlReturn = NOT_SUPPORTED
                continue
            metric.value = 100.0 * (after.counters[name] - before.counters.get(name, 0.0)) / (after.at - before.at)
        return question

    def _processes(self, name, handle, attribute):
        self._check_call(name, handle)
        if isinstance(handle, FakeInstance) and attribute != "pids":
            raise NVMLError(NOT_SUPPORTED)
        return [SimpleNamespace(pid=pid, usedGpuMemory=1 << 30) for pid in getattr(handle, attribute)]

    def _global(self, name, *, opened=True):
        if opened and not self.is_open:
            raise NVMLError(UNINITIALIZED)
        _refuse(self.refuse, name)

    def _check_call(self, name, handle):
        if not self.is_open:
            raise NVMLError(UNINITIALIZED)
        handle.calls.append(name)
        if getattr(handle, "lost", False) and name != "nvmlDeviceGetHandleByIndex":
            raise NVMLError(GPU_IS_LOST)
        _refuse(handle.refuse, name)
        return handle


def _refuse(refusals, name):
    code = refusals.get(name)
    if isinstance(code, list):
        code = code.pop(0) if code else None
    if code is not None:
        raise NVMLError(code)
