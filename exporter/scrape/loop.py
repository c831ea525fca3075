"""Scrapes targets: looks up where they are, requests each at its own pace, and hands over the responses.

The targets of one workload are scraped together, in a *round*: a sum over readings of different moments counts a
request twice that moved from one pod to another in between. The phase of a round follows from the workload's name (of
a target without a workload, from its URL), so a restart or a new pod does not change it and workloads are spread over
the whole interval. When a target appears, its workload has one more round at once.

While a workload is at zero, its gateway targets are scraped every `wake_interval_s` as well, because they show the
next request; each HTTP endpoint once, however many workloads share it.

A target that fails is scraped again in the next round: there is no other retry. Responses are parsed here, large ones
in a thread, so that none delays a tick. An exception costs the response that raised it. This module does not know what
a sample is good for, nor a socket: `Pages` has those.

Worked example: with one `StaticTargets` of two targets of `ai/chat` and an interval of 5 s, `landed` gets the two
`Scrape`s of a round in one call, every 5 s.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from math import floor
from random import Random
from typing import NamedTuple, Protocol
from zlib import crc32

from exporter.budget import Budget
from exporter.catalog import NotHeard, Reader, UnknownKind
from exporter.clock import Clock
from exporter.discovery import Discovery, Listing
from exporter.model import Credentials, Failure, FailureKind, MissingSeries, Role, Samples, Scrape, Target, WorkloadKey
from exporter.textformat import Page, TooManySeries

from .diagnose import foreign

# A page of 256 KiB takes about 4 ms the first time and 0.2 ms from then on, twice what handing it to a thread takes;
# one of 1 MiB would hold up the event loop for 14 ms at first.
THREAD_BYTES = 1 << 18
# A page is read in milliseconds, so few threads are enough; asyncio's own have other work.
THREADS = 2
# As many bytes of large pages may wait for them, and be read: eight of the usual `scrape.body_limit`.
BODIES_BYTES = 1 << 26
# The first look-ups begin within so many seconds: a thousand names are not looked up at one moment.
LOOK_SPREAD_S = 0.2
# The first round of a workload begins at its phase, but so many seconds after the start at the latest: an interval of
# minutes does not leave it without a reading that long. Workloads keep their order, so they are spread all the same.
START_SPREAD_S = 5.0
# A round is handed over when every target has answered that answered the last time, or after so many seconds: one
# response that takes longer delays the others by a tick.
ROUND_WAIT_S = 1.0
# Rounds because of new targets are so many seconds apart: 40 pods that become ready one by one in a minute cause 40
# rounds at most, and those that become ready together one.
NEW_TARGETS_S = 1.0


class Pages(Protocol):
    async def fetch(self, url: str, access: Credentials) -> bytes | Failure: ...


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


class ScrapeEndpoint(NamedTuple):
    """What is requested and how it is parsed, whichever workload it is scraped for."""

    url: str
    kind: str
    access: Credentials


@dataclass(eq=False, slots=True)
class _Requests:
    """The requests to one target.

    slow: the last one timed out. task: the one that is under way. missed: it was under way when a round began.
    """

    reader: Reader
    scanner: PageScanner
    slow: bool = False
    missed: bool = False
    task: asyncio.Task[None] | None = None


@dataclass(eq=False, slots=True)
class _ScrapeGroup:
    """The targets of one workload, or one target without a workload.

    phase: of its rounds, as a part of the interval. began: when the last round did, by the clock.
    extra: a round that new targets have caused and that has not begun.
    """

    phase: float
    targets: dict[Target, _Requests] = field(default_factory=dict)
    began: float = float("-inf")
    task: asyncio.Task[None] | None = None
    extra: asyncio.Task[None] | None = None


@dataclass(eq=False, slots=True)
class _ScrapeRound:
    """expected: targets whose responses it waits for. landed: responses that have not been handed over."""

    group: _ScrapeGroup
    expected: set[Target]
    landed: list[Scrape] = field(default_factory=list)
    deadline: asyncio.Task[None] | None = None


@dataclass(eq=False, slots=True)
class _Wake:
    """The gateway targets behind one endpoint that belong to workloads at zero."""

    targets: dict[Target, None] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Loop:
    """Scrapes the targets that the followed discoveries list, until cancelled.

    discoveries: those to follow from the start; `follow` replaces them.
    landed:  gets the scrapes of a round, good and failed, in the event loop.
    listed:  gets what a discovery lists after each look-up (None: not known).
    added, retired: get a target when it begins and ceases to be listed.
    faulted: gets an exception that was raised while a response was processed ("response") or a discovery was looked
             up ("discovery"), and the target or discovery.
    wake_interval_s: seconds between scrapes of a gateway target while its workload is at zero.
    wake_rate: the most such scrapes per second, of all workloads together; beyond it all are further apart.
    new_reader: makes the reader of a target when it begins to be listed.
    bodies:  bytes of the large responses that may wait for a thread or be parsed there.
    """

    discoveries: Iterable[Discovery]
    pages: Pages
    clock: Clock
    interval_s: float
    concurrency: int
    new_scanner: Callable[[], PageScanner]
    landed: Callable[[Sequence[Scrape]], None]
    listed: Callable[[Discovery, Listing | None], None]
    added: Callable[[Target], None]
    retired: Callable[[Target], None]
    faulted: Callable[[str, Target | Discovery, Exception], None]
    wake_interval_s: float = float("inf")
    wake_rate: float = float("inf")
    new_reader: Callable[[Target], Reader] = lambda target: Reader(target.kind)
    bodies: Budget = field(default_factory=lambda: Budget(BODIES_BYTES))
    jitter: Random = field(default_factory=Random)
    counters: dict[Target, Counters] = field(default_factory=dict)
    _turns: asyncio.Semaphore = field(init=False)
    _slow_turns: asyncio.Semaphore = field(init=False)
    _threads: ThreadPoolExecutor = field(init=False)
    _tasks: asyncio.TaskGroup | None = None
    _looks: dict[Discovery, asyncio.Task[None]] = field(default_factory=dict)
    _listings: dict[Discovery, Listing] = field(default_factory=dict)
    _on_lists: Counter[Target] = field(default_factory=Counter)  # on how many listings a target is
    _groups: dict[WorkloadKey | Target, _ScrapeGroup] = field(default_factory=dict)
    _at_zero: set[WorkloadKey] = field(default_factory=set)
    _wakes: dict[ScrapeEndpoint, _Wake] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._turns = asyncio.Semaphore(self.concurrency)
        # Targets that timed out last time share half of the turns: a lost node's pods, each of which holds its turn
        # until the time-out, would otherwise keep all others waiting.
        self._slow_turns = asyncio.Semaphore(max(1, self.concurrency // 2))
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="read")

    async def run(self) -> None:
        with self._threads:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                try:
                    self.follow(self.discoveries)
                    await asyncio.get_running_loop().create_future()  # until cancelled
                finally:
                    self._tasks = None  # a round that is cancelled hands nothing over

    # Which targets there are.

    def follow(self, discoveries: Iterable[Discovery]) -> None:
        """Follow these from now on. Those that are not among them any more take their targets with them."""
        self.discoveries = tuple(discoveries)
        if self._tasks is None:
            return
        for gone in self._looks.keys() - set(self.discoveries):
            self._looks.pop(gone).cancel()
            before = self._listings.pop(gone, None)
            for target in before.targets if before is not None else ():
                self._strike(target)
        for discovery in self.discoveries:
            if discovery not in self._looks:
                # Each by itself: one name server that does not answer delays no other list.
                self._looks[discovery] = self._tasks.create_task(self._look_again_and_again(discovery), name="look")

    def look(self, discovery: Discovery) -> None:
        """Something there has changed: look it up now, not at its next turn."""
        if self._tasks is not None and discovery in self._looks:
            self._tasks.create_task(self._look(discovery), name="look at once")

    async def _look_again_and_again(self, discovery: Discovery) -> None:
        await self.clock.sleep(self.jitter.uniform(0.0, min(LOOK_SPREAD_S, self.interval_s)))
        while True:
            await self._look(discovery)
            await self.clock.sleep(self.interval_s)

    async def _look(self, discovery: Discovery) -> None:
        try:
            await discovery.refresh(self.clock.now())
            listing = discovery.listing()
        except Exception as error:  # noqa: BLE001 - a bug in one discovery costs its list, which is then not known
            self.faulted("discovery", discovery, error)
            listing = None
        if discovery not in self._looks or self._tasks is None:
            return
        try:
            self._relist(discovery, listing, self._tasks)
        except Exception as error:  # noqa: BLE001 - the same
            self.faulted("discovery", discovery, error)

    def _relist(self, discovery: Discovery, listing: Listing | None, tasks: asyncio.TaskGroup) -> None:
        before = self._listings.get(discovery)
        self.listed(discovery, listing)
        # While a list is not known, the targets of the last one are still scraped: to forget them would be a guess.
        if listing is None or listing == before:
            return
        self._listings[discovery] = listing
        old, new = frozenset(before.targets if before is not None else ()), frozenset(listing.targets)
        self._on_lists.update(new - old)
        for target in old - new:
            self._strike(target)
        for target in listing.targets:
            if target not in self.counters:
                self._add(target, tasks, at_once=before is not None)

    def _add(self, target: Target, tasks: asyncio.TaskGroup, *, at_once: bool) -> None:
        """`at_once`: it appeared on a list that was known before, so few others are likely to appear with it."""
        requests = _Requests(self.new_reader(target), self.new_scanner())
        self.counters[target] = Counters()
        key, now = target.owner or target, self.clock.now()
        name = f"scrape {target.role} {target.owner or target.url}"
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _ScrapeGroup(_phase(str(target.owner or target.url)))
            group.task = tasks.create_task(self._rounds(group), name=name)
        group.targets[target] = requests
        if group.extra is None and (at_once or self.interval_s > START_SPREAD_S):
            early_s = START_SPREAD_S * _until(now, group.phase, self.interval_s) / self.interval_s
            wait_s = max(0.0, group.began + NEW_TARGETS_S - now) if at_once else early_s
            group.extra = tasks.create_task(self._round_after(group, wait_s), name=name)
        self._call(self.added, target)
        if target.owner in self._at_zero:
            self._add_wake(target)

    def _strike(self, target: Target) -> None:
        """Off one list; if that was the last one it is on, it is scraped no more."""
        self._on_lists[target] -= 1
        if self._on_lists[target] > 0:
            return
        del self._on_lists[target]
        self._remove_wake(target)
        key = target.owner or target
        group = self._groups[key]
        requests = group.targets.pop(target)
        if requests.task is not None:
            requests.task.cancel()
        if not group.targets:
            del self._groups[key]
            for task in (group.task, group.extra):
                if task is not None:
                    task.cancel()
        del self.counters[target]
        self._call(self.retired, target)

    def _call(self, callback: Callable[[Target], None], target: Target) -> None:
        try:
            callback(target)
        except Exception as error:  # noqa: BLE001 - the list goes on with the next target
            self.faulted("discovery", target, error)

    # What readers know of their targets.

    def readers(self) -> dict[Target, Reader]:
        """The reader of each target, for a loop that takes this one's place."""
        groups = self._groups.values()
        return {target: requests.reader for group in groups for target, requests in group.targets.items()}

    def restore(self, target: Target, missing: Collection[MissingSeries]) -> None:
        """Tells a target's reader which series were missing before; nothing if the target is not listed."""
        group = self._groups.get(target.owner or target)
        requests = None if group is None else group.targets.get(target)
        if requests is not None:
            requests.reader.restore(missing)

    # Rounds.

    async def _rounds(self, group: _ScrapeGroup) -> None:
        while True:
            now = self.clock.now()
            await self.clock.sleep(_until(now, group.phase, self.interval_s))
            self._begin_round(group)

    async def _round_after(self, group: _ScrapeGroup, wait_s: float) -> None:
        if wait_s > 0.0:
            await self.clock.sleep(wait_s)
        group.extra = None
        self._begin_round(group)

    def _begin_round(self, group: _ScrapeGroup) -> None:
        """Request every target that is not scraped to wake its workload."""
        group.began = self.clock.now()
        for requests in group.targets.values():
            requests.missed = requests.task is not None
        self._request_all(
            group, [each for each in group.targets.items() if not each[1].missed and not self._wakes_by(each[0])]
        )

    def _request_all(self, group: _ScrapeGroup, due: Sequence[tuple[Target, _Requests]]) -> None:
        if self._tasks is None:
            return
        each = _ScrapeRound(group, {target for target, requests in due if not requests.slow})
        for target, requests in due:
            scraping = self._scrape(target, requests, each)
            requests.task = self._tasks.create_task(scraping, name=f"scrape {target.role} {target.owner}")
        if len(each.expected) > 1:
            each.deadline = self._tasks.create_task(self._hand_over_late(each), name="deadline of a round")

    async def _scrape(self, target: Target, requests: _Requests, each: _ScrapeRound) -> None:
        try:
            async with self._slow_turns if requests.slow else nullcontext(), self._turns:
                endpoint = ScrapeEndpoint(target.url, target.kind, target.access)
                at, took_s, outcome = await self._request(endpoint, target, requests.reader, requests.scanner)
            requests.slow = isinstance(outcome, Failure) and outcome.kind is FailureKind.TIMEOUT
            each.landed.append(Scrape(target, at, took_s, outcome))
        finally:
            requests.task = None
            each.expected.discard(target)
            if not each.expected:
                self._hand_over(each)

    async def _hand_over_late(self, each: _ScrapeRound) -> None:
        await self.clock.sleep(ROUND_WAIT_S)
        each.deadline = None
        self._hand_over(each)

    def _hand_over(self, each: _ScrapeRound) -> None:
        """At the end of a round, or at its deadline; what lands after that is handed over by itself."""
        if each.deadline is not None:
            each.deadline.cancel()
            each.deadline = None
        each.expected.clear()
        # A target that has left its list meanwhile is nobody's any more.
        scrapes = [scrape for scrape in each.landed if scrape.target in self.counters]
        each.landed.clear()
        self._deliver(scrapes)
        # Targets that were late for the last round are requested at once, however many rounds they missed.
        missed = [(target, requests) for target, requests in each.group.targets.items() if requests.missed]
        late = [(target, requests) for target, requests in missed if requests.task is None]
        for _, requests in late:
            requests.missed = False
        if late:
            self._request_all(each.group, late)

    def _deliver(self, scrapes: Sequence[Scrape]) -> None:
        if not scrapes or self._tasks is None:
            return
        for scrape in scrapes:
            _count(self.counters[scrape.target], scrape)
        try:
            self.landed(scrapes)
        except Exception as error:  # noqa: BLE001 - a bug costs these responses
            for scrape in scrapes:
                self.faulted("response", scrape.target, error)

    def reject(self, scrape: Scrape, failure: Failure) -> None:
        """A response that was handed over could not be processed."""
        counters = self.counters.get(scrape.target)
        if counters is not None:
            counters.failures[failure.kind] = counters.failures.get(failure.kind, 0) + 1
            counters.last = replace(scrape, outcome=failure)

    async def _request(
        self, endpoint: ScrapeEndpoint, target: Target, reader: Reader, scanner: PageScanner
    ) -> tuple[float, float, Samples | Failure]:
        """When the response was received, how many seconds that took, and what it was."""
        began = self.clock.now()
        try:
            body = await self.pages.fetch(endpoint.url, endpoint.access)
            at = self.clock.now()
            if isinstance(body, Failure):
                return at, at - began, body
            if len(body) > THREAD_BYTES:
                outcome = await self._parse_in_thread(body, reader, scanner, at)
            else:
                outcome = parse(body, reader, scanner, at)
        except Exception as error:  # noqa: BLE001 - a response that trips a bug costs itself
            self.faulted("response", target, error)
            at = self.clock.now()
            return at, at - began, internal(error)
        return at, at - began, outcome

    async def _parse_in_thread(self, body: bytes, reader: Reader, scanner: PageScanner, at: float) -> Samples | Failure:
        with self.bodies.share() as share:
            if not share.resize(len(body)):
                return Failure(FailureKind.TOO_LARGE, f"{len(body)} bytes, and other large responses wait before it")
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, parse, body, reader, scanner, at)

    # Wake sources of workloads at zero.

    def set_at_zero(self, owner: WorkloadKey, *, at_zero: bool) -> None:
        """Whether a workload is at zero: while it is, its gateway targets are scraped every `wake_interval_s`."""
        if at_zero == (owner in self._at_zero):
            return
        (self._at_zero.add if at_zero else self._at_zero.remove)(owner)
        group = self._groups.get(owner)
        for target in group.targets if group is not None else ():
            (self._add_wake if at_zero else self._remove_wake)(target)

    def keep_at_zero(self, owners: Collection[WorkloadKey]) -> None:
        """Forget workloads at zero that are not among these."""
        for owner in self._at_zero.difference(owners):
            self.set_at_zero(owner, at_zero=False)

    def _add_wake(self, target: Target) -> None:
        # A database's numbers are as old as its own scrapes: to read them more often brings nothing.
        if target.role is not Role.GATEWAY or target.max_age_s is not None or self._tasks is None:
            return
        endpoint = ScrapeEndpoint(target.url, target.kind, target.access)
        wake = self._wakes.setdefault(endpoint, _Wake())
        wake.targets[target] = None
        if wake.task is None:
            wake.task = self._tasks.create_task(self._wake_scrapes(endpoint, wake), name=f"wake source {target.owner}")

    def _remove_wake(self, target: Target) -> None:
        endpoint = ScrapeEndpoint(target.url, target.kind, target.access)
        wake = self._wakes.get(endpoint)
        if wake is None or target not in wake.targets:
            return
        del wake.targets[target]
        if not wake.targets:
            del self._wakes[endpoint]
            if wake.task is not None:
                wake.task.cancel()

    def _wakes_by(self, target: Target) -> bool:
        """Whether a target is scraped to wake its workload, more often than in rounds."""
        wake = self._wakes.get(ScrapeEndpoint(target.url, target.kind, target.access))
        return wake is not None and target in wake.targets and self._wake_s() < self.interval_s

    def _wake_s(self) -> float:
        """Seconds between two such scrapes of one endpoint: 300 endpoints at a rate of 100 per second: 3 s."""
        return max(self.wake_interval_s, len(self._wakes) / self.wake_rate)

    async def _wake_scrapes(self, endpoint: ScrapeEndpoint, wake: _Wake) -> None:
        """Not in rounds: what wakes a workload waits for no other response."""
        reader, scanner, phase, slow = Reader(endpoint.kind), self.new_scanner(), _phase(endpoint.url), False
        first = next(iter(wake.targets))
        reader.restore(self._groups[first.owner or first].targets[first].reader.missing)
        while True:
            every_s = min(self._wake_s(), self.interval_s)
            await self.clock.sleep(_until(self.clock.now(), phase, every_s))
            if self._wake_s() >= self.interval_s:
                continue
            async with self._slow_turns if slow else nullcontext(), self._turns:
                at, took_s, outcome = await self._request(endpoint, next(iter(wake.targets)), reader, scanner)
            slow = isinstance(outcome, Failure) and outcome.kind is FailureKind.TIMEOUT
            self._deliver([Scrape(target, at, took_s, outcome) for target in wake.targets])


def _phase(name: str) -> float:
    """0..1, the same in every process."""
    return crc32(name.encode()) / 2**32


def _until(now: float, phase: float, every_s: float) -> float:
    """Seconds until the next moment that is `phase` of a period after a whole number of them; never 0.

    Worked example: at 12.0 s, with a phase of 0.25 and a period of 4 s, the next moment is 13.0 s: 1 s.
    """
    offset = phase * every_s
    due = (floor((now - offset) / every_s) + 1) * every_s + offset
    # Woken a little before the moment by a coarse timer, it is not due again.
    return due - now if due - now > 1e-3 * every_s else due + every_s - now


def _count(counters: Counters, scrape: Scrape) -> None:
    counters.scrapes += 1
    counters.last = scrape
    if isinstance(scrape.outcome, Failure):
        kind = scrape.outcome.kind
        counters.failures[kind] = counters.failures.get(kind, 0) + 1
    else:
        counters.dropped_lines += len(scrape.outcome.dropped)


def internal(error: Exception) -> Failure:
    """What an exception of Tidegate's own code makes of a scrape."""
    return Failure(FailureKind.INTERNAL, f"please report: {type(error).__name__}: {error}")


def read(body: bytes, reader: Reader, scanner: PageScanner, at: float) -> Samples | Failure:
    """`parse`, with an exception as a Failure: a page that trips a bug of ours costs its scrape."""
    try:
        return parse(body, reader, scanner, at)
    except Exception as error:  # noqa: BLE001
        return internal(error)


def parse(body: bytes, reader: Reader, scanner: PageScanner, at: float) -> Samples | Failure:
    """One page's bytes to samples. `at`: POSIX seconds of receipt."""
    if not body or body.isspace():
        return Failure(FailureKind.EMPTY, "HTTP 200 and an empty page, as exporters answer while they reload")
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
