"""The doctor looks at a cluster with a Tidegate in it, and at nothing that it would change."""

import os

import pytest

from exporter.clock import WallClock
from scaler.cli.doctor.run import examine


@pytest.fixture
def doctor(cluster, tidegate, tmp_path):
    """`await doctor()`: the checks, by name, of a configuration of this cluster and of the daemon in it."""
    file = tmp_path / "config.yaml"
    file.write_text(cluster.config(), encoding="utf-8")

    async def look():
        return {check.name: check for check in await examine(str(file), tidegate.http, os.environ, WallClock())}

    return look


async def test_where_all_is_well_it_finds_the_daemon_the_cluster_and_every_page(place, page, tidegate, keda, doctor):
    llama = place.deployment("llama", page.vllm(waiting=0, running=5), pods=2)
    chat = place.scaled_object("chat", target="llama", minimum=1, maximum=4, engine="vllm")
    await keda.until((1, True), chat)
    checks = await doctor()
    assert {name: check.status for name, check in checks.items()}[f"daemon {tidegate.http}"] == "ok"
    assert {check.status for name, check in checks.items() if name.startswith("permission")} <= {"ok"}
    asked = [check for name, check in checks.items() if name.startswith(f"pods of {place.name}/chat ")]
    assert [check.status for check in asked] == ["ok", "ok"]
    assert [check.result.partition(";")[0] for check in asked] == [
        "vllm, 1 queue: requests_waiting, requests_running"
    ] * 2
    assert len(llama.pods) == 2


async def test_what_a_tenant_got_wrong_and_a_pod_that_does_not_answer_are_told(place, page, tidegate, keda, doctor):
    llama = place.deployment("llama", page.vllm(waiting=0, running=5), pods=1)
    chat = place.scaled_object("chat", target="llama", minimum=1, maximum=4, engine="vllm")
    place.scaled_object("broken", target="llama", minimum=1, maximum=4, engine="vlm")
    await keda.until((1, True), chat)
    llama.pods[0].refuses()
    checks = await doctor()
    assert checks[f"object {place.name}/ScaledObject/broken"].status == "fail"
    [asked] = [check for name, check in checks.items() if name.startswith(f"pods of {place.name}/chat ")]
    assert (asked.status, "Connection refused" in asked.result) == ("fail", True)
