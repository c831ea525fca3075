"""The whole configuration: a frozen value, its defaults, and what each field does when it is changed.

It knows what a single value may be; what must hold between values is in `checks`, and `load` asks both. So a
`Config` that came out of `load` is right, and one built by hand is as right as its builder. Durations are seconds,
sizes are bytes, ratios are 0..1. The reference and the JSON Schema are generated from here.

Worked example: `Config().scrape.interval` is 5.0, and readings are fresh for `Config().fresh_for` = 15.0 seconds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from ..orders import Brake
from .cluster import DcgmExporter, Kubernetes, SharedGateway
from .endpoint import Endpoint, File, Many, Section
from .kinds import GPUS
from .orders import BRAKE
from .peers import Peers
from .places import FULL_SERVICE
from .scalars import ADDRESS, HOST_NAME, Address, duration, size
from .workload import Mode, Workload

KiB = 2**10
MiB = 2**20
GiB = 2**30
Interval: TypeAlias = Annotated[float, duration(at_least_s=0.1, at_most_s=3600)]


class GrpcTls(Section):
    """TLS of the gRPC listener. The files are read again when they change."""

    certificate: File
    """PEM file of the certificate chain; its name is the host in the ScaledObject's `scalerAddress`."""
    key: File
    """PEM file of its private key."""
    client_ca: File | None = None
    """PEM file of the authorities of KEDA's client certificate. With it a caller without one is turned away;
    without it whoever reaches the port may ask."""


class MetricsApi(Section):
    """The Kubernetes metrics API, for autoscalers without KEDA. It needs `kubernetes`, and an APIService per group."""

    address: Annotated[Address, ADDRESS] = Address("0.0.0.0", 8443)  # noqa: S104
    """Where the API server forwards to."""
    certificate: File
    """PEM file of the certificate chain, for the Service that the APIService names: `tidegate.tidegate.svc`. It is read
    again when it changes."""
    key: File
    """PEM file of its private key."""
    service: Annotated[str, FULL_SERVICE] | None = None
    """Tidegate's own Service, as `NAME.NAMESPACE`: an APIService that names another one is then an error in the log,
    and `tidegate_metrics_api_registered` is 0. Without it the log only says who holds the API group."""
    external: bool = False
    """Serve `external.metrics.k8s.io`. One provider per cluster may: where KEDA is installed, it is KEDA."""
    custom: bool = False
    """Serve `custom.metrics.k8s.io`. One provider per cluster may: often it is prometheus-adapter."""


class Listen(Section):
    """Where Tidegate answers. A port that is already taken is an error; port 0 takes any free one."""

    http: Annotated[Address, ADDRESS] = Address("0.0.0.0", 8080)  # noqa: S104  a pod's address is known to nobody yet
    """The live page at `/`, `/metrics`, `/livez`, `/readyz`, `/api/v1/board` and its like. Plain HTTP: bind it to
    127.0.0.1 behind a proxy if the board is nobody's business. IPv6 is written in quotes, `"[::]:8080"`."""
    http_hosts: Annotated[tuple[Annotated[str, HOST_NAME], ...], Many] = ()
    """Further names under which a browser reaches the live page and `/api/v1`: those of an Ingress, as
    `tidegate.example.com`. A request for another host is refused with 421, so that no foreign web page reads them by
    DNS rebinding. Not needed for IP addresses, `localhost`, names without dots, and names that end in `.svc` or
    `.cluster.local`. `/metrics`, `/livez` and `/readyz` are answered for any host."""
    grpc: Annotated[Address, ADDRESS] = Address("0.0.0.0", 6000)  # noqa: S104
    """KEDA's external scaler: what a ScaledObject's `scalerAddress` names."""
    grpc_tls: GrpcTls | None = None
    """TLS for it. Without it KEDA's calls travel in plain text."""
    metrics_api: MetricsApi | None = None
    """The Kubernetes metrics API, which drives a HorizontalPodAutoscaler without KEDA. Left out: it is not served."""
    peers: Peers | None = None
    """Other replicas of this Tidegate. Left out: there are none, and no Lease is asked for."""


def usual_timeout(given: dict[str, Any]) -> float:
    interval: float = given["interval"]
    return min(3.0, interval)


class Scrape(Section):
    """How pages are asked."""

    interval: Interval = 5.0
    """Between two questions to a page. Shorter sees a burst sooner and costs every engine a page; dcgm-exporter's
    own values change every 30 s unless told otherwise."""
    timeout: Interval = Field(default_factory=usual_timeout)
    """After so long without the whole page the scrape has failed. At most the interval. Default 3s, or the interval
    where that is shorter."""
    body_limit: Annotated[int, size(KiB, GiB)] = 8 * MiB
    """A larger page fails its scrape, so that one page cannot fill the memory. A page of 100 GPUs is about 1 MiB. All
    pages together may take 16 times as much while they are received and read: raise the limit of memory with it."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 64
    """So many pages are asked at once. Fewer is gentler on the network; too few and a round outlasts the
    interval."""
    wake_interval: Interval = 1.0
    """Between two scrapes of a gateway while its workload is at zero: what a request waits for Tidegate to see it.
    Longer costs the gateway less. At the `interval` or above, there are no scrapes but the usual ones."""
    wake_rate: Annotated[int, Field(ge=1, le=10_000)] = 100
    """At most so many of these scrapes a second, all workloads together; 100 take about a tenth of a core. Where more
    gateways wait, all of them are scraped at equal, longer distances: 300 at 100 a second, each every 3 s. A gateway
    that many workloads share counts once."""


def _impute_after(given: dict[str, Any]) -> float:
    hold: float = given["hold"]
    return min(60.0, hold)


class Freshness(Section):
    """How long a reading may be believed. Unknown is never zero: after that it is an error, not a scale-down."""

    intervals: Annotated[float, Field(ge=1, le=1000)] = 3.0
    """A reading is fresh for so many scrape intervals. Fewer makes one lost scrape a stale reading; more acts on
    what is no longer so."""
    hold: Annotated[float, duration()] = 300.0
    """When readings are stale, the last decision is held for so long; then callers get an error, and the HPA keeps
    what it has. 0 makes every gap an error."""
    impute_after: Annotated[float, duration()] = Field(default_factory=_impute_after)
    """When at least half of a workload's ready pods answer for so long while others do not, those are taken to be like
    the ones that do; until then nothing is scaled down. Never enough to go to zero. At most `hold`. Default 1m, or
    `hold` where that is shorter."""
    at_start: Annotated[float, duration()] | None = None
    """Begun without a memory, a workload keeps at least what the cluster has for so long after its first complete
    readings: a first page says little of what came before it. Shorter believes it sooner, and may let go what is wanted
    back in a minute. null: two half-lives of its `smoothing.down`, and at least a minute."""


class Prices(Section):
    """What `keep_warm: auto` weighs. Any currency: the ratio decides, and the amounts are for what is published."""

    gpu_hour: Annotated[float, Field(gt=0)] = 2.5
    """One GPU for an hour, idle or not; a replica of four costs four times that. Higher sleeps sooner. The default is
    about what an H100 is let for."""
    waiting_hour: Annotated[float, Field(ge=0)] = 30.0
    """An hour in which somebody waits for a start, however many wait together. Higher keeps warm for longer. The
    default is about what an hour of work is paid: a start on one GPU is then worth keeping it warm for 13 times as long
    as it takes. 0 says that nobody waits, as for batches."""

    @property
    def said_gpu_hour(self) -> float | None:
        """What people have said that a GPU costs; a default is no price."""
        return self.gpu_hour if "gpu_hour" in self.model_fields_set else None


class Snapshots(Section):
    """What is remembered through a restart: answers, windows, and what was learned."""

    directory: File
    """Where snapshots are written, two at a time; it is made if it is not there. In a container it must be a volume: an
    `emptyDir` outlives the container, a PersistentVolumeClaim the pod. One Tidegate per directory. A change takes a
    restart."""
    interval: Annotated[float, duration(at_least_s=1, at_most_s=3600)] = 10.0
    """How often. What happened since the last one is lost when Tidegate is killed, and nothing else. Shorter writes
    more."""


class Explain(Section):
    """What is kept to explain decisions with."""

    memory: Annotated[int, size(0, 4 * GiB)] = 64 * MiB
    """Memory of the decision log: what was decided of each workload and from what, shared among all of them. An entry
    takes 504 bytes, and a workload has at least 16 and at most 1440, so that with 64 MiB 70 workloads have 1440 and a
    thousand have 117 each. More reaches further back. 0 keeps none: `tidegate explain` then tells of the present alone,
    and charts have no past."""


class Log(Section):
    """What is said on standard error."""

    format: Literal["auto", "json", "console"] = "auto"
    """`json` is one object per line; `console` is for eyes; `auto` is console on a terminal and json elsewhere."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important line that is said. `debug` is for finding faults."""


class Config(Section):
    """Configuration of Tidegate."""

    listen: Listen = Listen()
    """Where Tidegate answers."""
    scrape: Scrape = Scrape()
    """How pages are asked."""
    freshness: Freshness = Freshness()
    """How long a reading may be believed."""
    tick: Annotated[float, duration(at_least_s=0.1, at_most_s=60)] = 1.0
    """How often the passage of time is looked at: staleness, decay, keep-warm. New readings are acted on when they
    arrive, whatever this is; shorter only costs processor time."""
    state: Snapshots | None = None
    """What is remembered through a restart. Left out: nothing is, and after one what the cluster has is held."""
    log: Log = Log()
    """What is said on standard error."""
    explain: Explain = Explain()
    """What is kept to explain decisions with."""
    prices: Prices = Prices()
    """What an idle GPU and a waiting user cost: `keep_warm: auto` is the cheapest between them."""
    gpus: Annotated[tuple[Endpoint, ...], Many] = ()
    """Pages of the nodes' GPUs: dcgm-exporter. Without them no GPU is seen, and idleness rests on requests alone.
    A ClusterIP Service reaches one node by chance: name a headless one in `dns`, or any in `service`. With `kubernetes`
    the list may be left out: dcgm-exporter is then looked for."""
    gateways: Annotated[tuple[SharedGateway, ...], Many] = ()
    """Gateways that triggers and annotations of several namespaces may name."""
    kubernetes: Kubernetes | None = None
    """What to ask the Kubernetes API for; `{}` asks for all of it. Left out: no API server is asked."""
    mode: Mode = "act"
    """What holds for each workload that does not say it itself, those of triggers and annotations among them: `observe`
    looks on, and nobody is told a number. See docs/how-to/observe-first.md."""
    brake: Annotated[Brake, BRAKE] | None = None
    """A brake for all workloads at once, as `freeze until 2026-11-23T08:00Z because of the sale`. It is honoured within
    a tick of the file being read again."""
    workloads: Annotated[tuple[Workload, ...], Many] = ()
    """The scale targets that are named here; with `kubernetes`, triggers and annotations add theirs. KEDA gets an error
    for any other."""

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
