"""Which of several replicas leads: what a Lease of Kubernetes means to one of them, and what it should write. Pure.

The rules are those of client-go's leader election. A Lease is judged by how long *we* have seen it unchanged, by our
own clock; the times written in it are another clock's and are never compared, so replicas whose clocks differ agree. A
holder renews every 2 s; one that could not for 10 s leads no more; others take the Lease when they have seen no change
for its 15 s. So there is at most one leader, and for some seconds there may be none: then each answers for itself.

Two rules are ours. Leading gates nothing here but whose Board everybody repeats, so a leader that cannot reach the API
server goes on for as long as the others go on asking it: they would not if they knew of another. And a replica that
remembers nothing yet lets those that do go first (`patience_s`).

Worked example: "a" has held the Lease since we saw it change at 100.0. `bid(election, 114.0)` is None; at 115.0 it is
what to write to hold it ourselves. `won(...)` of the answer, sent at 115.0: we lead until 125.0 unless we renew.

The election as it happens: a look at the Lease every 2 s, and what our rules say to write.

Nothing here ends the process: who loses the Lease goes on as a follower. No API server, no RBAC, or another who writes
at the same moment: each costs one look, and is said once.

Worked example: `await campaign.run()` in a task; `campaign.leads(now)` and `campaign.leader()` are what it knows;
`await campaign.give_back()` on the way out lets the next one begin at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from math import nan
from random import Random
from typing import NamedTuple

from exporter.clock import Clock
from exporter.kubernetes.leases import Lease, Leases
from exporter.kubernetes.protocol import ApiFailure


class Terms(NamedTuple):
    """Seconds, as client-go and the control plane itself have them. lease_s: a Lease holds for so long after a renewal.
    renew_s: a holder that could not renew for so long leads no more; less than `lease_s`, so that there are never two.
    retry_s: between two looks.
    """

    lease_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0


TERMS = Terms()


@dataclass(frozen=True, slots=True)
class Election:
    """What one replica knows of the Lease. Times are POSIX seconds of its own clock, NaN where nothing happened yet.

    me:         this process, and no other before or after it: what it once held, its successor in the same pod has not.
    address:    HOST:PORT where the others ask it.
    seen:       the Lease as it was read or written last; None: there is none, or nobody has looked.
    changed_at: when it was first seen as it is.
    renewed_at: when the last write that made us its holder was sent.
    """

    me: str
    address: str
    terms: Terms = TERMS
    seen: Lease | None = None
    changed_at: float = nan
    renewed_at: float = nan


def observed(election: Election, lease: Lease | None, now: float) -> Election:
    """The Lease was read. The version alone is no change: somebody may have labelled it."""
    same = lease is not None and election.seen is not None and _said(lease) == _said(election.seen)
    return replace(election, seen=lease, changed_at=election.changed_at if same else now)


def bid(election: Election, now: float, patience_s: float = 0.0) -> Lease | None:
    """What to write to hold it from now on; None: it is another's.

    patience_s: how much longer than others to leave alone what has expired or was given back.
    """
    terms, seen = election.terms, election.seen
    fresh = Lease(election.me, election.address, terms.lease_s, now, now)
    if seen is None:
        return fresh
    if seen.holder == election.me:
        return fresh._replace(acquired_at=seen.acquired_at, transitions=seen.transitions, version=seen.version)
    held_s = (seen.duration_s or terms.lease_s) if seen.holder else 0.0
    if now < election.changed_at + held_s + patience_s:
        return None
    return fresh._replace(transitions=seen.transitions + 1, version=seen.version)


def won(election: Election, lease: Lease, sent_at: float, now: float) -> Election:
    """The API took what was sent at `sent_at`; others count from when they see it, which is later."""
    return replace(observed(election, lease, now), renewed_at=sent_at)


def given_back(election: Election, now: float) -> Lease | None:
    """What to write so that another may take it at once; None: it is not ours."""
    if not holds(election) or election.seen is None:
        return None
    return election.seen._replace(holder="", address="", duration_s=1.0, renewed_at=now)


def holds(election: Election) -> bool:
    """Is it ours, as far as we know?"""
    return election.seen is not None and election.seen.holder == election.me


def leads(election: Election, now: float, followed_at: float = nan, followed_s: float = 0.0) -> bool:
    """followed_at: when another replica last asked us as its leader; that counts for `followed_s`."""
    renewed = now - election.renewed_at < election.terms.renew_s
    return holds(election) and (renewed or now - followed_at < followed_s)


def leader(election: Election) -> Lease | None:
    """Whom to ask: the holder, if it is another and says where. Also when its time is over: as long as it answers that
    it leads, there is nobody else.
    """
    seen = election.seen
    return seen if seen is not None and seen.holder not in {"", election.me} and seen.address else None


def _said(lease: Lease) -> Lease:
    return lease._replace(version="")


# Two who looked at the same moment do not look at the same moment again; client-go's factor.
JITTER = 0.2
# The next leader waits at most `retry_s`, so a process that ends waits no longer for the API server.
GIVE_BACK_S = 1.0


class Campaign:
    """One replica's part in the election.

    namespace, name: of the Lease. followed_s: a follower's question shows for so long that nobody else leads.
    patience_s:      how much longer than others to leave alone what is free, asked each time; None: do not stand.
    told:            why the Lease cannot be read or written, and None once it can.
    """

    def __init__(
        self,
        leases: Leases,
        election: Election,
        *,
        namespace: str,
        name: str,
        clock: Clock,
        jitter: Random,
        followed_s: float,
        patience_s: Callable[[], float | None],
        told: Callable[[str | None], None],
    ) -> None:
        self._leases, self._election, self._clock, self._jitter = leases, election, clock, jitter
        self._namespace, self._name = namespace, name
        self._followed_s, self._patience_s, self._told = followed_s, patience_s, told
        self._followed_at = nan
        self._problem: str | None = None
        self._at_once = asyncio.Event()
        self._writing = asyncio.Lock()  # two writes of ours at once would be somebody else's write to each other
        self._over = False
        self.looked = False  # has anybody answered what the Lease is?

    def leads(self, now: float) -> bool:
        return not self._over and leads(self._election, now, self._followed_at, self._followed_s)

    def leader(self) -> Lease | None:
        """Whom to ask for the Board; None: nobody, or it is us."""
        return leader(self._election)

    @property
    def term(self) -> str:
        """Our time in office, unlike any other of ours or anybody's."""
        seen = self._election.seen
        return f"{self._election.me}/{seen.transitions if seen is not None else 0}"

    def followed(self, now: float) -> None:
        """Another replica asked us as its leader."""
        self._followed_at = now

    def look_now(self) -> None:
        """There may be news: the leader does not answer, or says that it is none."""
        self._at_once.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await self._pause()

    async def look(self) -> None:
        """Read the Lease, and write it if it is for us to write."""
        problem = None
        try:
            async with self._writing:
                await self._look()
        except ApiFailure as failed:
            # 409: somebody was first, and the next look says who. It is how an election goes, and no trouble.
            problem = failed.detail if failed.status != HTTPStatus.CONFLICT else None
        if problem != self._problem:
            self._problem = problem
            self._told(problem)

    async def give_back(self) -> None:
        """Let another have it at once, and lead no more. If that fails, it is free after its time.

        A renewal that is under way is waited for: given back by the version before it, the Lease would stay ours.
        """
        self._over = True
        try:
            async with asyncio.timeout(GIVE_BACK_S), self._writing:
                lease = given_back(self._election, self._clock.now())
                if lease is not None:
                    written = await self._leases.write_lease(self._namespace, self._name, lease)
                    self._election = observed(self._election, written, self._clock.now())
        except (ApiFailure, TimeoutError):
            return

    async def _look(self) -> None:
        lease = await self._leases.lease(self._namespace, self._name)
        self._election = observed(self._election, lease, self._clock.now())
        self.looked = True
        patience_s = 0.0 if holds(self._election) else self._patience_s()
        if patience_s is None or self._over:
            return
        sent_at = self._clock.now()
        wanted = bid(self._election, sent_at, patience_s)
        if wanted is not None:
            written = await self._leases.write_lease(self._namespace, self._name, wanted)
            self._election = won(self._election, written, sent_at, self._clock.now())

    async def _pause(self) -> None:
        """Until the next look is due, or something asks for it."""
        seconds = self._election.terms.retry_s * (1 + JITTER * self._jitter.random())
        waits = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._at_once.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._at_once.clear()
