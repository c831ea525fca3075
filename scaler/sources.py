"""From configuration to discoveries and plans: what the file says, in the words of the rooms that do the work."""

from __future__ import annotations

from collections.abc import Callable

from exporter.model import Role, Target, WorkloadKey
from exporter.targets import Discovery
from exporter.targets.dns import DnsTargets
from exporter.targets.static import StaticTargets

from .config import Config, Endpoint, Workload
from .decider import Plan
from .policy import Signal, Spec
from .signals import Smoothing


def discoveries(config: Config) -> list[Discovery]:
    """Everybody who has to be asked where pages are."""
    found = [
        _discovery(config, endpoint, kind, Role.GPUS, None)
        for endpoint, kind in zip(config.gpus, config.gpu_kinds, strict=True)
    ]
    for workload in config.workloads:
        if workload.pods is not None:
            kind = workload.pods.kind or workload.engine or "auto"
            found.append(_discovery(config, workload.pods, kind, Role.PODS, workload.key))
        if workload.gateway is not None:
            found.append(_discovery(config, workload.gateway, workload.gateway_kind, Role.GATEWAY, workload.key))
    return found


def _discovery(config: Config, endpoint: Endpoint, kind: str, role: Role, owner: WorkloadKey | None) -> Discovery:
    lists_pods = owner if role is Role.PODS else None
    if endpoint.dns is None:
        return StaticTargets(
            (Target(url, kind, role, owner, endpoint.admission()) for url in endpoint.pages(kind)), owner=lists_pods
        )
    return DnsTargets(
        endpoint.dns,
        _target_at(endpoint, kind, role, owner),
        owner=lists_pods,
        timeout_s=config.scrape.timeout,
        keep_s=config.fresh_for,
    )


def _target_at(endpoint: Endpoint, kind: str, role: Role, owner: WorkloadKey | None) -> Callable[[str], Target]:
    def target(address: str) -> Target:
        return Target(endpoint.page_at(address, kind), kind, role, owner, endpoint.admission())

    return target


def plans(config: Config) -> list[Plan]:
    """What the decider needs to know of each workload."""
    return [_plan(config, workload) for workload in config.workloads]


def _plan(config: Config, workload: Workload) -> Plan:
    wished = (
        (Signal.WORK, workload.work),
        (Signal.KV_CACHE, workload.objectives.kv_cache if workload.pods is not None else None),
        (Signal.GPU_ENGINE, workload.objectives.gpu_engine),
    )
    return Plan(
        workload=workload.key,
        spec=Spec(
            minimum=workload.replicas.min,
            maximum=workload.replicas.max,
            targets=tuple((signal, target) for signal, target in wished if target is not None),
            keep_warm=workload.keep_warm,
            hold=config.freshness.hold,
            band=workload.scale_down_band,
            gpu_quiet=workload.gpu_quiet,
            pods=workload.pods is not None,
            gateway=workload.gateway is not None,
        ),
        smoothing=Smoothing(up_s=workload.smoothing.up, down_s=workload.smoothing.down),
        queue=workload.model,
        pod_pattern=workload.pod_pattern,
    )
