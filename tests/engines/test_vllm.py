"""The real daemon scrapes a real vLLM on CPU while real clients send it requests: both must agree."""

import asyncio
from contextlib import ExitStack

import grpc
import pytest

from exporter.model import Quantity
from tests.fakes.daemon import running
from tests.fakes.keda import Keda
from tests.fakes.ports import free_ports
from tests.fakes.targets import serving_targets
from tests.fakes.waiting import until

from . import vllm_server
from .conftest import sending
from .vllm_server import BLOCK, BLOCKS, MOST_WAITING, SLOTS

pytestmark = pytest.mark.engines

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
TTFT_S = 0.25  # a bound of vLLM's buckets, as 50 ms is
CONFIG = """\
listen: {{http: "127.0.0.1:{http}", grpc: "127.0.0.1:{grpc}"}}
scrape: {{interval: 0.5s, timeout: 0.5s}}
freshness: {{intervals: 5, hold: 3s}}
tick: 0.1s
workloads:
"""
WORKLOAD = """\
  - namespace: ai
    name: {name}
    engine: vllm
    pods: {{urls: ["http://127.0.0.1:{port}/metrics"]}}
    gateway: {{url: "http://{gateway}/metrics", kind: epp}}
    replicas: {{min: 0, max: 8}}
    objectives: {{work: 2}}
    slo: {{ttft: 250ms, itl: 50ms}}
    smoothing: {{up: 0s}}
    keep_warm: 5s
"""
IDLE = (
    'inference_extension_flow_control_queue_size{fairness_id="",priority="0",inference_pool="p"} 0\n'
    'inference_pool_ready_pods{name="p"} 1\n'
)
PROMPT, OUTPUT = 600, 150  # tokens


@pytest.fixture(scope="module")
def ports():
    return dict(zip(("load", "killed"), free_ports(2), strict=True))


@pytest.fixture(scope="module")
def gateways():
    """Metrics of a gateway for each workload: the wake source, which exists at zero."""
    with serving_targets() as targets:
        served = {name: targets.open(address) for name, address in (("load", "127.0.1.1"), ("killed", "127.0.1.2"))}
        for target in served.values():
            target.body = IDLE
            target.url = f"{target.address}:{targets.port}"
        yield served


@pytest.fixture(scope="module")
def start(vllm_model, ports, tmp_path_factory):
    """`start("load")` starts the engine of this workload, once."""
    with ExitStack() as stack:
        started = {}

        def engine(name):
            if name not in started:
                log = tmp_path_factory.mktemp(name) / "vllm.log"
                options = (f"--max-num-queued-reqs={MOST_WAITING}", f"--num-gpu-blocks-override={BLOCKS}")
                serving = vllm_server.serving(vllm_model, ports[name], *options, log=log)
                started[name] = stack.enter_context(serving)
            return started[name]

        yield engine


@pytest.fixture(scope="module")
def tidegate(vllm_model, ports, gateways, tmp_path_factory):
    folder = tmp_path_factory.mktemp("daemon")
    http, grpc_port = free_ports(2)
    config = folder / "config.yaml"
    workloads = [WORKLOAD.format(name=name, port=port, gateway=gateways[name].url) for name, port in ports.items()]
    config.write_text(CONFIG.format(http=http, grpc=grpc_port) + "".join(workloads))
    with running(config, folder / "log") as daemon:
        yield daemon


@pytest.fixture
async def keda(tidegate):
    async with grpc.aio.insecure_channel(tidegate.grpc) as channel:
        yield Keda(channel)


@pytest.fixture
async def engine(start, tidegate):
    """The engine of `load`, which has no request, as the daemon knows."""
    engine = start("load")
    await engine.healthy()
    await engine.stream(4)  # the first request compiles
    await tidegate.until_evidence("ai", "load", waiting=0.0, running=0.0, stale=[])
    await tidegate.sweeps(10)
    return engine


def scaled_object(name):
    triggers = [{"metadata": {"scalerAddress": "tidegate:6000"}}]
    return {"metadata": {"namespace": "ai", "name": name}, "spec": {"triggers": triggers}}


def prompt(number, tokens=PROMPT):
    """A text of so many tokens that no prompt before it begins like, so that none of it is cached."""
    return f"{number:04d}".ljust(tokens, "x")


def requests(engine, numbers, tokens=OUTPUT):
    return [engine.stream(tokens, prompt(number)) for number in numbers]


async def counted(tidegate):
    """Requests that finished, tokens of prompts and of answers, requests by the SLO and those that missed it."""
    names = (
        "requests_finished_total{", 'tokens_total{kind="prompt",', 'tokens_total{kind="generation",',
        "slo_requests_total{", "slo_misses_total{",
    )  # fmt: skip
    series = [f'tidegate_{name}namespace="ai",workload="load"}}' for name in names]
    return [await tidegate.metric(each) or 0.0 for each in series]


async def test_readings_and_slo_are_those_of_the_requests_that_clients_sent(engine, tidegate, keda):
    before = await counted(tidegate)
    with sending(requests(engine, range(6))) as clients:
        entry = await tidegate.until_evidence("ai", "load", waiting=4.0, running=2.0)
        assert entry["replicas"] >= 3  # six requests at two per replica, or more for the SLO
        assert (await keda.answer(scaled_object("load")))[0] >= 3
        # Two prompts, and what they have generated so far.
        least, most = (SLOTS * -(-tokens // BLOCK) for tokens in (PROMPT, PROMPT + OUTPUT))
        blocks = entry["evidence"]["kv_cache_used"] * (BLOCKS - 1)
        assert least <= blocks <= most
        assert blocks == pytest.approx(round(blocks))
        answers = await asyncio.gather(*clients)
    assert {answer.status for answer in answers} == {200}
    late = sum(answer.ttft_s > TTFT_S for answer in answers)
    assert late >= 4  # those that waited
    sent = [6, sum(answer.prompt for answer in answers), sum(answer.generated for answer in answers), 6, late]
    assert sent[:3] == [6, 6 * PROMPT, 6 * OUTPUT]
    wanted = [then + more for then, more in zip(before, sent, strict=True)]

    def agree(now):
        # What the SLO measures is a rate times the time between two scrapes, which is not always the same.
        return now[:3] == wanted[:3] and now[3:] == pytest.approx(wanted[3:], rel=0.1)

    await until(lambda: counted(tidegate), agree)


async def test_request_above_the_limit_of_the_queue_is_refused_and_read_as_failed(engine, tidegate, samples):
    async def failed():
        page = samples(await engine.text())
        return page.column(Quantity.REQUESTS_FAILED).item(), page.column(Quantity.REQUESTS_FINISHED).item()

    before = await failed()
    answers = await asyncio.gather(*requests(engine, range(100, 115), tokens=20))
    refused = sum(answer.status == 503 for answer in answers)
    assert refused >= 15 - SLOTS - MOST_WAITING
    assert sum(answer.status == 200 for answer in answers) == 15 - refused
    assert await failed() == (before[0] + refused, before[1] + 15 - refused)


async def test_request_that_its_client_leaves_ends_and_only_its_first_token_is_counted(engine, tidegate, samples):
    async def page():
        text = samples(await engine.text())
        quantities = (Quantity.FIRST_TOKENS, Quantity.REQUESTS_FINISHED, Quantity.REQUESTS_FAILED)
        return [text.column(quantity).item() for quantity in quantities]

    first_tokens, finished, failed = await page()
    with sending(requests(engine, range(200, 204), tokens=3_000)):
        await tidegate.until_evidence("ai", "load", waiting=2.0, running=2.0)
    await tidegate.until_evidence("ai", "load", waiting=0.0, running=0.0)
    assert await page() == [first_tokens + 2, finished, failed]


async def test_keda_is_told_zero_with_proof_and_woken_by_the_gateway(engine, tidegate, keda, gateways):
    chat = scaled_object("load")
    async with keda.pushes(chat) as next_push:
        while await next_push():
            pass
        assert await keda.answer(chat) == (0, False)
        assert (await tidegate.decision("ai", "load"))["reason"] == "asleep"
        gateways["load"].body = IDLE.replace('inference_pool="p"} 0', 'inference_pool="p"} 1')
        assert await next_push() is True
        replicas, active = await keda.answer(chat)
        assert replicas >= 1
        assert active
        # The gateway passes it on, and the engine works.
        gateways["load"].body = IDLE
        with sending(requests(engine, [300], tokens=400)) as clients:
            await tidegate.until_evidence("ai", "load", running=1.0)
            assert (await keda.answer(chat))[1] is True
            await asyncio.gather(*clients)
    await keda.until((0, False), chat)


async def test_engine_that_is_killed_while_it_works_is_never_zero(start, tidegate, keda):
    chat = scaled_object("killed")
    assert await keda.answer(chat) == UNAVAILABLE  # nothing listens yet
    async with keda.watching(chat) as seen:
        engine = start("killed")
        await engine.healthy()
        await keda.until((1, True), chat)
    assert set(seen) <= {UNAVAILABLE, (1, True)}
    with sending(requests(engine, range(4), tokens=3_000)):
        await tidegate.until_evidence("ai", "killed", waiting=2.0, running=2.0)
        await until(lambda: keda.answer(chat), lambda answer: answer != UNAVAILABLE and answer[0] >= 2)
        async with keda.watching(chat) as seen:
            engine.kill()
            await keda.until(UNAVAILABLE, chat)  # held for three seconds, then an error
    assert all(answer == UNAVAILABLE or (answer[0] >= 2 and answer[1]) for answer in seen), seen
