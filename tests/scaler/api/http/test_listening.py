"""Every HTTP server enforces connection limits; tested over raw sockets with small limits."""

import asyncio
import os
import resource
import socket
from contextlib import asynccontextmanager

import pytest
import structlog
from aiohttp import web

from scaler.logs import Throttle
from scaler.net import ConnectionLimits, listen

PATIENCE_S = 60.0  # never waited for: only says which await hung
SOON_S = 0.05  # the limit in tests that wait for it
PATIENT = ConnectionLimits(
    connections=8, begin_s=PATIENCE_S, idle_s=PATIENCE_S, unread_s=PATIENCE_S, unread_bytes=2**30
)
LARGE = 16 * 2**20  # more than the kernel buffers for one connection
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Server:
    """Runs an application that counts its requests and responds with `body`."""

    def __init__(self):
        self.requests, self.body, self._clients = 0, b"ok", []

    async def answer(self, request):
        self.requests += 1
        if request.path == "/broken":
            raise RuntimeError("a bug")
        return web.Response(body=self.body)

    @asynccontextmanager
    async def listening(self, limits=PATIENT, **more):
        app = web.Application()
        app.router.add_get("/{path:.*}", self.answer)
        self.listener = await listen(app, "127.0.0.1", 0, "listen.http", limits=limits, grace_s=0.1, **more)
        try:
            yield self
        finally:
            for client in self._clients:
                client.transport.abort()
            await self.listener.stop()

    async def connect(self, address="127.0.0.1"):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port, local_addr=(address, 0))
        self._clients.append(writer)
        return reader, writer

    async def until(self, condition):
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - the kernel moves bytes without an event to wait for
                await asyncio.sleep(0.01)

    async def until_open(self, count):
        await self.until(lambda: self.listener.connections == count)


@pytest.fixture
def server():
    return Server()


async def status(reader, writer, request=GET):
    """Returns the status of one response; the connection stays open. Returns None if it was closed."""
    writer.write(request)
    async with asyncio.timeout(PATIENCE_S):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (ConnectionError, asyncio.IncompleteReadError):
            return None
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length"))
        await reader.readexactly(int(length.split(b":")[1]))
    return int(head.split(b" ", 2)[1])


async def is_closed(reader):
    async with asyncio.timeout(PATIENCE_S):
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True


async def test_flood_of_one_address_closes_its_own_connections_and_no_others(server):
    async with server.listening():
        reader, writer = await server.connect("127.0.0.2")
        assert await status(reader, writer) == 200
        flood = [await server.connect() for _ in range(50)]
        await server.until(lambda: server.listener.connections == PATIENT.connections)
        assert all([await is_closed(old) for old, _ in flood[:40]])
        assert await status(reader, writer) == 200, "the connection of the other address is still open"
        assert await status(*await server.connect("127.0.0.3")) == 200, "a new address is answered"


async def test_flood_closes_what_was_inactive_for_longest(server):
    async with server.listening():
        first = [await server.connect() for _ in range(PATIENT.connections)]
        for reader, writer in (first[1], first[0]):
            assert await status(reader, writer) == 200
        for reader, writer in first[2:]:
            assert await status(reader, writer) == 200
        assert await status(*await server.connect()) == 200
        assert await is_closed(first[1][0])
        assert await status(*first[0]) == 200


@pytest.mark.parametrize("first", [b"", b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
async def test_connection_without_a_complete_request_is_closed(server, first):
    async with server.listening(PATIENT._replace(begin_s=SOON_S)):
        reader, writer = await server.connect()
        writer.write(first)
        assert await is_closed(reader)
        await server.until_open(0)
    assert server.requests == 0


@pytest.mark.parametrize("next_bytes", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
async def test_connection_that_is_idle_after_a_response_is_closed(server, next_bytes):
    async with server.listening(PATIENT._replace(idle_s=SOON_S)):
        reader, writer = await server.connect()
        assert await status(reader, writer) == 200
        writer.write(next_bytes)
        assert await is_closed(reader)
        await server.until_open(0)


async def test_connection_is_kept_for_the_next_request(server):
    async with server.listening():
        reader, writer = await server.connect()
        assert [await status(reader, writer) for _ in range(20)] == [200] * 20
        assert server.listener.connections == 1


async def test_client_that_does_not_read_its_response_loses_its_connection(server):
    server.body = bytes(LARGE)
    with structlog.testing.capture_logs() as logs:
        async with server.listening(PATIENT._replace(unread_s=SOON_S)):
            _, writer = await server.connect()
            writer.transport.pause_reading()
            writer.write(GET)
            await server.until(lambda: server.requests == 1)
            await server.until_open(0)
    assert [each["event"] for each in logs] == ["response not read"]


async def test_unread_responses_share_a_budget(server):
    server.body = bytes(LARGE)
    budget = 2 * LARGE
    with structlog.testing.capture_logs() as logs:
        async with server.listening(PATIENT._replace(unread_bytes=budget)):
            clients = [await server.connect() for _ in range(6)]
            for count, (_, writer) in enumerate(clients):
                writer.transport.pause_reading()
                writer.write(GET)
                await server.until(lambda count=count: server.requests == count + 1)
                await asyncio.sleep(0)
                assert sum(each.unread_bytes for each in server.listener._open) <= budget
            server.body = b"ok"
            assert await status(*await server.connect()) == 200
    assert "too many unread bytes" in {each["event"] for each in logs}


async def test_pipelined_requests_wait_until_responses_are_read(server):
    """16 requests fill what the kernel buffers; the other thousands are not handled, and their bytes not even read."""
    server.body = bytes(2**20)
    async with server.listening():
        reader, writer = await server.connect()
        writer.transport.pause_reading()
        writer.write(GET * 5000)
        await server.until(lambda: any(each.unread_bytes for each in server.listener._open))
        assert server.requests < 100
        assert sum(each.unread_bytes for each in server.listener._open) < 2 * 2**20
        writer.transport.resume_reading()
        for _ in range(200):
            await reader.readexactly(2**20)
        assert server.requests >= 200


async def test_malformed_requests_are_one_counted_event(server, capfd):
    with structlog.testing.capture_logs() as logs:
        async with server.listening():
            for number in range(100):
                reader, writer = await server.connect()
                assert await status(reader, writer, b"GET / HTTP/9.9 \x1b[2J\r\nHost\x00: %d\r\n\r\n" % number) == 400
                writer.close()
    assert [(each["event"], each["count"]) for each in logs] == [("malformed request", 1), ("malformed request", 99)]
    assert {each["listener"] for each in logs} == {"listen.http"}
    assert all(each["error"].isascii() and each["error"].isprintable() for each in logs)
    assert capfd.readouterr() == ("", "")


async def test_failing_handler_is_one_counted_event_with_its_traceback(server, capfd):
    with structlog.testing.capture_logs() as logs:
        async with server.listening():
            for _ in range(10):
                assert await status(*await server.connect(), GET.replace(b"/", b"/broken", 1)) == 500
    assert [(each["event"], each["count"]) for each in logs] == [("request failed", 1), ("request failed", 9)]
    assert repr(logs[0]["exc_info"]) == "RuntimeError('a bug')"
    assert capfd.readouterr() == ("", "")


async def test_exhausted_descriptors_are_one_counted_event_and_the_client_is_answered_later(server, monkeypatch, capfd):
    monkeypatch.setattr("scaler.net.ACCEPT_PAUSE_S", 0.001)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with structlog.testing.capture_logs() as logs:
        async with server.listening():
            # A limit at the lowest free descriptor: no more can be opened, and those that are open stay so.
            client = socket.socket()
            client.setblocking(False)
            lowest = os.dup(0)
            os.close(lowest)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
            try:
                await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", server.listener.port))
                await server.until(lambda: server.listener.events._pending.get("accept failed", (0,))[0] > 20)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            reader, writer = await asyncio.open_connection(sock=client)
            assert await status(reader, writer) == 200
            writer.close()
    assert {each["event"] for each in logs} == {"accept failed"}
    assert [each["count"] > 20 for each in logs] == [False, True]
    assert "Too many open files" in logs[0]["error"]
    assert capfd.readouterr() == ("", "")


async def test_events_that_repeat_are_one_line_per_period():
    with structlog.testing.capture_logs() as logs:
        throttle = Throttle(structlog.get_logger(), period_s=0.001)
        throttle.add("a", number=1)
        throttle.add("b", number=1)
        throttle.add("a", number=2)
        throttle.add("a", number=3, level="error")
        async with asyncio.timeout(PATIENCE_S):
            while len(logs) < 3:  # noqa: ASYNC110 - it waits for a timer of the loop
                await asyncio.sleep(0.001)
        throttle.flush()
        throttle.flush()
    counted = [(each["event"], each["count"], each["number"], each["log_level"]) for each in logs]
    assert counted == [("a", 1, 1, "warning"), ("b", 1, 1, "warning"), ("a", 2, 3, "error")]
