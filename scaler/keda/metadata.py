"""Whom a call speaks for where the configuration alone says what workloads there are. Pure.

Without Kubernetes nobody can say what a ScaledObject looks like, so a caller's metadata may only name a workload that
is configured: by `workload`, or by the ScaledObject's own name. Nothing in it names another namespace.

Worked example: ScaledObject `chat` in `team-a` with `{"scalerAddress": "tidegate:6000", "workload": "llama"}` speaks
for `team-a/llama`; without `workload`, for `team-a/chat`; with `wrokload` it is told `metadata.wrokload: unknown key;
did you mean 'workload'? Known: workload`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

from exporter.model import WorkloadKey

from ..census import Doubt, Refused, Unbelieved, not_configured, observed
from ..config import Config
from ..config.bad_words import shown
from ..config.trigger import FROM_ENV, KEDAS, WORDS

WORKLOAD = "workload"

# RFC 1123 as Kubernetes reads it: a namespace is a label, the names of workloads and ScaledObjects are subdomains.
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PLAIN_KEY = re.compile(r"[\w.-]{1,63}", re.ASCII)


class BadMetadata(ValueError):  # noqa: N818 - named for whose fault it is
    """A tenant's mistake. `key`: where it stands; `bound`: the rule; `value`: what was given, where that broke it."""

    def __init__(self, key: str, bound: str, value: str | None = None) -> None:
        super().__init__(f"{key}: {bound}" if value is None else f"{key}: {bound}, got {shown(value)}")
        self.key = key
        self.bound = bound
        self.value = value


@dataclass(frozen=True, slots=True)
class Configured:
    """What is believed without Kubernetes. acting: by namespace and name, may the workload's number be asked for?"""

    acting: Mapping[str, Mapping[str, bool]]

    @classmethod
    def by(cls, config: Config) -> Self:
        acting: dict[str, dict[str, bool]] = {}
        for workload in config.workloads:
            acting.setdefault(workload.namespace, {})[workload.name] = not config.observes(workload)
        return cls(acting)

    @property
    def triggers(self) -> int:
        """One for each workload: how many ScaledObjects name a workload, the configuration does not know."""
        return sum(len(names) for names in self.acting.values())

    def whose(self, namespace: str, name: str, metadata: Mapping[str, str]) -> WorkloadKey:
        """The workload that a call speaks for. Raises Unbelieved."""
        try:
            workload = read(namespace, name, metadata)
        except BadMetadata as bad:
            raise Unbelieved(Refused(Doubt.WORDS, str(bad))) from None
        acting = self.acting.get(workload.namespace, {}).get(workload.name)
        if acting is None:
            raise Unbelieved(not_configured(workload))
        if not acting:
            raise Unbelieved(observed(workload))
        return workload

    def about(self, namespace: str, name: str) -> object:  # noqa: ARG002 - it may name any workload of its namespace
        """Equal as long as every call in this object's name gets the same answer."""
        return self.acting.get(namespace)


def read(namespace: str, name: str, metadata: Mapping[str, str]) -> WorkloadKey:
    """The workload a ScaledObject asks about. Raises BadMetadata."""
    _refuse_unknown_keys(metadata)
    namespace = _matching(_LABEL.fullmatch, "scaledObjectRef.namespace", "must be a DNS-1123 label", namespace)
    key, name = (f"metadata.{WORKLOAD}", metadata[WORKLOAD]) if WORKLOAD in metadata else ("scaledObjectRef.name", name)
    if "/" in name:
        raise BadMetadata(key, "must be a name in the ScaledObject's own namespace, without a '/'", name)
    return WorkloadKey(namespace, _matching(_SUBDOMAIN.fullmatch, key, "must be a DNS-1123 name", name))


def _refuse_unknown_keys(keys: Iterable[str]) -> None:
    unknown = sorted(key for key in keys if key != WORKLOAD and key.removesuffix(FROM_ENV) not in KEDAS)
    if not unknown:
        return
    key = unknown[0]
    if key in WORDS:
        bound = (
            "cannot be said here: Tidegate's configuration has no `kubernetes` with `triggers`, so a trigger can only "
            f"name a configured workload. Known: {WORKLOAD}"
        )
        raise BadMetadata(f"metadata.{key}", bound)
    near = get_close_matches(key, (WORKLOAD, *KEDAS), n=1) if _PLAIN_KEY.fullmatch(key) else []
    hint = f"; did you mean '{near[0]}'?" if near else "."
    name = key if _PLAIN_KEY.fullmatch(key) else shown(key)
    raise BadMetadata(f"metadata.{name}", f"unknown key{hint} Known: {WORKLOAD}")


def _matching(match: Callable[[str], object], key: str, bound: str, value: str) -> str:
    if not match(value):
        raise BadMetadata(key, bound, value)
    return value
