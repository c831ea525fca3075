"""What is sent to a server, and what comes of whatever it does. The server is a fake: it says what a test wants."""

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
    """The series of a query's last minute, or the failure."""
    return await client.query(query, 60.0, lambda series: series, at=at)


def up(count=1):
    return [({"__name__": "up", "job": str(place)}, [(1.5, 1)]) for place in range(count)]


@pytest.mark.parametrize("base", ["", "/", "/prometheus", "/api/prom/"])
async def test_question_is_a_form_posted_to_the_api_under_its_prefix(client, fake, query, base):
    fake.data(*up())
    asked = query(fake.url + base, kind="redis_exporter", selector='key="a"')
    assert len(await ask(client, asked)) == 1
    ((path, form, _),) = fake.asked
    assert path == base.rstrip("/") + "/api/v1/query"
    assert form == {
        "query": '{__name__=~"redis_key_size|redis_stream_group_lag|redis_stream_group_messages_pending|'
        'tidegate_redis_running|tidegate_redis_waiting|up",key="a"}'
        "[60000ms]",
        "partial_response": "false",
        "dedup": "true",
    }


async def test_question_about_the_past_says_when(client, fake, query):
    fake.data()
    assert await ask(client, query(fake.url), at=1700000000.5) == ()
    assert fake.asked[0][1]["time"] == "1700000000.500"


async def test_selector_longer_than_any_url_is_asked(client, fake, query):
    fake.data(*up())
    selector = 'pod=~"' + "|".join(f"chat-{number}" for number in range(3000)) + '"'
    assert len(await ask(client, query(fake.url, selector=selector))) == 1
    assert selector in fake.asked[0][1]["query"]


async def test_token_or_a_password_comes_from_its_file_at_every_question(client, fake, query, tmp_path):
    fake.data()
    secret = tmp_path / "secret"
    secret.write_text("one\n")
    await ask(client, query(fake.url, access=Credentials(bearer_file=str(secret))))
    secret.write_text("two\n")
    await ask(client, query(fake.url, access=Credentials(username="u", password_file=str(secret))))
    assert [headers.get("Authorization") for _, _, headers in fake.asked] == ["Bearer one", "Basic dTp0d28="]
    secret.unlink()
    failure = await ask(client, query(fake.url, access=Credentials(bearer_file=str(secret))))
    assert failure.kind is FailureKind.CREDENTIALS
    assert len(fake.asked) == 2


async def test_server_that_wants_a_certificate_gets_it(client, query, serve, tmp_path):
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
        known = Credentials(ca_file=files["ca"], certificate_file=files["cert"], key_file=files["key"])
        assert await ask(client, query(f"https://{address}", access=known)) == ()
        # Which of the two depends on how far the form had been sent when the server hung up.
        hung_up = {FailureKind.TLS, FailureKind.REFUSED}
        assert (await ask(client, query(f"https://{address}", access=trusting))).kind in hung_up
        assert (await ask(client, query(f"https://{address}"))).kind is FailureKind.TLS


@pytest.mark.parametrize("status", [400, 422, 429, 500, 503])
async def test_error_is_told_in_the_servers_words_with_the_selector(client, fake, query, status):
    fake.status, fake.says = status, {"status": "error", "errorType": "bad_data", "error": "parse error: x"}
    failure = await ask(client, query(fake.url, selector='pod=~"("'))
    assert failure.kind is FailureKind.STATUS
    assert failure.detail.startswith(f"HTTP {status} ")
    assert failure.detail.endswith('bad_data: parse error: x (selector: pod=~"(")')


async def test_error_page_of_somebody_in_between_is_its_status(client, fake, query):
    fake.status, fake.says = 401, b"<html>who are you?</html>"
    assert await ask(client, query(fake.url)) == Failure(FailureKind.STATUS, "HTTP 401 Unauthorized")


async def test_redirect_is_not_followed(client, fake, query):
    fake.status, fake.says, fake.headers = 307, b"", {"Location": f"{fake.url}/elsewhere"}
    failure = await ask(client, query(fake.url))
    assert failure == Failure(FailureKind.STATUS, "HTTP 307 Temporary Redirect")
    assert len(fake.asked) == 1


async def test_answer_that_never_comes_times_out(client, fake, query, http):
    http.limits = HttpLimits(timeout_s=0.05, body_bytes=1000)
    fake.data()
    fake.held = asyncio.Event()
    failure = await ask(client, query(fake.url))
    assert failure == Failure(FailureKind.TIMEOUT, "no complete answer within 0.05 s")


async def test_answer_larger_than_the_limit_is_not_read(client, fake, query, http):
    fake.data(*up(50))
    http.limits = HttpLimits(timeout_s=20.0, body_bytes=1000)
    assert (await ask(client, query(fake.url))).kind is FailureKind.TOO_LARGE
    fake.status = 400
    assert (await ask(client, query(fake.url))).kind is FailureKind.TOO_LARGE


async def test_large_answer_is_read_whole_and_beside_the_event_loop(client, fake, query):
    fake.data(*up(5000))
    assert len(await ask(client, query(fake.url))) == 5000


async def test_where_nobody_listens_the_question_is_refused(client, query):
    failure = await ask(client, query("http://127.0.0.1:1"))
    assert failure == Failure(FailureKind.REFUSED, "127.0.0.1:1: Connection refused")


async def test_server_that_hangs_is_asked_few_questions_at_once_and_keeps_nobody_from_another(
    client, fake, query, http, serve
):
    fake.data()
    fake.held = asyncio.Event()
    http.limits = HttpLimits(timeout_s=0.2, body_bytes=1000)
    questions = [asyncio.create_task(ask(client, query(fake.url))) for _ in range(3 * CONCURRENT_QUERIES)]
    other = web.Application()

    async def answer(request):
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": []}})

    other.router.add_post("/api/v1/query", answer)
    async with serve(other) as address:
        assert await ask(client, query(f"http://{address}")) == ()
    failures = await asyncio.gather(*questions)
    assert {failure.kind for failure in failures} == {FailureKind.TIMEOUT}
    assert (
        any(failure.detail.startswith("no turn") for failure in failures) or len(fake.asked) == 3 * CONCURRENT_QUERIES
    )


async def test_turn_is_given_back(client, fake, query):
    fake.data()
    for _ in range(2 * CONCURRENT_QUERIES):
        assert await ask(client, query(fake.url)) == ()


async def test_whatever_is_no_promql_source_is_fetched_as_ever(client, serve):
    app = web.Application()

    async def page(request):
        return web.Response(text="a 1\n")

    app.router.add_get("/metrics", page)
    async with serve(app) as address:
        assert await client.fetch(f"http://{address}/metrics", ANY) == b"a 1\n"


async def test_page_that_is_not_on_the_shelf_is_a_failure(client):
    assert (await client.fetch("promql+http://p?kind=vllm&pod=gone", ANY)).kind is FailureKind.EMPTY
