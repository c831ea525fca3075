"""Measures how long a new value at a source takes to reach KEDA: pushes and GetMetrics of a daemon with many workloads.

`python benchmarks/push.py [--quick] [--workloads 1000]`
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc.aio
import numpy as np
from aiohttp import web
from daemon import NAMESPACE, answers_after, free_port, started
from report import show
from rpc import request

from scaler.api.keda.externalscaler_pb2_grpc import ExternalScalerStub

TITLE = "From a source to KEDA"
ABOUT = """
Each workload has a gateway with a queue, scraped each second, and a StreamIsActive stream of its own on ten
connections. The queues are empty and the workloads asleep. At random moments of ten seconds a request enters each
queue; the time until its stream says `active`, and until GetMetrics, called at once after that, answers at least 1, is
measured in the client, which serves the gateways too. A new value waits for the next scrape: half a second on average,
a second at most. Repeat with `python benchmarks/push.py`.
"""

CONNECTIONS = 10
PAGE = """\
# TYPE inference_extension_flow_control_queue_size gauge
inference_extension_flow_control_queue_size{{fairness_id="",priority="0",inference_pool="p"}} {held}
# TYPE inference_pool_ready_pods gauge
inference_pool_ready_pods{{name="p"}} 0
"""


class Fleet:
    """The queues, and when each got its request. Times by `perf_counter()`."""

    def __init__(self, workloads: int) -> None:
        self.entered_at = [float("inf")] * workloads

    async def page(self, asked: web.Request) -> web.Response:
        held = time.perf_counter() >= self.entered_at[int(asked.match_info["number"])]
        return web.Response(text=PAGE.format(held=int(held)))


async def one(stub: ExternalScalerStub, fleet: Fleet, number: int, sleeps: asyncio.Semaphore) -> tuple[float, float]:
    """Seconds from the request to the push, and to the answer of GetMetrics."""
    stream = stub.StreamIsActive(request(number).scaledObjectRef)
    while (await stream.read()).result:  # not asleep yet
        pass
    sleeps.release()
    while not (await stream.read()).result:
        pass
    pushed = time.perf_counter() - fleet.entered_at[number]
    (value,) = (await stub.GetMetrics(request(number))).metricValues
    answered = time.perf_counter() - fleet.entered_at[number]
    if value.metricValue < 1:
        raise RuntimeError(f"w{number} is active with {value.metricValue} replicas")
    stream.cancel()
    return pushed, answered


async def measured(address: str, fleet: Fleet, spread_s: float) -> list[tuple[float, float]]:
    workloads = len(fleet.entered_at)
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(CONNECTIONS)]
    stubs = [ExternalScalerStub(channel) for channel in channels]  # type: ignore[no-untyped-call]
    asleep = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(stubs[n % CONNECTIONS], fleet, n, asleep)) for n in range(workloads)]
        for _ in range(workloads):
            await asleep.acquire()
        now, chance = time.perf_counter(), random.Random(7)
        fleet.entered_at = [now + chance.uniform(0.5, 0.5 + spread_s) for _ in range(workloads)]
    for channel in channels:
        await channel.close()
    return [task.result() for task in tasks]


def written(folder: str, config: dict[str, Any]) -> str:
    file = Path(folder, "config.yaml")
    file.write_text(json.dumps(config))  # JSON is valid YAML
    return str(file)


async def run_all(workloads: int, spread_s: float) -> list[tuple[float, float]]:
    fleet = Fleet(workloads)
    app = web.Application()
    app.router.add_get("/{number}/metrics", fleet.page)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    port, http, own = free_port(), free_port(), free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    config: dict[str, Any] = {
        "listen": {"http": f"127.0.0.1:{http}", "grpc": f"127.0.0.1:{own}"},
        "log": {"level": "error"},
        "scrape": {"interval": "1s", "wake_interval": "1s"},
        "workloads": [
            {
                "namespace": NAMESPACE, "name": f"w{number}", "engine": "vllm", "keep_warm": "5s",
                "gateway": {"url": f"http://127.0.0.1:{port}/{number}/metrics"},
            }
            for number in range(workloads)
        ],
    }  # fmt: skip
    with TemporaryDirectory() as folder:
        file = written(folder, config)
        with started([sys.executable, "-m", "scaler", "run", "-c", file], dict(os.environ)) as process:
            await asyncio.to_thread(answers_after, f"http://127.0.0.1:{http}/readyz", process)
            found = await measured(f"127.0.0.1:{own}", fleet, spread_s)
    await runner.cleanup()
    return found


def run(quick: bool = False, workloads: int = 1_000) -> list[dict[str, Any]]:
    rows = []
    for count in (100,) if quick else (100, workloads):
        pushed, answered = zip(*asyncio.run(run_all(count, 10.0)), strict=True)
        for what, seconds in (("push", pushed), ("GetMetrics", answered)):
            p50, p99 = np.quantile(seconds, (0.5, 0.99)).tolist()
            rows.append(
                {
                    "workloads": count,
                    "until": what,
                    "p50, ms": 1e3 * p50,
                    "p99, ms": 1e3 * p99,
                    "most, ms": 1e3 * max(seconds),
                }
            )
    return rows


if __name__ == "__main__":
    many = int(sys.argv[sys.argv.index("--workloads") + 1]) if "--workloads" in sys.argv else 1_000
    show(run("--quick" in sys.argv, many))
