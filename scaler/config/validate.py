"""What must hold between values. What a single value may be, the model says itself.

Pure: a configuration in, findings out. A finding names the key that a person should change, and everything it rests
on; whoever knows that one of those was never read properly throws the finding away.

Worked example: `scrape: {interval: 2s, timeout: 3s}` gives one finding, at ("scrape", "timeout"): "must be at most
the scrape interval (2s)".
"""

from __future__ import annotations

from collections.abc import Iterator

from exporter.catalog import GPU_KINDS
from exporter.model import WorkloadKey

from .errors import Finding, Loc
from .model import Config, Kubernetes, Listen
from .rules import SNAPSHOTS_TOO_OLD, WITHOUT_EFFECT
from .scalars import EVERYWHERE, PAGES_OF_GPUS, Address, write_duration
from .validate_endpoint import access_findings, endpoint_findings
from .validate_workload import brake_findings, group_faults, workload_findings
from .workload import Workload


def findings(config: Config, now: float | None = None) -> Iterator[Finding]:
    """now: POSIX seconds; None: what is over is not looked for."""
    yield from pace_findings(config.scrape.interval, config.scrape.timeout)
    hold = config.freshness.hold
    if config.freshness.impute_after > hold:
        yield Finding(
            ("freshness", "impute_after"),
            f"must be at most hold ({write_duration(hold)}): by then there is nothing left to impute",
            (("freshness", "hold"),),
            write_duration(config.freshness.impute_after),
        )
    if config.state is not None and config.state.interval > hold:
        yield Finding(
            ("state", "interval"),
            f"is more than freshness.hold ({write_duration(hold)}): answers older than that are not believed",
            (("freshness", "hold"),),
            write_duration(config.state.interval),
            "warning",
            SNAPSHOTS_TOO_OLD,
        )
    yield from _listen(config.listen)
    yield from _metrics_api(config)
    yield from _peers(config)
    yield from _kubernetes(config)
    for index, endpoint in enumerate(config.gpus):
        yield from endpoint_findings(("gpus", index), endpoint, "gpus", config.kubernetes)
        if endpoint.kind not in {None, *PAGES_OF_GPUS}:
            bound = f"must be one of {', '.join(PAGES_OF_GPUS)}"
            yield Finding(("gpus", index, "kind"), bound, got=str(endpoint.kind))
    yield from _gateways(config)
    if config.brake is not None:
        yield from brake_findings(("brake",), config.brake, now)
    yield from _twins(config.workloads)
    for index, workload in enumerate(config.workloads):
        yield from workload_findings(("workloads", index), workload, config, now)
    yield from _groups(config.workloads)
    if not config.workloads and not config.gpus and config.kubernetes is None:
        yield Finding(
            ("workloads",),
            "nothing is configured: no page is asked, nothing is decided",
            (("gpus",), ("kubernetes",)),
            severity="warning",
            rule=WITHOUT_EFFECT,
        )


def pace_findings(interval: float, timeout: float) -> Iterator[Finding]:
    """`scrape.interval` and `scrape.timeout`, in seconds."""
    if timeout > interval:
        yield Finding(
            ("scrape", "timeout"),
            f"must be at most the scrape interval ({write_duration(interval)})",
            (("scrape", "interval"),),
            write_duration(timeout),
        )


def _metrics_api(config: Config) -> Iterator[Finding]:
    served, at = config.listen.metrics_api, ("listen", "metrics_api")
    if served is None:
        return
    if config.kubernetes is None:
        bound = "needs kubernetes: the API server says who asks and what they may"
        yield Finding(at, bound, (("kubernetes",),))
    if not served.external and not served.custom:
        switches = ((*at, "external"), (*at, "custom"))
        bound = "serves nothing: neither external nor custom is true"
        yield Finding(at, bound, switches, "", "warning", WITHOUT_EFFECT)
    yield from _taken(at, served.address, config.listen)


def _peers(config: Config) -> Iterator[Finding]:
    peers, at = config.listen.peers, ("listen", "peers")
    if peers is None:
        return
    if config.kubernetes is None:
        yield Finding(at, "needs kubernetes: a Lease says which replica leads", (("kubernetes",),))
    yield from _taken(at, peers.address, config.listen)
    api = config.listen.metrics_api
    if api is not None and peers.address.port == api.address.port != 0 and _meet(peers.address.host, api.address.host):
        bound = f"must be another port than listen.metrics_api.address ({api.address})"
        yield Finding((*at, "address"), bound, (("listen", "metrics_api", "address"),), str(peers.address))


def _taken(at: tuple[str, ...], address: Address, listen: Listen) -> Iterator[Finding]:
    """The port of `at`'s address, where it is that of http or grpc."""
    for name, other in (("http", listen.http), ("grpc", listen.grpc)):
        if address.port == other.port != 0 and _meet(address.host, other.host):
            bound = f"must be another port than listen.{name} ({other})"
            yield Finding((*at, "address"), bound, (("listen", name),), str(address))


def _meet(one: str, other: str) -> bool:
    everywhere = {"0.0.0.0", "::"}  # noqa: S104  compared, not bound
    return one == other or bool({one, other} & everywhere)


def _listen(listen: Listen) -> Iterator[Finding]:
    if listen.http.port == listen.grpc.port != 0 and _meet(listen.http.host, listen.grpc.host):
        yield Finding(
            ("listen", "grpc"),
            f"must be another port than listen.http ({listen.http})",
            (("listen", "http"),),
            str(listen.grpc),
        )


def _kubernetes(config: Config) -> Iterator[Finding]:
    at, kubernetes = ("kubernetes",), config.kubernetes
    if kubernetes is None:
        if "kubernetes" in config.model_fields_set:
            bound = "is left out like this: {} asks for all of it"
            yield Finding(at, bound, severity="warning", rule=WITHOUT_EFFECT)
        return
    if kubernetes.context is not None and kubernetes.kubeconfig is None:
        yield Finding(
            (*at, "context"),
            "needs kubeconfig: a pod's own ServiceAccount has no contexts",
            ((*at, "kubeconfig"),),
            kubernetes.context,
        )
    yield from _repeated((*at, "namespaces"), kubernetes.namespaces)
    exporter = kubernetes.dcgm_exporter
    if exporter is None:
        return
    here = (*at, "dcgm_exporter")
    yield from _repeated((*here, "namespaces"), exporter.namespaces)
    if exporter.access is not None:
        yield from access_findings((*here, "access"), exporter.access, exporter.scheme == "http", ((*here, "scheme"),))
        if (exporter.access.bearer_file or exporter.access.basic) and not exporter.namespaces:
            bound = "needs namespaces: whoever may label a pod would be sent the token or password"
            yield Finding((*here, "access"), bound, ((*here, "namespaces"),))


def _gateways(config: Config) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for index, gateway in enumerate(config.gateways):
        at: Loc = ("gateways", index)
        twin = first.setdefault(gateway.name, index)
        if twin != index:
            bound = f"must be another name than that of gateways.{twin}"
            yield Finding((*at, "name"), bound, (("gateways", twin, "name"),), gateway.name)
        yield from _repeated((*at, "namespaces"), gateway.namespaces)
        if EVERYWHERE in gateway.namespaces and len(set(gateway.namespaces)) > 1:
            yield Finding((*at, "namespaces"), 'must be only ["*"], or names without it: "*" is every namespace')
        yield from endpoint_findings((*at, "page"), gateway.page, "shared gateway", config.kubernetes)
        if gateway.page.kind in GPU_KINDS:
            yield Finding((*at, "page", "kind"), "must see requests", got=gateway.page.kind)
    if config.gateways and not _is_self_service(config.kubernetes):
        bound = "are named by triggers and annotations, and none is looked for: see kubernetes"
        yield Finding(("gateways",), bound, (("kubernetes",),), severity="warning", rule=WITHOUT_EFFECT)


def _is_self_service(kubernetes: Kubernetes | None) -> bool:
    return kubernetes is not None and (kubernetes.triggers or kubernetes.annotations)


def _repeated(at: Loc, names: tuple[str, ...]) -> Iterator[Finding]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Finding((*at, index), f"must be another name than {names.index(name)}", got=name)


def _groups(workloads: tuple[Workload, ...]) -> Iterator[Finding]:
    for fault in group_faults(workloads):
        places = (("workloads", fault.member), ("workloads", fault.other))
        words = tuple((*at, word) for at in places for word in ("group", "role", "ratio", "weight", "gateway"))
        yield Finding((*places[0], *fault.key), fault.message, words, severity=fault.severity, rule=fault.rule)


def _twins(workloads: tuple[Workload, ...]) -> Iterator[Finding]:
    first: dict[WorkloadKey, int] = {}
    for index, workload in enumerate(workloads):
        twin = first.setdefault(workload.key, index)
        if twin != index:
            names = tuple(("workloads", at, part) for at in (twin, index) for part in ("namespace", "name"))
            yield Finding(
                ("workloads", index, "name"),
                f"must be one workload: workloads.{twin} is {workload.key} too",
                names,
                workload.name,
            )
