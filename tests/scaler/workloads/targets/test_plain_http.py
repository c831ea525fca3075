"""The plain client fetches ordinary responses; of everything else it has no response, and the general client asks."""

import asyncio
import gzip
import sys
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model import Credentials, Failure
from exporter.sources import plain_http
from exporter.sources.plain_http import IDLE_S, SKIPPED, Head, PlainClient, read_head

ANY = Credentials()
MOST = 1 << 16
BODY = b"up 1\nvllm:num_requests_waiting 3\n"
LENGTH = f"Content-Length: {len(BODY)}"
CHUNKED = "Transfer-Encoding: chunked"


def chunks(body, size):
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%X\r\n%s\r\n" % (len(part), part) for part in [*parts, b""])


@pytest.fixture
async def plain():
    client = PlainClient({"Accept": "text/plain"})
    yield client
    client.close()


class Pieces:
    """Serves one response in given pieces, each in a segment of its own."""

    def __init__(self, pieces):
        self.pieces, self.closed = pieces, asyncio.Event()

    async def serve(self, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        for piece in self.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        with suppress(ConnectionError):
            await reader.read()  # until the client closes
        writer.close()
        await writer.wait_closed()
        self.closed.set()

    @asynccontextmanager
    async def serving(self):
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"
        await self.closed.wait()
        server.close()
        await server.wait_closed()


async def test_requests_of_one_server_share_a_connection(plain, raw, response):
    raw.respond_with(response(BODY, LENGTH), "keep")
    assert [await plain.get(raw.url, {}, MOST) for _ in range(3)] == [BODY] * 3
    assert (len(raw.requests), raw.connections) == (3, 1)


async def test_kept_connection_holds_no_response(plain, raw, response):
    raw.respond_with(response(b"up 1\n" * 10_000, "Content-Length: 50000"), "keep")
    assert len(await plain.get(raw.url, {}, MOST)) == 50_000
    ((connection,),) = plain._idle.values()
    assert sum(sys.getsizeof(each) for each in vars(connection).values() if isinstance(each, bytes | bytearray)) < 1000


async def test_request_has_the_headers_of_the_client_and_of_the_call(plain, raw, response):
    raw.respond_with(response(BODY, LENGTH))
    await plain.get(raw.url, {"Authorization": "Bearer t"}, MOST)
    host = raw.url.split("/")[2]
    lines = ["GET /metrics HTTP/1.1", f"Host: {host}", "Accept: text/plain", "Authorization: Bearer t", "", ""]
    assert raw.requests == ["\r\n".join(lines).encode()]


async def test_line_break_in_a_secret_begins_no_header(plain, raw, response):
    raw.respond_with(response(BODY, LENGTH))
    assert await plain.get(raw.url, {"Authorization": "Bearer t\r\nHost: other"}, MOST) is None
    assert raw.requests == []


async def test_connection_that_the_server_closes_is_not_used_again(plain, raw, response):
    raw.respond_with(response(BODY, LENGTH, "Connection: close"), "keep")
    assert [await plain.get(raw.url, {}, MOST) for _ in range(2)] == [BODY] * 2
    assert plain._idle == {}
    raw.respond_with(response(BODY, LENGTH), "close")
    assert await plain.get(raw.url, {}, MOST) == BODY
    await raw.until(lambda: raw.open == 0)
    assert await plain.get(raw.url, {}, MOST) in {BODY, None}  # None: the end came after the request
    assert await plain.get(raw.url, {}, MOST) == BODY


async def test_connection_that_is_not_used_for_a_minute_is_closed(plain, raw, response, monkeypatch):
    raw.respond_with(response(BODY, LENGTH), "keep")
    await plain.get(raw.url, {}, MOST)
    now = asyncio.get_running_loop().time() + IDLE_S + 1.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    await plain.get("http://127.0.0.1:1/", {}, MOST)  # of another server
    monkeypatch.undo()
    await raw.until(lambda: raw.open == 0)
    assert plain._idle == {}


async def test_connections_beyond_a_number_are_not_kept(raw, response):
    client = PlainClient({}, kept=1)
    raw.respond_with(response(BODY, LENGTH), "keep")
    other = raw.url.replace("127.0.0.1", "localhost")
    assert [await client.get(url, {}, MOST) for url in (raw.url, other, other, raw.url)] == [BODY] * 4
    assert raw.connections == 3
    await raw.until(lambda: raw.open == 1)
    assert await client.get(raw.url, {}, MOST) == BODY
    assert raw.connections == 3, "the first is kept, and used again"
    client.close()
    await raw.until(lambda: raw.open == 0)


async def test_cancelled_request_closes_its_connection(plain, raw, response):
    raw.respond_with(response(b"", LENGTH), "hold")
    fetch = asyncio.create_task(plain.get(raw.url, {}, MOST))
    await raw.until(lambda: raw.requests)
    fetch.cancel()
    await asyncio.wait([fetch])
    await raw.until(lambda: raw.open == 0)


@settings(max_examples=60)
@given(st.lists(st.integers(1, 400), max_size=8), st.integers(1, 40), st.booleans(), st.booleans())
def test_body_is_the_same_in_whatever_pieces_it_arrives(cuts, size, chunked, packed):
    body = gzip.compress(BODY, mtime=0) if packed else BODY
    headers = [CHUNKED if chunked else f"Content-Length: {len(body)}", *(["Content-Encoding: gzip"] if packed else [])]
    head = "".join(f"{line}\r\n" for line in ["HTTP/1.1 200 OK", *headers, ""]).encode()
    whole = head + (chunks(body, size) if chunked else body)
    edges = sorted({0, *(cut for cut in cuts if cut < len(whole)), len(whole)})
    pieces = [whole[begin:end] for begin, end in pairwise(edges)]

    async def fetched():
        client = PlainClient({})
        async with Pieces(pieces).serving() as url:
            outcome = await client.get(url, {}, MOST)
            kept = len(client._idle)
            client.close()
            return outcome, kept

    assert asyncio.run(fetched()) == (BODY, 1)


UNUSUAL = {
    "another status": (b"", ["Content-Length: 0"], {"status": "503 Service Unavailable"}),
    "HTTP/1.0": (BODY, [LENGTH], {"version": "1.0"}),
    "no length": (BODY, [], {}),
    "two lengths": (BODY, [LENGTH, LENGTH], {}),
    "length and chunks": (chunks(BODY, 9), [LENGTH, CHUNKED], {}),
    "signed length": (BODY, [f"Content-Length: +{len(BODY)}"], {}),
    "folded header": (BODY, [LENGTH, "X-A: 1\r\n 2"], {}),
    "space before the colon": (BODY, ["Content-Length : 33"], {}),
    "another encoding": (BODY, [LENGTH, "Content-Encoding: br"], {}),
    "another transfer": (BODY, ["Transfer-Encoding: gzip, chunked"], {}),
    "too long": (b"", [f"Content-Length: {MOST + 1}"], {}),
    "too long in chunks": (chunks(b"x" * (MOST + 1), MOST), [CHUNKED], {}),
    "bytes after the end": (BODY + b"HTTP/1.1 200 OK\r\n", [LENGTH], {}),
    "bytes after the chunks": (chunks(BODY, 9) + b"x", [CHUNKED], {}),
    "a trailer": (chunks(BODY, 9)[:-2] + b"X-A: 1\r\n\r\n", [CHUNKED], {}),
    "a chunk extension": (b"3;a=b\r\nup \r\n0\r\n\r\n", [CHUNKED], {}),
    "no size of a chunk": (b"zz\r\n", [CHUNKED], {}),
    "a chunk without an end": (b"2\r\nupXX0\r\n\r\n", [CHUNKED], {}),
    "a bomb": (gzip.compress(bytes(MOST + 1)), [CHUNKED, "Content-Encoding: gzip"], {}),
    "a truncated stream": (gzip.compress(BODY)[:-4], ["Content-Encoding: gzip"], {}),
    "bytes after the stream": (gzip.compress(BODY) + b"x", [CHUNKED, "Content-Encoding: gzip"], {}),
    "not gzip": (BODY, [LENGTH, "Content-Encoding: gzip"], {}),
    "an endless head": (b"", ["X-A: " + "a" * 20_000], {}),
}


@pytest.mark.parametrize("name", UNUSUAL)
async def test_response_that_is_not_ordinary_is_left_to_the_general_client(plain, raw, response, name):
    body, headers, more = UNUSUAL[name]
    if name in {"a bomb", "bytes after the stream"}:
        body = chunks(body, 4096)
    if name == "a truncated stream":
        headers = [*headers, f"Content-Length: {len(body)}"]
    whole = response(body, *headers, **more)
    raw.respond_with(whole[:-4] if name == "an endless head" else whole, "hold")
    assert await asyncio.wait_for(plain.get(raw.url, {}, MOST), 30) is None
    await raw.until(lambda: raw.open == 0)
    assert [await plain.get(raw.url, {}, MOST) for _ in range(SKIPPED)] == [None] * SKIPPED
    assert len(raw.requests) == 1, "the general client requests it meanwhile"
    raw.respond_with(response(BODY, LENGTH), "keep")
    assert await plain.get(raw.url, {}, MOST) == BODY


@pytest.mark.parametrize("then", ["close", "reset"])
async def test_connection_that_ends_too_early_has_no_response(plain, raw, response, then):
    raw.respond_with(response(BODY[:-1], LENGTH), then)
    assert await plain.get(raw.url, {}, MOST) is None
    assert await plain.get("http://127.0.0.1:1/metrics", {}, MOST) is None
    raw.respond_with(response(BODY, LENGTH))
    assert await plain.get(raw.url, {}, MOST) == BODY, "the next one is requested again at once"


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/metrics",
        "http://user:word@127.0.0.1/metrics",
        "http://127.0.0.1/a b",
        "http://127.0.0.1/\r\nX: 1",
        "http://127.0.0.1/metrics#part",
        "http://127.0.0.1:99999/metrics",
        "http://[::1%25lo]/metrics",
        "http://bücher.example/metrics",
    ],
)
async def test_url_that_may_need_quoting_is_left_to_the_general_client(plain, url, monkeypatch):
    async def connect(*_):
        raise OSError

    monkeypatch.setattr(plain, "_connect", connect)
    assert await plain.get(url, {}, MOST) is None


async def test_general_client_finds_the_reason_of_a_failure(http, raw, response):
    raw.respond_with(response(b"", "Content-Length: 0", status="503 Service Unavailable"))
    outcome = await http.fetch(raw.url, ANY)
    assert isinstance(outcome, Failure)
    assert outcome.detail == "HTTP 503 Service Unavailable"
    assert len(raw.requests) == 2


async def test_urls_of_unusual_responses_are_forgotten_when_there_are_many(plain, raw, response, monkeypatch):
    monkeypatch.setattr(plain_http, "MOST_SKIPPED", 3)
    raw.respond_with(response(b"", "Content-Length: 0", status="404 Not Found"))
    for number in range(10):
        await plain.get(f"{raw.url}/{number}", {}, MOST)
    assert len(plain._skip) <= 3


def test_head_says_how_the_body_ends():
    head = b"HTTP/1.1 200 OK\r\ncontent-length:  7\t\r\nContent-Encoding: GZIP\r\nconnection: Close\r\n\r\n"
    assert read_head(head) == Head(length=7, gzip=True, kept=False)
    assert read_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n") == Head(None, gzip=False, kept=True)
