"""Exposes age, size and failures of checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from scaler.engine.checkpoint_store import CheckpointStore


class SnapshotCollector:
    def __init__(self, snapshots: CheckpointStore, now: Callable[[], float]) -> None:
        self._snapshots, self._now = snapshots, now

    def collect(self) -> Iterable[Metric]:
        snapshots = self._snapshots
        if not snapshots.on:
            return
        yield GaugeMetricFamily(
            "tidegate_snapshot_age_seconds",
            "Time since the last checkpoint, or since the start.",
            value=max(0.0, self._now() - snapshots.written_at),
        )
        yield CounterMetricFamily("tidegate_snapshot_failures", "Failed checkpoints.", value=snapshots.failures)
        yield GaugeMetricFamily(
            "tidegate_snapshot_size_bytes", "Compressed size of the last checkpoint.", value=snapshots.size
        )
        yield GaugeMetricFamily(
            "tidegate_snapshot_directory_owned",
            "1: this process holds the lock of its state directory. 0: another process does.",
            value=float(snapshots.owned),
        )
