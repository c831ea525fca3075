"""Reads one GPU as rows of a table: the GPU and its MIG instances.

With MIG, utilization is unknown, memory and activity belong to an instance, and power, energy and temperature stay in
the GPU's own row. An unsupported quantity is left out; nothing is copied from a GPU to its instances.

Activity, as in DCGM's profiling fields, comes from the GPU's counters (GPM: Hopper and later). It is an average over
the time between two samples of the counters. So each reading keeps one sample for the next one, and the first reading
of a GPU has no activity.

Worked example: an A100 split into a 3g.20gb and a 1g.5gb is three rows: the GPU (71.2 W, 31 degrees, no pod), and two
instances "1" and "9" with memory. On an H100 the instances have their activity too. A kernel that used the GPU for 3 of
the 5 seconds between two readings is GPU_ENGINE_ACTIVE 0.6.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from math import nan
from typing import Any, NamedTuple

from exporter.model import Attribution, Gpu, Quantity

from .library import Library, NvmlCode, call, or_older, require
from .processes import GpuUsers, Processes, merged

# nvmlMemory_v2: `used` without the driver's own memory, as in nvidia-smi and DCGM's FB_USED. Without a version (drivers
# before 510) `used` includes it.
MEMORY_V2 = 0x02000028
TEMPERATURE_GPU = 0  # nvmlTemperatureSensors_t
MIG_ON = 1
# "NVIDIA A100-SXM4-40GB MIG 3g.20gb"; a compute instance that is only a part of it: "MIG 1c.3g.20gb".
_PROFILE = re.compile(r" MIG (?:\d+c\.)?(?P<profile>\d+g\.\d+gb(?:[+.][a-z0-9.+]+)?)$")
# While a driver starts, it clears memory with ECC, which looks like load ("ECC Memory Scrubbing", nvml.h). On a node
# without persistence mode it starts when it is opened.
SCRUBBING_S = 10.0

# nvml.h, nvmlGpmMetricId_t: each is a percentage.
GPM_METRICS = {
    Quantity.GPU_ENGINE_ACTIVE: 1,  # NVML_GPM_METRIC_GRAPHICS_UTIL
    Quantity.GPU_SM_ACTIVE: 2,  # NVML_GPM_METRIC_SM_UTIL
    Quantity.GPU_SM_OCCUPANCY: 3,  # NVML_GPM_METRIC_SM_OCCUPANCY: of the warps that a multiprocessor can hold
    Quantity.GPU_TENSOR_ACTIVE: 5,  # NVML_GPM_METRIC_ANY_TENSOR_UTIL
    Quantity.GPU_DRAM_ACTIVE: 10,  # NVML_GPM_METRIC_DRAM_BW_UTIL
}
GPM_VERSION = 1  # NVML_GPM_METRICS_GET_VERSION
# The hardware's own limit: activity over less than 100 ms is invalid (NVIDIA/DCGM#310).
SHORTEST_S = 0.1
# An average over minutes does not describe the present: after a pause the counters are read afresh.
LONGEST_S = 120.0

# A GPU, or one life of a GPU instance.
DeviceKey = tuple[str, ...]


class GpuReading(NamedTuple):
    """values: in the unit of the quantity; unknown ones are left out."""

    gpu: Gpu
    values: Mapping[Quantity, float]


class ReadContext(NamedTuple):
    """now: POSIX seconds. opened_at: when the driver was opened. problems: reasons for missing values are added."""

    now: float
    opened_at: float
    problems: list[str]


class NvmlDevices:
    """Reads one GPU at a time. Keeps only the last samples of the counters between readings."""

    def __init__(self, library: Library, processes: Processes) -> None:
        self._library = library
        self._processes = processes
        self.gpm = Gpm(library)

    def rows(self, index: int, context: ReadContext) -> tuple[list[GpuReading], list[DeviceKey]]:
        """The rows of the GPU with this index, and the keys of the sampled counters. Raises GpuLost, DriverGone."""
        library, problems = self._library, context.problems
        handle = require(library, "handle", partial(library.nvmlDeviceGetHandleByIndex, index))
        uuid = require(library, "UUID", partial(library.nvmlDeviceGetUUID, handle))
        model = call(library, "name", partial(library.nvmlDeviceGetName, handle), problems)
        mode = call(library, "MIG mode", partial(library.nvmlDeviceGetMigMode, handle), problems)
        counters = self.gpm.supported(handle, problems)
        gpu = Gpu(uuid, model=model)
        if mode is None or mode[0] != MIG_ON:
            return self._whole(gpu, handle, context, counters=counters)
        rows, keys = self._instances(gpu, handle, context, counters=counters)
        return [GpuReading(gpu, self._board(handle, problems)), *rows], keys

    def _whole(
        self, gpu: Gpu, handle: Any, context: ReadContext, *, counters: bool
    ) -> tuple[list[GpuReading], list[DeviceKey]]:
        library, problems = self._library, context.problems
        values = self._board(handle, problems) | self._memory(handle, problems)
        users = self._processes.users(handle, problems)
        rates = call(library, "utilization", partial(library.nvmlDeviceGetUtilizationRates, handle), problems)
        if rates is not None and rates.gpu and users.empty and context.now - context.opened_at < SCRUBBING_S:
            problems.append(
                f"utilization of {rates.gpu} % without a process: the driver has just started and clears memory"
            )
        elif rates is not None:
            values[Quantity.GPU_UTILIZATION] = rates.gpu / 100.0
        keys: list[DeviceKey] = [(gpu.uuid,)] if counters else []
        for key in keys:
            values |= self.gpm.activity(key, partial(library.nvmlGpmSampleGet, handle), context.now, problems)
        busy = values.get(Quantity.GPU_UTILIZATION, nan)
        attribution = self._processes.attribution(users, handle, gpu.uuid, busy, problems)
        return [GpuReading(replace(gpu, attribution=attribution, pods=tuple(sorted(users.pods))), values)], keys

    def _instances(
        self, gpu: Gpu, handle: Any, context: ReadContext, *, counters: bool
    ) -> tuple[list[GpuReading], list[DeviceKey]]:
        """A row per GPU instance. A MIG device is a compute instance, of which a GPU instance may have several."""
        library, problems = self._library, context.problems
        rows, keys = [], []
        for number, devices in sorted(self._mig_devices(handle, problems).items()):
            values = self._memory(devices[0], problems)
            if counters:
                # A new instance may reuse the number of a deleted one, but its devices have new UUIDs.
                uuids = (call(library, "UUID", partial(library.nvmlDeviceGetUUID, each), problems) for each in devices)
                key = (gpu.uuid, str(number), *(uuid or "" for uuid in uuids))
                fill = partial(library.nvmlGpmMigSampleGet, handle, number)
                values |= self.gpm.activity(key, fill, context.now, problems)
                keys.append(key)
            users = merged(self._processes.users(device, problems) for device in devices)
            name = call(library, "name", partial(library.nvmlDeviceGetName, devices[0]), problems) or ""
            found = _PROFILE.search(name)
            instance = replace(
                gpu,
                instance=str(number),
                profile=found["profile"] if found else None,
                attribution=_instance_attribution(users),
                pods=tuple(sorted(users.pods)),
            )
            rows.append(GpuReading(instance, values))
        return rows, keys

    def _mig_devices(self, handle: Any, problems: list[str]) -> dict[int, list[Any]]:
        """The MIG devices of a GPU by the number of their GPU instance."""
        library = self._library
        slots = call(library, "MIG devices", partial(library.nvmlDeviceGetMaxMigDeviceCount, handle), problems) or 0
        devices: dict[int, list[Any]] = {}
        for slot in range(slots):
            # NOT_FOUND: the slot (of seven) has no instance.
            function = partial(library.nvmlDeviceGetMigDeviceHandleByIndex, handle, slot)
            device = call(library, f"MIG device {slot}", function, problems)
            if device is not None:
                number = call(library, "GPU instance", partial(library.nvmlDeviceGetGpuInstanceId, device), problems)
                if number is not None:
                    devices.setdefault(number, []).append(device)
        return devices

    def _board(self, handle: Any, problems: list[str]) -> dict[Quantity, float]:
        """The values of the whole GPU, with MIG or without."""
        library = self._library
        power = call(library, "power", partial(library.nvmlDeviceGetPowerUsage, handle), problems)
        energy = call(library, "energy", partial(library.nvmlDeviceGetTotalEnergyConsumption, handle), problems)
        sensor = partial(library.nvmlDeviceGetTemperature, handle, TEMPERATURE_GPU)
        temperature = call(library, "temperature", sensor, problems)
        scaled = (
            (Quantity.GPU_POWER, power, 1e-3),
            (Quantity.GPU_ENERGY, energy, 1e-3),
            (Quantity.GPU_TEMPERATURE, temperature, 1.0),
        )
        return {quantity: value * unit for quantity, value, unit in scaled if value is not None}

    def _memory(self, handle: Any, problems: list[str]) -> dict[Quantity, float]:
        library = self._library
        function = or_older(
            library,
            lambda: library.nvmlDeviceGetMemoryInfo(handle, MEMORY_V2),
            lambda: library.nvmlDeviceGetMemoryInfo(handle),
        )
        memory = call(library, "memory", function, problems)
        if memory is None:
            return {}
        return {Quantity.GPU_MEMORY_USED: float(memory.used), Quantity.GPU_MEMORY_TOTAL: float(memory.total)}


class _CounterSample(NamedTuple):
    """sample: opaque, of the driver. activity: since the sample before it."""

    sample: Any
    at: float
    activity: Mapping[Quantity, float]


class Gpm:
    """Keeps the last sample of the counters of each GPU and GPU instance."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._samples: dict[DeviceKey, _CounterSample] = {}

    def supported(self, device: Any, problems: list[str]) -> bool:
        """Whether a GPU has the counters. Raises GpuLost, DriverGone."""
        support = call(self._library, "GPM", lambda: self._library.nvmlGpmQueryDeviceSupport(device), problems)
        return support is not None and bool(support.isSupportedDevice)

    def activity(
        self, key: DeviceKey, fill: Callable[[Any], Any], now: float, problems: list[str]
    ) -> Mapping[Quantity, float]:
        """Ratios since the last reading of `key`, without unknown ones. Raises GpuLost, DriverGone.

        fill: writes a sample into the buffer that it is given. now: POSIX seconds.
        """
        before = self._samples.get(key)
        if before is not None and 0.0 <= now - before.at < SHORTEST_S:
            return before.activity
        sample = call(self._library, "GPM sample", self._library.nvmlGpmSampleAlloc, problems)
        if sample is None:
            return {}
        stored = False
        try:
            if call(self._library, "GPM sample", lambda: fill(sample), problems) is None:
                self._drop(key)
                return {}
            recent = before is not None and 0.0 < now - before.at <= LONGEST_S
            activity = self._between(before.sample, sample, problems) if before is not None and recent else {}
            self._drop(key)
            self._samples[key] = _CounterSample(sample, now, activity)
            stored = True
            return activity
        finally:
            if not stored:
                self._free(sample)

    def keep_only(self, keys: Collection[DeviceKey]) -> None:
        """Free the samples of all other devices."""
        for key in self._samples.keys() - set(keys):
            self._drop(key)

    def _between(self, before: Any, after: Any, problems: list[str]) -> Mapping[Quantity, float]:
        request = self._library.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = GPM_VERSION, len(GPM_METRICS)
        request.sample1, request.sample2 = before, after
        for i, metric in enumerate(GPM_METRICS.values()):
            request.metrics[i].metricId = metric
        response = call(self._library, "GPM metrics", lambda: self._library.nvmlGpmMetricsGet(request), problems)
        if response is None:
            return {}
        metrics = {quantity: response.metrics[i] for i, quantity in enumerate(GPM_METRICS)}
        # SM activity reached 1.294 (NVIDIA/DCGM#152): counters of several units are not read at one moment.
        return {
            quantity: min(metric.value / 100.0, 1.0)
            for quantity, metric in metrics.items()
            if metric.nvmlReturn == NvmlCode.SUCCESS and metric.value >= 0.0  # false for NaN
        }

    def _drop(self, key: DeviceKey) -> None:
        stored = self._samples.pop(key, None)
        if stored is not None:
            self._free(stored.sample)

    def _free(self, sample: Any) -> None:
        try:
            self._library.nvmlGpmSampleFree(sample)
        except self._library.NVMLError:
            return  # the driver has freed the samples of a lost GPU


def _instance_attribution(users: GpuUsers) -> Attribution:
    """NVML has no utilization by process of a MIG instance: its values are of one pod, or cannot be divided."""
    if not users.pods:
        return Attribution.NONE
    alone = len(users.pods) == 1 and users.complete and not users.strangers
    return Attribution.MIG if alone else Attribution.DEVICE
