"""Runs real redis-servers on loopback: single, behind sentinels or as a cluster, and RedisPages that query them."""

import asyncio
import signal
import socket
import subprocess
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import pytest
from redis.asyncio import Redis

from exporter.catalog import Reader
from exporter.clock import WallClock
from exporter.model import Credentials, Failure, FailureKind, Quantity
from exporter.sources.redis import RedisPages, RedisQuery, Servers, Way
from exporter.textformat import parse

PATIENCE_S = 60.0  # never waited for: only says which await hung
POLL_S = 0.02


def free_ports(count):
    """Returns different free ports below 55000: the bus of a Redis cluster uses the port 10000 above each."""
    with ExitStack() as held:
        found = []
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            if port < 55_000:
                found.append(port)
        return found


class Process:
    """Runs one redis-server or sentinel. client: a connection for the test."""

    def __init__(self, program, folder, port, options=(), config="", client=None):
        self.program, self.port, self.options = program, port, options
        self.folder = folder / str(port)
        self.folder.mkdir(exist_ok=True)
        self.config = self.folder / "redis.conf"
        self.config.write_text(config)
        self.process = None
        self.client = Redis(host="127.0.0.1", port=port, protocol=2, **(client or {}))

    def start(self):
        fixed = ["--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "", "--appendonly", "no"]
        port = [] if "--tls-port" in self.options else ["--port", str(self.port)]
        command = [self.program, str(self.config), *fixed, *port, *self.options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        return self

    async def up(self):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                assert self.process.poll() is None, (self.folder / "log").read_text()
                with suppress(Exception):
                    if await self.client.ping():
                        return self
                await asyncio.sleep(POLL_S)

    def hang(self):
        self.process.send_signal(signal.SIGSTOP)

    def wake(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()


@pytest.fixture
async def launch(debian_tool, tmp_path):
    """`await launch("--option", …)` starts a server and waits until it responds. sentinel: starts a sentinel."""
    started = []

    async def run(*options, config="", sentinel=False, port=None, client=None, wait=True):
        program = debian_tool("redis-server")
        more = ("--sentinel",) if sentinel else ()
        process = Process(program, tmp_path, port or free_ports(1)[0], (*more, *options), config, client)
        started.append(process.start())
        return await process.up() if wait else process

    yield run
    for each in started:
        await each.client.aclose()
        each.stop()


@pytest.fixture
async def server(launch):
    return await launch()


class NoHttp:
    async def fetch(self, url, access):
        return Failure(FailureKind.REFUSED, f"not of Redis: {url}")


@pytest.fixture
async def source():
    """`source.pages`: the RedisPages under test; `source.problems`: (url, problems) of each report."""
    source = SimpleNamespace(problems=[], timeout_s=5.0)
    source.pages = RedisPages(
        NoHttp(), WallClock(), lambda: source.timeout_s, lambda url, problems: source.problems.append((url, problems))
    )
    yield source
    await source.pages.close()


@pytest.fixture
def ask(source):
    """`await ask(port, lists=("jobs",))`: {queue: (waiting, running)} of the page, or the Failure."""

    async def once(port, access=Credentials(), *, tls=False, db=0, servers=None, **queues):  # noqa: B008
        servers = servers or Servers(Way.SERVER, (("127.0.0.1", port),), tls=tls, db=db, access=access)
        target = source.pages.target(RedisQuery(servers, **queues), None)
        body = await source.pages.fetch(target.url, target.access)
        if isinstance(body, Failure):
            return body
        samples = Reader(target.kind).read(parse(body), 100.0)
        waiting, running = samples.column(Quantity.REQUESTS_WAITING), samples.column(Quantity.REQUESTS_RUNNING)
        return {
            subject.name: (float(waiting[row]), float(running[row])) for row, subject in enumerate(samples.subjects)
        }

    return once


@pytest.fixture
def until():
    """`await until(ask, condition)`: calls `ask` until `condition(result)`. Returns all different results in order."""

    async def again(request, condition):
        results = []
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await request()
                if not results or repr(results[-1]) != repr(answer):
                    results.append(answer)
                if condition(answer):
                    return results
                await asyncio.sleep(POLL_S)

    return again


@pytest.fixture
def ports():
    return free_ports
