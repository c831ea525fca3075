"""docs/tutorials/quickstart.md, end to end: its ScaledObject and values, a real Redis, the real daemon, and KEDA's
calls.

Only the times are shorter than in the tutorial.
"""

from contextlib import asynccontextmanager

import grpc.aio
import pytest
import yaml

from tests.docs.pages import ROOT
from tests.exporter.sources.redis.conftest import Process, free_ports
from tests.fakes.daemon import running
from tests.fakes.keda import Keda

FOLDER = ROOT / "deploy/quickstart"
SCALED = next(each for each in yaml.safe_load_all((FOLDER / "jobs.yaml").read_text()) if each["kind"] == "ScaledObject")
NAMESPACE, NAME = SCALED["metadata"]["namespace"], SCALED["metadata"]["name"]


def configuration(cluster, redis_port):
    """The tutorial's configuration with the address of this test's Redis and short times."""
    values = yaml.safe_load((FOLDER / "values.yaml").read_text())["config"]
    (workload,) = values["workloads"]
    workload["gateway"]["redis"]["url"] = f"redis://127.0.0.1:{redis_port}"
    workload |= {"keep_warm": "1s", "smoothing": {"up": 0, "down": "0.3s"}}
    return cluster.config(yaml.safe_dump({"workloads": values["workloads"]}))


@pytest.fixture
async def redis(debian_tool, tmp_path):
    process = Process(debian_tool("redis-server", "redis-server"), tmp_path, free_ports(1)[0]).start()
    try:
        yield (await process.up())
    finally:
        await process.client.aclose()
        process.stop()


@pytest.fixture
def daemon(cluster, redis, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(configuration(cluster, redis.port), encoding="utf-8")
    with running(config, tmp_path / "log") as daemon:
        yield daemon


@asynccontextmanager
async def connected(daemon):
    async with grpc.aio.insecure_channel(daemon.grpc) as channel:
        yield Keda(channel)


async def test_quickstart_scales_to_zero_and_back(cluster, redis, daemon):
    tenant = cluster.tenant(NAMESPACE)
    tenant.put(SCALED)
    worker = tenant.deployment(NAME, wanted=1)
    first = worker.pod(listening=False)
    async with connected(daemon) as keda:
        # 5. The first worker has no work: kept warm, then asleep, which is allowed because the list exists.
        await keda.until((0, False), SCALED)
        entry = await daemon.until(lambda entry: entry["reason"] == "asleep", NAMESPACE, NAME)
        assert entry["evidence"]["wake_source"].startswith("the queue on redis://")
        worker.scale(0)
        first.remove()
        await daemon.until_evidence(NAMESPACE, NAME, replicas_wanted=0, replicas_ready=0)

        # 6. Ten jobs at four per worker need three workers, and KEDA receives it over the stream.
        async with keda.pushes(SCALED) as pushed:
            assert await pushed() is False
            await redis.client.rpush("jobs", *range(10))
            assert await pushed() is True
        await keda.until((3, True), SCALED)
        await daemon.until(lambda entry: entry["reason"] == "queued", NAMESPACE, NAME)

        # KEDA starts one worker, which loads; then it is ready, and two more follow.
        worker.scale(1)
        pods = [worker.pod(listening=False, ready=False)]
        await daemon.until(lambda entry: entry["reason"] == "loading", NAMESPACE, NAME)
        worker.scale(3)
        pods[0].put(ready=True)
        pods += [worker.pod(listening=False) for _ in range(2)]

        # Each worker takes a job: work in hand counts like waiting work.
        for _ in pods:
            await redis.client.lmove("jobs", "doing", "LEFT", "RIGHT")
        await daemon.until(lambda entry: entry["reason"] == "serving", NAMESPACE, NAME)
        await daemon.until_evidence(NAMESPACE, NAME, waiting=7.0, running=3.0)
        assert await keda.answer(SCALED) == (3, True)

        # Both lists are empty: the number falls to zero.
        await redis.client.delete("jobs", "doing")
        await keda.until((0, False), SCALED)
    tenant.clear()
