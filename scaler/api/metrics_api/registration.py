"""Is it us whom the API server forwards to? A cluster has one provider for each version of an API group.

Where KEDA or prometheus-adapter holds the APIService, no HorizontalPodAutoscaler ever asks us, and nothing fails: so it
is looked at again and again, and said once for each change. What it knows is the Service that each APIService names;
whether that Service answers, the API server itself looks at (`kubectl get apiservice`).

Worked example: `standing(Holder("keda", "keda-operator-metrics-apiserver"), Holder("tidegate", "tidegate"))` is
`Standing.ANOTHERS`; with None for the first it is `Standing.NOBODYS`, and with None for the second `Standing.HELD`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

import structlog

from exporter.clock import Clock
from exporter.kubernetes.auth import ApiServices, Holder
from exporter.kubernetes.protocol import ApiFailure, Forbidden

from .discovery import VERSIONS
from .documents import EXTERNAL_GROUP
from .server import READ_AGAIN_S, RETRY_S

# The API group, its version, and whether it is ours; None: that is not known.
Told = Callable[[str, str, bool | None], None]


class RegistrationState(Enum):
    """HELD: by somebody, and who we are was not said. UNSEEN: the API server did not say."""

    OURS = auto()
    ANOTHERS = auto()
    HELD = auto()
    NOBODYS = auto()
    UNSEEN = auto()


class Registration(NamedTuple):
    """What is known of one APIService. holder: None where there is none or it is not known."""

    group: str
    version: str
    standing: RegistrationState
    holder: Holder | None = None

    @property
    def name(self) -> str:
        return f"{self.version}.{self.group}"

    @property
    def ours(self) -> bool | None:
        return (
            None
            if self.standing in {RegistrationState.HELD, RegistrationState.UNSEEN}
            else self.standing is RegistrationState.OURS
        )


def standing(holder: Holder | None, own: Holder | None) -> RegistrationState:
    """holder: of an APIService; None: there is none. own: our Service; None: nobody told us which."""
    if holder is None:
        return RegistrationState.NOBODYS
    if own is None:
        return RegistrationState.HELD
    return RegistrationState.OURS if holder == own else RegistrationState.ANOTHERS


async def follow(services: ApiServices, clock: Clock, groups: Iterable[str], own: Holder | None, told: Told) -> None:
    """Look at the APIServices of these groups until cancelled, and say each change: to `told`, and in the log."""
    wanted = [(group, version) for group in sorted(groups) for version in VERSIONS[group]]
    said: dict[str, Registration] = {}
    while True:
        pause_s = READ_AGAIN_S
        for group, version in wanted:
            seen, problem, soon = await _look(services, group, version, own)
            pause_s = RETRY_S if soon else pause_s
            if said.get(seen.name) != seen:
                said[seen.name] = seen
                told(group, version, seen.ours)
                _say(seen, own, problem)
        await clock.sleep(pause_s)


async def _look(services: ApiServices, group: str, version: str, own: Holder | None) -> tuple[Registration, str, bool]:
    """What is so, why it is not known, and whether to ask again soon: what RBAC refuses is not mended in seconds."""
    try:
        holder = await services.holder(f"{version}.{group}")
    except ApiFailure as failed:
        return Registration(group, version, RegistrationState.UNSEEN), failed.detail, not isinstance(failed, Forbidden)
    return Registration(group, version, standing(holder, own), holder), "", False


def _say(seen: Registration, own: Holder | None, problem: str) -> None:
    log = structlog.get_logger().bind(api_service=seen.name)
    match seen.standing:
        case RegistrationState.OURS:
            log.info("the API server forwards this API group to us")
        case RegistrationState.ANOTHERS:
            log.error("this API group belongs to somebody else", holder=str(seen.holder), ours=str(own), do=_do(seen))
        case RegistrationState.HELD:
            why = "listen.metrics_api.service does not say which Service is ours"
            log.info("this API group has a holder; whether that is us is not known", holder=str(seen.holder), why=why)
        case RegistrationState.NOBODYS:
            do = "apply Tidegate's APIService: the chart and deploy/kustomize/components/metrics-api have it"
            log.warning("nobody has registered this API group: no HorizontalPodAutoscaler can find us", do=do)
        case RegistrationState.UNSEEN:
            log.warning("who holds this API group cannot be seen", problem=problem)


def _do(seen: Registration) -> str:
    instead = (
        "let KEDA ask (external: false, and mode: keda of the chart)"
        if seen.group == EXTERNAL_GROUP
        else "do without it (custom: false)"
    )
    return f"a cluster has one provider of {seen.group}: {instead}, or remove that APIService and apply Tidegate's"
