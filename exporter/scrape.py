"""The loop: look where to ask, ask each target at its own pace, hand over what it said.

One task per discovery and one per target, each begun at a random moment so that a fleet is not asked all at once, and
at most `concurrency` questions in flight. A target that fails is asked again at its next turn: the next turn is the
retry. Pages are read (bytes to samples) here too, large ones in a thread, so that no page holds up a tick. What a
sample is good for is not known here, and neither is a socket: `Pages` has those.

Worked example: with one `StaticTargets` of two pages and an interval of 5 s, `landed` is told of a `Scrape` of each
page every 5 s, at two moments that stay as far apart as chance first put them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from .budget import Budget
from .catalog import NotHeard, Reader, UnknownKind
from .clock import Clock
from .foreign import foreign
from .model import Access, Failure, FailureKind, Samples, Scrape, Target
from .targets import Discovery, Listing
from .textformat import Page, TooManySeries

# A page of 256 KiB takes about 4 ms the first time and 0.2 ms from then on, twice what handing it to a thread takes;
# one of 1 MiB would hold up the event loop for 14 ms at first.
THREAD_BYTES = 1 << 18
# A page is read in milliseconds, so few threads are enough; asyncio's own are shared with lookups that may hang.
THREADS = 2
# As many bytes of large pages may wait for them, and be read: eight of the usual `scrape.body_limit`.
BODIES_BYTES = 1 << 26
# What is there at the start begins within so many seconds: a thousand names are not looked up, and a thousand pages
# not asked, at one moment; and then never are, because each keeps the phase it was born with.
LOOK_SPREAD_S = 0.2
ASK_SPREAD_S = 1.0


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
    """Scrapes whatever the followed discoveries list, until cancelled.

    discoveries: whom to follow from the start; `follow` replaces them.
    landed:  told of every scrape, good or failed, in the event loop.
    listed:  told after each look at a discovery what it lists (None: not known).
    added, retired: told when a target begins and ceases to be listed.
    bodies:  bytes of the large pages that may wait for a thread or be read there.
    """

    discoveries: Iterable[Discovery]
    pages: Pages
    clock: Clock
    interval_s: float
    concurrency: int
    new_scanner: Callable[[], PageScanner]
    landed: Callable[[Scrape], None]
    listed: Callable[[Discovery, Listing | None], None]
    added: Callable[[Target], None]
    retired: Callable[[Target], None]
    bodies: Budget = field(default_factory=lambda: Budget(BODIES_BYTES))
    jitter: Random = field(default_factory=Random)
    counters: dict[Target, Counters] = field(default_factory=dict)
    _turns: asyncio.Semaphore = field(init=False)
    _slow_turns: asyncio.Semaphore = field(init=False)
    _threads: ThreadPoolExecutor = field(init=False)
    _group: asyncio.TaskGroup | None = None
    _looks: dict[Discovery, asyncio.Task[None]] = field(default_factory=dict)
    _listings: dict[Discovery, Listing] = field(default_factory=dict)
    _on_lists: Counter[Target] = field(default_factory=Counter)  # on how many listings a target is
    _tasks: dict[Target, asyncio.Task[None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._turns = asyncio.Semaphore(self.concurrency)
        # Who timed out last time must share half of the turns with his like: a lost node's pods, each of which holds
        # its turn until the time-out, would otherwise keep everybody else waiting.
        self._slow_turns = asyncio.Semaphore(max(1, self.concurrency // 2))
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="read")

    async def run(self) -> None:
        with self._threads:
            async with asyncio.TaskGroup() as self._group:
                self.follow(self.discoveries)
                await asyncio.get_running_loop().create_future()  # until cancelled

    def follow(self, discoveries: Iterable[Discovery]) -> None:
        """Look at these from now on. Those that are not among them any more take their targets with them."""
        self.discoveries = tuple(discoveries)
        if self._group is None:
            return
        for gone in self._looks.keys() - set(self.discoveries):
            self._looks.pop(gone).cancel()
            before = self._listings.pop(gone, None)
            for target in before.targets if before is not None else ():
                self._strike(target)
        for discovery in self.discoveries:
            if discovery not in self._looks:
                # Apart from each other: one name server that does not answer holds up nobody else's list.
                self._looks[discovery] = self._group.create_task(self._look_again_and_again(discovery), name="look")

    def look(self, discovery: Discovery) -> None:
        """Something there has changed: look now, not at its next turn."""
        if self._group is not None and discovery in self._looks:
            self._group.create_task(self._look(discovery), name="look at once")

    async def _look_again_and_again(self, discovery: Discovery) -> None:
        await self._scatter(LOOK_SPREAD_S)
        while True:
            await self._look(discovery)
            await self.clock.sleep(self.interval_s)

    async def _look(self, discovery: Discovery) -> None:
        await discovery.refresh(self.clock.now())
        if discovery in self._looks and self._group is not None:
            self._relist(discovery, self._group)

    async def _scatter(self, spread_s: float) -> None:
        await self.clock.sleep(self.jitter.uniform(0.0, min(spread_s, self.interval_s)))

    def _relist(self, discovery: Discovery, group: asyncio.TaskGroup) -> None:
        listing, before = discovery.listing(), self._listings.get(discovery)
        self.listed(discovery, listing)
        # While a list is not known, whoever was on it is still asked: forgetting them would be a guess.
        if listing is None or listing == before:
            return
        self._listings[discovery] = listing
        old, new = frozenset(before.targets if before is not None else ()), frozenset(listing.targets)
        self._on_lists.update(new - old)
        for target in old - new:
            self._strike(target)
        for target in listing.targets:
            if target not in self._tasks:
                self.added(target)
                self.counters[target] = Counters()
                asking = self._ask_again_and_again(target, at_once=before is not None)
                self._tasks[target] = group.create_task(asking, name=f"scrape {target.role} {target.owner}")

    def _strike(self, target: Target) -> None:
        """Off one list; if that was the last one it is on, it is asked no more."""
        self._on_lists[target] -= 1
        if self._on_lists[target] > 0:
            return
        del self._on_lists[target]
        self._tasks.pop(target).cancel()
        del self.counters[target]
        self.retired(target)

    async def _ask_again_and_again(self, target: Target, *, at_once: bool) -> None:
        """`at_once`: it appeared on a list that was known before, so nobody else is likely to start with it."""
        reader, scanner = Reader(target.kind), self.new_scanner()
        if not at_once:
            await self._scatter(ASK_SPREAD_S)
        due, slow = self.clock.now(), False
        while True:
            async with self._slow_turns if slow else nullcontext(), self._turns:
                scrape = await self._ask(target, reader, scanner)
            slow = isinstance(scrape.outcome, Failure) and scrape.outcome.kind is FailureKind.TIMEOUT
            self._count(self.counters[target], scrape)
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
            with self.bodies.share() as share:
                if not share.resize(len(body)):
                    waiting = Failure(FailureKind.TOO_LARGE, f"{len(body)} bytes, and other large pages wait before it")
                    return Scrape(target, at, at - asked, waiting)
                loop = asyncio.get_running_loop()
                outcome = await loop.run_in_executor(self._threads, read, body, reader, scanner, at)
        else:
            outcome = read(body, reader, scanner, at)
        return Scrape(target, at, at - asked, outcome)

    @staticmethod
    def _count(counters: Counters, scrape: Scrape) -> None:
        counters.scrapes += 1
        counters.last = scrape
        if isinstance(scrape.outcome, Failure):
            kind = scrape.outcome.kind
            counters.failures[kind] = counters.failures.get(kind, 0) + 1
        else:
            counters.dropped_lines += len(scrape.outcome.dropped)


def read(body: bytes, reader: Reader, scanner: PageScanner, at: float) -> Samples | Failure:
    """One page's bytes to samples. `at`: POSIX seconds of receipt."""
    if not body or body.isspace():
        return Failure(FailureKind.EMPTY, "HTTP 200 and an empty page, as exporters answer while they reload")
    try:
        return _read(body, reader, scanner, at)
    except Exception as error:  # noqa: BLE001 - a page that trips a bug of ours may cost its scrape, not everybody's
        return Failure(FailureKind.INTERNAL, f"please report: {type(error).__name__}: {error}")


def _read(body: bytes, reader: Reader, scanner: PageScanner, at: float) -> Samples | Failure:
    try:
        page = scanner.scan(body)
    except TooManySeries as error:
        return Failure(FailureKind.TOO_LARGE, str(error))
    rest = page.layout.rest
    if not len(page.values) and not (rest is not None and (rest.signs or rest.names)):
        return Failure(FailureKind.UNREADABLE, foreign(body) or "no line of the page is a sample")
    try:
        return reader.read(page, at)
    except NotHeard as error:
        return Failure(FailureKind.PARTIAL, str(error))
    except UnknownKind as error:
        return Failure(FailureKind.UNREADABLE, str(error))
