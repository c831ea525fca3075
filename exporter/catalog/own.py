"""Tidegate's own words: the small page that `tidegate export` prints beside an engine or on a node.

Every quantity has one family here, in the units of `exporter.model`; the writer (`exporter.agent.page`) and the reader
below share the table. Beside the values stand whose they are and how old:

- `tidegate_export_queue_age_seconds` and `tidegate_export_gpu_age_seconds` say for each queue and GPU how long ago it
  was measured, by the exporter's own clock: two machines' clocks need not agree, and an old number stays old however
  often its page is read. A row without an age that can be believed has no values.
- `tidegate_export_source_up` is 0 for a source that does not answer. Its values are not on the page, while the ages of
  what it last spoke of are and grow: that is not known now, and not gone. A queue of several sources is known only if
  all of them answer; a page on which none does is `NotHeard`.

Worked example: `tidegate_export_requests_waiting{queue="m",source="s"} 3`, the same queue's age of 2.5 and
`tidegate_export_source_up{source="s"} 1`, received at 100.0, are 3 requests of `Queue("m")`, measured at 97.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from exporter.model import Attribution, Floats, Gpu, PodKey, Quantity, Queue, Samples, Subject
from exporter.textformat import Layout, Page

from .kind import Kind, compile_table
from .plan import Indices, ReadPlan
from .schema import (
    BYTES,
    COUNT,
    COUNTER,
    FLAG,
    JOULES,
    RATIO,
    WATTS,
    Columns,
    Combine,
    Key,
    KindTable,
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
OLDEST_S = 1e9  # a larger age is none


class OwnFamily(NamedTuple):
    """One quantity on the page. `name`: without PREFIX; a counter's ends in `_total`."""

    name: str
    unit: Unit
    text: str
    combine: Combine = Combine.SUM

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


_MEAN, _MIN = Combine.MEAN, Combine.MIN
QUEUE_FAMILIES: Mapping[Quantity, OwnFamily] = {
    Q.REQUESTS_WAITING: OwnFamily("requests_waiting", COUNT, "Waiting requests."),
    Q.REQUESTS_RUNNING: OwnFamily("requests_running", COUNT, "Requests in progress."),
    Q.REQUESTS_HELD: OwnFamily("requests_held", COUNT, "Requests that a gateway holds."),
    Q.REQUESTS_FINISHED: OwnFamily("requests_finished_total", COUNTER, "Finished requests."),
    Q.REQUESTS_FAILED: OwnFamily("requests_failed_total", COUNTER, "Rejected, aborted or failed requests."),
    Q.TOKENS_PROMPT: OwnFamily("prompt_tokens_total", COUNTER, "Prompt tokens."),
    Q.TOKENS_GENERATED: OwnFamily("generated_tokens_total", COUNTER, "Generated tokens."),
    Q.KV_CACHE_USED: OwnFamily("kv_cache_used_ratio", RATIO, "KV-cache usage, 0 to 1.", _MEAN),
    Q.ENGINE_AWAKE: OwnFamily("engine_awake", FLAG, "1: the engine is awake. 0: it is in sleep mode.", _MIN),
    Q.REPLICAS_READY: OwnFamily("replicas_ready", COUNT, "Ready backends of a gateway."),
}
_COPY = Combine.COPY
_ACTIVE = "Share of time with an active {}, 0 to 1."
GPU_FAMILIES: Mapping[Quantity, OwnFamily] = {
    Q.GPU_ENGINE_ACTIVE: OwnFamily("gpu_engine_active_ratio", RATIO, _ACTIVE.format("compute engine"), _COPY),
    Q.GPU_UTILIZATION: OwnFamily(
        "gpu_utilization_ratio", RATIO, "Share of time with any running kernel, 0 to 1; not a measure of load.", _COPY
    ),
    Q.GPU_SM_ACTIVE: OwnFamily("gpu_sm_active_ratio", RATIO, _ACTIVE.format("multiprocessor, mean over all"), _COPY),
    Q.GPU_TENSOR_ACTIVE: OwnFamily("gpu_tensor_active_ratio", RATIO, _ACTIVE.format("tensor pipe"), _COPY),
    Q.GPU_DRAM_ACTIVE: OwnFamily("gpu_dram_active_ratio", RATIO, _ACTIVE.format("memory interface"), _COPY),
    Q.GPU_MEMORY_USED: OwnFamily("gpu_memory_used_bytes", BYTES, "Used memory, idle or not.", _COPY),
    Q.GPU_MEMORY_TOTAL: OwnFamily("gpu_memory_total_bytes", BYTES, "Total memory.", _COPY),
    Q.GPU_POWER: OwnFamily("gpu_power_watts", WATTS, "Power draw.", _COPY),
    Q.GPU_ENERGY: OwnFamily("gpu_energy_joules_total", JOULES, "Used energy.", _COPY),
    Q.GPU_TEMPERATURE: OwnFamily("gpu_temperature_celsius", Unit(high=200.0), "Temperature in degrees Celsius.", _COPY),
    Q.GPU_XID: OwnFamily("gpu_xid", Unit(high=10_000.0), "Code of the last Xid error until the GPU is reset.", _COPY),
    Q.GPU_LOST: OwnFamily("gpu_lost", FLAG, "1: no metrics after a fatal Xid error. Other GPUs have no sample.", _COPY),
}


class NotHeard(ValueError):  # noqa: N818 - it says what is the case
    """A page of ours that has heard none of its own sources: it knows nothing, and says so."""


def _queue(labels: Labels) -> Key:
    return "queue", labels.get("queue", "")


def _gpu(labels: Labels) -> Key:
    return "gpu", labels.get("uuid", ""), labels.get("mig_instance", "")


def _nobody(_: Labels) -> Key:
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


def _as_it_is(columns: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
    return columns, subjects


_AGE = Unit(high=OLDEST_S)
# The last columns are no quantities: they make a row of whoever has no value now, and their lines are looked at below.
TABLE = KindTable(
    rows=(
        *(SeriesRow(column, (family.full_name,), _queue, family.combine, family.unit)
          for column, family in QUEUE_FAMILIES.items()),
        *(SeriesRow(column, (family.full_name,), _gpu, family.combine, family.unit)
          for column, family in GPU_FAMILIES.items()),
        SeriesRow("age", (QUEUE_AGE,), _queue, Combine.MEAN, _AGE),
        SeriesRow("age", (GPU_AGE,), _gpu, Combine.MEAN, _AGE),
        SeriesRow("info", (GPU_INFO,), _gpu, Combine.COPY),
        SeriesRow("pod", (GPU_POD_INFO,), _gpu, Combine.COPY),
        SeriesRow("up", (SOURCE_UP,), _nobody),
    ),
    subjects=_subjects,
    finish=_as_it_is,
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class OwnPlan(ReadPlan):
    """A plan that also knows how old its rows are, and which sources they rest on.

    ages, age_rows:  series of the ages, and the row of each.
    ups:             series of the sources.
    rests, rests_on: rows of queues, and the place in `ups` of a source that each rests on (-1: a source that is not on
                     the page).
    """

    ages: Indices
    age_rows: Indices
    ups: Indices
    rests: Indices
    rests_on: Indices

    def read(self, page: Page, received_at: float) -> Samples:
        """What the page says, as old as it says it is. Raises NotHeard."""
        heard = np.append(page.values[self.ups] == 1.0, False)  # the last: a source that is not there
        if len(self.ups) and not heard.any():
            raise NotHeard("none of the sources that the page is made of answers (tidegate_export_source_up is 0)")
        samples = ReadPlan.read(self, page, received_at)
        ages = self._ages(page, len(samples.subjects))
        values = samples.values.copy()
        values[np.isnan(ages)] = np.nan
        values[self.rests[~heard[self.rests_on]]] = np.nan
        return replace(samples, values=values, at=samples.at - np.nan_to_num(ages))

    def _ages(self, page: Page, rows: int) -> Floats:
        """Seconds, the oldest part of each row; NaN where there is none, or one of them cannot be believed."""
        ages = np.full(rows, -np.inf)
        said = page.values[self.ages]
        np.maximum.at(ages, self.age_rows, np.where((said >= 0.0) & (said <= OLDEST_S), said, np.inf))
        return np.where(np.isinf(ages), np.nan, ages)


def compile_own(kind: str, table: KindTable, layout: Layout) -> OwnPlan:
    """The plan of a page of ours. Once per layout."""
    plan = compile_table(kind, table, layout)
    row_of = {_identity(subject): row for row, subject in enumerate(plan.subjects)}
    special = {name: layout.select({name}) for name in (QUEUE_AGE, GPU_AGE, GPU_INFO, GPU_POD_INFO, SOURCE_UP)}
    labels = {index: layout.series[index].labels for indices in special.values() for index in indices}
    up_of = {labels[index].get("source", ""): place for place, index in enumerate(special[SOURCE_UP])}
    queues = [(row_of[_queue(labels[index])], labels[index].get("source", "")) for index in special[QUEUE_AGE]]
    gpus = [(index, row_of[key]) for index in special[GPU_AGE] if (key := _gpu(labels[index])) in row_of]
    known = {field.name: getattr(plan, field.name) for field in fields(ReadPlan)}
    known["subjects"] = _dressed(
        plan.subjects,
        [labels[index] for index in special[GPU_INFO]],
        [labels[index] for index in special[GPU_POD_INFO]],
    )
    return OwnPlan(
        **known,
        ages=_indices([*special[QUEUE_AGE], *(index for index, _ in gpus)]),
        age_rows=_indices([*(row for row, _ in queues), *(row for _, row in gpus)]),
        ups=_indices(special[SOURCE_UP]),
        rests=_indices([row for row, _ in queues]),
        rests_on=_indices([up_of.get(source, -1) for _, source in queues]),
    )


def _indices(numbers: Sequence[int]) -> Indices:
    return np.array(numbers, dtype=np.int64)


def _identity(subject: Subject) -> Key:
    return ("queue", subject.name) if isinstance(subject, Queue) else ("gpu", subject.uuid, subject.instance or "")


def _dressed(subjects: Sequence[Subject], infos: Sequence[Labels], pods: Sequence[Labels]) -> tuple[Subject, ...]:
    """The subjects, with what the page says of each GPU."""
    said = {_gpu(labels): labels for labels in infos}
    holders: dict[Key, set[PodKey]] = {}
    for labels in pods:
        holders.setdefault(_gpu(labels), set()).add(PodKey(labels.get("pod_namespace", ""), labels.get("pod_name", "")))
    return tuple(
        _with_holders(subject, said.get(_identity(subject), {}), tuple(sorted(holders.get(_identity(subject), ()))))
        if isinstance(subject, Gpu)
        else subject
        for subject in subjects
    )


def _with_holders(gpu: Gpu, said: Labels, pods: tuple[PodKey, ...]) -> Gpu:
    # A line that was lost, or a word of a later version: then it is not known whose the numbers are.
    if said.get("pods") == str(len(pods)) and said.get("attribution") in set(Attribution):
        attribution = Attribution(said["attribution"])
    else:
        attribution = Attribution.DEVICE if pods else Attribution.NONE
    return replace(
        gpu,
        profile=said.get("profile") or None,
        model=said.get("model") or None,
        attribution=attribution,
        pods=pods,
        implied=said.get("implied") == IMPLIED,
        node=said.get("node") or None,
    )


OWN = Kind(
    name="tidegate",
    signs={PREFIX: 3},
    port=PORT,
    path="/metrics",
    work=16.0,
    at_zero="nothing",
    compile=partial(compile_own, "tidegate", TABLE),
)
