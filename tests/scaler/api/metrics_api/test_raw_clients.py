"""A client that sends invalid HTTP or holds connections over raw sockets does not affect other clients."""

import asyncio
import gc
import json
import ssl
import time
from asyncio.sslproto import SSLProtocol

import pytest
import structlog

from scaler.api.metrics_api.selectors import LONGEST, BadSelector, parse
from scaler.net import TLS_LIMITS
from tests.fakes.aggregator import HPA, SERVICE
from tests.fakes.kubernetes import PATIENCE_S

PATH = "/apis/external.metrics.k8s.io/v1beta1/namespaces/ai/tidegate-replicas"
PODS = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ai/pods/*/tidegate-queue"
TOKEN = b"Authorization: Bearer t\r\n"


@pytest.fixture(autouse=True)
def decided(api):
    api.kubernetes.users["t"] = {"username": HPA}
    api.workloads.decide("chat", 3)
    api.update_registry()


async def tls(api):
    context = ssl.create_default_context(cadata=api.server_ca.cert_pem.bytes().decode())
    return await asyncio.open_connection("127.0.0.1", api.port, ssl=context, server_hostname=SERVICE)


async def send(api, request):
    """Returns (status, document) of one raw request; the status is None if the connection closes without a response."""
    reader, writer = await tls(api)
    writer.write(request)
    try:
        async with asyncio.timeout(PATIENCE_S):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
            body = b"" if request.startswith(b"HEAD") else await reader.readexactly(int(length.partition(b":")[2]))
    except (ConnectionError, asyncio.IncompleteReadError):
        return None, None
    finally:
        writer.close()
    return int(head.split(b" ", 2)[1]), json.loads(body) if body.startswith(b"{") else None


def get(target, *headers):
    return b"".join([b"GET ", target.encode(), b" HTTP/1.1\r\nHost: t\r\nConnection: close\r\n", *headers, b"\r\n"])


async def until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - the kernel moves connections without an event to wait for
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("value", ["Bearer t\u00e9".encode(), b"Bearer \xff\xfe", b"Bearer a b", b"Bearer \x80"])
async def test_token_that_is_not_ascii_is_unauthorized(api, value):
    status, document = await send(api, get(PATH, b"Authorization: ", value, b"\r\n"))
    assert (status, document["reason"]) == (401, "Unauthorized")
    assert "must be printable ASCII" in document["message"]
    assert api.kubernetes.reviews == []


async def test_caller_without_access_gets_no_error_about_its_selector(api):
    api.kubernetes.allowed = lambda spec: False
    for target in (f"{PATH}?labelSelector=a+in+(", f"{PODS}?labelSelector=a+in+(&fieldSelector=b"):
        status, document = await send(api, get(target, TOKEN))
        assert (status, document["reason"]) == (403, "Forbidden")


async def test_too_long_selector_is_a_bad_request_with_the_bound(api):
    status, document = await send(api, get(f"{PATH}?labelSelector=a+in+({',' * LONGEST}", TOKEN))
    assert (status, document["kind"], document["reason"]) == (400, "Status", "BadRequest")
    length = len("a in (") + LONGEST
    assert f"labelSelector: must be at most {LONGEST} characters long, got {length}" in document["message"]


def test_selector_of_the_greatest_length_is_read():
    assert len(parse("a" * LONGEST)) == 1
    with pytest.raises(BadSelector, match=f"at most {LONGEST}"):
        parse("a" * (LONGEST + 1))


def test_time_to_parse_a_selector_is_proportional_to_its_length(monkeypatch):
    """In quadratic time, each character of an eight times longer selector would take eight times as long."""
    monkeypatch.setattr("scaler.api.metrics_api.selectors.LONGEST", 10**9)

    def per_character(length):
        text, best = "a in (" + "," * length, float("inf")
        for _ in range(5):
            began = time.process_time()
            with pytest.raises(BadSelector):
                parse(text)
            best = min(best, time.process_time() - began)
        return best / length

    assert per_character(40_000) < 4 * per_character(5_000)


TARGETS = [
    "/%ff%fe", "/apis/%00", "//", "/apis//", "/%", "/apis/%zz", "*", "?", "http://[::1", "http://x:99999/", "/\\x",
    f"{PATH}?labelSelector=%ff", f"{PATH}?labelSelector=%ed%a0%80", f"{PATH}?%ff=1&labelSelector", f"{PATH}?a=b=c&&;",
    f"{PATH}#x", f"{PATH}/%2e%2e/x", PATH.replace("ai", "%ff"), PATH.replace("ai", "a%2fi"), PATH.replace("ai", "%00"),
    PATH.replace("ai", "x" * 5000), PODS.replace("*", "%ed%a0%80"), f"{PODS}?labelSelector=%f0%28%8c%28",
]  # fmt: skip
HEADERS = [
    b"X-Remote-User: \xff\r\n", b"Accept: \xff;\x80=,\r\n", b"Content-Length: 5\r\n",
    b"Upgrade: h2c\r\nConnection: Upgrade\r\n",
    b"Expect: what\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: gzip\r\nContent-Length: 1\r\n",
    b"Cookie: \xff=\x80; a\r\n", b"If-None-Match: \xff\r\n", b"Range: bytes=9-1\r\n", b"Host: \xff\r\n", b"X: \x00\r\n",
    b"Authorization: \xff\r\n", b"Connection: \xff\r\n", b"Content-Type: \xff; charset=\x80\r\n",
]  # fmt: skip


async def test_no_request_causes_a_server_error(api):
    methods = (b"POST", b"OPTIONS", b"CONNECT", b"TRACE", b"HEAD", b"\xff")
    requests = [get(target, TOKEN) for target in TARGETS] + [get(PATH, TOKEN, header) for header in HEADERS]
    requests += [get(target, TOKEN).replace(b"GET", method, 1) for method in methods for target in (PATH, "*")]
    with structlog.testing.capture_logs() as logs:
        for request in requests:
            status, _ = await send(api, request)
            assert status is None or status < 500, request
    assert {each["event"] for each in logs} <= {"malformed request"}


async def test_silent_connection_has_no_tls_state(api):
    opened = [await asyncio.open_connection("127.0.0.1", api.port) for _ in range(20)]
    await until(lambda: api.server._listener.connections == 20)
    gc.collect()
    assert [each for each in gc.get_objects() if type(each) is SSLProtocol and each._server_side] == []
    for _, writer in opened:
        writer.close()


async def test_aborted_handshake_leaves_nothing_behind(api):
    """The garbage collector is off: otherwise 256 KiB per connection would stay until its next full run."""
    gc.collect()
    gc.disable()
    try:
        for first in (b"\x16", b"\x16\x03\x01\x00\x01", b"GET / HTTP/1.1\r\n\r\n"):
            _, writer = await asyncio.open_connection("127.0.0.1", api.port)
            writer.write(first)
            await until(lambda: api.server._listener.connections == 1)
            writer.close()
            await until(lambda: api.server._listener.connections == 0)
            await asyncio.sleep(0)
        assert [each for each in gc.get_objects() if type(each) is SSLProtocol] == []
    finally:
        gc.enable()


async def test_idle_connections_are_capped_and_requests_are_still_answered(api):
    proxy = await api.aggregator()
    assert (await proxy.forward(PATH)).status == 200
    opened = []
    for _ in range(TLS_LIMITS.connections + 50):
        opened.append(await asyncio.open_connection("127.0.0.1", api.port))
        await asyncio.sleep(0)
    assert api.server._listener.connections <= TLS_LIMITS.connections
    assert (await proxy.forward(PATH)).status == 200
    for _, writer in opened:
        writer.close()
