"""Tests credentials: tokens and passwords from files that rotate, and failures if they cannot be used."""

import base64

import pytest
from aiohttp import web

from exporter.model import Credentials, Failure, FailureKind
from exporter.sources.http import HttpLimits

TOKEN = "s3cr3t-t0ken"
PASSWORD = "correct horse"


def swap(file, text):
    """Replaces the file atomically, as kubelet does."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


@pytest.fixture
async def recorded(serve):
    """A server for any client; `recorded.url`, and in `recorded` the Authorization header of each request."""

    class Recorder(list):
        url = ""

    recorder = Recorder()

    async def handler(request):
        recorder.append(request.headers.get("Authorization"))
        return web.Response(body=b"a 1\n")

    recorder.url = await serve(handler)
    return recorder


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def test_no_credentials_are_sent_unless_configured(http, recorded):
    await http.fetch(recorded.url, Credentials())
    assert recorded == [None]


async def test_token_is_read_from_its_file_at_every_scrape(http, recorded, token):
    access = Credentials(bearer_file=str(token))
    await http.fetch(recorded.url, access)
    swap(token, "another")
    await http.fetch(recorded.url, access)
    assert recorded == [f"Bearer {TOKEN}", "Bearer another"]


async def test_password_is_read_from_its_file_at_every_scrape(http, recorded, token):
    access = Credentials(username="prometheus", password_file=str(token))
    swap(token, f"{PASSWORD}\n")
    await http.fetch(recorded.url, access)
    swap(token, "pässword")
    await http.fetch(recorded.url, access)
    assert recorded == [basic("prometheus", PASSWORD), basic("prometheus", "pässword")]


async def test_missing_file_is_a_failure_without_a_request(http, recorded, token):
    token.unlink()
    for access in (Credentials(bearer_file=str(token)), Credentials(username="u", password_file=str(token))):
        expected = Failure(FailureKind.CREDENTIALS, f"{token}: No such file or directory")
        assert await http.fetch(recorded.url, access) == expected
    assert recorded == []


async def test_file_that_returns_is_used_again(http, recorded, token):
    access = Credentials(bearer_file=str(token))
    token.unlink()
    assert isinstance(await http.fetch(recorded.url, access), Failure)
    token.write_text("back")
    assert await http.fetch(recorded.url, access) == b"a 1\n"
    assert recorded == ["Bearer back"]


@pytest.mark.parametrize("content", [b"", b"\n \n", b"two\nlines", b"a\r\nX-Evil: b", b"null\x00", b"\xff\xfe"])
async def test_file_without_one_line_of_text_is_a_failure_without_a_request(http, recorded, token, content):
    token.write_bytes(content)
    for access in (Credentials(bearer_file=str(token)), Credentials(username="u", password_file=str(token))):
        expected = Failure(FailureKind.CREDENTIALS, f"{token}: must hold one line of text")
        assert await http.fetch(recorded.url, access) == expected
    assert recorded == []


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na 1\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\na 1\n",
        b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"a" * 1000,
    ],
)
async def test_no_failure_contains_a_secret(http, raw, token, response):
    http.limits = HttpLimits(timeout_s=20.0, body_bytes=100)
    raw.respond_with(response)
    encoded = base64.b64encode(f"prometheus:{TOKEN}".encode()).decode()
    for access in (Credentials(bearer_file=str(token)), Credentials(username="prometheus", password_file=str(token))):
        outcome = await http.fetch(raw.url, access)
        assert isinstance(outcome, Failure)
        assert TOKEN not in outcome.detail
        assert encoded not in outcome.detail


async def test_secret_in_place_of_a_certificate_is_not_shown(http, token):
    for access in (Credentials(ca_file=str(token)), Credentials(certificate_file=str(token), key_file=str(token))):
        outcome = await http.fetch("https://127.0.0.1:1/", access)
        assert outcome.kind is FailureKind.CREDENTIALS
        assert TOKEN not in outcome.detail


@pytest.mark.parametrize("host", ["127.0.0.1:{silent_port}", "[bad", "127.0.0.1:x", "", "no such host"])
@pytest.mark.parametrize("scheme", ["http", "https", "ftp"])
async def test_no_failure_contains_the_password_of_a_url(http, host, scheme, token, silent_port):
    """The configuration refuses such URLs; if one gets past it, its password must not appear in a log."""
    host = host.replace("{silent_port}", str(silent_port))
    for access in (Credentials(), Credentials(bearer_file=str(token))):
        outcome = await http.fetch(f"{scheme}://user:{PASSWORD.split()[1]}@{host}/metrics", access)
        assert isinstance(outcome, Failure)
        assert "horse" not in outcome.detail
