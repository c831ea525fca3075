"""Checks the values of a configuration against each other. The model checks single values.

Pure. A finding names the key to change and all keys that it rests on; the loader drops it if one of them could not be
read.

Worked example: `scrape: {interval: 2s, timeout: 3s}` gives one finding, at ("scrape", "timeout"): "must be at most
the scrape interval (2s)".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from exporter.catalog import GPU_KINDS
from exporter.kubernetes.gpus import is_gpu
from scaler.policy.prices import name_parts

from .errors import Finding, Loc
from .model import Config
from .rules import CHECKPOINTS_TOO_OLD, WITHOUT_EFFECT
from .scalars import EVERYWHERE, GPU_TARGET_KINDS, Address, write_duration
from .validate_endpoint import access_findings, endpoint_findings
from .validate_workload import brake_findings, group_faults, workload_findings
from .workload import Workload


def findings(config: Config, now: float | None = None) -> Iterator[Finding]:
    """now: POSIX seconds; None skips checks for expired brakes."""
    yield from interval_findings(config.scrape.interval, config.scrape.timeout)
    yield from _ages(config)
    yield from _listen(config)
    yield from _kubernetes(config)
    for index, endpoint in enumerate(config.gpus):
        yield from endpoint_findings(("gpus", index), endpoint, "gpus", config.kubernetes)
        if endpoint.kind not in {None, *GPU_TARGET_KINDS}:
            bound = f"must be one of {', '.join(GPU_TARGET_KINDS)}"
            yield Finding(("gpus", index, "kind"), bound, str(endpoint.kind))
    for model in config.prices.gpus:
        if not name_parts(model):
            yield Finding(("prices", "gpus", model), "must be words of a GPU model such as H100 80GB", model)
    yield from _sharing(config)
    yield from _gateways(config)
    if config.brake is not None:
        yield from brake_findings(("brake",), config.brake, now)
    for index, first in _twins([workload.key for workload in config.workloads]):
        names = tuple(("workloads", at, part) for at in (first, index) for part in ("namespace", "name"))
        workload = config.workloads[index]
        bound = f"must be one workload: workloads.{first} is {workload.key} too"
        yield Finding(("workloads", index, "name"), bound, workload.name, rests_on=names)
    for index, workload in enumerate(config.workloads):
        yield from workload_findings(("workloads", index), workload, config, now)
    yield from _groups(config.workloads)
    if not config.workloads and not config.gpus and config.kubernetes is None:
        bound = "nothing is configured: no target is scraped, nothing is decided"
        yield Finding(("workloads",), bound, None, WITHOUT_EFFECT, (("gpus",), ("kubernetes",)))


def interval_findings(interval_s: float, timeout_s: float) -> Iterator[Finding]:
    """`scrape.interval` and `scrape.timeout`."""
    if timeout_s > interval_s:
        bound = f"must be at most the scrape interval ({write_duration(interval_s)})"
        yield Finding(("scrape", "timeout"), bound, write_duration(timeout_s), rests_on=(("scrape", "interval"),))


def _ages(config: Config) -> Iterator[Finding]:
    hold, impute_after, state = config.freshness.hold, config.freshness.impute_after, config.state
    rests_on: tuple[Loc, ...] = (("freshness", "hold"),)
    if impute_after > hold:
        bound = f"must be at most hold ({write_duration(hold)}): after that nothing is imputed"
        yield Finding(("freshness", "impute_after"), bound, write_duration(impute_after), rests_on=rests_on)
    if state is not None and state.interval > hold:
        bound = f"is more than freshness.hold ({write_duration(hold)}): older decisions are not restored"
        yield Finding(("state", "interval"), bound, write_duration(state.interval), CHECKPOINTS_TOO_OLD, rests_on)


def _listen(config: Config) -> Iterator[Finding]:
    """The listeners' ports, and what the metrics API and the replicas need."""
    listen, kubernetes = config.listen, (("kubernetes",),)
    api, peers = listen.metrics_api, listen.peers
    addresses: list[tuple[Loc, Address]] = [(("listen", "http"), listen.http), (("listen", "grpc"), listen.grpc)]
    if api is not None:
        at: Loc = ("listen", "metrics_api")
        if config.kubernetes is None:
            yield Finding(at, "needs kubernetes: the API server authenticates callers", rests_on=kubernetes)
        if not api.external and not api.custom:
            switches = ((*at, "external"), (*at, "custom"))
            yield Finding(at, "serves nothing: neither external nor custom is true", None, WITHOUT_EFFECT, switches)
        addresses.append(((*at, "address"), api.address))
    if peers is not None:
        at = ("listen", "peers")
        if config.kubernetes is None:
            yield Finding(at, "needs kubernetes: a Lease names the leader", rests_on=kubernetes)
        addresses.append(((*at, "address"), peers.address))
    for index, (key, address) in enumerate(addresses):
        for other_key, other in addresses[:index]:
            if address.port == other.port != 0 and _overlap(address.host, other.host):
                bound = f"must be another port than {'.'.join(map(str, other_key))} ({other})"
                yield Finding(key, bound, str(address), rests_on=(other_key,))


def _overlap(host: str, other: str) -> bool:
    wildcards = {"0.0.0.0", "::"}  # noqa: S104  compared, not bound
    return host == other or bool({host, other} & wildcards)


def _kubernetes(config: Config) -> Iterator[Finding]:
    at, kubernetes = ("kubernetes",), config.kubernetes
    if kubernetes is None:
        if "kubernetes" in config.model_fields_set:
            yield Finding(at, "is disabled by null: {} enables all of it", rule=WITHOUT_EFFECT)
        return
    if kubernetes.context is not None and kubernetes.kubeconfig is None:
        bound = "needs kubeconfig: a pod's ServiceAccount has no contexts"
        yield Finding((*at, "context"), bound, kubernetes.context, rests_on=((*at, "kubeconfig"),))
    yield from _repeated((*at, "namespaces"), kubernetes.namespaces)
    exporter = kubernetes.dcgm_exporter
    if exporter is None:
        return
    here = (*at, "dcgm_exporter")
    yield from _repeated((*here, "namespaces"), exporter.namespaces)
    if exporter.access is not None:
        yield from access_findings((*here, "access"), exporter.access, exporter.scheme == "http", ((*here, "scheme"),))
        if (exporter.access.bearer_file or exporter.access.basic) and not exporter.namespaces:
            bound = "needs namespaces: else a tenant that labels a pod receives the token or password"
            yield Finding((*here, "access"), bound, rests_on=((*here, "namespaces"),))


def _sharing(config: Config) -> Iterator[Finding]:
    at, kubernetes = ("sharing",), config.kubernetes
    if config.sharing is None:
        return
    if kubernetes is None:
        yield Finding(at, "needs kubernetes: its nodes have the GPUs", rests_on=(("kubernetes",),))
    elif kubernetes.namespaces:
        bound = "needs all namespaces: pods of the others use GPUs too"
        yield Finding(at, bound, rests_on=(("kubernetes", "namespaces"),))
    for resource in config.sharing.growth:
        if not is_gpu(resource):
            bound = "is no resource name of GPUs such as nvidia.com/gpu"
            yield Finding((*at, "growth", resource), bound, resource)


def _gateways(config: Config) -> Iterator[Finding]:
    for index, first in _twins([gateway.name for gateway in config.gateways]):
        bound = f"must be another name than that of gateways.{first}"
        name = config.gateways[index].name
        yield Finding(("gateways", index, "name"), bound, name, rests_on=(("gateways", first, "name"),))
    for index, gateway in enumerate(config.gateways):
        at: Loc = ("gateways", index)
        yield from _repeated((*at, "namespaces"), gateway.namespaces)
        if EVERYWHERE in gateway.namespaces and len(set(gateway.namespaces)) > 1:
            yield Finding((*at, "namespaces"), 'must be only ["*"], or names without it: "*" is every namespace')
        yield from endpoint_findings((*at, "page"), gateway.page, "shared gateway", config.kubernetes)
        if gateway.page.kind in GPU_KINDS:
            yield Finding((*at, "page", "kind"), "must see requests", gateway.page.kind)
    kubernetes = config.kubernetes
    if config.gateways and not (kubernetes is not None and (kubernetes.triggers or kubernetes.annotations)):
        bound = "are for triggers and annotations, which kubernetes does not enable"
        yield Finding(("gateways",), bound, None, WITHOUT_EFFECT, (("kubernetes",),))


def _groups(workloads: tuple[Workload, ...]) -> Iterator[Finding]:
    for fault in group_faults(workloads):
        members: tuple[Loc, ...] = (("workloads", fault.member), ("workloads", fault.other))
        rests_on = tuple((*at, key) for at in members for key in ("group", "role", "ratio", "weight", "gateway"))
        yield Finding((*members[0], *fault.key), fault.message, None, fault.rule, rests_on)


def _repeated(at: Loc, names: tuple[str, ...]) -> Iterator[Finding]:
    for index, first in _twins(names):
        yield Finding((*at, index), f"must be another name than {first}", names[index])


def _twins(values: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """The index of each repeated value, and the index of its first occurrence."""
    first: dict[Hashable, int] = {}
    for index, value in enumerate(values):
        if first.setdefault(value, index) != index:
            yield index, first[value]
