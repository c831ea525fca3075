"""The client finds the API and its credentials in a pod's ServiceAccount or a kubeconfig file, or reports why not."""

import datetime as dt
import json
import ssl
import subprocess
import sys
from random import Random

import pytest
import trustme
import yaml
from kubernetes.aio.config import incluster_config

from exporter.kubernetes.client import connect
from exporter.kubernetes.protocol import ApiFailure, CannotConnect
from exporter.kubernetes.resources import PODS
from tests.fakes.kubernetes import serving, serving_in_thread, write_kubeconfig
from tests.fakes.objects import pod


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch, tmp_path):
    """Removes every trace of a pod or a kubeconfig from the environment."""
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture(scope="session")
def authority():
    return trustme.CA()


@pytest.fixture
async def cluster(authority):
    """Runs the fake behind TLS, like the API inside a cluster."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with serving(ssl_context=context) as fake:
        yield fake


@pytest.fixture
def account(tmp_path, authority, cluster, monkeypatch):
    """Writes the files and sets the variables that kubelet gives a pod."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(cluster.port))
    (tmp_path / "token").write_text("first", encoding="utf-8")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    return tmp_path


@pytest.fixture
async def reach():
    """`await reach(kubeconfig, context, …)` connects a client that is closed at the end of the test."""
    clients = []

    async def connected(kubeconfig=None, context=None, **more):
        client = await connect(None if kubeconfig is None else str(kubeconfig), context, Random(), **more)
        clients.append(client)
        return client

    yield connected
    for client in clients:
        await client.close()


@pytest.fixture
def later(monkeypatch):
    """`later(minutes=2)` advances the clock by which the official client reads the token again."""

    class ShiftedDatetime(dt.datetime):
        ahead = dt.timedelta()

        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + cls.ahead

    class Module:
        datetime = ShiftedDatetime
        timedelta = dt.timedelta

    monkeypatch.setattr(incluster_config, "datetime", Module)

    def advance(**delta):
        ShiftedDatetime.ahead += dt.timedelta(**delta)

    return advance


async def test_pod_uses_its_service_account(cluster, account, reach):
    cluster.tokens = {"first"}
    client = await reach(account=account)
    assert (await client.page(PODS, None, "")).items == []


async def test_rotated_token_is_read_again_within_a_minute(cluster, account, reach, later):
    cluster.tokens = {"first"}
    client = await reach(account=account)
    await client.page(PODS, None, "")
    (account / "token").write_text("second", encoding="utf-8")
    cluster.tokens = {"second"}
    later(seconds=61)
    assert (await client.page(PODS, None, "")).items == []


async def test_missing_token_fails_only_the_request_that_reads_it(cluster, account, reach, later):
    client = await reach(account=account)
    (account / "token").unlink()
    later(seconds=61)
    with pytest.raises(ApiFailure, match=r"list pods of all namespaces: no credentials: .*token"):
        await client.page(PODS, None, "")
    (account / "token").write_text("third", encoding="utf-8")
    assert (await client.page(PODS, None, "")).items == []


async def test_api_server_with_a_foreign_certificate_is_refused(account, reach):
    trustme.CA().cert_pem.write_to_path(str(account / "ca.crt"))
    client = await reach(account=account)
    with pytest.raises(ApiFailure, match="certificate verify failed"):
        await client.page(PODS, None, "")


@pytest.mark.parametrize("file", ["token", "ca.crt"])
async def test_service_account_without_its_files_cannot_connect(account, reach, file):
    (account / file).unlink()
    with pytest.raises(CannotConnect, match=r"ServiceAccount in .*automountServiceAccountToken"):
        await reach(account=account)


async def test_invalid_ca_file_cannot_connect(account, reach):
    (account / "ca.crt").write_text("not a certificate", encoding="utf-8")
    with pytest.raises(CannotConnect, match=r"certificates for https://127\.0\.0\.1"):
        await reach(account=account)


async def test_kubeconfig_is_preferred_to_the_service_account(cluster, account, reach, tmp_path):
    async with serving() as other:
        client = await reach(write_kubeconfig(tmp_path / "kubeconfig", other.url), account=account)
        await client.page(PODS, None, "")
        assert (len(other.requests), len(cluster.requests)) == (1, 0)


async def test_kubeconfig_of_the_environment_is_used_outside_a_cluster(reach, tmp_path, monkeypatch):
    async with serving() as fake:
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "theirs", fake.url)))
        await (await reach()).page(PODS, None, "")
        assert len(fake.requests) == 1


async def test_error_without_any_credentials_names_both_sources(reach):
    with pytest.raises(
        CannotConnect, match=r"KUBERNETES_SERVICE_HOST is not set\), and .*/\.kube/config: no such file"
    ):
        await reach()


async def test_missing_kubeconfig_is_named(reach, tmp_path):
    with pytest.raises(CannotConnect, match=f"^{tmp_path}/nowhere: no such file$"):
        await reach(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "kubeconfig"),
        ("[1, 2]", "kubeconfig"),
        ("{", "not a kubeconfig file"),
        ("clusters: []", "current-context"),
        ("current-context: x\ncontexts: []\nclusters: []", "object with name x"),
    ],
)
async def test_invalid_kubeconfig_has_the_cause(reach, tmp_path, text, cause):
    file = tmp_path / "kubeconfig"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CannotConnect, match=f"^{file}: (.|\n)*{cause}"):
        await reach(file)


async def test_missing_context_is_named(reach, tmp_path):
    file = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    with pytest.raises(CannotConnect, match="prod"):
        await reach(file, "prod")


# The official client uses a function that Python 3.12 deprecates. As an error it would look like a failed plugin.
@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")
async def test_expired_token_of_an_exec_plugin_is_fetched_again(reach, tmp_path):
    """The plugin counts its calls; its tokens have expired when it returns them."""
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import json, pathlib, sys\n"
        "calls = pathlib.Path(sys.argv[1])\n"
        "count = len(calls.read_text()) + 1 if calls.exists() else 1\n"
        "calls.write_text('x' * count)\n"
        "status = {'token': f'token-{count}', 'expirationTimestamp': '2020-01-01T00:00:00Z'}\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': status}))\n",
        encoding="utf-8",
    )
    async with serving() as fake:
        file = write_kubeconfig(tmp_path / "kubeconfig", fake.url)
        config = yaml.safe_load(file.read_text())
        config["users"][0]["user"] = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": sys.executable,
                "args": [str(plugin), str(tmp_path / "calls")],
                "interactiveMode": "Never",
            }
        }
        file.write_text(yaml.safe_dump(config))
        client = await reach(file)
        fake.tokens = {"token-2"}
        assert (await client.page(PODS, None, "")).items == []


def test_official_client_is_imported_only_to_connect():
    code = (
        "import sys, exporter.kubernetes.client, exporter.kubernetes.reflector;"
        "print([m for m in sys.modules if m.split('.')[0] == 'kubernetes'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_daemon_in_another_process_reaches_a_fake_in_a_thread(tmp_path):
    code = (
        "import asyncio, json, random, sys\n"
        "from exporter.kubernetes.client import connect\n"
        "from exporter.kubernetes.resources import PODS\n"
        "async def main():\n"
        "    client = await connect(sys.argv[1], None, random.Random())\n"
        "    page = await client.page(PODS, None, '')\n"
        "    watch = client.watch(PODS, None, page.version)\n"
        "    opened = await anext(watch)\n"
        "    print('watching', flush=True)\n"
        "    print(json.dumps([len(page.items), (await anext(watch)).document['metadata']['name']]))\n"
        "    await watch.aclose()\n"
        "    await client.close()\n"
        "asyncio.run(main())\n"
    )
    with serving_in_thread() as fake:
        file = write_kubeconfig(tmp_path / "kubeconfig", fake.url)
        fake.put(pod("chat-0"))
        daemon = subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=subprocess.PIPE, text=True)
        with daemon:
            assert daemon.stdout.readline().strip() == "watching"
            fake.put(pod("chat-1"))
            assert json.loads(daemon.stdout.readline()) == [1, "chat-1"]
        assert (daemon.returncode, len(fake.requests)) == (0, 2)
