"""Serves the leader's Board to followers: one path, HTTPS, mutual TLS.

A response waits until the Board changes, at most `wait` seconds. A tick counts as a change even if no entry changed,
because it shows that the leader is alive. A replica that does not lead responds 421 at once.

Both sides need a certificate of the configured authority for the one name that all replicas share. A valid signature is
not enough: the authority may also sign for others, such as KEDA. Replicas connect by address; the name is in no DNS.

Worked example: `GET /peers/v1/board?epoch=a_1/3&version=41&at=1000.0&wait=1` returns the changes since version 41 as
soon as the Board's time is not 1000.0; with another epoch it returns the whole Board at once. A client with a
certificate for "keda-operator" gets 403.
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
from scaler.tls import ProblemListener, Rotating, load_authorities, load_pair

from .election import LeaderElector
from .frame import Frame, encode

PATH = "/peers/v1/board"
MEDIA_TYPE = "application/vnd.tidegate.frame"
LONGEST_WAIT_S = 60.0
# Concurrent requests. Each may hold a whole Board until it is sent.
MOST_REQUESTS = 32
# Removed workloads that a journal remembers. More at once is a new configuration, and followers get the whole Board.
MOST_REMOVED = 1000

# Selects the present state of these workloads, or of all (None). Its result is called later, in a thread, for the
# bytes.
StateSource = Callable[[Collection[WorkloadKey] | None], Callable[[], bytes]]


class BoardServer:
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
        state: StateSource,
    ) -> None:
        self.elector: LeaderElector | None = None  # set when the election begins
        self._publisher, self._host, self._port, self._context = publisher, host, port, context
        self._name, self._clock, self._state = name, clock, state
        self._epoch, self._journal = "", Journal()
        self._listener: LimitedListener | None = None
        self._requests = 0

    async def start(self) -> int:
        """Listens; returns the port, which matters if 0 was configured. Raises AddressInUseError, OSError."""
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
            return _refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request has no body\n")
        if self._requests >= MOST_REQUESTS:
            return _refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"more than {MOST_REQUESTS} requests at once\n")
        self._requests += 1
        try:
            return await self._answer_one(request)
        finally:
            self._requests -= 1

    async def _answer_one(self, request: web.Request) -> web.Response:
        transport = request.transport
        if transport is None or not has_name(transport.get_extra_info("peercert"), self._name):
            return web.Response(status=HTTPStatus.FORBIDDEN, text=f"the certificate is not for {self._name}\n")
        try:
            version, at = int(request.query.get("version", "0")), float(request.query.get("at", "0"))
            wait_s = min(LONGEST_WAIT_S, float(request.query.get("wait", "0")))
        except ValueError:
            return web.Response(status=HTTPStatus.BAD_REQUEST, text="version, at and wait must be numbers\n")
        epoch = request.query.get("epoch", "")
        if self._accept_poll() and epoch == self._epoch and at == self._publisher.local.at:
            try:
                async with asyncio.timeout(wait_s):
                    await self._publisher.decided()
            except TimeoutError:
                pass  # if the leader's ticks fail, the age of its Board shows it
        await self._publisher.renew()
        if not self._accept_poll():
            return web.Response(status=HTTPStatus.MISDIRECTED_REQUEST, text="this replica does not lead\n")
        frame, state = self._frame(epoch, version)
        # A whole Board of a thousand workloads takes a tenth of a second; KEDA must not wait for that.
        body = await asyncio.to_thread(lambda: encode(replace(frame, state=state())))
        return web.Response(body=body, content_type=MEDIA_TYPE)

    def _accept_poll(self) -> bool:
        """Whether this replica leads. If so, records the poll, and begins a journal for a new epoch."""
        now, elector = self._clock.now(), self.elector
        if elector is None or not elector.leads(now):
            return False
        elector.record_poll(now)
        if elector.epoch != self._epoch:
            self._epoch, self._journal = elector.epoch, Journal()
        return True

    def _frame(self, epoch: str, version: int) -> tuple[Frame, Callable[[], bytes]]:
        """A frame without state for a follower at that version, and the source of its state."""
        self._journal.record(self._publisher.local)
        board, now = self._journal.board, self._clock.now()
        change = self._journal.since(version) if epoch == self._epoch else None
        if change is None:
            everything = tuple(board.decisions.values())
            return Frame(self._epoch, board.version, now, board.at, None, everything), self._state(None)
        state = self._state({decision.workload for decision in change.changed}) if change.changed else bytes
        return Frame(self._epoch, board.version, now, board.at, version, *change), state


def _refuse(status: HTTPStatus, reason: str) -> web.Response:
    """A response that closes the connection, even if the client still sends."""
    response = web.Response(status=status, text=reason)
    response.force_close()
    return response


class Change(NamedTuple):
    """changed: new or replaced entries. gone: workloads without an entry."""

    changed: tuple[Decision, ...]
    gone: tuple[WorkloadKey, ...]


class Journal:
    """Lists the changes of a Board since a version, within one epoch.

    Entries of a Board are replaced, never modified, so the same object means no change. A request for a version before
    the journal begins gets the whole Board.

    Worked example: a Board of versions 7, then 8 with a new entry of `ai/chat`: `journal.since(7)` is that entry. If
    the journal begins at 7, `journal.since(3)` is None.
    """

    def __init__(self) -> None:
        self.board = EMPTY
        self._begin: int | None = None  # the oldest version with complete changes
        self._changed: dict[WorkloadKey, int] = {}  # version in which the entry became what it is
        self._gone: dict[WorkloadKey, int] = {}  # version in which it was removed, in that order

    def record(self, board: Board) -> None:
        """Records the present Board."""
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
        while len(self._gone) > MOST_REMOVED:
            self._begin = self._gone.pop(next(iter(self._gone)))

    def since(self, version: int) -> Change | None:
        """The changes since that version. Returns None if they are no longer complete."""
        if self._begin is None or not self._begin <= version <= self.board.version:
            return None
        return Change(
            tuple(self.board.decisions[key] for key, at in self._changed.items() if at > version),
            tuple(key for key, at in self._gone.items() if at > version),
        )


class PeerTlsFiles(NamedTuple):
    """Paths of PEM files. ca: the authority of all replicas' certificates."""

    certificate: str
    key: str
    ca: str


def server_context(files: PeerTlsFiles, on_problem: ProblemListener) -> Rotating:
    """Raises BadTlsFiles."""
    return Rotating(ssl.PROTOCOL_TLS_SERVER, files, lambda: _load(ssl.PROTOCOL_TLS_SERVER, files), on_problem)


def client_context(files: PeerTlsFiles, on_problem: ProblemListener) -> Rotating:
    """Raises BadTlsFiles."""
    return Rotating(ssl.PROTOCOL_TLS_CLIENT, files, lambda: _load(ssl.PROTOCOL_TLS_CLIENT, files), on_problem)


def has_name(certificate: Mapping[str, Any] | None, name: str) -> bool:
    """Whether a verified certificate (as `ssl` returns it) is for this name. Wildcards do not match."""
    names = (certificate or {}).get("subjectAltName", ())
    return ("DNS", name) in names


def _load(protocol: int, files: PeerTlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # both ends are Tidegate
    load_pair(context, files.certificate, files.key)
    load_authorities(context, files.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    return context
