"""The whole configuration: a frozen value, its defaults, and what each field does when it is changed.

It knows what a single value may be; what must hold between values is in `checks`, and `load` asks both. So a
`Config` that came out of `load` is right, and one built by hand is as right as its builder. Durations are seconds,
sizes are bytes, ratios are 0..1. The reference and the JSON Schema are generated from here.

Worked example: `Config().scrape.interval` is 5.0, and readings are fresh for `Config().fresh_for` = 15.0 seconds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from scaler.policy.overrides import Brake

from .access import File, Many, Section
from .cluster import DcgmExporter, Kubernetes, SharedGateway
from .endpoint import Endpoint
from .kinds import GPUS
from .overrides import BRAKE
from .peers import Peers
from .places import FULL_SERVICE
from .scalars import ADDRESS, HOST_NAME, Address, duration, size
from .workload import Mode, Workload

KiB = 2**10
MiB = 2**20
GiB = 2**30
Interval: TypeAlias = Annotated[float, duration(at_least_s=0.1, at_most_s=3600)]


class GrpcTls(Section):
    """TLS of the gRPC listener. Changed files are reloaded."""

    certificate: File
    """PEM file: certificate chain for the host in `scalerAddress`."""
    key: File
    """PEM file: its private key."""
    client_ca: File | None = None
    """PEM file: CA of KEDA's client certificate; callers without one are rejected. null accepts any caller."""


class MetricsApi(Section):
    """Kubernetes metrics API, for an HPA without KEDA. Needs `kubernetes` and an APIService per group."""

    address: Annotated[Address, ADDRESS] = Address("0.0.0.0", 8443)  # noqa: S104
    """Where the API server connects."""
    certificate: File
    """PEM file: certificate chain for the Service in the APIService, such as `tidegate.tidegate.svc`. Reloaded when
    changed."""
    key: File
    """PEM file: its private key."""
    service: Annotated[str, FULL_SERVICE] | None = None
    """Tidegate's own Service. If an APIService names another one, Tidegate logs an error and
    `tidegate_metrics_api_registered` is 0. null: it only logs the owner of the API group."""
    external: bool = False
    """Serves `external.metrics.k8s.io`. A cluster allows one provider; with KEDA installed, it is KEDA."""
    custom: bool = False
    """Serves `custom.metrics.k8s.io`. A cluster allows one provider, often prometheus-adapter."""


class Listen(Section):
    """Listen addresses. A port in use is an error; port 0 takes a free one."""

    http: Annotated[Address, ADDRESS] = Address("0.0.0.0", 8080)  # noqa: S104  a pod's address is known to nobody yet
    """Live page, `/metrics`, `/livez`, `/readyz` and `/api/v1`. Plain HTTP: to restrict access, bind to 127.0.0.1
    behind a proxy. Quote IPv6: `"[::]:8080"`."""
    http_hosts: Annotated[tuple[Annotated[str, HOST_NAME], ...], Many] = ()
    """More host names for the live page and `/api/v1`, such as an Ingress host. Other hosts get 421, against DNS
    rebinding. Always allowed: IP addresses, `localhost`, names without dots, `.svc` and `.cluster.local`. `/metrics`,
    `/livez` and `/readyz` accept any host."""
    grpc: Annotated[Address, ADDRESS] = Address("0.0.0.0", 6000)  # noqa: S104
    """KEDA external scaler: the ScaledObject's `scalerAddress`."""
    grpc_tls: GrpcTls | None = None
    """TLS of `grpc`. null: plaintext."""
    metrics_api: MetricsApi | None = None
    """Kubernetes metrics API. null: not served."""
    peers: Peers | None = None
    """Other replicas of Tidegate. null: one replica, no Lease."""


def usual_timeout(given: dict[str, Any]) -> float:
    interval: float = given["interval"]
    return min(3.0, interval)


class Scrape(Section):
    """How targets are scraped."""

    interval: Interval = 5.0
    """Time between scrapes of a target. Shorter detects bursts sooner and loads the engines more; dcgm-exporter updates
    every 30 s by default."""
    timeout: Interval = Field(default_factory=usual_timeout)
    """Time limit of a scrape, at most `interval`. Default: 3s, or `interval` if shorter."""
    body_limit: Annotated[int, size(KiB, GiB)] = 8 * MiB
    """Larger responses fail. 100 GPUs need about 1 MiB. All responses together may use 16 times as much memory: raise
    the memory limit too."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 64
    """Scrapes at once. With too few, a round takes longer than `interval`."""
    wake_interval: Interval = 1.0
    """Time between scrapes of a gateway while its workload is at zero: the delay of a wake-up. At `interval` or above,
    nothing is scraped more often."""
    wake_rate: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Limit of these scrapes per second over all workloads; 100 use about a tenth of a core. Above it, all gateways are
    scraped less often: 300 at 100 per second, each every 3 s. A shared gateway counts once."""


def _impute_after(given: dict[str, Any]) -> float:
    hold: float = given["hold"]
    return min(60.0, hold)


class Freshness(Section):
    """How long samples count as fresh. Stale data is never zero: it is an error, not a scale-down."""

    intervals: Annotated[float, Field(ge=1, le=1000)] = 3.0
    """Scrape intervals for which a sample is fresh. Lower: one lost scrape makes it stale. Higher: decisions use older
    data."""
    hold: Annotated[float, duration()] = 300.0
    """How long the last decision is held on stale samples; then callers get an error and the HPA keeps its replicas. 0:
    every gap is an error."""
    impute_after: Annotated[float, duration()] = Field(default_factory=_impute_after)
    """If at least half of the ready pods respond for this long, the others are assumed to be like them; until then
    nothing scales down. Never proves idleness. At most `hold`. Default: 1m, or `hold` if shorter."""
    at_start: Annotated[float, duration()] | None = None
    """How long a workload without restored state keeps at least its current replicas, from its first complete samples.
    The first samples say little about earlier load. null: two half-lives of `smoothing.down`, at least 1m."""


class Prices(Section):
    """Costs that `keep_warm: auto` weighs, in any currency: their ratio decides."""

    gpu_hour: Annotated[float, Field(gt=0)] = 2.5
    """Cost of one GPU for an hour, idle or not. Higher scales to zero sooner. Default: about the rent of an H100."""
    waiting_hour: Annotated[float, Field(ge=0)] = 30.0
    """Cost of an hour in which users wait for a start, however many. Higher keeps warm longer. Default: about an hourly
    wage; a start on one GPU is then worth 13 times its duration in warm time. 0: no user waits, as in batch work."""

    @property
    def said_gpu_hour(self) -> float | None:
        """What people have said that a GPU costs; a default is no price."""
        return self.gpu_hour if "gpu_hour" in self.model_fields_set else None


class Snapshots(Section):
    """Checkpoints: state that survives a restart (decisions, windows, estimators)."""

    directory: File
    """Where the last two checkpoints are kept; created if missing. In a container use a volume: an `emptyDir` survives
    the container, a PersistentVolumeClaim the pod. One Tidegate per directory. A change needs a restart."""
    interval: Annotated[float, duration(at_least_s=1, at_most_s=3600)] = 10.0
    """Time between checkpoints: the most that a kill can lose."""


class Explain(Section):
    """Decision log for `tidegate explain` and charts."""

    memory: Annotated[int, size(0, 4 * GiB)] = 64 * MiB
    """Memory of the decision log, shared by all workloads. An entry takes 504 bytes; a workload has 16 to 1440 entries:
    with 64MiB, 70 workloads have 1440 each, and 1000 have 117. 0: no history."""


class Log(Section):
    """Log on standard error."""

    format: Literal["auto", "json", "console"] = "auto"
    """`json`: one object per line. `console`: for terminals. `auto`: `console` on a terminal, else `json`."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""


class Config(Section):
    """Top level of the file."""

    listen: Listen = Listen()
    """Listen addresses."""
    scrape: Scrape = Scrape()
    """How targets are scraped."""
    freshness: Freshness = Freshness()
    """How long samples count as fresh."""
    tick: Annotated[float, duration(at_least_s=0.1, at_most_s=60)] = 1.0
    """Time between sweeps over all workloads for staleness, decay and keep-warm. New samples take effect at once."""
    state: Snapshots | None = None
    """Checkpoints. null: none; after a restart the cluster's replicas are held."""
    log: Log = Log()
    """Log."""
    explain: Explain = Explain()
    """Decision log."""
    prices: Prices = Prices()
    """Costs of an idle GPU and of a waiting user."""
    gpus: Annotated[tuple[Endpoint, ...], Many] = ()
    """GPU targets: dcgm-exporter on the nodes. Without GPUs, requests alone prove idleness. A ClusterIP Service reaches
    a random node: use a headless Service in `dns`, or any in `service`. With `kubernetes` and an empty list,
    dcgm-exporter is discovered."""
    gateways: Annotated[tuple[SharedGateway, ...], Many] = ()
    """Gateways that triggers and annotations may name."""
    kubernetes: Kubernetes | None = None
    """Kubernetes API access; `{}` reads everything. null: none."""
    mode: Mode = "act"
    """Default `mode` of all workloads, including those of triggers and annotations. See
    docs/how-to/observe-first.md."""
    brake: Annotated[Brake, BRAKE] | None = None
    """Brake for all workloads, such as `freeze until 2026-11-23T08:00Z because of the sale`. Applied within a tick of a
    reload."""
    workloads: Annotated[tuple[Workload, ...], Many] = ()
    """Workloads of this file; triggers and annotations add more. KEDA gets an error for any other."""

    def observes(self, workload: Workload) -> bool:
        """Is it only looked at?"""
        return (workload.mode or self.mode) == "observe"

    @property
    def fresh_for(self) -> float:
        """Seconds for which a reading is fresh."""
        return self.scrape.interval * self.freshness.intervals

    @property
    def gpu_search(self) -> DcgmExporter | None:
        """How dcgm-exporter is looked for; None where it is not."""
        return self.kubernetes.dcgm_exporter if self.kubernetes is not None and not self.gpus else None

    @property
    def gpu_kinds(self) -> tuple[str, ...]:
        """The kind of each of `gpus`."""
        return tuple(endpoint.kind or GPUS for endpoint in self.gpus)
