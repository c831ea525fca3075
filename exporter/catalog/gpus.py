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

MIG profiles: how much of a GPU an instance is, and how high its engine activity may get.

A profile says how many of a GPU's compute slices an instance has: `3g.40gb` has 3. It does not say how they are cut
into compute instances, and no page does. DCGM measures activity against the whole instance, so one busy compute
instance of one slice reads 1/N on an instance of N slices: 1.0, 0.5 and 0.33 at most were measured on 1g, 2g and 3g
(NVIDIA/DCGM#138). Such a value may be all that a pod can reach or a third of it. So it is never divided here: the
ceiling stands beside it, and it is a ceiling that the instance *may* have.

Worked example: of `3g.40gb` on an H100 the slices are 3, the ceiling 0.333 and the share of the GPU 3/7.

GPUs that are lost: a fatal Xid that was seen to come, and then silence.

DCGM prints the last Xid code of a GPU and never takes it back (NVIDIA/DCGM#277, dcgm-exporter#500): after a repair it
still says 79. So a code means nothing by being there. What counts is a *change* to a fatal code, seen on two pages of
one GPU, and a second sign: it no longer says its activity, which it did before. A GPU that goes on saying it has
survived; one whose activity comes back is well again. Silence alone is no sign either: profiling may be paused, and
an Xid 31 of an application can blank the profiling fields (NVIDIA/DCGM#202).

What it cannot see: an error before the first page, two errors between two pages of which the last is harmless (Xid 45
follows many), and a GPU that is taken off the page.

Worked example: pages say `engine 0.9, no Xid`, then `engine 0.9, Xid 79`, then `Xid 79` and no activity: from the
third page on `GPU_LOST` is 1 on the GPU's row. A GPU that said 79 from the first page on is not lost.

Which device each series of a GPU page is of, and who is named beside it.

A device is a (UUID, MIG instance). It knows labels as dcgm-exporter and Prometheus write them, and no values: what a
family means is `dcgm`'s. Several series of one family and device are copies, parts, or a device and its parts; that
is for `dcgm` to tell, by whose pod each names.

Worked example: `{UUID="GPU-1::0",pod="a"}` and `{UUID="GPU-1::1",pod="b"}` are one device, shared, of pods a and b;
`{UUID="GPU-2",GPU_I_ID="3"}` is an instance, and brings a parent `GPU-2` along for what it repeats of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.model import Attribution, Floats, Gpu, PodKey, Quantity, Samples, Subject
from exporter.textformat import Layout

from .columns import MEMORY_PART, UTILIZATION_PART, taken_apart
from .kind import Kind
from .plan import INT32_MARKS, Cell, CheckedSeries, ReadPlan, build
from .schema import BYTES, JOULES, RATIO, WATTS, Columns, Combine, Labels, Unit

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


def compile_dcgm(layout: Layout) -> ReadPlan:
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
        watched=[CheckedSeries(index, _below_int32(layout, index)) for index in ours],
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


# "1g.5gb", "1g.10gb+me", "2g.24gb-me", "1c.3g.20gb" (a compute instance of it), "MIG 1g.5gb", "mig-1g.5gb": the
# digits before the g are the slices (docs.nvidia.com MIG user guide, "Supported MIG Profiles").
_PROFILE = re.compile(r"(?:^|[ .-])([1-9])g\.")

# Compute slices of a whole GPU: 7 on A100, H100, H200, B200 and their kin; 4 where the largest profile is 4g.
SLICES = 7
FOUR_SLICES = ("A30", "RTX PRO 6000")


@lru_cache(maxsize=256)
def slices(profile: str | None) -> int | None:
    """Compute slices of a MIG profile; None where it does not say."""
    found = _PROFILE.search(profile or "")
    return int(found[1]) if found else None


def ceiling(gpu: Gpu) -> float | None:
    """The engine activity, 0..1, at which a single busy compute instance of an instance tops; None of a whole GPU."""
    count = slices(gpu.profile) if gpu.instance is not None else None
    return None if count is None else 1.0 / count


def share(gpu: Gpu) -> float:
    """How much of a whole GPU it is, 0..1: what its activity weighs in a mean over unequal parts.

    An instance without a profile counts as one slice: the smallest there is.
    """
    if gpu.instance is None:
        return 1.0
    whole = 4 if any(name in (gpu.model or "") for name in FOUR_SLICES) else SLICES
    return min(1.0, (slices(gpu.profile) or 1) / whole)


# Codes to which NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors") answers with a reset
# of the GPU or a restart of the machine, without links (74, 136, 144 to 150, 155: a neighbour's failure shows there
# too) and without what is contained or only reported (63, 92, 94, 156).
FATAL = {
    48: "double-bit ECC error",
    62: "internal micro-controller halted",
    64: "memory remapping failed",
    79: "fallen off the bus",
    95: "uncontained memory error",
    109: "context switch timed out",
    110: "security fault",
    119: "GSP did not answer",
    120: "GSP error",
    140: "unrecovered ECC error",
    143: "initialisation failed",
    154: "recovery action changed",  # follows the code that it sums up, and overwrites it
    158: "fatal timeout",
}

# DCGM's fields are up to one collect interval old (30 s by default), each at its own moment, and a driver may answer
# a while longer: a GPU that still says its activity so long after the code has survived it.
SUSPECTED_S = 120.0

_SPOKEN = frozenset({Quantity.GPU_XID, Quantity.GPU_ENGINE_ACTIVE, Quantity.GPU_UTILIZATION})
_Mask: TypeAlias = NDArray[np.bool_]
_Identity: TypeAlias = tuple[str, str | None]


class Faults:
    """What the pages of one target have said of Xid errors. Time is that of the pages."""

    def __init__(self) -> None:
        self._subjects: tuple[Subject, ...] = ()
        self._rows: list[_Identity] = []
        self._xid: Floats = np.empty(0)
        self._spoke: _Mask = np.empty(0, dtype=np.bool_)  # has ever said its activity
        self._suspected: dict[str, float] = {}  # uuid -> POSIX seconds of the page that brought the code
        self._lost: frozenset[str] = frozenset()

    def judge(self, samples: Samples) -> Samples:
        """The samples, with a column GPU_LOST if any GPU is: 1 on the rows of those that are, else NaN."""
        if not samples.subjects or _SPOKEN.isdisjoint(samples.quantities):
            return samples
        known = self._align(samples.subjects)
        xid = samples.column(Quantity.GPU_XID)
        speaks = ~np.isnan(samples.column(Quantity.GPU_ENGINE_ACTIVE))
        speaks |= ~np.isnan(samples.column(Quantity.GPU_UTILIZATION))
        at = float(samples.at.max())
        came = known & ~np.isnan(xid) & (xid != self._xid)
        for row in np.flatnonzero(came):
            if int(xid[row]) in FATAL:
                self._suspected[self._rows[row][0]] = at
        self._xid, self._spoke = np.where(np.isnan(xid), self._xid, xid), self._spoke | speaks
        return self._mark(samples, ~speaks & self._spoke, at) if self._suspected else samples

    def _align(self, subjects: Sequence[Subject]) -> _Mask:
        """Put what is remembered beside these rows; returns which of them were there before."""
        if subjects is self._subjects:
            return np.ones(len(subjects), dtype=np.bool_)
        rows = [(subject.uuid, subject.instance) if isinstance(subject, Gpu) else ("", None) for subject in subjects]
        place = {identity: row for row, identity in enumerate(self._rows)}
        old = np.array([place.get(identity, -1) for identity in rows], dtype=np.int64)
        known: _Mask = old >= 0
        xid, spoke = np.full(len(rows), np.nan), np.zeros(len(rows), dtype=np.bool_)
        xid[known], spoke[known] = self._xid[old[known]], self._spoke[old[known]]
        self._subjects, self._rows, self._xid, self._spoke = tuple(subjects), rows, xid, spoke
        return known

    def _mark(self, samples: Samples, silent: _Mask, at: float) -> Samples:
        suspected = np.array([uuid in self._suspected for uuid, _ in self._rows], dtype=np.bool_)
        lost = suspected & silent
        gone = frozenset(self._rows[row][0] for row in np.flatnonzero(lost))
        for uuid, since in list(self._suspected.items()):
            if uuid not in gone and (uuid in self._lost or at - since > SUSPECTED_S):
                del self._suspected[uuid]
        self._lost = gone
        if not gone:
            return samples
        return replace(
            samples,
            quantities=(*samples.quantities, Quantity.GPU_LOST),
            values=np.column_stack([samples.values, np.where(lost, 1.0, np.nan)]),
        )


# Whose pod a series names: through Prometheus (honorLabels: false) the workload's is `exported_pod` and the bare one
# is the exporter's; under --use-old-namespace it is `pod_name`. What one series of a page has, holds for the page.
POD_LABELS = (("exported_namespace", "exported_pod"), ("pod_namespace", "pod_name"), ("namespace", "pod"))
EXPORTER = "dcgm-exporter"  # with honorLabels: true, Prometheus names the exporter's own pod on GPUs that have none


@dataclass(slots=True)
class Device:
    """One (UUID, instance) while its layout is compiled. series: name -> (index, its pod)."""

    labels: Labels
    series: dict[str, list[tuple[int, PodKey | None]]]
    shared: bool = False
    implied: bool = False

    def pods(self) -> list[PodKey]:
        return sorted({pod for members in self.series.values() for _, pod in members if pod is not None})


Devices: TypeAlias = dict[tuple[str, str | None], Device]


def devices_of(layout: Layout, ours: Sequence[int], repeated: frozenset[str]) -> Devices:
    """The devices of a page's series, in the page's order, the parent of MIG instances before them.

    ours: indices of the series that may be of GPUs. repeated: families in which instances repeat their parent.
    """
    labels = {index: layout.series[index].labels for index in ours}
    namespace, pod = next(
        (names for names in POD_LABELS if any(names[1] in said for said in labels.values())), POD_LABELS[-1]
    )
    devices: Devices = {}
    for index, said in labels.items():
        uuid, replica, _ = (said.get("UUID") or said.get("uuid") or "").partition("::")
        if not uuid:  # NVLink, NvSwitch and CPU series: no GPU's
            continue
        device = devices.setdefault((uuid, said.get("GPU_I_ID") or None), Device(said, {}))
        name = said.get(pod, "")
        holder = PodKey(said.get(namespace, ""), name) if name and EXPORTER not in name else None
        device.series.setdefault(layout.names[index], []).append((index, holder))
        device.shared |= bool(said.get("vgpu") or replica)
    for device in devices.values():
        device.shared |= len(device.pods()) > 1
    return _with_parents(devices, repeated)


def _with_parents(devices: Devices, repeated: frozenset[str]) -> Devices:
    """The devices, with the parent of MIG instances before them: its own series if the page has any, else what the
    instances repeat of it. No pod holds it: whoever is named beside it holds an instance.
    """
    families: dict[str, list[Device]] = {}
    for (uuid, instance), device in devices.items():
        if instance is not None:
            families.setdefault(uuid, []).append(device)
    found: Devices = {}
    for (uuid, instance), device in devices.items():
        if uuid in families and (uuid, None) not in found:
            parent = _parent(devices.get((uuid, None)), families[uuid], repeated)
            if parent.series:
                found[uuid, None] = parent
        if instance is not None or uuid not in families:
            found[uuid, instance] = device
    return found


def _parent(own: Device | None, instances: Sequence[Device], repeated: frozenset[str]) -> Device:
    """The parent of MIG instances, by its own series (None: the page has none) and by what they repeat of it."""
    said = instances[0].labels if own is None else own.labels
    labels = {name: text for name, text in said.items() if not name.startswith("GPU_I_")}
    series = {} if own is None else {name: _nobodys(members) for name, members in own.series.items()}
    for name, members in [each for device in instances for each in device.series.items()]:
        if name in repeated and (own is None or name not in own.series):
            series[name] = series.get(name, []) + _nobodys(members)
    return Device(labels, series, implied=own is None)


def _nobodys(members: Sequence[tuple[int, PodKey | None]]) -> list[tuple[int, PodKey | None]]:
    return [(index, None) for index, _ in members]
