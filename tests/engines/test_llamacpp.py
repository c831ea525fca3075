"""The real daemon scrapes real llama.cpp servers while real clients send them requests: both must agree."""

import asyncio
import os
from contextlib import ExitStack

import pytest

from tests.fakes.daemon import running
from tests.fakes.ports import free_ports
from tests.fakes.waiting import until

from .conftest import sending, serving

# Each test has an engine of its own; one daemon scrapes them all.
WORKLOADS = ("load", "cancelled", "asleep", "restarted")
CONFIG = """\
listen: {{http: "127.0.0.1:{http}", grpc: "127.0.0.1:{grpc}"}}
scrape: {{interval: 0.3s, timeout: 0.3s}}
freshness: {{intervals: 5, hold: 2s}}
tick: 0.1s
workloads:
"""
WORKLOAD = """\
  - namespace: ai
    name: {name}
    engine: llamacpp
    pods: {{urls: ["http://127.0.0.1:{port}/metrics"]}}
    replicas: {{min: 1, max: 8}}
    objectives: {{work: 2}}
    smoothing: {{up: 0s}}
"""
SLOTS = 2
LONG = 1_200  # tokens: several scrapes


@pytest.fixture(scope="module")
def ports():
    return dict(zip(WORKLOADS, free_ports(len(WORKLOADS)), strict=True))


@pytest.fixture(scope="module")
def tidegate(model, ports, tmp_path_factory):
    folder = tmp_path_factory.mktemp("daemon")
    http, grpc = free_ports(2)
    config = folder / "config.yaml"
    workloads = "".join(WORKLOAD.format(name=name, port=port) for name, port in ports.items())
    config.write_text(CONFIG.format(http=http, grpc=grpc) + workloads)
    with running(config, folder / "log") as daemon:
        yield daemon


@pytest.fixture
def start(model, ports):
    """`start("load", slots=2)` starts the engine of this workload."""
    with ExitStack() as stack:
        yield lambda name, **options: stack.enter_context(serving(model, ports[name], **options))


async def tokens(tidegate, name):
    """(prompt, generated) tokens that the daemon has counted."""
    series = 'tidegate_tokens_total{{kind="{}",namespace="ai",workload="{}"}}'
    return tuple([await tidegate.metric(series.format(kind, name)) or 0.0 for kind in ("prompt", "generation")])


async def client(engine, enough):
    """Sends requests, one after the other, until it is enough; returns their usages."""
    usages = []
    while not enough.is_set():
        status, usage = await engine.complete(LONG)
        assert status == 200
        usages.append(usage)
    return usages


async def test_queue_and_tokens_are_those_of_the_requests_that_clients_sent(tidegate, start):
    engine = start("load", slots=SLOTS)
    await engine.healthy()
    await tidegate.until_evidence("ai", "load", waiting=0.0, running=0.0)
    before = await tokens(tidegate, "load")
    seen = asyncio.Event()
    with sending(client(engine, seen) for _ in range(6)) as clients:
        entry = await tidegate.until_evidence("ai", "load", waiting=4.0, running=2.0)
        assert entry["replicas"] == 3  # six requests at two per replica
        seen.set()
        usages = [usage for usages in await asyncio.gather(*clients) for usage in usages]
    # Its counter of prompt tokens leaves out those that it had in its cache.
    read = sum(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    generated = sum(usage["completion_tokens"] for usage in usages)
    assert generated == len(usages) * LONG
    await tidegate.until_evidence("ai", "load", waiting=0.0, running=0.0)
    counted = (before[0] + read, before[1] + generated)
    assert await until(lambda: tokens(tidegate, "load"), lambda now: now[1] >= counted[1]) == counted


async def test_rejected_request_is_no_work(tidegate, start):
    engine = start("load", slots=SLOTS, context=1024)
    await engine.healthy()
    status, _ = await engine.complete(8, prompt="x" * 2000)
    assert status == 400
    page = await engine.page()
    assert page["requests_deferred"] == page["requests_processing"] == page["prompt_tokens_total"] == 0
    await tidegate.until_evidence("ai", "load", waiting=0.0, running=0.0)


async def test_stream_that_its_client_leaves_is_no_work_any_more(tidegate, start):
    engine = start("cancelled", slots=SLOTS)
    await engine.healthy()
    with sending(engine.stream(5 * LONG) for _ in range(5)):
        await tidegate.until_evidence("ai", "cancelled", waiting=3.0, running=2.0)
    await tidegate.until_evidence("ai", "cancelled", waiting=0.0, running=0.0)
    assert (await engine.page())["tokens_predicted_total"] < 5 * 5 * LONG


async def test_request_that_its_client_leaves_is_work_until_the_engine_has_ended_it(tidegate, start):
    # llama.cpp notices only in a stream that the client has left.
    engine = start("cancelled", slots=SLOTS)
    await engine.healthy()
    with sending([engine.complete(3 * LONG)]):
        await tidegate.until_evidence("ai", "cancelled", running=1.0)
    await tidegate.until_evidence("ai", "cancelled", running=0.0)
    assert (await engine.page())["tokens_predicted_total"] == 3 * LONG


async def test_sleeping_server_is_read_as_idle_and_scrapes_do_not_wake_it(tidegate, start):
    engine = start("asleep", sleep_idle_s=1)
    await engine.healthy()
    assert (await engine.complete(4))[0] == 200
    await until(engine.is_asleep, bool)  # though it is scraped three times a second
    await tidegate.sweeps(10)
    entry = await tidegate.decision("ai", "asleep")
    assert (entry["evidence"]["running"], entry["evidence"]["stale"]) == (0.0, [])
    assert await engine.is_asleep()
    assert (await engine.complete(4))[0] == 200
    assert not await engine.is_asleep()
    await until(lambda: tokens(tidegate, "asleep"), lambda counted: counted[1] >= 4)


async def test_loading_server_has_no_readings_until_it_serves(tidegate, ports, start, tmp_path):
    # A model that never comes: the server answers 503 while it waits for it.
    pipe = tmp_path / "model.gguf"
    os.mkfifo(pipe)
    with serving(pipe, ports["restarted"]) as loading:
        await until(loading.status, lambda status: status == 503)
        entry = await tidegate.until(lambda entry: entry["evidence"]["stale"], "ai", "restarted")
        assert entry["evidence"]["running"] is None
        assert entry["replicas"] is None
    engine = start("restarted")
    await engine.healthy()
    entry = await tidegate.until_evidence("ai", "restarted", waiting=0.0, running=0.0)
    assert entry["replicas"] == 1
