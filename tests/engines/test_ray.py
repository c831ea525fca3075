"""The real daemon scales a real Ray Serve deployment by the metrics of its nodes (`make test-engines`)."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import grpc
import numpy as np
import pytest

from exporter.model import Quantity
from tests.fakes.daemon import running
from tests.fakes.keda import Keda
from tests.fakes.ports import free_ports
from tests.fakes.waiting import until

from .conftest import SCALED
from .namespaces import isolated, relay, require_namespaces

pytestmark = pytest.mark.engines

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-ray" / "bin" / "python"
# Ray's processes report every ten seconds, here every two. What has not been reported for twice as long is gone.
CONFIG = """\
listen: {{http: "127.0.0.1:{http}", grpc: "127.0.0.1:{grpc}"}}
scrape: {{interval: 1s, timeout: 1s, wake_interval: 1s}}
freshness: {{intervals: 10, hold: 3s}}
tick: 0.1s
workloads:
  - namespace: ai
    name: chat
    engine: ray_serve
    pods: {{urls: ["http://127.0.0.1:{worker}/metrics"]}}
    gateway: {{url: "http://127.0.0.1:{head}/metrics", kind: ray_serve}}
    model: Held
    replicas: {{min: 0, max: 8}}
    objectives: {{work: 2}}
    smoothing: {{up: 0s, down: 1s}}
    keep_warm: 5s
"""


class Ray:
    """A cluster of a head and of a worker node. head, worker: ports of their metrics."""

    def __init__(self, process, head, worker, proxy, folder):
        self.head, self.worker = head, worker
        self._process, self._proxy, self._folder = process, proxy, folder

    def command(self, line):
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        self.until_said("ok")

    def until_said(self, word):
        while line := self._process.stdout.readline():
            if line.strip() == word:
                return
        raise AssertionError(f"Ray ended before it said {word}")

    async def ask(self, name):
        """The HTTP status of a request that lasts until `end(name)`."""
        url = f"http://127.0.0.1:{self._proxy}/held?name={name}"
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
            return response.status

    async def insist(self, name):
        """The same of a client that asks again when its replica has died: Serve notices some seconds later."""
        while (status := await self.ask(name)) == 500:
            pass
        return status

    def end(self, *names, how="well"):
        for name in names:
            self._folder.joinpath("written").write_text(how)
            self._folder.joinpath("written").rename(self._folder / name)

    async def counted(self, samples):
        """(finished, failed) requests on both nodes. A counter has no series before its first request."""
        pages = [samples(await self._page(port)) for port in (self.head, self.worker)]
        quantities = (Quantity.REQUESTS_FINISHED, Quantity.REQUESTS_FAILED)
        return tuple(float(np.nansum([page.column(each).sum() for page in pages])) for each in quantities)

    @staticmethod
    async def _page(port):
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
            return await response.text()


@pytest.fixture
def ray(tmp_path):
    if not PYTHON.exists():
        pytest.skip("Ray is not installed (make test-engines)")
    require_namespaces()
    ports = head, worker, proxy = free_ports(3)
    environment = {
        **os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_metrics_report_interval_ms": "2000",
        "RAY_TMPDIR": tempfile.mkdtemp(prefix="ray-"),  # a path that is short enough for its Unix sockets
    }  # fmt: skip
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    command = [PYTHON, Path(__file__).with_name("ray_cluster.py"), *map(str, ports), tmp_path]
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, environment["RAY_TMPDIR"])
        log = stack.enter_context(tmp_path.joinpath("ray.log").open("wb"))
        pipe = subprocess.PIPE
        process = isolated(command, env=environment, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=log, text=True)
        ray = Ray(stack.enter_context(process), head, worker, proxy, tmp_path)
        ray.until_said("ready")
        stack.enter_context(relay(ray._process, ports))
        yield ray


async def test_requests_wait_run_and_end_as_clients_sent_them_and_one_at_zero_wakes_the_workers(ray, tmp_path, samples):
    http, port = free_ports(2)
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(http=http, grpc=port, head=ray.head, worker=ray.worker))
    with running(config, tmp_path / "tidegate.log") as tidegate:

        async def requests(waiting, running):
            return await tidegate.until_evidence("ai", "chat", waiting=waiting, running=running)

        async with grpc.aio.insecure_channel(tidegate.grpc) as channel:
            keda = Keda(channel)
            await requests(0.0, 0.0)
            clients = {}
            # Four at once would be one more than the queue holds while no replica has been chosen.
            for names, waiting, of_replicas in (("ab", 0.0, 2.0), ("cd", 0.0, 4.0), ("efg", 3.0, 4.0)):
                clients |= {name: asyncio.create_task(ray.ask(name)) for name in names}
                await requests(waiting, of_replicas)
            await keda.until((4, True), SCALED)  # seven requests at two per replica
            # The queue is full: these are refused, and no replica has heard of them.
            assert [await ray.ask("h"), await ray.ask("i")] == [503, 503]
            await until(lambda: ray.counted(samples), lambda counted: counted == (0.0, 2.0))
            ray.end("a", how="fail")
            ray.end(*"bcdefg")
            assert [await clients[name] for name in "abcdefg"] == [500, *[200] * 6]
            await until(lambda: ray.counted(samples), lambda counted: counted == (6.0, 3.0))
            await requests(0.0, 0.0)
            await keda.until((0, False), SCALED)
            # The workers are taken away. The proxy, on the head, keeps the next request until one is back.
            await asyncio.to_thread(ray.command, "remove")
            async with keda.pushes(SCALED) as next_push:
                while await next_push():
                    pass
                client = asyncio.create_task(ray.insist("z"))
                assert await next_push() is True
            assert await keda.answer(SCALED) == (1, True)
            await asyncio.to_thread(ray.command, "add")
            await requests(0.0, 1.0)
            ray.end("z")
            assert await client == 200
            await keda.until((0, False), SCALED)
