"""Where a page is and how to be let in. Names only: nothing here resolves one, asks a server or reads a file.

Worked example: `Endpoint(dns="chat.ai.svc")` of kind "vllm" is one page per address of that Service; for the address
10.0.0.7 it is `http://10.0.0.7:8000/metrics`, because vLLM's pages are there unless somebody says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field

from exporter import model
from exporter.catalog import KINDS

from .access import Access, Basic, File, Many, Section, Text, Tls, admission
from .kinds import KIND
from .places import API, SELECTOR, SERVICE, TARGET
from .redis import Redis
from .scalars import DNS, HIGHEST_PORT, URL, duration

__all__ = [
    "Access",
    "Basic",
    "Endpoint",
    "File",
    "Kind",
    "Many",
    "Path",
    "Port",
    "PrometheusQuery",
    "Redis",
    "Scheme",
    "Section",
    "Text",
    "Tls",
    "admission",
    "page",
    "with_path",
]

Port: TypeAlias = Annotated[int, Field(ge=1, le=HIGHEST_PORT)]
Path: TypeAlias = Annotated[str, Field(pattern=r"^/[!-~]*$", title="path")]
Scheme: TypeAlias = Literal["http", "https"]
Kind: TypeAlias = Annotated[str, KIND]


class PrometheusQuery(Section):
    """Prometheus-compatible server (Prometheus, Thanos, Mimir, VictoriaMetrics)."""

    url: Annotated[str, API]
    """Base of its API, such as `https://prometheus.monitoring.svc:9090`, with any path before `/api/v1`."""
    selector: Annotated[str, SELECTOR] | None = None
    """Label matchers without braces, such as `namespace="ai",pod=~"chat-.*"`. Too wide counts another workload's queue.
    Required except for `gpus`."""
    max_age: Annotated[float, duration(at_least_s=1)] = 60.0
    """Older samples are ignored. Use two to three times that server's scrape interval: 1m fits 15s to 30s."""


class Endpoint(Section):
    """One or more targets, located by exactly one of `url`, `urls`, `dns`, `target`, `service`, `prometheus`, `redis`.
    `port`, `path` and `scheme` go with `dns`, `target` and `service`.
    """

    url: Annotated[str, URL] | None = None
    """One target. Default path: the kind's. A ClusterIP Service reaches a random pod: for several pods use `target`,
    `service` or `dns`."""
    urls: Annotated[tuple[Annotated[str, URL], ...], Many, Field(min_length=1)] | None = None
    """Several targets, for pods without a Service."""
    dns: Annotated[str, DNS] | None = None
    """Headless Service. It is resolved repeatedly, and every address is scraped."""
    target: Annotated[str, TARGET] | None = None
    """Scale target in the workload's namespace, such as `Deployment/chat`: all its pods are scraped. Deployment,
    StatefulSet, LeaderWorkerSet, Rollout, InferenceService or ScaledJob. Only for `pods`; needs `kubernetes`."""
    service: Annotated[str, SERVICE] | None = None
    """Service whose ready addresses are scraped; without a namespace, in the workload's. For `gateway`, and with a
    namespace for `gpus`; needs `kubernetes`."""
    prometheus: PrometheusQuery | None = None
    """The same metrics from a Prometheus, for pods that Tidegate cannot reach. Its scrape interval adds delay. `access`
    then applies to that server."""
    redis: Redis | None = None
    """Queues counted in Redis, without an exporter. Only for gateways; of `access`, `basic` and `tls` apply."""
    port: Port | None = None
    """Port. null: the kind's default."""
    path: Path | None = None
    """Path. null: the kind's default."""
    scheme: Scheme | None = None
    """Scheme. null: http."""
    kind: Kind | None = None
    """Kind of target: how its metrics are read, and its default port and path. null: the engine for `pods`, epp for
    `gateway`, dcgm for `gpus`."""
    access: Access | None = None
    """Credentials and TLS. null: none."""

    def pages(self, kind: str) -> tuple[str, ...]:
        """The URLs that are known without asking anybody; none but for `url` and `urls`."""
        urls = (self.url,) if self.url is not None else self.urls or ()
        return tuple(with_path(url, KINDS[kind].path) for url in urls)

    def page_at(self, host: str, kind: str) -> str:
        """The URL of one address that `dns`, `target` or `service` led to."""
        port = KINDS[kind].port if self.port is None else self.port
        path = KINDS[kind].path if self.path is None else self.path
        return page(self.scheme or "http", host, port, path)

    def service_in(self, namespace: str) -> tuple[str, str] | None:
        """Namespace and name of `service`, said in `namespace`; None without one."""
        if self.service is None:
            return None
        name, _, own = self.service.partition(".")
        return own or namespace, name

    def admission(self, namespace: str = "") -> model.Credentials:
        """How to be let in, in the exporter's words. `namespace`: the workload's, for a `service` that names none."""
        # A pod's certificate names its Service, and it is asked by its address.
        name = self.dns.rstrip(".") if self.dns else None
        if (service := self.service_in(namespace)) is not None:
            name = f"{service[1]}.{service[0]}.svc" if service[0] else None
        return admission(self.access or Access(), name)


def page(scheme: str, host: str, port: int, path: str) -> str:
    bracketed = f"[{host}]" if ":" in host else host
    return f"{scheme}://{bracketed}:{port}{path}"


def with_path(url: str, usual: str) -> str:
    parts = urlsplit(url)
    return url if parts.path else parts._replace(path=usual).geturl()
