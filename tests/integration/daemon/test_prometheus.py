"""A real Prometheus scrapes a real daemon, and PromQL returns the published replicas."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import aiohttp
import pytest

SOON_S = 60.0
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: tidegate
    static_configs: [{{targets: ["{target}"]}}]
"""


@pytest.fixture
def prometheus(tmp_path, debian_tool):
    """`async with prometheus("127.0.0.1:8080") as query:`, and `await query("up")` is a list of (labels, value)."""
    program = debian_tool("prometheus")

    @asynccontextmanager
    async def run(target):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        config = tmp_path / "prometheus.yml"
        config.write_text(CONFIG.format(target=target))
        process = await asyncio.create_subprocess_exec(
            program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            f"--web.listen-address={address}", "--log.level=error",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with aiohttp.ClientSession(f"http://{address}") as session:
                yield lambda promql: _query(session, promql)
        finally:
            process.terminate()
            await process.wait()

    return run


async def _query(session, promql):
    """The result, as soon as there is one."""
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                async with session.get("/api/v1/query", params={"query": promql}) as response:
                    found = json.loads(await response.text())["data"]["result"] if response.status == 200 else []
            except aiohttp.ClientError:
                found = []
            if found:
                return [(series["metric"], float(series["value"][1])) for series in found]
            await asyncio.sleep(0.1)


async def test_prometheus_scrapes_the_daemon_and_promql_finds_the_replicas(daemon, prometheus, targets, vllm, epp):
    targets["engine"].body, targets["gateway"].body = vllm(running=20), epp()
    workload = (
        f'  - {{namespace: ai, name: chat, engine: vllm, pods: {{url: "{targets.url("engine")}"}},\n'
        f'     gateway: {{url: "{targets.url("gateway")}"}}, smoothing: {{up: 0s}}}}\n'
    )
    async with daemon(workload) as running:
        await running.ask.until((2, True))
        async with prometheus(running.http.removeprefix("http://")) as query:
            ((labels, replicas),) = await query('tidegate_replicas{namespace="ai"} > 0')
            assert replicas == await running.ask.replicas() == 2
            assert labels["workload"] == "chat"
            ((labels, _),) = await query('tidegate_reason{workload="chat"} == 1')
            assert labels["reason"] == "serving"
            assert await query('up{job="tidegate"} == 1')
            # An unknown value has no series, so an alert on absence is possible.
            assert await query('absent(tidegate_held_seconds{workload="chat"})')
            # Rates of counters and quantiles of histograms have the expected values.
            assert await query("histogram_quantile(0.99, rate(tidegate_tick_duration_seconds_bucket[10s])) > 0")
            assert await query("rate(tidegate_scrapes_total[10s]) > 0")
