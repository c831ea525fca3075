"""Tidegate is frozen, killed, or begins again while nobody can tell it anything; and the API server falls silent."""

import asyncio
import signal

import grpc
import grpc.aio
import pytest

from exporter.kubernetes.resources import PODS, RESOURCES
from scaler.api.keda import externalscaler_pb2_grpc as rpc
from scaler.controllers.keda import FallbackSpec
from tests.fakes.ports import free_ports
from tests.fakes.warm import WarmProcess
from tests.integration.cluster.keda import Keda
from tests.integration.cluster.place import namespace_of
from tests.integration.cluster.process import Tidegate
from tests.integration.cluster.waiting import asked_again

from .autoscalers import Scaled
from .conftest import QUICK, in_cluster

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
FROZEN_S = 1.5  # longer than a reading is fresh
FALLBACKS = (None, FallbackSpec(3, 6))
# KEDA's client tries again within two minutes at the most; nobody waits for that here.
SOON = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 100)]


class Machine:
    """A daemon that can be killed and begun again at the same addresses."""

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
def own_cluster(new_cluster):
    with new_cluster() as made:
        yield made


@pytest.fixture(scope="module")
def machine(own_cluster, tmp_path_factory):
    folder, (http, port) = tmp_path_factory.mktemp("tidegate"), free_ports(2)
    config = folder / "config.yaml"
    text = in_cluster(own_cluster, ", blind_after: 1s")
    config.write_text(
        text.replace('http: "127.0.0.1:0", grpc: "127.0.0.1:0"', f'http: "127.0.0.1:{http}", grpc: "127.0.0.1:{port}"')
    )
    made = Machine(folder, config)
    made.start()
    yield made
    made.kill()


@pytest.fixture
async def stub(machine):
    async with grpc.aio.insecure_channel(machine.tidegate.grpc, options=SOON) as channel:
        yield rpc.ExternalScalerStub(channel)


class Scene:
    """A workload that works at 3 replicas, and one that sleeps behind a gateway."""

    def __init__(self, place, page, stub, keda):
        self.place, self.page, self.keda = place, page, keda
        self.front = place.service("front", page.epp(held=0, ready=0))
        self.llama = place.deployment("llama", page.vllm(waiting=0, running=14), pods=3)
        place.deployment("asleep")
        bounds = {"minimum": 0, "maximum": 9, **QUICK}
        self.chat = place.scaled_object("chat", target="llama", **bounds)
        self.night = place.scaled_object("night", target="asleep", gateway="front", **bounds)
        self.awake = [Scaled(stub, self.chat, replicas=3, fallback=fallback) for fallback in FALLBACKS]
        self.asleep = [Scaled(stub, self.night, replicas=0, fallback=fallback) for fallback in FALLBACKS]

    async def begins(self):
        # 42 requests at 16 a replica: 2.6, so 3.
        await self.keda.until((3, True), self.chat)
        await self.keda.until((0, False), self.night)
        assert await self.minutes(1) == ([[], []], [[], []])

    async def minutes(self, number):
        """What is ordered: for the one that works without and with a fallback of 6, and for the sleeper likewise."""
        return [await one.minutes(number) for one in self.awake], [await one.minutes(number) for one in self.asleep]

    def replicas(self):
        return [one.replicas for one in self.awake], [one.replicas for one in self.asleep]


@pytest.fixture
async def scene(own_cluster, machine, stub, page, request):
    if machine.spoiled:
        machine.kill()
        await asyncio.to_thread(machine.start)
    place = own_cluster.place(namespace_of(request.node.name))
    made = Scene(place, page, stub, Keda(stub=stub))
    await made.begins()
    yield made
    own_cluster.fake.mend()
    place.clear()


async def test_a_tidegate_that_is_frozen_answers_nobody_and_thawed_it_answers_as_before(machine, scene, stub):
    keda, chat, night = scene.keda, scene.chat, scene.night
    machine.process.send_signal(signal.SIGSTOP)
    try:
        poll = asyncio.create_task(keda.answer(chat))  # KEDA's polls carry no deadline
        _, waiting = await asyncio.wait({poll}, timeout=FROZEN_S)
        assert waiting, "nobody is there to answer"
        with pytest.raises(grpc.aio.AioRpcError, match="DEADLINE_EXCEEDED"):
            await stub.IsActive(keda.ref(chat), timeout=0.2)
    finally:
        machine.process.send_signal(signal.SIGCONT)
    assert await poll == (3, True)
    async with keda.watching(chat) as seen, keda.watching(night) as slept:
        await asked_again(scene.llama.pods[0], 5)
    assert (seen, slept) == ([(3, True)], [(0, False)])
    assert await scene.minutes(1) == ([[], []], [[], []])


async def test_a_tidegate_that_is_killed_never_triggers_a_fallback_and_the_next_one_answers_as_before(machine, scene):
    keda, chat, night = scene.keda, scene.chat, scene.night
    machine.kill()
    assert [await keda.answer(each) for each in (chat, night)] == [UNAVAILABLE, UNAVAILABLE]
    # Even GetMetricSpec fails, so that no metric is known to fall back for.
    assert await scene.minutes(10) == ([[], []], [[], []])

    async with keda.watching(chat) as seen, keda.watching(night) as slept:
        await asyncio.to_thread(machine.start)
        await keda.until((3, True), chat)
        await keda.until((0, False), night)
        # One page says little: what the cluster has is kept until more was seen.
        scene.llama.say(scene.page.vllm(waiting=0, running=0))
        await machine.tidegate.until_evidence(scene.place.name, "chat", running=0.0)
        await machine.tidegate.sweeps(5)
    assert (set(seen), set(slept)) == ({UNAVAILABLE, (3, True)}, {UNAVAILABLE, (0, False)})
    assert await scene.minutes(10) == ([[], []], [[], []])


async def test_a_tidegate_that_begins_while_the_api_server_is_silent_answers_errors_which_wake_who_has_a_fallback(
    own_cluster, machine, scene
):
    keda, chat, night = scene.keda, scene.chat, scene.night
    own_cluster.fake.refuse()
    machine.kill()
    await asyncio.to_thread(machine.start)
    assert [await keda.answer(each) for each in (chat, night)] == [UNAVAILABLE, UNAVAILABLE]
    assert "have not been listed yet" in (await keda.refusal(night))[1]
    await scene.minutes(10)
    assert scene.replicas() == ([3, 6], [0, 6])

    own_cluster.fake.mend()
    await keda.until((3, True), chat)
    await keda.until((0, False), night)
    await scene.minutes(10)
    assert scene.replicas() == ([3, 3], [0, 0])


async def silence(machine, scene, begins):
    """What is answered from when the API server `begins` to be silent until a sleeper is woken all the same."""
    keda, chat, night = scene.keda, scene.chat, scene.night
    async with keda.watching(chat) as seen, keda.watching(night) as slept:
        begins()
        await keda.until(UNAVAILABLE, chat)
        assert await scene.minutes(10) == ([[], [6]], [[], []])
    assert (set(seen), slept) == ({(3, True), UNAVAILABLE}, [(0, False)])
    assert await machine.tidegate.metric('tidegate_kubernetes_synced{resource="pods"}') == 0.0
    assert [line for line in machine.tidegate.logged("Kubernetes watch failed") if line["resource"] == PODS.name]
    scene.front.text = scene.page.epp(held=20, ready=0)
    await keda.until((2, True), night)


async def test_an_api_server_that_stays_silent_is_held_and_then_an_error_and_sleepers_sleep_and_can_be_woken(
    own_cluster, machine, scene
):
    await silence(machine, scene, own_cluster.fake.refuse)
    own_cluster.fake.mend()
    await scene.keda.until((3, True), scene.chat)


async def test_an_api_server_that_refuses_us_is_as_good_as_silent(own_cluster, machine, scene):
    def forbids():
        for resource in RESOURCES:
            own_cluster.fake.forbid(resource)
        own_cluster.fake.disconnect()

    machine.spoiled = True  # who was refused asks again after half a minute at the earliest
    await silence(machine, scene, forbids)
