"""Servers on loopback that respond byte by byte as a test sets, and the client under test."""

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from exporter.sources.http import HttpLimits, HttpPages
from tests.fakes.clock import Turn

PATIENCE_S = 60.0  # never reached: it only shows which await blocks
PAGE = b'vllm:num_requests_waiting{model_name="m"} 123\nvllm:num_requests_running{model_name="m"} 45\n'


def reply(body=b"", *headers, version="1.1", status="200 OK"):
    """The bytes of a response; `headers` are whole lines."""
    lines = [f"HTTP/{version} {status}", *headers]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1") + body


@dataclass
class Raw:
    """A server that sends `response` to every request and then does `then`.

    then: "keep" the connection, "close" it, "reset" it, "hold" it without more bytes, or send "more" without end.
    """

    response: bytes = b""
    then: str = "close"
    more: bytes = b""
    url: str = ""
    requests: list = field(default_factory=list)
    connections: int = 0
    open: int = 0
    turn: Turn = field(default_factory=Turn)

    def respond_with(self, response, then="close", more=b""):
        self.response, self.then, self.more = response, then, more

    async def until(self, true):
        """Waits until `true()`, which is checked at every change of connections or requests."""
        await self.turn.until(true)

    async def serve(self, reader, writer):
        self.connections, self.open = self.connections + 1, self.open + 1
        self.turn.changed()
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                self.turn.changed()
                writer.write(self.response)
                await self._afterwards(reader, writer)
                if self.then != "keep":
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            self.turn.changed()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _afterwards(self, reader, writer):
        await writer.drain()
        if self.then == "hold":
            await reader.read(1)
        while self.then == "more":
            writer.write(self.more)
            await writer.drain()
            await asyncio.sleep(0)
            if writer.is_closing():
                break
        if self.then == "reset":
            # Closing with this option sends RST instead of FIN.
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()


@pytest.fixture
async def raw():
    server = Raw()
    handlers = set()

    async def serve(reader, writer):
        handlers.add(asyncio.current_task())
        try:
            await server.serve(reader, writer)
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/metrics"
    yield server
    listener.close()
    for handler in handlers:  # from Python 3.12 on a server waits for connections that clients keep
        handler.cancel()
    await asyncio.gather(*handlers, return_exceptions=True)
    await listener.wait_closed()


@pytest.fixture
async def serve():
    """`url = await serve(handler, host=…, ssl=…)`: a well-behaved server for one handler."""
    runners = []

    async def start(handler, host="127.0.0.1", ssl=None):
        app = web.Application()
        app.router.add_get("/{path:.*}", handler)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, host, 0, ssl_context=ssl).start()
        name = f"[{host}]" if ":" in host else host
        return f"http{'s' if ssl else ''}://{name}:{runner.addresses[0][1]}/metrics"

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def http():
    """The client under test. Its limits are large; a test of the limits sets others."""
    pages = HttpPages(HttpLimits(timeout_s=PATIENCE_S, body_bytes=1 << 20))
    yield pages
    await pages.close()


@pytest.fixture
def response():
    """The bytes of a response: `response(body, *header_lines, version="1.1", status="200 OK")`."""
    return reply


@pytest.fixture
def page():
    return PAGE
