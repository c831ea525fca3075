"""One replica among several: its listener, its part in the election, and its following, as the daemon sees them.

Every replica scrapes, decides and is ready; who leads changes nothing but whose Board is answered with. At a start
readiness waits a moment for the leader's word, so that a replica that has seen nothing yet does not say so to KEDA.

Worked example: `await replica.start()`, then `replica.run(leases)` in a task and `replica.tick(now)` after each sweep;
`await replica.give_back()` as the process begins to stop, and `await replica.stop()` last.

Which replica this process is, and where the others ask it.

The pod's name and address come from its environment (Kubernetes' downward API), else from the machine. The process has
a name of its own, because a container that starts again in the same pod remembers nothing of what it led.

Worked example: with POD_NAME=tidegate-7d4-x2x and POD_IP=10.0.0.7 and a listener on 0.0.0.0:8444 it is
`Myself("tidegate-7d4-x2x_5f3a9c1e", "10.0.0.7:8444")`.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from random import Random
from typing import NamedTuple
from uuid import uuid4

import structlog

from exporter.clock import Clock
from exporter.kubernetes.leases import Lease, Leases
from scaler.config import Peers
from scaler.engine.publisher import Publisher
from scaler.tls import Told

from .election import TERMS, Campaign, Election, Terms
from .follower import Follower, Learned, Unfollowed
from .leader import Memory, PeerServer, PeerTlsFiles, connecting, listening

# After its first sweep a replica waits for so long to hear a leader before it answers by itself.
LISTEN_S = 5.0


class HaRole(StrEnum):
    LEADER = "leader"  # the others answer with our Board
    FOLLOWER = "follower"  # we answer with another's
    ALONE = "alone"  # nobody is heard who leads: each answers for itself


class Replica:
    """told: what is wrong with the files, and None once they serve again. Raises BadTlsFiles."""

    def __init__(
        self,
        settings: Peers,
        publisher: Publisher,
        *,
        tick_s: float,
        clock: Clock,
        environment: Mapping[str, str],
        memory: Memory,
        learned: Learned,
        told: Told,
        terms: Terms = TERMS,
    ) -> None:
        self._settings, self._publisher, self._clock, self._terms = settings, publisher, clock, terms
        self._tick_s, self._environment, self._learned = tick_s, environment, learned
        self._log = structlog.get_logger()
        files = PeerTlsFiles(settings.certificate, settings.key, settings.ca)
        self._context = connecting(files, told)
        self._server = PeerServer(
            publisher,
            host=settings.address.host,
            port=settings.address.port,
            context=listening(files, told),
            name=settings.server_name,
            clock=clock,
            memory=memory,
        )
        self._port = 0
        self._campaign: Campaign | None = None
        self._follower: Follower | None = None
        self._swept_at: float | None = None  # first
        self._remembers = False
        self._role: HaRole | None = None  # as it was said
        self._failing: tuple[str, str] | None = None
        self._failures: Counter[str] = Counter()

    @property
    def failures(self) -> Mapping[str, int]:
        """Questions to the leader that brought nothing, by kind."""
        return self._failures

    async def start(self) -> int:
        """Listen; returns the port. Raises AddressInUseError, OSError."""
        self._port = await self._server.start()
        return self._port

    async def run(self, leases: Leases) -> None:
        """Take part in the election, and follow who leads, until cancelled."""
        settings = self._settings
        me = await asyncio.to_thread(myself, self._environment, settings.address.host, self._port)
        name, _, namespace = settings.lease.partition(".")
        campaign = self._campaign = self._server.campaign = Campaign(
            leases,
            Election(me.identity, me.address, self._terms),
            namespace=namespace,
            name=name,
            clock=self._clock,
            jitter=Random(),  # noqa: S311 - it is no secret
            followed_s=max(1.0, 3 * self._tick_s),
            patience_s=self._patience_s,
            told=self._lease_told,
        )
        follower = self._follower = Follower(
            self._publisher,
            leader=self._to_follow,
            leads=campaign.leads,
            context=self._context,
            name=settings.server_name,
            tick_s=self._tick_s,
            clock=self._clock,
            learned=self._take,
            failed=self._follow_told,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(campaign.run(), name="who leads")
            tasks.create_task(follower.run(), name="what the leader says")

    def tick(self, now: float) -> None:
        """A sweep has ended."""
        if self._swept_at is None:
            self._swept_at = now
        if self._follower is not None:
            self._follower.settle(now)
        self._say_role(now)

    def settled(self, now: float) -> bool:
        """Are our answers those of all replicas, as far as we can know? True soon after the first sweep, and from then
        on: leadership gates nothing.
        """
        if self._swept_at is None:
            return False
        if now - self._swept_at >= LISTEN_S:
            return True
        campaign, follower = self._campaign, self._follower
        if campaign is None or follower is None or not campaign.looked:
            return False
        return follower.heard or campaign.leader() is None

    @property
    def repeats(self) -> str | None:
        """HOST:PORT of whose Board we answer with, or their name; None: our own is the Board."""
        lease = self._to_follow() if self._publisher.following else None
        return None if lease is None else lease.address or lease.holder

    def role(self, now: float) -> HaRole:
        if self._campaign is not None and self._campaign.leads(now):
            return HaRole.LEADER
        return HaRole.FOLLOWER if self._publisher.following else HaRole.ALONE

    def board_age_s(self, now: float) -> float | None:
        """Seconds since the sweep of the leader's Board that we have; None where there is none, or we lead."""
        if self._follower is None or not self._follower.heard or self.role(now) is HaRole.LEADER:
            return None
        return max(0.0, now - self._follower.copy.at)

    async def give_back(self) -> None:
        """We are about to stop: let another lead at once."""
        if self._campaign is not None:
            await self._campaign.give_back()

    async def stop(self) -> None:
        await self._server.stop()

    def _to_follow(self) -> Lease | None:
        """Whom to ask; nobody before there is somebody to remember what the leader does."""
        return self._campaign.leader() if self._campaign is not None and self._swept_at is not None else None

    def _patience_s(self) -> float | None:
        """How long to let others go first: those who remember something, before those who do not. Whoever answers as
        the Lease's holder is alive, even if it cannot renew: then we do not stand at all.
        """
        if self._swept_at is None:
            return None
        if self._follower is not None and self._to_follow() is not None and self._follower.fresh(self._clock.now()):
            return None
        return 0.0 if self._remembers else self._terms.lease_s

    async def _take(self, memory: bytes, offset_s: float) -> None:
        """What the leader remembers. One that cannot be read costs itself: its Board stands without it."""
        try:
            await self._learned(memory, offset_s)
        except Exception as error:  # noqa: BLE001 - another version's bytes, or a bug of ours: neither ends the process
            if not self._failures["memory"]:
                problem = str(error) if isinstance(error, ValueError) else repr(error)
                self._log.warning("the leader's memory cannot be taken; its answers are", problem=problem)
            self._failures["memory"] += 1

    def _lease_told(self, problem: str | None) -> None:
        if problem is None:
            self._log.info("the Lease can be read and written again", lease=self._settings.lease)
        else:
            words = "the Lease cannot be read or written; answers stay as they are"
            self._log.warning(words, lease=self._settings.lease, problem=problem)

    def _follow_told(self, address: str, why: Unfollowed | None) -> None:
        if why is None:
            self._remembers = True
            if self._failing is not None:
                self._failing = None
                self._log.info("the leader is heard again", leader=address)
            return
        self._failures[why.kind] += 1
        if self._campaign is not None:
            self._campaign.look_now()
        if self._failing != (address, why.kind):
            self._failing = address, why.kind
            self._log.warning("the leader is not heard", leader=address, problem=str(why))

    def _say_role(self, now: float) -> None:
        role = self.role(now)
        if role is HaRole.LEADER:
            self._remembers = True
        if role is not self._role:
            self._role = role
            leader = self._campaign.leader() if self._campaign is not None else None
            more = {"leader": leader.holder, "address": leader.address} if leader is not None else {}
            self._log.info("role", role=str(role), **more)


_EVERYWHERE = {"", "0.0.0.0", "::"}  # noqa: S104  compared, not bound


class Myself(NamedTuple):
    """identity: as the Lease's holder. address: HOST:PORT."""

    identity: str
    address: str


def myself(environment: Mapping[str, str], host: str, port: int) -> Myself:
    """host, port: where the listener is."""
    name = called(environment)
    if host in _EVERYWHERE:
        host = environment.get("POD_IP") or _own_address()
    bracketed = f"[{host}]" if ":" in host else host
    return Myself(f"{name}_{uuid4().hex[:8]}", f"{bracketed}:{port}")


def called(environment: Mapping[str, str]) -> str:
    """The pod's name, else the machine's."""
    return environment.get("POD_NAME") or socket.gethostname()


def _own_address() -> str:
    """A pod's name and address are in its /etc/hosts."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
