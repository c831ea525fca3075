"""Who asks: tokens and passwords from files that rotate, and what happens where they cannot be used."""

import base64

import pytest
from aiohttp import web

from exporter.model import Credentials, Failure, FailureKind
from exporter.sources.http import HttpLimits

TOKEN = "s3cr3t-t0ken"
PASSWORD = "correct horse"


def swap(file, text):
    """As kubelet does: the name points at another file from one moment to the next."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


@pytest.fixture
async def asked(serve):
    """A server that answers anybody; `asked.url`, and in `asked` the Authorization header of each request."""

    class Asked(list):
        url = ""

    seen = Asked()

    async def handler(request):
        seen.append(request.headers.get("Authorization"))
        return web.Response(body=b"a 1\n")

    seen.url = await serve(handler)
    return seen


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def test_nobody_is_told_who_asks_unless_it_is_configured(http, asked):
    await http.fetch(asked.url, Credentials())
    assert asked == [None]


async def test_a_token_comes_from_its_file_at_every_scrape(http, asked, token):
    access = Credentials(bearer_file=str(token))
    await http.fetch(asked.url, access)
    swap(token, "another")
    await http.fetch(asked.url, access)
    assert asked == [f"Bearer {TOKEN}", "Bearer another"]


async def test_a_password_comes_from_its_file_at_every_scrape(http, asked, token):
    access = Credentials(username="prometheus", password_file=str(token))
    swap(token, f"{PASSWORD}\n")
    await http.fetch(asked.url, access)
    swap(token, "pässword")
    await http.fetch(asked.url, access)
    assert asked == [basic("prometheus", PASSWORD), basic("prometheus", "pässword")]


async def test_a_missing_file_is_a_failure_that_names_it_and_nothing_is_asked(http, asked, token):
    token.unlink()
    for access in (Credentials(bearer_file=str(token)), Credentials(username="u", password_file=str(token))):
        expected = Failure(FailureKind.CREDENTIALS, f"{token}: No such file or directory")
        assert await http.fetch(asked.url, access) == expected
    assert asked == []


async def test_a_file_that_comes_back_is_used_again(http, asked, token):
    access = Credentials(bearer_file=str(token))
    token.unlink()
    assert isinstance(await http.fetch(asked.url, access), Failure)
    token.write_text("back")
    assert await http.fetch(asked.url, access) == b"a 1\n"
    assert asked == ["Bearer back"]


@pytest.mark.parametrize("content", [b"", b"\n \n", b"two\nlines", b"a\r\nX-Evil: b", b"null\x00", b"\xff\xfe"])
async def test_a_file_without_one_line_of_text_is_a_failure_and_nothing_is_asked(http, asked, token, content):
    token.write_bytes(content)
    for access in (Credentials(bearer_file=str(token)), Credentials(username="u", password_file=str(token))):
        expected = Failure(FailureKind.CREDENTIALS, f"{token}: must hold one line of text")
        assert await http.fetch(asked.url, access) == expected
    assert asked == []


@pytest.mark.parametrize(
    "said",
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
async def test_no_failure_tells_a_secret(http, raw, token, said):
    http.limits = HttpLimits(timeout_s=20.0, body_bytes=100)
    raw.says(said)
    encoded = base64.b64encode(f"prometheus:{TOKEN}".encode()).decode()
    for access in (Credentials(bearer_file=str(token)), Credentials(username="prometheus", password_file=str(token))):
        outcome = await http.fetch(raw.url, access)
        assert isinstance(outcome, Failure)
        assert TOKEN not in outcome.detail
        assert encoded not in outcome.detail


async def test_a_secret_where_a_certificate_should_be_is_not_told(http, token):
    for access in (Credentials(ca_file=str(token)), Credentials(certificate_file=str(token), key_file=str(token))):
        outcome = await http.fetch("https://127.0.0.1:1/", access)
        assert outcome.kind is FailureKind.CREDENTIALS
        assert TOKEN not in outcome.detail


@pytest.mark.parametrize("place", ["127.0.0.1:{silent_port}", "[bad", "127.0.0.1:x", "", "no such host"])
@pytest.mark.parametrize("scheme", ["http", "https", "ftp"])
async def test_no_failure_tells_the_password_in_a_url(http, place, scheme, token, silent_port):
    """The configuration refuses such URLs; whoever hands one on all the same must not find it in a log."""
    place = place.replace("{silent_port}", str(silent_port))
    for access in (Credentials(), Credentials(bearer_file=str(token))):
        outcome = await http.fetch(f"{scheme}://user:{PASSWORD.split()[1]}@{place}/metrics", access)
        assert isinstance(outcome, Failure)
        assert "horse" not in outcome.detail
