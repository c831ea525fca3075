"""Tidegate is frozen, killed, or restarted while no component responds to it; and the API server falls silent."""

import asyncio
import signal

import grpc
import grpc.aio
import pytest

from exporter.kubernetes.resources import PODS, RESOURCES
from scaler.api.keda import externalscaler_pb2_grpc as rpc
from scaler.controllers.keda import FallbackSpec
from tests.fakes.daemon import Tidegate
from tests.fakes.keda import Keda
from tests.fakes.ports import free_ports
from tests.fakes.tenant import namespace_of
from tests.fakes.waiting import until_scraped
from tests.fakes.warm import WarmProcess

from .autoscalers import Scaled
from .conftest import QUICK, in_cluster

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
FROZEN_S = 1.5  # longer than a reading is fresh
FALLBACKS = (None, FallbackSpec(3, 6))
# KEDA's client reconnects within two minutes at most; these tests do not wait for that.
SOON = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 100)]


class Machine:
    """A daemon that can be killed and restarted at the same addresses."""

    def __init__(self, folder, config):
        self.folder, self.config, self.starts, self.spoiled = folder, config, 0, False
        self.process = self.tidegate = None

    def start(self):
        self.starts, self.spoiled = self.starts + 1, False
        log = self.folder / f"log-{self.starts}"
        with log.open("wb") as file:
            self.process = WarmProcess("scaler", "run", "-c", self.config, stderr=file)
        self.tidegate = Tidegate(self.process, log)
        return self.tidegate

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def separate_cluster(new_cluster):
    with new_cluster() as created:
        yield created


@pytest.fixture(scope="module")
def machine(separate_cluster, tmp_path_factory):
    folder, (http, port) = tmp_path_factory.mktemp("tidegate"), free_ports(2)
    config = folder / "config.yaml"
    text = in_cluster(separate_cluster, ", blind_after: 1s")
    config.write_text(
        text.replace('http: "127.0.0.1:0", grpc: "127.0.0.1:0"', f'http: "127.0.0.1:{http}", grpc: "127.0.0.1:{port}"')
    )
    created = Machine(folder, config)
    created.start()
    yield created
    created.kill()


@pytest.fixture
async def stub(machine):
    async with grpc.aio.insecure_channel(machine.tidegate.grpc, options=SOON) as channel:
        yield rpc.ExternalScalerStub(channel)


class Scene:
    """A workload with 3 busy replicas, and one that sleeps behind a gateway."""

    def __init__(self, tenant, page, stub, keda):
        self.tenant, self.page, self.keda = tenant, page, keda
        self.front = tenant.service("front", page.epp(held=0, ready=0))
        self.llama = tenant.deployment("llama", page.vllm(waiting=0, running=14), pods=3)
        tenant.deployment("asleep")
        bounds = {"minimum": 0, "maximum": 9, **QUICK}
        self.chat = tenant.scaled_object("chat", target="llama", **bounds)
        self.night = tenant.scaled_object("night", target="asleep", gateway="front", **bounds)
        self.awake = [Scaled(stub, self.chat, replicas=3, fallback=fallback) for fallback in FALLBACKS]
        self.asleep = [Scaled(stub, self.night, replicas=0, fallback=fallback) for fallback in FALLBACKS]

    async def begin(self):
        # 42 requests at 16 per replica: 2.6, so 3.
        await self.keda.until((3, True), self.chat)
        # Without an endpoint of its gateway it sleeps too.
        await until_scraped(self.front, 1)
        await self.keda.until((0, False), self.night)
        assert await self.minutes(1) == ([[], []], [[], []])

    async def minutes(self, number):
        """Replicas ordered for the busy workload without and with a fallback of 6, and the same for the sleeping
        one.
        """
        return [await one.minutes(number) for one in self.awake], [await one.minutes(number) for one in self.asleep]

    def replicas(self):
        return [one.replicas for one in self.awake], [one.replicas for one in self.asleep]


@pytest.fixture
async def scene(separate_cluster, machine, stub, page, request):
    if machine.spoiled:
        machine.kill()
        await asyncio.to_thread(machine.start)
    tenant = separate_cluster.tenant(namespace_of(request.node.name))
    created = Scene(tenant, page, stub, Keda(stub=stub))
    await created.begin()
    yield created
    separate_cluster.fake.mend()
    tenant.clear()


async def test_frozen_tidegate_does_not_respond_and_thawed_it_decides_as_before(machine, scene, stub):
    keda, chat, night = scene.keda, scene.chat, scene.night
    machine.process.send_signal(signal.SIGSTOP)
    try:
        poll = asyncio.create_task(keda.answer(chat))  # KEDA's polls carry no deadline
        _, waiting = await asyncio.wait({poll}, timeout=FROZEN_S)
        assert waiting, "a frozen process must not respond"
        with pytest.raises(grpc.aio.AioRpcError, match="DEADLINE_EXCEEDED"):
            await stub.IsActive(keda.ref(chat), timeout=0.2)
    finally:
        machine.process.send_signal(signal.SIGCONT)
    assert await poll == (3, True)
    async with keda.watching(chat) as responses, keda.watching(night) as slept:
        await until_scraped(scene.llama.pods[0], 5)
    assert (responses, slept) == ([(3, True)], [(0, False)])
    assert await scene.minutes(1) == ([[], []], [[], []])


async def test_killed_tidegate_never_triggers_a_fallback_and_the_next_one_decides_as_before(machine, scene):
    keda, chat, night = scene.keda, scene.chat, scene.night
    machine.kill()
    assert [await keda.answer(each) for each in (chat, night)] == [UNAVAILABLE, UNAVAILABLE]
    # Even GetMetricSpec fails, so that KEDA has no metric to fall back for.
    assert await scene.minutes(10) == ([[], []], [[], []])

    async with keda.watching(chat) as responses, keda.watching(night) as slept:
        await asyncio.to_thread(machine.start)
        await keda.until((3, True), chat)
        await keda.until((0, False), night)
        # One scrape proves little: the present replicas remain the lower bound until the window fills.
        scene.llama.serve(scene.page.vllm(waiting=0, running=0))
        await machine.tidegate.until_evidence(scene.tenant.name, "chat", running=0.0)
        await machine.tidegate.sweeps(5)
    assert (set(responses), set(slept)) == ({UNAVAILABLE, (3, True)}, {UNAVAILABLE, (0, False)})
    assert await scene.minutes(10) == ([[], []], [[], []])


async def test_start_without_an_api_server_responds_with_errors_which_wake_workloads_with_a_fallback(
    separate_cluster, machine, scene
):
    keda, chat, night = scene.keda, scene.chat, scene.night
    separate_cluster.fake.refuse()
    machine.kill()
    await asyncio.to_thread(machine.start)
    assert [await keda.answer(each) for each in (chat, night)] == [UNAVAILABLE, UNAVAILABLE]
    assert "have not been listed yet" in (await keda.refusal(night))[1]
    await scene.minutes(10)
    assert scene.replicas() == ([3, 6], [0, 6])

    separate_cluster.fake.mend()
    await keda.until((3, True), chat)
    await keda.until((0, False), night)
    await scene.minutes(10)
    assert scene.replicas() == ([3, 3], [0, 0])


async def silence(machine, scene, begin):
    """Responses while `begin` silences the API server, until a sleeping workload is woken all the same."""
    keda, chat, night = scene.keda, scene.chat, scene.night
    async with keda.watching(chat) as responses, keda.watching(night) as slept:
        begin()
        await keda.until(UNAVAILABLE, chat)
        assert await scene.minutes(10) == ([[], [6]], [[], []])
    assert (set(responses), slept) == ({(3, True), UNAVAILABLE}, [(0, False)])
    assert await machine.tidegate.metric('tidegate_kubernetes_synced{resource="pods"}') == 0.0
    assert [line for line in machine.tidegate.logged("Kubernetes watch failed") if line["resource"] == PODS.name]
    scene.front.body = scene.page.epp(held=20, ready=0)
    await keda.until((2, True), night)


async def test_silent_api_server_is_held_and_then_an_error_and_sleeping_workloads_can_be_woken(
    separate_cluster, machine, scene
):
    await silence(machine, scene, separate_cluster.fake.refuse)
    separate_cluster.fake.mend()
    await scene.keda.until((3, True), scene.chat)


async def test_api_server_that_denies_access_counts_as_silent(separate_cluster, machine, scene):
    def forbid():
        for resource in RESOURCES:
            separate_cluster.fake.forbid(resource)
        separate_cluster.fake.disconnect()

    machine.spoiled = True  # after a 403 the daemon retries after half a minute at the earliest
    await silence(machine, scene, forbid)
