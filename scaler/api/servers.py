"""Whoever asks from outside, and who is told there: each front is built from its part of the configuration, and the
daemon starts and stops it.

Worked example: `keda(config, publisher, claims, now, observe)` listens nowhere yet; `await server.start()` is its port.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial

import structlog

from exporter.clock import Clock
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.config import Config, MetricsApi
from scaler.engine import scrape_log
from scaler.engine.publisher import Publisher
from scaler.ha.replica import called
from scaler.metrics import SelfMetrics
from scaler.tls import naming

from .events import EventWriter, place
from .keda.authorization import Claims
from .keda.server import KedaServer, create
from .keda.tls import GrpcTlsFiles
from .metrics_api import server as kubeapi
from .metrics_api.documents import CUSTOM_GROUP, EXTERNAL_GROUP
from .metrics_api.pods import Sources
from .metrics_api.tls import MetricsTlsFiles as ServingFiles

Observe = Callable[[str, str, float], None]


def keda(
    config: Config, publisher: Publisher, claims: Claims, now: Callable[[], float], observe: Observe
) -> KedaServer:
    """Raises BadTlsFiles."""
    tls = config.listen.grpc_tls
    with naming("listen.grpc_tls"):
        return create(
            publisher,
            claims=claims,
            address=str(config.listen.grpc),
            tls=GrpcTlsFiles(tls.certificate, tls.key, tls.client_ca) if tls else None,
            now=now,
            observe=observe,
            tls_told=partial(scrape_log.of_files, "grpc_tls"),
            warn=structlog.get_logger().warning,
        )


def metrics_api(
    served: MetricsApi, publisher: Publisher, sources: Sources, clock: Clock, observe: Observe
) -> kubeapi.MetricsServer:
    """Raises BadTlsFiles."""
    with naming("listen.metrics_api"):
        return kubeapi.create(
            publisher,
            sources,
            host=served.address.host,
            port=served.address.port,
            files=ServingFiles(served.certificate, served.key),
            groups=groups(served),
            clock=clock,
            observe=observe,
            tls_told=partial(scrape_log.of_files, "listen.metrics_api"),
            front_proxy_told=scrape_log.of_front_proxy,
        )


def events(
    publisher: Publisher,
    cluster: Cluster,
    targets: Callable[[], Mapping[WorkloadKey, Ref]],
    writes: Callable[[float], bool],
    clock: Clock,
    own: SelfMetrics,
) -> EventWriter:
    """It hears the publisher from now on. targets: what each workload scales, as of now."""
    announcer = EventWriter(
        place=lambda workload: place(cluster, targets(), workload),
        writes=writes,
        instance=called(os.environ),
        clock=clock,
        written=own.events_written.inc,
        dropped=lambda why, count: own.events_dropped.labels(why).inc(count),
        told=scrape_log.of_events,
    )
    publisher.on_change = announcer.heard
    return announcer


def groups(served: MetricsApi) -> list[str]:
    """The API groups that it serves."""
    return [group for group, on in ((EXTERNAL_GROUP, served.external), (CUSTOM_GROUP, served.custom)) if on]
