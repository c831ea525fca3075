"""Exposes leader election and replication of the leader's Board."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric


class ReplicaStatus(Protocol):
    """One replica among others. Times are POSIX seconds of its clock."""

    @property
    def failures(self) -> Mapping[str, int]:
        """Questions to the leader that brought nothing, by kind."""

    def role(self, now: float) -> str:
        """leader, follower or alone."""

    def board_age_s(self, now: float) -> float | None:
        """None where there is no leader's Board."""


class PeersCollector:
    """standing: None before there is an election."""

    def __init__(self, standing: Callable[[], ReplicaStatus | None], now: Callable[[], float]) -> None:
        self._standing, self._now = standing, now

    def collect(self) -> Iterable[Metric]:
        standing, now = self._standing(), self._now()
        leads = standing is not None and standing.role(now) == "leader"
        yield GaugeMetricFamily("tidegate_leader", "1: this replica is the leader. 0: it is not.", float(leads))
        age = GaugeMetricFamily("tidegate_peer_board_age_seconds", "Age of the last Board from the leader.", labels=())
        if standing is not None and (seconds := standing.board_age_s(now)) is not None:
            age.add_metric((), seconds)
        yield age
        failed = CounterMetricFamily("tidegate_peer_fetch_failures", "Failed requests to the leader.", labels=("kind",))
        for kind, count in standing.failures.items() if standing is not None else ():
            failed.add_metric((kind,), count)
        yield failed
