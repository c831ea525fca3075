"""Maps the metrics of other GPU exporters: nvidia_gpu_exporter (nvidia-smi), HAMi's vGPU monitor, AMD's
device-metrics-exporter, Intel's XPU Manager (1.x) and its daemon (2.x).

All measure how long any kernel ran, which is `gpu_utilization`: it proves idleness and never sizes. None divides a
shared GPU by pod, and the value of a partitioned GPU belongs to none of its partitions.

Worked example: `gpu_gfx_activity{gpu_uuid="u",gpu_partition_id="0",namespace="ai",pod="chat-0"} 57` makes the row
`Gpu("u", attribution=EXCLUSIVE, pods=(chat-0,))` with utilization 0.57.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from exporter.model import Attribution, Gpu, PodKey, Quantity, Subject

from .kind import Kind
from .schema import (
    BYTES,
    CELSIUS,
    JOULES,
    PERCENT,
    RATIO,
    WATTS,
    Combine,
    Keep,
    Key,
    Labels,
    SeriesRow,
    Unit,
    every,
    labels_of,
    matching,
    where,
)

Q = Quantity

# amd-smi divides bytes by 2**20: an MI300X of 192 GiB has 196592.
MEGABYTES = Unit(per=2.0**-20, high=1e9)
MICROJOULES = Unit(per=1e6, high=1e18)
PRESENT = Unit(low=1.0, high=1.0)


class _GpuLabels(NamedTuple):
    """The labels of one series. `pod`: None if it names none."""

    uuid: str
    instance: str
    model: str
    pod: PodKey | None


def _gpus(labels: Sequence[_GpuLabels]) -> list[Subject | None]:
    """One GPU per (uuid, instance) with the labels of all its series; None for a series without a uuid."""
    models = {(each.uuid, each.instance): each.model for each in labels if each.model}
    pods: dict[tuple[str, str], set[PodKey]] = {}
    for each in labels:
        holders = pods.setdefault((each.uuid, each.instance), set())
        if each.pod is not None:
            holders.add(each.pod)
    return [
        _gpu(each.uuid, each.instance, models.get((each.uuid, each.instance)), pods[each.uuid, each.instance])
        if each.uuid
        else None
        for each in labels
    ]


def _gpu(uuid: str, instance: str, model: str | None, pods: set[PodKey]) -> Gpu:
    how = Attribution.NONE if not pods else Attribution.EXCLUSIVE if len(pods) == 1 else Attribution.DEVICE
    return Gpu(uuid, instance or None, model=model, attribution=how, pods=tuple(sorted(pods)))


def _gpus_without_pods(keys: Sequence[Key]) -> list[Subject | None]:
    return _gpus([_GpuLabels(uuid, "", model, None) for uuid, model in keys])


def _smi(column: str, name: str, unit: Unit) -> SeriesRow:
    return SeriesRow(column, (f"nvidia_smi_{name}",), labels_of("uuid", "name"), Combine.COPY, unit)


# utkuozdemir/nvidia_gpu_exporter: fields of `nvidia-smi --query-gpu` in base units, percentages as ratios. With MIG
# enabled the utilization families are missing and memory is the whole GPU's; no label names an instance's pod.
_NVIDIA_SMI_ROWS = (
    _smi("present", "gpu_info", PRESENT),  # names the model
    _smi(Q.GPU_UTILIZATION, "utilization_gpu_ratio", RATIO),
    _smi(Q.GPU_MEMORY_USED, "memory_used_bytes", BYTES),
    _smi(Q.GPU_MEMORY_TOTAL, "memory_total_bytes", BYTES),
    _smi(Q.GPU_POWER, "power_draw_watts", WATTS),
    _smi(Q.GPU_TEMPERATURE, "temperature_gpu", CELSIUS),
)

NVIDIA_SMI = Kind(
    "nvidia_gpu_exporter", {"nvidia_smi_": 2}, port=9835, rows=_NVIDIA_SMI_ROWS, subjects=_gpus_without_pods
)


def _hami(column: str, unit: Unit, *names: str) -> SeriesRow:
    return SeriesRow(column, names, _HAMI_LABELS, Combine.COPY, unit)


_HAMI_LABELS = labels_of(
    ("device_uuid", "deviceuuid"),
    ("device_type", "devicetype"),
    *("exported_namespace", "exported_pod"),
    ("namespace", "podnamespace"),
    ("pod", "podname"),
)


def _hami_gpus(keys: Sequence[Key]) -> list[Subject | None]:
    """A GPU with a vGPU is shared (DEVICE): another container may use it and not be in the response, before its first
    kernel or after its last.
    """
    exported = any(key[3] for key in keys)
    labels = []
    for uuid, model, *names in keys:
        namespace, pod = names[:2] if exported else names[2:]
        labels.append(_GpuLabels(uuid, "", model.removeprefix("NVIDIA-"), PodKey(namespace, pod) if pod else None))
    return [
        replace(each, attribution=Attribution.DEVICE) if isinstance(each, Gpu) and each.pods else each
        for each in _gpus(labels)
    ]


# HAMi's vGPU monitor: Project-HAMi/HAMi cmd/vGPUmonitor/metrics.go; the names with capitals are of releases before 2.9
# and of --legacy-metrics. The host's utilization is NVML's percentage, despite its name. Utilization by container
# is not read: HAMi-core measures it only under a core limit (src/multiprocess/multiprocess_utilization_watcher.c), and
# it is exposed as 0 without one.
_HAMI_ROWS = (
    _hami(Q.GPU_UTILIZATION, PERCENT, "hami_host_gpu_utilization_ratio", "HostCoreUtilization"),
    _hami(Q.GPU_MEMORY_USED, BYTES, "hami_host_gpu_memory_used_bytes", "HostGPUMemoryUsage"),
    _hami("held", BYTES, "hami_vgpu_memory_limit_bytes", "vGPU_device_memory_limit_in_bytes"),  # names the pods
)
HAMI = Kind(
    "hami", {"hami_host_gpu_": 2, "hami_container_": 2, "HostGPUMemoryUsage": 2, "HostCoreUtilization": 2}, port=9394,
    rows=_HAMI_ROWS, subjects=_hami_gpus,
)  # fmt: skip

_AMD_EXPORTER = "metrics-exporter"  # through Prometheus an unallocated GPU has the exporter's own pod
_AMD_LABELS = labels_of(
    ("gpu_uuid", "serial_number", "gpu_id"),
    "gpu_partition_id",
    ("card_series", "card_model"),
    *("exported_namespace", "exported_pod", "namespace", "pod"),
)


def _amd_gpus(keys: Sequence[Key]) -> list[Subject | None]:
    """Through Prometheus the workload's pod is `exported_pod`: if one series has it, it counts for all."""
    exported = any(key[4] for key in keys)
    labels = []
    for uuid, partition, model, *names in keys:
        namespace, pod = names[:2] if exported else names[2:]
        held = PodKey(namespace, pod) if pod and _AMD_EXPORTER not in pod else None
        labels.append(_GpuLabels(uuid, "" if partition in ("0", "NA") else partition, model, held))
    return _gpus(labels)


def _is_whole(labels: Labels) -> bool:
    """A GPU or its first partition: the others have no sensors of their own and expose 0."""
    return labels.get("gpu_partition_id", "0") in ("", "0", "NA")


def _is_unpartitioned(labels: Labels) -> bool:
    return _is_whole(labels) and labels.get("gpu_compute_partition_type", "").lower() in ("", "spx")


def _amd(column: str, unit: Unit, *names: str, matches: Callable[[Labels], bool] = _is_whole) -> SeriesRow:
    both = tuple(f"{prefix}{name}" for name in names for prefix in ("", "amd_"))
    return SeriesRow(column, both, _AMD_LABELS, Combine.COPY, unit, keep=matching(matches))


# ROCm/device-metrics-exporter: docs/configuration/metricslist.md. An operator may set a prefix; amd_ is the usual one.
# Power and temperature: MI3xx first, then MI2xx. Activity is that of an unpartitioned GPU, memory each partition's own.
_AMD_ROWS = (
    _amd(Q.GPU_UTILIZATION, PERCENT, "gpu_gfx_activity", matches=_is_unpartitioned),
    _amd(Q.GPU_DRAM_ACTIVE, PERCENT, "gpu_umc_activity"),
    _amd(Q.GPU_MEMORY_USED, MEGABYTES, "gpu_used_vram", matches=lambda _: True),
    _amd(Q.GPU_MEMORY_TOTAL, MEGABYTES, "gpu_total_vram", matches=lambda _: True),
    _amd(Q.GPU_POWER, WATTS, "gpu_package_power", "gpu_average_package_power", "gpu_power_usage"),
    _amd(Q.GPU_ENERGY, MICROJOULES, "gpu_energy_consumed"),
    _amd(Q.GPU_TEMPERATURE, CELSIUS, "gpu_junction_temperature", "gpu_edge_temperature"),
)
AMD = Kind(
    "amd",
    {
        **dict.fromkeys(("gpu_gfx_activity", "gpu_used_vram", "gpu_total_vram", "gpu_umc_activity", "amd_gpu_"), 2),
        # An operator may choose few fields, such as power alone. Other exporters may have these names.
        **dict.fromkeys(
            ("gpu_package_power", "gpu_average_package_power", "gpu_power_usage", "gpu_energy_consumed"), 1
        ),
    },
    port=5000, rows=_AMD_ROWS, subjects=_amd_gpus,
)  # fmt: skip


_INTEL_LABELS = labels_of("uuid", "dev_name", "kube_namespace", "kube_pod")


def _intel_gpus(keys: Sequence[Key]) -> list[Subject | None]:
    return _gpus(
        [_GpuLabels(uuid, "", model, PodKey(namespace, pod) if pod else None) for uuid, model, namespace, pod in keys]
    )


def _device(members: Sequence[Labels]) -> list[int]:
    """The device's own series; those of its tiles if it has none."""
    device = [index for index, labels in enumerate(members) if not labels.get("sub_dev")]
    return device or list(range(len(members)))


def _xpum(column: str, name: str, combine: Combine, unit: Unit) -> SeriesRow:
    return SeriesRow(column, (f"xpum_{name}",), _INTEL_LABELS, combine, unit, keep=_device)


# intel/xpumanager: rest/prometheus_exporter.py, which scales percentages by 0.01. Series of a card have no uuid.
_INTEL_ROWS = (
    _xpum(Q.GPU_UTILIZATION, "engine_ratio", Combine.MEAN, RATIO),
    _xpum(Q.GPU_MEMORY_USED, "memory_used_bytes", Combine.SUM, BYTES),
    _xpum(Q.GPU_POWER, "power_watts", Combine.SUM, WATTS),
    _xpum(Q.GPU_ENERGY, "energy_joules_total", Combine.SUM, JOULES),
)
INTEL = Kind("intel", {"xpum_": 2}, port=29999, rows=_INTEL_ROWS, subjects=_intel_gpus)

_HW_LABELS = labels_of("hw_id", "hw_model")


def _is_of_device(labels: Labels) -> bool:
    """The device's own sensors, of its widest domain. Domains are nested: a package is on a card."""
    location = labels.get("hw_sensor_location")
    return not labels.get("com_intel_subdevice_id") and location in ("card", "package", "gpu")


def _hw(column: str, name: str, unit: Unit, combine: Combine = Combine.COPY, keep: Keep = every) -> SeriesRow:
    return SeriesRow(column, (f"hw_{name}",), _HW_LABELS, combine, unit, keep=keep)


# Intel XPU Manager 2 (xpumd), in OpenTelemetry's names for hardware: intel/xpumanager xpumd/receiver/intelxpu/sysman/
# documentation.md, engine.go, power.go, memory.go; names as in xpumd/charts/xpumd/json/dashboard.json. One utilization
# per group of engines. All engines together may be at 0.1 while the compute engines are at 1: the busiest group counts.
_HW_ROWS = (
    _hw("present", "gpu_info", PRESENT),  # names the model
    _hw(Q.GPU_UTILIZATION, "gpu_utilization_ratio", RATIO),
    _hw(Q.GPU_MEMORY_USED, "memory_usage_bytes", BYTES, Combine.SUM, where(hw_memory_location="device")),
    _hw(Q.GPU_MEMORY_TOTAL, "memory_size_bytes", BYTES, Combine.SUM, where(hw_memory_location="device")),
    _hw(Q.GPU_POWER, "power_watts", WATTS, keep=matching(_is_of_device)),
    _hw(Q.GPU_ENERGY, "energy_joules_total", JOULES, keep=matching(_is_of_device)),
    _hw(Q.GPU_TEMPERATURE, "temperature_celsius", CELSIUS, keep=where(hw_sensor_location="gpu", statistic="max")),
)
INTEL_XPUMD = Kind("intel_xpumd", {"hw_gpu_": 2}, port=8080, rows=_HW_ROWS, subjects=_gpus_without_pods)
