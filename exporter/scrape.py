"""The loop: look where to ask, ask each target at its own pace, hand over what it said.

One task per target, started at a random moment so that a fleet is not asked all at once, and at most
`concurrency` questions in flight. A target that fails is asked again at its next turn: the next turn is the retry.
Pages are read (bytes to samples) here too, large ones in a thread, so that no page holds up a tick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from .catalog import Reader, UnknownKind
from .clock import Clock
from .model import Access, Failure, FailureKind, Samples, Scrape, Target
from .targets import Discovery
from .textformat import Page

# Below this a page is read in less time than handing it to a thread takes (about 0.1 ms); above, the event loop
# would stand still for milliseconds.
THREAD_BYTES = 1 << 18


class Pages(Protocol):
    async def fetch(self, url: str, access: Access) -> bytes | Failure: ...


class PageScanner(Protocol):
    """Bytes to series and values; remembers the last page of one target."""

    def scan(self, body: bytes) -> Page: ...


@dataclass(slots=True)
class Counters:
    """What happened to one target's scrapes since it was first listed; `/metrics` shows it."""

    scrapes: int = 0
    failures: dict[FailureKind, int] = field(default_factory=dict)
    dropped_lines: int = 0
    last: Scrape | None = None


@dataclass(slots=True)
class Loop:
    """Scrapes whatever `discoveries` list until cancelled.

    landed:  told of every scrape, good or failed, in the event loop.
    listed:  told after each look at a discovery what it lists (None: not known).
    added, retired: told when a target begins and ceases to be listed.
    """

    discoveries: Sequence[Discovery]
    pages: Pages
    clock: Clock
    interval_s: float
    concurrency: int
    new_scanner: Callable[[], PageScanner]
    landed: Callable[[Scrape], None]
    listed: Callable[[Discovery, tuple[Target, ...] | None], None]
    added: Callable[[Target], None]
    retired: Callable[[Target], None]
    jitter: Random = field(default_factory=Random)
    counters: dict[Target, Counters] = field(default_factory=dict)
    _turns: asyncio.Semaphore = field(init=False)
    _settled: bool = False
    _tasks: dict[Target, asyncio.Task[None]] = field(default_factory=dict)
    _listings: dict[Discovery, tuple[Target, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._turns = asyncio.Semaphore(self.concurrency)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.gather(*(d.refresh(self.clock.now()) for d in self.discoveries))
                self._reconcile(group)
                await self.clock.sleep(self.interval_s)
                self._settled = True

    def _reconcile(self, group: asyncio.TaskGroup) -> None:
        wanted: dict[Target, None] = {}
        for discovery in self.discoveries:
            listing = discovery.listing()
            self.listed(discovery, listing)
            # While a list is not known, whoever was on it is still asked: forgetting them would be a guess.
            if listing is not None:
                self._listings[discovery] = listing
            wanted |= dict.fromkeys(self._listings.get(discovery, ()))
        for target in set(self._tasks) - set(wanted):
            self._tasks.pop(target).cancel()
            self.counters.pop(target, None)
            self.retired(target)
        for target in wanted:
            if target not in self._tasks:
                self.added(target)
                self.counters[target] = Counters()
                self._tasks[target] = group.create_task(self._ask_again_and_again(target), name=f"scrape {target}")

    async def _ask_again_and_again(self, target: Target) -> None:
        reader, scanner = Reader(target.kind), self.new_scanner()
        # A fleet that is found at the start is spread over a second; later a target that appears is asked at once,
        # and each keeps the phase it was born with.
        await self.clock.sleep(0.0 if self._settled else self.jitter.uniform(0.0, min(1.0, self.interval_s)))
        due = self.clock.now()
        while True:
            async with self._turns:
                scrape = await self._ask(target, reader, scanner)
            self._count(target, scrape)
            self.landed(scrape)
            now = self.clock.now()
            # A turn that ran late does not make the next ones early.
            due = max(due + self.interval_s, now)
            await self.clock.sleep(due - now)

    async def _ask(self, target: Target, reader: Reader, scanner: PageScanner) -> Scrape:
        asked = self.clock.now()
        body = await self.pages.fetch(target.url, target.access)
        at = self.clock.now()
        if isinstance(body, Failure):
            return Scrape(target, at, at - asked, body)
        if len(body) > THREAD_BYTES:
            outcome = await asyncio.to_thread(read, body, reader, scanner, at)
        else:
            outcome = read(body, reader, scanner, at)
        return Scrape(target, at, at - asked, outcome)

    def _count(self, target: Target, scrape: Scrape) -> None:
        counters = self.counters.setdefault(target, Counters())
        counters.scrapes += 1
        counters.last = scrape
        if isinstance(scrape.outcome, Failure):
            kind = scrape.outcome.kind
            counters.failures[kind] = counters.failures.get(kind, 0) + 1
        else:
            counters.dropped_lines += len(scrape.outcome.dropped)


def read(body: bytes, reader: Reader, scanner: PageScanner, at: float) -> Samples | Failure:
    """One page's bytes to samples. `at`: POSIX seconds of receipt."""
    if not body.strip():
        return Failure(FailureKind.EMPTY, "HTTP 200 and an empty page, as exporters answer while they reload")
    try:
        return _read(body, reader, scanner, at)
    except Exception as error:  # noqa: BLE001 - a page that trips a bug of ours may cost its scrape, not everybody's
        return Failure(FailureKind.INTERNAL, f"please report: {type(error).__name__}: {error}")


def _read(body: bytes, reader: Reader, scanner: PageScanner, at: float) -> Samples | Failure:
    page = scanner.scan(body)
    if not len(page.values):
        return Failure(FailureKind.UNREADABLE, "no line of the page is a sample")
    try:
        return reader.read(page, at)
    except UnknownKind as error:
        return Failure(FailureKind.UNREADABLE, str(error))
