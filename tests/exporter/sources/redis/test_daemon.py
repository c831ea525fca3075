"""The daemon wakes a sleeping batch worker from a queue in a real Redis."""

import asyncio

import grpc
import pytest

from tests.integration.daemon import conftest as daemons

daemon = daemons.daemon
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def worker(server, queues, rest=""):
    return (
        "  - namespace: ai\n    name: chat\n    replicas: {min: 0, max: 8}\n    keep_warm: 1.5s\n"
        "    smoothing: {up: 0s, down: 0.3s}\n    objectives: {work: 10}\n"
        f"    gateway: {{redis: {{url: 'redis://127.0.0.1:{server.port}', {queues}}}}}\n{rest}"
    )


async def test_push_wakes_a_sleeping_worker_and_an_empty_queue_lets_it_sleep(daemon, server):
    async with daemon(worker(server, "lists: [jobs], running: {lists: [doing]}")) as running:
        ask = running.ask
        assert (await ask.until((0, False)))[-1] == (0, False)
        stream = ask.stub.StreamIsActive(ask.ref())
        assert (await stream.read()).result is False

        await server.client.rpush("jobs", *range(25))
        async with asyncio.timeout(daemons.SOON_S):
            assert (await stream.read()).result is True
        assert (await ask.until((3, True)))[-1] == (3, True)

        # The queue is empty, but one job is in progress: the worker must not sleep.
        await server.client.delete("jobs")
        await server.client.rpush("doing", "last")
        assert (await ask.until((1, True)))[-1] == (1, True)
        assert (await running.decision())["reason"] == "serving"

        # Redis stops: the decision is held, then it is an error, and never zero.
        server.stop()
        assert await ask.until(UNAVAILABLE) == [(1, True), UNAVAILABLE]
        await server.start().up()
        assert (await ask.until((0, False)))[-1] == (0, False)
        assert (await running.decision())["reason"] == "asleep"
        stream.cancel()


async def test_key_of_a_wrong_type_neither_wakes_nor_scales_down_and_is_reported(daemon, server):
    await server.client.rpush("jobs", *range(15))
    async with daemon(worker(server, "lists: [jobs, more]")) as running:
        assert (await running.ask.until((2, True)))[-1] == (2, True)
        await server.client.delete("jobs")
        await server.client.hset("more", mapping={"a": "1"})
        await running.until_metric('tidegate_reason{namespace="ai",reason="incomplete",workload="chat"} 1')
        assert await running.ask.answer() == (2, True)
    assert "more: is a hash, not a list" in running.stderr


@pytest.mark.parametrize("queues", ["streams: [{key: events, group: workers}]", "celery: [events]"])
async def test_every_kind_of_queue_wakes(daemon, server, queues):
    async with daemon(worker(server, queues)) as running:
        assert (await running.ask.until((0, False)))[-1] == (0, False)
        if "streams" in queues:
            await server.client.xgroup_create("events", "workers", mkstream=True)
            await server.client.xadd("events", {"n": 1})
        else:
            await server.client.rpush("events\x06\x169", "task")
        assert (await running.ask.until((1, True)))[-1] == (1, True)


async def test_tenants_of_one_redis_are_woken_only_by_their_queues(daemon, server):
    queues = "lists: [jobs, scans, broken]"
    tenants = worker(server, queues, "    model: jobs\n") + worker(server, queues, "    model: scans\n").replace(
        "name: chat", "name: other"
    )
    await server.client.set("broken", "is a string")  # the fault of a third tenant
    async with daemon(tenants) as running:
        assert (await running.ask.until((0, False)))[-1] == (0, False)
        await server.client.rpush("scans", "a")
        assert (await running.ask.until((1, True), "other"))[-1] == (1, True)
        assert await running.ask.answer() == (0, False)
