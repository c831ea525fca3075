"""One GPU as rows of a table: itself, and its MIG instances.

It knows which question gives which quantity and in what unit, and what MIG takes away: utilisation is nobody's there,
memory and activity are an instance's, and power, energy and temperature stay the GPU's and are said once, in its own
row. What a GPU does not have is left out; nothing is copied from a GPU to its instances.

Worked example: an A100 split into a 3g.20gb and a 1g.5gb is three rows: the GPU (71.2 W, 31 degrees, nobody's), and
two instances "1" and "9" with memory. On an H100 the instances have their activity too, by GPM.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import nan
from typing import Any, NamedTuple

from exporter.model import Attribution, Gpu, PodKey, Quantity

from .asking import ask, needed
from .gpm import Gpm, Key
from .holders import Held, Holders
from .library import FUNCTION_MISSING, Library, code_of

# nvmlMemory_v2: `used` without what the driver keeps for itself, as nvidia-smi and DCGM's FB_USED have it. Without a
# version (drivers before 510) `used` includes that.
MEMORY_V2 = 0x02000028
TEMPERATURE_GPU = 0  # nvmlTemperatureSensors_t
MIG_ON = 1
# "NVIDIA A100-SXM4-40GB MIG 3g.20gb"; a compute instance that is only a part of it: "MIG 1c.3g.20gb".
_PROFILE = re.compile(r" MIG (?:\d+c\.)?(?P<profile>\d+g\.\d+gb(?:[+.][a-z0-9.+]+)?)$")
# While a driver starts, it clears memory with ECC, which looks like load ("ECC Memory Scrubbing", nvml.h). On a node
# without persistence mode it starts because we opened it.
SCRUBBING_S = 10.0


class GpuReading(NamedTuple):
    """values: in the unit of the quantity; what is not known is not there."""

    gpu: Gpu
    values: Mapping[Quantity, float]


class ReadContext(NamedTuple):
    """now: POSIX seconds. opened_at: when the driver was opened. told: reasons for what is missing are added."""

    now: float
    opened_at: float
    told: list[str]


class NvmlGpus:
    """Reads one GPU at a time; what it keeps from one reading to the next is the counters' last samples."""

    def __init__(self, library: Library, holders: Holders) -> None:
        self._library = library
        self._holders = holders
        self.gpm = Gpm(library)

    def rows(self, index: int, moment: ReadContext) -> tuple[list[GpuReading], list[Key]]:
        """The rows of the GPU with this number, and whose counters were sampled. Raises Lost, Shut."""
        library = self._library
        handle = needed(library, "handle", partial(library.nvmlDeviceGetHandleByIndex, index))
        uuid = needed(library, "UUID", partial(library.nvmlDeviceGetUUID, handle))
        model = ask(library, "name", partial(library.nvmlDeviceGetName, handle), moment.told)
        mode = ask(library, "MIG mode", partial(library.nvmlDeviceGetMigMode, handle), moment.told)
        counters = self.gpm.supported(handle, moment.told)
        gpu = Gpu(uuid, model=model)
        if mode is None or mode[0] != MIG_ON:
            return self._whole(gpu, handle, moment, counters=counters)
        rows, keys = self._instances(gpu, handle, moment, counters=counters)
        return [GpuReading(gpu, self._board(handle, moment.told)), *rows], keys

    def _whole(
        self, gpu: Gpu, handle: Any, moment: ReadContext, *, counters: bool
    ) -> tuple[list[GpuReading], list[Key]]:
        library, told = self._library, moment.told
        values = self._board(handle, told) | self._memory(handle, told)
        held = self._holders.of(handle, told)
        rates = ask(library, "utilisation", partial(library.nvmlDeviceGetUtilizationRates, handle), told)
        if rates is not None and rates.gpu and held.empty and moment.now - moment.opened_at < SCRUBBING_S:
            told.append(
                f"utilisation of {rates.gpu} % without a process: the driver has just started and clears memory"
            )
        elif rates is not None:
            values[Quantity.GPU_UTILIZATION] = rates.gpu / 100.0
        keys: list[Key] = [(gpu.uuid,)] if counters else []
        for key in keys:
            values |= self.gpm.activity(key, partial(library.nvmlGpmSampleGet, handle), moment.now, told)
        busy = values.get(Quantity.GPU_UTILIZATION, nan)
        attribution = self._holders.attribution(held, handle, gpu.uuid, busy, told)
        return [GpuReading(replace(gpu, attribution=attribution, pods=_names(held)), values)], keys

    def _instances(
        self, gpu: Gpu, handle: Any, moment: ReadContext, *, counters: bool
    ) -> tuple[list[GpuReading], list[Key]]:
        """A row per GPU instance. A MIG device is a compute instance, of which a GPU instance may have several."""
        library, told = self._library, moment.told
        most = ask(library, "MIG devices", partial(library.nvmlDeviceGetMaxMigDeviceCount, handle), told) or 0
        devices: dict[int, list[Any]] = {}
        for place in range(most):
            # NOT_FOUND: of seven places those that hold no instance.
            question = partial(library.nvmlDeviceGetMigDeviceHandleByIndex, handle, place)
            device = ask(library, f"MIG device {place}", question, told)
            if device is not None:
                number = ask(library, "GPU instance", partial(library.nvmlDeviceGetGpuInstanceId, device), told)
                if number is not None:
                    devices.setdefault(number, []).append(device)
        rows, keys = [], []
        for number, parts in sorted(devices.items()):
            values = self._memory(parts[0], told)
            if counters:
                # An instance made anew may have the old one's number, but its devices have names of their own.
                names = (ask(library, "UUID", partial(library.nvmlDeviceGetUUID, part), told) for part in parts)
                key = (gpu.uuid, str(number), *(name or "" for name in names))
                fill = partial(library.nvmlGpmMigSampleGet, handle, number)
                values |= self.gpm.activity(key, fill, moment.now, told)
                keys.append(key)
            held = _together([self._holders.of(part, told) for part in parts])
            name = ask(library, "name", partial(library.nvmlDeviceGetName, parts[0]), told) or ""
            found = _PROFILE.search(name)
            profile = found["profile"] if found else None
            instance = replace(gpu, instance=str(number), profile=profile)
            rows.append(GpuReading(replace(instance, attribution=_of_instance(held), pods=_names(held)), values))
        return rows, keys

    def _board(self, handle: Any, told: list[str]) -> dict[Quantity, float]:
        """What belongs to the whole GPU, with MIG or without."""
        library = self._library
        answers = {
            Quantity.GPU_POWER: (1e-3, "power", partial(library.nvmlDeviceGetPowerUsage, handle)),
            Quantity.GPU_ENERGY: (1e-3, "energy", partial(library.nvmlDeviceGetTotalEnergyConsumption, handle)),
            Quantity.GPU_TEMPERATURE: (
                1.0,
                "temperature",
                partial(library.nvmlDeviceGetTemperature, handle, TEMPERATURE_GPU),
            ),
        }
        values = {}
        for quantity, (unit, what, question) in answers.items():
            answer = ask(library, what, question, told)
            if answer is not None:
                values[quantity] = answer * unit
        return values

    def _memory(self, handle: Any, told: list[str]) -> dict[Quantity, float]:
        library = self._library

        def question() -> Any:
            try:
                return library.nvmlDeviceGetMemoryInfo(handle, MEMORY_V2)
            except library.NVMLError as error:
                if code_of(error) not in FUNCTION_MISSING:
                    raise
                return library.nvmlDeviceGetMemoryInfo(handle)

        memory = ask(library, "memory", question, told)
        if memory is None:
            return {}
        return {Quantity.GPU_MEMORY_USED: float(memory.used), Quantity.GPU_MEMORY_TOTAL: float(memory.total)}


def _names(held: Held) -> tuple[PodKey, ...]:
    return tuple(sorted(held.pods))


def _together(parts: list[Held]) -> Held:
    pods: dict[PodKey, set[int]] = {}
    for part in parts:
        for pod, pids in part.pods.items():
            pods.setdefault(pod, set()).update(pids)
    return Held(pods, sum(part.strangers for part in parts), all(part.complete for part in parts))


def _of_instance(held: Held) -> Attribution:
    """A MIG instance does not say what each of its processes did: one pod's, or nobody's share."""
    if not held.pods:
        return Attribution.NONE
    alone = len(held.pods) == 1 and held.complete and not held.strangers
    return Attribution.MIG if alone else Attribution.DEVICE
