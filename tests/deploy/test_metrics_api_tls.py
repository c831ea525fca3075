"""The API server trusts the certificate of the metrics API, from any source."""

import asyncio
import base64
import ssl

import pytest

from scaler.api.metrics_api.tls import rotating
from scaler.config import parse
from scaler.tls import TlsFiles
from tests.deploy.metrics_values import BOTH, CUSTOM, PEM, TLS, services, with_tls
from tests.deploy.shared import the


@pytest.fixture
async def serving():
    """`await serving(files)`: the port of a listener with those certificates."""
    servers = []

    async def start(files):
        def close(_, writer):
            writer.close()

        context = rotating(files, lambda _: None)
        servers.append(await asyncio.start_server(close, "127.0.0.1", 0, ssl=context))
        return servers[-1].sockets[0].getsockname()[1]

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()


async def believes(port, bundle, host):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=bundle)
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
    except ssl.SSLCertVerificationError:
        return False
    writer.close()
    return True


@pytest.mark.parametrize("values", [BOTH, {"mode": "keda", "metricsApi": CUSTOM}], ids=["hpa", "keda"])
async def test_api_server_trusts_the_certificate_of_the_release_and_of_no_other(render, serving, tmp_path, values):
    things = render(values, "gate", "scaling")
    secret = the(things, "Secret", "gate-tidegate-tls")["data"]
    for key in ("tls.crt", "tls.key"):
        (tmp_path / key).write_bytes(base64.b64decode(secret[key]))
    port = await serving(TlsFiles(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key")))

    def bundle(things):
        (one,) = {spec["caBundle"] for spec in services(things).values()}
        return base64.b64decode(one).decode()

    (host,) = {f"{spec['service']['name']}.{spec['service']['namespace']}.svc" for spec in services(things).values()}
    assert await believes(port, bundle(things), host)
    assert not await believes(port, bundle(render.anew(values, "gate", "scaling")), host)
    assert not await believes(port, bundle(things), "gate-tidegate.elsewhere.svc")


@pytest.mark.parametrize("kind", TLS)
def test_serving_files_are_mounted_from_the_servers_secret(render, kind):
    things = render(with_tls(kind, BOTH))
    config, _ = parse(the(things, "ConfigMap")["data"]["config.yaml"], "config.yaml")
    assert config.listen.grpc_tls is None
    served = config.listen.metrics_api
    assert served is not None
    pod = the(things, "Deployment")["spec"]["template"]["spec"]
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "tls"]
    assert mount == {"name": "tls", "mountPath": "/etc/tidegate/tls", "readOnly": True}
    assert (served.certificate, served.key) == (f"{mount['mountPath']}/tls.crt", f"{mount['mountPath']}/tls.key")
    (secret,) = [volume["secret"]["secretName"] for volume in pod["volumes"] if volume["name"] == "tls"]
    secrets = {each["metadata"]["name"] for each in things if each["kind"] == "Secret"}
    secrets |= {each["spec"]["secretName"] for each in things if each["kind"] == "Certificate"}
    # Without mTLS KEDA needs no certificate.
    assert secrets | ({"mine"} if kind == "existingSecret" else set()) == {secret}


def test_cert_manager_injects_the_ca_of_the_mounted_certificate(render):
    things = render(with_tls("cert-manager", BOTH), "gate", "scaling")
    certificate = the(things, "Certificate")
    assert "gate-tidegate.scaling.svc" in certificate["spec"]["dnsNames"]
    assert [each["metadata"]["annotations"] for each in things if each["kind"] == "APIService"] == [
        {"cert-manager.io/inject-ca-from": f"scaling/{certificate['metadata']['name']}"}
    ] * 3
    assert not [spec for spec in services(things).values() if "caBundle" in spec]


def test_namespaced_issuer_is_sufficient_without_a_certificate_for_keda(render):
    issuer = {"issuerRef": {"kind": "Issuer", "name": "ca"}}
    things = render(BOTH | {"tls": {"type": "cert-manager", "certManager": issuer}})
    assert the(things, "Certificate")["metadata"]["namespace"] == "tidegate"


def test_ca_of_a_provided_certificate_is_the_value(render):
    found = services(render(with_tls("existingSecret", BOTH)))
    assert {base64.b64decode(spec["caBundle"]).decode() for spec in found.values()} == {PEM}
