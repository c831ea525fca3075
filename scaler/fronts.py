"""Whoever asks from outside: each front is built from its part of `listen`, and the daemon starts and stops it.

Worked example: `keda(config, publisher, claims, now, observe)` listens nowhere yet; `await server.start()` is its port.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from exporter.clock import Clock

from . import telling
from .config import Config, MetricsApi
from .keda.claims import Claims
from .keda.server import KedaServer, create
from .keda.tls import TlsFiles
from .kubeapi import server as kubeapi
from .kubeapi.documents import CUSTOM_GROUP, EXTERNAL_GROUP
from .kubeapi.pods import Sources
from .kubeapi.tls import TlsFiles as ServingFiles
from .publisher import Publisher
from .tls import naming

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


def groups(served: MetricsApi) -> list[str]:
    """The API groups that it serves."""
    return [group for group, on in ((EXTERNAL_GROUP, served.external), (CUSTOM_GROUP, served.custom)) if on]
