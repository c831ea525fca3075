"""`tidegate doctor` in a cluster with a running Tidegate. It changes nothing."""

import os

import pytest

from exporter.clock import WallClock
from scaler.cli.doctor.run import examine


@pytest.fixture
def doctor(cluster, tidegate, tmp_path):
    """`await doctor()`: the checks, by name, for a configuration of this cluster and the daemon in it."""
    file = tmp_path / "config.yaml"
    file.write_text(cluster.config(), encoding="utf-8")

    async def run():
        return {check.name: check for check in await examine(str(file), tidegate.http, os.environ, WallClock())}

    return run


async def test_healthy_setup_passes_the_checks_of_daemon_cluster_and_targets(tenant, page, tidegate, keda, doctor):
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=5), pods=2)
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=4, engine="vllm")
    await keda.until((1, True), chat)
    checks = await doctor()
    assert {name: check.status for name, check in checks.items()}[f"daemon {tidegate.http}"] == "ok"
    assert {check.status for name, check in checks.items() if name.startswith("permission")} <= {"ok"}
    pod_checks = [check for name, check in checks.items() if name.startswith(f"pods of {tenant.name}/chat ")]
    assert [check.status for check in pod_checks] == ["ok", "ok"]
    assert [check.result.partition(";")[0] for check in pod_checks] == [
        "vllm, 1 queue: requests_waiting, requests_running"
    ] * 2
    assert len(llama.pods) == 2


async def test_invalid_object_and_unreachable_pod_are_reported(tenant, page, tidegate, keda, doctor):
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=5), pods=1)
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=4, engine="vllm")
    tenant.scaled_object("broken", target="llama", minimum=1, maximum=4, engine="vlm")
    await keda.until((1, True), chat)
    llama.pods[0].refuse()
    checks = await doctor()
    assert checks[f"object {tenant.name}/ScaledObject/broken"].status == "fail"
    [pod_checks] = [check for name, check in checks.items() if name.startswith(f"pods of {tenant.name}/chat ")]
    assert (pod_checks.status, "Connection refused" in pod_checks.result) == ("fail", True)
