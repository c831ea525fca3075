"""Serves an aiohttp application on a port, within limits on what one client can cost. All HTTP servers use it.

A connection costs one file descriptor until its first byte arrives: neither TLS state (asyncio allocates 256 KiB for
each connection) nor a parser exists before. It is closed if it has not brought a complete request in time, if it stays
idle, or if it does not read a response. At the limit on connections the peer address that has most of them loses the
one that was inactive for longest, so that a flood from one address does not lock out the others. Responses that
clients do not read share one budget.

Malformed requests, failing handlers and failing `accept` calls are events of the log with a count, one line per minute
for each kind.

Worked example: `(await listen(app, "127.0.0.1", 8080, "listen.http")).port` is 8080, or raises
`AddressInUseError("listen.http: 127.0.0.1:8080 is already in use")`. Of 300 connections from 10.0.0.7 the oldest 44 are
closed, and 10.0.0.8 still gets an answer.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, cast

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.typedefs import Handler

from .logs import Throttle

BACKLOG = 128
# After descriptors or memory have run out; asyncio waits for as long before it accepts again.
ACCEPT_PAUSE_S = 1.0
LONGEST_HEADER = 8190  # bytes; aiohttp's default
LONGEST_ERROR = 120  # characters of a client's words in the log

# For every response. A handler that sets one of them keeps its own value.
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


class AddressInUseError(OSError):
    """The port is in use."""


class ConnectionLimits(NamedTuple):
    """Limits of the clients of one server.

    connections:  open ones. With TLS each takes 0.25 MB from its first byte on.
    begin_s:      seconds from accept to the end of the first request's header, TLS handshake included.
    idle_s:       seconds from a response to the end of the next request's header. Prometheus scrapes at most every
                  minute by default, so that its connection outlives the interval.
    unread_s:     seconds in which a client has to read a response.
    unread_bytes: of responses that wait for their clients, all connections together.
    """

    connections: int = 256
    begin_s: float = 10.0
    idle_s: float = 75.0
    unread_s: float = 60.0
    unread_bytes: int = 32 * 2**20


PLAIN_LIMITS = ConnectionLimits()
# 128 * 0.25 MB = 32 MB. The API server, its HorizontalPodAutoscaler controller and other replicas need about twenty.
TLS_LIMITS = ConnectionLimits(connections=128)


async def listen(
    app: web.Application,
    host: str,
    port: int,
    key: str,
    *,
    context: ssl.SSLContext | None = None,
    limits: ConnectionLimits = PLAIN_LIMITS,
    longest_header: int = LONGEST_HEADER,
    grace_s: float = 5.0,
) -> LimitedListener:
    """Begin to accept connections. Raises AddressInUseError, OSError.

    host:           "" is every address.
    key:            of the configuration, for errors and the log.
    context:        of TLS; None is plain HTTP.
    longest_header: bytes of one header.
    grace_s:        seconds that requests in progress have when the listener stops.
    """
    sockets = await _bound(host, port, key)
    listener = LimitedListener(sockets, key, context, limits)
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        keepalive_timeout=limits.idle_s,
        logger=_ServerLog(listener.events),
        max_field_size=longest_header,
        auto_decompress=False,  # no handler reads a request's body
        shutdown_timeout=grace_s,
    )
    app.middlewares.insert(0, listener.within_limits)
    app.on_response_prepare.append(_add_security_headers)
    await runner.setup()
    listener.accept(runner)
    return listener


class LimitedListener:
    """Accepts connections and closes those that exceed the limits. Made by `listen`."""

    def __init__(
        self, sockets: list[socket.socket], key: str, context: ssl.SSLContext | None, limits: ConnectionLimits
    ) -> None:
        self.events = Throttle(structlog.get_logger().bind(listener=key))
        self.port: int = sockets[0].getsockname()[1]
        self._sockets, self._context, self._limits = sockets, context, limits
        self._runner: web.AppRunner | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # The one that was inactive for longest is first.
        self._open: OrderedDict[_LimitedConnection, None] = OrderedDict()

    @property
    def connections(self) -> int:
        """Accepted and not yet closed."""
        return len(self._open)

    def accept(self, runner: web.AppRunner) -> None:
        self._runner = runner
        for each in self._sockets:
            self._spawn(self._accept(each), "accept")

    async def stop(self) -> None:
        """Accept nothing more, finish requests in progress, close all connections."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in self._sockets:
            each.close()
        if self._runner is not None:
            await self._runner.cleanup()
        # A transport that was closed normally waits for its client to read.
        for connection in tuple(self._open):
            connection.abort()
        self.events.flush()

    @web.middleware
    async def within_limits(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Sends the response itself: aiohttp waits for a client that does not read for as long as it likes."""
        transport = request.transport
        connection = transport.get_protocol() if transport is not None else None
        if not isinstance(connection, _LimitedConnection):
            return await handler(request)
        connection.has_begun.set()
        self._touch(connection)
        response = await handler(request)
        body = response.body if isinstance(response, web.Response) else None
        self._make_memory(len(body) if isinstance(body, bytes | bytearray) else 0)
        try:
            async with asyncio.timeout(self._limits.unread_s):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            self.events.add("response not read", peer=connection.peer, limit_s=self._limits.unread_s)
            self._drop(connection)
        except ConnectionError:
            pass  # it has left
        self._touch(connection)
        return response

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                # Descriptors or memory have run out. Without the pause the loop would do nothing but fail.
                self.events.add("accept failed", level="error", error=str(error))
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            self._make_room()
            connection = _LimitedConnection(str(address[0]), self._forget)
            self._open[connection] = None
            connection.task = self._spawn(self._begin(connection, accepted), "connection")
            await asyncio.sleep(0)  # sock_accept does not yield while clients wait

    async def _begin(self, connection: _LimitedConnection, accepted: socket.socket) -> None:
        """Until the first request is complete. Afterwards the connection is aiohttp's."""
        server = self._runner.server if self._runner is not None else None
        try:
            async with asyncio.timeout(self._limits.begin_s):
                await _readable(accepted)
                if server is not None:
                    connection.connect(server())
                    await self._connect(connection, accepted)
                    await connection.has_begun.wait()
        except OSError:
            pass  # it was late, has left or failed the handshake: closing it is the answer
        except Exception as error:  # noqa: BLE001 - one connection never ends the listener
            self.events.add("connection failed", level="error", exc_info=error)
        finally:
            connection.task = None
            if not connection.is_connected:
                accepted.close()
            if not connection.has_begun.is_set():
                connection.abort()

    async def _connect(self, connection: _LimitedConnection, accepted: socket.socket) -> None:
        """TLS handshake, if any. Raises OSError."""
        handshake_s = None if self._context is None else self._limits.begin_s
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=self._context, ssl_handshake_timeout=handshake_s
            )
        except BaseException as error:
            # asyncio's frames and the exception refer to each other, and would keep the connection's 256 KiB until the
            # next full garbage collection: 1,000 failed handshakes took 300 MB.
            traceback.clear_frames(error.__traceback__)
            raise

    def _make_room(self) -> None:
        if len(self._open) < self._limits.connections:
            return
        # In order of inactivity, so that of two peers with as many the one that was inactive for longer is taken.
        [(peer, count)] = Counter(connection.peer for connection in self._open).most_common(1)
        self.events.add("connection limit reached", limit=self._limits.connections, peer=peer, peer_connections=count)
        self._drop(next(connection for connection in self._open if connection.peer == peer))

    def _make_memory(self, size: int) -> None:
        """Makes room for a response: closes the connections with the most unread bytes."""
        unread = Counter({connection: connection.unread_bytes for connection in self._open})
        over = unread.total() + size - self._limits.unread_bytes
        for connection, held in unread.most_common():
            if over <= 0 or not held:
                return
            self.events.add("too many unread bytes", limit=self._limits.unread_bytes, peer=connection.peer, bytes=held)
            self._drop(connection)
            over -= held

    def _drop(self, connection: _LimitedConnection) -> None:
        if connection.task is not None:
            connection.task.cancel()
        connection.abort()

    def _touch(self, connection: _LimitedConnection) -> None:
        if connection in self._open:
            self._open.move_to_end(connection)

    def _forget(self, connection: _LimitedConnection) -> None:
        self._open.pop(connection, None)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _LimitedConnection(asyncio.Protocol):
    """One accepted socket, from accept to its end. Passes everything on to aiohttp's protocol.

    has_begun: its first request is complete, or it has ended.
    """

    _handler: asyncio.Protocol

    def __init__(self, peer: str, ended: Callable[[_LimitedConnection], None]) -> None:
        self.peer, self._ended = peer, ended
        self.task: asyncio.Task[None] | None = None
        self.is_connected = False
        self.has_begun = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    @property
    def unread_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def connect(self, handler: asyncio.Protocol) -> None:
        """handler: aiohttp's protocol of this connection."""
        self._handler, self.is_connected = handler, True

    def abort(self) -> None:
        """Close it now; what is not sent is lost."""
        self._ended(self)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._handler.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(self)
        self.has_begun.set()
        self._handler.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()


class _ServerLog(logging.Logger):
    """Turns aiohttp's failure logs into counted events. A malformed request is no failure of this process."""

    def __init__(self, events: Throttle) -> None:
        super().__init__("aiohttp.server", logging.WARNING)
        self._events = events

    def handle(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        peer = str(record.args[0]) if isinstance(record.args, tuple) and record.args else None
        if isinstance(error, HttpProcessingError | web.RequestPayloadError):
            self._events.add("malformed request", peer=peer, error=ascii(str(error)[:LONGEST_ERROR]))
        else:
            self._events.add("request failed", level="error", peer=peer, exc_info=error)


async def _add_security_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)


async def _bound(host: str, port: int, key: str) -> list[socket.socket]:
    """Listening sockets, one per address of the host. Raises AddressInUseError, OSError."""
    sockets: list[socket.socket] = []
    try:
        # asyncio resolves and binds; it does not accept, because it repeats a failing accept without end.
        server = await asyncio.get_running_loop().create_server(
            asyncio.Protocol, host or None, port, start_serving=False
        )
        sockets = [each.dup() for each in server.sockets]
        server.close()
        for each in sockets:
            each.setblocking(False)
            each.listen(BACKLOG)
    except OSError as error:
        for each in sockets:
            each.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUseError(f"{key}: {host}:{port} is already in use") from error
        raise
    return sockets


async def _readable(sock: socket.socket) -> None:
    """Wait until it can be read without blocking; nothing is read."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)
