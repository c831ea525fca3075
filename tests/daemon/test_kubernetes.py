"""A daemon that is told to ask Kubernetes: how it begins, and what of it a reload may change."""

import asyncio

import pytest
import structlog

from exporter.clock import WallClock
from exporter.cluster.api import CannotConnect
from scaler.config import parse
from scaler.daemon import Daemon
from tests.fakes.kubernetes import serving, write_kubeconfig

SOON_S = 30.0
LISTEN = 'listen: {http: "127.0.0.1:0", grpc: "127.0.0.1:0"}\n'


def config(text):
    return parse(LISTEN + text, "config.yaml")[0]


async def test_a_kubeconfig_that_is_not_there_refuses_to_run_and_names_the_file():
    daemon = Daemon(config("kubernetes: {kubeconfig: /nowhere/kubeconfig}"), WallClock())
    with pytest.raises(CannotConnect, match="/nowhere/kubeconfig: no such file"):
        await daemon.run(asyncio.Event())


@pytest.fixture
async def kubeconfig(tmp_path):
    async with serving() as fake:
        yield write_kubeconfig(tmp_path / "kubeconfig", fake.url)


async def reloaded(before, after):
    """What a daemon says of another configuration, and its events."""
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


async def test_kubernetes_cannot_come_or_go_without_a_restart(kubeconfig):
    with_it, without = config(f"kubernetes: {{kubeconfig: {kubeconfig}}}"), config("workloads: []")
    for before, after in ((with_it, without), (without, with_it)):
        (refusal,) = [entry for entry in await reloaded(before, after) if entry["log_level"] == "error"]
        assert refusal["event"] == "configuration rejected; the old one stays"
        assert refusal["problem"] == "kubernetes: cannot be added or taken away without a restart"


async def test_whom_it_asks_is_settled_at_the_start_and_the_rest_is_taken(kubeconfig):
    before = config(f"kubernetes: {{kubeconfig: {kubeconfig}}}")
    after = config(f"kubernetes: {{kubeconfig: {kubeconfig}, namespaces: [ai], annotations: false}}")
    events = [entry["event"] for entry in await reloaded(before, after)]
    assert "whom kubernetes asks has changed: that takes a restart; everything else is taken now" in events
    assert "configuration reloaded" in events
