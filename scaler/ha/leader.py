"""Where a leader is asked: one path, HTTPS, and only with a peer's certificate.

An answer is held until there is something new, at most `wait` seconds: a sweep of the leader is news even if it changed
nothing, because it says that the leader lives. Who asks a replica that does not lead is told so (421) at once.

Worked example: `GET /peers/v1/board?epoch=a_1/3&version=41&at=1000.0&wait=1` is a frame of what changed since version
41, as soon as the Board's time is another than 1000.0; with another epoch it is the whole Board, at once.

What changed on a Board since a version that somebody has: the leader's side of "changes only". Pure.

Entries of a Board are replaced, never changed, so one that is the same object says the same. A workload that is gone
leaves a note behind for those who were told of it. Who comes with a version of another epoch, or from before the notes
begin, is told all of it.

Worked example: a Board of versions 7, then 8 with another entry of `ai/chat`; `journal.since(7)` is that entry, and
`journal.since(3)`, where the journal began at 7, is None: tell everything.

Who may be a peer: a certificate of our own authority, for the one name that all replicas share.

The authority may sign for others as well (KEDA's client certificate comes from the same one), so being signed is not
enough on either side. Replicas call each other by address; the name they check is fixed, and in no DNS.

Worked example: with the name "tidegate.tidegate.svc", a client whose certificate is for "keda-operator" is turned away
by `is_peer`, and so is a server by the handshake.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, NamedTuple

from aiohttp import web

from exporter.clock import Clock
from exporter.model import WorkloadKey
from scaler.engine.publisher import Publisher
from scaler.model import EMPTY, Board, Decision
from scaler.net import TLS_LIMITS, LimitedListener, listen
from scaler.tls import Rotating, Told, load_authorities, load_pair

from .election import Campaign
from .frame import Frame, encode

PATH = "/peers/v1/board"
FRAMES = "application/vnd.tidegate.frame"
LONGEST_WAIT_S = 60.0
# Questions in hand at once. Each may hold a whole Board until it is sent.
MOST_QUESTIONS = 32

# What is remembered of these workloads, or of all (None), as of now; called later, and in a thread, for the bytes.
Memory = Callable[[Collection[WorkloadKey] | None], Callable[[], bytes]]


class PeerServer:
    """name: of the replicas' certificates."""

    def __init__(
        self,
        publisher: Publisher,
        *,
        host: str,
        port: int,
        context: Rotating,
        name: str,
        clock: Clock,
        memory: Memory,
    ) -> None:
        self.campaign: Campaign | None = None  # nobody leads before there is an election
        self._publisher, self._host, self._port, self._context = publisher, host, port, context
        self._name, self._clock, self._memory = name, clock, memory
        self._epoch, self._journal = "", Journal()
        self._listener: LimitedListener | None = None
        self._questions = 0

    async def start(self) -> int:
        """Listen; returns the port (which matters if 0 was asked for). Raises AddressInUseError, OSError."""
        app = web.Application()
        app.router.add_get(PATH, self._answer)
        key = "listen.peers.address"
        self._listener = await listen(
            app, self._host, self._port, key, context=self._context, limits=TLS_LIMITS, grace_s=0.1
        )
        return self._listener.port

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.stop()

    async def _answer(self, request: web.Request) -> web.Response:
        if request.can_read_body:
            return _refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a question has no body\n")
        if self._questions >= MOST_QUESTIONS:
            return _refused(HTTPStatus.SERVICE_UNAVAILABLE, f"more than {MOST_QUESTIONS} questions at once\n")
        self._questions += 1
        try:
            return await self._answer_one(request)
        finally:
            self._questions -= 1

    async def _answer_one(self, request: web.Request) -> web.Response:
        transport = request.transport
        if transport is None or not is_peer(transport.get_extra_info("peercert"), self._name):
            return web.Response(status=HTTPStatus.FORBIDDEN, text=f"your certificate is not for {self._name}\n")
        try:
            version, at = int(request.query.get("version", "0")), float(request.query.get("at", "0"))
            wait_s = min(LONGEST_WAIT_S, float(request.query.get("wait", "0")))
        except ValueError:
            return web.Response(status=HTTPStatus.BAD_REQUEST, text="version, at and wait are numbers\n")
        epoch = request.query.get("epoch", "")
        if self._asked() is not None and epoch == self._epoch and at == self._publisher.local.at:
            try:
                async with asyncio.timeout(wait_s):
                    await self._publisher.decided()
            except TimeoutError:
                pass  # nothing new is an answer too: a leader whose sweeps fail shows by its Board's age
        if self._asked() is None:
            return web.Response(status=HTTPStatus.MISDIRECTED_REQUEST, text="this replica does not lead\n")
        frame, memory = self._frame(epoch, version)
        # A whole Board of a thousand workloads takes a tenth of a second; KEDA must not wait for that.
        body = await asyncio.to_thread(lambda: encode(replace(frame, memory=memory())))
        return web.Response(body=body, content_type=FRAMES)

    def _asked(self) -> Campaign | None:
        """The campaign, if we lead: then whoever asks has followed us just now."""
        now, campaign = self._clock.now(), self.campaign
        if campaign is None or not campaign.leads(now):
            return None
        campaign.followed(now)
        if campaign.term != self._epoch:
            self._epoch, self._journal = campaign.term, Journal()
        return campaign

    def _frame(self, epoch: str, version: int) -> tuple[Frame, Callable[[], bytes]]:
        """For somebody who has that version; and its memory, to be packed."""
        self._journal.take(self._publisher.local)
        board, now = self._journal.board, self._clock.now()
        change = self._journal.since(version) if epoch == self._epoch else None
        if change is None:
            everything = tuple(board.decisions.values())
            return Frame(self._epoch, board.version, now, board.at, None, everything), self._memory(None)
        memory = self._memory({decision.workload for decision in change.changed}) if change.changed else bytes
        return Frame(self._epoch, board.version, now, board.at, version, *change), memory


def _refused(status: HTTPStatus, why: str) -> web.Response:
    """An answer after which the connection is closed, whatever is still being sent."""
    response = web.Response(status=status, text=why)
    response.force_close()
    return response


# So many who are gone are remembered. More at once is a new configuration, and a follower is then told everything.
NOTES = 1000


class Change(NamedTuple):
    """changed: entries that are new or other. gone: workloads that have no entry any more."""

    changed: tuple[Decision, ...]
    gone: tuple[WorkloadKey, ...]


class Journal:
    """Of one time in office, from its first Board on."""

    def __init__(self) -> None:
        self.board = EMPTY
        self._begin: int | None = None  # the oldest version that changes can be told from
        self._changed: dict[WorkloadKey, int] = {}  # in which version it became what it is
        self._gone: dict[WorkloadKey, int] = {}  # in which version it went; in that order

    def take(self, board: Board) -> None:
        """The Board as it is now."""
        before, self.board = self.board.decisions, board
        if self._begin is None:
            self._begin = board.version
        for key, decision in board.decisions.items():
            if before.get(key) is not decision:
                self._changed[key] = board.version
                self._gone.pop(key, None)
        for key in before.keys() - board.decisions.keys():
            del self._changed[key]
            self._gone[key] = board.version
        while len(self._gone) > NOTES:
            self._begin = self._gone.pop(next(iter(self._gone)))

    def since(self, version: int) -> Change | None:
        """What is other than in that version; None: that is not known any more."""
        if self._begin is None or not self._begin <= version <= self.board.version:
            return None
        return Change(
            tuple(self.board.decisions[key] for key, at in self._changed.items() if at > version),
            tuple(key for key, at in self._gone.items() if at > version),
        )


class PeerTlsFiles(NamedTuple):
    """Paths of PEM files. ca: who signs for the replicas."""

    certificate: str
    key: str
    ca: str


def listening(files: PeerTlsFiles, told: Told) -> Rotating:
    """For the listener. Raises BadTlsFiles."""
    return Rotating(ssl.PROTOCOL_TLS_SERVER, files, lambda: _made(ssl.PROTOCOL_TLS_SERVER, files), told)


def connecting(files: PeerTlsFiles, told: Told) -> Rotating:
    """For asking. Raises BadTlsFiles."""
    return Rotating(ssl.PROTOCOL_TLS_CLIENT, files, lambda: _made(ssl.PROTOCOL_TLS_CLIENT, files), told)


def is_peer(certificate: Mapping[str, Any] | None, name: str) -> bool:
    """Is a verified certificate, as `ssl` tells of it, for this name? There are no wildcards among peers."""
    names = (certificate or {}).get("subjectAltName", ())
    return ("DNS", name) in names


def _made(protocol: int, files: PeerTlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # both ends are ours
    load_pair(context, files.certificate, files.key)
    load_authorities(context, files.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    return context
