"""Reads the metrics of `tidegate export`, which runs beside an engine or on a node.

Every quantity has one family, in the units of `exporter.model`. The writer (`exporter.agent.page`) and the reader below
share the tables. Beside the values are:

- `tidegate_export_queue_age_seconds` and `tidegate_export_gpu_age_seconds`: how long ago each queue and GPU was
  measured, by the exporter's clock. The clocks of two machines need not agree, and an old number stays old however
  often it is scraped. A row without a valid age has no values.
- `tidegate_export_source_up`: 0 if a source does not answer. Its values are missing then, while the ages of its queues
  and GPUs remain and grow: unknown now, and not gone. A queue of several sources is known only if all of them answer.
  If no source answers, `read` raises NotHeard.

Worked example: `tidegate_export_requests_waiting{queue="m",source="s"} 3`, the same queue's age of 2.5 and
`tidegate_export_source_up{source="s"} 1`, received at 100.0, are 3 requests of `Queue("m")`, measured at 97.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from exporter.model import Attribution, Floats, Gpu, PodKey, Quantity, Queue, Samples, Subject
from exporter.textformat import Layout, Page

from .kind import Kind, compile_table
from .plan import Indices, ReadPlan
from .schema import (
    BYTES,
    BYTES_PER_SECOND,
    CELSIUS,
    COUNT,
    COUNTER,
    FLAG,
    JOULES,
    RATIO,
    WATTS,
    Combine,
    Key,
    Labels,
    SeriesRow,
    Unit,
)

Q = Quantity
PORT = 9410
PREFIX = "tidegate_export_"
QUEUE_AGE = f"{PREFIX}queue_age_seconds"
GPU_AGE = f"{PREFIX}gpu_age_seconds"
GPU_INFO = f"{PREFIX}gpu_info"
GPU_POD_INFO = f"{PREFIX}gpu_pod_info"
SOURCE_UP = f"{PREFIX}source_up"
IMPLIED = "true"
OLDEST_S = 1e9  # a larger age is invalid


class Family(NamedTuple):
    """One quantity. `name`: without PREFIX; a counter's ends in `_total`. `text`: the help."""

    name: str
    unit: Unit
    text: str
    combine: Combine = Combine.SUM

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


_MEAN, _MIN = Combine.MEAN, Combine.MIN
QUEUE_FAMILIES: Mapping[Quantity, Family] = {
    Q.REQUESTS_WAITING: Family("requests_waiting", COUNT, "Waiting requests."),
    Q.REQUESTS_RUNNING: Family("requests_running", COUNT, "Requests in progress."),
    Q.REQUESTS_HELD: Family("requests_held", COUNT, "Requests that a gateway holds."),
    Q.REQUESTS_OPEN: Family("requests_open", COUNT, "Requests passed on by a gateway."),
    Q.REQUESTS_FINISHED: Family("requests_finished_total", COUNTER, "Finished requests."),
    Q.REQUESTS_FAILED: Family("requests_failed_total", COUNTER, "Rejected, aborted or failed requests."),
    Q.TOKENS_PROMPT: Family("prompt_tokens_total", COUNTER, "Prompt tokens."),
    Q.TOKENS_COMPUTED: Family("computed_prompt_tokens_total", COUNTER, "Uncached prompt tokens."),
    Q.TOKENS_GENERATED: Family("generated_tokens_total", COUNTER, "Generated tokens."),
    Q.FIRST_TOKENS: Family("first_tokens_total", COUNTER, "Requests that had their first token."),
    Q.ITL_COUNT: Family("itl_count_total", COUNTER, "Times between two tokens of a request."),
    Q.ITL_SECONDS: Family("itl_seconds_total", COUNTER, "Sum of the times between two tokens."),
    Q.KV_CACHE_USED: Family("kv_cache_used_ratio", RATIO, "KV-cache usage, 0 to 1.", _MEAN),
    Q.ENGINE_AWAKE: Family("engine_awake", FLAG, "1: the engine is awake. 0: it is in sleep mode.", _MIN),
    Q.PREEMPTIONS: Family("preemptions_total", COUNTER, "Requests set back to the queue by a full KV cache."),
    Q.QUEUED_COUNT: Family("queued_count_total", COUNTER, "Requests with a queue time."),
    Q.QUEUED_SECONDS: Family("queued_seconds_total", COUNTER, "Sum of queue times."),
    Q.SERVED_COUNT: Family("served_count_total", COUNTER, "Requests with a service time."),
    Q.SERVED_SECONDS: Family("served_seconds_total", COUNTER, "Sum of service times."),
    Q.REPLICAS_READY: Family("replicas_ready", COUNT, "Ready backends of a gateway."),
}
_COPY = Combine.COPY
_ACTIVE = "Share of time with an active {}, 0 to 1."
GPU_FAMILIES: Mapping[Quantity, Family] = {
    Q.GPU_ENGINE_ACTIVE: Family("gpu_engine_active_ratio", RATIO, _ACTIVE.format("compute engine"), _COPY),
    Q.GPU_UTILIZATION: Family(
        "gpu_utilization_ratio", RATIO, "Share of time with any running kernel, 0 to 1; not a measure of load.", _COPY
    ),
    Q.GPU_SM_ACTIVE: Family("gpu_sm_active_ratio", RATIO, _ACTIVE.format("multiprocessor, mean over all"), _COPY),
    Q.GPU_SM_OCCUPANCY: Family(
        "gpu_sm_occupancy_ratio", RATIO, "Resident warps, as a share of the most, 0 to 1.", _COPY
    ),
    Q.GPU_TENSOR_ACTIVE: Family("gpu_tensor_active_ratio", RATIO, _ACTIVE.format("tensor pipe"), _COPY),
    Q.GPU_DRAM_ACTIVE: Family("gpu_dram_active_ratio", RATIO, _ACTIVE.format("memory interface"), _COPY),
    Q.GPU_MEMORY_USED: Family("gpu_memory_used_bytes", BYTES, "Used memory, idle or not.", _COPY),
    Q.GPU_MEMORY_TOTAL: Family("gpu_memory_total_bytes", BYTES, "Total memory.", _COPY),
    **{
        quantity: Family(f"{quantity}_bytes_per_second", BYTES_PER_SECOND, f"Bytes {way} over {link}.", _COPY)
        for quantity, way, link in (
            (Q.GPU_PCIE_SENT, "sent", "PCIe"),
            (Q.GPU_PCIE_RECEIVED, "received", "PCIe"),
            (Q.GPU_NVLINK_SENT, "sent", "NVLink"),
            (Q.GPU_NVLINK_RECEIVED, "received", "NVLink"),
        )
    },
    Q.GPU_POWER: Family("gpu_power_watts", WATTS, "Power draw.", _COPY),
    Q.GPU_ENERGY: Family("gpu_energy_joules_total", JOULES, "Used energy.", _COPY),
    Q.GPU_TEMPERATURE: Family("gpu_temperature_celsius", CELSIUS, "Temperature in degrees Celsius.", _COPY),
    Q.GPU_XID: Family("gpu_xid", Unit(high=10_000.0), "Code of the last Xid error until the GPU is reset.", _COPY),
    Q.GPU_LOST: Family("gpu_lost", FLAG, "1: no metrics after a fatal Xid error. Other GPUs have no sample.", _COPY),
}


class SourcesDown(ValueError):  # noqa: N818 - it names the reason
    """No source of a `tidegate export` answers, so its response has no values."""


def _queue(labels: Labels) -> Key:
    return "queue", labels.get("queue", "")


def _gpu(labels: Labels) -> Key:
    return "gpu", labels.get("uuid", ""), labels.get("mig_instance", "")


def _no_subject(_: Labels) -> Key:
    return ("source",)


def _subjects(keys: Sequence[Key]) -> list[Subject | None]:
    return [_subject(key) for key in keys]


def _subject(key: Key) -> Subject | None:
    match key:
        case ("queue", name):
            return Queue(name)
        case ("gpu", uuid, instance) if uuid:
            return Gpu(uuid, instance or None)
    return None


_AGE = Unit(high=OLDEST_S)
# The last columns are no quantities: they make rows of subjects without values; `compile_export` reads their labels.
_ROWS = (
    *(SeriesRow(column, (each.full_name,), _queue, each.combine, each.unit) for column, each in QUEUE_FAMILIES.items()),
    *(SeriesRow(column, (each.full_name,), _gpu, each.combine, each.unit) for column, each in GPU_FAMILIES.items()),
    SeriesRow("age", (QUEUE_AGE,), _queue, Combine.MEAN, _AGE),
    SeriesRow("age", (GPU_AGE,), _gpu, Combine.MEAN, _AGE),
    SeriesRow("info", (GPU_INFO,), _gpu, Combine.COPY),
    SeriesRow("pod", (GPU_POD_INFO,), _gpu, Combine.COPY),
    SeriesRow("up", (SOURCE_UP,), _no_subject),
)


@dataclass(frozen=True, slots=True, eq=False)
class ExportPlan(ReadPlan):
    """A plan with the ages of its rows and the sources of its queues.

    ages, age_rows: series of the ages, and the row of each.
    ups:            series of SOURCE_UP.
    source_rows, source_ups: rows of queues, and the position in `ups` of a source of each (-1: no such series).
    """

    ages: Indices
    age_rows: Indices
    ups: Indices
    source_rows: Indices
    source_ups: Indices

    def read(self, page: Page, received_at: float) -> Samples:
        """The samples, as old as their ages. Raises NotHeard."""
        is_up = np.append(page.values[self.ups] == 1.0, False)  # the last: a source without a series
        if len(self.ups) and not is_up.any():
            raise SourcesDown(f"{SOURCE_UP} is 0 for every source")
        samples = ReadPlan.read(self, page, received_at)
        ages = self._ages(page, len(samples.subjects))
        values = samples.values.copy()
        values[np.isnan(ages)] = np.nan
        values[self.source_rows[~is_up[self.source_ups]]] = np.nan
        return replace(samples, values=values, at=samples.at - np.nan_to_num(ages))

    def _ages(self, page: Page, rows: int) -> Floats:
        """Seconds, the oldest age of each row; NaN if it has none, or an invalid one."""
        ages = np.full(rows, -np.inf)
        exposed = page.values[self.ages]
        np.maximum.at(ages, self.age_rows, np.where((exposed >= 0.0) & (exposed <= OLDEST_S), exposed, np.inf))
        return np.where(np.isinf(ages), np.nan, ages)


def compile_export(kind: Kind, layout: Layout) -> ExportPlan:
    """The plan of a response of `tidegate export`. Once per layout."""
    plan = compile_table(kind, layout)
    row_of = {_identity(subject): row for row, subject in enumerate(plan.subjects)}
    special = {name: layout.select({name}) for name in (QUEUE_AGE, GPU_AGE, GPU_INFO, GPU_POD_INFO, SOURCE_UP)}
    labels = {index: layout.labels(index) for indices in special.values() for index in indices}
    up_of = {labels[index].get("source", ""): position for position, index in enumerate(special[SOURCE_UP])}
    queues = [(row_of[_queue(labels[index])], labels[index].get("source", "")) for index in special[QUEUE_AGE]]
    gpus = [(index, row_of[key]) for index in special[GPU_AGE] if (key := _gpu(labels[index])) in row_of]
    base = {field.name: getattr(plan, field.name) for field in fields(ReadPlan)}
    base["subjects"] = _with_labels(
        plan.subjects,
        [labels[index] for index in special[GPU_INFO]],
        [labels[index] for index in special[GPU_POD_INFO]],
    )
    return ExportPlan(
        **base,
        ages=_indices([*special[QUEUE_AGE], *(index for index, _ in gpus)]),
        age_rows=_indices([*(row for row, _ in queues), *(row for _, row in gpus)]),
        ups=_indices(special[SOURCE_UP]),
        source_rows=_indices([row for row, _ in queues]),
        source_ups=_indices([up_of.get(source, -1) for _, source in queues]),
    )


def _indices(numbers: Sequence[int]) -> Indices:
    return np.array(numbers, dtype=np.int64)


def _identity(subject: Subject) -> Key:
    return ("queue", subject.name) if isinstance(subject, Queue) else ("gpu", subject.uuid, subject.instance or "")


def _with_labels(subjects: Sequence[Subject], infos: Sequence[Labels], pods: Sequence[Labels]) -> tuple[Subject, ...]:
    """The subjects, with the labels and pods of each GPU."""
    info = {_gpu(labels): labels for labels in infos}
    holders: dict[Key, set[PodKey]] = {}
    for labels in pods:
        holders.setdefault(_gpu(labels), set()).add(PodKey(labels.get("pod_namespace", ""), labels.get("pod_name", "")))
    return tuple(
        _with_holders(subject, info.get(_identity(subject), {}), tuple(sorted(holders.get(_identity(subject), ()))))
        if isinstance(subject, Gpu)
        else subject
        for subject in subjects
    )


def _with_holders(gpu: Gpu, info: Labels, pods: tuple[PodKey, ...]) -> Gpu:
    # With a lost line, or an attribution of a later version, the values cannot be attributed.
    if info.get("pods") == str(len(pods)) and info.get("attribution") in set(Attribution):
        attribution = Attribution(info["attribution"])
    else:
        attribution = Attribution.DEVICE if pods else Attribution.NONE
    return replace(
        gpu,
        profile=info.get("profile") or None,
        model=info.get("model") or None,
        attribution=attribution,
        pods=pods,
        implied=info.get("implied") == IMPLIED,
        node=info.get("node") or None,
    )


EXPORT = Kind(
    "tidegate",
    {PREFIX: 3},
    port=PORT,
    work=16.0,
    rows=_ROWS,
    subjects=_subjects,
    compile=compile_export,
    namespaced=True,
)
