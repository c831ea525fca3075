"""A new ScaledObject is answered before KEDA's first poll fails; refused calls stay refused, in bounded time."""

import asyncio

import grpc
import pytest

from exporter.model import WorkloadKey
from scaler.api.keda.authorization import CallAuthorizer
from scaler.api.keda.server import create
from scaler.api.keda.servicer import WAITERS, Patience
from scaler.config import Config, Kubernetes
from scaler.engine.publisher import Publisher
from scaler.model import Decision, Reason
from scaler.workloads import CallRejected, Doubt, RejectedCall, take
from tests.scaler.workloads.objects import scaled, trigger

CHAT = WorkloadKey("ai", "chat")
CALL = {"name": "chat", "namespace": "ai", "engine": "vllm"}
CONFIG = Config(kubernetes=Kubernetes())
NEVER_S = 20.0  # never waited for


class Front:
    """Tidegate's gRPC server over loopback, with a registry and decisions that the test sets."""

    def __init__(self, patience_s):
        self.publisher, self.claims, self.logged, self.now = Publisher(()), CallAuthorizer(), [], 1000.0
        self.server = create(
            self.publisher, claims=self.claims, address="127.0.0.1:0", tls=None, now=lambda: self.now,
            warn=lambda event, **fields: self.logged.append(event), patience_s=patience_s,
        )  # fmt: skip
        self.show()

    def show(self, *objects):
        """The watch brings these objects."""
        registry = take(CONFIG, objects, (), ())
        self.publisher.keep_only((workload.key for workload in registry.workloads), self.now)
        self.claims.take(registry)

    def decide(self, replicas, reason=Reason.SERVING):
        self.publisher.publish([Decision(CHAT, replicas, True, reason, self.now)], self.now)

    async def waits(self):
        """Until a call waits: for the registry, or for a decision."""
        while not self.claims._turns and not self.publisher._waiting:  # noqa: ASYNC110 - neither has an event
            await asyncio.sleep(0)


@pytest.fixture
async def start(keda_for):
    """`front, keda = await start(patience_s)`"""
    begun = []

    async def run(patience_s):
        front = Front(patience_s)
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{await front.server.start()}")
        begun.append((front, channel))
        return front, keda_for(channel, front)

    yield run
    for front, channel in begun:
        await channel.close()
        await front.server.drain(0)


async def test_call_ahead_of_the_watch_gets_the_first_decision(start):
    front, keda = await start(NEVER_S)
    value = asyncio.create_task(keda.value(keda.ref(**CALL)))
    active = asyncio.create_task(keda.active(keda.ref(**CALL)))
    await front.waits()
    front.show(scaled("chat", trigger(engine="vllm")))
    front.decide(None, Reason.UNKNOWN)
    front.now += 1.0
    front.decide(2)
    assert ((await value).metricValue, await active, front.logged) == (2, True, [])


async def test_stream_ahead_of_the_watch_gets_the_first_state(start):
    front, keda = await start(NEVER_S)
    stream = keda.stub.StreamIsActive(keda.ref(**CALL), timeout=NEVER_S)
    await front.waits()
    front.show(scaled("chat", trigger(engine="vllm")))
    front.decide(2)
    assert (await stream.read()).result is True


async def test_call_of_an_edited_object_waits_for_the_edit(start):
    front, keda = await start(NEVER_S)
    front.show(scaled("chat", trigger(engine="sglang")))
    front.decide(1)
    value = asyncio.create_task(keda.value(keda.ref(**CALL)))
    await front.waits()
    front.show(scaled("chat", trigger(engine="vllm")))
    front.decide(2)
    assert (await value).metricValue == 2


async def test_object_that_is_deleted_during_the_wait_is_refused(start):
    front, keda = await start(0.3)
    front.show(scaled("chat", trigger(engine="vllm")))
    value = asyncio.create_task(keda.refusal(keda.value(keda.ref(**CALL))))
    await front.waits()
    front.show()
    assert (await value)[0] is grpc.StatusCode.PERMISSION_DENIED


async def test_stranger_is_refused_after_the_same_time_whether_the_object_exists(start):
    front, keda = await start(0.2)
    front.show(scaled("chat", trigger(engine="vllm")))
    clock, times = asyncio.get_running_loop().time, []
    for name in ("chat", "made-up"):
        begun = clock()
        call = keda.refusal(keda.active(keda.ref(name, "ai", engine="sglang")))
        front.show(scaled("chat", trigger(engine="vllm", keep_warm="1m")))  # an edit ends no wait of a stranger
        code, details = await call
        times.append(clock() - begun)
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert details.startswith(f"ai/{name}: no watched ScaledObject")
    assert min(times) >= 0.2


async def test_call_that_waited_in_vain_is_refused_at_once_from_then_on(start):
    front, keda = await start(1.0)
    await keda.refusal(keda.active(keda.ref(**CALL)))
    begun = asyncio.get_running_loop().time()
    await asyncio.gather(*(keda.refusal(keda.active(keda.ref(**CALL))) for _ in range(20)))
    assert asyncio.get_running_loop().time() - begun < 1.0
    front.show(scaled("chat", trigger(engine="vllm")))
    front.decide(2)
    assert await keda.active(keda.ref(**CALL)) is True


async def test_workload_that_is_unknown_for_long_gets_its_error_at_once(start):
    front, keda = await start(NEVER_S)
    front.show(scaled("chat", trigger(engine="vllm")))
    front.decide(None, Reason.UNKNOWN)
    front.now += NEVER_S
    code, details = await keda.refusal(keda.active(keda.ref(**CALL)))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert details == "ai/chat: unknown for 20 s: not enough readings; see `tidegate explain ai/chat`"


async def test_new_workload_without_readings_gets_its_error_in_the_end(start):
    front, keda = await start(0.2)
    front.show(scaled("chat", trigger(engine="vllm")))
    code, _ = await keda.refusal(keda.active(keda.ref(**CALL)))
    assert code is grpc.StatusCode.UNAVAILABLE


def test_number_of_waiting_calls_of_an_address_is_bounded():
    patience = Patience(3.0, lambda: 0.0)
    waiting = [patience.of("10.0.0.9", number) for number in range(WAITERS)]
    assert {each.__enter__() for each in waiting} == {3.0}
    with patience.of("10.0.0.9", "one more") as rogue, patience.of("10.0.0.5", "KEDA") as keda:
        assert (rogue, keda) == (0.0, 3.0)
    for each in waiting:
        each.__exit__(None, None, None)
    assert not patience._waiters


def test_memory_of_vain_waits_is_bounded_and_ends():
    now = [0.0]
    patience = Patience(3.0, lambda: now[0])
    for number in range(10_000):
        with pytest.raises(RejectedCall), patience.of("10.0.0.9", number):
            raise RejectedCall(CallRejected(Doubt.MISMATCH, ""))
    assert len(patience._in_vain) < 5000
    with patience.of("10.0.0.9", 9_999) as longest_s:
        assert longest_s == 0.0
    now[0] = 600.0
    with patience.of("10.0.0.9", 9_999) as longest_s:
        assert longest_s == 3.0
