"""Keeps a Cluster up to date: one task for each resource and namespace lists it once and then watches it.

A watch that ends is opened again from its last version. A new list is taken only at the start, when the API no longer
has that version (410), or when a line was lost. While the API does not answer, the resource is marked as lost, and the
Cluster decides how long its objects remain valid.

Worked example: pods are listed at version 4711, and the watch brings MODIFIED 4712 and BOOKMARK 4790. The API server
restarts: the next watch is from 4790. It refuses connections for a while: attempts after about 1, 2, 4 … 30 s, one
reported problem, one `mark_lost`. It has compacted its history since: 410, and a list.

    client = await connect(kubeconfig=None, context=None, jitter=jitter)
    await watch_all(client, cluster, namespaces=(), clock=clock, on_problem=log_it, jitter=Random())  # until cancelled
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from random import Random
from typing import NoReturn

from exporter.clock import Clock

from .cache import Cluster, ParsedObject
from .protocol import ADDED, BOOKMARK, DELETED, MODIFIED, Api, ApiFailure, Event, Forbidden, Garbled, Gone, NotFound
from .resources import RESOURCES, Resource

FIRST_DELAY_S, LONGEST_DELAY_S = 1.0, 30.0
# Rights and CRDs come with a person's next `kubectl apply`: no use in a request every second.
REFUSED_DELAY_S, ABSENT_DELAY_S = 60.0, 300.0
# A watch that lasted this long was a good one, even without an event. Servers end them after minutes.
GOOD_WATCH_S = 30.0

OnProblem = Callable[[Resource, str | None, str | None], None]
"""Receives resource, namespace (None: all) and a description when a problem begins or changes, None when it ends."""


async def watch_all(
    api: Api,
    cluster: Cluster,
    *,
    namespaces: Sequence[str],
    clock: Clock,
    on_problem: OnProblem,
    jitter: Random,
    more: Sequence[Resource] = (),
) -> None:
    """Keep `cluster` up to date until cancelled.

    namespaces: empty is all of them, with one watch for each resource. more: resources beside `RESOURCES`.
    """
    async with asyncio.TaskGroup() as tasks:
        for resource in (*RESOURCES, *more):
            for namespace in (namespaces or (None,)) if resource.namespaced else (None,):
                reflector = Reflector(api, resource, namespace, cluster, clock, on_problem, jitter)
                tasks.create_task(reflector.follow(), name=f"watch {resource.name} {namespace or ''}".rstrip())


@dataclass(slots=True)
class Reflector:
    """Keeps one resource up to date, in one namespace or (None) in all.

    lost:    whether no updates come.
    version: of the last list or event; "" if a list is due.
    problem: the kind of the last reported one.
    served:  the resource in the version that the cluster has, as far as is known.
    """

    api: Api
    resource: Resource
    namespace: str | None
    cluster: Cluster
    clock: Clock
    on_problem: OnProblem
    jitter: Random
    lost: bool = False
    version: str = ""
    delay_s: float = FIRST_DELAY_S
    problem: object = None
    served: Resource | None = None

    async def follow(self) -> NoReturn:
        while True:
            delay_s = await self._list_and_watch()
            if delay_s > 0.0:
                await self.clock.sleep(delay_s)

    async def _list_and_watch(self) -> float:
        """List if it is due, and watch until the watch ends; returns the seconds to wait before the next call."""
        try:
            if not self.version:
                self.version = await self._list()
            return await self._watch()
        except Gone as failure:
            self.version = ""
            return self._backoff(failure.retry_after_s)
        except NotFound as failure:
            self.version = ""
            older = (self.served or self.resource).before
            self.served = older
            if older is not None:
                return 0.0
            if self.resource.optional:
                return self._mark_absent()
            return self._mark_lost(failure, self._jittered(REFUSED_DELAY_S))
        except Forbidden as failure:
            return self._mark_lost(failure, self._jittered(REFUSED_DELAY_S))
        except ApiFailure as failure:
            return self._mark_lost(failure, self._backoff(failure.retry_after_s))

    async def _list(self) -> str:
        """Replace all objects; returns the version of the list."""
        version, after, objects = await self._page("")
        while after:
            # All pages are of one version. If a server violates that, the oldest version misses nothing.
            _, after, more = await self._page(after)
            objects += more
        for _ in self.cluster.replacing(self.resource, self.namespace, objects, self.clock.now()):
            await asyncio.sleep(0)  # others have their turn
        self._mark_current()
        return version

    async def _page(self, after: str) -> tuple[str, str, list[ParsedObject]]:
        """Version, continue token and records of a page. Its JSON is dropped here: of 20,000 pods it takes 0.8 GB."""
        page = await self.api.page(self.served or self.resource, self.namespace, after)
        return page.version, page.after, self.cluster.parse(self.resource, page.items)

    async def _watch(self) -> float:
        """Apply events until the watch ends; returns the seconds to wait before the next one."""
        began, good, garbled = self.clock.now(), False, False
        try:
            async with aclosing(self.api.watch(self.served or self.resource, self.namespace, self.version)) as events:
                async for event in events:
                    if isinstance(event, Garbled):
                        garbled = True
                        self._report(Garbled, event.detail)
                        continue
                    self._mark_current(complete=not garbled)
                    if isinstance(event, Event):
                        good = True
                        self._apply(event)
        finally:
            if garbled:  # only a list can restore the lost change
                self.version = ""
        if good or self.clock.now() - began >= GOOD_WATCH_S:
            self.delay_s = FIRST_DELAY_S
            return 0.0
        return self._backoff()

    def _apply(self, event: Event) -> None:
        self.delay_s = FIRST_DELAY_S
        if _is_earlier(event.version, self.version):
            if event.type == BOOKMARK:
                # The API's data were restored from a backup, so the stored objects may no longer exist.
                raise Gone(None, f"{self.resource}: the API went back from {self.version} to {event.version}")
            return  # the list or a later event supersedes it
        if event.type in {ADDED, MODIFIED, DELETED}:
            self.cluster.apply(self.resource, event.type, event.document, self.clock.now())
        self.version = event.version or self.version

    def _mark_current(self, *, complete: bool = True) -> None:
        """complete: no line was lost."""
        self.lost = False
        self.cluster.mark_current(self.resource, self.clock.now(), self.namespace)
        if complete:
            self._report(None, None)

    def _mark_lost(self, failure: ApiFailure, delay_s: float) -> float:
        if isinstance(failure, Forbidden):
            self.cluster.mark_refused(self.resource, self.clock.now(), self.namespace)
        elif not self.lost:
            self.cluster.mark_lost(self.resource, self.clock.now(), self.namespace)
        self.lost = True
        # A refusal is a different problem from no answer, for different people. No answer, a 503 and a 429 alternate
        # while an API server restarts, and are one problem.
        status = failure.status or 0
        refused = 400 <= status < 500 and status != HTTPStatus.TOO_MANY_REQUESTS  # noqa: PLR2004 - the 4xx of HTTP
        self._report(status if refused else ApiFailure, failure.detail)
        return delay_s

    def _mark_absent(self) -> float:
        self.lost = False
        self.cluster.mark_absent(self.resource, self.clock.now())
        self._report(None, None)
        return self._jittered(ABSENT_DELAY_S)

    def _report(self, problem: object, description: str | None) -> None:
        if problem != self.problem:
            self.on_problem(self.resource, self.namespace, description)
        self.problem = problem

    def _backoff(self, retry_after_s: float | None = None) -> float:
        """The next delay: about twice the last one, and at least what the API asks for, within reason."""
        delay_s, self.delay_s = self.delay_s, min(2 * self.delay_s, LONGEST_DELAY_S)
        return max(self._jittered(delay_s), min(retry_after_s or 0.0, REFUSED_DELAY_S))

    def _jittered(self, seconds: float) -> float:
        """So that not all clients of one API server return in one instant."""
        return seconds * self.jitter.uniform(0.5, 1.0)


def _is_earlier(one: str, other: str) -> bool:
    """Versions of one resource count up. One that is not a number is not comparable, and so not earlier."""
    return one.isdecimal() and other.isdecimal() and (len(one), one) < (len(other), other)
