"""A running server reloads its certificates; tested with real authorities and real handshakes."""

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
    """Holds a mounted Secret, and the problems that the server reports with it."""

    def __init__(self, folder) -> None:
        self.certificate, self.key, self.client_ca = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
        self.problems: asyncio.Queue[str | None] = asyncio.Queue()

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
    """Starts the server with the Secret's files. Returns a function that calls it over a new connection."""
    board.decide(1)
    servers = []

    async def start(*, mutual=False):
        server = create(
            board,
            claims=board.claims,
            address="127.0.0.1:0",
            tls=secret.files(mutual=mutual),
            now=lambda: 0.0,
            on_tls_problem=secret.problems.put_nowait,
        )
        servers.append(server)
        port = await server.start()

        async def call(authority, client=None) -> str:
            """Returns the code of one call. authority: trusted by the client; client: signed its certificate."""
            key, chain = None, None
            if client is not None:
                leaf = client.issue_cert("keda-operator")
                key, chain = leaf.private_key_pem.bytes(), leaf.cert_chain_pems[0].bytes()
            credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes(), key, chain)
            # Without this, gRPC may hand one channel's connection to the next.
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with grpc.aio.secure_channel(f"localhost:{port}", credentials, options) as channel:
                response = ExternalScalerStub(channel).IsActive(
                    ScaledObjectRef(name="chat", namespace="team-a"), timeout=60
                )
                return (await response.code()).name

        return call

    yield start
    for server in servers:
        await server.drain(20)


async def test_client_that_trusts_the_authority_is_answered(secret, serve):
    ours, theirs = trustme.CA(), trustme.CA()
    secret.write(ours)
    call = await serve()
    assert await call(ours) == "OK"
    assert await call(theirs) == "UNAVAILABLE"


async def test_client_authority_admits_only_its_clients(secret, serve):
    ours, foreign = trustme.CA(), trustme.CA()
    secret.write(ours)
    ours.cert_pem.write_to_path(secret.client_ca)
    call = await serve(mutual=True)
    assert await call(ours, client=ours) == "OK"
    assert await call(ours, client=foreign) == "UNAVAILABLE"
    assert await call(ours) == "UNAVAILABLE"


async def test_rotated_certificate_serves_the_next_connection(secret, serve):
    old, new = trustme.CA(), trustme.CA()
    secret.write(old)
    call = await serve()
    assert await call(old) == "OK"
    secret.write(new)
    assert (await call(new), await call(old)) == ("OK", "UNAVAILABLE")


async def test_rotated_client_authority_admits_its_clients(secret, serve):
    ours, old, new = trustme.CA(), trustme.CA(), trustme.CA()
    secret.write(ours)
    old.cert_pem.write_to_path(secret.client_ca)
    call = await serve(mutual=True)
    assert await call(ours, client=new) == "UNAVAILABLE"
    new.cert_pem.write_to_path(secret.client_ca)
    assert (await call(ours, client=new), await call(ours, client=old)) == ("OK", "UNAVAILABLE")


async def test_half_written_rotation_keeps_the_old_certificate_and_is_reported_once(secret, serve):
    old, new = trustme.CA(), trustme.CA()
    secret.write(old)
    call = await serve()
    secret.write(new, key=False)
    assert [await call(old), await call(old), await call(new)] == ["OK", "OK", "UNAVAILABLE"]
    async with asyncio.timeout(60.0):
        problem = await secret.problems.get()
    assert str(secret.certificate) in problem
    secret.write(new)
    assert await call(new) == "OK"
    async with asyncio.timeout(60.0):
        assert await secret.problems.get() is None
    assert secret.problems.empty()


@pytest.mark.parametrize("fault", ["gone", "empty", "no PEM"])
async def test_broken_file_keeps_the_old_certificate(secret, serve, fault):
    ours = trustme.CA()
    secret.write(ours)
    call = await serve()
    if fault == "gone":
        secret.key.unlink()
    else:
        secret.key.write_bytes(b"" if fault == "empty" else b"\x00 no key \xff")
    assert await call(ours) == "OK"
    async with asyncio.timeout(60.0):
        assert str(secret.key) in await secret.problems.get()


async def test_server_does_not_start_with_a_key_of_another_certificate(board, secret):
    ours = trustme.CA()
    secret.write(ours)
    secret.write(ours, certificate=False)  # the key of another certificate
    with pytest.raises(BadTlsFiles, match="KEY_VALUES_MISMATCH"):
        create(board, claims=board.claims, address="127.0.0.1:0", tls=secret.files(mutual=False), now=lambda: 0.0)


def test_error_of_a_missing_file_names_the_cause(secret):
    secret.write(trustme.CA())
    with pytest.raises(BadTlsFiles, match="No such file or directory"):
        load(secret.files(mutual=True))
