"""Fetches a target: its body, and every other behaviour of a server."""

import asyncio
import gzip
import tracemalloc
import zlib
from pathlib import Path

import certifi
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.budget import BODIES
from exporter.model import Credentials, Failure, FailureKind
from exporter.sources.http import MAX_CONTEXTS, HttpLimits, HttpPages

ANY = Credentials()
GZIP = "Content-Encoding: gzip"


def kind_of(outcome):
    return outcome.kind if isinstance(outcome, Failure) else outcome


def length(body):
    return f"Content-Length: {len(body)}"


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


async def test_body_is_returned_as_bytes(http, serve, page):
    async def handler(request):
        return web.Response(body=page)

    assert await http.fetch(await serve(handler), ANY) == page


async def test_compressed_body_is_returned_unpacked(http, serve, page):
    encodings = []

    async def handler(request):
        encodings.append(request.headers["Accept-Encoding"])
        response = web.Response(body=page)
        response.enable_compression(web.ContentCoding.gzip)
        return response

    assert await http.fetch(await serve(handler), ANY) == page
    assert encodings == ["gzip"]


async def test_chunked_body_is_returned_complete(http, raw, response, page):
    for body, *headers in ((page,), (gzip.compress(page), GZIP)):
        halves = chunk(body[:50]) + chunk(body[50:]) + b"0\r\n\r\n"
        raw.respond_with(response(halves, "Transfer-Encoding: chunked", *headers))
        assert await http.fetch(raw.url, ANY) == page


async def test_concurrent_large_responses_share_a_budget_and_small_ones_pass(serve):
    """The budget is eight times the limit: nine responses that are nearly as large exceed it."""
    limit, release = 1 << 16, asyncio.Event()
    http = HttpPages(HttpLimits(timeout_s=20.0, body_bytes=limit))

    async def handler(request):
        if request.path == "/small":
            return web.Response(body=b"up 1\n")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x" * (limit - 100))
        await release.wait()
        await response.write(b"\n")
        return response

    url = await serve(handler)
    try:
        fetches = [asyncio.create_task(http.fetch(url, ANY)) for _ in range(BODIES + 1)]
        done, _ = await asyncio.wait(fetches, return_when=asyncio.FIRST_COMPLETED)
        refused = [task.result() for task in done]
        small = await http.fetch(url.rsplit("/", 1)[0] + "/small", ANY)
        release.set()
        outcomes = await asyncio.gather(*fetches)
    finally:
        release.set()
        await http.close()
    assert {kind_of(each) for each in refused} == {FailureKind.TOO_LARGE}
    assert small == b"up 1\n"
    assert sum(isinstance(each, bytes) for each in outcomes) >= BODIES // 2
    assert http._bodies.used == 0


def test_tls_contexts_of_earlier_configurations_are_released(tmp_path):
    http = HttpPages(HttpLimits(timeout_s=1.0, body_bytes=1))
    first = http._tls(Credentials(bearer_file="a"))
    assert http._tls(Credentials(bearer_file="b")) is first  # a token does not change the context
    authority = Path(certifi.where()).read_text()
    for number in range(MAX_CONTEXTS + 5):
        file = tmp_path / f"{number}.pem"
        file.write_text(authority.partition("-----END CERTIFICATE-----\n")[0] + "-----END CERTIFICATE-----\n")
        http._tls(Credentials(ca_file=str(file)))
    assert len(http._contexts) == MAX_CONTEXTS


async def test_prometheus_text_is_preferred(http, raw, response):
    raw.respond_with(response(b"", "Content-Length: 0"))
    await http.fetch(raw.url, ANY)
    (accept,) = (line for line in raw.requests[0].split(b"\r\n") if line.startswith(b"Accept: "))
    assert accept.startswith(b"Accept: text/plain;version=0.0.4;q=1.0, application/openmetrics-text")


async def test_many_scrapes_use_one_connection(http, raw, response, page):
    raw.respond_with(response(page, length(page)), then="keep")
    for _ in range(20):
        assert await http.fetch(raw.url, ANY) == page
    assert (raw.connections, len(raw.requests)) == (1, 20)


async def test_connection_closed_between_scrapes_loses_no_scrape(http, raw, response, page):
    raw.respond_with(response(page, length(page)), then="close")
    for _ in range(5):
        assert await http.fetch(raw.url, ANY) == page
    assert raw.connections == 5


async def test_ipv6_address_is_scraped(http, serve, page):
    async def handler(request):
        return web.Response(body=page)

    try:
        url = await serve(handler, host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6 on this loopback: {error}")
    assert url.startswith("http://[::1]:")
    assert await http.fetch(url, ANY) == page


async def test_wrong_charset_changes_no_byte(http, raw, response):
    body = 'a{b="é"} 1\n'.encode()
    raw.respond_with(response(body, length(body), "Content-Type: text/plain; charset=utf-16"))
    assert await http.fetch(raw.url, ANY) == body


async def test_empty_body_is_no_failure(http, raw, response):
    raw.respond_with(response(b"", "Content-Length: 0"))
    assert await http.fetch(raw.url, ANY) == b""
    raw.respond_with(response(b"", "Content-Length: 0", GZIP))
    assert await http.fetch(raw.url, ANY) == b""


async def test_cookies_are_not_kept(http, raw, response):
    raw.respond_with(response(b"", "Content-Length: 0", "Set-Cookie: a=b"), then="keep")
    await http.fetch(raw.url, ANY)
    await http.fetch(raw.url, ANY)
    assert not any(b"Cookie" in request for request in raw.requests)


@pytest.mark.parametrize("status", ["204 No Content", "206 Partial Content", "401 Unauthorized", "404 Not Found",
                                    "429 Too Many Requests", "500 Oh no", "503 Service Unavailable"])  # fmt: skip
async def test_status_other_than_200_is_a_failure_that_names_it(http, raw, response, status):
    raw.respond_with(response(b"", "Content-Length: 0", status=status))
    assert await http.fetch(raw.url, ANY) == Failure(FailureKind.STATUS, f"HTTP {status}")


@pytest.mark.parametrize("status", ["301 Moved Permanently", "302 Found", "307 Temporary Redirect"])
async def test_redirect_is_not_followed(http, raw, serve, response, status):
    visits = []

    async def elsewhere(request):
        visits.append(request)
        return web.Response(body=b"a 1\n")

    raw.respond_with(response(b"", "Content-Length: 0", f"Location: {await serve(elsewhere)}", status=status))
    assert await http.fetch(raw.url, ANY) == Failure(FailureKind.STATUS, f"HTTP {status}")
    assert visits == []


async def test_port_without_a_listener_refuses_the_connection(http, silent_port):
    address = f"127.0.0.1:{silent_port}"
    assert await http.fetch(f"http://{address}/", ANY) == Failure(FailureKind.REFUSED, f"{address}: Connection refused")


@pytest.mark.parametrize("url", ["http://", "http://[::1/", "ftp://127.0.0.1/", "nonsense", "http://127.0.0.1:x/"])
async def test_invalid_url_is_a_failure(http, url):
    assert kind_of(await http.fetch(url, ANY)) is FailureKind.REFUSED


async def test_header_that_never_ends_times_out(raw):
    pages = HttpPages(HttpLimits(timeout_s=0.05, body_bytes=1000))
    raw.respond_with(b"HTTP/1.1 200 OK\r\n", then="hold")
    async with asyncio.timeout(60.0):
        assert await pages.fetch(raw.url, ANY) == Failure(FailureKind.TIMEOUT, "no complete answer within 0.05 s")
    await raw.until(lambda: raw.open == 0)
    await pages.close()


async def test_endless_slow_body_times_out(raw, response):
    pages = HttpPages(HttpLimits(timeout_s=0.05, body_bytes=1 << 30))
    raw.respond_with(response(b"", "Content-Length: 1000000000"), then="more", more=b"a")
    async with asyncio.timeout(60.0):
        assert kind_of(await pages.fetch(raw.url, ANY)) is FailureKind.TIMEOUT
    await raw.until(lambda: raw.open == 0)
    await pages.close()


async def test_body_may_be_as_large_as_the_limit(http, raw, response, page):
    for packed, *headers in ((page,), (gzip.compress(page), GZIP)):
        raw.respond_with(response(packed, length(packed), *headers))
        http.limits = HttpLimits(timeout_s=20.0, body_bytes=len(page))
        assert await http.fetch(raw.url, ANY) == page
        http.limits = HttpLimits(timeout_s=20.0, body_bytes=len(page) - 1)
        assert kind_of(await http.fetch(raw.url, ANY)) is FailureKind.TOO_LARGE


async def test_endless_body_is_cut_off_at_the_limit(http, raw, response):
    raw.respond_with(response(b"", "Transfer-Encoding: chunked"), then="more", more=chunk(b"a 1\n" * 1000))
    expected = Failure(FailureKind.TOO_LARGE, "more than 1048576 bytes (scrape.body_limit)")
    assert await http.fetch(raw.url, ANY) == expected
    await raw.until(lambda: raw.open == 0)


async def test_announced_length_does_not_raise_the_limit(http, raw, response):
    raw.respond_with(response(b"", "Content-Length: 1000000000000"), then="more", more=b"a 1\n" * 1000)
    assert kind_of(await http.fetch(raw.url, ANY)) is FailureKind.TOO_LARGE


async def test_gzip_bomb_is_cut_off_before_it_fills_the_memory(http, raw, response):
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(squeeze.compress(bytes(1 << 20)) for _ in range(64)) + squeeze.flush()
    assert len(bomb) < 1 << 17  # 64 MiB in less than 128 KiB
    raw.respond_with(response(bomb, length(bomb), GZIP))
    tracemalloc.start()
    try:
        outcome = await http.fetch(raw.url, ANY)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kind_of(outcome) is FailureKind.TOO_LARGE
    # The limit of 1 MiB twice (unpacked, and in the result), and as much again for everything else.
    assert peak < 4 << 20


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate", "gzip, gzip", "nonsense"])
async def test_unrequested_encoding_is_a_failure_that_names_it(http, raw, response, page, encoding):
    raw.respond_with(response(page, length(page), f"Content-Encoding: {encoding}"))
    outcome = await http.fetch(raw.url, ANY)
    assert kind_of(outcome) is FailureKind.UNREADABLE
    assert encoding in outcome.detail


async def test_invalid_gzip_is_a_failure(http, raw, response, page):
    broken = bytearray(gzip.compress(page))
    broken[-5] ^= 1  # in the checksum
    for body in (page, bytes(broken), gzip.compress(page) + b"and more"):
        raw.respond_with(response(body, length(body), GZIP))
        assert kind_of(await http.fetch(raw.url, ANY)) in {FailureKind.UNREADABLE, FailureKind.REFUSED}


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na 1\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 1000 + b"\r\n",
    ],
)
async def test_invalid_http_is_a_failure_in_one_line(http, raw, response):
    raw.respond_with(response)
    outcome = await http.fetch(raw.url, ANY)
    assert kind_of(outcome) is FailureKind.REFUSED
    assert outcome.detail
    assert "\n" not in outcome.detail


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_response_makes_a_fetch_raise(data):
    """Responses with bytes inserted, removed or changed: the outcome is bytes or a Failure."""
    template = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    response = bytearray(template + chunk(gzip.compress(b"a 1\n" * 50)) + b"0\r\n\r\n")
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(response)))
        response[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))

    async def fetch():
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(response)
            writer.close()
            await writer.wait_closed()

        pages = HttpPages(HttpLimits(timeout_s=20.0, body_bytes=1 << 16))
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            outcome = await pages.fetch(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", ANY)
        await pages.close()
        return outcome

    assert isinstance(asyncio.run(fetch()), bytes | Failure)


async def test_changed_limits_apply_from_the_next_scrape(http, raw, response, page):
    raw.respond_with(response(page, length(page)), then="keep")
    assert await http.fetch(raw.url, ANY) == page
    http.limits = HttpLimits(timeout_s=20.0, body_bytes=10)
    assert kind_of(await http.fetch(raw.url, ANY)) is FailureKind.TOO_LARGE


async def test_cancelled_fetch_leaves_no_task_and_no_connection(http, raw):
    before = asyncio.all_tasks()
    raw.respond_with(b"HTTP/1.1 200 OK\r\n", then="hold")
    fetching = asyncio.create_task(http.fetch(raw.url, ANY))
    await raw.until(lambda: raw.requests)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    await raw.until(lambda: raw.open == 0)
    await http.close()
    # Handlers of the server are tasks of this loop as well; they end with their connections.
    async with asyncio.timeout(60.0):
        await asyncio.gather(*(asyncio.all_tasks() - before), return_exceptions=True)
    assert asyncio.all_tasks() == before


async def test_closed_client_can_fetch_again(http, raw, response, page):
    raw.respond_with(response(page, length(page)))
    assert await http.fetch(raw.url, ANY) == page
    await http.close()
    assert await http.fetch(raw.url, ANY) == page
