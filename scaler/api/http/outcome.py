"""Exposes the controller outcome: what KEDA and the HPA do with the published replicas.

The cluster is copied when these are collected. What will become of ten thousand numbers takes a second to work out, in
which nobody else would be answered: that is done when the samples are written, in a thread.

Worked example: `OutlookCollector(view.all)` says `tidegate_outlook{namespace="ai",workload="chat",code="paused"} 1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from scaler.explain.outcome import OutcomeRow

from .decisions import LABELS

DESIRED, CONDITION, CODE = "tidegate_hpa_desired_replicas", "tidegate_hpa_condition", "tidegate_outlook"


class OutcomeCollector:
    """seen: every workload of the Board, as of now; worked out when what it returns is called."""

    def __init__(self, seen: Callable[[], Callable[[], Iterable[OutcomeRow]]]) -> None:
        self._seen = seen

    def collect(self) -> Iterable[Metric]:
        seen = cache(self._seen())
        desired = GaugeMetricFamily(DESIRED, "Desired replicas of the workload's HPA.", labels=LABELS)
        conditions = GaugeMetricFamily(
            CONDITION,
            "1 for each condition of the workload's HPA.",
            labels=(*LABELS, "type", "status", "reason"),
        )
        codes = GaugeMetricFamily(
            CODE,
            "1 for the current controller outcome (docs/explanation/controller-outcome.md).",
            labels=(*LABELS, "code"),
        )
        for family, samples in ((desired, _desired), (conditions, _conditions), (codes, _codes)):
            family.samples = _LazyOutcomeSamples(seen, samples)  # type: ignore[assignment]
            yield family


class _LazyOutcomeSamples:
    def __init__(
        self, seen: Callable[[], Iterable[OutcomeRow]], samples: Callable[[OutcomeRow], Iterator[Sample]]
    ) -> None:
        self._seen, self._samples = seen, samples

    def __iter__(self) -> Iterator[Sample]:
        for each in self._seen():
            yield from self._samples(each)


def _desired(seen: OutcomeRow) -> Iterator[Sample]:
    status = None if seen.facts.hpa is None else seen.facts.hpa.status
    if status is not None and status.desired is not None:
        yield Sample(DESIRED, _labels(seen), float(status.desired))


def _conditions(seen: OutcomeRow) -> Iterator[Sample]:
    status = None if seen.facts.hpa is None else seen.facts.hpa.status
    for each in () if status is None else status.conditions:
        more = {"type": each.type, "status": each.status, "reason": each.reason}
        yield Sample(CONDITION, {**_labels(seen), **more}, 1.0)


def _codes(seen: OutcomeRow) -> Iterator[Sample]:
    yield Sample(CODE, {**_labels(seen), "code": str(seen.outlook.code)}, 1.0)


def _labels(seen: OutcomeRow) -> dict[str, str]:
    return {"namespace": seen.decision.workload.namespace, "workload": seen.decision.workload.label}
