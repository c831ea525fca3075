"""Fetches pages of queues in Redis: all keys of one page in one round trip. Passes other URLs on.

A page's URL names what is counted but not everything else (a Sentinel's credentials), so `target` stores the query and
`fetch` looks it up. Pages of the same servers share connections, which are closed when they are no longer used.

Worked example: `pages.fetch(pages.target(query, owner).url, access)` returns the page of that query, and fetching
"http://10.0.0.7:8000/metrics" sends an HTTP request to 10.0.0.7.
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
from .decode import Measurement, decode, decode_second, page
from .query import Command, Measure, RedisQuery, Servers, command_of

if TYPE_CHECKING:
    from .servers import KeyReader

KIND = "redis_exporter"
# An unused connection is closed after so long. Slower polling connects anew each time.
IDLE_S = 300.0
# Stored queries, the last used ones: a reload may bring others each time. More than any configuration has at once.
MAX_QUERIES = 10_000


class Pages(Protocol):
    async def fetch(self, url: str, access: Credentials) -> bytes | Failure: ...


class RedisPages:
    """Fetches from all servers. Close it when done.

    fallback:    fetches other URLs.
    timeout_s:   returns the seconds for one whole page; called for each.
    on_problems: receives the URL of a page and the problems of its keys, when these change.
    """

    def __init__(
        self,
        fallback: Pages,
        clock: Clock,
        timeout_s: Callable[[], float],
        on_problems: Callable[[str, tuple[str, ...]], None] = lambda _url, _problems: None,
    ) -> None:
        self._fallback, self._clock, self._timeout_s, self._on_problems = fallback, clock, timeout_s, on_problems
        self._queries: OrderedDict[tuple[str, Credentials], RedisQuery] = OrderedDict()
        self._readers: dict[Servers, KeyReader] = {}
        self._used_at: dict[Servers, float] = {}
        self._problems: dict[str, tuple[str, ...]] = {}

    def target(self, query: RedisQuery, owner: WorkloadKey | None) -> Target:
        """The target of a query, which `fetch` accepts from now on."""
        self._queries[query.url, query.servers.access] = query
        self._queries.move_to_end((query.url, query.servers.access))
        while len(self._queries) > MAX_QUERIES:
            (url, _), _ = self._queries.popitem(last=False)
            self._problems.pop(url, None)
        return Target(query.url, KIND, Role.GATEWAY, owner, query.servers.access)

    async def fetch(self, url: str, access: Credentials) -> bytes | Failure:
        """The page's bytes, or why there are none."""
        query = self._queries.get((url, access))
        if query is None:
            return await self._fallback.fetch(url, access)
        self._queries.move_to_end((url, access))
        await self._close_unused()
        limit_s = self._timeout_s()
        try:
            async with asyncio.timeout(limit_s):
                counts = await self._count(query.measures(), await self._reader(query.servers), limit_s)
        except TimeoutError:
            return Failure(FailureKind.TIMEOUT, f"no complete answer within {limit_s:g} s")
        except ScrapeRejected as rejected:
            return rejected.failure
        except Exception as error:  # noqa: BLE001 - a reply that triggers a bug costs its own page only
            return Failure(FailureKind.INTERNAL, f"please report: {type(error).__name__}: {error}")
        self._report(url, tuple(dict.fromkeys(count.problem for count in counts if count.problem)))
        return page(query.measures(), counts, query.servers.db)

    async def close(self) -> None:
        for reader in self._readers.values():
            await reader.close()
        self._readers.clear()
        self._used_at.clear()

    async def _reader(self, servers: Servers) -> KeyReader:
        if servers not in self._readers:
            # The import takes a tenth of a second and 10 MiB.
            module = await asyncio.to_thread(import_module, "exporter.sources.redis.servers")
            self._readers.setdefault(servers, module.connect(servers))
        self._used_at[servers] = self._clock.now()
        return self._readers[servers]

    async def _count(self, measures: Sequence[Measure], reader: KeyReader, limit_s: float) -> list[Measurement]:
        now = self._clock.now()
        replies = await reader.read([command_of(measure.question, now) for measure in measures], limit_s)
        first: list[Measurement | Command] = [
            decode(measure.question, reply) for measure, reply in zip(measures, replies, strict=True)
        ]
        commands = {index: each for index, each in enumerate(first) if not isinstance(each, Measurement)}
        more = dict(zip(commands, await reader.read(list(commands.values()), limit_s), strict=True)) if commands else {}
        return [
            each if isinstance(each, Measurement) else decode_second(measures[i].question, replies[i], more[i])
            for i, each in enumerate(first)
        ]

    def _report(self, url: str, problems: tuple[str, ...]) -> None:
        if problems != self._problems.get(url, ()):
            self._on_problems(url, problems)
            self._problems[url] = problems

    async def _close_unused(self) -> None:
        """Closes connections that no page has used for a while: they left the configuration."""
        now, unused = self._clock.now(), []
        for servers in [each for each, at in self._used_at.items() if now - at > IDLE_S]:
            del self._used_at[servers]
            unused.append(self._readers.pop(servers))
        for reader in unused:
            await reader.close()
