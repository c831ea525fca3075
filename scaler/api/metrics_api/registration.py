"""Follows which Service the APIService of each group names: a cluster has one provider per version of an API group.

If KEDA or prometheus-adapter holds the APIService, no HPA reaches Tidegate, and nothing fails: so it is read again and
again, and each change is logged. Whether the Service answers is the API server's own check (`kubectl get apiservice`).

Worked example: for `keda = ServiceReference("keda", "keda-operator-metrics-apiserver")` and
`ours = ServiceReference("tidegate", "tidegate")`, `registration_state(keda, ours)` is `RegistrationState.OTHER`;
`registration_state(None, ours)` is `NONE`, and `registration_state(keda, None)` is `HELD`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

import structlog

from exporter.clock import Clock
from exporter.kubernetes.auth import ApiServices, ServiceReference
from exporter.kubernetes.protocol import ApiFailure, Forbidden

from .discovery import VERSIONS
from .documents import EXTERNAL_GROUP
from .server import READ_AGAIN_S, RETRY_S

# The API group, its version, and whether it is ours; None is unknown.
Observe = Callable[[str, str, bool | None], None]


class RegistrationState(Enum):
    """The provider of an API group. HELD: it has a holder, and our Service is not configured. UNKNOWN: not readable."""

    OURS = auto()
    OTHER = auto()
    HELD = auto()
    NONE = auto()
    UNKNOWN = auto()


class Registration(NamedTuple):
    """One APIService. holder: None if there is none or it is unknown."""

    group: str
    version: str
    state: RegistrationState
    holder: ServiceReference | None = None

    @property
    def name(self) -> str:
        return f"{self.version}.{self.group}"

    @property
    def ours(self) -> bool | None:
        unknown = self.state in {RegistrationState.HELD, RegistrationState.UNKNOWN}
        return None if unknown else self.state is RegistrationState.OURS


def registration_state(holder: ServiceReference | None, service: ServiceReference | None) -> RegistrationState:
    """holder: of an APIService; None if there is none. service: ours; None if not configured."""
    if holder is None:
        return RegistrationState.NONE
    if service is None:
        return RegistrationState.HELD
    return RegistrationState.OURS if holder == service else RegistrationState.OTHER


async def follow(
    services: ApiServices, clock: Clock, groups: Iterable[str], service: ServiceReference | None, observe: Observe
) -> None:
    """Reads the APIServices of these groups until cancelled, and reports each change. service: ours."""
    wanted = [(group, version) for group in sorted(groups) for version in VERSIONS[group]]
    last: dict[str, Registration] = {}
    while True:
        pause_s = READ_AGAIN_S
        for group, version in wanted:
            found, problem, soon = await _read(services, group, version, service)
            pause_s = RETRY_S if soon else pause_s
            if last.get(found.name) != found:
                last[found.name] = found
                observe(group, version, found.ours)
                _log(found, service, problem)
        await clock.sleep(pause_s)


async def _read(
    services: ApiServices, group: str, version: str, service: ServiceReference | None
) -> tuple[Registration, str, bool]:
    """The registration, why it is unknown, and whether to retry soon: RBAC does not change within seconds."""
    try:
        holder = await services.holder(f"{version}.{group}")
    except ApiFailure as failed:
        return Registration(group, version, RegistrationState.UNKNOWN), failed.detail, not isinstance(failed, Forbidden)
    return Registration(group, version, registration_state(holder, service), holder), "", False


def _log(found: Registration, service: ServiceReference | None, problem: str) -> None:
    log = structlog.get_logger().bind(api_service=found.name)
    match found.state:
        case RegistrationState.OURS:
            log.info("API group registered")
        case RegistrationState.OTHER:
            log.error(
                "API group has another provider", holder=str(found.holder), ours=str(service), do=_remedy(found.group)
            )
        case RegistrationState.HELD:
            why = "listen.metrics_api.service is not configured"
            log.info("API group provider not compared", holder=str(found.holder), why=why)
        case RegistrationState.NONE:
            do = "apply Tidegate's APIService: the chart and deploy/kustomize/components/metrics-api have it"
            log.warning("API group not registered", do=do)
        case RegistrationState.UNKNOWN:
            log.warning("API group provider unknown", problem=problem)


def _remedy(group: str) -> str:
    instead = (
        "let KEDA call Tidegate (external: false, and mode: keda of the chart)"
        if group == EXTERNAL_GROUP
        else "turn it off (custom: false)"
    )
    return f"a cluster has one provider of {group}: {instead}, or remove that APIService and apply Tidegate's"
