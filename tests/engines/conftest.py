"""Real engines on loopback, and clients that send them requests."""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import aiohttp
import pytest

from scaler.cli.demo import llamacpp
from tests.deploy.shared import module
from tests.fakes.waiting import until

from . import vllm_server

# The ScaledObject of KEDA's calls for `ai/chat`.
SCALED = {
    "metadata": {"namespace": "ai", "name": "chat"},
    "spec": {"triggers": [{"metadata": {"scalerAddress": "t:1"}}]},
}

# Workers that take jobs from a broker.
WORKERS = """\
listen: {{http: "127.0.0.1:{http}", grpc: "127.0.0.1:{grpc}"}}
scrape: {{interval: 0.5s, timeout: 0.5s, wake_interval: 0.5s}}
freshness: {{intervals: 5, hold: 3s}}
tick: 0.1s
workloads:
  - namespace: ai
    name: chat
    gateway: {{url: "{url}", kind: {kind}}}
    model: {queue}
    replicas: {{min: 0, max: 8}}
    objectives: {{work: 2}}
    smoothing: {{up: 0s, down: 0.5s}}
    keep_warm: 2s
"""


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The path of a random model for llama.cpp. Without its packages the test is skipped, and listed at the end of the
    run; with TIDEGATE_REQUIRE_TOOLS=1 it fails.
    """
    for name in llamacpp.PACKAGES:
        module(name, name)
    path = tmp_path_factory.mktemp("model") / "random.gguf"
    llamacpp.write_model(path)
    return path


@pytest.fixture(scope="session")
def vllm_model(tmp_path_factory):
    """The folder of a random model for vLLM. Without vLLM's environment the test is skipped, and listed at the end."""
    if not vllm_server.PYTHON.exists():
        pytest.skip("vLLM is not installed (make test-engines)")
    folder = tmp_path_factory.mktemp("vllm-model")
    vllm_server.write_model(folder)
    return folder


@dataclass(frozen=True)
class Engine:
    """A llama.cpp server. url: its address, without a path."""

    url: str

    async def healthy(self):
        await until(self.status, lambda status: status == 200)

    async def status(self):
        """The HTTP status of its health; None while the port refuses connections."""
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}/health") as response:
                return response.status
        except aiohttp.ClientConnectionError:
            return None

    async def is_asleep(self):
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/props") as response:
            return (await response.json())["is_sleeping"]

    async def page(self):
        """Its metrics, by name."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as response:
            lines = (await response.text()).splitlines()
        pairs = (line.split() for line in lines if not line.startswith("#"))
        return {name.removeprefix("llamacpp:"): float(value) for name, value in pairs}

    async def complete(self, tokens, prompt="hello"):
        """(status, usage) of a request for exactly so many tokens."""
        async with self._completion(tokens, prompt) as response:
            return response.status, (await response.json()).get("usage")

    async def stream(self, tokens):
        """Reads the answer token by token."""
        async with self._completion(tokens, "hello", stream=True) as response:
            await response.read()

    @asynccontextmanager
    async def _completion(self, tokens, prompt, **more):
        body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, **more}
        timeout = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(f"{self.url}/v1/completions", json=body) as response,
        ):
            yield response


@contextmanager
def serving(model, port, **options):
    """A llama.cpp server with these ServerOptions until the block ends."""
    process = llamacpp.start(model, port, llamacpp.ServerOptions(**options))
    try:
        yield Engine(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait()


@contextmanager
def sending(requests):
    """These requests in progress; yields their tasks. Then the clients of those that are left disconnect."""
    tasks = [asyncio.create_task(request) for request in requests]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
