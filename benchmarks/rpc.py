"""Measures the latency for KEDA: GetMetrics of a real daemon, called from another process over loopback.

`python benchmarks/rpc.py [--quick]`
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from itertools import count
from time import perf_counter
from typing import Any

import grpc
import grpc.aio
import numpy as np
from daemon import NAMESPACE, running
from report import show
from timing import Spread

from scaler.api.keda.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.api.keda.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.api.keda.servicer import METRIC

TITLE = "Answering KEDA"
ABOUT = """
`GetMetrics` over one plain-text gRPC connection on loopback, from another process, to `python -m scaler run` with 100
configured workloads whose 100 targets it scrapes every 5 s meanwhile. Times are measured in the client, which is Python
too: they include its side of gRPC, and with 32 calls in flight most of a call is waiting behind the others.
Each round asks all workloads in turn; the table shows the median round and the extremes. For scale: by
default KEDA makes three calls per workload every 30 s and the HPA through it three every 15 s, so 1,000 workloads with
replicas are 300 calls per second, 100 of them `GetMetrics`. Repeat with `python benchmarks/rpc.py`.
"""

WORKLOADS = 100
IN_FLIGHT = (1, 32)


async def timed_calls(stub: ExternalScalerStub, calls: int, in_flight: int) -> tuple[list[float], float]:
    """Seconds of each call, and of all calls together."""
    turns = count()
    took: list[float] = []

    async def ask_on() -> None:
        while (turn := next(turns)) < calls:
            begun = perf_counter()
            await stub.GetMetrics(request(turn % WORKLOADS))
            took.append(perf_counter() - begun)

    begun = perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(ask_on())
    return took, perf_counter() - begun


def request(number: int) -> GetMetricsRequest:
    ref = ScaledObjectRef(name=f"w{number}", namespace=NAMESPACE, scalerMetadata={"scalerAddress": "tidegate:6000"})
    return GetMetricsRequest(scaledObjectRef=ref, metricName=METRIC)


async def until_decided(stub: ExternalScalerStub) -> None:
    """Ready means that decisions can be published; the first scrapes land within a second or so of it."""
    for number in range(WORKLOADS):
        while True:
            try:
                await stub.GetMetrics(request(number))
                break
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.05)


async def measured(address: str, rounds: int, calls: int) -> Iterator[dict[str, Any]]:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = ExternalScalerStub(channel)  # type: ignore[no-untyped-call]
        await until_decided(stub)
        await timed_calls(stub, calls, max(IN_FLIGHT))
        return iter([await row(stub, rounds, calls, in_flight) for in_flight in IN_FLIGHT])


async def row(stub: ExternalScalerStub, rounds: int, calls: int, in_flight: int) -> dict[str, Any]:
    p50, p99, rate = [], [], []
    for _ in range(rounds):
        took, whole = await timed_calls(stub, calls, in_flight)
        middle, high = np.quantile(took, (0.5, 0.99)).tolist()
        p50.append(1e3 * middle)
        p99.append(1e3 * high)
        rate.append(calls / whole)
    return {
        "calls in flight": in_flight,
        "p50, ms": Spread.of(p50),
        "p99, ms": Spread.of(p99),
        "calls per second": Spread.of(rate),
        "calls": rounds * calls,
    }


def run(quick: bool = False) -> list[dict[str, Any]]:
    rounds, calls = (3, 500) if quick else (7, 2_000)
    with running(workloads=WORKLOADS) as daemon:
        return list(asyncio.run(measured(daemon.grpc, rounds, calls)))


if __name__ == "__main__":
    show(run("--quick" in sys.argv))
