"""What there is to see of several replicas: who leads, how old the leader's word is, and what went wrong on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric


class Standing(Protocol):
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

    def __init__(self, standing: Callable[[], Standing | None], now: Callable[[], float]) -> None:
        self._standing, self._now = standing, now

    def collect(self) -> Iterable[Metric]:
        standing, now = self._standing(), self._now()
        leads = standing is not None and standing.role(now) == "leader"
        yield GaugeMetricFamily("tidegate_leader", "1 if the other replicas answer with our Board.", float(leads))
        age = GaugeMetricFamily(
            "tidegate_peer_board_age_seconds", "Time since the sweep of the leader's Board that we have.", labels=()
        )
        if standing is not None and (seconds := standing.board_age_s(now)) is not None:
            age.add_metric((), seconds)
        yield age
        failed = CounterMetricFamily(
            "tidegate_peer_fetch_failures", "Questions to the leader that brought nothing.", labels=("kind",)
        )
        for kind, count in standing.failures.items() if standing is not None else ():
            failed.add_metric((kind,), count)
        yield failed
