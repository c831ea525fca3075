"""Exposes ticks, calls, configuration and build."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

# A tick has a second and an answer from memory takes well under a millisecond; the buckets span both.
SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class SelfMetrics:
    """Built once by the daemon on a registry of its own: nothing here is global."""

    def __init__(self, registry: CollectorRegistry) -> None:
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        self.tick_seconds = Histogram(
            "tidegate_tick_duration_seconds",
            "Duration of a sweep.",
            buckets=SECONDS,
            registry=registry,
        )
        self.ticks_failed = Counter(
            "tidegate_ticks_failed", "Failed sweeps, which keep the last Board.", registry=registry
        )
        self.internal_errors = Counter(
            "tidegate_internal_errors",
            "Exceptions that lost one update. 0: none.",
            ("place",),
            registry=registry,
        )
        for part in ("response", "discovery", "cluster", "backfill"):
            self.internal_errors.labels(part)
        self.engine_calls = Counter(
            "tidegate_engine_calls",
            "Calls of engines in sleep mode.",
            ("call", "outcome"),
            registry=registry,
        )
        self.calls = Histogram(
            "tidegate_keda_request_duration_seconds",
            "Calls of KEDA by method and gRPC code; requests to the metrics API by group and status.",
            labelnames=("method", "code"),
            buckets=SECONDS,
            registry=registry,
        )
        self._calls_of = cache(self.calls.labels)  # the library's own look-up costs as much as what follows it
        self.streams = Counter(
            "tidegate_streams_ended", "Ended streams by method and gRPC code.", ("method", "code"), registry=registry
        )
        self.requests_shed = Counter(
            "tidegate_http_requests_shed", "Page requests refused under overload.", registry=registry
        )
        self.reload_ok = Gauge(
            "tidegate_config_last_reload_successful",
            "1: the last reload succeeded. 0: the previous configuration stays.",
            registry=registry,
        )
        self.reloaded_at = Gauge(
            "tidegate_config_last_reload_success_timestamp_seconds",
            "Load time of the current configuration.",
            registry=registry,
        )
        self.registered = Gauge(
            "tidegate_metrics_api_registered",
            "1: the API server forwards this API group to Tidegate. 0: not.",
            ("group", "version"),
            registry=registry,
        )
        self.events_written = Counter(
            "tidegate_events_written", "Kubernetes Events created or counted up.", registry=registry
        )
        self.events_dropped = Counter(
            "tidegate_events_dropped",
            "Kubernetes Events not written: rate limit (queue, budget), no object in the cluster (no_object), missing "
            "rights (refused), API server error (failed).",
            ("why",),
            registry=registry,
        )
        build = Info("tidegate_build", "Versions of Tidegate and Python.", registry=registry)
        build.info({"version": version("tidegate"), "python": platform.python_version()})

    def observe_registration(self, group: str, version: str, ours: bool | None) -> None:
        """ours: None where it is not known; then there is no sample."""
        if ours is None:
            self.registered.remove(group, version)
        else:
            self.registered.labels(group, version).set(ours)

    def observe_call(self, method: str, code: str, seconds: float) -> None:
        if method.startswith("Stream") or method == "Watch":
            # How long a stream was open says nothing about how quick an answer was.
            self.streams.labels(method, code).inc()
            return
        self._calls_of(method, code).observe(seconds)
