"""Replicas are llama.cpp processes behind a gateway: no request is lost while they start, drain and die."""

import asyncio
import time

import aiohttp

from scaler.cli.demo import llamacpp
from scaler.cli.demo.processes import open_processes
from tests.fakes.waiting import until


async def answer(cluster, tokens=8):
    """(status, tokens) of a request to the gateway."""
    body = {"prompt": "hello", "max_tokens": tokens, "ignore_eos": True}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
        session.post(f"{cluster.gateway_url}/v1/completions", json=body) as response,
    ):
        return response.status, (await response.json())["usage"]["completion_tokens"]


async def until_count(cluster, **wanted):
    """Wait until so many replicas are ready, loading or held."""

    async def counts():
        return {name: len(getattr(cluster, name)) for name in wanted}

    await until(counts, lambda found: found == wanted)


async def test_request_at_zero_replicas_is_held_until_one_is_ready(model):
    async with open_processes(model, llamacpp.USUAL_SERVER) as cluster:
        request = asyncio.create_task(answer(cluster))
        await until_count(cluster, held=1)
        assert 'inference_extension_flow_control_queue_size{fairness_id="default"' in cluster.page()
        assert not request.done()
        cluster.scale(1, time.time())
        assert await request == (200, 8)
        assert cluster.replica_count() == (1, 1)
        assert cluster.tally.woken_at >= cluster.tally.held_at_zero_at


async def test_replica_ends_only_after_its_last_response(model):
    async with open_processes(model, llamacpp.USUAL_SERVER) as cluster:
        cluster.scale(1, time.time())
        await until_count(cluster, ready=1)
        (replica,) = cluster.replicas
        request = asyncio.create_task(answer(cluster, 2_000))
        await until(lambda: asyncio.sleep(0, replica.requests), lambda requests: requests == 1)
        cluster.scale(0, time.time())
        late = asyncio.create_task(answer(cluster))
        await until_count(cluster, draining=1, held=1)  # a new request waits for another replica
        assert await request == (200, 2_000)
        await until_count(cluster, replicas=0)
        cluster.scale(1, time.time())
        assert await late == (200, 8)


async def test_loading_replica_ends_at_once(model):
    async with open_processes(model, llamacpp.USUAL_SERVER) as cluster:
        cluster.scale(1, time.time())
        (process,) = [replica.process for replica in cluster.loading]
        cluster.scale(0, time.time())
        assert cluster.replicas == []
        await until(lambda: asyncio.sleep(0, process.poll()), lambda status: status is not None)
        assert (cluster.tally.changes, cluster.tally.slept) == (2, True)
