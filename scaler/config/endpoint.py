"""Defines where targets are and how to authenticate: endpoints, Redis queues, credentials. Resolves and reads nothing.

Worked example: `Endpoint(dns="chat.ai.svc")` of kind "vllm" is one target per address of that Service; for the address
10.0.0.7 it is `http://10.0.0.7:8000/metrics`, the default port and path of vLLM.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from exporter import model
from exporter.catalog import KINDS

from .scalars import API, DNS, HIGHEST_PORT, KIND, REDIS_NODE, REDIS_URL, SELECTOR, SERVICE, TARGET, URL, duration

Text: TypeAlias = Annotated[str, Field(min_length=1)]
File: TypeAlias = Annotated[str, Field(min_length=1, title="file")]
Port: TypeAlias = Annotated[int, Field(ge=1, le=HIGHEST_PORT)]
Path: TypeAlias = Annotated[str, Field(pattern=r"^/[!-~]*$", title="path")]
Scheme: TypeAlias = Literal["http", "https"]
# YAML gives lists: only the tuple itself accepts one, its items stay strict.
Many = Field(strict=False)
Nodes: TypeAlias = Annotated[tuple[Annotated[str, REDIS_NODE], ...], Many, Field(min_length=1)]
Keys: TypeAlias = Annotated[tuple[Text, ...], Many]

REDIS_PORT, SENTINEL_PORT = 6379, 26379
HIGHEST_DATABASE = 65_535  # Redis has 16 by default, and no limit of its own


class Section(BaseModel):
    """A frozen part of the configuration. No value is converted to make it fit, and no key is ignored."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Basic(Section):
    """User and password."""

    username: Text
    """User name."""
    password_file: File
    """File with the password."""


class Tls(Section):
    """TLS of a target."""

    ca_file: File | None = None
    """Trusted CAs (PEM). null: those of the system, which lack the cluster's own CA."""
    certificate_file: File | None = None
    """PEM client certificate. Goes with `key_file`."""
    key_file: File | None = None
    """PEM private key."""
    server_name: Text | None = None
    """Name in the certificate. null: the host of the URL, the name in `dns`, or `NAME.NAMESPACE.svc` of `service`."""
    insecure_skip_verify: bool = False
    """Accepts any certificate: an attacker in between can control the replicas."""


class Access(Section):
    """Credentials and TLS."""

    bearer_file: File | None = None
    """File with a token for `Authorization: Bearer`. Excludes `basic`."""
    basic: Basic | None = None
    """User and password. Excludes `bearer_file`."""
    tls: Tls | None = None
    """TLS of https targets. null: the system's CAs."""


def admission(access: Access, default_name: str | None = None) -> model.Credentials:
    """The exporter's credentials. default_name: what a certificate must carry if `access` does not name it."""
    tls = access.tls or Tls()
    return model.Credentials(
        bearer_file=access.bearer_file,
        username=access.basic.username if access.basic else None,
        password_file=access.basic.password_file if access.basic else None,
        ca_file=tls.ca_file,
        certificate_file=tls.certificate_file,
        key_file=tls.key_file,
        server_name=tls.server_name or default_name,
        insecure_skip_verify=tls.insecure_skip_verify,
    )


class StreamGroup(Section):
    """One consumer group: unread entries are waiting; read and unacknowledged ones are running."""

    key: Text
    """The stream."""
    group: Text
    """The consumer group. Create it before the first job: without it, a non-empty stream is unknown."""


class Delayed(Section):
    """Sorted set with due times as scores. Due jobs are waiting; later ones do not count."""

    key: Text
    """The sorted set."""
    scores: Literal["seconds", "milliseconds"] = "seconds"
    """Unit of the scores since 1970. With the wrong unit all jobs are due, or none."""


class Running(Section):
    """Keys of jobs that workers have taken and not finished."""

    lists: Keys = ()
    """Lists, as filled by `LMOVE` or BullMQ's `active`."""
    sets: Keys = ()
    """Sets."""
    hashes: Keys = ()
    """Hashes, such as Celery's `unacked`."""
    sorted_sets: Keys = ()
    """Sorted sets, such as RQ's started jobs. Entries of crashed workers keep the workload active."""


class Redis(Section):
    """Queues in one Redis or compatible server, located by exactly one of `url`, `sentinels`, `cluster`."""

    url: Annotated[str, REDIS_URL] | None = None
    """Server and database: `redis://HOST:6379/0`, or `rediss://` for TLS."""
    sentinels: Nodes | None = None
    """Sentinels, such as `redis://HOST:26379`. Goes with `master`."""
    master: Text | None = None
    """Name of the master in the sentinels."""
    db: Annotated[int, Field(ge=0, le=HIGHEST_DATABASE)] | None = None
    """Database behind `sentinels`. null: 0."""
    sentinel_access: Access | None = None
    """Credentials and TLS of the sentinels. null: those of `access`. `{}`: none."""
    cluster: Nodes | None = None
    """Some nodes of a Redis Cluster, such as `redis://HOST:6379`; the others are discovered."""
    lists: Keys = ()
    """Lists: each entry is waiting. A missing key is an empty list."""
    celery: Keys = ()
    """Celery queues: the list of this name and those of priorities 3, 6 and 9."""
    sorted_sets: Keys = ()
    """Sorted sets as priority queues: each member is waiting."""
    delayed: Annotated[tuple[Delayed, ...], Many] = ()
    """Sorted sets of jobs that are due at a time."""
    streams: Annotated[tuple[StreamGroup, ...], Many] = ()
    """Streams by consumer group. `model` names one as `KEY/GROUP`."""
    running: Running = Running()
    """Keys of jobs in progress. Ignored if `model` names one queue."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The URLs of the servers, sentinels or cluster nodes."""
        return (self.url,) if self.url is not None else self.sentinels or self.cluster or ()

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each of `nodes`."""
        usual = SENTINEL_PORT if self.sentinels else REDIS_PORT
        parts = [urlsplit(node) for node in self.nodes]
        return tuple((part.hostname or "", part.port or usual) for part in parts)

    @property
    def is_tls(self) -> bool:
        return any(urlsplit(node).scheme == "rediss" for node in self.nodes)

    @property
    def database(self) -> int:
        return int(urlsplit(self.url).path.strip("/") or 0) if self.url is not None else self.db or 0


class PrometheusQuery(Section):
    """Prometheus-compatible server (Prometheus, Thanos, Mimir, VictoriaMetrics)."""

    url: Annotated[str, API]
    """Base of its API, such as `https://prometheus.monitoring.svc:9090`, with any path before `/api/v1`."""
    selector: Annotated[str, SELECTOR] | None = None
    """Label matchers without braces, such as `namespace="ai",pod=~"chat-.*"`. Required except for `gpus`."""
    max_age: Annotated[float, duration(at_least_s=1)] = 60.0
    """Older samples are ignored. Use two to three times that server's scrape interval."""


class Endpoint(Section):
    """One or more targets, located by exactly one of `url`, `urls`, `dns`, `target`, `service`, `prometheus`, `redis`.
    `port`, `path` and `scheme` go with `dns`, `target` and `service`.
    """

    url: Annotated[str, URL] | None = None
    """One target. Default path: the kind's. Not a ClusterIP Service of several pods, which reaches a random one."""
    urls: Annotated[tuple[Annotated[str, URL], ...], Many, Field(min_length=1)] | None = None
    """Several targets, for pods without a Service."""
    dns: Annotated[str, DNS] | None = None
    """Headless Service, of which every address is scraped."""
    target: Annotated[str, TARGET] | None = None
    """Scale target in the workload's namespace, such as `Deployment/chat`, of which all pods are scraped: Deployment,
    StatefulSet, LeaderWorkerSet, Rollout, InferenceService, InferenceSet or ScaledJob. Only for `pods`; needs
    `kubernetes`."""
    service: Annotated[str, SERVICE] | None = None
    """Service whose addresses are scraped; without a namespace, in the workload's. For `gateway`, and with a namespace
    for `gpus`; needs `kubernetes`."""
    prometheus: PrometheusQuery | None = None
    """The same metrics from a Prometheus, for pods that Tidegate cannot reach. `access` then applies to that server."""
    redis: Redis | None = None
    """Queues counted in Redis, without an exporter. Only for gateways; of `access`, `basic` and `tls` apply."""
    port: Port | None = None
    """Port. null: the kind's default."""
    path: Path | None = None
    """Path. null: the kind's default."""
    scheme: Scheme | None = None
    """Scheme. null: http."""
    kind: Annotated[str, KIND] | None = None
    """Kind of target. null: the engine for `pods`, epp for `gateway`, dcgm for `gpus`."""
    access: Access | None = None
    """Credentials and TLS."""

    def pages(self, kind: str) -> tuple[str, ...]:
        """The URLs of `url` or `urls`; empty for the other locators, which need a lookup."""
        urls = (self.url,) if self.url is not None else self.urls or ()
        return tuple(with_path(url, KINDS[kind].path) for url in urls)

    def page_at(self, host: str, kind: str) -> str:
        """The URL of one address that `dns`, `target` or `service` resolved to."""
        port = KINDS[kind].port if self.port is None else self.port
        path = KINDS[kind].path if self.path is None else self.path
        return page(self.scheme or "http", host, port, path)

    def service_in(self, namespace: str) -> tuple[str, str] | None:
        """Namespace and name of `service`; None without one. namespace: the default."""
        if self.service is None:
            return None
        name, _, explicit = self.service.partition(".")
        return explicit or namespace, name

    def admission(self, namespace: str = "") -> model.Credentials:
        """The exporter's credentials. namespace: the default of `service`."""
        # A pod is scraped by its address, and its certificate names its Service.
        name = self.dns.rstrip(".") if self.dns else None
        if (service := self.service_in(namespace)) is not None:
            name = f"{service[1]}.{service[0]}.svc" if service[0] else None
        return admission(self.access or Access(), name)


def page(scheme: str, host: str, port: int, path: str) -> str:
    bracketed = f"[{host}]" if ":" in host else host
    return f"{scheme}://{bracketed}:{port}{path}"


def with_path(url: str, default: str) -> str:
    """The URL, with a default path if it has none."""
    parts = urlsplit(url)
    return url if parts.path else parts._replace(path=default).geturl()
