"""The client sends instant queries and turns every response into series or a failure. The server is a fake."""

import asyncio
import ssl

import pytest
import trustme
from aiohttp import web

from exporter.model import Credentials, Failure, FailureKind
from exporter.sources.http import HttpLimits
from exporter.sources.promql.client import CONCURRENT_QUERIES

ANY = Credentials()


async def ask(client, query, at=None):
    """Returns the series of a query's last minute, or the failure."""
    return await client.query(query, 60.0, lambda series: series, at=at)


def up(count=1):
    return [({"__name__": "up", "job": str(number)}, [(1.5, 1)]) for number in range(count)]


@pytest.mark.parametrize("base", ["", "/", "/prometheus", "/api/prom/"])
async def test_query_is_posted_as_a_form_under_the_prefix(client, fake, query, base):
    fake.data(*up())
    promql_query = query(fake.url + base, kind="redis_exporter", selector='key="a"')
    assert len(await ask(client, promql_query)) == 1
    ((path, form, _),) = fake.requests
    assert path == base.rstrip("/") + "/api/v1/query"
    assert form == {
        "query": '{__name__=~"redis_key_size|redis_stream_group_lag|redis_stream_group_messages_pending|'
        'tidegate_redis_running|tidegate_redis_waiting|up",key="a"}'
        "[60000ms]",
        "partial_response": "false",
        "dedup": "true",
    }


async def test_query_about_the_past_has_a_time(client, fake, query):
    fake.data()
    assert await ask(client, query(fake.url), at=1700000000.5) == ()
    assert fake.requests[0][1]["time"] == "1700000000.500"


async def test_selector_may_be_longer_than_a_url(client, fake, query):
    fake.data(*up())
    selector = 'pod=~"' + "|".join(f"chat-{number}" for number in range(3000)) + '"'
    assert len(await ask(client, query(fake.url, selector=selector))) == 1
    assert selector in fake.requests[0][1]["query"]


async def test_token_and_password_are_read_from_their_files_for_every_query(client, fake, query, tmp_path):
    fake.data()
    secret = tmp_path / "secret"
    secret.write_text("one\n")
    await ask(client, query(fake.url, access=Credentials(bearer_file=str(secret))))
    secret.write_text("two\n")
    await ask(client, query(fake.url, access=Credentials(username="u", password_file=str(secret))))
    assert [headers.get("Authorization") for _, _, headers in fake.requests] == ["Bearer one", "Basic dTp0d28="]
    secret.unlink()
    failure = await ask(client, query(fake.url, access=Credentials(bearer_file=str(secret))))
    assert failure.kind is FailureKind.CREDENTIALS
    assert len(fake.requests) == 2


async def test_server_that_requires_a_client_certificate_gets_it(client, query, serve, tmp_path):
    authority = trustme.CA()
    files = {name: str(tmp_path / name) for name in ("ca", "cert", "key")}
    authority.cert_pem.write_to_path(files["ca"])
    ours = authority.issue_cert("tidegate.test")
    ours.cert_chain_pems[0].write_to_path(files["cert"])
    ours.private_key_pem.write_to_path(files["key"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED

    async def answer(request):
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": []}})

    app = web.Application()
    app.router.add_post("/api/v1/query", answer)
    async with serve(app, ssl=context) as address:
        trusting = Credentials(ca_file=files["ca"])
        with_certificate = Credentials(ca_file=files["ca"], certificate_file=files["cert"], key_file=files["key"])
        assert await ask(client, query(f"https://{address}", access=with_certificate)) == ()
        # The kind depends on how much of the form was sent before the server closed the connection.
        hung_up = {FailureKind.TLS, FailureKind.REFUSED}
        assert (await ask(client, query(f"https://{address}", access=trusting))).kind in hung_up
        assert (await ask(client, query(f"https://{address}"))).kind is FailureKind.TLS


@pytest.mark.parametrize("status", [400, 422, 429, 500, 503])
async def test_error_has_the_servers_message_and_the_selector(client, fake, query, status):
    fake.status, fake.response = status, {"status": "error", "errorType": "bad_data", "error": "parse error: x"}
    failure = await ask(client, query(fake.url, selector='pod=~"("'))
    assert failure.kind is FailureKind.STATUS
    assert failure.detail.startswith(f"HTTP {status} ")
    assert failure.detail.endswith('bad_data: parse error: x (selector: pod=~"(")')


async def test_error_page_of_a_proxy_is_its_status(client, fake, query):
    fake.status, fake.response = 401, b"<html>who are you?</html>"
    assert await ask(client, query(fake.url)) == Failure(FailureKind.STATUS, "HTTP 401 Unauthorized")


async def test_redirect_is_not_followed(client, fake, query):
    fake.status, fake.response, fake.headers = 307, b"", {"Location": f"{fake.url}/elsewhere"}
    failure = await ask(client, query(fake.url))
    assert failure == Failure(FailureKind.STATUS, "HTTP 307 Temporary Redirect")
    assert len(fake.requests) == 1


async def test_missing_response_is_a_timeout(client, fake, query, http):
    http.limits = HttpLimits(timeout_s=0.05, body_bytes=1000)
    fake.data()
    fake.held = asyncio.Event()
    failure = await ask(client, query(fake.url))
    assert failure == Failure(FailureKind.TIMEOUT, "no complete answer within 0.05 s")


async def test_response_above_the_limit_is_not_read(client, fake, query, http):
    fake.data(*up(50))
    http.limits = HttpLimits(timeout_s=20.0, body_bytes=1000)
    assert (await ask(client, query(fake.url))).kind is FailureKind.TOO_LARGE
    fake.status = 400
    assert (await ask(client, query(fake.url))).kind is FailureKind.TOO_LARGE


async def test_large_response_is_read_whole(client, fake, query):
    fake.data(*up(5000))
    assert len(await ask(client, query(fake.url))) == 5000


async def test_query_to_a_closed_port_is_refused(client, query):
    failure = await ask(client, query("http://127.0.0.1:1"))
    assert failure == Failure(FailureKind.REFUSED, "127.0.0.1:1: Connection refused")


async def test_queries_to_a_hanging_server_are_limited_and_delay_no_other_server(client, fake, query, http, serve):
    fake.data()
    fake.held = asyncio.Event()
    http.limits = HttpLimits(timeout_s=0.2, body_bytes=1000)
    queries = [asyncio.create_task(ask(client, query(fake.url))) for _ in range(3 * CONCURRENT_QUERIES)]
    other = web.Application()

    async def answer(request):
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": []}})

    other.router.add_post("/api/v1/query", answer)
    async with serve(other) as address:
        assert await ask(client, query(f"http://{address}")) == ()
    failures = await asyncio.gather(*queries)
    assert {failure.kind for failure in failures} == {FailureKind.TIMEOUT}
    assert (
        any(failure.detail.startswith("no turn") for failure in failures)
        or len(fake.requests) == 3 * CONCURRENT_QUERIES
    )


async def test_slot_of_a_finished_query_is_released(client, fake, query):
    fake.data()
    for _ in range(2 * CONCURRENT_QUERIES):
        assert await ask(client, query(fake.url)) == ()


async def test_http_target_is_fetched_over_http(client, serve):
    app = web.Application()

    async def page(request):
        return web.Response(text="a 1\n")

    app.router.add_get("/metrics", page)
    async with serve(app) as address:
        assert await client.fetch(f"http://{address}/metrics", ANY) == b"a 1\n"


async def test_page_that_is_not_stored_is_a_failure(client):
    assert (await client.fetch("promql+http://p?kind=vllm&pod=gone", ANY)).kind is FailureKind.EMPTY
