"""Certificates of a server that runs, with real authorities and real handshakes."""

import asyncio

import grpc
import pytest
import trustme

from scaler.api.keda.externalscaler_pb2 import ScaledObjectRef
from scaler.api.keda.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.api.keda.server import create
from scaler.api.keda.tls import load
from scaler.tls import BadTlsFiles, TlsFiles


class Secret:
    """A mounted Secret, and what the server says of it."""

    def __init__(self, folder) -> None:
        self.certificate, self.key, self.client_ca = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
        self.published: asyncio.Queue[str | None] = asyncio.Queue()

    def write(self, authority, *, certificate=True, key=True) -> None:
        leaf = authority.issue_cert("localhost")
        if certificate:
            self.certificate.write_bytes(leaf.cert_chain_pems[0].bytes())
        if key:
            self.key.write_bytes(leaf.private_key_pem.bytes())

    def files(self, *, mutual: bool) -> TlsFiles:
        return TlsFiles(str(self.certificate), str(self.key), str(self.client_ca) if mutual else None)


@pytest.fixture
def secret(tmp_path) -> Secret:
    return Secret(tmp_path)


@pytest.fixture
async def serve(board, secret):
    """Starts the server with the secret's files; returns a function that asks it over a new connection."""
    board.decide(1)
    servers = []

    async def started(*, mutual=False):
        server = create(
            board,
            claims=board.claims,
            address="127.0.0.1:0",
            tls=secret.files(mutual=mutual),
            now=lambda: 0.0,
            on_tls_problem=secret.published.put_nowait,
        )
        servers.append(server)
        port = await server.start()

        async def ask(authority, client=None) -> str:
            """The code of one call by a client that trusts `authority` and is itself `client`."""
            key, chain = None, None
            if client is not None:
                leaf = client.issue_cert("keda-operator")
                key, chain = leaf.private_key_pem.bytes(), leaf.cert_chain_pems[0].bytes()
            credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes(), key, chain)
            # Without this, gRPC may hand one channel's connection to the next.
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with grpc.aio.secure_channel(f"localhost:{port}", credentials, options) as channel:
                call = ExternalScalerStub(channel).IsActive(
                    ScaledObjectRef(name="chat", namespace="team-a"), timeout=20
                )
                return (await call.code()).name

        return ask

    yield started
    for server in servers:
        await server.drain(20)


async def test_a_client_that_trusts_the_authority_is_answered(secret, serve):
    ours, theirs = trustme.CA(), trustme.CA()
    secret.write(ours)
    ask = await serve()
    assert await ask(ours) == "OK"
    assert await ask(theirs) == "UNAVAILABLE"


async def test_with_a_client_authority_only_its_clients_are_let_in(secret, serve):
    ours, foreign = trustme.CA(), trustme.CA()
    secret.write(ours)
    ours.cert_pem.write_to_path(secret.client_ca)
    ask = await serve(mutual=True)
    assert await ask(ours, client=ours) == "OK"
    assert await ask(ours, client=foreign) == "UNAVAILABLE"
    assert await ask(ours) == "UNAVAILABLE"


async def test_a_rotated_certificate_serves_the_next_connection(secret, serve):
    old, new = trustme.CA(), trustme.CA()
    secret.write(old)
    ask = await serve()
    assert await ask(old) == "OK"
    secret.write(new)
    assert (await ask(new), await ask(old)) == ("OK", "UNAVAILABLE")


async def test_a_rotated_client_authority_lets_in_its_clients(secret, serve):
    ours, old, new = trustme.CA(), trustme.CA(), trustme.CA()
    secret.write(ours)
    old.cert_pem.write_to_path(secret.client_ca)
    ask = await serve(mutual=True)
    assert await ask(ours, client=new) == "UNAVAILABLE"
    new.cert_pem.write_to_path(secret.client_ca)
    assert (await ask(ours, client=new), await ask(ours, client=old)) == ("OK", "UNAVAILABLE")


async def test_a_half_written_rotation_keeps_the_old_certificate_and_is_reported_once(secret, serve):
    old, new = trustme.CA(), trustme.CA()
    secret.write(old)
    ask = await serve()
    secret.write(new, key=False)
    assert [await ask(old), await ask(old), await ask(new)] == ["OK", "OK", "UNAVAILABLE"]
    async with asyncio.timeout(20):
        problem = await secret.published.get()
    assert str(secret.certificate) in problem
    secret.write(new)
    assert await ask(new) == "OK"
    async with asyncio.timeout(20):
        assert await secret.published.get() is None
    assert secret.published.empty()


@pytest.mark.parametrize("harm", ["gone", "empty", "no PEM"])
async def test_a_broken_file_keeps_the_old_certificate(secret, serve, harm):
    ours = trustme.CA()
    secret.write(ours)
    ask = await serve()
    if harm == "gone":
        secret.key.unlink()
    else:
        secret.key.write_bytes(b"" if harm == "empty" else b"\x00 no key \xff")
    assert await ask(ours) == "OK"
    async with asyncio.timeout(20):
        assert str(secret.key) in await secret.published.get()


async def test_a_server_does_not_start_with_files_that_cannot_serve(board, secret):
    ours = trustme.CA()
    secret.write(ours)
    secret.write(ours, certificate=False)  # another leaf's key
    with pytest.raises(BadTlsFiles, match="KEY_VALUES_MISMATCH"):
        create(board, claims=board.claims, address="127.0.0.1:0", tls=secret.files(mutual=False), now=lambda: 0.0)


def test_a_missing_file_is_named(secret):
    secret.write(trustme.CA())
    with pytest.raises(BadTlsFiles, match="No such file or directory"):
        load(secret.files(mutual=True))
