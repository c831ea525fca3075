"""The Redis client authenticates with TLS and ACL users, rereads its files, and reports refusals."""

import pytest
import trustme

from exporter.model import Credentials, FailureKind

READER = "+role +llen +xinfo|groups"


@pytest.fixture
def authority():
    return trustme.CA()


@pytest.fixture
def files(authority, tmp_path):
    """Writes PEM files of the authority, of a server named redis.batch.svc, and of a client."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name, host in (("server", "redis.batch.svc"), ("client", "tidegate")):
        certificate = authority.issue_cert(host)
        certificate.private_key_pem.write_to_path(str(tmp_path / f"{name}.key"))
        certificate.cert_chain_pems[0].write_to_path(str(tmp_path / f"{name}.pem"))
    return tmp_path


@pytest.fixture
async def secure(launch, files, ports):
    (port,) = ports(1)
    client = {
        "ssl": True, "ssl_ca_certs": str(files / "ca.pem"), "ssl_check_hostname": False,
        "ssl_certfile": str(files / "client.pem"), "ssl_keyfile": str(files / "client.key"),
    }  # fmt: skip
    return await launch(
        "--port", "0", "--tls-port", str(port), "--tls-ca-cert-file", str(files / "ca.pem"),
        "--tls-cert-file", str(files / "server.pem"), "--tls-key-file", str(files / "server.key"),
        port=port, client=client,
    )  # fmt: skip


@pytest.fixture
def credentials(files):
    def build(**more):
        paths = {"ca_file": "ca.pem", "certificate_file": "client.pem", "key_file": "client.key"}
        options = {key: str(files / name) for key, name in paths.items()} | more
        return Credentials(**{"server_name": "redis.batch.svc"} | options)

    return build


async def test_server_and_client_certificates_are_verified(secure, ask, credentials):
    await secure.client.rpush("jobs", "a")
    assert (await ask(secure.port, credentials(), tls=True, lists=("jobs",)))["jobs"][0] == 1.0


async def test_certificate_of_another_name_or_authority_is_refused(secure, ask, credentials, tmp_path):
    failure = await ask(secure.port, credentials(server_name="other.svc"), tls=True, lists=("jobs",))
    assert failure.kind is FailureKind.TLS
    assert "other.svc" in failure.detail
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "stranger.pem"))
    failure = await ask(secure.port, credentials(ca_file=str(tmp_path / "stranger.pem")), tls=True, lists=("jobs",))
    assert failure.kind is FailureKind.TLS
    trusting = credentials(ca_file=None, server_name="other.svc", insecure_skip_verify=True)
    assert (await ask(secure.port, trusting, tls=True, lists=("jobs",)))["jobs"][0] == 0.0


async def test_missing_client_certificate_is_a_failure(secure, ask, credentials):
    failure = await ask(secure.port, credentials(certificate_file=None, key_file=None), tls=True, lists=("jobs",))
    assert failure.kind in {FailureKind.TLS, FailureKind.REFUSED}


async def test_unreadable_file_is_named(secure, server, ask, credentials):
    failure = await ask(secure.port, credentials(ca_file="/nowhere/ca.pem"), tls=True, lists=("jobs",))
    assert failure.kind is FailureKind.CREDENTIALS
    assert "/nowhere/ca.pem" in failure.detail
    failure = await ask(server.port, Credentials(username="u", password_file="/nowhere/password"), lists=("jobs",))
    assert failure.kind is FailureKind.CREDENTIALS
    assert failure.detail == "/nowhere/password: No such file or directory"


async def test_tls_mismatch_is_a_failure_and_not_a_zero(secure, server, ask, credentials, source):
    assert (await ask(secure.port, lists=("jobs",))).kind is FailureKind.REFUSED
    source.timeout_s = 0.3  # Redis waits for the end of the line
    assert (await ask(server.port, credentials(), tls=True, lists=("jobs",))).kind is FailureKind.TIMEOUT


async def test_changed_password_is_read_again(server, ask, tmp_path):
    password = tmp_path / "password"
    password.write_text("first\n")
    await server.client.execute_command("ACL", "SETUSER", "tidegate", "on", ">first", "~jobs", *READER.split())
    access = Credentials(username="tidegate", password_file=str(password))
    assert (await ask(server.port, access, lists=("jobs",)))["jobs"][0] == 0.0
    # A new password does not close existing connections; deleting the user does.
    await server.client.execute_command("ACL", "DELUSER", "tidegate")
    await server.client.execute_command("ACL", "SETUSER", "tidegate", "on", ">second", "~jobs", *READER.split())
    failure = await ask(server.port, access, lists=("jobs",))
    failure = await ask(server.port, access, lists=("jobs",))
    assert failure.kind is FailureKind.CREDENTIALS
    assert "first" not in failure.detail
    password.write_text("second\n")
    assert (await ask(server.port, access, lists=("jobs",)))["jobs"][0] == 0.0


async def test_missing_password_is_a_failure(server, ask):
    await server.client.config_set("requirepass", "secret")
    failure = await ask(server.port, lists=("jobs",))
    assert failure.kind is FailureKind.CREDENTIALS
    assert failure.detail.endswith("the server says: NOAUTH Authentication required.")


async def test_forbidden_key_is_unknown_and_a_forbidden_role_command_is_a_failure(server, ask, tmp_path):
    (tmp_path / "password").write_text("p")
    await server.client.execute_command("ACL", "SETUSER", "tidegate", "on", ">p", "~jobs", *READER.split())
    access = Credentials(username="tidegate", password_file=str(tmp_path / "password"))
    counts = await ask(server.port, access, lists=("jobs", "secrets"))
    assert counts["jobs"][0] == 0.0
    assert counts["secrets"][0] != counts["secrets"][0]  # NaN
    await server.client.execute_command("ACL", "SETUSER", "tidegate", "-role")
    failure = await ask(server.port, access, lists=("jobs",))
    assert failure.kind is FailureKind.CREDENTIALS
    assert failure.detail.endswith("add +role to its ACL")
