"""A daemon with a section `kubernetes`: its start, and what a reload may change."""

import asyncio
import json
import ssl

import aiohttp
import pytest
import structlog
import trustme

from exporter.clock import WallClock
from exporter.kubernetes.protocol import CannotConnect
from scaler.config import parse
from scaler.daemon import Daemon
from tests.fakes.kubernetes import serving, write_kubeconfig

SOON_S = 60.0
LISTEN = 'listen: {http: "127.0.0.1:0", grpc: "127.0.0.1:0"}\n'


def config(text):
    return parse(LISTEN + text, "config.yaml")[0]


async def test_missing_kubeconfig_prevents_the_start_and_is_named():
    daemon = Daemon(config("kubernetes: {kubeconfig: /nowhere/kubeconfig}"), WallClock())
    with pytest.raises(CannotConnect, match="/nowhere/kubeconfig: no such file"):
        await daemon.run(asyncio.Event())


@pytest.fixture
async def kubeconfig(tmp_path):
    async with serving() as fake:
        yield write_kubeconfig(tmp_path / "kubeconfig", fake.url)


async def reloaded(before, after):
    """The log entries of a daemon from a reload with another configuration."""
    stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
    daemon = Daemon(before, WallClock(), reload=lambda: after)
    with structlog.testing.capture_logs() as log:
        running = asyncio.create_task(daemon.run(stop, listening.set_result))
        async with asyncio.timeout(SOON_S):
            await listening
            daemon.ask_reload()
            while not any("configuration re" in entry["event"] for entry in log):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        stop.set()
        await running
    return log


async def test_kubernetes_cannot_be_added_or_removed_without_a_restart(kubeconfig):
    with_it, without = config(f"kubernetes: {{kubeconfig: {kubeconfig}}}"), config("workloads: []")
    for before, after in ((with_it, without), (without, with_it)):
        (refusal,) = [entry for entry in await reloaded(before, after) if entry["log_level"] == "error"]
        assert refusal["event"] == "configuration rejected"
        assert refusal["problem"] == "kubernetes: cannot be added or removed without a restart"


async def test_reload_applies_all_but_the_kubernetes_section(kubeconfig):
    before = config(f"kubernetes: {{kubeconfig: {kubeconfig}}}")
    after = config(f"kubernetes: {{kubeconfig: {kubeconfig}, namespaces: [ai], annotations: false}}")
    events = [entry["event"] for entry in await reloaded(before, after)]
    assert "restart required" in events
    assert "configuration reloaded" in events


@pytest.fixture
def files(tmp_path):
    """Certificate files of the metrics API, and a context that trusts them."""
    authority, context = trustme.CA(), ssl.create_default_context()
    leaf = authority.issue_cert("127.0.0.1")
    (tmp_path / "tls.crt").write_bytes(leaf.cert_chain_pems[0].bytes())
    (tmp_path / "tls.key").write_bytes(leaf.private_key_pem.bytes())
    authority.configure_trust(context)
    return tmp_path, context


async def test_metrics_api_serves_the_board_to_authorized_users(tmp_path, files):
    folder, context = files
    async with serving() as fake:
        fake.allowed = lambda spec: True
        fake.users["t"] = {"username": "ann", "groups": ["system:authenticated"]}
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", fake.url)
        fake.api_services["v1beta1.external.metrics.k8s.io"] = {"service": {"namespace": "keda", "name": "adapter"}}
        api = f'address: "127.0.0.1:0", certificate: {folder}/tls.crt, key: {folder}/tls.key, external: true'
        api = f"{{{api}, service: tidegate.tidegate}}"
        listen = f'listen: {{http: "127.0.0.1:0", grpc: "127.0.0.1:0", metrics_api: {api}}}\n'
        workloads = "workloads: [{namespace: ai, name: chat, gateway: {url: 'http://127.0.0.1:9/', kind: epp}}]"
        text = f"{listen}kubernetes: {{kubeconfig: {kubeconfig}}}\n{workloads}"
        stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
        daemon = Daemon(parse(text, "config.yaml")[0], WallClock())
        running = asyncio.create_task(daemon.run(stop, listening.set_result))
        async with asyncio.timeout(SOON_S), aiohttp.ClientSession() as session:
            ports = await listening
            port = ports.metrics_api
            group = f"https://127.0.0.1:{port}/apis/external.metrics.k8s.io/v1beta1"
            question = f"{group}/namespaces/ai/tidegate-replicas?labelSelector=workload%3Dchat"

            async def ask(url, token):
                headers = {"Authorization": f"Bearer {token}"}
                async with session.get(url, ssl=context, headers=headers) as answer:
                    return answer.status, json.loads(await answer.text())

            while (await ask(group, "t"))[0] != 200:  # noqa: ASYNC110 - until it is connected it cannot authenticate
                await asyncio.sleep(0.01)
            while (response := await ask(question, "t"))[0] == 404:  # noqa: ASYNC110 - until the registry is built
                await asyncio.sleep(0.01)
            # The workload has no data: an error, and never a zero.
            assert (response[0], response[1]["kind"], response[1]["reason"]) == (503, "Status", "ServiceUnavailable")
            assert (await ask(question, "forged"))[0] == 401
            async with session.get(f"http://127.0.0.1:{ports.http}/metrics") as answer:
                shown = 'tidegate_metrics_api_registered{group="external.metrics.k8s.io",version="v1beta1"} 0.0'
                assert shown in await answer.text()
            fake.allowed = lambda spec: False
            assert (await ask(f"{group}/namespaces/other/tidegate-replicas", "t"))[0] == 403
        stop.set()
        await running
