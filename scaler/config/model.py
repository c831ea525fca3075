"""Defines the configuration: a frozen value, its defaults, and what each field does.

The model checks single values; `validate` checks values against each other; `loader` does both. Durations are seconds,
sizes are bytes, ratios are 0 to 1. The reference documentation and the JSON Schema are generated from this module.

Worked example: `Config().scrape.interval` is 5.0, and samples are fresh for `Config().fresh_for` = 15.0 seconds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from exporter import model
from exporter.catalog import KINDS
from scaler.policy.overrides import Brake
from scaler.policy.prices import PriceList

from .endpoint import Access, Endpoint, File, Many, Path, Port, Scheme, Section, Text, admission, page
from .overrides import BRAKE
from .scalars import (
    ADDRESS,
    API,
    EVERYWHERE,
    FULL_LEASE,
    FULL_SERVICE,
    GATEWAY_NAME,
    GPUS,
    HOST_NAME,
    NAMESPACE_OR_ALL,
    OBJECT_URL,
    Address,
    duration,
    kubernetes_name,
    size,
)
from .workload import MOST_PRIORITY, Mode, Price, Workload

KiB = 2**10
MiB = 2**20
GiB = 2**30
Interval: TypeAlias = Annotated[float, duration(at_least_s=0.1, at_most_s=3600)]
Namespaces: TypeAlias = Annotated[tuple[Annotated[str, kubernetes_name(63, "namespace")], ...], Many]


class DcgmExporter(Section):
    """Discovery of dcgm-exporter pods by the labels of its chart and of the GPU Operator; `gpus` disables it."""

    namespaces: Namespaces = ()
    """Trusted namespaces. Empty: all, so a tenant that labels a pod can report GPU values. Required with `access`,
    which each pod receives."""
    port: Port | None = None
    """Port. null: the metrics port that the pod names, else the kind's default."""
    path: Path | None = None
    """Path. null: the kind's default."""
    scheme: Scheme = "http"
    """Scheme."""
    access: Access | None = None
    """Credentials and TLS."""

    def page_at(self, host: str, named_port: int) -> str:
        """The URL of one pod. named_port: the metrics port in the pod's spec, or the kind's default."""
        path = KINDS[GPUS].path if self.path is None else self.path
        return page(self.scheme, host, named_port if self.port is None else self.port, path)

    def admission(self) -> model.Credentials:
        """The exporter's credentials."""
        return admission(self.access or Access())


class Kubernetes(Section):
    """Kubernetes API access. Engine pods get no credentials, because any pod can claim to be an engine."""

    kubeconfig: File | None = None
    """Kubeconfig file, outside the cluster. null: the pod's ServiceAccount."""
    context: Text | None = None
    """Context of the kubeconfig. null: the current one."""
    namespaces: Namespaces = ()
    """Namespaces to watch, for a Tidegate with limited rights. Empty: all."""
    blind_after: Annotated[float, duration(at_least_s=1)] = 60.0
    """How long the API server's data is valid without an answer. Shorter turns its restart into an outage; longer
    trusts pods that may be gone."""
    triggers: bool = True
    """Triggers of ScaledObjects and ScaledJobs define workloads."""
    annotations: bool = True
    """`tidegate.dev/` annotations on Deployments, StatefulSets, LeaderWorkerSets and Rollouts define workloads."""
    events: bool = True
    """Writes Events on scale targets (docs/reference/kubernetes.md)."""
    dcgm_exporter: DcgmExporter | None = DcgmExporter()
    """Discovery of dcgm-exporter. null: none."""


class SharedGateway(Section):
    """Gateway for triggers and annotations of the listed namespaces."""

    name: Annotated[str, GATEWAY_NAME]
    """Its name in triggers. It takes precedence over a Service of the same name."""
    namespaces: Annotated[tuple[Annotated[str, NAMESPACE_OR_ALL], ...], Many, Field(min_length=1)]
    """Namespaces that may use it and can then read its queues; `["*"]` is all."""
    page: Endpoint
    """Its metrics endpoint, which must run while workloads are at zero."""

    def is_for(self, namespace: str) -> bool:
        """Whether workloads of that namespace may name it."""
        return namespace in self.namespaces or EVERYWHERE in self.namespaces


class Peers(Section):
    """Other replicas of Tidegate (docs/explanation/high-availability.md). Needs `kubernetes`, and `POD_NAME` and
    `POD_IP` in the environment.
    """

    address: Annotated[Address, ADDRESS] = Address("0.0.0.0", 8444)  # noqa: S104
    """Where other replicas connect: at this address, or at `POD_IP` if it is a wildcard."""
    certificate: File
    """PEM certificate chain for `server_name`, valid for servers and clients."""
    key: File
    """PEM private key."""
    ca: File
    """PEM CA of all replicas' certificates; it may sign others."""
    server_name: Text
    """Name in every replica's certificate, such as `tidegate.tidegate.svc`; never resolved."""
    lease: Annotated[str, FULL_LEASE]
    """Lease of these replicas alone, created if missing."""


class GrpcTls(Section):
    """TLS of the gRPC listener."""

    certificate: File
    """PEM certificate chain for the host in `scalerAddress`."""
    key: File
    """PEM private key."""
    client_ca: File | None = None
    """PEM CA of KEDA's client certificate. null accepts any caller."""


class MetricsApi(Section):
    """Kubernetes metrics API, for an HPA without KEDA. Needs `kubernetes` and an APIService per group."""

    address: Annotated[Address, ADDRESS] = Address("0.0.0.0", 8443)  # noqa: S104
    """Where the API server connects."""
    certificate: File
    """PEM certificate chain for the Service in the APIService, such as `tidegate.tidegate.svc`."""
    key: File
    """PEM private key."""
    service: Annotated[str, FULL_SERVICE] | None = None
    """Tidegate's Service. If an APIService names another, Tidegate logs an error and `tidegate_metrics_api_registered`
    is 0. null: no check."""
    external: bool = False
    """Serves `external.metrics.k8s.io`, which KEDA serves if it is installed."""
    custom: bool = False
    """Serves `custom.metrics.k8s.io`, which prometheus-adapter often serves."""


class Listen(Section):
    """Listen addresses. A port in use is an error; port 0 takes a free one."""

    http: Annotated[Address, ADDRESS] = Address("0.0.0.0", 8080)  # noqa: S104  a pod's address is not known yet
    """Live page, `/metrics`, `/livez`, `/readyz` and `/api/v1`, without TLS. Quote IPv6: `"[::]:8080"`."""
    http_hosts: Annotated[tuple[Annotated[str, HOST_NAME], ...], Many] = ()
    """More host names for the live page and `/api/v1`, such as an Ingress host (docs/reference/security.md)."""
    grpc: Annotated[Address, ADDRESS] = Address("0.0.0.0", 6000)  # noqa: S104
    """KEDA external scaler: the ScaledObject's `scalerAddress`."""
    grpc_tls: GrpcTls | None = None
    """TLS of `grpc`. null: plaintext."""
    metrics_api: MetricsApi | None = None
    """Kubernetes metrics API. null: not served."""
    peers: Peers | None = None
    """Other replicas of Tidegate. null: one replica, no Lease."""


def default_timeout(values: dict[str, Any]) -> float:
    """Seconds, from the section's other values."""
    interval: float = values["interval"]
    return min(3.0, interval)


class Scrape(Section):
    """How targets are scraped."""

    interval: Interval = 5.0
    """Time between scrapes of a target. Shorter detects bursts sooner and loads the engines more."""
    timeout: Interval = Field(default_factory=default_timeout)
    """Time limit of a scrape: `interval` at most, also by default."""
    body_limit: Annotated[int, size(KiB, GiB)] = 8 * MiB
    """Larger responses fail; 100 GPUs need about 1 MiB. All responses together may use 16 times as much memory."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 64
    """Scrapes at once. With too few, a round takes longer than `interval`."""
    wake_interval: Interval = 1.0
    """Time between scrapes of a gateway whose workload is at zero: the delay of a wake-up."""
    wake_rate: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Limit of these scrapes per second; 100 use about a tenth of a core. Above it, all are scraped less often. A
    shared gateway counts once."""


def _impute_after(values: dict[str, Any]) -> float:
    hold: float = values["hold"]
    return min(60.0, hold)


class Freshness(Section):
    """How long samples count as fresh. Stale data is never zero: it is an error, not a scale-down."""

    intervals: Annotated[float, Field(ge=1, le=1000)] = 3.0
    """Scrape intervals for which a sample is fresh. At 1, one lost scrape makes it stale."""
    hold: Annotated[float, duration()] = 300.0
    """How long the last decision is held on stale samples; then callers get an error. 0: every gap is an error."""
    impute_after: Annotated[float, duration()] = Field(default_factory=_impute_after)
    """If at least half of the ready pods respond for this long, the others count like them. `hold` at most, also
    by default."""
    at_start: Annotated[float, duration()] | None = None
    """How long a workload without restored state keeps at least its current replicas. null: two half-lives of
    `smoothing.down`, at least 1m."""


class Prices(Section):
    """Costs of the accounts, which `keep_warm: auto` weighs too, in any currency: their ratio decides."""

    gpu_hour: Price = 2.5
    """Cost of one GPU for an hour, of models that `gpus` does not name. Higher scales to zero sooner. Without it a
    model has its public list price (docs/explanation/accounting.md), and without that `keep_warm` weighs 2.5."""
    gpus: dict[str, Price] = Field(default_factory=dict)
    """Cost of one GPU for an hour by model, as `{H100: 3.9, A100 80GB: 1.8}`: a model has all words of its key, and
    most words win."""
    team_label: Text | None = None
    """Label of the Deployment, or other scale target, that names its team in the accounts. null: no teams."""
    waiting_hour: Annotated[float, Field(ge=0)] = 30.0
    """Cost of an hour in which users wait for a start, however many; with an SLO, per user while its error budget is
    spent. Higher keeps warm longer. Default: about an hourly wage. 0: batch work."""

    @property
    def accounted(self) -> PriceList:
        """The prices of the accounts, without the default of `gpu_hour`, which is no price."""
        return PriceList(self.gpus, self.gpu_hour if "gpu_hour" in self.model_fields_set else None)


class GpuSharing(Section):
    """Divides the GPUs of the cluster among workloads that want more than there are, by their `share`
    (docs/how-to/share-gpus.md). Needs `kubernetes` without `namespaces`.
    """

    growth: dict[str, Annotated[int, Field(ge=0, le=100_000)]] = Field(default_factory=dict)
    """GPUs that a node autoscaler may add at a time, by resource name, as `{nvidia.com/gpu: 8}`: replicas for so many
    are published without free GPUs, because only pending pods add nodes. Empty: none."""
    max_priority: Annotated[int, Field(ge=-MOST_PRIORITY, le=MOST_PRIORITY)] = MOST_PRIORITY
    """Highest priority that triggers and annotations may set; a higher one counts as this."""


class Checkpoints(Section):
    """Checkpoints: state that survives a restart (decisions, windows, estimators)."""

    directory: File
    """Where the last two checkpoints are kept, for one Tidegate alone; created if missing."""
    interval: Annotated[float, duration(at_least_s=1, at_most_s=3600)] = 10.0
    """Time between checkpoints: the most that a kill can lose."""


class Explain(Section):
    """Decision log for `tidegate explain` and charts."""

    memory: Annotated[int, size(0, 4 * GiB)] = 64 * MiB
    """Memory of the decision log, shared by all workloads: an entry takes 536 bytes. 0: no log."""


class Links(Section):
    """Links of the live page. A reader's browser opens them; Tidegate requests none."""

    grafana: Annotated[str, API] | None = None
    """Base URL of the Grafana with Tidegate's dashboards. null: no link."""
    object: Annotated[str, OBJECT_URL] | None = None
    """An object in a console of the cluster, such as `https://console.example.com/{kind}s/{namespace}/{name}`. `{kind}`
    is in lower case. null: no link."""


class Log(Section):
    """Log on standard error."""

    format: Literal["auto", "json", "console"] = "auto"
    """`json`: one object per line. `console`: for terminals. `auto`: `console` on a terminal, else `json`."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""


class Otlp(Section):
    """Traces of decisions and all metrics to an OpenTelemetry collector by OTLP over HTTP. Needs `pip install
    'tidegate[otel]'`. Credentials: OTEL_EXPORTER_OTLP_HEADERS.
    """

    endpoint: Annotated[str, API]
    """URL of the collector, such as http://otel-collector:4318."""
    traces: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the decisions that are traced. 0: none."""
    metrics: Interval = 60.0
    """Time between two messages with all metrics."""


class Config(Section):
    """Top level of the file."""

    listen: Listen = Listen()
    """Listen addresses."""
    scrape: Scrape = Scrape()
    """How targets are scraped."""
    freshness: Freshness = Freshness()
    """How long samples count as fresh."""
    tick: Annotated[float, duration(at_least_s=0.1, at_most_s=60)] = 1.0
    """Time between decisions of all workloads. New samples take effect at once."""
    state: Checkpoints | None = None
    """Checkpoints. null: after a restart the cluster's replicas are held."""
    log: Log = Log()
    """Log."""
    explain: Explain = Explain()
    """Decision log."""
    links: Links = Links()
    """Links of the live page."""
    otlp: Otlp | None = None
    """Traces and metrics by OTLP."""
    prices: Prices = Prices()
    """Costs of an idle GPU and of a waiting user."""
    sharing: GpuSharing | None = None
    """Shared GPUs. null: each workload gets what it wants, and pods wait if there are too few GPUs."""
    gpus: Annotated[tuple[Endpoint, ...], Many] = ()
    """GPU targets: dcgm-exporter by `dns` of a headless Service or by any `service`. Empty: discovered with
    `kubernetes`. Without GPUs, requests alone prove idleness."""
    gateways: Annotated[tuple[SharedGateway, ...], Many] = ()
    """Gateways that triggers and annotations may name."""
    kubernetes: Kubernetes | None = None
    """Kubernetes API access; `{}` reads everything."""
    mode: Mode = "act"
    """Default `mode` of all workloads (docs/how-to/observe-first.md)."""
    brake: Annotated[Brake, BRAKE] | None = None
    """Brake for all workloads (docs/how-to/overrides.md)."""
    workloads: Annotated[tuple[Workload, ...], Many] = ()
    """Workloads of this file; triggers and annotations add more. KEDA gets an error for any other."""

    def observes(self, workload: Workload) -> bool:
        """Whether callers get no value of the workload."""
        return (workload.mode or self.mode) == "observe"

    @property
    def fresh_for(self) -> float:
        """Seconds for which a sample is fresh."""
        return self.scrape.interval * self.freshness.intervals

    @property
    def gpu_search(self) -> DcgmExporter | None:
        """How dcgm-exporter is discovered; None if it is not."""
        return self.kubernetes.dcgm_exporter if self.kubernetes is not None and not self.gpus else None

    @property
    def gpu_kinds(self) -> tuple[str, ...]:
        """The kind of each of `gpus`."""
        return tuple(endpoint.kind or GPUS for endpoint in self.gpus)
