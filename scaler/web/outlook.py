"""What KEDA and the HPAs will do with each workload's number, as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from ..outlook import Seen
from .decisions import LABELS


class OutlookCollector:
    """seen: every workload of the Board, as of now."""

    def __init__(self, seen: Callable[[], Iterable[Seen]]) -> None:
        self._seen = seen

    def collect(self) -> Iterable[Metric]:
        desired = GaugeMetricFamily(
            "tidegate_hpa_desired_replicas", "Replicas that the workload's HPA says it wants.", labels=LABELS
        )
        conditions = GaugeMetricFamily(
            "tidegate_hpa_condition",
            "1 for each condition of the workload's HPA, as it stands.",
            labels=(*LABELS, "type", "status", "reason"),
        )
        codes = GaugeMetricFamily(
            "tidegate_outlook",
            "1 for what KEDA and the HPA will do with the workload's number; docs/outlook.md has the codes.",
            labels=(*LABELS, "code"),
        )
        for each in self._seen():
            where = each.decision.workload.namespace, each.decision.workload.label
            codes.add_metric((*where, str(each.outlook.code)), 1.0)
            status = None if each.facts.hpa is None else each.facts.hpa.status
            if status is None:
                continue
            if status.desired is not None:
                desired.add_metric(where, float(status.desired))
            for condition in status.conditions:
                conditions.add_metric((*where, condition.type, condition.status, condition.reason), 1.0)
        yield from (desired, conditions, codes)
