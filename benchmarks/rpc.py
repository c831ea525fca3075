"""Measures the latency for KEDA: GetMetrics of a real daemon, called from another process, beside an empty call.

`python benchmarks/rpc.py [--quick]`. As a script with the argument `serve` this file is the process of the empty call.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from itertools import count
from time import perf_counter
from typing import Any, NamedTuple

import grpc
import grpc.aio
import numpy as np
from beside_prometheus import cpu_seconds
from daemon import NAMESPACE, free_port, running, started
from report import show
from timing import Spread

from scaler.api.keda.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.api.keda.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.api.keda.servicer import METRIC

TITLE = "Answering KEDA"
ABOUT = """
`GetMetrics` over one plain-text gRPC connection on loopback, from another process, to `python -m scaler run` with 100
configured workloads whose 100 targets it scrapes every 5 s meanwhile; and a call of grpcio's own asyncio server with
nothing in it, by turns. Times are measured in the client, which is Python too: they include its side of gRPC, and with
32 calls in flight most of a call is waiting behind the others. CPU is that of the server's process per call; the
daemon's has its scrapes in it. "Of the empty call" compares the calls per second of the same round, its median. Each
round asks all workloads in turn; the table shows the median round and the extremes. For scale: by default KEDA makes
three calls per workload every 30 s and the HPA through it three every 15 s, so 1,000 workloads with replicas are 300
calls per second, 100 of them `GetMetrics`. Repeat with `python benchmarks/rpc.py`.
"""

WORKLOADS = 100
IN_FLIGHT = (1, 32, 100)
EMPTY = "/bench.Empty/Call"
Call = Callable[[int], Coroutine[Any, Any, object]]


class Round(NamedTuple):
    """p50_s, p99_s: of a call. rate: calls per second. cpu_s: of the server per call."""

    p50_s: float
    p99_s: float
    rate: float
    cpu_s: float


async def timed_calls(call: Call, pid: int, calls: int, in_flight: int) -> Round:
    turns = count()
    took: list[float] = []

    async def ask_on() -> None:
        while (turn := next(turns)) < calls:
            begun = perf_counter()
            await call(turn)
            took.append(perf_counter() - begun)

    spent, begun = cpu_seconds(pid), perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(ask_on())
    whole = perf_counter() - begun
    middle, high = np.quantile(took, (0.5, 0.99)).tolist()
    return Round(middle, high, calls / whole, (cpu_seconds(pid) - spent) / calls)


async def serve_empty(port: int) -> None:
    async def answer(_request: bytes, _context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        return b""

    service, _, method = EMPTY[1:].partition("/")
    handlers = {method: grpc.unary_unary_rpc_method_handler(answer)}
    server = grpc.aio.server(handlers=(grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


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


async def measured(daemon: tuple[str, int], empty: tuple[str, int], rounds: int, calls: int) -> list[dict[str, Any]]:
    """daemon, empty: address and process of each server."""
    async with grpc.aio.insecure_channel(daemon[0]) as channel, grpc.aio.insecure_channel(empty[0]) as other:
        stub, nothing = ExternalScalerStub(channel), other.unary_unary(EMPTY)  # type: ignore[no-untyped-call]
        await until_decided(stub)
        await other.channel_ready()

        async def get_metrics(turn: int) -> None:
            await stub.GetMetrics(request(turn % WORKLOADS))

        async def call_nothing(_turn: int) -> None:
            await nothing(b"")

        rows = []
        for in_flight in (max(IN_FLIGHT), *IN_FLIGHT):  # the first is to warm up
            pairs = [
                (
                    await timed_calls(get_metrics, daemon[1], calls, in_flight),
                    await timed_calls(call_nothing, empty[1], calls, in_flight),
                )
                for _ in range(rounds)
            ]
            ours, theirs = ([pair[which] for pair in pairs] for which in (0, 1))
            ratio = Spread.of(one.rate / other.rate for one, other in pairs)
            rows += [row("GetMetrics", in_flight, ours, calls, ratio), row("empty", in_flight, theirs, calls, None)]
    return rows[2:]


def row(what: str, in_flight: int, rounds: list[Round], calls: int, ratio: Spread | None) -> dict[str, Any]:
    return {
        "call": what,
        "in flight": in_flight,
        "p50, ms": Spread.of(each.p50_s for each in rounds).times(1e3),
        "p99, ms": Spread.of(each.p99_s for each in rounds).times(1e3),
        "calls per second": Spread.of(each.rate for each in rounds),
        "of the empty call": ratio,
        "µs of CPU": Spread.of(each.cpu_s for each in rounds).times(1e6),
        "calls": len(rounds) * calls,
    }


def run(quick: bool = False) -> list[dict[str, Any]]:
    rounds, calls = (3, 500) if quick else (7, 2_000)
    port = free_port()
    serving = started([sys.executable, __file__, "serve", str(port)], dict(os.environ))
    with running(workloads=WORKLOADS) as daemon, serving as empty:
        return asyncio.run(measured((daemon.grpc, daemon.pid), (f"127.0.0.1:{port}", empty.pid), rounds, calls))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve_empty(int(sys.argv[2])))
    else:
        show(run("--quick" in sys.argv))
