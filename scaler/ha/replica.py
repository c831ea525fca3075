"""Runs leader election and replication for one replica.

Every replica scrapes, decides and is ready; the leader only selects the Board that all publish. After a start,
readiness waits a moment for the leader's Board, so that a replica without data does not answer KEDA from it.

Worked example: `await replica.start()`, then `replica.run(leases)` in a task and `replica.tick(now)` after each tick;
`await replica.release()` when the process begins to stop, and `await replica.stop()` last. With
POD_NAME=tidegate-7d4-x2x, POD_IP=10.0.0.7 and a listener on 0.0.0.0:8444 its identity is "tidegate-7d4-x2x_5f3a9c1e",
its address "10.0.0.7:8444".
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from random import Random
from uuid import uuid4

import structlog

from exporter.clock import Clock
from exporter.kubernetes.leases import Lease, Leases
from scaler.config import Peers
from scaler.engine.publisher import Publisher
from scaler.tls import ProblemListener

from .election import TERMS, Election, LeaderElector, Terms
from .follower import Follower, FollowFailure, StateConsumer
from .leader import BoardServer, PeerTlsFiles, StateSource, client_context, server_context

# So long after its first tick a replica waits for the leader's Board before it answers from its own.
LISTEN_S = 5.0
_WILDCARDS = {"", "0.0.0.0", "::"}  # noqa: S104  compared, not bound


class HaRole(StrEnum):
    LEADER = "leader"  # the others publish this replica's Board
    FOLLOWER = "follower"  # this replica publishes the leader's Board
    ALONE = "alone"  # no leader is reachable: this replica publishes its own Board


class Replica:
    """state: source of the state for followers. on_state: takes the leader's state. on_tls_problem: called if the TLS
    files become unusable, and with None if they are usable again. Raises BadTlsFiles.
    """

    def __init__(
        self,
        settings: Peers,
        publisher: Publisher,
        *,
        tick_s: float,
        clock: Clock,
        environment: Mapping[str, str],
        state: StateSource,
        on_state: StateConsumer,
        on_tls_problem: ProblemListener,
        terms: Terms = TERMS,
    ) -> None:
        self._settings, self._publisher, self._clock, self._terms = settings, publisher, clock, terms
        self._tick_s, self._environment, self._on_state = tick_s, environment, on_state
        self._log = structlog.get_logger()
        files = PeerTlsFiles(settings.certificate, settings.key, settings.ca)
        self._context = client_context(files, on_tls_problem)
        self._server = BoardServer(
            publisher,
            host=settings.address.host,
            port=settings.address.port,
            context=server_context(files, on_tls_problem),
            name=settings.server_name,
            clock=clock,
            state=state,
        )
        self._port = 0
        self._elector: LeaderElector | None = None
        self._follower: Follower | None = None
        self._first_tick_at: float | None = None
        self._has_state = False  # as a leader, or from one
        self._logged_role: HaRole | None = None
        self._logged_failure: tuple[str, str] | None = None  # address, kind
        self._failures: Counter[str] = Counter()

    @property
    def failures(self) -> Mapping[str, int]:
        """Failed requests to the leader, by kind."""
        return self._failures

    async def start(self) -> int:
        """Listens; returns the port. Raises AddressInUseError, OSError."""
        self._port = await self._server.start()
        return self._port

    async def run(self, leases: Leases) -> None:
        """Takes part in the election and follows the leader until cancelled."""
        settings = self._settings
        address = await asyncio.to_thread(own_address, self._environment, settings.address.host, self._port)
        # A restarted container in the same pod has no state of what it led, so it needs another identity.
        identity = f"{called(self._environment)}_{uuid4().hex[:8]}"
        name, _, namespace = settings.lease.partition(".")
        elector = self._elector = self._server.elector = LeaderElector(
            leases,
            Election(identity, address, self._terms),
            namespace=namespace,
            name=name,
            clock=self._clock,
            jitter=Random(),  # noqa: S311 - not a secret
            followed_s=max(1.0, 3 * self._tick_s),
            delay_s=self._election_delay_s,
            on_problem=self._log_lease,
        )
        follower = self._follower = Follower(
            self._publisher,
            leader=self._leader,
            leads=elector.leads,
            context=self._context,
            name=settings.server_name,
            tick_s=self._tick_s,
            clock=self._clock,
            on_state=self._take_state,
            on_result=self._record_result,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(elector.run(), name="leader election")
            tasks.create_task(follower.run(), name="follower")

    def tick(self, now: float) -> None:
        """Call it after each tick of the control loop."""
        if self._first_tick_at is None:
            self._first_tick_at = now
        if self._follower is not None:
            self._follower.settle(now)
        self._log_role(now)

    def settled(self, now: float) -> bool:
        """Whether this replica publishes the same Board as the others, as far as it can know. True soon after the first
        tick, and from then on: leadership gates nothing.
        """
        if self._first_tick_at is None:
            return False
        if now - self._first_tick_at >= LISTEN_S:
            return True
        elector, follower = self._elector, self._follower
        if elector is None or follower is None or not elector.has_read:
            return False
        return follower.has_copy or elector.leader() is None

    @property
    def followed_address(self) -> str | None:
        """HOST:PORT (or the identity) of the leader, if its Board is published. Returns None if the own Board is."""
        lease = self._leader() if self._publisher.following else None
        return None if lease is None else lease.address or lease.holder

    def role(self, now: float) -> HaRole:
        if self._elector is not None and self._elector.leads(now):
            return HaRole.LEADER
        return HaRole.FOLLOWER if self._publisher.following else HaRole.ALONE

    def board_age_s(self, now: float) -> float | None:
        """Seconds since the last tick of the copied Board. Returns None without a copy, or if this replica leads."""
        if self._follower is None or not self._follower.has_copy or self.role(now) is HaRole.LEADER:
            return None
        return max(0.0, now - self._follower.copy.at)

    async def release(self) -> None:
        """Releases the Lease, so that another replica can lead at once."""
        if self._elector is not None:
            await self._elector.release()

    async def stop(self) -> None:
        await self._server.stop()

    def _leader(self) -> Lease | None:
        """The replica to follow; None before the first tick, when there is nothing that could take its state."""
        return self._elector.leader() if self._elector is not None and self._first_tick_at is not None else None

    def _election_delay_s(self) -> float | None:
        """How long to leave a free Lease to others: replicas with state go first. None if it must not be taken: a
        holder that answers as the leader is alive, even if it cannot renew.
        """
        if self._first_tick_at is None:
            return None
        if self._follower is not None and self._leader() is not None and self._follower.is_fresh(self._clock.now()):
            return None
        return 0.0 if self._has_state else self._terms.lease_s

    async def _take_state(self, state: bytes, offset_s: float) -> None:
        """Takes the leader's state. If that fails, its Board is published without it."""
        try:
            await self._on_state(state, offset_s)
        except Exception as error:  # noqa: BLE001 - another version's bytes, or a bug: neither ends the process
            if not self._failures["memory"]:
                problem = str(error) if isinstance(error, ValueError) else repr(error)
                self._log.warning("leader state unreadable", problem=problem)
            self._failures["memory"] += 1

    def _log_lease(self, problem: str | None) -> None:
        if problem is None:
            self._log.info("Lease access recovered", lease=self._settings.lease)
        else:
            self._log.warning("Lease access failed", lease=self._settings.lease, problem=problem)

    def _record_result(self, address: str, failure: FollowFailure | None) -> None:
        """Counts a failed request to the leader, and logs if failures of a kind begin or end."""
        if failure is None:
            self._has_state = True
            if self._logged_failure is not None:
                self._logged_failure = None
                self._log.info("leader reachable again", leader=address)
            return
        self._failures[failure.kind] += 1
        if self._elector is not None:
            self._elector.retry_now()
        if self._logged_failure != (address, failure.kind):
            self._logged_failure = address, failure.kind
            self._log.warning("leader not reachable", leader=address, problem=str(failure))

    def _log_role(self, now: float) -> None:
        role = self.role(now)
        if role is HaRole.LEADER:
            self._has_state = True
        if role is not self._logged_role:
            self._logged_role = role
            leader = self._elector.leader() if self._elector is not None else None
            fields = {"leader": leader.holder, "address": leader.address} if leader is not None else {}
            self._log.info("role", role=str(role), **fields)


def called(environment: Mapping[str, str]) -> str:
    """The pod's name from the downward API, else the host name."""
    return environment.get("POD_NAME") or socket.gethostname()


def own_address(environment: Mapping[str, str], host: str, port: int) -> str:
    """HOST:PORT where other replicas reach the listener. host, port: of the listener."""
    if host in _WILDCARDS:
        host = environment.get("POD_IP") or _host_address()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host_address() -> str:
    """By name: a pod's name and address are in its /etc/hosts."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
