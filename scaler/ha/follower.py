"""A follower: it asks the leader for what changed, again and again, and answers with that while it is fresh.

Fresh is what the leader swept within the last 3 ticks (and 1 s, if those are shorter), by our clock. Each question
waits at the leader until there is something new, so a wake-up reaches every replica within a round trip of the scrape
that showed it; what a follower scrapes itself raises none of its answers meanwhile. One voice is worth more than one
scrape: KEDA would hear two numbers by turns, and the leader scrapes the same page as often.

Worked example: the leader sweeps at 1000.0 and is killed. Its Board counts until 1003.0 with a tick of 1 s; from then
on the answers are our own, which rest on the memory it told us last.
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

from .frame import BadFrame, Copy, Frame, decode, retold
from .leader import PATH

FRESH_TICKS = 3.0
FRESH_AT_LEAST_S = 1.0
# 10,000 workloads take 12 MB of JSON and 9 MB of memory, deflated.
LARGEST_FRAME_BYTES = 2**26
SHOWN_BYTES = 200  # of an answer that is no frame
# Between two questions, in ticks: a thousand pods' pages are a thousand changes, and one answer tells of many.
PAUSE_TICKS = 0.1


# What a leader remembers, and our clock less its.
Learned = Callable[[bytes, float], Coroutine[Any, Any, None]]


class Unfollowed(Exception):  # noqa: N818 - it is an answer, or the lack of one, and no error of ours
    """There is no frame. kind: for the count of failures; a few words."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


class Follower:
    """leader: whom to ask. leads: do we ourselves? name: of the replicas' certificates. learned: takes what the leader
    remembers. failed: told that a question to that address brought nothing, or None once one brings something.
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
        learned: Learned,
        failed: Callable[[str, Unfollowed | None], None],
    ) -> None:
        self._publisher, self._leader, self._leads, self._clock = publisher, leader, leads, clock
        self._fresh_s = max(FRESH_TICKS * tick_s, FRESH_AT_LEAST_S)
        # A question waits for a tick at the most. What came later than all of this would not be fresh any more.
        self._patience_s = tick_s + self._fresh_s
        self._context, self._name, self._tick_s = context, name, tick_s
        self._learned, self._failed = learned, failed
        self.copy = Copy()

    @property
    def heard(self) -> bool:
        """Has any leader ever told us anything?"""
        return bool(self.copy.epoch)

    def fresh(self, now: float) -> bool:
        """A Board that is dated too far ahead is as old as one that is dated too far back: our clock was set."""
        return self.heard and abs(now - self.copy.at) <= self._fresh_s

    def settle(self, now: float) -> None:
        """Answer with what counts at this moment. To be called at every tick, because time passes. What a leader said
        counts while it is fresh, even if it has stepped down since: another may have taken its place by then.
        """
        if not self.fresh(now) or self._leads(now):
            self._publisher.alone()

    async def run(self) -> None:
        """Until cancelled."""
        async with self.session() as session:
            while True:
                await self.ask(session)

    def session(self) -> aiohttp.ClientSession:
        """Asks for no compression and inflates none: what is read is what was sent."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._context, limit=2),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
        )

    async def ask(self, session: aiohttp.ClientSession) -> None:
        """One question, if there is anybody to ask; and the pause after it."""
        leader = self._leader()
        if leader is None:
            self.settle(self._clock.now())
            await self._clock.sleep(PAUSE_TICKS * self._tick_s)
            return
        try:
            await self._follow(session, leader)
        except Unfollowed as why:
            self._failed(leader.address, why)
            self.settle(self._clock.now())
            await self._clock.sleep(self._tick_s)
        else:
            self._failed(leader.address, None)
            await self._clock.sleep(PAUSE_TICKS * self._tick_s)

    async def _follow(self, session: aiohttp.ClientSession, leader: Lease) -> None:
        """Raises Unfollowed."""
        asked_at = self._clock.now()
        frame = await self._frame(session, leader.address)
        now = self._clock.now()
        # It was written at some time since we asked. If that is long ago (we were frozen, or the network was), it says
        # nothing about the present, and the difference of the clocks cannot be told from it.
        if now - asked_at > self._patience_s:
            raise Unfollowed("late", f"{now - asked_at:.1f} s between the question and the answer")
        present = self._leader()
        if present is None or present.address != leader.address:
            return  # meanwhile somebody else leads
        copy = retold(self.copy, frame, now - frame.now)
        if copy is None:
            self.copy = Copy()
            raise Unfollowed("gap", f"changes since version {frame.since}, which is not what we have")
        if frame.memory:
            await self._learned(frame.memory, now - frame.now)
        self.copy = copy  # last: whoever waits for a leader's word has it, and the memory with it
        if self.fresh(now):
            self._publisher.follow(copy.decisions, copy.at)
        else:
            raise Unfollowed("stale", f"the leader's last sweep was {now - copy.at:.1f} s ago")

    async def _frame(self, session: aiohttp.ClientSession, address: str) -> Frame:
        """Raises Unfollowed."""
        have = {"epoch": self.copy.epoch, "version": str(self.copy.version), "at": repr(self.copy.told_at)}
        query = have | {"wait": repr(self._tick_s)}
        url = f"https://{address}{PATH}"
        try:
            async with (
                asyncio.timeout(self._patience_s),
                session.get(url, params=query, server_hostname=self._name) as response,
            ):
                whole = response.status == HTTPStatus.OK
                body = await _body(response) if whole else await response.content.read(SHOWN_BYTES)
        except TimeoutError as error:
            raise Unfollowed("timeout", f"no answer within {self._patience_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: an address that is none
            raise Unfollowed("connection", str(error) or type(error).__name__) from error
        if response.status == HTTPStatus.MISDIRECTED_REQUEST:
            raise Unfollowed("not_leading", "it does not lead")
        if response.status != HTTPStatus.OK:
            raise Unfollowed(f"http_{response.status}", body.decode(errors="replace").strip())
        try:
            return await asyncio.to_thread(decode, body)
        except BadFrame as bad:
            raise Unfollowed("bad_frame", str(bad)) from bad


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """Raises Unfollowed before more than LARGEST_FRAME_BYTES are held, ClientError."""
    body, said = bytearray(), response.content_length or 0
    async for chunk in response.content.iter_any():
        body += chunk
        if max(said, len(body)) > LARGEST_FRAME_BYTES:
            raise Unfollowed(
                "too_large", f"a frame has {LARGEST_FRAME_BYTES} bytes at most, got {max(said, len(body))}"
            )
    return bytes(body)
