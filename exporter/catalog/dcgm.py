"""dcgm-exporter's words: one row per (UUID, MIG instance), whoever holds it.

First a series is put to its device, then the device to its pods: summing series by pod counts a shared GPU once per
sharer. What is told apart here:

- **Copies.** Without process accounting every pod on a shared GPU gets a copy of the device's value; `hpc_job` makes
  one per job. Copies are one measurement.
- **Parts.** dcgm-exporter 4.8.2 prints GPU_UTIL and FB_USED of a shared GPU once for the device, without a pod, and
  once per pod. The device's series is the GPU's value; the parts only tell whether they can be believed.
- **MIG.** An instance has memory and engine activity of its own. Its power, energy, temperature and Xid are its
  parent's, printed again on each instance: they go to one row of the parent, whether or not the page has one (`-d f`
  prints instances alone, `-d g+i` both, under one UUID). Its GPU_UTIL was a constant 0 in 3.3.0: nobody's. Who holds
  instances holds no more than these: the parent beside them is no pod's.
- **Replicas.** A time-sliced device is `GPU-1::3` to the device plugin: the third share of GPU-1, not another GPU.

Worked example: `DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1",pod=""} 90`, `{UUID="GPU-1",pod="a"} 0` and `{…,pod="b"} 0` make one
row `Gpu("GPU-1", attribution=DEVICE, pods=(a, b))` with utilization 0.9: no pod's share is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from exporter.model import Attribution, Gpu, Quantity, Subject
from exporter.textformat import Layout

from .devices import Device, devices_of
from .kind import Kind
from .parts import MEMORY_PART, UTILIZATION_PART, taken_apart
from .plan import INT32_MARKS, Cell, Plan, Watched, build
from .words import BYTES, JOULES, RATIO, WATTS, Columns, Combine, Unit

Q = Quantity

PERCENT = Unit(per=100.0, high=100.0)  # GPU_UTIL glitches of 1,000 to 4,294,967,295 were seen (NVIDIA/DCGM#199)
MIB = Unit(per=2.0**-20, high=1e9)
MILLIJOULES = Unit(per=1000.0, high=1e15)
CELSIUS = Unit(high=200.0)
XID = Unit(high=10_000.0)
# Field 203 is an integer percentage. DCGM 4.6 called it GPU_UTIL_RATIO without changing it; later the name went to
# field 1613, a ratio. So: a percentage if any value on the page is above what a ratio can be, else a ratio. A page on
# which every GPU is at 0 % or 1 % is then read as 0 or 1: wrong on the busy side, and never by rounding down to idle.
RATIO_OR_PERCENT = Unit(high=100.0, cap=1.0)


@dataclass(frozen=True, slots=True)
class Field:
    """One quantity of a GPU.

    names:       the fields that carry it, best first, with their unit. DCGM renames; a CSV may list both names.
    on_instance: a MIG instance's own value, not its parent's.
    repeated:    the parent's value, printed again on each instance.
    parts:       of fields that dcgm-exporter takes apart by process: how the columns of the parts begin, one column
                 for each of a device's pods.
    """

    column: str
    names: Mapping[str, Unit]
    on_instance: bool = False
    repeated: bool = False
    parts: str | None = None


# Names and units: dcgm-exporter etc/default-counters.csv, go-dcgm pkg/dcgm/dcgm_fields.h (old and new names).
FIELDS = (
    Field(
        Q.GPU_ENGINE_ACTIVE,
        {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": RATIO, "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": RATIO},
        on_instance=True,
    ),
    Field(
        Q.GPU_UTILIZATION,
        {"DCGM_FI_DEV_GPU_UTIL": PERCENT, "DCGM_FI_DEV_GPU_UTIL_RATIO": RATIO_OR_PERCENT},
        parts=UTILIZATION_PART,
    ),
    Field(Q.GPU_SM_ACTIVE, {"DCGM_FI_PROF_SM_ACTIVE": RATIO, "DCGM_FI_PROF_SM_UTIL_RATIO": RATIO}, on_instance=True),
    Field(
        Q.GPU_TENSOR_ACTIVE,
        {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": RATIO, "DCGM_FI_PROF_TENSOR_UTIL_RATIO": RATIO},
        on_instance=True,
    ),
    Field(
        Q.GPU_DRAM_ACTIVE,
        {"DCGM_FI_PROF_DRAM_ACTIVE": RATIO, "DCGM_FI_PROF_DRAM_UTIL_RATIO": RATIO},
        on_instance=True,
    ),
    Field(
        Q.GPU_MEMORY_USED,
        {"DCGM_FI_DEV_FB_USED": MIB, "DCGM_FI_DEV_FB_USED_BYTES": BYTES},
        on_instance=True,
        parts=MEMORY_PART,
    ),
    Field("memory_free", {"DCGM_FI_DEV_FB_FREE": MIB, "DCGM_FI_DEV_FB_FREE_BYTES": BYTES}, on_instance=True),
    Field(
        "memory_reserved", {"DCGM_FI_DEV_FB_RESERVED": MIB, "DCGM_FI_DEV_FB_RESERVED_BYTES": BYTES}, on_instance=True
    ),
    Field(Q.GPU_MEMORY_TOTAL, {"DCGM_FI_DEV_FB_TOTAL": MIB, "DCGM_FI_DEV_FB_CAPACITY_BYTES": BYTES}, on_instance=True),
    Field(Q.GPU_POWER, {"DCGM_FI_DEV_POWER_USAGE": WATTS, "DCGM_FI_DEV_BOARD_POWER_WATTS": WATTS}, repeated=True),
    Field(
        Q.GPU_ENERGY,
        {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": MILLIJOULES, "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL": JOULES},
        repeated=True,
    ),
    Field(Q.GPU_TEMPERATURE, {"DCGM_FI_DEV_GPU_TEMP": CELSIUS, "DCGM_FI_DEV_GPU_TEMP_CELSIUS": CELSIUS}, repeated=True),
    Field(Q.GPU_XID, {"DCGM_FI_DEV_XID_ERRORS": XID, "DCGM_FI_DEV_XID_ERROR": XID}, repeated=True),
)
REPEATED = frozenset(name for field in FIELDS if field.repeated for name in field.names)
UNITS = {name: unit for field in FIELDS for name, unit in field.names.items()}


def compile_dcgm(layout: Layout) -> Plan:
    """The plan of a dcgm-exporter page. Once per layout."""
    ours = [index for index, name in enumerate(layout.names) if name.startswith("DCGM_FI_")]
    devices = devices_of(layout, ours, REPEATED)
    apart = [name for field in FIELDS if field.parts for name in field.names]
    per_process = any(_is_split(device, name) for device in devices.values() for name in apart)
    cells = [
        cell
        for row, ((_, instance), device) in enumerate(devices.items())
        for field in FIELDS
        if field.on_instance or instance is None
        for cell in _cells(row, field, device, per_process=per_process)
    ]
    return build(
        "dcgm",
        [_gpu(uuid, instance, device) for (uuid, instance), device in devices.items()],
        cells,
        _finish,
        timed={
            row: [index for members in device.series.values() for index, _ in members]
            for row, device in enumerate(devices.values())
        },
        watched=[Watched(index, _below_int32(layout, index)) for index in ours],
        unsure=[cell.series for cell in cells if cell.unit is RATIO_OR_PERCENT],
        families={name: field.column for field in FIELDS for name in field.names},
    )


def _below_int32(layout: Layout, index: int) -> bool:
    name = layout.names[index]
    if name in UNITS:
        return UNITS[name].high < INT32_MARKS[0]
    return layout.types.get(name) != "counter" and not name.endswith(("_TOTAL", "_BYTES"))


def _is_split(device: Device, name: str) -> bool:
    """Whether a field of a device is there both for the device and per pod."""
    holders = {pod is None for _, pod in device.series.get(name, ())}
    return len(holders) > 1


def _cells(row: int, field: Field, device: Device, *, per_process: bool) -> list[Cell]:
    name = next((name for name in field.names if name in device.series), None)
    if name is None:
        return []
    unit, members = field.names[name], device.series[name]
    whole = [index for index, pod in members if pod is None]
    parts = [(index, pod) for index, pod in members if pod is not None]
    if field.parts is None or not parts or not (whole or device.shared):
        return [Cell(index, row, field.column, Combine.COPY, unit) for index, _ in members]
    if whole:
        place = {pod: number for number, pod in enumerate(device.pods())}
        return [
            *(Cell(index, row, field.column, Combine.COPY, unit) for index in whole),
            *(Cell(index, row, f"{field.parts}{place[pod]}", Combine.SUM, unit) for index, pod in parts),
        ]
    if per_process:  # parts of a device whose own line is missing: their sum is not the device
        return []
    return [Cell(index, row, field.column, Combine.SAME, unit) for index, _ in parts]


def _gpu(uuid: str, instance: str | None, device: Device) -> Gpu:
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
        # Its NODE_NAME; where the DaemonSet sets none, the exporter's own host name, of which each node has one.
        node=device.labels.get("Hostname") or device.labels.get("hostname") or None,
    )


def _finish(columns: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
    """The total memory where no series says it, and whether per-pod parts add up."""
    unknown = np.full(len(subjects), np.nan)
    used = columns.get(Q.GPU_MEMORY_USED, unknown)
    if "memory_free" in columns:
        # free + used + reserved: 45459 + 0 + 608 MiB on an L40S. Exporters before 4.4 do not print the last: two of
        # the three are 600 to 1,000 MiB too little, so then the total is unknown.
        total = used + columns["memory_free"] + columns.get("memory_reserved", unknown)
        printed = columns.get(Q.GPU_MEMORY_TOTAL, unknown)
        columns[Q.GPU_MEMORY_TOTAL] = np.where(np.isnan(printed), total, printed)
    return columns, taken_apart(columns, subjects, used)


DCGM = Kind(
    name="dcgm",
    signs={"DCGM_FI_": 2},
    port=9400,
    path="/metrics",
    work=None,
    compile=compile_dcgm,
)
