"""One of several watched namespaces is deleted together with its Role: the others go on, also over a restart."""

import grpc.aio

from tests.fakes.daemon import running
from tests.fakes.keda import Keda

QUICK = {"engine": "vllm", "objectives.work": "16", "smoothing.up": "0s", "smoothing.down": "0.3s"}


def workload(cluster, namespace, page):
    tenant = cluster.tenant(namespace)
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=40), pods=1)
    return llama, tenant.scaled_object("chat", target="llama", minimum=1, maximum=9, **QUICK)


async def test_namespace_that_refuses_costs_only_its_own_workloads(new_cluster, page, tmp_path):
    with new_cluster() as cluster:
        config = tmp_path / "config.yaml"
        text = cluster.config(blind_after="1s", hold="1s")
        config.write_text(text.replace("{kubeconfig", "{namespaces: [kept, gone], kubeconfig"), encoding="utf-8")
        (llama, kept), (_, gone) = (workload(cluster, namespace, page) for namespace in ("kept", "gone"))
        with running(config, tmp_path / "first") as daemon:
            async with grpc.aio.insecure_channel(daemon.grpc) as channel:
                keda = Keda(channel)
                await keda.until((3, True), kept)
                await keda.until((3, True), gone)
                cluster.fake.forbid_namespace("gone")
                cluster.fake.disconnect()
                await daemon.until(lambda entry: entry["reason"] == "unknown", "gone", "chat")
                llama.serve(page.vllm(waiting=0, running=70))
                await keda.until((5, True), kept)
            assert await daemon.metric('tidegate_kubernetes_synced{resource="pods"}') == 0.0
        with running(config, tmp_path / "second") as daemon:
            async with grpc.aio.insecure_channel(daemon.grpc) as channel:
                await Keda(channel).until((5, True), kept)
            assert await daemon.decision("gone", "chat") is None
