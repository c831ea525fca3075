"""Exposes the scrapes of every target, and the values of every GPU with their attribution.

A `Collector` of prometheus-client: at each collection it copies the counters. Samples are built when they are written,
in a thread: those of 4,000 targets take 50 ms, in which no call would be answered. GPUs of a failed scrape have no
samples: a constant series would look like an idle GPU. An unknown value has no sample. The user and password in a
target's URL are not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from exporter.catalog.gpus import ceiling
from exporter.model import Attribution, Failure, Gpu, Part, Quantity, Samples, Target, printable, without_user

from .loop import Counters, Delays

TARGET_LABELS = ("role", "owner", "target")
# `mig_instance`, because every scrape has a label `instance`: Prometheus would rename one of the two.
GPU_LABELS = ("uuid", "mig_instance", "profile", "model", "node", "attribution", "namespace", "pod")

PROCESS_LABELS = ("uuid", "mig_instance", "node", "namespace", "pod")

GPU_FAMILIES = (
    (Quantity.GPU_ENGINE_ACTIVE, "engine_active_ratio", "Share of time with an active compute engine, 0 to 1."),
    (
        Quantity.GPU_UTILIZATION,
        "utilization_ratio",
        "Share of time with any running kernel, 0 to 1; not a measure of load.",
    ),
    (Quantity.GPU_MEMORY_USED, "memory_used_bytes", "Used memory, idle or not."),
    (Quantity.GPU_MEMORY_TOTAL, "memory_total_bytes", "Total memory."),
    (Quantity.GPU_POWER, "power_watts", "Power draw; MIG instances have their parent's value."),
    (Quantity.GPU_TEMPERATURE, "temperature_celsius", "Temperature in degrees Celsius."),
    (Quantity.GPU_XID, "last_xid", "Code of the last Xid error until the GPU is reset. 0: none."),
    (Quantity.GPU_LOST, "lost", "1: no metrics after a fatal Xid error. Other GPUs have no sample."),
)
# Quantities that each MIG instance has. The same of its parent would count work and memory twice.
ON_INSTANCES = {
    Quantity.GPU_ENGINE_ACTIVE,
    Quantity.GPU_UTILIZATION,
    Quantity.GPU_MEMORY_USED,
    Quantity.GPU_MEMORY_TOTAL,
}


@dataclass(frozen=True, slots=True)
class LazySamples:
    """Samples of a family that are made when they are read."""

    make: Callable[[], Iterable[Sample]]

    def __iter__(self) -> Iterator[Sample]:
        yield from self.make()


def lazily(families: Callable[[], Iterable[Metric]], empty: Iterable[Metric]) -> Iterator[Metric]:
    """The `empty` families, with the samples of `families()`, which is called when the first of them is read."""
    samples = cache(lambda: {family.name: family.samples for family in families()})
    for family in empty:
        family.samples = LazySamples(partial(_of_family, samples, family.name))  # type: ignore[assignment]
        yield family


def _of_family(samples: Callable[[], Mapping[str, Iterable[Sample]]], name: str) -> Iterable[Sample]:
    return samples()[name]


class ScrapeCollector:
    """Families for the targets and GPUs of a running scrape loop."""

    def __init__(self, counters: Callable[[], Mapping[Target, Counters]], delays: Delays) -> None:
        self._counters, self._delays = counters, delays

    def collect(self) -> Iterable[Metric]:
        counters = [
            (target, Counters(each.scrapes, dict(each.failures), each.dropped_lines, each.last))
            for target, each in self._counters().items()
        ]
        yield from lazily(partial(_targets, counters), _targets(()))
        yield from _delays(self._delays)
        yield from lazily(partial(_gpus, counters), _gpus(()))


def _labels(target: Target) -> tuple[str, str, str]:
    return str(target.role), printable(str(target.owner or "")), printable(without_user(target.url))


def _targets(counters: Iterable[tuple[Target, Counters]]) -> Iterable[Metric]:
    scrapes = CounterMetricFamily("tidegate_scrapes", "Scrapes, successful and failed.", labels=TARGET_LABELS)
    failures = CounterMetricFamily(
        "tidegate_scrape_failures", "Failed scrapes by reason.", labels=(*TARGET_LABELS, "reason")
    )
    dropped = CounterMetricFamily(
        "tidegate_scrape_dropped_lines",
        "Invalid lines of wanted metrics; `tidegate read` shows them.",
        labels=TARGET_LABELS,
    )
    took = GaugeMetricFamily("tidegate_scrape_duration_seconds", "Duration of the last scrape.", labels=TARGET_LABELS)
    up = GaugeMetricFamily("tidegate_scrape_up", "1: the last scrape succeeded. 0: it failed.", labels=TARGET_LABELS)
    shown: set[tuple[str, str, str]] = set()
    for target, counts in counters:
        labels = _labels(target)
        # The same URL with other credentials: one series twice would make the whole exposition invalid.
        if labels in shown:
            continue
        shown.add(labels)
        shared = dict(zip(TARGET_LABELS, labels, strict=True))  # one for all families: that halves the time
        scrapes.samples.append(Sample("tidegate_scrapes_total", shared, counts.scrapes))
        dropped.samples.append(Sample("tidegate_scrape_dropped_lines_total", shared, counts.dropped_lines))
        for kind, count in counts.failures.items():
            failures.add_metric((*labels, str(kind)), count)
        if counts.last is not None:
            took.samples.append(Sample(took.name, shared, counts.last.took_s))
            up.samples.append(Sample(up.name, shared, 0.0 if isinstance(counts.last.outcome, Failure) else 1.0))
    yield from (scrapes, failures, dropped, took, up)


def _delays(delays: Delays) -> Iterable[Metric]:
    yield CounterMetricFamily(
        "tidegate_scrapes_late",
        "Scrapes that began a tenth of their interval late. Rising: Tidegate is overloaded.",
        delays.late,
    )
    skipped = CounterMetricFamily(
        "tidegate_scrapes_skipped",
        "Scrapes not made when due: Tidegate is overloaded (overload), or the target is (slow_target).",
        labels=("reason",),
    )
    for reason, count in delays.skipped.items():
        skipped.add_metric((str(reason),), count)
    yield skipped


def _gpus(counters: Iterable[tuple[Target, Counters]]) -> Iterable[Metric]:
    families = {
        quantity: GaugeMetricFamily(f"tidegate_gpu_{name}", text, labels=GPU_LABELS)
        for quantity, name, text in GPU_FAMILIES
    }
    ceilings = GaugeMetricFamily(
        "tidegate_gpu_engine_ceiling_ratio",
        "Highest engine activity of a MIG instance: one busy compute instance of one slice.",
        labels=GPU_LABELS,
    )
    sharers = GaugeMetricFamily(
        "tidegate_gpu_sharers", "Pods that share the GPU; its other values are their total.", labels=GPU_LABELS
    )
    processes = [
        GaugeMetricFamily(f"tidegate_gpu_process_{name}", text, labels=PROCESS_LABELS)
        for name, text in (
            ("utilization_ratio", "Share of time with a running kernel of this pod on a shared GPU, 0 to 1."),
            ("memory_used_bytes", "Memory of this pod on a shared GPU, idle or not."),
        )
    ]
    # Two exporters on one node (the Helm chart's and the GPU Operator's) have the same GPU: it is exposed once.
    shown: set[tuple[str, str | None]] = set()
    for _, counts in counters:
        if counts.last is None or not isinstance(counts.last.outcome, Samples):
            continue
        samples = counts.last.outcome
        if not any(isinstance(subject, Gpu) for subject in samples.subjects):
            continue
        columns = [(quantity, family, samples.column(quantity)) for quantity, family in families.items()]
        parents = {gpu.uuid for gpu in samples.subjects if isinstance(gpu, Gpu) and gpu.instance is not None}
        for row, subject in enumerate(samples.subjects):
            if not isinstance(subject, Gpu) or (subject.uuid, subject.instance) in shown:
                continue
            shown.add((subject.uuid, subject.instance))
            labels, has_instances = _gpu_labels(subject), subject.instance is None and subject.uuid in parents
            for quantity, family, column in columns:
                if not np.isnan(column[row]) and not (has_instances and quantity in ON_INSTANCES):
                    family.add_metric(labels, float(column[row]))
            top = ceiling(subject)
            if top is not None:
                ceilings.add_metric(labels, top)
            for part in subject.parts:
                _by_process(processes, subject, part)
            if subject.attribution in (Attribution.DEVICE, Attribution.PROCESS) and len(subject.pods) > 1:
                sharers.add_metric(labels, len(subject.pods))
    yield from (*families.values(), ceilings, sharers, *processes)


def _by_process(families: Sequence[GaugeMetricFamily], gpu: Gpu, part: Part) -> None:
    for family, value in zip(families, (part.utilization, part.memory), strict=True):
        if not np.isnan(value):
            labels = (gpu.uuid, gpu.instance or "", gpu.node or "", *part.pod)
            family.add_metric(tuple(map(printable, labels)), value)


def _gpu_labels(gpu: Gpu) -> tuple[str, ...]:
    # A shared GPU's pods are in one label, so that its value is one series and is never added up per pod.
    labels = (
        gpu.uuid,
        gpu.instance or "",
        gpu.profile or "",
        gpu.model or "",
        gpu.node or "",
        str(gpu.attribution),
        ",".join(sorted({pod.namespace for pod in gpu.pods})),
        ",".join(pod.pod for pod in gpu.pods),
    )
    # The format escapes only line feeds: with `curl` a terminal would get the other control characters.
    return tuple(map(printable, labels))
