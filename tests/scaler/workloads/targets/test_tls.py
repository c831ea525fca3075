"""Tests TLS: trusted authorities, client certificates, and files that change while the daemon runs."""

import asyncio
import datetime as dt
import ssl
from contextlib import suppress

import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from exporter.model import Credentials, Failure, FailureKind

BODY = b"a 1\n"


class Authority:
    """A certificate authority and its files; `files.trusted`, `files.issue(name, *hosts)` -> (certificate, key)."""

    def __init__(self, folder):
        self.ca, self.folder = trustme.CA(), folder
        self.file = folder / f"{id(self)}-ca.pem"
        self.ca.cert_pem.write_to_path(self.file)

    @property
    def trusted(self):
        return Credentials(ca_file=str(self.file))

    def server(self, *hosts, clients_of=None, **more):
        """A server's context; `clients_of`: the authority whose clients it requires."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*hosts, **more).configure_cert(context)
        if clients_of is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(clients_of.file)
        return context

    def client(self, name, stem="client"):
        """Files of a client's certificate: written to new files and moved into place, as kubelet does."""
        issued = self.ca.issue_cert(f"{name}.clients", common_name=name)
        certificate, key = self.folder / f"{stem}.pem", self.folder / f"{stem}.key"
        for file, blob in ((certificate, issued.cert_chain_pems[0]), (key, issued.private_key_pem)):
            blob.write_to_path(file.with_suffix(".new"))
            file.with_suffix(".new").replace(file)
        return Credentials(ca_file=str(self.file), certificate_file=str(certificate), key_file=str(key))


@pytest.fixture
def ours(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def theirs(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def page_over(serve):
    """`url = await page_over(context)`; `page_over.clients` are the names in the certificates of clients."""

    class Over:
        def __init__(self):
            self.clients = []

        async def __call__(self, context):
            return await serve(self.respond, ssl=context)

        async def respond(self, request):
            shown = request.transport.get_extra_info("peercert")
            if shown:
                self.clients += [value for ((key, value),) in shown["subject"] if key == "commonName"]
            return web.Response(body=BODY)

    return Over()


async def refusal(http, url, access):
    outcome = await http.fetch(url, access)
    assert isinstance(outcome, Failure)
    assert outcome.kind is FailureKind.TLS, outcome
    return outcome.detail


async def test_certificate_of_the_ca_file_is_trusted(http, ours, page_over):
    assert await http.fetch(await page_over(ours.server("127.0.0.1")), ours.trusted) == BODY


async def test_certificate_of_another_authority_is_refused_with_a_reason(http, ours, theirs, page_over):
    url = await page_over(theirs.server("127.0.0.1"))
    address = url.removeprefix("https://").removesuffix("/metrics")
    expected = f"{address}: certificate not trusted: unable to get local issuer certificate"
    assert await refusal(http, url, ours.trusted) == expected
    assert await refusal(http, url, Credentials()) == expected


async def test_certificate_for_another_name_is_refused_and_names_both(http, ours, page_over):
    detail = await refusal(http, await page_over(ours.server("chat.ai.svc")), ours.trusted)
    assert "certificate not trusted" in detail
    assert "127.0.0.1" in detail


async def test_pod_scraped_by_address_is_verified_by_its_service_name(http, ours, page_over):
    url = await page_over(ours.server("chat.ai.svc"))
    assert await http.fetch(url, Credentials(ca_file=str(ours.file), server_name="chat.ai.svc")) == BODY
    detail = await refusal(http, url, Credentials(ca_file=str(ours.file), server_name="other.ai.svc"))
    assert "other.ai.svc" in detail


async def test_expired_certificate_is_refused_with_a_reason(http, ours, page_over):
    day = dt.timedelta(days=1)
    now = dt.datetime.now(dt.UTC)
    url = await page_over(ours.server("127.0.0.1", not_before=now - 9 * day, not_after=now - day))
    assert (await refusal(http, url, ours.trusted)).endswith("certificate not trusted: certificate has expired")


async def test_any_certificate_is_accepted_only_with_insecure_skip_verify(http, theirs, page_over):
    url = await page_over(theirs.server("elsewhere"))
    assert await http.fetch(url, Credentials(insecure_skip_verify=True)) == BODY
    assert "not trusted" in await refusal(http, url, Credentials())


async def test_client_certificate_is_sent_on_request(http, ours, page_over):
    url = await page_over(ours.server("127.0.0.1", clients_of=ours))
    assert await http.fetch(url, ours.client("tidegate")) == BODY
    assert page_over.clients == ["tidegate"]


async def test_https_to_a_server_without_tls_is_a_tls_failure(http):
    async def complain(reader, writer):
        await reader.read(1)  # an HTTP server would wait for the end of a TLS greeting, which never comes
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        await hang_up(writer)

    async with await asyncio.start_server(complain, "127.0.0.1", 0) as server:
        await refusal(http, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/", Credentials())


async def hang_up(writer):
    writer.close()
    with suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_missing_client_certificate_is_reported_as_the_tls_alert(http, ours, version):
    """In TLS 1.3 the client finishes before the server checks: the alert comes instead of the response."""
    context = ours.server("127.0.0.1", clients_of=ours)
    context.minimum_version = context.maximum_version = version

    async def handshake(reader, writer):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(incoming, outgoing, server_side=True)
        while True:
            try:
                session.do_handshake()
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(1 << 16))
            except ssl.SSLError:
                break
        writer.write(outgoing.read())  # the alert
        await reader.read()
        await hang_up(writer)

    async with await asyncio.start_server(handshake, "127.0.0.1", 0) as server:
        detail = await refusal(http, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/", ours.trusted)
    assert "alert" in detail
    assert "certificate required" in detail or "handshake failure" in detail


async def test_rotated_client_certificate_is_used_from_the_next_scrape(http, ours, page_over):
    url = await page_over(ours.server("127.0.0.1", clients_of=ours))
    before = ours.client("first")
    assert await http.fetch(url, before) == BODY
    after = ours.client("second")
    assert after == before  # the configuration names the same files
    assert await http.fetch(url, before) == BODY
    assert page_over.clients == ["first", "second"]


async def test_rotated_authority_is_trusted_from_the_next_scrape(http, ours, theirs, page_over):
    url = await page_over(theirs.server("127.0.0.1"))
    access = ours.trusted
    await refusal(http, url, access)
    theirs.file.replace(ours.file)
    assert await http.fetch(url, access) == BODY


async def test_unchanged_files_keep_the_connection(http, ours, response):
    connections = []

    async def serve(reader, writer):
        connections.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(response(BODY, f"Content-Length: {len(BODY)}"))
        await hang_up(writer)

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=ours.server("127.0.0.1")) as server:
        for _ in range(5):
            url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            assert await http.fetch(url, Credentials(ca_file=str(ours.file))) == BODY
        assert len(connections) == 1
        await http.close()


async def test_missing_or_invalid_file_is_a_failure_of_credentials_that_names_it(http, ours, tmp_path):
    good = ours.client("good")
    missing, empty = tmp_path / "missing.pem", tmp_path / "empty.pem"
    empty.write_text("")
    other = ours.client("other", stem="other")
    wrong = {
        str(missing): Credentials(ca_file=str(missing)),
        str(empty): Credentials(ca_file=str(empty)),
        good.certificate_file: Credentials(certificate_file=good.certificate_file, key_file=other.key_file),
        f"{empty} with": Credentials(certificate_file=str(empty), key_file=good.key_file),
    }
    for named, access in wrong.items():
        outcome = await http.fetch("https://127.0.0.1:1/", access)
        assert isinstance(outcome, Failure)
        assert outcome.kind is FailureKind.CREDENTIALS
        assert outcome.detail.startswith(named)


async def test_half_of_a_rotation_fails_scrapes_until_the_other_half_is_written(http, ours, page_over, tmp_path):
    url = await page_over(ours.server("127.0.0.1", clients_of=ours))
    access = ours.client("old")
    key = (tmp_path / "client.key").read_bytes()
    ours.client("new")
    new_key = (tmp_path / "client.key").read_bytes()
    (tmp_path / "client.key").write_bytes(key)
    assert (await http.fetch(url, access)).kind is FailureKind.CREDENTIALS
    (tmp_path / "client.key").write_bytes(new_key)
    assert await http.fetch(url, access) == BODY
    assert page_over.clients == ["new"]


async def test_encrypted_key_is_a_failure_without_a_prompt(http, ours, tmp_path):
    access = ours.client("tidegate")
    key = serialization.load_pem_private_key((tmp_path / "client.key").read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )
    (tmp_path / "client.key").write_bytes(locked)
    outcome = await http.fetch("https://127.0.0.1:1/", access)
    assert outcome.kind is FailureKind.CREDENTIALS
