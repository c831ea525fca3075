"""Hostile clients of the HTTP port: all other clients get their responses, and the log stays short."""

import asyncio
import json

import aiohttp
import pytest

from exporter.clock import WallClock
from scaler.config import parse
from scaler.daemon import Daemon
from scaler.net import PLAIN_LIMITS

WORKLOADS = (
    '  - {namespace: ai, name: chat, engine: vllm, pods: {url: "http://127.0.0.1:1/metrics"}, replicas: {min: 1}}\n'
)
MALFORMED = 200


async def test_malformed_requests_and_idle_connections_are_counted_in_few_lines_of_the_log(daemon):
    async with daemon(WORKLOADS) as running:
        port = int(running.http.rpartition(":")[2])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(PLAIN_LIMITS.connections + 20)]
        for _ in range(MALFORMED):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/9.9\r\n\r\n")
            await reader.readline()
            writer.close()
        assert (await running.get("/livez"))[0] == 200
        for _, writer in idle:
            writer.transport.abort()
    lines = [json.loads(line) for line in running.stderr.splitlines()]
    counts = {
        event: [line["count"] for line in lines if line["event"] == event]
        for event in ("malformed request", "connection limit reached")
    }
    assert len(counts["malformed request"]) < 10  # one line per minute
    assert sum(counts["malformed request"]) == MALFORMED
    assert 0 < len(counts["connection limit reached"]) < 10


@pytest.mark.parametrize(("host", "status"), [("tidegate.example.com", 200), ("evil.example", 421)])
async def test_configured_host_names_of_the_http_port_are_accepted(host, status):
    listen = 'listen: {http: "127.0.0.1:0", http_hosts: [tidegate.example.com]}'
    config, _ = parse(f"{listen}\nworkloads:\n{WORKLOADS}", "config.yaml")
    web = Daemon(config, WallClock())._web
    url = f"http://127.0.0.1:{await web.start()}/api/v1/board"
    try:
        async with aiohttp.ClientSession() as session, session.get(url, headers={"Host": host}) as response:
            assert response.status == status
    finally:
        await web.stop()
