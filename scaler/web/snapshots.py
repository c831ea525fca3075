"""Snapshots as Prometheus metrics: how old the last one is, how large, and how many failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from ..snapshots import Snapshots


class SnapshotCollector:
    def __init__(self, snapshots: Snapshots, now: Callable[[], float]) -> None:
        self._snapshots, self._now = snapshots, now

    def collect(self) -> Iterable[Metric]:
        snapshots = self._snapshots
        if not snapshots.on:
            return
        yield GaugeMetricFamily(
            "tidegate_snapshot_age_seconds",
            "Since the last snapshot of what is remembered was written, or since the start.",
            value=max(0.0, self._now() - snapshots.written_at),
        )
        yield CounterMetricFamily(
            "tidegate_snapshot_failures", "Snapshots that could not be written.", value=snapshots.failures
        )
        yield GaugeMetricFamily(
            "tidegate_snapshot_size_bytes", "Size of the last snapshot, packed.", value=snapshots.size
        )
        yield GaugeMetricFamily(
            "tidegate_snapshot_directory_owned",
            "1 if this process writes to its state directory, 0 while another process holds the directory's lock.",
            value=float(snapshots.owned),
        )
