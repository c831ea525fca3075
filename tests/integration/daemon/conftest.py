"""The real daemon as a process, targets with failures on request, and a client with KEDA's calls."""

import asyncio
import json
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import aiohttp
import grpc
import grpc.aio
import pytest

from exporter.clock import WallClock
from scaler.api.keda import externalscaler_pb2 as pb
from scaler.api.keda import externalscaler_pb2_grpc as rpc
from scaler.config import parse
from scaler.daemon import Daemon
from tests.fakes.ports import free_ports
from tests.fakes.targets import serving_named_targets
from tests.fakes.waiting import until
from tests.fakes.warm import WarmProcess

# A cold start compiles the kernels: about 15 s on two slow cores. Later starts are quick.
START_S = 120.0
SOON_S = 60.0


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


@pytest.fixture
async def targets():
    """Targets by name on loopback: `targets["engine"].body = …`; `targets.url("engine")`."""
    async with serving_named_targets() as served:
        yield served


class KedaCalls:
    """KEDA's calls, with the metadata of one trigger."""

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
        """Poll until the answer is as wanted; returns each change of the answer on the way."""
        answers = []

        async def poll():
            answer = await self.answer(name)
            if not answers or answers[-1] != answer:
                answers.append(answer)
            return answer

        await until(poll, lambda answer: answer == wanted)
        return answers


@dataclass
class Running:
    """A running daemon."""

    process: WarmProcess
    http: str
    grpc: str
    ask: KedaCalls
    config: object
    stderr: str = ""  # set when the process has ended

    async def kill(self):
        """SIGKILL, as from the kernel's OOM killer."""
        self.process.kill()
        await asyncio.to_thread(self.process.wait, SOON_S)

    async def get(self, path):
        async with aiohttp.ClientSession() as session, session.get(self.http + path) as response:
            return response.status, await response.text()

    async def decision(self, name="chat"):
        document = json.loads((await self.get("/api/v1/board"))[1])
        return next(w for w in document["workloads"] if w["workload"]["name"] == name)

    async def until_metric(self, line):
        """Wait until /metrics has a line with this prefix; returns the whole text."""

        async def metrics():
            return (await self.get("/metrics"))[1]

        return await until(metrics, lambda text: any(each.startswith(line) for each in text.splitlines()))


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
            # Fresh for 1.5 s: a busy machine may be late by half a second.
            "scrape: {interval: 0.3s, timeout: 0.3s, body_limit: 64KiB}\n"
            f"freshness: {{intervals: 5, hold: {hold}}}\ntick: 0.1s\n{top}\nworkloads:\n{workloads}"
        )
        log = tmp_path / "log"
        with log.open("wb") as file:
            process = await asyncio.to_thread(WarmProcess, program, "run", "-c", config, stderr=file)
        running = None
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
                running = Running(
                    process, f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc_port}", KedaCalls(channel), config
                )
                await _ready(running, log)
                yield running
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait, SOON_S)
            stderr = log.read_text(encoding="utf-8")
            if running is not None:
                running.stderr = stderr
        assert process.returncode in {0, -signal.SIGKILL}, stderr
        assert "Traceback" not in stderr, stderr

    return run


@pytest.fixture
def in_process():
    """`async with in_process(configuration, **arguments) as ask:` a daemon in this process, for fault injection.

    arguments: of Daemon. ask: KedaCalls; ask.metrics(): the lines of /metrics.
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
                ask = KedaCalls(channel)
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
