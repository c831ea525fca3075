"""What a few sources said last, as one small page: the words of `exporter.catalog.own`, written.

It knows the page and nothing of how its sources are asked. A source that does not answer has `up` 0 and no values; what
it last spoke of keeps its name and its age, which grows, so that whoever reads can tell "not known now" from "gone". A
value that nobody says has no line. A GPU that two sources show is the first one's.

Worked example: `Heard("s", samples)` with `REQUESTS_WAITING` 3 for `Queue("m")` measured at 97.5 makes, at `now` 100.0,
`tidegate_export_requests_waiting{queue="m",source="s"} 3.0` and `tidegate_export_queue_age_seconds{…} 2.5`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from exporter.catalog.own import (
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
    """What is known of one source.

    samples: what it said last; None before it has said anything.
    up:      it has answered when it was last asked.
    asked:   how often it has been asked; `failures`: how often in vain, by why.
    """

    source: str
    samples: Samples | None = None
    up: bool = False
    asked: int = 0
    dropped_lines: int = 0
    failures: dict[FailureKind, int] = field(default_factory=dict)


class NormalisedCollector:
    """A collector in prometheus-client's sense: families at one moment. `now`: POSIX seconds, the clock of `at`."""

    def __init__(self, heard: Iterable[SourceState], now: float) -> None:
        self._heard, self._now = tuple(heard), now

    def collect(self) -> Iterable[Metric]:
        yield from _sources(self._heard)
        yield from _queues(self._heard, self._now)
        yield from _gpus(self._heard, self._now)


def _sources(heard: Sequence[SourceState]) -> Iterable[Metric]:
    up = GaugeMetricFamily(SOURCE_UP, "1: the last scrape succeeded. 0: it failed; no values.", labels=_SOURCE)
    asked = CounterMetricFamily(f"{PREFIX}source_scrapes", "Scrapes of the source.", labels=_SOURCE)
    failures = CounterMetricFamily(f"{PREFIX}source_failures", "Failed scrapes by reason.", labels=(*_SOURCE, "reason"))
    dropped = CounterMetricFamily(f"{PREFIX}source_dropped_lines", "Invalid lines of wanted metrics.", labels=_SOURCE)
    for each in heard:
        up.add_metric((each.source,), float(each.up))
        asked.add_metric((each.source,), each.asked)
        dropped.add_metric((each.source,), each.dropped_lines)
        for kind, count in each.failures.items():
            failures.add_metric((each.source, str(kind)), count)
    yield from _with_lines(up, asked, failures, dropped)


_SOURCE = ("source",)


def _queues(heard: Sequence[SourceState], now: float) -> Iterable[Metric]:
    families = _families(QUEUE_FAMILIES)
    age = GaugeMetricFamily(QUEUE_AGE, "Age of the queue's values.")
    for each in heard:
        for row, subject, samples in _rows(each):
            if isinstance(subject, Queue):
                labels = {"queue": subject.name, "source": each.source}
                age.add_sample(QUEUE_AGE, labels, _age(samples, row, now))
                if each.up:
                    _say(QUEUE_FAMILIES, families, labels, samples, row)
    yield from _with_lines(age, *families.values())


def _gpus(heard: Sequence[SourceState], now: float) -> Iterable[Metric]:
    families = _families(GPU_FAMILIES)
    age = GaugeMetricFamily(GPU_AGE, "Age of the GPU's values.")
    info = GaugeMetricFamily(
        GPU_INFO, "GPU or MIG instance, the attribution of its values, and the number of its pods."
    )
    pods = GaugeMetricFamily(GPU_POD_INFO, "Pod that a GPU is allocated to.")
    shown: set[tuple[str, str | None]] = set()
    for each in sorted(heard, key=lambda each: not each.up):  # who answers first, else in the order given
        for row, gpu, samples in _rows(each):
            if not isinstance(gpu, Gpu) or (gpu.uuid, gpu.instance) in shown:
                continue
            shown.add((gpu.uuid, gpu.instance))
            labels = _said(uuid=gpu.uuid, mig_instance=gpu.instance)
            age.add_sample(GPU_AGE, labels, _age(samples, row, now))
            info.add_sample(GPU_INFO, labels | _attributes(gpu), 1)
            for pod in gpu.pods:
                pods.add_sample(GPU_POD_INFO, labels | _said(pod_namespace=pod.namespace, pod_name=pod.pod), 1)
            if each.up:
                _say(GPU_FAMILIES, families, labels, samples, row)
    yield from _with_lines(age, info, pods, *families.values())


def _attributes(gpu: Gpu) -> dict[str, str]:
    return _said(
        profile=gpu.profile,
        model=gpu.model,
        attribution=str(gpu.attribution),
        pods=str(len(gpu.pods)),
        implied=IMPLIED if gpu.implied else None,
        node=gpu.node,
    )


def _said(**labels: str | None) -> dict[str, str]:
    """Without those that are empty: to Prometheus that is the same, and shorter."""
    return {name: value for name, value in labels.items() if value}


def _rows(heard: SourceState) -> Iterable[tuple[int, Subject, Samples]]:
    """The rows whose time is known: a number without one could be of any age."""
    if heard.samples is not None:
        for row, subject in enumerate(heard.samples.subjects):
            if not np.isnan(heard.samples.at[row]):
                yield row, subject, heard.samples


def _age(samples: Samples, row: int, now: float) -> float:
    return round(max(0.0, now - float(samples.at[row])), 3)


def _families(table: Mapping[Quantity, Family]) -> dict[Quantity, Metric]:
    return {
        quantity: (CounterMetricFamily if family.name.endswith("_total") else GaugeMetricFamily)(
            family.full_name, family.text
        )
        for quantity, family in table.items()
    }


def _say(
    table: Mapping[Quantity, Family],
    families: Mapping[Quantity, Metric],
    labels: dict[str, str],
    samples: Samples,
    row: int,
) -> None:
    for place, quantity in enumerate(samples.quantities):
        value = float(samples.values[row, place])
        if quantity in table and not np.isnan(value):
            families[quantity].add_sample(table[quantity].full_name, labels, value)


def _with_lines(*families: Metric) -> Iterable[Metric]:
    """A family that nobody speaks of would only make the page longer."""
    return (family for family in families if family.samples)
