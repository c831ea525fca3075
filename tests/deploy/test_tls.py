"""KEDA and Tidegate authenticate each other by certificates, from any source."""

import base64
import shutil

import grpc
import pytest
import yaml

from scaler.api.keda.tls import Rotation
from scaler.tls import TlsFiles
from tests.deploy.shared import CHART, DEPLOY, module, objects, the

KEYS = {"ca.crt", "tls.crt", "tls.key"}


def secrets(things):
    """Each Secret's files, by namespace/name."""
    return {
        f"{each['metadata']['namespace']}/{each['metadata']['name']}": {
            key: base64.b64decode(value) for key, value in each["data"].items()
        }
        for each in things
        if each["kind"] == "Secret"
    }


def files_of(folder, secret):
    folder.mkdir()
    for key, value in secret.items():
        (folder / key).write_bytes(value)
    return TlsFiles(*(str(folder / key) for key in ("tls.crt", "tls.key", "ca.crt")))


@pytest.fixture
async def serving():
    """`await serving(files)`: the port of a gRPC server with those certificates."""
    servers = []

    async def start(files):
        server = grpc.aio.server()
        servers.append(server)
        port = server.add_secure_port("127.0.0.1:0", Rotation(files, lambda _: None).credentials())
        await server.start()
        return port

    yield start
    for server in servers:
        await server.stop(None)


async def reaches(port, credentials, host):
    options = [("grpc.ssl_target_name_override", host)]
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options) as channel:
        ask = channel.unary_unary("/externalscaler.ExternalScaler/IsActive")
        try:
            await ask(b"", timeout=60)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED  # it was admitted, and there is no servicer here


async def test_certificates_of_the_chart_admit_keda_only(render, serving, tmp_path):
    secret_files, foreign = secrets(render()), secrets(render.anew())
    port = await serving(files_of(tmp_path / "tls", secret_files["tidegate/tidegate-tls"]))
    keda, other = secret_files["keda/tidegate-tidegate-keda"], foreign["keda/tidegate-tidegate-keda"]
    host = "tidegate.tidegate.svc"

    def with_certificate(secret, ca):
        return grpc.ssl_channel_credentials(ca, secret["tls.key"], secret["tls.crt"])

    assert await reaches(port, with_certificate(keda, keda["ca.crt"]), host)
    assert not await reaches(port, with_certificate(other, keda["ca.crt"]), host)  # another release's CA
    assert not await reaches(port, grpc.ssl_channel_credentials(keda["ca.crt"]), host)  # no certificate
    assert not await reaches(port, with_certificate(keda, other["ca.crt"]), host)  # KEDA would not trust the server
    assert not await reaches(port, with_certificate(keda, keda["ca.crt"]), "elsewhere.tidegate.svc")


def test_key_of_the_ca_is_stored_nowhere(render):
    for secret in secrets(render()).values():
        assert set(secret) == KEYS
        assert b"PRIVATE KEY" not in secret["ca.crt"]


@pytest.mark.parametrize("kind", ["helm", "cert-manager", "existingSecret"])
def test_authentication_names_a_secret_in_kedas_namespace_and_the_pod_one_in_its_own(render, kind):
    issuer = {"issuerRef": {"name": "tidegate-ca"}}
    brought = {"existingSecret": "mine", "existingClientSecret": "kedas"}
    things = render({"tls": {"type": kind, "certManager": issuer, **brought}, "keda": {"namespace": "scaling"}})
    existing = {
        (each["metadata"]["namespace"], each["spec"]["secretName"]) for each in things if each["kind"] == "Certificate"
    }
    existing |= {
        (each["metadata"]["namespace"], each["metadata"]["name"]) for each in things if each["kind"] == "Secret"
    }
    existing |= {("tidegate", "mine"), ("scaling", "kedas")} if kind == "existingSecret" else set()
    references = the(things, "ClusterTriggerAuthentication")["spec"]["secretTargetRef"]
    assert {(one["parameter"], one["key"]) for one in references} == {
        ("caCert", "ca.crt"), ("tlsClientCert", "tls.crt"), ("tlsClientKey", "tls.key"),
    }  # fmt: skip
    (client,) = {one["name"] for one in references}
    volumes = the(things, "Deployment")["spec"]["template"]["spec"]["volumes"]
    (server,) = [volume["secret"]["secretName"] for volume in volumes if "secret" in volume]
    assert existing == {("tidegate", server), ("scaling", client)}


def test_tidegate_requires_a_client_certificate_for_every_source(render):
    for values in ({}, {"tls": {"type": "existingSecret", "existingSecret": "mine"}}):
        listen = yaml.safe_load(the(render(values), "ConfigMap")["data"]["config.yaml"])["listen"]
        assert listen["grpc_tls"] == {
            "certificate": "/etc/tidegate/tls/tls.crt",
            "key": "/etc/tidegate/tls/tls.key",
            "client_ca": "/etc/tidegate/tls/ca.crt",
        }


def test_certificate_is_for_the_host_in_the_notes(render):
    values = {"tls": {"type": "cert-manager", "certManager": {"issuerRef": {"name": "ca"}}}}
    things, notes = render(values, "gate", "scaling"), render.notes(values, "gate", "scaling")
    assert 'scalerAddress: "gate-tidegate.scaling.svc:6000"' in notes
    assert "gate-tidegate.scaling.svc" in the(things, "Certificate", "gate-tidegate-tls")["spec"]["dnsNames"]
    assert the(things, "Service")["metadata"]["name"] == "gate-tidegate"


def test_two_releases_share_a_keda_without_sharing_objects(render):
    def shared(namespace):
        objects_of_release = [
            each for each in render(None, "tidegate", namespace) if each["metadata"].get("namespace") != namespace
        ]
        return {(each["kind"], each["metadata"]["name"]) for each in objects_of_release}

    # The name in triggers is the release's; a second release needs a different one, and Helm reports it.
    assert shared("one") & shared("two") == {("ClusterTriggerAuthentication", "tidegate")}


def test_notes_warn_of_plain_text(render):
    assert "plain text" in render.notes({"tls": {"type": "none"}})
    assert "plain text" not in render.notes()


def test_configured_files_are_mounted_from_the_servers_secret(render):
    things = render()
    listen = yaml.safe_load(the(things, "ConfigMap")["data"]["config.yaml"])["listen"]
    pod = the(things, "Deployment")["spec"]["template"]["spec"]
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "tls"]
    (secret,) = [volume["secret"]["secretName"] for volume in pod["volumes"] if volume["name"] == "tls"]
    held = {f"{mount['mountPath']}/{key}" for key in the(things, "Secret", secret)["data"]}
    assert held == set(listen["grpc_tls"].values())


@pytest.fixture
def rendered_by_tool(tmp_path):
    """`rendered_by_tool(values)`: the objects as Argo CD renders them, with the cluster's API versions and no cluster.

    The SDK passes no API versions, so in this copy of the chart the version that stands for a cluster is a default one.
    """
    helm = module("helm_python", "helm-python-sdk")
    folder = shutil.copytree(CHART, tmp_path / "chart")
    helpers = folder / "templates/_tls.tpl"
    text = helpers.read_text(encoding="utf-8")
    assert '.Has "apiregistration.k8s.io/v1"' in text
    helpers.write_text(text.replace('.Has "apiregistration.k8s.io/v1"', '.Has "apps/v1"'), encoding="utf-8")

    def render(values):
        with helm.Chart.load(folder) as chart:
            files = chart.render(values, name="tidegate", namespace="tidegate")
        return [each for file, text in files.items() if not file.endswith(".txt") for each in objects(text)]

    return render


def test_chart_refuses_to_change_certificates_at_each_render_of_a_tool(rendered_by_tool, refused):
    with pytest.raises(refused, match=r"tls\.keptByTool"):
        rendered_by_tool({})
    assert rendered_by_tool({"tls": {"type": "none"}})


def test_render_at_a_terminal_is_not_refused(render):
    assert secrets(render())


def test_argo_cd_ignores_exactly_what_differs_between_two_renders(rendered_by_tool):
    (application,) = objects((DEPLOY / "examples/install/argocd.yaml").read_text(encoding="utf-8"))
    values = application["spec"]["source"]["helm"]["valuesObject"]
    first, second = rendered_by_tool(values), rendered_by_tool(values)
    differing = {
        (one["kind"], one["metadata"]["namespace"], one["metadata"]["name"], f"/{key}")
        for one, other in zip(first, second, strict=True)
        for key in one
        if one[key] != other[key]
    }
    ignored = {
        (each["kind"], each["namespace"], each["name"], pointer)
        for each in application["spec"]["ignoreDifferences"]
        for pointer in each["jsonPointers"]
    }
    assert differing == ignored
    assert "RespectIgnoreDifferences=true" in application["spec"]["syncPolicy"]["syncOptions"]


def test_both_releases_by_tools_have_values_of_the_chart(render, rendered_by_tool):
    (*_, release) = objects((DEPLOY / "examples/install/flux.yaml").read_text(encoding="utf-8"))
    assert render(release["spec"]["values"])
