"""Each source is scraped independently, and a failure affects no other source."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

import numpy as np
import pytest

from exporter.agent.agent import STUCK_S, Exporter, PageSource, PodGpus, lines_of, matching_lines
from exporter.catalog import KINDS, Reader, families
from exporter.model import Attribution, Credentials, Failure, FailureKind, Gpu, PodKey, Quantity, Queue, Samples
from exporter.sources.http import HttpLimits, HttpPages
from exporter.textformat import parse
from scaler.cli.agent.serve import Driver, Listener

CHAT, OTHER = PodKey("ai", "chat-0"), PodKey("ai", "chat-1")
GONE = Failure(FailureKind.REFUSED, "connection refused")


class FakeSource:
    """Returns the outcome in `next`; hangs if it is None."""

    def __init__(self, name, outcome):
        self.name, self.next = name, outcome
        self.scrapes = []

    async def samples(self, now):
        self.scrapes.append(now)
        if self.next is None:
            await asyncio.Event().wait()
        return self.next


def gpus(*subjects, watts=100.0):
    return Samples(
        "dcgm", subjects, (Quantity.GPU_POWER,), np.full((len(subjects), 1), watts), np.full(len(subjects), 1000.0)
    )


def of(*pods, uuid="GPU-1", attribution=Attribution.EXCLUSIVE):
    return Gpu(uuid, attribution=attribution, pods=pods)


class Recorder:
    def __init__(self):
        self.changes = []

    def __call__(self, source, failure):
        self.changes.append((source, None if failure is None else failure.kind))


@asynccontextmanager
async def running(clock, *sources, changed=lambda *_: None):
    exporter = Exporter(sources, 5.0, clock, changed=changed, jitter=Random(1))
    task = asyncio.create_task(exporter.run())
    yield exporter
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def pass_rounds(clock, count, sleepers):
    """Advances the clock by `count` rounds; `sleepers` sources finish each of them."""
    for _ in range(count):
        clock.advance(5.0)
        await clock.asleep(sleepers)


async def test_hanging_source_delays_no_other(clock):
    good, hung = FakeSource("good", gpus(of(CHAT))), FakeSource("hung", None)
    async with running(clock, good, hung) as exporter:
        await clock.asleep(2)
        clock.advance(5.0)
        await clock.asleep(1)
        await pass_rounds(clock, 3, 1)
        assert (len(good.scrapes), len(hung.scrapes)) == (4, 1)
        assert [(state.source, state.up) for state in exporter.states] == [("good", True), ("hung", False)]


async def test_hanging_source_fails_the_liveness_probe(clock):
    async with running(clock, FakeSource("hung", None)) as exporter:
        await clock.asleep(1)
        clock.advance(STUCK_S)
        assert exporter.stuck(clock.now()) is None
        assert exporter.stuck(clock.now() + 0.1) == "hung: a scrape must end within 30 s, took 30 s so far"


async def test_last_samples_of_a_failed_source_are_kept(clock):
    source = FakeSource("s", gpus(of(CHAT)))
    async with running(clock, source) as exporter:
        await clock.asleep(1)
        await pass_rounds(clock, 1, 1)
        source.next = GONE
        await pass_rounds(clock, 2, 1)
        (state,) = exporter.states
        assert (state.up, state.scrapes, state.failures) == (False, 3, {FailureKind.REFUSED: 2})
        assert state.samples.subjects == (of(CHAT),)


async def test_change_is_reported_once(clock):
    source, recorder = FakeSource("s", GONE), Recorder()
    async with running(clock, source, changed=recorder):
        await clock.asleep(1)
        await pass_rounds(clock, 3, 1)
        source.next = gpus(of(CHAT))
        await pass_rounds(clock, 3, 1)
        source.next = GONE
        await pass_rounds(clock, 3, 1)
    assert recorder.changes == [("s", FailureKind.REFUSED), ("s", None), ("s", FailureKind.REFUSED)]


async def test_gpus_of_the_pod_are_kept_with_their_other_pods():
    exclusive, shared = of(CHAT), of(CHAT, OTHER, uuid="GPU-2", attribution=Attribution.DEVICE)
    page = gpus(exclusive, shared, of(OTHER, uuid="GPU-3"), Gpu("GPU-4"), Queue("m"))
    kept = await PodGpus(FakeSource("s", page), CHAT).samples(1000.0)
    assert kept.subjects == (exclusive, shared)
    assert kept.values.tolist() == [[100.0], [100.0]]
    assert kept.at.tolist() == [1000.0, 1000.0]


@pytest.mark.parametrize("page", [gpus(), gpus(Gpu("GPU-1")), gpus(of(OTHER))])
async def test_response_without_a_gpu_of_the_pod_is_a_failure(page):
    outcome = await PodGpus(FakeSource("s", page), CHAT).samples(1000.0)
    assert outcome == Failure(FailureKind.PARTIAL, "no GPU has the pod ai/chat-0")


async def test_failure_passes_through_the_pods_filter():
    assert await PodGpus(FakeSource("s", GONE), CHAT).samples(1000.0) == GONE


async def test_target_is_a_source(clock, beside):
    beside.page["metrics"] = 'vllm:num_requests_waiting{model_name="m"} 3\n'
    beside.page["large"] = beside.page["metrics"] + "".join(f"# TYPE vllm:other{n} gauge\n" for n in range(20_000))
    pages = HttpPages(HttpLimits(10.0, 2**20))
    for path in ("metrics", "large"):
        outcome = await PageSource(beside.url(path), "vllm", Credentials(), pages, clock).samples(clock.now())
        assert (outcome.subjects, outcome.values.tolist(), outcome.at.tolist()) == ((Queue("m"),), [[3.0]], [1000.0])
    outcome = await PageSource(beside.url("none"), "vllm", Credentials(), pages, clock).samples(clock.now())
    assert outcome == Failure(FailureKind.STATUS, "HTTP 404 Not Found")
    outcome = await PageSource(beside.url("metrics"), "sglang", Credentials(), pages, clock).samples(clock.now())
    assert outcome.kind is FailureKind.UNREADABLE
    assert "of the kind sglang" in outcome.detail
    await pages.close()


HISTOGRAMS = "".join(f'vllm:e2e_request_latency_seconds_bucket{{le="{n}"}} {n}\n' for n in range(9))
READ = (
    "# TYPE vllm:num_requests_waiting gauge\n"
    'vllm:num_requests_waiting{model_name="m"} 3\n'
    'vllm:num_requests_running\t{model_name="m"} 2\n'
    "  vllm:generation_tokens_total 7\n"
    '{"vllm:prompt_tokens_total",model_name="m"} 1\n'
)


def test_only_the_lines_of_the_kind_are_kept():
    page = "# HELP a b\n" + HISTOGRAMS + READ + 'vllm:num_requests_waiting_by_reason{reason="capacity"} 3\n# EOF'
    assert matching_lines(lines_of("vllm"), page.encode()).decode() == READ + "# EOF"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_selected_lines_of_every_kind_give_the_same_samples(kind):
    page = "".join(f'{name}{{UUID="u",model_name="m",pod="p"}} 1\nother_{name} 2\n' for name in sorted(families(kind)))
    kept = matching_lines(lines_of(kind), page.encode())
    whole, part = (Reader(kind).read(parse(body), 1000.0) for body in (page.encode(), kept))
    assert b"other_" not in kept
    assert (whole.subjects, whole.quantities) == (part.subjects, part.quantities)
    assert np.array_equal(whole.values, part.values, equal_nan=True)


async def test_draining_process_is_live_and_not_ready(clock, get):
    listener = Listener("127.0.0.1", 0, Exporter((), 5.0, clock), clock)
    port = await listener.start()
    assert (await get(port, "/readyz"))[0] == 200
    listener.draining = True
    assert await get(port, "/readyz") == (503, "[-] drain: stopping\n")
    assert (await get(port, "/livez"))[0] == 200
    await listener.stop()


@pytest.mark.parametrize("node", ["gpu-1", None])
async def test_gpus_of_the_driver_are_on_the_configured_node(node):
    driver = Driver(FakeSource("nvml", gpus(Gpu("GPU-a"), Gpu("GPU-b", instance="1"))), node)
    assert (await driver.samples(1000.0)).subjects == (Gpu("GPU-a", node=node), Gpu("GPU-b", instance="1", node=node))


async def test_failed_driver_has_no_node():
    assert await Driver(FakeSource("nvml", GONE), "gpu-1").samples(1000.0) is GONE
