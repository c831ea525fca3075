"""A request at zero replicas starts a real vLLM and gets its answer; the test prints how long that takes."""

import asyncio
import sys
import time
from dataclasses import replace
from functools import partial
from statistics import quantiles

import aiohttp
import pytest

from exporter.clock import WallClock
from exporter.discovery.dns import StaticTargets
from exporter.model import Role, Target, WorkloadKey
from scaler.cli.demo.autoscaler import DEMO_KEDA, DemoScaledObject, StandIn
from scaler.cli.demo.processes import ReplicaProgram, open_cluster
from scaler.cli.demo.run import DeploymentReplicas, ReadyPods
from scaler.config import parse
from scaler.daemon import Daemon

from . import vllm_server

pytestmark = pytest.mark.engines

CHAT = WorkloadKey("ai", "chat")
WAKES, TOKENS = 5, 16
CONFIG = """
listen: {{http: "127.0.0.1:0", grpc: "127.0.0.1:0"}}
scrape: {{interval: 1s, wake_interval: 1s}}
workloads:
  - namespace: ai
    name: chat
    engine: vllm
    pods: {{dns: chat.ai.svc}}
    gateway: {{url: "{gateway}"}}
    replicas: {{min: 0, max: 1}}
    keep_warm: 3s
"""


async def scale(cluster, stop):
    """The daemon and a stand-in for KEDA scale the cluster."""
    clock, listening = WallClock(), asyncio.get_running_loop().create_future()
    gateway = f"{cluster.gateway_url}/metrics"
    found = [ReadyPods(cluster, "vllm", CHAT), StaticTargets([Target(gateway, "epp", Role.GATEWAY, CHAT)])]
    daemon = Daemon(
        parse(CONFIG.format(gateway=gateway), "wake.yaml")[0],
        clock,
        replicas=DeploymentReplicas(cluster, time.time, CHAT),
        discoveries=lambda _: found,
    )
    keda = replace(DEMO_KEDA, max_replicas=1, polling_interval_s=1.0, cooldown_s=0.0)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(daemon.run(stop, listening.set_result))
        address = f"127.0.0.1:{(await listening).grpc}"
        scaling = StandIn(clock, address, DemoScaledObject(CHAT.namespace, CHAT.name, {}, keda), cluster)
        scales = tasks.create_task(scaling.run())
        await stop.wait()
        scales.cancel()


async def wake(cluster, session):
    """Seconds from a request at zero to the replica's start, and to its first token; the answer must be whole."""
    assert (cluster.wanted, cluster.replicas) == (0, [])
    body = {"prompt": "hello", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
    sent = time.time()
    async with session.post(f"{cluster.gateway_url}/v1/completions", json=body) as response:
        assert response.status == 200
        answer = await response.content.readany()
        first = time.time()
        answer += await response.read()
    assert b'"finish_reason":"length"' in answer
    return cluster.scaled_at - sent, first - sent


async def until_zero(cluster):
    async with asyncio.timeout(vllm_server.START_S):
        while cluster.wanted or cluster.replicas:  # noqa: ASYNC110 - the code under test sets no event
            await asyncio.sleep(0.1)


async def test_request_at_zero_starts_vllm_and_is_answered_and_the_idle_engine_ends(vllm_model, capsys):
    program = ReplicaProgram(partial(vllm_server.start, vllm_model), vllm_server.MODEL, vllm_server.SLOTS)
    stop, times = asyncio.Event(), []
    async with open_cluster(program) as cluster, asyncio.TaskGroup() as tasks:
        scaling = tasks.create_task(scale(cluster, stop))
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=vllm_server.START_S)) as session:
            for _ in range(WAKES):
                times.append(await wake(cluster, session))
                await until_zero(cluster)
        stop.set()
        await scaling
    scaled, first = ([each[part] for each in times] for part in (0, 1))
    assert max(scaled) < 10.0  # seen, decided, pushed, scaled: the rest is the engine's own start
    report = [f"wakes of vLLM from zero: {len(times)} of {WAKES} answered"]
    for name, each in (("request to start", scaled), ("request to first token", first)):
        cuts = quantiles(each, n=100, method="inclusive")
        report.append(f"  {name}: p50 {cuts[49]:.2f} s, p95 {cuts[94]:.2f} s, most {max(each):.2f} s")
    with capsys.disabled():
        sys.stdout.write("\n".join(["", *report, ""]))
