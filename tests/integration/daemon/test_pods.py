"""From a pod's queue to the metrics API: a running daemon, a fake Kubernetes, an engine on loopback."""

import asyncio
import json
import ssl
from urllib.parse import quote

import aiohttp
import trustme

from exporter.clock import WallClock
from scaler.config import parse
from scaler.daemon import Daemon
from tests.fakes import objects
from tests.fakes.kubernetes import serving, write_kubeconfig

SOON_S = 60.0
CONFIG = """
listen:
  http: 127.0.0.1:0
  grpc: 127.0.0.1:0
  metrics_api: {{address: "127.0.0.1:0", certificate: {folder}/tls.crt, key: {folder}/tls.key, custom: true}}
kubernetes: {{kubeconfig: {folder}/kubeconfig}}
scrape: {{interval: 200ms, timeout: 200ms}}
tick: 100ms
workloads:
  - {{namespace: ai, name: llm, engine: vllm, pods: {{target: Deployment/chat, port: {port}, path: /engine}}}}
"""


async def test_queue_of_a_pod_is_served_under_the_labels_of_its_deployment(tmp_path, targets, vllm):
    authority, trusting = trustme.CA(), ssl.create_default_context()
    leaf = authority.issue_cert("127.0.0.1")
    (tmp_path / "tls.crt").write_bytes(leaf.cert_chain_pems[0].bytes())
    (tmp_path / "tls.key").write_bytes(leaf.private_key_pem.bytes())
    authority.configure_trust(trusting)
    targets["engine"].body, targets["engine"].behaviour = vllm(waiting=3, running=5), "ok"
    async with serving() as fake:
        fake.allowed = lambda spec: True
        fake.users["t"] = {"username": "ann", "groups": ["system:authenticated"]}
        fake.put(
            objects.deployment("chat"),
            objects.replicaset("chat-7d", owner=("Deployment", "chat")),
            objects.pod("chat-7d-aaaaa", owner=("ReplicaSet", "chat-7d"), address="127.0.0.1", labels={"app": "chat"}),
        )
        write_kubeconfig(tmp_path / "kubeconfig", fake.url)
        config, _ = parse(CONFIG.format(folder=tmp_path, port=targets.port), "config.yaml")
        stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
        running = asyncio.create_task(Daemon(config, WallClock()).run(stop, listening.set_result))
        async with asyncio.timeout(SOON_S), aiohttp.ClientSession(headers={"Authorization": "Bearer t"}) as session:
            api = f"https://127.0.0.1:{(await listening).metrics_api}/apis/custom.metrics.k8s.io/v1beta2/namespaces/ai"

            async def ask(name, selector=""):
                url = f"{api}/pods/{name}/tidegate-queue?labelSelector={quote(selector)}"
                async with session.get(url, ssl=trusting) as answer:
                    return answer.status, json.loads(await answer.text())

            while (response := await ask("*", "app=chat"))[0] != 200:  # until it is scraped
                assert response[0] in {401, 404, 503}
                await asyncio.sleep(0.01)
            [item] = response[1]["items"]
            assert (item["describedObject"]["name"], item["value"]) == ("chat-7d-aaaaa", "8")
            while (response := await ask("*", "app=other"))[0] != 404:  # until the owners of all pods are synced
                assert response[0] == 503
                await asyncio.sleep(0.01)
            # The pod is deleted, and its metric with it.
            fake.delete(objects.pod("chat-7d-aaaaa"))
            while (response := await ask("chat-7d-aaaaa"))[0] != 404:  # until the deletion is synced
                assert response[0] in {200, 503}
                await asyncio.sleep(0.01)
        stop.set()
        await running
