"""What was seen, as Prometheus metrics: every target's scrapes, and every GPU with how its numbers came to be.

A `Collector` in prometheus-client's sense: it builds families when asked, from what the scrape loop last saw. A GPU
whose page did not come is not shown: a series that stands still would look like a GPU that does. A value that no page
says has no sample. A user and password in a target's URL are not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from .model import Failure, Gpu, Quantity, Samples, Target
from .scrape import Counters

TARGET_LABELS = ("role", "owner", "target")
GPU_LABELS = ("uuid", "instance", "profile", "model", "attribution", "namespace", "pod")

GPU_FAMILIES = (
    (Quantity.GPU_ENGINE_ACTIVE, "engine_active_ratio", "Share of time the compute engine was active, 0..1."),
    (Quantity.GPU_UTILIZATION, "utilization_ratio", "Share of time any kernel ran, 0..1. Not a measure of load."),
    (Quantity.GPU_MEMORY_USED, "memory_used_bytes", "Memory held. Residency, not activity."),
    (Quantity.GPU_MEMORY_TOTAL, "memory_total_bytes", "Memory of the GPU or instance."),
    (Quantity.GPU_POWER, "power_watts", "Power drawn."),
    (Quantity.GPU_TEMPERATURE, "temperature_celsius", "Temperature."),
)


class SeenCollector:
    """Families for the targets and GPUs of a running scrape loop."""

    def __init__(self, counters: Callable[[], Mapping[Target, Counters]]) -> None:
        self._counters = counters

    def collect(self) -> Iterable[Metric]:
        counters = list(self._counters().items())
        yield from _targets(counters)
        yield from _gpus(counters)


def _labels(target: Target) -> tuple[str, str, str]:
    return str(target.role), str(target.owner or ""), _without_user(target.url)


def _without_user(url: str) -> str:
    if "@" not in url:
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return "not a URL"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _targets(counters: Iterable[tuple[Target, Counters]]) -> Iterable[Metric]:
    scrapes = CounterMetricFamily("tidegate_scrapes", "Scrapes of a target, good or failed.", labels=TARGET_LABELS)
    failures = CounterMetricFamily(
        "tidegate_scrape_failures", "Scrapes that brought nothing, by why.", labels=(*TARGET_LABELS, "reason")
    )
    dropped = CounterMetricFamily(
        "tidegate_scrape_dropped_lines", "Lines of pages that were not believed.", labels=TARGET_LABELS
    )
    took = GaugeMetricFamily("tidegate_scrape_duration_seconds", "How long the last scrape took.", labels=TARGET_LABELS)
    up = GaugeMetricFamily("tidegate_scrape_up", "1 if the last scrape brought a page, else 0.", labels=TARGET_LABELS)
    shown: set[tuple[str, str, str]] = set()
    for target, seen in counters:
        labels = _labels(target)
        # The same page asked twice with other credentials: one series twice would make the whole exposition invalid.
        if labels in shown:
            continue
        shown.add(labels)
        scrapes.add_metric(labels, seen.scrapes)
        dropped.add_metric(labels, seen.dropped_lines)
        for kind, count in seen.failures.items():
            failures.add_metric((*labels, str(kind)), count)
        if seen.last is not None:
            took.add_metric(labels, seen.last.took_s)
            up.add_metric(labels, 0.0 if isinstance(seen.last.outcome, Failure) else 1.0)
    yield from (scrapes, failures, dropped, took, up)


def _gpus(counters: Iterable[tuple[Target, Counters]]) -> Iterable[Metric]:
    families = {
        quantity: GaugeMetricFamily(f"tidegate_gpu_{name}", text, labels=GPU_LABELS)
        for quantity, name, text in GPU_FAMILIES
    }
    # Two exporters on one node (the Helm chart's and the GPU Operator's) show the same GPU: it is exposed once.
    shown: set[tuple[str, str | None]] = set()
    for _, seen in counters:
        if seen.last is None or not isinstance(seen.last.outcome, Samples):
            continue
        samples = seen.last.outcome
        columns = [(families[quantity], samples.column(quantity)) for quantity in families]
        for row, subject in enumerate(samples.subjects):
            if not isinstance(subject, Gpu) or (subject.uuid, subject.instance) in shown:
                continue
            shown.add((subject.uuid, subject.instance))
            labels = _gpu_labels(subject)
            for family, column in columns:
                if not np.isnan(column[row]):
                    family.add_metric(labels, float(column[row]))
    yield from families.values()


def _gpu_labels(gpu: Gpu) -> tuple[str, ...]:
    # A shared GPU's pods stand in one label, so that its value is one series and is never added up per pod.
    return (
        gpu.uuid,
        gpu.instance or "",
        gpu.profile or "",
        gpu.model or "",
        str(gpu.attribution),
        ",".join(sorted({pod.namespace for pod in gpu.pods})),
        ",".join(pod.pod for pod in gpu.pods),
    )
