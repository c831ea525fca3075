"""A server that is no Redis costs only its page, whatever it sends."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from exporter.model import Failure, FailureKind
from exporter.sources.redis import Servers, Stream, Way


@asynccontextmanager
async def serving(text, *, closes=False):
    async def answer(reader, writer):
        try:
            while await reader.read(65536):
                writer.write(text)
                if closes:
                    break
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


GARBAGE = [
    b"HTTP/1.1 400 Bad Request\r\n\r\n", b":twelve\r\n:12\r\n", b"*-7\r\n", b"$5\r\nab", b"\r\n\r\n", b"x" * 200_000,
    b"*1\r\n" * 3000, b"+OK\r\n+OK\r\n+OK\r\n", b"$-1\r\n$-1\r\n$-1\r\n", b"*2\r\n*0\r\n*0\r\n:1\r\n*1\r\n:4\r\n",
]  # fmt: skip


@pytest.mark.parametrize("text", GARBAGE)
@pytest.mark.parametrize("way", list(Way))
async def test_garbage_of_a_server_is_a_failure_and_no_zero(ask, source, text, way):
    source.timeout_s = 0.5
    async with serving(text, closes=True) as port:
        servers = Servers(way, (("127.0.0.1", port),), master="m")
        found = await ask(0, servers=servers, lists=("jobs",), streams=(Stream("e", "g"),))
    if isinstance(found, dict):  # one queue of the two was read
        assert found["e/g"][0] != found["e/g"][0]
    else:
        assert isinstance(found, Failure)
        assert found.kind is not FailureKind.INTERNAL


@pytest.mark.parametrize("text", [b"*1\r\n*3\r\n:0\r\n:9\r\n:7\r\n", b"*2\r\n$1\r\nh\r\n$1\r\nx\r\n"])
@pytest.mark.parametrize("way", [Way.SENTINEL, Way.CLUSTER])
async def test_sentinel_or_node_without_a_server_is_a_failure(ask, source, text, way):
    source.timeout_s = 0.5
    async with serving(text) as port:
        found = await ask(0, servers=Servers(way, (("127.0.0.1", port),), master="m"), lists=("jobs",))
    assert isinstance(found, Failure)


async def test_unused_connections_are_closed(server, ask, source, launch):
    other = await launch()
    await ask(server.port, lists=("jobs",))
    used_at, clock = source.pages._used_at, source.pages._clock
    for servers in used_at:
        used_at[servers] = clock.now() - 301.0
    await ask(other.port, lists=("jobs",))
    async with asyncio.timeout(10):
        while len(await server.client.client_list()) > 1:  # noqa: ASYNC110 - the state of the server
            await asyncio.sleep(0.01)
