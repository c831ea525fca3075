"""Authorizes KEDA's calls by the newest workload registry or, without Kubernetes, by the configuration alone.

The registry is replaced while streams are open. A stream waits in a `Turn` of its ScaledObject, which ends once the
registry says something else about that object; then the stream is authorized again. Nothing is stored of a refused
call.

Without Kubernetes nothing shows what a ScaledObject looks like, so its metadata may only name a configured workload:
by `workload`, or by the ScaledObject's own name. No metadata names another namespace.

Worked example: a stream is open for `ai/chat`, and the ScaledObject is edited. `take(registry)` ends the turn of
`ai/chat`, and the stream calls `authorize` again. A registry that says the same about `ai/chat` ends no turn. Without
Kubernetes, ScaledObject `chat` in `team-a` with `workload: llama` speaks for `team-a/llama`, without it for
`team-a/chat`; with `wrokload` its call gets `metadata.wrokload: unknown key; did you mean 'workload'? Known: workload`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol, Self
from weakref import WeakValueDictionary

from exporter.model import WorkloadKey
from scaler.config import Config
from scaler.config.errors import shown
from scaler.config.trigger import FROM_ENV, KEDA_KEYS, TRIGGER_KEYS
from scaler.workloads import CallRejected, Doubt, RejectedCall, not_configured, observed

WORKLOAD = "workload"
# RFC 1123 as Kubernetes reads it: a namespace is a label, the names of workloads and ScaledObjects are subdomains.
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PLAIN_KEY = re.compile(r"[\w.-]{1,63}", re.ASCII)


class Authorizer(Protocol):
    """A workload registry, or the configuration alone."""

    @property
    def triggers(self) -> int:
        """The number of external triggers, which bounds how many calls KEDA has open."""

    def authorize(self, namespace: str, name: str, metadata: Mapping[str, str]) -> WorkloadKey:
        """The workload that a call speaks for. Raises RejectedCall."""

    def about(self, namespace: str, name: str) -> object:
        """A value that is equal as long as every call for this object gets the same result from `authorize`."""


class Turn:
    """The time in which one object is authorized in the same way."""

    def __init__(self) -> None:
        self.over = False
        self._waits: set[asyncio.Timeout] = set()

    def end(self) -> None:
        self.over = True
        for wait in self._waits:
            wait.reschedule(asyncio.get_running_loop().time())

    async def until(self, change: Coroutine[Any, Any, object]) -> None:
        """Waits for a change, at most until this turn ends. The change is awaited in the caller's own task: so a push
        is under way one step of the loop after its decision, which is what a draining server gives it.
        """
        if self.over:
            change.close()
            return
        try:
            async with asyncio.timeout(None) as wait:
                self._waits.add(wait)
                try:
                    await change
                finally:
                    self._waits.discard(wait)
        except TimeoutError:
            if not self.over:
                raise


class CallAuthorizer:
    """Authorizes calls. One writer, the daemon's loop; any number of readers in the same loop.

    triggers: the number of external triggers; None before the first list.
    """

    def __init__(self) -> None:
        self.triggers: int | None = None
        self._authorizer: Authorizer | None = None
        self._is_current = True
        # Weak: a turn lives as long as a stream waits in it, whatever names a client invents.
        self._turns: WeakValueDictionary[tuple[str, str], Turn] = WeakValueDictionary()

    def take(self, authorizer: Authorizer) -> None:
        """Replaces the authorizer, and ends the turns of objects about which it says something else."""
        old, self._authorizer, self._is_current = self._authorizer, authorizer, True
        self.triggers = authorizer.triggers
        for name, turn in list(self._turns.items()):
            if old is None or old.about(*name) != authorizer.about(*name):
                del self._turns[name]
                turn.end()

    def lose_sight(self) -> None:
        """Marks the registry as stale. Known callers stay authorized; unknown callers get UNAVAILABLE."""
        self._is_current = False

    def authorize(self, namespace: str, name: str, metadata: Mapping[str, str]) -> WorkloadKey:
        """The workload that a call speaks for. Raises RejectedCall."""
        if self._authorizer is None:
            raise RejectedCall(CallRejected(Doubt.NOT_SYNCED, "the cluster's ScaledObjects have not been listed yet"))
        try:
            return self._authorizer.authorize(namespace, name, metadata)
        except RejectedCall as rejected:
            if self._is_current or rejected.refused.doubt not in {Doubt.NOT_CONFIGURED, Doubt.MISMATCH}:
                raise
            sentence = f"the Kubernetes API does not answer Tidegate; when it last did: {rejected.refused.sentence}"
            raise RejectedCall(CallRejected(Doubt.NOT_SYNCED, sentence, rejected.refused.detail)) from None

    def turn(self, namespace: str, name: str) -> Turn:
        """The current turn of one object. The caller must keep it."""
        turn = self._turns.get((namespace, name))
        if turn is None:
            turn = self._turns[namespace, name] = Turn()
        return turn


class BadMetadata(ValueError):  # noqa: N818 - named after the side at fault
    """Metadata that a tenant must correct. bound: the rule; value: the value that broke it, if one did."""

    def __init__(self, key: str, bound: str, value: str | None = None) -> None:
        super().__init__(f"{key}: {bound}" if value is None else f"{key}: {bound}, got {shown(value)}")
        self.key = key
        self.bound = bound
        self.value = value


@dataclass(frozen=True, slots=True)
class ConfiguredWorkloads:
    """The authorizer without Kubernetes. acting: by namespace and name, whether the mode is `act`."""

    acting: Mapping[str, Mapping[str, bool]]

    @classmethod
    def by(cls, config: Config) -> Self:
        acting: dict[str, dict[str, bool]] = {}
        for workload in config.workloads:
            acting.setdefault(workload.namespace, {})[workload.name] = not config.observes(workload)
        return cls(acting)

    @property
    def triggers(self) -> int:
        """One for each workload: the configuration does not show how many ScaledObjects name one."""
        return sum(len(names) for names in self.acting.values())

    def authorize(self, namespace: str, name: str, metadata: Mapping[str, str]) -> WorkloadKey:
        """The workload that a call speaks for. Raises RejectedCall."""
        try:
            workload = read(namespace, name, metadata)
        except BadMetadata as bad:
            raise RejectedCall(CallRejected(Doubt.INVALID, str(bad))) from None
        acting = self.acting.get(workload.namespace, {}).get(workload.name)
        if acting is None:
            raise RejectedCall(not_configured(workload))
        if not acting:
            raise RejectedCall(observed(workload))
        return workload

    def about(self, namespace: str, name: str) -> object:  # noqa: ARG002 - it may name any workload of its namespace
        """Equal as long as every call in this object's name gets the same result."""
        return self.acting.get(namespace)


def read(namespace: str, name: str, metadata: Mapping[str, str]) -> WorkloadKey:
    """The workload that a ScaledObject names. Raises BadMetadata."""
    _refuse_unknown_keys(metadata)
    namespace = _matching(_LABEL.fullmatch, "scaledObjectRef.namespace", "must be a DNS-1123 label", namespace)
    key, name = (f"metadata.{WORKLOAD}", metadata[WORKLOAD]) if WORKLOAD in metadata else ("scaledObjectRef.name", name)
    if "/" in name:
        raise BadMetadata(key, "must be a name in the ScaledObject's own namespace, without a '/'", name)
    return WorkloadKey(namespace, _matching(_SUBDOMAIN.fullmatch, key, "must be a DNS-1123 name", name))


def _refuse_unknown_keys(keys: Iterable[str]) -> None:
    unknown = [key for key in keys if key != WORKLOAD and key.removesuffix(FROM_ENV) not in KEDA_KEYS]
    if not unknown:
        return
    key = min(unknown)
    if key in TRIGGER_KEYS:
        bound = (
            "not allowed: the configuration has no `kubernetes` with `triggers`, so a trigger can only name a "
            f"configured workload. Known: {WORKLOAD}"
        )
        raise BadMetadata(f"metadata.{key}", bound)
    near = get_close_matches(key, (WORKLOAD, *KEDA_KEYS), n=1) if _PLAIN_KEY.fullmatch(key) else []
    hint = f"; did you mean '{near[0]}'?" if near else "."
    name = key if _PLAIN_KEY.fullmatch(key) else shown(key)
    raise BadMetadata(f"metadata.{name}", f"unknown key{hint} Known: {WORKLOAD}")


def _matching(match: Callable[[str], object], key: str, bound: str, value: str) -> str:
    if not match(value):
        raise BadMetadata(key, bound, value)
    return value
