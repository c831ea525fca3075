"""Measures wakes from zero with a real engine: from a client's request to its first token.

`python benchmarks/wake.py [WAKES] [--write]`; `--write` writes benchmarks/WAKE.md.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
from report import show, table

from exporter.clock import WallClock
from exporter.discovery.dns import StaticTargets
from exporter.model import ReplicaCount, Role, Target, WorkloadKey
from scaler.cli.demo import llamacpp
from scaler.cli.demo.autoscaler import DEMO_KEDA, DemoScaledObject, StandIn
from scaler.cli.demo.processes import ProcessCluster, open_processes
from scaler.cli.demo.run import DeploymentReplicas, ReadyPods
from scaler.config import parse
from scaler.daemon import Daemon
from scaler.logs import configure

TITLE = "Wakes from zero"
ABOUT = """
A client sends a request to a gateway while llama.cpp's own server, with a random model of 0.4 MB, has zero replicas.
The daemon scrapes the gateway (`scrape.wake_interval: 1s`, the default), pushes `active` over gRPC to a stand-in for
KEDA, which starts the server as a process; the gateway passes the request on when `/health` is 200. The idle workload
goes back to zero by Tidegate's decision and KEDA's next poll. The next request comes at a random moment of two wake
intervals. Four such workloads run side by side; the daemon, the gateways, the stand-ins and the clients share one
process and one event loop. In a cluster the start is a pod's: scheduling, image, weights. A request is lost if its
client does not get the whole answer within two minutes. Repeat with `python benchmarks/wake.py {wakes}`.
"""
WAKES = 50
WORKLOADS = 4
WAKE_INTERVAL_S = 1.0
TOKENS = 16
HERE = Path(__file__).parent
CONFIG = """
listen: {http: "127.0.0.1:0", grpc: "127.0.0.1:0"}
scrape: {interval: 1s, wake_interval: 1s}
tick: 0.25s
log: {level: error}
workloads:
"""
WORKLOAD = """\
  - namespace: demo
    name: {name}
    engine: llamacpp
    pods: {{dns: {name}.demo.svc}}
    gateway: {{url: "{gateway}"}}
    replicas: {{min: 0, max: 1}}
    keep_warm: 3s
"""


@dataclass(frozen=True, slots=True)
class Wake:
    """Seconds. seen: until the daemon has read the held request. pushed: then until KEDA's stand-in has scaled.
    started: then until the engine is healthy. token: then until the first token. whole: their sum.
    """

    seen: float
    pushed: float
    started: float
    token: float
    whole: float


PARTS = {
    "seen": "request held to read by the daemon",
    "pushed": "read to scaled to 1 (decision, push, KEDA's stand-in)",
    "started": "start of the engine",
    "token": "engine healthy to first token at the client",
    "whole": "request to first token",
}


@dataclass(frozen=True, slots=True)
class Replicas:
    """Replica counts of the Deployments."""

    clusters: Mapping[WorkloadKey, ProcessCluster]

    def count(self, workload: WorkloadKey, now: float) -> ReplicaCount | None:
        return DeploymentReplicas(self.clusters[workload], time.time, workload).count(workload, now)


@asynccontextmanager
async def scaled(clusters: Mapping[WorkloadKey, ProcessCluster]) -> AsyncIterator[None]:
    """The daemon, and a stand-in for KEDA for each workload, scale the clusters."""
    clock, stop = WallClock(), asyncio.Event()
    listening = asyncio.get_running_loop().create_future()
    gateways = {key: f"{cluster.gateway_url}/metrics" for key, cluster in clusters.items()}
    workloads = "".join(WORKLOAD.format(name=key.name, gateway=url) for key, url in gateways.items())
    discoveries = [
        *(ReadyPods(cluster, "llamacpp", key) for key, cluster in clusters.items()),
        StaticTargets([Target(url, "epp", Role.GATEWAY, key) for key, url in gateways.items()]),
    ]
    daemon = Daemon(
        parse(CONFIG + workloads, "wake.yaml")[0], clock, replicas=Replicas(clusters), discoveries=lambda _: discoveries
    )
    keda = replace(DEMO_KEDA, max_replicas=1, polling_interval_s=0.5, cooldown_s=0.0)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(daemon.run(stop, listening.set_result))
        address = f"127.0.0.1:{(await listening).grpc}"
        scaling = []
        for key, cluster in clusters.items():
            scaled_object = DemoScaledObject(key.namespace, key.name, {}, keda)
            scaling.append(tasks.create_task(StandIn(clock, address, scaled_object, cluster).run()))
        try:
            yield
        finally:
            for task in scaling:
                task.cancel()
            stop.set()


async def wake(cluster: ProcessCluster, session: aiohttp.ClientSession) -> Wake:
    """One request to the cluster at zero, and all of its answer."""
    body = {"prompt": "hello", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
    cluster.first_seen_at, sent_at = 0.0, time.time()
    async with session.post(f"{cluster.gateway_url}/v1/completions", json=body) as response:
        response.raise_for_status()
        answer = await response.content.readany()
        first_at = time.time()
        answer += await response.read()
    if b'"finish_reason":"length"' not in answer:
        raise RuntimeError(f"the answer ends with {answer[-80:]!r}")
    at = (sent_at, cluster.first_seen_at, cluster.scaled_at, cluster.ready_at, first_at)
    return Wake(*(later - earlier for earlier, later in pairwise(at)), whole=first_at - sent_at)


async def until_zero(cluster: ProcessCluster) -> None:
    while cluster.wanted or cluster.replicas:  # noqa: ASYNC110 - the code under test sets no event
        await asyncio.sleep(0.01)
    # The loop must have had the time to notice.
    await asyncio.sleep(0.5 + random.uniform(0.0, 2 * WAKE_INTERVAL_S))


async def wakes_of(cluster: ProcessCluster, count: int) -> list[Wake]:
    wakes: list[Wake] = []
    timeout = aiohttp.ClientTimeout(total=120.0)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for number in range(count):
            await until_zero(cluster)
            try:
                wakes.append(await wake(cluster, session))
            except (aiohttp.ClientError, TimeoutError, RuntimeError) as error:
                print(f"wake {number}: lost: {error!r}", file=sys.stderr, flush=True)
            if number % 50 == 49:
                print(f"{number + 1} wakes, {number + 1 - len(wakes)} lost", file=sys.stderr, flush=True)
    return wakes


async def measure(count: int) -> tuple[list[Wake], int]:
    """The wakes, and how many requests were sent."""
    configure("console", "error")
    async with AsyncExitStack() as stack:
        model = Path(stack.enter_context(TemporaryDirectory())) / "random.gguf"
        llamacpp.write_model(model)
        clusters = {}
        for number in range(WORKLOADS):
            cluster = await stack.enter_async_context(open_processes(model, llamacpp.USUAL_SERVER))
            clusters[WorkloadKey("demo", f"chat-{number}")] = cluster
        await stack.enter_async_context(scaled(clusters))
        await asyncio.sleep(3.0)  # the daemon's first readings
        wakes = await asyncio.gather(*(wakes_of(each, -(-count // WORKLOADS)) for each in clusters.values()))
        return [wake for each in wakes for wake in each], sum(each.tally.sent for each in clusters.values())


def rows(wakes: list[Wake]) -> list[dict[str, Any]]:
    result = []
    for part, name in PARTS.items():
        seconds = sorted(getattr(each, part) for each in wakes)
        cuts = quantiles(seconds, n=100, method="inclusive")
        result.append({"part": name, "p50, s": cuts[49], "p95, s": cuts[94], "most, s": seconds[-1]})
    return result


def main() -> None:
    counts = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    count = counts[0] if counts else WAKES
    facts = ""
    if "--write" in sys.argv:
        from run import machine  # noqa: PLC0415 - it imports every benchmark

        facts = machine()
    wakes, sent = asyncio.run(measure(count))
    result = f"{sent:,} requests at zero replicas, {sent - len(wakes)} lost."
    show(rows(wakes))
    print(result)
    if facts:
        about = ABOUT.format(wakes=count).strip()
        HERE.joinpath("WAKE.md").write_text(f"# {TITLE}\n\n{about}\n\n{facts}\n\n{table(rows(wakes))}\n\n{result}\n")


if __name__ == "__main__":
    main()
