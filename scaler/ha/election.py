"""Elects the leader among replicas, by a Lease of Kubernetes and the rules of client-go's leader election.

A replica judges a Lease by how long it stays unchanged on its own clock. It never compares the times written in the
Lease, so clock differences do not matter. A holder renews every 2 s; after 10 s without a renewal it no longer leads;
others take the Lease after 15 s without a change. So at most one replica leads, and for some seconds none may: then
each publishes its own Board.

Two rules are Tidegate's own. Leadership only selects the Board that all replicas publish, so a leader that cannot reach
the API server continues while followers poll it; they would not poll it if they knew another. A replica without state
lets others take a free Lease first (`delay_s`). Losing the Lease never ends the process.

Worked example: "a" holds the Lease, which changed at 100.0 last. `propose(election, 114.0)` is None; at 115.0 it is the
Lease to write. After `confirm(...)` of that write, sent at 115.0, this replica leads until 125.0 unless it renews.
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

# client-go's factor: two replicas that read at the same moment do not read at the same moment again.
JITTER = 0.2
# The next leader waits at most `retry_s`, so a process that ends waits no longer for the API server.
RELEASE_S = 1.0


class Terms(NamedTuple):
    """Seconds; defaults as in client-go and the Kubernetes control plane.

    lease_s: validity after a renewal. renew_s: a holder without a renewal for so long no longer leads; less than
    `lease_s`, so that there are never two leaders. retry_s: between two reads.
    """

    lease_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0


TERMS = Terms()


@dataclass(frozen=True, slots=True)
class Election:
    """The election from the view of one replica. Times are POSIX seconds of its clock, NaN before the first event.

    me:         identity of this process. A restart in the same pod gets another one and does not inherit the Lease.
    address:    HOST:PORT where followers poll this replica.
    lease:      as last read or written; None if there is none or it was never read.
    changed_at: when `lease` took its present value.
    renewed_at: when the last successful write of this replica was sent.
    """

    me: str
    address: str
    terms: Terms = TERMS
    lease: Lease | None = None
    changed_at: float = nan
    renewed_at: float = nan


def observe(election: Election, lease: Lease | None, now: float) -> Election:
    """Records a read Lease. A new version alone is no change: a label may have been added."""
    same = lease is not None and election.lease is not None and _unversioned(lease) == _unversioned(election.lease)
    return replace(election, lease=lease, changed_at=election.changed_at if same else now)


def propose(election: Election, now: float, delay_s: float = 0.0) -> Lease | None:
    """The Lease to write in order to hold it. Returns None if another replica holds it.

    delay_s: additional seconds before an expired or released Lease is taken.
    """
    terms, lease = election.terms, election.lease
    fresh = Lease(election.me, election.address, terms.lease_s, now, now)
    if lease is None:
        return fresh
    if lease.holder == election.me:
        return fresh._replace(acquired_at=lease.acquired_at, transitions=lease.transitions, version=lease.version)
    held_s = (lease.duration_s or terms.lease_s) if lease.holder else 0.0
    if now < election.changed_at + held_s + delay_s:
        return None
    return fresh._replace(transitions=lease.transitions + 1, version=lease.version)


def confirm(election: Election, lease: Lease, sent_at: float, now: float) -> Election:
    """Records a successful write that was sent at `sent_at`. Other replicas count from when they read it, later."""
    return replace(observe(election, lease, now), renewed_at=sent_at)


def propose_release(election: Election, now: float) -> Lease | None:
    """The Lease to write so that another replica can take it at once. Returns None if this replica does not hold it."""
    if not holds(election) or election.lease is None:
        return None
    return election.lease._replace(holder="", address="", duration_s=1.0, renewed_at=now)


def holds(election: Election) -> bool:
    """Whether this replica holds the Lease, as last read."""
    return election.lease is not None and election.lease.holder == election.me


def leads(election: Election, now: float, followed_at: float = nan, followed_s: float = 0.0) -> bool:
    """Whether this replica leads. followed_at: when a follower polled it last, which counts for `followed_s`."""
    renewed = now - election.renewed_at < election.terms.renew_s
    return holds(election) and (renewed or now - followed_at < followed_s)


def leader(election: Election) -> Lease | None:
    """The Lease of another replica that has an address. Also an expired one: while its holder answers as the leader,
    there is no other leader.
    """
    lease = election.lease
    return lease if lease is not None and lease.holder not in {"", election.me} and lease.address else None


def _unversioned(lease: Lease) -> Lease:
    return lease._replace(version="")


class LeaderElector:
    """Takes part in the election: reads the Lease every 2 s and writes what the rules propose.

    namespace, name: of the Lease. followed_s: so long after a poll of a follower no other replica leads.
    delay_s:         called at each read: additional seconds before a free Lease is taken; None if it must not be taken.
    on_problem:      called if reads or writes begin to fail, and with None if they succeed again.
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
        delay_s: Callable[[], float | None],
        on_problem: Callable[[str | None], None],
    ) -> None:
        self._leases, self._election, self._clock, self._jitter = leases, election, clock, jitter
        self._namespace, self._name = namespace, name
        self._followed_s, self._delay_s, self._on_problem = followed_s, delay_s, on_problem
        self._followed_at = nan
        self._problem: str | None = None
        self._retry = asyncio.Event()
        self._writing = asyncio.Lock()  # two concurrent writes of this process would conflict with each other
        self._stopped = False
        self.has_read = False  # the API server has answered at least once

    def leads(self, now: float) -> bool:
        return not self._stopped and leads(self._election, now, self._followed_at, self._followed_s)

    def leader(self) -> Lease | None:
        """The Lease of the replica to follow. Returns None if there is none, or this replica holds it."""
        return leader(self._election)

    @property
    def epoch(self) -> str:
        """Identifies one term of this replica as the leader."""
        lease = self._election.lease
        return f"{self._election.me}/{lease.transitions if lease is not None else 0}"

    def record_poll(self, now: float) -> None:
        """A follower polls this replica as its leader."""
        self._followed_at = now

    def retry_now(self) -> None:
        """Reads the Lease at once: the leader fails, or answers that it does not lead."""
        self._retry.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self.update()
            await self._pause()

    async def update(self) -> None:
        """Reads the Lease, and writes it if the rules propose so."""
        problem = None
        try:
            async with self._writing:
                await self._update()
        except ApiFailure as failed:
            # 409: another replica wrote first, which is normal; the next read shows its Lease.
            problem = failed.detail if failed.status != HTTPStatus.CONFLICT else None
        if problem != self._problem:
            self._problem = problem
            self._on_problem(problem)

    async def release(self) -> None:
        """Releases the Lease and no longer leads. If the write fails, the Lease expires.

        Waits for a renewal in progress: a release of the version before it would fail, and the Lease stay held.
        """
        self._stopped = True
        try:
            async with asyncio.timeout(RELEASE_S), self._writing:
                lease = propose_release(self._election, self._clock.now())
                if lease is not None:
                    written = await self._leases.write_lease(self._namespace, self._name, lease)
                    self._election = observe(self._election, written, self._clock.now())
        except (ApiFailure, TimeoutError):
            return

    async def _update(self) -> None:
        lease = await self._leases.lease(self._namespace, self._name)
        self._election = observe(self._election, lease, self._clock.now())
        self.has_read = True
        delay_s = 0.0 if holds(self._election) else self._delay_s()
        if delay_s is None or self._stopped:
            return
        sent_at = self._clock.now()
        proposed = propose(self._election, sent_at, delay_s)
        if proposed is not None:
            written = await self._leases.write_lease(self._namespace, self._name, proposed)
            self._election = confirm(self._election, written, sent_at, self._clock.now())

    async def _pause(self) -> None:
        """Waits until the next read is due, or `retry_now` is called."""
        seconds = self._election.terms.retry_s * (1 + JITTER * self._jitter.random())
        waits = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._retry.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._retry.clear()
