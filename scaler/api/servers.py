"""Builds the API servers (KEDA gRPC, metrics API) and the Event writer from their sections of the configuration.

Worked example: `keda(config, publisher, claims, now, observe)` listens on no port yet; `await server.start()` does.
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
from scaler.engine import failure_log
from scaler.engine.publisher import Publisher
from scaler.ha.replica import called
from scaler.metrics import SelfMetrics
from scaler.tls import TlsFiles, naming

from .events import EventWriter, event_object
from .keda.authorization import CallAuthorizer
from .keda.server import KedaServer, create
from .metrics_api import server as kubeapi
from .metrics_api.documents import CUSTOM_GROUP, EXTERNAL_GROUP
from .metrics_api.pods import Sources

Observe = Callable[[str, str, float], None]


def keda(
    config: Config, publisher: Publisher, claims: CallAuthorizer, now: Callable[[], float], observe: Observe
) -> KedaServer:
    """Raises BadTlsFiles."""
    tls = config.listen.grpc_tls
    with naming("listen.grpc_tls"):
        return create(
            publisher,
            claims=claims,
            address=str(config.listen.grpc),
            tls=TlsFiles(tls.certificate, tls.key, tls.client_ca) if tls else None,
            now=now,
            observe=observe,
            on_tls_problem=partial(failure_log.of_files, "grpc_tls"),
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
            files=TlsFiles(served.certificate, served.key),
            groups=groups(served),
            clock=clock,
            observe=observe,
            on_tls_problem=partial(failure_log.of_files, "listen.metrics_api"),
            on_front_proxy_problem=failure_log.of_front_proxy,
        )


def events(
    publisher: Publisher,
    cluster: Cluster,
    targets: Callable[[], Mapping[WorkloadKey, Ref]],
    writes: Callable[[float], bool],
    clock: Clock,
    metrics: SelfMetrics,
) -> EventWriter:
    """Listens to the publisher from now on. targets: what each workload scales, as of now."""
    writer = EventWriter(
        object_of=lambda workload: event_object(cluster, targets(), workload),
        writes=writes,
        instance=called(os.environ),
        clock=clock,
        on_written=metrics.events_written.inc,
        on_dropped=lambda why, count: metrics.events_dropped.labels(why).inc(count),
        on_problem=failure_log.of_events,
    )
    publisher.on_change = writer.add
    return writer


def groups(served: MetricsApi) -> list[str]:
    """The API groups of this section that are on."""
    return [group for group, on in ((EXTERNAL_GROUP, served.external), (CUSTOM_GROUP, served.custom)) if on]
