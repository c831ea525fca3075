"""Tidegate's metrics about itself: ticks, calls, configuration, build."""

from __future__ import annotations

import platform
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

# A tick has a second and an answer from memory takes well under a millisecond; the buckets span both.
SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class OwnMetrics:
    """Built once by the daemon on a registry of its own: nothing here is global."""

    def __init__(self, registry: CollectorRegistry) -> None:
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        self.tick_seconds = Histogram(
            "tidegate_tick_duration_seconds",
            "How long a sweep over all workloads took, once per `tick`.",
            buckets=SECONDS,
            registry=registry,
        )
        self.ticks_failed = Counter(
            "tidegate_ticks_failed", "Sweeps that failed and left the last Board standing.", registry=registry
        )
        self.internal_errors = Counter(
            "tidegate_internal_errors",
            "Exceptions of Tidegate's own code that cost one update, by where they were raised: while a response was "
            "processed (response), a list of targets looked up (discovery), changes of the cluster followed (cluster) "
            "or a window filled from the past (backfill). 0: none.",
            ("place",),
            registry=registry,
        )
        for place in ("response", "discovery", "cluster", "backfill"):
            self.internal_errors.labels(place)
        self.calls = Histogram(
            "tidegate_call_duration_seconds",
            "Calls of KEDA by method and gRPC code, and requests to the metrics API by group and status.",
            labelnames=("method", "code"),
            buckets=SECONDS,
            registry=registry,
        )
        self.streams = Counter(
            "tidegate_streams_ended",
            "Streams that ended, by method and gRPC code.",
            ("method", "code"),
            registry=registry,
        )
        self.reload_ok = Gauge(
            "tidegate_config_last_reload_successful",
            "1 if the last configuration read was taken, 0 if it was refused and the one before it stands.",
            registry=registry,
        )
        self.reloaded_at = Gauge(
            "tidegate_config_last_reload_success_timestamp_seconds",
            "POSIX time of the configuration in force.",
            registry=registry,
        )
        self.registered = Gauge(
            "tidegate_metrics_api_registered",
            "1 if the API server forwards this API group to us, 0 if to nobody or somebody else.",
            ("group", "version"),
            registry=registry,
        )
        self.events_written = Counter(
            "tidegate_events_written", "Kubernetes Events that were written, or counted on.", registry=registry
        )
        self.events_dropped = Counter(
            "tidegate_events_dropped",
            "Kubernetes Events that were not written: too many at once (queue, budget), no object of the cluster to "
            "write them on (no_object), no right to (refused), or the API server did not take them (failed).",
            ("why",),
            registry=registry,
        )
        build = Info("tidegate_build", "Version of Tidegate and Python.", registry=registry)
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
        self.calls.labels(method, code).observe(seconds)
