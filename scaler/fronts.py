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
from exporter.cluster.objects import Ref
from exporter.cluster.state import Cluster
from exporter.model import WorkloadKey

from . import telling
from .announcing import Announcer, place
from .config import Config, MetricsApi
from .keda.claims import Claims
from .keda.server import KedaServer, create
from .keda.tls import TlsFiles
from .kubeapi import server as kubeapi
from .kubeapi.documents import CUSTOM_GROUP, EXTERNAL_GROUP
from .kubeapi.pods import Sources
from .kubeapi.tls import TlsFiles as ServingFiles
from .peers.myself import called
from .publisher import Publisher
from .tls import naming
from .web.own import OwnMetrics

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
            tls=TlsFiles(tls.certificate, tls.key, tls.client_ca) if tls else None,
            now=now,
            observe=observe,
            tls_told=partial(telling.of_files, "grpc_tls"),
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
            tls_told=partial(telling.of_files, "listen.metrics_api"),
            front_proxy_told=telling.of_front_proxy,
        )


def events(
    publisher: Publisher,
    cluster: Cluster,
    targets: Callable[[], Mapping[WorkloadKey, Ref]],
    writes: Callable[[float], bool],
    clock: Clock,
    own: OwnMetrics,
) -> Announcer:
    """It hears the publisher from now on. targets: what each workload scales, as of now."""
    announcer = Announcer(
        place=lambda workload: place(cluster, targets(), workload),
        writes=writes,
        instance=called(os.environ),
        clock=clock,
        written=own.events_written.inc,
        dropped=lambda why, count: own.events_dropped.labels(why).inc(count),
        told=telling.of_events,
    )
    publisher.on_change = announcer.heard
    return announcer


def groups(served: MetricsApi) -> list[str]:
    """The API groups that it serves."""
    return [group for group, on in ((EXTERNAL_GROUP, served.external), (CUSTOM_GROUP, served.custom)) if on]
