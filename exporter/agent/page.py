"""Exposes the last samples of a few sources as the metrics of `exporter.catalog.export`.

A source that does not respond has `up` 0 and no values. Its queues and GPUs keep their names and their ages, which
grow, so that a reader can tell "unknown now" from "gone". An unknown value has no sample. A GPU of two sources is that
of the first.

Worked example: `SourceState("s", samples)` with `REQUESTS_WAITING` 3 for `Queue("m")` measured at 97.5 makes, at 100.0,
`tidegate_export_requests_waiting{queue="m",source="s"} 3.0` and `tidegate_export_queue_age_seconds{…} 2.5`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from exporter.catalog.export import (
    GPU_AGE,
    GPU_FAMILIES,
    GPU_INFO,
    GPU_POD_INFO,
    IMPLIED,
    PREFIX,
    QUEUE_AGE,
    QUEUE_FAMILIES,
    SOURCE_UP,
    Family,
)
from exporter.model import FailureKind, Gpu, Quantity, Queue, Samples, Subject


@dataclass(slots=True)
class SourceState:
    """One source.

    samples:  the last ones; None before the first.
    up:       the last scrape succeeded.
    failures: failed ones of the `scrapes`, by reason.
    """

    source: str
    samples: Samples | None = None
    up: bool = False
    scrapes: int = 0
    dropped_lines: int = 0
    failures: dict[FailureKind, int] = field(default_factory=dict)


class NormalisedCollector:
    """A collector of prometheus-client: families at one moment. `now`: POSIX seconds, of the clock of `Samples.at`."""

    def __init__(self, states: Iterable[SourceState], now: float) -> None:
        self._states, self._now = tuple(states), now

    def collect(self) -> Iterable[Metric]:
        yield from _sources(self._states)
        yield from _queues(self._states, self._now)
        yield from _gpus(self._states, self._now)


_SOURCE = ("source",)


def _sources(states: Sequence[SourceState]) -> Iterable[Metric]:
    up = GaugeMetricFamily(SOURCE_UP, "1: the last scrape succeeded. 0: it failed; no values.", labels=_SOURCE)
    scrapes = CounterMetricFamily(f"{PREFIX}source_scrapes", "Scrapes of the source.", labels=_SOURCE)
    failures = CounterMetricFamily(f"{PREFIX}source_failures", "Failed scrapes by reason.", labels=(*_SOURCE, "reason"))
    dropped = CounterMetricFamily(f"{PREFIX}source_dropped_lines", "Invalid lines of wanted metrics.", labels=_SOURCE)
    for each in states:
        up.add_metric((each.source,), float(each.up))
        scrapes.add_metric((each.source,), each.scrapes)
        dropped.add_metric((each.source,), each.dropped_lines)
        for kind, count in each.failures.items():
            failures.add_metric((each.source, str(kind)), count)
    yield from _with_samples(up, scrapes, failures, dropped)


def _queues(states: Sequence[SourceState], now: float) -> Iterable[Metric]:
    families = _families(QUEUE_FAMILIES)
    age = GaugeMetricFamily(QUEUE_AGE, "Age of the queue's values.")
    for each in states:
        for row, subject, samples in _rows(each):
            if isinstance(subject, Queue):
                labels = {"queue": subject.name, "source": each.source}
                age.add_sample(QUEUE_AGE, labels, _age(samples, row, now))
                if each.up:
                    _add_values(QUEUE_FAMILIES, families, labels, samples, row)
    yield from _with_samples(age, *families.values())


def _gpus(states: Sequence[SourceState], now: float) -> Iterable[Metric]:
    families = _families(GPU_FAMILIES)
    age = GaugeMetricFamily(GPU_AGE, "Age of the GPU's values.")
    info = GaugeMetricFamily(
        GPU_INFO, "GPU or MIG instance, the attribution of its values, and the number of its pods."
    )
    pods = GaugeMetricFamily(GPU_POD_INFO, "Pod that a GPU is allocated to.")
    shown: set[tuple[str, str | None]] = set()
    for each in sorted(states, key=lambda each: not each.up):  # sources that are up first, else in their order
        for row, gpu, samples in _rows(each):
            if not isinstance(gpu, Gpu) or (gpu.uuid, gpu.instance) in shown:
                continue
            shown.add((gpu.uuid, gpu.instance))
            labels = _labels(uuid=gpu.uuid, mig_instance=gpu.instance)
            age.add_sample(GPU_AGE, labels, _age(samples, row, now))
            info.add_sample(GPU_INFO, labels | _attributes(gpu), 1)
            for pod in gpu.pods:
                pods.add_sample(GPU_POD_INFO, labels | _labels(pod_namespace=pod.namespace, pod_name=pod.pod), 1)
            if each.up:
                _add_values(GPU_FAMILIES, families, labels, samples, row)
    yield from _with_samples(age, info, pods, *families.values())


def _attributes(gpu: Gpu) -> dict[str, str]:
    return _labels(
        profile=gpu.profile,
        model=gpu.model,
        attribution=str(gpu.attribution),
        pods=str(len(gpu.pods)),
        implied=IMPLIED if gpu.implied else None,
        node=gpu.node,
    )


def _labels(**labels: str | None) -> dict[str, str]:
    """The labels that are not empty. To Prometheus an absent label and an empty one are the same."""
    return {name: value for name, value in labels.items() if value}


def _rows(state: SourceState) -> Iterable[tuple[int, Subject, Samples]]:
    """The rows that have a time: a value without one could be of any age."""
    if state.samples is not None:
        for row, subject in enumerate(state.samples.subjects):
            if not np.isnan(state.samples.at[row]):
                yield row, subject, state.samples


def _age(samples: Samples, row: int, now: float) -> float:
    return round(max(0.0, now - float(samples.at[row])), 3)


def _families(table: Mapping[Quantity, Family]) -> dict[Quantity, Metric]:
    return {
        quantity: (CounterMetricFamily if family.name.endswith("_total") else GaugeMetricFamily)(
            family.full_name, family.text
        )
        for quantity, family in table.items()
    }


def _add_values(
    table: Mapping[Quantity, Family],
    families: Mapping[Quantity, Metric],
    labels: dict[str, str],
    samples: Samples,
    row: int,
) -> None:
    for column, quantity in enumerate(samples.quantities):
        value = float(samples.values[row, column])
        if quantity in table and not np.isnan(value):
            families[quantity].add_sample(table[quantity].full_name, labels, value)


def _with_samples(*families: Metric) -> Iterable[Metric]:
    """The families that have samples."""
    return (family for family in families if family.samples)
