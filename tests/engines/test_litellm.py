"""The real daemon wakes a workload by a real LiteLLM proxy in front of llama.cpp (`make test-engines`)."""

import json
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import grpc
import pytest

from tests.fakes.daemon import end, running
from tests.fakes.keda import Keda
from tests.fakes.ports import free_ports
from tests.fakes.waiting import until

from .conftest import SCALED, serving

pytestmark = pytest.mark.engines

PROGRAM = Path(__file__).resolve().parents[2] / ".venv-litellm" / "bin" / "litellm"
KEY = "sk-of-a-test-on-loopback-0123456789"  # it refuses short ones
CONFIG = """\
listen: {{http: "127.0.0.1:{http}", grpc: "127.0.0.1:{grpc}"}}
scrape: {{interval: 0.5s, timeout: 0.5s, wake_interval: 0.5s}}
freshness: {{intervals: 5, hold: 3s}}
tick: 0.1s
workloads:
  - namespace: ai
    name: chat
    engine: llamacpp
    pods: {{urls: ["http://127.0.0.1:{engine}/metrics"]}}
    gateway:
      url: "http://127.0.0.1:{proxy}/metrics/"
      kind: litellm
      access: {{bearer_file: "{key}"}}
    replicas: {{min: 0, max: 8}}
    keep_warm: 2s
"""
HEADERS = {"Authorization": f"Bearer {KEY}"}


@contextmanager
def proxy_to(engine, port, folder):
    """A LiteLLM proxy on loopback in front of an engine's port, until the block ends."""
    upstream = {"model": "openai/random", "api_base": f"http://127.0.0.1:{engine}/v1", "api_key": "none"}
    config = {
        "model_list": [{"model_name": "random", "litellm_params": upstream}],
        "litellm_settings": {"callbacks": ["prometheus"], "num_retries": 0},
    }
    folder.joinpath("proxy.yaml").write_text(json.dumps(config))
    environment = {
        **os.environ, "LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_DOCS": "True",
    }  # fmt: skip
    environment.pop("PYTHONPATH", None)
    command = [PROGRAM, "--config", folder / "proxy.yaml", "--host", "127.0.0.1", "--port", str(port)]
    with folder.joinpath("proxy.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        yield
    finally:
        end(process)


async def status(port, path, body=None):
    """The HTTP status of a request to the proxy; None while it does not listen."""
    url = f"http://127.0.0.1:{port}{path}"
    try:
        async with (
            aiohttp.ClientSession(headers=HEADERS) as session,
            session.request("GET" if body is None else "POST", url, json=body) as response,
        ):
            return response.status
    except aiohttp.ClientConnectionError:
        return None


async def test_first_request_that_litellm_ever_refuses_wakes_the_workload(model, tmp_path):
    if not PROGRAM.exists():
        pytest.skip("LiteLLM is not installed (make test-engines)")
    http, port, proxy, engine_port = free_ports(4)
    key, config = tmp_path / "key", tmp_path / "config.yaml"
    key.write_text(KEY)
    config.write_text(CONFIG.format(http=http, grpc=port, proxy=proxy, engine=engine_port, key=key))
    request = {"model": "random", "prompt": "hello", "max_tokens": 20}

    async def ask():
        return await status(proxy, "/v1/completions", request)

    with proxy_to(engine_port, proxy, tmp_path), running(config, tmp_path / "tidegate.log") as tidegate:
        await until(lambda: status(proxy, "/health/liveliness"), lambda found: found == 200)
        async with grpc.aio.insecure_channel(tidegate.grpc) as channel:
            keda = Keda(channel)
            with serving(model, engine_port) as engine:
                await engine.healthy()
                # Each scrape is itself a request in flight at the proxy.
                await keda.until((0, False), SCALED)
                assert (await tidegate.decision("ai", "chat"))["reason"] == "asleep"
            # The replica ends; no request has ever come.
            await tidegate.until_metric('tidegate_stale_targets{namespace="ai",workload="chat"}', 1.0)
            assert await keda.answer(SCALED) == (0, False)
            async with keda.pushes(SCALED) as next_push:
                while await next_push():
                    pass
                assert await ask() == 500
                assert await next_push() is True
            assert await keda.answer(SCALED) == (1, True)
            with serving(model, engine_port) as engine:
                await engine.healthy()
                assert await ask() == 200
                await keda.until((0, False), SCALED)
