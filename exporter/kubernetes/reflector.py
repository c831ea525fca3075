"""Keeps a store up to date with one resource of a cluster: a list, then a watch, then a watch from where that ended.

A watch that ends is asked for again from the last version heard of, without a list; a list is taken only at the start,
when the API has forgotten that version (410), or when a line was lost on the way. What it means that nobody answers is
the store's to judge: it is told when we began not to hear, and when we hear again.

Worked example: pods are listed at version 4711 and the watch says MODIFIED 4712, BOOKMARK 4790. The API server
restarts: the next watch is from 4790. It refuses connections for a while: tries after about 1, 2, 4 … 30 s, one line
in the log, one `store.lost`. It has compacted its history since: 410, and a list.

Everything that is asked of a Kubernetes API, at once: one task for each resource of each namespace.

client = await connect(kubeconfig=None, context=None)
await watch_all(client, cluster, namespaces=(), clock=clock, told=log_it, jitter=Random())   # until cancelled
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import Any, NoReturn, Protocol

from exporter.clock import Clock

from .protocol import (
    ADDED,
    BOOKMARK,
    DELETED,
    MODIFIED,
    Absent,
    Api,
    ApiFailure,
    Document,
    Event,
    Forbidden,
    Garbled,
    Gone,
)
from .resources import RESOURCES, Resource

FIRST_DELAY_S, LONGEST_DELAY_S = 1.0, 30.0
# Rights and kinds come with somebody's next `kubectl apply`: no use in asking every second.
REFUSED_DELAY_S, ABSENT_DELAY_S = 60.0, 300.0
# A watch that lasted this long was a good one, even if there was nothing to say. Servers end them after minutes.
GOOD_WATCH_S = 30.0

Told = Callable[[Resource, str | None, str | None], None]
"""`told(resource, namespace, problem)`: a sentence when the state changes, None when all is well again."""


class Store(Protocol):
    """Who wants to know. `now`: POSIX seconds. namespace: None is all of them."""

    def trim(self, resource: Resource, documents: Sequence[Document], /) -> Sequence[Any]:
        """What is kept of a page of a list; it changes nothing yet."""

    def replace_with(self, resource: Resource, namespace: str | None, kept: Sequence[Any], now: float, /) -> None:
        """What `trim` has made of these is all there is (in that namespace); forget any other."""

    def apply(self, resource: Resource, happened: str, document: Document, now: float, /) -> None:
        """One was ADDED, MODIFIED or DELETED. May say again what is known already."""

    def heard(self, resource: Resource, now: float, /) -> None:
        """What is kept of it is up to date."""

    def lost(self, resource: Resource, now: float, /) -> None:
        """From here on nothing is heard of it. Said once, until the next `heard`."""

    def absent(self, resource: Resource, now: float, /) -> None:
        """The cluster does not have such a thing: there are none, and that is known."""


async def follow(
    api: Api,
    resource: Resource,
    namespace: str | None,
    store: Store,
    clock: Clock,
    told: Told,
    jitter: Random,
    deaf: set[str | None] | None = None,
) -> NoReturn:
    """Keep `store` up to date, for good.

    deaf: an empty set, shared by all who follow this resource in one namespace each: the resource is heard of only if
          it is in every namespace. Left out by who follows it alone.
    """
    await _Follower(api, resource, namespace, store, clock, told, jitter, set() if deaf is None else deaf).follow()


@dataclass(slots=True)
class _Follower:
    api: Api
    resource: Resource
    namespace: str | None
    store: Store
    clock: Clock
    told: Told
    jitter: Random
    deaf: set[str | None]
    version: str = ""  # "": a list is due
    delay_s: float = FIRST_DELAY_S
    trouble: object = None  # the kind of it that was told

    async def follow(self) -> NoReturn:
        while True:
            delay_s = await self._round()
            if delay_s > 0.0:
                await self.clock.sleep(delay_s)

    async def _round(self) -> float:
        """A list if one is due, and a watch until it ends; the seconds to wait before the next."""
        try:
            if not self.version:
                self.version = await self._list()
            return await self._watch()
        except Gone as failure:
            self.version = ""
            return self._pause(failure.retry_after_s)
        except Absent as failure:
            self.version = ""
            return self._absent() if self.resource.optional else self._failed(failure, self._scattered(REFUSED_DELAY_S))
        except Forbidden as failure:
            return self._failed(failure, self._scattered(REFUSED_DELAY_S))
        except ApiFailure as failure:
            return self._failed(failure, self._pause(failure.retry_after_s))

    async def _list(self) -> str:
        """Take the whole list, hand it on, and say of which version it is."""
        version, after, kept = await self._page("")
        while after:
            # All pages are of one version. If a server says otherwise, the oldest one misses nothing.
            _, after, more = await self._page(after)
            kept += more
        self.store.replace_with(self.resource, self.namespace, kept, self.clock.now())
        self._heard()
        return version

    async def _page(self, after: str) -> tuple[str, str, list[Any]]:
        """Version, what to ask the next page with, and what is kept of a page. The API's own JSON ends here: of 20,000
        pods it takes 0.8 GB.
        """
        page = await self.api.page(self.resource, self.namespace, after)
        return page.version, page.after, list(self.store.trim(self.resource, page.items))

    async def _watch(self) -> float:
        """Hand on what happens until the watch ends; the seconds to wait before the next one."""
        began, good, garbled = self.clock.now(), False, False
        try:
            async with aclosing(self.api.watch(self.resource, self.namespace, self.version)) as happenings:
                async for happening in happenings:
                    if isinstance(happening, Garbled):
                        garbled = True
                        self._say(Garbled, happening.detail)
                        continue
                    self._heard(whole=not garbled)
                    if isinstance(happening, Event):
                        good = True
                        self._take(happening)
        finally:
            if garbled:  # what was lost, only a list can tell
                self.version = ""
        if good or self.clock.now() - began >= GOOD_WATCH_S:
            self.delay_s = FIRST_DELAY_S
            return 0.0
        return self._pause()

    def _take(self, event: Event) -> None:
        self.delay_s = FIRST_DELAY_S
        if _earlier(event.version, self.version):
            if event.type == BOOKMARK:
                # The API's own time went back: its data were restored from a backup, and what we have may be no more.
                raise Gone(None, f"{self.resource}: the API went back from {self.version} to {event.version}")
            return  # an old story: the list, or a later event, has told how it ended
        if event.type in {ADDED, MODIFIED, DELETED}:
            self.store.apply(self.resource, event.type, event.document, self.clock.now())
        self.version = event.version or self.version

    def _heard(self, *, whole: bool = True) -> None:
        """whole: nothing was lost on the way."""
        self.deaf.discard(self.namespace)
        if not self.deaf:
            self.store.heard(self.resource, self.clock.now())
        if whole:
            self._say(None, None)

    def _failed(self, failure: ApiFailure, delay_s: float) -> float:
        if not self.deaf:
            self.store.lost(self.resource, self.clock.now())
        self.deaf.add(self.namespace)
        # A refusal is another trouble than no answer, and needs somebody else. No answer, a 503 and a 429 take turns
        # when an API server restarts, and are one.
        status = failure.status or 0
        self._say(status if 400 <= status < 500 and status != 429 else ApiFailure, failure.detail)  # noqa: PLR2004
        return delay_s

    def _absent(self) -> float:
        self.deaf.discard(self.namespace)
        self.store.absent(self.resource, self.clock.now())
        self._say(None, None)
        return self._scattered(ABSENT_DELAY_S)

    def _say(self, trouble: object, problem: str | None) -> None:
        if trouble != self.trouble:
            self.told(self.resource, self.namespace, problem)
        self.trouble = trouble

    def _pause(self, asked_for_s: float | None = None) -> float:
        """The next delay: about twice the one before, and at least what the API asks for, within reason."""
        delay_s, self.delay_s = self.delay_s, min(2 * self.delay_s, LONGEST_DELAY_S)
        return max(self._scattered(delay_s), min(asked_for_s or 0.0, REFUSED_DELAY_S))

    def _scattered(self, seconds: float) -> float:
        """So that all who lost one API server do not come back to it in one instant."""
        return seconds * self.jitter.uniform(0.5, 1.0)


def _earlier(one: str, other: str) -> bool:
    """Versions of one resource count up. Of those that are no numbers nothing is known, and none is earlier."""
    return one.isdecimal() and other.isdecimal() and (len(one), one) < (len(other), other)


async def watch_all(
    api: Api, store: Store, *, namespaces: Sequence[str], clock: Clock, told: Told, jitter: Random
) -> None:
    """Keep `store` up to date, for good. namespaces: none is all of them, each resource with one watch."""
    async with asyncio.TaskGroup() as tasks:
        for resource in RESOURCES:
            deaf: set[str | None] = set()
            for namespace in (namespaces or (None,)) if resource.namespaced else (None,):
                watching = follow(api, resource, namespace, store, clock, told, jitter, deaf)
                tasks.create_task(watching, name=f"watch {resource.name} {namespace or ''}".rstrip())
