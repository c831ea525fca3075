"""Scrapes targets: follows the discoveries that list them, requests them in rounds, and hands over the samples.

The targets of one workload are scraped together, in a *round*: a sum over readings of different moments counts a
request twice that moved from one pod to another in between. The phase of a round follows from the workload's name (of
a target without a workload, from its URL), so a restart or a new pod does not change it, and workloads are spread over
the whole interval. When a target appears, its workload has one more round at once.

While a workload is at zero, its gateway targets are scraped every `wake_interval_s` as well, because they show the
next request; each HTTP endpoint once, however many workloads share it.

A target that fails is scraped again in the next round: there is no other retry. A scrape that begins late, or is not
made when it is due, is counted.

Worked example: with one `StaticTargets` of two targets of `ai/chat` and an interval of 5 s, `landed` gets the two
`Scrape`s of a round in one call, every 5 s.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from math import floor
from random import Random

from exporter.budget import Budget
from exporter.catalog import Reader
from exporter.clock import Clock
from exporter.discovery import Discovery, Listing
from exporter.discovery.dns import StaticTargets
from exporter.model import Failure, FailureKind, MissingSeries, Role, ScrapeResult, Target, WorkloadKey

from .pace import TurnPace
from .request import Pages, PageScanner, Requester, Requests, ScrapeEndpoint

# Bytes of large responses that may wait for a thread or be parsed there: eight of the usual `scrape.body_limit`.
BODIES_BYTES = 1 << 26
# The first look-ups begin within so many seconds: a thousand names are not resolved at one moment. Later ones are
# spread over the whole interval.
LOOKUP_SPREAD_S = 0.2
# Look-ups that begin in one turn of the event loop. One in the objects of a cluster takes 0.1 ms, with new targets 0.2.
LOOKUPS_AT_ONCE = 10
# The first round of a workload begins at its phase, but so many seconds after the start at the latest: an interval of
# minutes does not leave it without a reading that long. Workloads keep their order, so they are spread all the same. At
# shorter intervals each is scraped once in the first interval: a round more would double the load of a start.
START_SPREAD_S = 15.0
# A round is handed over when every target has responded that responded the last time, or after so many seconds: one
# slow response delays the others by a tick.
ROUND_WAIT_S = 1.0
# Rounds begin at multiples of GRID_S: what is sent together arrives together, and ten responses cost half as much as
# ten single ones. While few targets are due in GRID_S, rounds begin at every second to fifth of these moments, so that
# TOGETHER are (100 targets each second: 0.43 ms of CPU per scrape in groups of 10, 0.33 in groups of 50).
GRID_S = 0.1
TOGETHER = 50
MOST_STEPS = 5
# Rounds because of new targets are so many seconds apart: 40 pods that become ready one by one in a minute cause 40
# rounds at most, and those that become ready together one.
NEW_TARGETS_S = 1.0
# A scrape is late from this part of its interval on.
LATE = 0.1


class Skipped(StrEnum):
    """Why a scrape was not made when it was due."""

    SLOW_TARGET = "slow_target"  # the target had not responded to the last request
    OVERLOAD = "overload"  # the last request still waited for its turn, or the event loop was busy


@dataclass(slots=True)
class Delays:
    """Counts the scrapes that began late, and those that were not made when they were due."""

    late: int = 0
    skipped: Counter[Skipped] = field(default_factory=lambda: Counter(dict.fromkeys(Skipped, 0)))


@dataclass(slots=True)
class Counters:
    """Counts the scrapes of one target since it was first listed, for `/metrics`."""

    scrapes: int = 0
    failures: dict[FailureKind, int] = field(default_factory=dict)
    dropped_lines: int = 0
    last: ScrapeResult | None = None


@dataclass(eq=False, slots=True)
class _ScrapeGroup:
    """The targets of one workload, or one target without a workload.

    phase: of its rounds, as a part of the interval. began: when the last round did, by the clock.
    extra: a round that new targets have caused and that has not begun.
    """

    phase: float
    targets: dict[Target, Requests] = field(default_factory=dict)
    began: float = float("-inf")
    task: asyncio.Task[None] | None = None
    extra: asyncio.Task[None] | None = None


@dataclass(eq=False, slots=True)
class _ScrapeRound:
    """expected: targets with outstanding responses. landed: responses that have not been handed over.

    due: when its requests were to begin, by the clock.
    """

    group: _ScrapeGroup
    due: float
    expected: set[Target]
    landed: list[ScrapeResult] = field(default_factory=list)
    deadline: asyncio.Task[None] | None = None


@dataclass(eq=False, slots=True)
class _Wake:
    """The gateway targets behind one endpoint that belong to workloads at zero."""

    targets: dict[Target, None] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class ScrapeLoop:
    """Scrapes the targets that the followed discoveries list, until cancelled.

    discoveries: those to follow from the start; `follow` replaces them.
    landed:  gets the scrapes of a round, good and failed, in the event loop.
    listed:  gets what a discovery lists after each look-up (None: not known).
    added, retired: get a target when a discovery begins and ceases to list it.
    faulted: gets an exception that was raised while a response was processed ("response") or a discovery was looked
             up ("discovery"), and the target or discovery.
    wake_interval_s: seconds between scrapes of a gateway target while its workload is at zero.
    wake_rate: the most such scrapes per second, of all workloads together; beyond it all are further apart.
    new_scanner, new_reader: make the scanner and the reader of a target.
    bodies:  bytes of the large responses that may wait for a thread or be parsed there.
    delays:  counts late and skipped scrapes.
    """

    discoveries: Iterable[Discovery]
    pages: Pages
    clock: Clock
    interval_s: float
    concurrency: int
    new_scanner: Callable[[Target], PageScanner]
    landed: Callable[[Sequence[ScrapeResult]], None]
    listed: Callable[[Discovery, Listing | None], None]
    added: Callable[[Target], None]
    retired: Callable[[Target], None]
    faulted: Callable[[str, Target | Discovery, Exception], None]
    wake_interval_s: float = float("inf")
    wake_rate: float = float("inf")
    new_reader: Callable[[Target], Reader] = lambda target: Reader(target.kind)
    bodies: Budget = field(default_factory=lambda: Budget(BODIES_BYTES))
    delays: Delays = field(default_factory=Delays)
    jitter: Random = field(default_factory=Random)
    counters: dict[Target, Counters] = field(default_factory=dict)
    _requester: Requester = field(init=False)
    _tasks: asyncio.TaskGroup | None = None
    _lookup_pace: TurnPace = field(default_factory=lambda: TurnPace(LOOKUPS_AT_ONCE))
    _lookups: dict[Discovery, asyncio.Task[None]] = field(default_factory=dict)
    _listings: dict[Discovery, Listing] = field(default_factory=dict)
    _on_lists: Counter[Target] = field(default_factory=Counter)  # on how many listings a target is
    _groups: dict[WorkloadKey | Target, _ScrapeGroup] = field(default_factory=dict)
    _at_zero: set[WorkloadKey] = field(default_factory=set)
    _wakes: dict[ScrapeEndpoint, _Wake] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._requester = Requester(self.pages, self.clock, self.concurrency, self.bodies, self.faulted)

    async def run(self) -> None:
        with self._requester.threads:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                try:
                    self.follow(self.discoveries)
                    await asyncio.get_running_loop().create_future()  # until cancelled
                finally:
                    self._tasks = None  # a round that is cancelled hands nothing over

    # Discoveries and their targets.

    def follow(self, discoveries: Iterable[Discovery]) -> None:
        """Follows these discoveries from now on. The targets of any other discovery are removed."""
        self.discoveries = tuple(discoveries)
        if self._tasks is None:
            return
        for discovery in self._lookups.keys() - set(self.discoveries):
            self._lookups.pop(discovery).cancel()
            before = self._listings.pop(discovery, None)
            for target in before.targets if before is not None else ():
                self._unlist(target)
        for discovery in self.discoveries:
            if discovery not in self._lookups:
                # Each by itself: one name server that does not answer delays no other list.
                lookups = self._tasks.create_task(self._look_up_periodically(discovery), name="discovery")
                self._lookups[discovery] = lookups

    def look(self, discovery: Discovery) -> None:
        """Looks up a discovery at once, because something there has changed."""
        if self._tasks is not None and discovery in self._lookups:
            self._tasks.create_task(self._look_up(discovery), name="discovery at once")

    async def _look_up_periodically(self, discovery: Discovery) -> None:
        await self.clock.sleep(self.jitter.uniform(0.0, min(LOOKUP_SPREAD_S, self.interval_s)))
        wait_s = self.interval_s - self.jitter.uniform(0.0, self.interval_s)
        while True:
            await self._lookup_pace.turn()
            await self._look_up(discovery)
            if isinstance(discovery, StaticTargets) and discovery in self._listings:
                return
            await self.clock.sleep(wait_s)
            wait_s = self.interval_s

    async def _look_up(self, discovery: Discovery) -> None:
        try:
            await discovery.refresh(self.clock.now())
            listing = discovery.listing()
        except Exception as error:  # noqa: BLE001 - a bug in one discovery costs its list, which is then unknown
            self.faulted("discovery", discovery, error)
            listing = None
        if discovery not in self._lookups or self._tasks is None:
            return
        try:
            self._relist(discovery, listing, self._tasks)
        except Exception as error:  # noqa: BLE001 - the same
            self.faulted("discovery", discovery, error)

    def _relist(self, discovery: Discovery, listing: Listing | None, tasks: asyncio.TaskGroup) -> None:
        before = self._listings.get(discovery)
        self.listed(discovery, listing)
        # While a list is unknown, the targets of the last one are still scraped: to forget them would be a guess.
        if listing is None or listing == before:
            return
        self._listings[discovery] = listing
        old, new = frozenset(before.targets if before is not None else ()), frozenset(listing.targets)
        self._on_lists.update(new - old)
        for target in old - new:
            self._unlist(target)
        for target in listing.targets:
            if target not in self.counters:
                self._add(target, tasks, at_once=before is not None)

    def _add(self, target: Target, tasks: asyncio.TaskGroup, *, at_once: bool) -> None:
        """at_once: the discovery has listed targets before, so few others are likely to appear with this one."""
        requests = Requests(self.new_reader(target), self.new_scanner(target))
        self.counters[target] = Counters()
        key, now = target.owner or target, self.clock.now()
        name = f"scrape {target.role} {target.owner or target.url}"
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _ScrapeGroup(phase_of(str(target.owner or target.url)))
            group.task = tasks.create_task(self._rounds(group), name=name)
        group.targets[target] = requests
        if group.extra is None and (at_once or self.interval_s > START_SPREAD_S):
            due = moment_after(now, group.phase, self.interval_s, len(self.counters))
            early_s = START_SPREAD_S * (due - now) / self.interval_s
            wait_s = max(0.0, group.began + NEW_TARGETS_S - now) if at_once else early_s
            group.extra = tasks.create_task(self._round_after(group, wait_s), name=name)
        self._call(self.added, target)
        if target.owner in self._at_zero:
            self._add_wake(target)

    def _unlist(self, target: Target) -> None:
        """Removes a target from one list, and altogether if no other discovery lists it."""
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

    def ask_again(self, owner: WorkloadKey) -> None:
        """Begins a round of a workload at once, because something there has changed."""
        group = self._groups.get(owner)
        if group is not None and group.extra is None and self._tasks is not None:
            wait_s = max(0.0, group.began + GRID_S - self.clock.now())
            group.extra = self._tasks.create_task(self._round_after(group, wait_s), name=f"scrape {owner} again")

    # State of the readers.

    def readers(self) -> dict[Target, Reader]:
        """The reader of each target, for the next loop."""
        groups = self._groups.values()
        return {target: requests.reader for group in groups for target, requests in group.targets.items()}

    def restore(self, target: Target, missing: Collection[MissingSeries]) -> None:
        """Restores the missing series of a target, if it is listed."""
        group = self._groups.get(target.owner or target)
        requests = None if group is None else group.targets.get(target)
        if requests is not None:
            requests.reader.restore(missing)

    # Rounds.

    async def _rounds(self, group: _ScrapeGroup) -> None:
        every_s = self.interval_s
        due: float | None = None
        while True:
            now, last = self.clock.now(), due
            after = now if last is None else max(now, last + every_s / 2)
            due = moment_after(after, group.phase, every_s, len(self.counters))
            if last is not None:  # rounds that fell due while the event loop was busy
                self.delays.skipped[Skipped.OVERLOAD] += (round((due - last) / every_s) - 1) * len(group.targets)
            await self.clock.sleep(due - now)
            self._begin_round(group, due)

    async def _round_after(self, group: _ScrapeGroup, wait_s: float) -> None:
        due = self.clock.now() + wait_s
        if wait_s > 0.0:
            await self.clock.sleep(wait_s)
        group.extra = None
        self._begin_round(group, due)

    def _begin_round(self, group: _ScrapeGroup, due: float) -> None:
        """Requests every target that is not a wake source of a workload at zero. due: when, by the clock."""
        group.began = self.clock.now()
        for requests in group.targets.values():
            requests.missed = requests.task is not None and (requests.fetching or requests.slow)
            if requests.task is not None:
                self.delays.skipped[Skipped.SLOW_TARGET if requests.missed else Skipped.OVERLOAD] += 1
        rest = [each for each in group.targets.items() if each[1].task is None and not self._is_wake_source(each[0])]
        self._request_all(group, rest, due)

    def _request_all(self, group: _ScrapeGroup, targets: Sequence[tuple[Target, Requests]], due: float) -> None:
        if self._tasks is None:
            return
        round_ = _ScrapeRound(group, due, {target for target, requests in targets if not requests.slow})
        for target, requests in targets:
            scraping = self._scrape(target, requests, round_)
            requests.task = self._tasks.create_task(scraping, name=f"scrape {target.role} {target.owner}")
        if len(round_.expected) > 1:
            round_.deadline = self._tasks.create_task(self._hand_over_late(round_), name="deadline of a round")

    async def _scrape(self, target: Target, requests: Requests, round_: _ScrapeRound) -> None:
        try:
            result = ScrapeResult(target, *await self._requester.request(target, requests))
            self._check_delay(result, round_.due, self.interval_s)
            round_.landed.append(result)
        finally:
            requests.task = None
            round_.expected.discard(target)
            if not round_.expected:
                self._hand_over(round_)

    async def _hand_over_late(self, round_: _ScrapeRound) -> None:
        await self.clock.sleep(ROUND_WAIT_S)
        round_.deadline = None
        self._hand_over(round_)

    def _hand_over(self, round_: _ScrapeRound) -> None:
        """Delivers a round at its end or at its deadline. A response after that is delivered by itself."""
        if round_.deadline is not None:
            round_.deadline.cancel()
            round_.deadline = None
        round_.expected.clear()
        # Without targets that are not listed any more.
        scrapes = [scrape for scrape in round_.landed if scrape.target in self.counters]
        round_.landed.clear()
        self._deliver(scrapes)
        # Targets that were late for the last round are requested at once, however many rounds they missed. Those whose
        # request waited for its turn are not: it has been sent since then, and a backlog of requests would never end.
        late = [each for each in round_.group.targets.items() if each[1].missed and each[1].task is None]
        for _, requests in late:
            requests.missed = False
        if late:
            self._request_all(round_.group, late, self.clock.now())

    def _check_delay(self, scrape: ScrapeResult, due: float, every_s: float) -> None:
        self.delays.late += scrape.at - scrape.took_s - due > LATE * every_s

    def _deliver(self, scrapes: Sequence[ScrapeResult]) -> None:
        if not scrapes or self._tasks is None:
            return
        for scrape in scrapes:
            _count(self.counters[scrape.target], scrape)
        try:
            self.landed(scrapes)
        except Exception as error:  # noqa: BLE001 - a bug costs these responses
            for scrape in scrapes:
                self.faulted("response", scrape.target, error)

    def reject(self, scrape: ScrapeResult, failure: Failure) -> None:
        """Counts a failure of a response that was handed over and could not be processed."""
        counters = self.counters.get(scrape.target)
        if counters is not None:
            counters.failures[failure.kind] = counters.failures.get(failure.kind, 0) + 1
            counters.last = replace(scrape, outcome=failure)

    # Wake sources of workloads at zero.

    def set_at_zero(self, owner: WorkloadKey, *, at_zero: bool) -> None:
        """Sets whether a workload is at zero: its gateway targets are then scraped every `wake_interval_s`."""
        if at_zero == (owner in self._at_zero):
            return
        (self._at_zero.add if at_zero else self._at_zero.remove)(owner)
        group = self._groups.get(owner)
        for target in group.targets if group is not None else ():
            (self._add_wake if at_zero else self._remove_wake)(target)

    def keep_at_zero(self, owners: Collection[WorkloadKey]) -> None:
        """Forgets workloads at zero that are not among these."""
        for owner in self._at_zero.difference(owners):
            self.set_at_zero(owner, at_zero=False)

    def _add_wake(self, target: Target) -> None:
        # Values of a database are as old as its own scrapes: to read them more often brings nothing.
        if target.role is not Role.GATEWAY or target.max_age_s is not None or self._tasks is None:
            return
        wake = self._wakes.setdefault(ScrapeEndpoint.of(target), _Wake())
        wake.targets[target] = None
        if wake.task is None:
            wake.task = self._tasks.create_task(self._scrape_wake_source(wake), name=f"wake source {target.owner}")

    def _remove_wake(self, target: Target) -> None:
        endpoint = ScrapeEndpoint.of(target)
        wake = self._wakes.get(endpoint)
        if wake is None or target not in wake.targets:
            return
        del wake.targets[target]
        if not wake.targets:
            del self._wakes[endpoint]
            if wake.task is not None:
                wake.task.cancel()

    def _is_wake_source(self, target: Target) -> bool:
        """Whether a target is scraped to wake its workload, more often than in rounds."""
        wake = self._wakes.get(ScrapeEndpoint.of(target))
        return wake is not None and target in wake.targets and self._wake_s() < self.interval_s

    def _wake_s(self) -> float:
        """Seconds between two such scrapes of one endpoint. 300 endpoints at a rate of 100 per second: 3 s."""
        return max(self.wake_interval_s, len(self._wakes) / self.wake_rate)

    async def _scrape_wake_source(self, wake: _Wake) -> None:
        """Not in rounds: what wakes a workload waits for no other response."""
        first = next(iter(wake.targets))
        requests, phase = Requests(Reader(first.kind), self.new_scanner(first)), phase_of(first.url)
        requests.reader.restore(self._groups[first.owner or first].targets[first].reader.missing)
        due = float("-inf")
        while True:
            every_s, now = min(self._wake_s(), self.interval_s), self.clock.now()
            due = moment_after(max(now, due + every_s / 2), phase, every_s, len(self._wakes))
            await self.clock.sleep(due - now)
            if self._wake_s() >= self.interval_s:
                continue
            result = await self._requester.request(next(iter(wake.targets)), requests)
            scrapes = [ScrapeResult(target, *result) for target in wake.targets]
            for scrape in scrapes[:1]:  # one request for all of them
                self._check_delay(scrape, due, every_s)
            self._deliver(scrapes)


def phase_of(name: str) -> float:
    """0..1, the same in every process.

    Not a CRC: it is linear, so names that differ in one digit get phases at few distances.
    """
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "big") / 2**32


def moments_apart(every_s: float, targets: int) -> float:
    """Seconds between two moments at which rounds begin, if so many targets are due once per period `every_s`.

    At most half a period: as their number changes, a round is never a period early or late.

    Worked example: of 100 targets each second 50 are due in 0.5 s; of 2,000 each 0.1 s.
    """
    wanted_s = min(TOGETHER * every_s / max(targets, 1), every_s / 2)
    return GRID_S * min(max(floor(wanted_s / GRID_S), 1), MOST_STEPS)


def moment_after(after: float, phase: float, every_s: float, targets: int) -> float:
    """The next moment that is `phase` of a period after a whole number of periods. targets: due in each of them.

    Worked example: after 12.0 s, with a phase of 0.25 and a period of 4 s, it is 13.0 s.
    """
    apart_s = moments_apart(every_s, targets)
    offset = floor(phase * every_s / apart_s) * apart_s
    return (floor((after - offset) / every_s) + 1) * every_s + offset


def _count(counters: Counters, scrape: ScrapeResult) -> None:
    counters.scrapes += 1
    counters.last = scrape
    if isinstance(scrape.outcome, Failure):
        kind = scrape.outcome.kind
        counters.failures[kind] = counters.failures.get(kind, 0) + 1
    else:
        counters.dropped_lines += len(scrape.outcome.dropped)
