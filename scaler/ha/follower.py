"""Copies the leader's Board into this replica's Publisher for as long as it is fresh.

A Board is fresh for 3 ticks after the leader's last tick (at least 1 s), by this replica's clock. The leader delays
each response until there is a change, so a wake-up reaches every replica within a round trip of the scrape that showed
it. A follower ignores its own scrapes while it follows: KEDA polls replicas in turn and must not see two values.

Worked example: the leader ticks at 1000.0 and is killed. With a tick of 1 s its Board counts until 1003.0. Then the
follower publishes its own Board, which continues from the state that the leader sent last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

import aiohttp

from exporter.clock import Clock
from exporter.kubernetes.leases import Lease
from scaler.engine.publisher import Publisher
from scaler.tls import Rotating

from .frame import BadFrame, Copy, Frame, apply, decode
from .leader import PATH

FRESH_TICKS = 3.0
FRESH_AT_LEAST_S = 1.0
# 10,000 workloads take 12 MB of JSON and 11 to 61 MB of state, deflated.
LARGEST_FRAME_BYTES = 3 * 2**25
SHOWN_BYTES = 200  # of an error response
# Between two requests, in ticks: scrapes of a thousand pods are a thousand changes, and one response carries many.
PAUSE_TICKS = 0.1

# Takes the leader's state, and the difference of the clocks (this replica's less the leader's) in seconds.
StateConsumer = Callable[[bytes, float], Coroutine[Any, Any, None]]


class FollowFailure(Exception):  # noqa: N818 - a response, or the lack of one, and no error of this process
    """A request to the leader brought no frame. kind: label of the failure counter; a few words."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


class Follower:
    """leader: Lease of the replica to follow. leads: whether this replica leads. name: of the replicas' certificates.
    on_result: called after each request with the leader's address and the failure, or None.
    """

    def __init__(
        self,
        publisher: Publisher,
        *,
        leader: Callable[[], Lease | None],
        leads: Callable[[float], bool],
        context: Rotating,
        name: str,
        tick_s: float,
        clock: Clock,
        on_state: StateConsumer,
        on_result: Callable[[str, FollowFailure | None], None],
    ) -> None:
        self._publisher, self._leader, self._leads, self._clock = publisher, leader, leads, clock
        self._fresh_s = max(FRESH_TICKS * tick_s, FRESH_AT_LEAST_S)
        # The leader delays a response for a tick at most. A later response would not be fresh.
        self._timeout_s = tick_s + self._fresh_s
        self._context, self._name, self._tick_s = context, name, tick_s
        self._on_state, self._on_result = on_state, on_result
        self.copy = Copy()

    @property
    def has_copy(self) -> bool:
        return bool(self.copy.epoch)

    def is_fresh(self, now: float) -> bool:
        """A Board dated too far ahead is as stale as one dated too far back: this clock was set."""
        return self.has_copy and abs(now - self.copy.at) <= self._fresh_s

    def settle(self, now: float) -> None:
        """Returns to the own Board if the copy is stale or this replica leads. Call it at every tick. A fresh copy
        counts even if its leader has stepped down since: another replica may lead already.
        """
        if not self.is_fresh(now) or self._leads(now):
            self._publisher.alone()

    async def run(self) -> None:
        """Runs until cancelled."""
        async with self.session() as session:
            while True:
                await self.poll(session)

    def session(self) -> aiohttp.ClientSession:
        """Neither requests nor decodes compression, so that no small response inflates."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._context, limit=2),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
        )

    async def poll(self, session: aiohttp.ClientSession) -> None:
        """Sends one request if there is a leader, and pauses."""
        leader = self._leader()
        if leader is None:
            self.settle(self._clock.now())
            await self._clock.sleep(PAUSE_TICKS * self._tick_s)
            return
        try:
            await self._follow(session, leader)
        except FollowFailure as failure:
            self._on_result(leader.address, failure)
            self.settle(self._clock.now())
            await self._clock.sleep(self._tick_s)
        else:
            self._on_result(leader.address, None)
            await self._clock.sleep(PAUSE_TICKS * self._tick_s)

    async def _follow(self, session: aiohttp.ClientSession, leader: Lease) -> None:
        """Raises FollowFailure."""
        sent_at = self._clock.now()
        frame = await self._fetch(session, leader.address)
        now = self._clock.now()
        # The frame was written after `sent_at`. If that is long ago (this process or the network was frozen), the frame
        # does not describe the present, and the difference of the clocks is unknown.
        if now - sent_at > self._timeout_s:
            raise FollowFailure("late", f"{now - sent_at:.1f} s between the request and the response")
        present = self._leader()
        if present is None or present.address != leader.address:
            return
        copy = apply(self.copy, frame, now - frame.now)
        if copy is None:
            self.copy = Copy()
            raise FollowFailure("gap", f"changes since version {frame.since}, which is not the version of the copy")
        if frame.state:
            await self._on_state(frame.state, now - frame.now)
        self.copy = copy  # after the state: `has_copy` implies that the state has arrived
        if not self.is_fresh(now):
            raise FollowFailure("stale", f"the leader's last tick was {now - copy.at:.1f} s ago")
        self._publisher.follow(copy.decisions, copy.at)

    async def _fetch(self, session: aiohttp.ClientSession, address: str) -> Frame:
        """Raises FollowFailure."""
        query = {
            "epoch": self.copy.epoch,
            "version": str(self.copy.version),
            "at": repr(self.copy.leader_at),
            "wait": repr(self._tick_s),
        }
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                session.get(f"https://{address}{PATH}", params=query, server_hostname=self._name) as response,
            ):
                is_frame = response.status == HTTPStatus.OK
                body = await _read(response) if is_frame else await response.content.read(SHOWN_BYTES)
        except TimeoutError as error:
            raise FollowFailure("timeout", f"no response within {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: an invalid address
            raise FollowFailure("connection", str(error) or type(error).__name__) from error
        if response.status == HTTPStatus.MISDIRECTED_REQUEST:
            raise FollowFailure("not_leading", "it does not lead")
        if response.status != HTTPStatus.OK:
            raise FollowFailure(f"http_{response.status}", body.decode(errors="replace").strip())
        try:
            return await asyncio.to_thread(decode, body)
        except BadFrame as bad:
            raise FollowFailure("bad_frame", str(bad)) from bad


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body. Raises FollowFailure before it exceeds LARGEST_FRAME_BYTES, ClientError."""
    body, announced_bytes = bytearray(), response.content_length or 0
    async for chunk in response.content.iter_any():
        body += chunk
        size = max(announced_bytes, len(body))
        if size > LARGEST_FRAME_BYTES:
            raise FollowFailure("too_large", f"a frame has {LARGEST_FRAME_BYTES} bytes at most, got {size}")
    return bytes(body)
