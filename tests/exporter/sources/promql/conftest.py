"""Runs a real Prometheus that scrapes a test's pages, and a fake query API with configured responses."""

import asyncio
import json
import socket
import subprocess
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from aiohttp import web

from exporter.catalog import Reader
from exporter.model import Credentials, PodKey, Role, WorkloadKey
from exporter.sources.http import HttpLimits, HttpPages
from exporter.sources.promql import Promql, PromqlQuery, PromqlTargets
from exporter.textformat import parse

PATIENCE_S = 60.0  # never waited for: only says which await hung
POLL_S = 0.1
CHAT = WorkloadKey("ai", "chat")


@pytest.fixture
def chat():
    return CHAT


@pytest.fixture
async def http():
    pages = HttpPages(HttpLimits(timeout_s=20.0, body_bytes=1 << 20))
    yield pages
    await pages.close()


@pytest.fixture
async def client(http):
    promql = Promql(http)
    yield promql
    promql.close()


def query_of(url, kind="vllm", role=Role.PODS, owner=CHAT, selector="", max_age_s=60.0, access=Credentials()):  # noqa: B008
    return PromqlQuery(url, kind, role, owner if role is not Role.GPUS else None, selector, max_age_s, access)


@pytest.fixture
def ask(client):
    """`ask(url, kind="vllm", role=…)`: the discovery under test."""
    return lambda url, keep_s=30.0, **query: PromqlTargets(client, query_of(url, **query), keep_s=keep_s)


@pytest.fixture
def query():
    return query_of


@pytest.fixture
def read(client):
    """`await read(target)`: the Samples of a target's page, or the Failure."""

    async def samples(target, at=2e9):
        body = await client.fetch(target.url, target.access)
        return Reader(target.kind).read(parse(body), at) if isinstance(body, bytes) else body

    return samples


@dataclass
class Fake:
    """Fakes Prometheus: returns `response` for every POST."""

    url: str = ""
    response: object = None  # bytes, a JSON value, or a function form -> one of them
    status: int = 200
    headers: dict = field(default_factory=dict)
    requests: list = field(default_factory=list)  # (path, form, headers) of each request
    held: asyncio.Event | None = None

    def data(self, *series, **more):
        """Sets a successful response with these series, each (labels, [(time, value)…])."""
        result = [{"metric": labels, "values": [[at, str(value)] for at, value in values]} for labels, values in series]
        self.response = {"status": "success", "data": {"resultType": "matrix", "result": result}, **more}

    async def answer(self, request):
        self.requests.append((request.path, dict(await request.post()), dict(request.headers)))
        if self.held is not None:
            await self.held.wait()
        response = self.response(self.requests[-1][1]) if callable(self.response) else self.response
        body = response if isinstance(response, bytes) else json.dumps(response).encode()
        return web.Response(body=body, status=self.status, headers=self.headers)


@asynccontextmanager
async def serving(app, ssl=None):
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl).start()
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
def serve():
    return serving


@pytest.fixture
async def fake():
    server = Fake()
    app = web.Application()
    app.router.add_post("/{path:.*}", server.answer)
    async with serving(app) as address:
        server.url = f"http://{address}"
        yield server
        if server.held is not None:
            server.held.set()


class Pages(dict):
    """Serves pages by path: `pages["chat-0"] = text`. A missing page or None is HTTP 500."""

    def __init__(self):
        super().__init__()
        pages = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                text = pages.get(self.path.removeprefix("/"))
                self.send_response(200 if text is not None else 500)
                self.end_headers()
                self.wfile.write((text or "").encode())

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, name="pages", daemon=True).start()


def job(pages, name, *paths, honor_labels=False, **labels):
    def target(path):
        # All pages have the same address; `instance` distinguishes them.
        target_labels = {"__metrics_path__": f"/{path}", "instance": path, "pod": path, **labels}
        return {"targets": [pages.address], "labels": target_labels}

    return {"job_name": name, "honor_labels": honor_labels, "static_configs": [target(path) for path in paths]}


EXPORTER = {"namespace": "ai", "pod": "exporter-of-gpus-x", "container": "c"}
JOBS = (
    ("engines", ("chat-0", "chat-1"), {"namespace": "ai"}),
    ("dying", ("dying-0", "dying-1"), {"namespace": "dying"}),
    ("past", ("past-0", "past-1"), {"namespace": "past"}),
    ("scraped", ("scraped-0", "scraped-1"), {"namespace": "scraped"}),
    ("renamed", ("node-1",), EXPORTER),
    ("left", ("node-2",), {**EXPORTER, "honor_labels": True}),
)


class Server:
    """Runs one real Prometheus for a whole test file, because its start takes five seconds. It scrapes every second."""

    def __init__(self, folder, pages):
        self._folder, self._process = folder, None
        self._config = folder / "prometheus.yml"
        scrapes = [job(pages, name, *paths, **labels) for name, paths, labels in JOBS]
        settings = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": scrapes}
        self._config.write_text(json.dumps(settings))  # JSON is YAML
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.url = f"http://{self.address}/prometheus/"

    def start(self, program):
        if self._process is None:
            self._process = subprocess.Popen(
                [program, f"--config.file={self._config}", f"--storage.tsdb.path={self._folder / 'tsdb'}",
                 f"--web.listen-address={self.address}", "--web.route-prefix=/prometheus/", "--log.level=error"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip

    def stop(self):
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


@pytest.fixture(scope="module")
def pages():
    served = Pages()
    yield served
    served.server.shutdown()
    served.server.server_close()


@pytest.fixture(scope="module")
def server(pages, tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("prometheus"), pages)
    yield server
    server.stop()


@pytest.fixture
def prometheus(server, debian_tool):
    """The URL of a real Prometheus that scrapes `pages` (see JOBS)."""
    server.start(debian_tool("prometheus"))
    return server.url


@pytest.fixture
def look(client):
    """`await look(discovery, condition)`: refreshes until `condition({pod or URL: page or Failure})`."""

    async def again(discovery, condition):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await discovery.refresh(0.0)
                listing = discovery.listing()
                found = {
                    target.pod or target.url: await client.fetch(target.url, target.access)
                    for target in (listing.targets if listing is not None else ())
                }
                if found and condition(found):
                    return found
                await asyncio.sleep(POLL_S)

    return again


@pytest.fixture
def pod():
    return lambda name, namespace="ai": PodKey(namespace, name)
