"""Whom a call is believed to be now, by the last word of the cluster or the configuration, and who waits for the next.

It knows that what is believed gets replaced while streams are open; how a call is compared is `census`'s business,
or `metadata`'s where there is no Kubernetes. Nothing is kept of a call that is refused.

Worked example: a stream is open for `ai/chat`, and the ScaledObject is edited. `take(census)` finds that what is
believed about `ai/chat` is no longer what it was, and ends the turn that the stream waits in; it asks `whose` again
and is told. A census that says the same of `ai/chat` wakes nobody.

Whom a call speaks for where the configuration alone says what workloads there are. Pure.

Without Kubernetes nobody can say what a ScaledObject looks like, so a caller's metadata may only name a workload that
is configured: by `workload`, or by the ScaledObject's own name. Nothing in it names another namespace.

Worked example: ScaledObject `chat` in `team-a` with `{"scalerAddress": "tidegate:6000", "workload": "llama"}` speaks
for `team-a/llama`; without `workload`, for `team-a/chat`; with `wrokload` it is told `metadata.wrokload: unknown key;
did you mean 'workload'? Known: workload`.
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
from scaler.config.trigger import FROM_ENV, KEDAS, WORDS
from scaler.workloads import CallRejected, Doubt, RejectedCall, not_configured, observed


class Believed(Protocol):
    """What is believed at one moment: a Census, or what the configuration alone says."""

    @property
    def triggers(self) -> int:
        """The number of external triggers, which bounds how many calls KEDA has open."""

    def whose(self, namespace: str, name: str, metadata: Mapping[str, str]) -> WorkloadKey:
        """The workload that a call speaks for. Raises Unbelieved."""

    def about(self, namespace: str, name: str) -> object:
        """Equal as long as every call in this object's name gets the same answer from `whose`."""


class Turn:
    """As long as nothing else is believed of one object."""

    def __init__(self) -> None:
        self.over = False
        self._waits: set[asyncio.Timeout] = set()

    def end(self) -> None:
        self.over = True
        for wait in self._waits:
            wait.reschedule(asyncio.get_running_loop().time())

    async def until(self, change: Coroutine[Any, Any, object]) -> None:
        """Wait for a change, but not longer than this turn. What is waited for runs in the caller's own task: a push is
        then under way one step of the loop after its decision, which is what a draining server gives it.
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


class Claims:
    """One writer, the daemon's loop; any number of readers in the same loop.

    triggers: the number of external triggers that are known; None before the first list.
    """

    def __init__(self) -> None:
        self.triggers: int | None = None
        self._believed: Believed | None = None
        self._sighted = True
        # Weak: a turn lives as long as a stream that waits in it, whatever names were made up.
        self._turns: WeakValueDictionary[tuple[str, str], Turn] = WeakValueDictionary()

    def take(self, believed: Believed) -> None:
        """Believe this from now on, and wake the streams of objects that it says something else of."""
        old, self._believed, self._sighted = self._believed, believed, True
        self.triggers = believed.triggers
        for name, turn in list(self._turns.items()):
            if old is None or old.about(*name) != believed.about(*name):
                del self._turns[name]
                turn.end()

    def lose_sight(self) -> None:
        """The cluster has not answered for too long: what it said is still believed, what it did not say is unknown."""
        self._sighted = False

    def whose(self, namespace: str, name: str, metadata: Mapping[str, str]) -> WorkloadKey:
        """The workload that a call speaks for. Raises Unbelieved."""
        if self._believed is None:
            raise RejectedCall(CallRejected(Doubt.UNSEEN, "the cluster's ScaledObjects have not been listed yet"))
        try:
            return self._believed.whose(namespace, name, metadata)
        except RejectedCall as doubted:
            if self._sighted or doubted.refused.doubt not in {Doubt.NOBODY, Doubt.OTHERWISE}:
                raise
            sentence = f"the Kubernetes API does not answer Tidegate; when it last did: {doubted.refused.sentence}"
            raise RejectedCall(CallRejected(Doubt.UNSEEN, sentence, doubted.refused.detail)) from None

    def turn(self, namespace: str, name: str) -> Turn:
        """Over once something else is believed of this object. Keep it for as long as that matters."""
        turn = self._turns.get((namespace, name))
        if turn is None:
            turn = self._turns[namespace, name] = Turn()
        return turn


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
            raise RejectedCall(CallRejected(Doubt.WORDS, str(bad))) from None
        acting = self.acting.get(workload.namespace, {}).get(workload.name)
        if acting is None:
            raise RejectedCall(not_configured(workload))
        if not acting:
            raise RejectedCall(observed(workload))
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
