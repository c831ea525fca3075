"""The real daemon reads a real NATS JetStream through the real prometheus-nats-exporter (`make test-engines`).

The exporter is a Go program that no package index has: it must be in PATH.
"""

import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
import grpc
import pytest

from tests.fakes.daemon import end, running
from tests.fakes.keda import Keda
from tests.fakes.ports import free_ports
from tests.fakes.waiting import until

from .conftest import SCALED, WORKERS

pytestmark = pytest.mark.engines

PROGRAMS = Path(__file__).resolve().parents[2] / ".venv-nats" / "bin"
EXPORTER = "prometheus-nats-exporter"


@contextmanager
def process(command, log, **options):
    """A program until the block ends."""
    with log.open("ab") as output, subprocess.Popen(command, stdout=output, stderr=output, **options) as process:
        try:
            yield process
        finally:
            end(process)


class Nats:
    """A server, its exporter and a client. page: the port of the exporter."""

    def __init__(self, folder, stack):
        self.page, self._port, self._monitor = free_ports(3)
        self._folder, self._stack = folder, stack
        exporter = [EXPORTER, "-a", "127.0.0.1", "-p", str(self.page), "-jsz=all", f"http://127.0.0.1:{self._monitor}"]
        stack.enter_context(process(exporter, folder / "exporter.log"))
        self.start()

    def start(self):
        command = [
            PROGRAMS / "nats-server", "-a", "127.0.0.1", "-p", str(self._port), "-m", str(self._monitor), "-js",
            "-sd", self._folder / "data", "-n", "nats-0",
        ]  # fmt: skip
        self.server = self._stack.enter_context(process(command, self._folder / "server.log"))

    def stop(self):
        end(self.server)

    async def healthy(self):
        for url in (f"http://127.0.0.1:{self._monitor}/healthz", f"http://127.0.0.1:{self.page}/metrics"):
            await until(lambda url=url: self._answers(url), bool)

    def connect(self):
        command = [PROGRAMS / "python", Path(__file__).with_name("nats_client.py"), str(self._port)]
        client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.client = self._stack.enter_context(client)

    def do(self, line):
        """A command of nats_client."""
        self.client.stdin.write(f"{line}\n")
        self.client.stdin.flush()
        assert self.client.stdout.readline() == "ok\n"

    @staticmethod
    async def _answers(url):
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                return response.ok
        except aiohttp.ClientConnectionError:
            return False


@pytest.fixture
async def nats(tmp_path):
    if not (PROGRAMS / "nats-server").exists():
        pytest.skip("NATS is not installed (make test-engines)")
    if shutil.which(EXPORTER) is None:
        pytest.skip(f"{EXPORTER} is not in PATH (github.com/nats-io/{EXPORTER})")
    with ExitStack() as stack:
        nats = Nats(tmp_path, stack)
        await nats.healthy()
        nats.connect()
        yield nats


async def test_jobs_wait_run_and_end_as_the_client_left_them_and_an_outage_is_never_zero(nats, tmp_path):
    http, port = free_ports(2)
    config = tmp_path / "config.yaml"
    config.write_text(
        WORKERS.format(http=http, grpc=port, url=f"http://127.0.0.1:{nats.page}/metrics", kind="nats", queue="workers")
    )
    with running(config, tmp_path / "tidegate.log") as tidegate:

        async def jobs(waiting, running):
            return await tidegate.until_evidence("ai", "chat", waiting=waiting, running=running)

        async with grpc.aio.insecure_channel(tidegate.grpc) as channel:
            keda = Keda(channel)
            nats.do("stream")
            nats.do("publish 1")
            await tidegate.sweeps(20)
            assert await keda.answer(SCALED) == grpc.StatusCode.UNAVAILABLE  # no consumer, no queue
            nats.do("consumer")
            await jobs(1.0, 0.0)
            nats.do("take 1")
            await jobs(0.0, 1.0)
            nats.do("finish")
            async with keda.pushes(SCALED) as next_push:
                await jobs(0.0, 0.0)
                while await next_push():  # until it is proven idle
                    pass
                assert await keda.answer(SCALED) == (0, False)
                nats.do("publish 7")
                assert await next_push() is True
            await jobs(7.0, 0.0)
            await keda.until((4, True), SCALED)  # seven jobs at two per replica
            nats.do("take 3")
            await jobs(4.0, 3.0)
            nats.do("give_back")
            nats.do("take 7")
            await jobs(0.0, 7.0)
            nats.client.kill()  # its jobs are unacknowledged until the server delivers them again
            await keda.until((4, True), SCALED)
            async with keda.watching(SCALED) as seen:
                nats.stop()  # the exporter answers, without the consumer
                await tidegate.until(lambda entry: entry["reason"] == "incomplete", "ai", "chat")
                await tidegate.sweeps(50)
                nats.start()
                await tidegate.until(lambda entry: entry["reason"] == "serving", "ai", "chat")
            assert seen == [(4, True)]
            await jobs(0.0, 7.0)
