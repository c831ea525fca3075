"""Activity as DCGM's profiling fields have it, from the GPU's own counters (GPM: Hopper and later).

A sample of the counters is an opaque thing of the driver's; the activity between two of them is an average over exactly
that time. So each reading keeps one sample, and the next one is compared with it: the first reading of a GPU has no
activity, which is NaN. Nothing here knows which GPUs there are.

Worked example: a kernel that used the GPU for 3 of the 5 seconds between two readings is GPU_ENGINE_ACTIVE 0.6.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from exporter.model import Quantity

from .asking import ask
from .library import Library, NvmlCode

# nvml.h, nvmlGpmMetricId_t: each is a percentage.
METRICS = {
    Quantity.GPU_ENGINE_ACTIVE: 1,  # NVML_GPM_METRIC_GRAPHICS_UTIL
    Quantity.GPU_SM_ACTIVE: 2,  # NVML_GPM_METRIC_SM_UTIL
    Quantity.GPU_TENSOR_ACTIVE: 5,  # NVML_GPM_METRIC_ANY_TENSOR_UTIL
    Quantity.GPU_DRAM_ACTIVE: 10,  # NVML_GPM_METRIC_DRAM_BW_UTIL
}
METRICS_VERSION = 1  # NVML_GPM_METRICS_GET_VERSION
# The hardware's own limit: activity over less than 100 ms is invalid (NVIDIA/DCGM#310).
SHORTEST_S = 0.1
# An average over minutes says nothing of now: after a pause the counters are read afresh.
LONGEST_S = 120.0

Key = tuple[str, ...]


class _Kept(NamedTuple):
    sample: Any
    at: float
    activity: Mapping[Quantity, float]


class Gpm:
    """The last sample of each GPU and GPU instance."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._kept: dict[Key, _Kept] = {}

    def supported(self, device: Any, told: list[str]) -> bool:
        """Whether a GPU has the counters. Raises Lost, Shut."""
        answer = ask(self._library, "GPM", lambda: self._library.nvmlGpmQueryDeviceSupport(device), told)
        return answer is not None and bool(answer.isSupportedDevice)

    def activity(self, key: Key, fill: Callable[[Any], Any], now: float, told: list[str]) -> Mapping[Quantity, float]:
        """Ratios since the last reading of `key`; what is not known is not there. Raises Lost, Shut.

        key: a GPU, or one life of a GPU instance. fill: takes a sample into the buffer it is given. now: POSIX seconds.
        """
        before = self._kept.get(key)
        if before is not None and 0.0 <= now - before.at < SHORTEST_S:
            return before.activity
        sample = ask(self._library, "GPM sample", self._library.nvmlGpmSampleAlloc, told)
        if sample is None:
            return {}
        kept = False
        try:
            if ask(self._library, "GPM sample", lambda: fill(sample), told) is None:
                self._free(key)
                return {}
            between = before is not None and 0.0 < now - before.at <= LONGEST_S
            activity = self._between(before.sample, sample, told) if before is not None and between else {}
            self._free(key)
            self._kept[key] = _Kept(sample, now, activity)
            kept = True
            return activity
        finally:
            if not kept:
                self._release(sample)

    def keep_only(self, keys: Collection[Key]) -> None:
        """Let the samples go of what is not there any more."""
        for key in self._kept.keys() - set(keys):
            self._free(key)

    def _between(self, before: Any, after: Any, told: list[str]) -> Mapping[Quantity, float]:
        question = self._library.c_nvmlGpmMetricsGet_t()
        question.version, question.numMetrics = METRICS_VERSION, len(METRICS)
        question.sample1, question.sample2 = before, after
        for place, metric in enumerate(METRICS.values()):
            question.metrics[place].metricId = metric
        answer = ask(self._library, "GPM metrics", lambda: self._library.nvmlGpmMetricsGet(question), told)
        if answer is None:
            return {}
        said = {quantity: answer.metrics[place] for place, quantity in enumerate(METRICS)}
        # SM activity of up to 1.294 was seen (NVIDIA/DCGM#152): counters of several units are not read at one moment.
        return {
            quantity: min(metric.value / 100.0, 1.0)
            for quantity, metric in said.items()
            if metric.nvmlReturn == NvmlCode.SUCCESS and metric.value >= 0.0  # NaN is not
        }

    def _free(self, key: Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._release(kept.sample)

    def _release(self, sample: Any) -> None:
        try:
            self._library.nvmlGpmSampleFree(sample)
        except self._library.NVMLError:
            return  # of a GPU that is gone: the driver has let it go already
