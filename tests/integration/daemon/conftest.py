"""The real daemon as a subprocess, pages that can be told to misbehave, and a client that asks as KEDA does."""

import asyncio
import json
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import aiohttp
import grpc
import grpc.aio
import pytest
from aiohttp import web

from exporter.clock import WallClock
from scaler.api.keda import externalscaler_pb2 as pb
from scaler.api.keda import externalscaler_pb2_grpc as rpc
from scaler.config import parse
from scaler.daemon import Daemon
from tests.fakes.ports import free_ports
from tests.fakes.warm import WarmProcess

# A cold start compiles the kernels: about 15 s on two slow cores. Everything after it is quick.
START_S = 120.0
SOON_S = 20.0


def vllm_page(waiting=0, running=0, finished=0):
    labels = 'model_name="m",engine="0"'
    return (
        f"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{{{labels}}} {waiting}\n"
        f"vllm:num_requests_running{{{labels}}} {running}\nvllm:kv_cache_usage_perc{{{labels}}} 0.1\n"
        f'vllm:request_success_total{{{labels},finished_reason="stop"}} {finished}\n'
    ).encode()


def epp_page(queued=0, ready=1):
    return (
        f'inference_extension_flow_control_queue_size{{fairness_id="",priority="0",inference_pool="p"}} {queued}\n'
        f'inference_pool_ready_pods{{name="p"}} {ready}\n'
    ).encode()


@dataclass
class Page:
    """One page of a loopback server; set `body`, or `behaviour` to "error", "hang", "endless" or "closed"."""

    body: bytes = b""
    behaviour: str = "ok"
    asked: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request):
        self.asked += 1
        if self.behaviour == "error":
            return web.Response(status=500, text="no")
        if self.behaviour == "hang":
            await self.release.wait()
        if self.behaviour == "closed":
            request.transport.abort()
        if self.behaviour == "endless":
            return await self._endless(request)
        return web.Response(body=self.body)

    async def _endless(self, request):
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b'vllm:num_requests_waiting{model_name="m"} 1\n' * 1000)
        except (ConnectionError, asyncio.CancelledError):
            pass
        return response


@pytest.fixture
async def pages():
    """Pages by name, served on loopback: `pages["engine"].body = …`; `pages.url("engine")`."""

    class Pages(dict):
        port = 0

        def __missing__(self, name):
            self[name] = Page()
            return self[name]

        def url(self, name):
            return f"http://127.0.0.1:{self.port}/{name}"

    served = Pages()
    app = web.Application()

    async def answer(request):
        return await served[request.match_info["name"]].answer(request)

    app.router.add_get("/{name}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served.port = runner.addresses[0][1]
    yield served
    for page in served.values():
        page.release.set()
    await runner.cleanup()


class Asker:
    """Calls as KEDA makes them."""

    def __init__(self, channel):
        self.stub = rpc.ExternalScalerStub(channel)

    @staticmethod
    def ref(name="chat", **metadata):
        return pb.ScaledObjectRef(name=name, namespace="ai", scalerMetadata={"scalerAddress": "x:1", **metadata})

    async def replicas(self, name="chat", **metadata):
        request = pb.GetMetricsRequest(scaledObjectRef=self.ref(name, **metadata), metricName="tidegate-replicas")
        (value,) = (await self.stub.GetMetrics(request)).metricValues
        assert value.metricValue == value.metricValueFloat
        return value.metricValue

    async def active(self, name="chat", **metadata):
        return (await self.stub.IsActive(self.ref(name, **metadata))).result

    async def answer(self, name="chat"):
        """(replicas, active), or the gRPC code of the error."""
        try:
            return await self.replicas(name), await self.active(name)
        except grpc.aio.AioRpcError as error:
            return error.code()

    async def until(self, wanted, name="chat"):
        """Ask until the answer is as wanted; returns every different answer on the way."""
        seen = []
        async with asyncio.timeout(SOON_S):
            while True:
                answer = await self.answer(name)
                if not seen or seen[-1] != answer:
                    seen.append(answer)
                if answer == wanted:
                    return seen
                await asyncio.sleep(0.02)


@dataclass
class Running:
    """A daemon that runs."""

    process: WarmProcess
    http: str
    grpc: str
    ask: Asker
    config: object
    complaints: str = ""  # on standard error, once it has ended

    async def kill(self):
        """As the kernel does when memory is short: it gets to know nothing of it."""
        self.process.kill()
        await asyncio.to_thread(self.process.wait, SOON_S)

    async def get(self, path):
        async with aiohttp.ClientSession() as session, session.get(self.http + path) as response:
            return response.status, await response.text()

    async def decision(self, name="chat"):
        document = json.loads((await self.get("/api/v1/board"))[1])
        return next(w for w in document["workloads"] if w["workload"]["name"] == name)

    async def until_metric(self, line):
        """Wait until /metrics has a line that starts so."""
        async with asyncio.timeout(SOON_S):
            while True:
                text = (await self.get("/metrics"))[1]
                if any(each.startswith(line) for each in text.splitlines()):
                    return text
                await asyncio.sleep(0.02)


@pytest.fixture
def daemon(tmp_path):
    """`async with daemon(workloads_yaml, extra_yaml) as running:`, on free ports and a fast configuration.

    program: a module or a script that is run as `tidegate`.
    """

    @asynccontextmanager
    async def run(workloads, top="", hold="2s", program="scaler"):
        config = tmp_path / "config.yaml"
        http, grpc_port = free_ports(2)
        config.write_text(
            f'listen: {{http: "127.0.0.1:{http}", grpc: "127.0.0.1:{grpc_port}"}}\n'
            # Fresh for 1.5 s: a busy machine may well be late by half a second.
            "scrape: {interval: 0.3s, timeout: 0.3s, body_limit: 64KiB}\n"
            f"freshness: {{intervals: 5, hold: {hold}}}\ntick: 0.1s\n{top}\nworkloads:\n{workloads}"
        )
        log = tmp_path / "log"
        with log.open("wb") as file:
            process = await asyncio.to_thread(WarmProcess, program, "run", "-c", config, stderr=file)
        running = None
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
                running = Running(process, f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc_port}", Asker(channel), config)
                await _ready(running, log)
                yield running
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait, SOON_S)
            complaints = log.read_text(encoding="utf-8")
            if running is not None:
                running.complaints = complaints
        assert process.returncode in {0, -signal.SIGKILL}, complaints
        assert "Traceback" not in complaints, complaints

    return run


@pytest.fixture
def in_process():
    """`async with in_process(configuration, **more_of_Daemon) as ask:` a daemon in this process, to be broken by hand.

    ask: an Asker; ask.metrics(): the lines of /metrics.
    """

    @asynccontextmanager
    async def run(config, **more):
        stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
        listen = 'listen: {http: "127.0.0.1:0", grpc: "127.0.0.1:0"}\n'
        daemon = Daemon(parse(listen + config, "config.yaml")[0], WallClock(), **more)
        running = asyncio.create_task(daemon.run(stop, listening.set_result))
        try:
            async with asyncio.timeout(START_S):
                await asyncio.wait([running, listening], return_when=asyncio.FIRST_COMPLETED)
            ports = listening.result()
            async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
                ask = Asker(channel)
                ask.metrics = partial(_lines, f"http://127.0.0.1:{ports.http}/metrics")
                yield ask
        finally:
            stop.set()
            await running

    return run


async def _lines(url):
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return (await response.text()).splitlines()


async def _ready(running, log):
    async with asyncio.timeout(START_S):
        while True:
            assert running.process.poll() is None, log.read_text(encoding="utf-8")
            try:
                status, _ = await running.get("/readyz")
            except aiohttp.ClientError:
                status = 0
            if status == 200:
                return
            await asyncio.sleep(0.05)


@pytest.fixture
def vllm():
    return vllm_page


@pytest.fixture
def epp():
    return epp_page
