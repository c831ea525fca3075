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
    """A Prometheus-compatible server (Prometheus, Thanos, Mimir, VictoriaMetrics) that has scraped the pages."""

    url: Annotated[str, API]
    """Where its API begins, as `https://prometheus.monitoring.svc:9090`; a path before `/api/v1` belongs to it."""
    selector: Annotated[str, SELECTOR] | None = None
    """Label matchers without braces, as `namespace="ai",pod=~"chat-.*"`: whose pages are meant. One that is too wide
    counts a neighbour's queue. Needed but for `gpus`; which metrics are asked for, the kind says."""
    max_age: Annotated[float, duration(at_least_s=1)] = 60.0
    """Older samples are not believed. At least twice that server's own scrape interval, better three times: 1m goes
    with 15s to 30s. Shorter never knows who is there; longer believes what is no longer so."""


class Endpoint(Section):
    """One page, or one per pod or address, found in exactly one of seven ways: `url`, `urls`, `dns`, `target`,
    `service`, `prometheus`, `redis`. `port`, `path` and `scheme` go with `dns`, `target` and `service`.
    """

    url: Annotated[str, URL] | None = None
    """One page. Without a path the kind's usual one is taken. A ClusterIP Service here reaches one pod by chance:
    for several pods use `target`, `service` or `dns`."""
    urls: Annotated[tuple[Annotated[str, URL], ...], Many, Field(min_length=1)] | None = None
    """Several pages, each asked every interval, for pods that no Service names."""
    dns: Annotated[str, DNS] | None = None
    """A headless Service: it is resolved again and again and every address is asked, so pods come and go by
    themselves."""
    target: Annotated[str, TARGET] | None = None
    """What is scaled, as `Deployment/chat`, in the workload's own namespace: each of its pods is asked, found through
    the Kubernetes API. Deployment, StatefulSet, LeaderWorkerSet, Rollout, InferenceService or ScaledJob. Only for
    `pods`; needs `kubernetes`."""
    service: Annotated[str, SERVICE] | None = None
    """A Service, as `NAME` in the workload's namespace or `NAME.NAMESPACE`: each of its ready addresses is asked, found
    through the Kubernetes API. For gateways, and with a namespace for `gpus`; needs `kubernetes`."""
    prometheus: PrometheusQuery | None = None
    """The same pages as a Prometheus has scraped them, for pods that Tidegate cannot reach. Later by that server's
    scrape interval. `access` is then how that server is asked."""
    redis: Redis | None = None
    """Queues in Redis, counted there without an exporter between. Only for gateways; `access` is then how Redis lets
    one in: `basic` and `tls`."""
    port: Port | None = None
    """Port of the pages. Without it the kind's usual one."""
    path: Path | None = None
    """Path of the pages. Without it the kind's usual one."""
    scheme: Scheme | None = None
    """Scheme of the pages. Without it http."""
    kind: Kind | None = None
    """What kind of page it is, which decides how its numbers are read and its usual port and path. Without it: the
    workload's engine for `pods`, epp for `gateway`, dcgm for `gpus`."""
    access: Access | None = None
    """How to be let in. Without it the pages are asked without credentials."""

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

    def admission(self, namespace: str = "") -> model.Access:
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
