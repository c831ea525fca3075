"""Pages of queues in Redis: all keys of one page in one round trip, all else to whoever fetches it.

A page's URL names what is counted and cannot say everything (a sentinel's credentials), so `target` keeps the query by
it, and `fetch` looks it up. Servers are shared by the pages that ask them; those that nobody asks any more are let go.

Worked example: `pages.fetch(pages.target(query, owner).url, access)` is the page of that query, and fetching
"http://10.0.0.7:8000/metrics" asks 10.0.0.7.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from exporter.clock import Clock
from exporter.model import Credentials, Failure, FailureKind, Role, Target, WorkloadKey

from ..http import ScrapeRejected
from .answers import Measurement, found, found_next, page
from .query import Command, Measure, RedisQuery, Servers, command_of

if TYPE_CHECKING:
    from .ways import KeyReader

KIND = "redis_exporter"
# A connection that nobody has used for so long is closed. Whoever asks more seldom connects anew each time.
IDLE_S = 300.0
# Queries kept, the last used ones: a reload may bring others each time. More than any configuration has at once.
MAX_QUERIES = 10_000


class Others(Protocol):
    async def fetch(self, url: str, access: Credentials) -> bytes | Failure: ...


class RedisPages:
    """One for all servers. Close it when done.

    others:    who fetches what is not in Redis.
    timeout_s: seconds for one whole page, asked for anew at each.
    told:      told, when it changes, which keys of a page (by its URL) are not known, and why.
    """

    def __init__(
        self,
        others: Others,
        clock: Clock,
        timeout_s: Callable[[], float],
        told: Callable[[str, tuple[str, ...]], None] = lambda _url, _troubles: None,
    ) -> None:
        self._others, self._clock, self._timeout_s, self._told = others, clock, timeout_s, told
        self._queries: OrderedDict[tuple[str, Credentials], RedisQuery] = OrderedDict()
        self._ways: dict[Servers, KeyReader] = {}
        self._asked_at: dict[Servers, float] = {}
        self._troubles: dict[str, tuple[str, ...]] = {}

    def target(self, query: RedisQuery, owner: WorkloadKey | None) -> Target:
        """The target that stands for this query, which `fetch` knows from now on."""
        self._queries[query.url, query.servers.access] = query
        self._queries.move_to_end((query.url, query.servers.access))
        while len(self._queries) > MAX_QUERIES:
            (url, _), _ = self._queries.popitem(last=False)
            self._troubles.pop(url, None)
        return Target(query.url, KIND, Role.GATEWAY, owner, query.servers.access)

    async def fetch(self, url: str, access: Credentials) -> bytes | Failure:
        """The page's bytes, or why there are none."""
        query = self._queries.get((url, access))
        if query is None:
            return await self._others.fetch(url, access)
        self._queries.move_to_end((url, access))
        await self._let_go()
        limit = self._timeout_s()
        try:
            async with asyncio.timeout(limit):
                counts = await self._count(query.measures(), await self._way(query.servers), limit)
        except TimeoutError:
            return Failure(FailureKind.TIMEOUT, f"no complete answer within {limit:g} s")
        except ScrapeRejected as refusal:
            return refusal.failure
        except Exception as error:  # noqa: BLE001 - a reply that trips a bug of ours may cost its page, not everybody's
            return Failure(FailureKind.INTERNAL, f"please report: {type(error).__name__}: {error}")
        self._tell(url, tuple(dict.fromkeys(count.trouble for count in counts if count.trouble)))
        return page(query.measures(), counts, query.servers.db)

    async def _way(self, servers: Servers) -> KeyReader:
        if servers not in self._ways:
            # A tenth of a second and 10 MiB, for those who need it.
            module = await asyncio.to_thread(import_module, "exporter.sources.redis.ways")
            self._ways.setdefault(servers, module.way_to(servers))
        self._asked_at[servers] = self._clock.now()
        return self._ways[servers]

    async def _count(self, measures: Sequence[Measure], way: KeyReader, limit: float) -> list[Measurement]:
        now = self._clock.now()
        replies = await way.ask([command_of(measure.question, now) for measure in measures], limit)
        first: list[Measurement | Command] = [
            found(measure.question, reply) for measure, reply in zip(measures, replies, strict=True)
        ]
        next_ = {place: each for place, each in enumerate(first) if not isinstance(each, Measurement)}
        more = dict(zip(next_, await way.ask(list(next_.values()), limit), strict=True)) if next_ else {}
        return [
            each if isinstance(each, Measurement) else found_next(measures[place].question, replies[place], more[place])
            for place, each in enumerate(first)
        ]

    def _tell(self, url: str, troubles: tuple[str, ...]) -> None:
        if troubles != self._troubles.get(url, ()):
            self._told(url, troubles)
            self._troubles[url] = troubles

    async def _let_go(self) -> None:
        """Close what nobody has asked for a while: its configuration is gone."""
        now, idle = self._clock.now(), []
        for servers in [each for each, at in self._asked_at.items() if now - at > IDLE_S]:
            del self._asked_at[servers]
            idle.append(self._ways.pop(servers))
        for way in idle:
            await way.close()

    async def close(self) -> None:
        for way in self._ways.values():
            await way.close()
        self._ways.clear()
        self._asked_at.clear()
