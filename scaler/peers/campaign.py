"""The election as it happens: a look at the Lease every 2 s, and what our rules say to write.

Nothing here ends the process: who loses the Lease goes on as a follower. No API server, no RBAC, or another who writes
at the same moment: each costs one look, and is said once.

Worked example: `await campaign.run()` in a task; `campaign.leads(now)` and `campaign.leader()` are what it knows;
`await campaign.give_back()` on the way out lets the next one begin at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from math import nan
from random import Random

from exporter.clock import Clock
from exporter.cluster.api import ApiFailure
from exporter.cluster.leases import Lease, Leases

from .. import election as rules
from ..election import Election

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
        return not self._over and rules.leads(self._election, now, self._followed_at, self._followed_s)

    def leader(self) -> Lease | None:
        """Whom to ask for the Board; None: nobody, or it is us."""
        return rules.leader(self._election)

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
                lease = rules.given_back(self._election, self._clock.now())
                if lease is not None:
                    written = await self._leases.write_lease(self._namespace, self._name, lease)
                    self._election = rules.observed(self._election, written, self._clock.now())
        except (ApiFailure, TimeoutError):
            return

    async def _look(self) -> None:
        lease = await self._leases.lease(self._namespace, self._name)
        self._election = rules.observed(self._election, lease, self._clock.now())
        self.looked = True
        patience_s = 0.0 if rules.holds(self._election) else self._patience_s()
        if patience_s is None or self._over:
            return
        sent_at = self._clock.now()
        wanted = rules.bid(self._election, sent_at, patience_s)
        if wanted is not None:
            written = await self._leases.write_lease(self._namespace, self._name, wanted)
            self._election = rules.won(self._election, written, sent_at, self._clock.now())

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
