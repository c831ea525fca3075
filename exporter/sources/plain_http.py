"""Fetches ordinary HTTP responses over kept connections, at a third of the CPU time of a general client.

Ordinary is: `http://`, a host and a path that need no quoting, HTTP/1.1, status 200, one Content-Length or plain
chunks, no encoding or gzip, at most `most` bytes. Of everything else (another status, a refused connection, a broken
frame, a trailer, bytes after the end) this client returns None: the general client requests the target again and finds
the reason. So nothing here judges a hostile response; it only has to notice that one is not ordinary. A URL with an
unusual response is left to the general client for SKIPPED requests.

Worked example: `await client.get("http://10.0.0.7:9400/metrics", {}, 1 << 20)` is the body as bytes, or None.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Mapping
from typing import NamedTuple

URL = re.compile(r"http://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?(/[A-Za-z0-9_./~%?&=:@+,;-]*)?")
HEAD = re.compile(rb"HTTP/1\.1 200 [^\r\n\0]*\r\n(?:[A-Za-z0-9_-]+:[^\r\n\0]*\r\n)*\r\n")
CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,7}")
FRAMING = frozenset({b"content-length", b"transfer-encoding", b"content-encoding", b"connection"})
HEAD_BYTES = 1 << 14
READ_BYTES = 1 << 17
SKIPPED = 100
MOST_SKIPPED = 10_000  # URLs; most are of targets that are gone
# Servers close idle connections after a minute or so, uvicorn after 5 s. A node that is lost closes none.
IDLE_S = 60.0
NEXT_ADDRESS_S = 0.25  # until the next address of a name is tried beside the first (RFC 8305)
GZIP_WBITS = 16 + zlib.MAX_WBITS


class Head(NamedTuple):
    """length: bytes of the body; None: in chunks."""

    length: int | None
    gzip: bool
    kept: bool


def read_head(head: bytes) -> Head | None:
    """The framing of an ordinary response; None of any other. head: with the empty line at its end."""
    if HEAD.fullmatch(head) is None:
        return None
    found: dict[bytes, bytes] = {}
    for line in head.split(b"\r\n")[1:-2]:
        name, _, value = line.partition(b":")
        if (name := name.lower()) in FRAMING:
            if name in found:
                return None
            found[name] = value.strip(b" \t").lower()
    length, transfer = found.get(b"content-length"), found.get(b"transfer-encoding")
    encoding, connection = found.get(b"content-encoding", b"identity"), found.get(b"connection", b"keep-alive")
    if (length is None) == (transfer is None) or encoding not in (b"identity", b"gzip"):
        return None
    if transfer not in (None, b"chunked") or connection not in (b"keep-alive", b"close"):
        return None
    if length is not None and not (length.isdigit() and len(length) <= 9):  # noqa: PLR2004 - no limit is beyond 1 GB
        return None
    return Head(None if length is None else int(length), encoding == b"gzip", connection == b"keep-alive")


class _Connection(asyncio.BufferedProtocol):
    """One connection. buffer: shared by all, because what is read is copied before another connection reads.

    unusual: whether the response was not an ordinary one. idle_since: by the event loop's time.
    """

    def __init__(self, buffer: memoryview) -> None:
        self.closed = self.unusual = False
        self.idle_since = 0.0
        self._buffer = buffer
        self._answer: asyncio.Future[bytes | None] | None = None
        self._head: Head | None = None

    async def request(self, request: bytes, most: int) -> bytes | None:
        """The body, or None. most: bytes of a body. Not twice at once."""
        self._received, self._body, self._head, self._at, self._most = bytearray(), bytearray(), None, 0, most
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._answer
        finally:
            self._answer = None
            self._received, self._body = bytearray(), bytearray()  # else each target would hold its last response

    def abort(self) -> None:
        self.closed = True
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment] # asyncio's own annotation

    def connection_lost(self, _: Exception | None) -> None:
        self.closed = True
        self._end(None)

    def get_buffer(self, _: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._answer is None or self._answer.done():  # nothing was requested
            self.abort()
            return
        self._received += self._buffer[:nbytes]
        head = self._head = self._head or self._take_head()
        if head is None:
            return
        if head.length is None:
            self._take_chunks(head)
        else:
            self._take_body(head, head.length)

    def _take_head(self) -> Head | None:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            if len(self._received) > HEAD_BYTES:
                self._refuse()
            return None
        self._at = end + 4
        head = read_head(bytes(self._received[: self._at]))
        if head is None:
            self._refuse()
        return head

    def _take_body(self, head: Head, length: int) -> None:
        missing = self._at + length - len(self._received)
        if missing < 0 or length > self._most:
            self._refuse()
        elif missing == 0:
            self._finish(head, bytes(memoryview(self._received)[self._at :]))

    def _take_chunks(self, head: Head) -> None:
        received = self._received
        while not self.unusual:
            line = received.find(b"\r\n", self._at, self._at + 9)
            size = CHUNK_SIZE.fullmatch(received, self._at, max(line, self._at))
            if size is None:
                if line >= 0 or len(received) > self._at + 9:
                    self._refuse()
                return
            begin = line + 2
            end = begin + int(size[0], 16)
            if len(self._body) + end - begin > self._most:
                self._refuse()
            if len(received) < end + 2:
                return
            if received[end : end + 2] != b"\r\n" or (end == begin and len(received) > end + 2):
                self._refuse()
            if end == begin:
                self._finish(head, bytes(self._body))
                return
            self._body += memoryview(received)[begin:end]
            self._at = end + 2

    def _finish(self, head: Head, body: bytes) -> None:
        unpacked = unpack(body, self._most) if head.gzip else body
        if unpacked is None:
            self._refuse()
        else:
            if not head.kept:
                self.abort()
            self._end(unpacked)

    def _refuse(self) -> None:
        self.unusual = True
        self.abort()
        self._end(None)

    def _end(self, body: bytes | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(body)


def unpack(body: bytes, most: int) -> bytes | None:
    """The decompressed body; None if it is not one whole gzip stream of at most `most` bytes."""
    gzip = zlib.decompressobj(GZIP_WBITS)
    try:
        unpacked = gzip.decompress(body, most)
    except zlib.error:
        return None
    return unpacked if gzip.eof and not gzip.unused_data else None


def open_files() -> int:
    """How many files this process may have open, sockets included."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return 1 << 13
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class PlainClient:
    """Keeps a connection to each server for as long as it is used, up to a number of them. Close it when done."""

    def __init__(self, headers: Mapping[str, str], kept: int | None = None) -> None:
        """kept: connections that are kept at most; by default three quarters of the files that may be open."""
        self._headers = headers
        self._most_kept = 3 * open_files() // 4 if kept is None else kept
        self._kept = 0
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._idle: dict[tuple[str, int], list[_Connection]] = {}
        self._skip: dict[str, int] = {}
        self._look_at = 0.0  # when idle connections are looked through, by the event loop's time

    async def get(self, url: str, headers: Mapping[str, str], most: int) -> bytes | None:
        """The body of an ordinary response of at most `most` bytes; None of any other, and if there is none."""
        found = URL.fullmatch(url)
        if found is None or self._is_skipped(url):
            return None
        host, port, path = found[1], int(found[2] or 80), found[3] or "/"
        server = host.strip("[]"), port
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}" if port == 80 else f"Host: {host}:{port}"]  # noqa: PLR2004
        lines += [f"{name}: {value}" for name, value in (*self._headers.items(), *headers.items())]
        if not all(map(str.isprintable, lines)):  # a line break in a secret would begin another header
            return None
        try:
            connection = self._take_idle(server) or await self._connect(*server)
        except (OSError, ValueError):  # a port beyond 65535
            return None
        try:
            body = await connection.request("\r\n".join([*lines, "\r\n"]).encode(), most)
        except BaseException:  # cancelled: its response may still come
            connection.abort()
            raise
        if connection.unusual:
            if len(self._skip) >= MOST_SKIPPED:
                self._skip.clear()
            self._skip[url] = SKIPPED
        elif not connection.closed:
            self._keep(server, connection)
        return body

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._idle.clear()
        self._kept = 0

    def _is_skipped(self, url: str) -> bool:
        left = self._skip.pop(url, 0)
        if left > 1:
            self._skip[url] = left - 1
        return left > 0

    async def _connect(self, host: str, port: int) -> _Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self._buffer), host, port, happy_eyeballs_delay=NEXT_ADDRESS_S
        )
        return connection

    def _keep(self, server: tuple[str, int], connection: _Connection) -> None:
        # Not in place of one that is kept: the longest unused one is the next to be used.
        if self._kept >= self._most_kept:
            connection.abort()
            return
        self._kept += 1
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.setdefault(server, []).append(connection)

    def _take_idle(self, server: tuple[str, int]) -> _Connection | None:
        now = asyncio.get_running_loop().time()
        if now >= self._look_at:
            self._look_at = now + IDLE_S / 4
            self._close_unused(now - IDLE_S)
        connections = self._idle.get(server, [])
        while connections:
            connection = connections.pop()
            self._kept -= 1
            if not connection.closed:
                return connection
        return None

    def _close_unused(self, since: float) -> None:
        for server, connections in list(self._idle.items()):
            for connection in connections:
                if connection.idle_since < since:
                    connection.abort()
            before = len(connections)
            connections[:] = [connection for connection in connections if not connection.closed]
            self._kept -= before - len(connections)
            if not connections:
                del self._idle[server]
