"""Reads dcgm-exporter: one row per (UUID, MIG instance), shared or not.

Each series is assigned to its device first, and then the device to its pods: a sum of series by pod counts a shared GPU
once per pod. Distinguished are:

- **Copies.** Without process accounting every pod on a shared GPU gets a copy of the device's value; `hpc_job` makes
  one per job. Copies are one measurement.
- **Parts.** From 4.8.2 on, GPU_UTIL and FB_USED of a shared GPU are exposed once for the device, without a pod, and
  once for each pod. To assign a process to its pod the exporter needs the host's process ids, which its chart does not
  give it: then every pod shows 0. So parts are accepted if they add up to no more than the device shows, and are
  rejected if all are 0 while the device is busy. Nothing is ever divided.
- **MIG.** An instance has memory and engine activity of its own. Its power, energy, temperature and Xid are its
  parent's, repeated on each instance: they go to one row of the parent, whether or not the response has one (`-d f`
  exposes instances alone, `-d g+i` both, under one UUID). Its GPU_UTIL was a constant 0 in 3.3.0 and is not read. No
  pod holds the parent: pods hold its instances.
- **Replicas.** A time-sliced device is `GPU-1::3` to the device plugin: the third share of GPU-1, not another GPU.

Worked example: `DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1",pod=""} 90`, `{UUID="GPU-1",pod="a"} 60` and `{…,pod="b"} 30` make
one row `Gpu("GPU-1", attribution=PROCESS, pods=(a, b), parts=(Part(a, 0.6, …), Part(b, 0.3, …)))` with utilization 0.9.
With 0 and 0, or 60 and 90, the attribution is DEVICE, and no pod's share is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from exporter.model import Attribution, Floats, Gpu, Part, PodKey, Quantity, Subject
from exporter.textformat import Layout

from .kind import Kind
from .plan import INT32_MARKS, Cell, CheckedSeries, ReadPlan, build
from .schema import (
    BYTES,
    BYTES_PER_SECOND,
    CELSIUS,
    JOULES,
    PERCENT,
    RATIO,
    WATTS,
    Columns,
    Combine,
    Labels,
    Unit,
)

Q = Quantity

# How the columns of the parts begin; the number of the pod follows.
UTILIZATION_PART, MEMORY_PART = "utilization_part_", "memory_part_"

# Parts may exceed the whole a little: they are measured over other intervals than the device.
TOLERANCE = 1.1
UTILIZATION_SLACK = 0.05  # ratio; also what a device may show while all processes are idle
MEMORY_SLACK = 64 * 2.0**20  # bytes

# Labels of the workload's pod: through Prometheus (honorLabels: false) `exported_pod`, because `pod` is the exporter's;
# under --use-old-namespace `pod_name`. The first of these that any series has counts for the whole response.
POD_LABELS = (("exported_namespace", "exported_pod"), ("pod_namespace", "pod_name"), ("namespace", "pod"))
EXPORTER = "dcgm-exporter"  # with honorLabels: true, Prometheus adds the exporter's own pod to GPUs without one

MIB = Unit(per=2.0**-20, high=1e9)
MILLIJOULES = Unit(per=1000.0, high=1e15)
XID = Unit(high=10_000.0)
# Field 203 is an integer percentage. DCGM 4.6 called it GPU_UTIL_RATIO without changing it; later the name went to
# field 1613, a ratio. So: a percentage if any value of the response is above what a ratio can be, else a ratio. If
# every GPU is at 0 % or 1 %, they are read as 0 or 1: wrong on the busy side, and never rounded down to idle.
RATIO_OR_PERCENT = Unit(high=100.0, cap=1.0)


@dataclass(frozen=True, slots=True)
class _Field:
    """One quantity of a GPU.

    names: the fields that have it, best first, with their unit. DCGM renames; a CSV may list both names.
    mig:   "instance": an instance has its own value. "repeated": it repeats its parent's. "parent": it has none.
    parts: of fields that dcgm-exporter also measures by process: how the columns of the parts begin, one column for
           each of a device's pods.
    """

    column: str
    names: Mapping[str, Unit]
    mig: Literal["instance", "repeated", "parent"] = "parent"
    parts: str | None = None


# Names and units: dcgm-exporter etc/default-counters.csv, go-dcgm pkg/dcgm/dcgm_fields.h (old and new names).
FIELDS = (
    _Field(
        Q.GPU_ENGINE_ACTIVE,
        {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": RATIO, "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": RATIO},
        "instance",
    ),
    _Field(
        Q.GPU_UTILIZATION,
        {"DCGM_FI_DEV_GPU_UTIL": PERCENT, "DCGM_FI_DEV_GPU_UTIL_RATIO": RATIO_OR_PERCENT},
        parts=UTILIZATION_PART,
    ),
    _Field(Q.GPU_SM_ACTIVE, {"DCGM_FI_PROF_SM_ACTIVE": RATIO, "DCGM_FI_PROF_SM_UTIL_RATIO": RATIO}, "instance"),
    _Field(
        Q.GPU_SM_OCCUPANCY,
        {"DCGM_FI_PROF_SM_OCCUPANCY": RATIO, "DCGM_FI_PROF_SM_OCCUPANCY_RATIO": RATIO},
        "instance",
    ),
    _Field(
        Q.GPU_TENSOR_ACTIVE,
        {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": RATIO, "DCGM_FI_PROF_TENSOR_UTIL_RATIO": RATIO},
        "instance",
    ),
    _Field(Q.GPU_DRAM_ACTIVE, {"DCGM_FI_PROF_DRAM_ACTIVE": RATIO, "DCGM_FI_PROF_DRAM_UTIL_RATIO": RATIO}, "instance"),
    _Field(
        Q.GPU_MEMORY_USED,
        {"DCGM_FI_DEV_FB_USED": MIB, "DCGM_FI_DEV_FB_USED_BYTES": BYTES},
        "instance",
        parts=MEMORY_PART,
    ),
    _Field("memory_free", {"DCGM_FI_DEV_FB_FREE": MIB, "DCGM_FI_DEV_FB_FREE_BYTES": BYTES}, "instance"),
    _Field("memory_reserved", {"DCGM_FI_DEV_FB_RESERVED": MIB, "DCGM_FI_DEV_FB_RESERVED_BYTES": BYTES}, "instance"),
    _Field(Q.GPU_MEMORY_TOTAL, {"DCGM_FI_DEV_FB_TOTAL": MIB, "DCGM_FI_DEV_FB_CAPACITY_BYTES": BYTES}, "instance"),
    # Fields 1009 to 1012 are rates over the last interval. dcgm-exporter 3.3.7 to 3.3.9 call those of PCIe counters.
    _Field(Q.GPU_PCIE_SENT, {"DCGM_FI_PROF_PCIE_TX_BYTES": BYTES_PER_SECOND}),
    _Field(Q.GPU_PCIE_RECEIVED, {"DCGM_FI_PROF_PCIE_RX_BYTES": BYTES_PER_SECOND}),
    _Field(Q.GPU_NVLINK_SENT, {"DCGM_FI_PROF_NVLINK_TX_BYTES": BYTES_PER_SECOND}),
    _Field(Q.GPU_NVLINK_RECEIVED, {"DCGM_FI_PROF_NVLINK_RX_BYTES": BYTES_PER_SECOND}),
    _Field(Q.GPU_POWER, {"DCGM_FI_DEV_POWER_USAGE": WATTS, "DCGM_FI_DEV_BOARD_POWER_WATTS": WATTS}, "repeated"),
    _Field(
        Q.GPU_ENERGY,
        {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": MILLIJOULES, "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL": JOULES},
        "repeated",
    ),
    _Field(Q.GPU_TEMPERATURE, {"DCGM_FI_DEV_GPU_TEMP": CELSIUS, "DCGM_FI_DEV_GPU_TEMP_CELSIUS": CELSIUS}, "repeated"),
    _Field(Q.GPU_XID, {"DCGM_FI_DEV_XID_ERRORS": XID, "DCGM_FI_DEV_XID_ERROR": XID}, "repeated"),
)
REPEATED = frozenset(name for field in FIELDS if field.mig == "repeated" for name in field.names)
UNITS = {name: unit for field in FIELDS for name, unit in field.names.items()}


def compile_dcgm(kind: Kind, layout: Layout) -> ReadPlan:
    """The plan of a response of dcgm-exporter. Once per layout."""
    ours = [index for index, name in enumerate(layout.names) if name.startswith("DCGM_FI_")]
    devices = _devices(layout, ours)
    measured_by_process = [name for field in FIELDS if field.parts for name in field.names]
    per_process = any(_is_split(device, name) for device in devices.values() for name in measured_by_process)
    cells = [
        cell
        for row, ((_, instance), device) in enumerate(devices.items())
        for field in FIELDS
        if field.mig == "instance" or instance is None
        for cell in _cells(row, field, device, per_process=per_process)
    ]
    return build(
        kind.name,
        [_gpu(uuid, instance, device) for (uuid, instance), device in devices.items()],
        cells,
        _finish,
        timed={
            row: [index for members in device.series.values() for index, _ in members]
            for row, device in enumerate(devices.values())
        },
        watched=[CheckedSeries(index, _below_int32(layout, index)) for index in ours],
        maybe_percent=[cell.series for cell in cells if cell.unit is RATIO_OR_PERCENT],
        families={name: field.column for field in FIELDS for name in field.names},
    )


def _below_int32(layout: Layout, index: int) -> bool:
    name = layout.names[index]
    if name in UNITS:
        return UNITS[name].high < INT32_MARKS[0]
    return layout.types.get(name) != "counter" and not name.endswith(("_TOTAL", "_BYTES"))


def _is_split(device: _Device, name: str) -> bool:
    """Whether the response has a field both for the device and per pod."""
    holders = {pod is None for _, pod in device.series.get(name, ())}
    return len(holders) > 1


def _cells(row: int, field: _Field, device: _Device, *, per_process: bool) -> list[Cell]:
    name = next((name for name in field.names if name in device.series), None)
    if name is None:
        return []
    unit, members = field.names[name], device.series[name]
    whole = [index for index, pod in members if pod is None]
    parts = [(index, pod) for index, pod in members if pod is not None]
    if field.parts is None or not parts or not (whole or device.shared):
        return [Cell(index, row, field.column, Combine.COPY, unit) for index, _ in members]
    if whole:
        number_of = {pod: number for number, pod in enumerate(device.pods())}
        return [
            *(Cell(index, row, field.column, Combine.COPY, unit) for index in whole),
            *(Cell(index, row, f"{field.parts}{number_of[pod]}", Combine.SUM, unit) for index, pod in parts),
        ]
    if per_process:  # parts of a device without its own line: their sum is not the device
        return []
    return [Cell(index, row, field.column, Combine.SAME, unit) for index, _ in parts]


def _gpu(uuid: str, instance: str | None, device: _Device) -> Gpu:
    pods = tuple(device.pods())
    if not pods:
        attribution = Attribution.NONE
    elif device.shared:
        attribution = Attribution.DEVICE
    else:
        attribution = Attribution.MIG if instance else Attribution.EXCLUSIVE
    model = device.labels.get("modelName") or device.labels.get("model_name")
    return Gpu(
        uuid,
        instance,
        device.labels.get("GPU_I_PROFILE") or None,
        model,
        attribution,
        pods,
        device.implied,
        # Its NODE_NAME; if the DaemonSet sets none, the exporter's own host name, of which each node has one.
        node=device.labels.get("Hostname") or device.labels.get("hostname") or None,
    )


def _finish(columns: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
    """Adds the total memory if no series has it, and the parts of shared GPUs if they add up."""
    unknown = np.full(len(subjects), np.nan)
    used = columns.get(Q.GPU_MEMORY_USED, unknown)
    if "memory_free" in columns:
        # free + used + reserved: 45459 + 0 + 608 MiB on an L40S. Exporters before 4.4 do not have the last: two of the
        # three are 600 to 1,000 MiB too little, so then the total is unknown.
        total = used + columns["memory_free"] + columns.get("memory_reserved", unknown)
        exposed = columns.get(Q.GPU_MEMORY_TOTAL, unknown)
        columns[Q.GPU_MEMORY_TOTAL] = np.where(np.isnan(exposed), total, exposed)
    return columns, with_parts(columns, subjects, used)


@dataclass(slots=True)
class _Device:
    """One (UUID, instance) while its layout is compiled. series: name -> (index, its pod)."""

    labels: Labels
    series: dict[str, list[tuple[int, PodKey | None]]]
    shared: bool = False
    implied: bool = False

    def pods(self) -> list[PodKey]:
        return sorted({pod for members in self.series.values() for _, pod in members if pod is not None})


_Devices: TypeAlias = dict[tuple[str, str | None], _Device]


def _devices(layout: Layout, ours: Sequence[int]) -> _Devices:
    """The devices of the series `ours`, in the order of the response, the parent of MIG instances before them."""
    labels = {index: layout.labels(index) for index in ours}
    namespace, pod = next(
        (names for names in POD_LABELS if any(names[1] in each for each in labels.values())), POD_LABELS[-1]
    )
    devices: _Devices = {}
    for index, each in labels.items():
        uuid, replica, _ = (each.get("UUID") or each.get("uuid") or "").partition("::")
        if not uuid:  # series of NVLink, NvSwitch and CPUs
            continue
        device = devices.setdefault((uuid, each.get("GPU_I_ID") or None), _Device(each, {}))
        name = each.get(pod, "")
        holder = PodKey(each.get(namespace, ""), name) if name and EXPORTER not in name else None
        device.series.setdefault(layout.names[index], []).append((index, holder))
        device.shared |= bool(each.get("vgpu") or replica)
    for device in devices.values():
        device.shared |= len(device.pods()) > 1
    return _with_parents(devices)


def _with_parents(devices: _Devices) -> _Devices:
    """The devices, with the parent of MIG instances before them."""
    instances: dict[str, list[_Device]] = {}
    for (uuid, instance), device in devices.items():
        if instance is not None:
            instances.setdefault(uuid, []).append(device)
    found: _Devices = {}
    for (uuid, instance), device in devices.items():
        if uuid in instances and (uuid, None) not in found:
            parent = _parent(devices.get((uuid, None)), instances[uuid])
            if parent.series:
                found[uuid, None] = parent
        if instance is not None or uuid not in instances:
            found[uuid, instance] = device
    return found


def _parent(exposed: _Device | None, instances: Sequence[_Device]) -> _Device:
    """The parent of MIG instances, from its own series (None: it has none) and from what they repeat of it.

    No pod holds it: a pod named beside it holds an instance.
    """
    source = instances[0] if exposed is None else exposed
    labels = {name: text for name, text in source.labels.items() if not name.startswith("GPU_I_")}
    series = {} if exposed is None else {name: _without_pods(members) for name, members in exposed.series.items()}
    for name, members in [each for device in instances for each in device.series.items()]:
        if name in REPEATED and (exposed is None or name not in exposed.series):
            series[name] = series.get(name, []) + _without_pods(members)
    return _Device(labels, series, implied=exposed is None)


def _without_pods(members: Sequence[tuple[int, PodKey | None]]) -> list[tuple[int, PodKey | None]]:
    return [(index, None) for index, _ in members]


def with_parts(columns: Columns, subjects: tuple[Subject, ...], used: Floats) -> tuple[Subject, ...]:
    """The subjects, with the parts of shared GPUs if their parts add up. `used`: bytes, of the device."""
    if not any(name.startswith((UTILIZATION_PART, MEMORY_PART)) for name in columns):
        return subjects
    busy = columns.get(Quantity.GPU_UTILIZATION, np.full(len(subjects), np.nan))
    busy_parts, memory_parts = (
        _parts(columns, UTILIZATION_PART, len(subjects)),
        _parts(columns, MEMORY_PART, len(subjects)),
    )
    busy_sum, memory_sum = _sum(busy_parts), _sum(memory_parts)
    # All parts 0 on a busy device is what a failed process-to-pod mapping looks like, not idle pods.
    denied = (busy_sum == 0.0) & (busy > UTILIZATION_SLACK)
    denied |= (busy_sum > busy * TOLERANCE + UTILIZATION_SLACK) | (memory_sum > used * TOLERANCE + MEMORY_SLACK)
    measured = ((busy_sum > 0.0) | (memory_sum > 0.0)) & ~denied
    return tuple(
        _by_process(subject, busy_parts[row], memory_parts[row])
        if measured[row] and isinstance(subject, Gpu) and subject.attribution is Attribution.DEVICE
        else subject
        for row, subject in enumerate(subjects)
    )


def _by_process(gpu: Gpu, busy: Floats, memory: Floats) -> Gpu:
    parts = tuple(Part(pod, float(busy[n]), float(memory[n])) for n, pod in enumerate(gpu.pods))
    return replace(gpu, attribution=Attribution.PROCESS, parts=parts)


def _parts(columns: Columns, prefix: str, rows: int) -> Floats:
    """The parts of each row, shape (rows, most pods of any row): in the order of its pods, NaN if not exposed."""
    numbered = {int(name.removeprefix(prefix)): column for name, column in columns.items() if name.startswith(prefix)}
    most = max((int(name.rpartition("_")[2]) + 1 for name in columns if "_part_" in name), default=0)
    return np.column_stack([numbered.get(n, np.full(rows, np.nan)) for n in range(most)])


def _sum(parts: Floats) -> Floats:
    """The sum of the exposed parts; NaN if there is none. Shape (rows,)."""
    return np.where(np.isnan(parts).all(axis=1), np.nan, np.nansum(parts, axis=1))


DCGM = Kind("dcgm", {"DCGM_FI_": 2}, port=9400, compile=compile_dcgm, families=UNITS)
