"""A call is accepted only if its metadata matches the watched ScaledObject."""

import asyncio
import contextlib
import json
import tracemalloc

import grpc
import pytest

from exporter.model import WorkloadKey
from scaler.api.keda.authorization import CallAuthorizer, Turn
from scaler.api.keda.server import create
from scaler.config import Config, Endpoint, Kubernetes, Workload
from scaler.engine.publisher import Publisher
from scaler.model import Decision, Reason
from scaler.workloads import take
from tests.scaler.api.keda.conftest import pushed
from tests.scaler.workloads.objects import scaled, trigger

CHAT = WorkloadKey("ai", "chat")
DECODE = WorkloadKey("ai", "chat", "decode")
OBSERVED = Workload(
    namespace="ai", name="observed", engine="vllm", pods=Endpoint(dns="observed.ai.svc"), mode="observe"
)
CONFIG = Config(kubernetes=Kubernetes(), workloads=(OBSERVED,))
PATIENCE_S = 60.0


class Front:
    """Runs Tidegate's gRPC server; the test sets the objects of the cluster and the decisions."""

    def __init__(self, patience_s: float = 0.0) -> None:
        self.publisher = Publisher(())
        self.claims = CallAuthorizer()
        self.calls: list[str] = []
        self.logged: list[dict] = []
        self.now = 1000.0
        self.server = create(
            self.publisher,
            claims=self.claims,
            address="127.0.0.1:0",
            tls=None,
            now=lambda: self.now,
            observe=lambda method, _code, _seconds: self.calls.append(method),
            warn=lambda event, **fields: self.logged.append({"event": event, **fields}),
            patience_s=patience_s,
        )

    def set_objects(self, *objects) -> None:
        registry = take(CONFIG, objects, (), ())
        self.publisher.keep_only((workload.key for workload in registry.workloads), 1000.0)
        self.claims.take(registry)

    def decide(self, replicas, workload=CHAT) -> None:
        self.publisher.publish([Decision(workload, replicas, replicas > 0, Reason.SERVING, 1000.0)], 1000.0)


@pytest.fixture
async def front():
    front = Front()
    front.port = await front.server.start()
    yield front
    await front.server.drain(PATIENCE_S)


@pytest.fixture
async def keda(front, keda_for):
    async with grpc.aio.insecure_channel(f"127.0.0.1:{front.port}") as channel:
        yield keda_for(channel, front)


CALL = {"name": "chat", "namespace": "ai"}
NOT_YOURS = "no watched ScaledObject or ScaledJob has an external trigger with this metadata."
TWO = scaled("chat", trigger(engine="vllm"), trigger(name="decode", engine="sglang"))


async def test_polls_and_hpa_syncs_make_three_calls_in_order_with_consistent_answers(front, keda):
    front.set_objects(TWO)
    front.decide(3)
    front.decide(5, DECODE)
    stream = keda.stub.StreamIsActive(keda.ref(**CALL, engine="vllm"), timeout=PATIENCE_S)
    assert await pushed(stream) is True
    for _ in ("poll", "HPA sync", "HPA sync"):
        for engine, replicas in (("vllm", 3), ("sglang", 5)):
            ref = keda.ref(**CALL, engine=engine)
            (spec,) = (await keda.stub.GetMetricSpec(ref)).metricSpecs
            assert (await keda.value(ref, spec.metricName)).metricValueFloat / spec.targetSizeFloat == replicas
            assert await keda.active(ref) is True
    assert front.calls == ["GetMetricSpec", "GetMetrics", "IsActive"] * 6  # an open stream counts at its end


async def test_round_robin_over_two_replicas_gets_the_same_answers(keda_for):
    fronts = Front(), Front()
    ports = [await front.server.start() for front in fronts]
    for front in fronts:
        front.set_objects(TWO)
        front.decide(4)
    policy = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})
    address = "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports)
    async with grpc.aio.insecure_channel(address, options=[("grpc.service_config", policy)]) as channel:
        keda = keda_for(channel, fronts[0])
        ref = keda.ref(**CALL, engine="vllm")
        async with asyncio.timeout(PATIENCE_S):
            while not all("IsActive" in front.calls for front in fronts):
                (spec,) = (await keda.stub.GetMetricSpec(ref)).metricSpecs
                assert (await keda.value(ref, spec.metricName)).metricValue == 4
                assert await keda.active(ref) is True
        code, _ = await keda.refusal(keda.active(keda.ref(**CALL, engine="tgi")))
        assert code is grpc.StatusCode.PERMISSION_DENIED
    for front in fronts:
        await front.server.drain(PATIENCE_S)


@pytest.mark.parametrize(
    ("called", "code", "details"),
    [
        ({"name": "made-up", "engine": "vllm"}, grpc.StatusCode.PERMISSION_DENIED, f"ai/made-up: {NOT_YOURS}"),
        ({"namespace": "other", "engine": "vllm"}, grpc.StatusCode.PERMISSION_DENIED, f"other/chat: {NOT_YOURS}"),
        ({"name": "cpu"}, grpc.StatusCode.PERMISSION_DENIED, f"ai/cpu: {NOT_YOURS}"),
        ({"engine": "vllm", "keep_warm": "1s"}, grpc.StatusCode.PERMISSION_DENIED, f"ai/chat: {NOT_YOURS}"),
        ({"workload": "observed"}, grpc.StatusCode.PERMISSION_DENIED, f"ai/chat: {NOT_YOURS}"),
        (
            {"name": "bad", "engine": "vllm", "keep_warm": "soon", "kep": "1"},
            grpc.StatusCode.INVALID_ARGUMENT,
            "metadata.keep_warm: must be a duration such as 500ms, 5s, 2m or 1h30m, or auto, got 'soon'; metadata.kep:",
        ),
        (
            {"name": "watched", "workload": "observed"},
            grpc.StatusCode.FAILED_PRECONDITION,
            "ai/observed: only observed (`mode: observe`)",
        ),
        ({"name": "lost", "workload": "gone"}, grpc.StatusCode.NOT_FOUND, "ai/gone: no such workload. Add it to"),
        ({"name": "new", "engine": "vllm"}, grpc.StatusCode.UNAVAILABLE, "ai/new: no decision yet"),
    ],
)
async def test_refused_caller_gets_the_cause_and_its_metric_spec(front, keda, called, code, details):
    front.set_objects(
        TWO,
        scaled("cpu", trigger(type="cpu")),
        scaled("bad", trigger(engine="vllm", keep_warm="soon", kep="1")),
        scaled("watched", trigger(workload="observed")),
        scaled("lost", trigger(workload="gone")),
        scaled("new", trigger(engine="vllm")),
    )
    front.decide(3)
    front.decide(3, OBSERVED.key)
    ref = keda.ref(**{**CALL, **called})
    for call in (keda.value(ref), keda.active(ref)):
        got_code, got_details = await keda.refusal(call)
        assert got_code is code
        assert got_details.startswith(details)
    assert len((await keda.stub.GetMetricSpec(ref)).metricSpecs) == 1
    if code is not grpc.StatusCode.UNAVAILABLE:  # a stream waits for the first decision
        assert await keda.stub.StreamIsActive(ref, timeout=PATIENCE_S).code() is code


async def test_difference_is_logged_once_in_ten_minutes_and_never_sent(front, keda):
    front.set_objects(TWO)
    for _ in range(3):
        _, sent = await keda.refusal(keda.active(keda.ref(**CALL, engine="tgi")))
        assert "tgi" not in sent
        assert "vllm" not in sent
    [line] = front.logged
    assert line.pop("peer") == "127.0.0.1"
    assert line == {
        "event": "call refused",
        "scaled_object": "ai/chat",
        "detail": "metadata.engine: the ScaledObject says 'vllm', the call says 'tgi'",
        "suppressed": 0,
    }
    front.now += 600.0
    await keda.refusal(keda.active(keda.ref(**CALL, engine="tgi")))
    assert [each["suppressed"] for each in front.logged] == [0, 2]


async def test_invented_names_do_not_fill_the_log(front, keda):
    front.set_objects(TWO)
    await asyncio.gather(*(keda.refusal(keda.active(keda.ref(f"made-up-{i}", "ai"))) for i in range(300)))
    assert len(front.logged) == 64


async def test_every_call_is_unavailable_before_the_first_list_of_the_cluster(keda):
    code, details = await keda.refusal(keda.active(keda.ref(**CALL, engine="vllm")))
    assert (code, details) == (grpc.StatusCode.UNAVAILABLE, "the cluster's ScaledObjects have not been listed yet")


async def test_known_callers_stay_authorized_and_others_get_unavailable_while_the_api_server_is_down(front, keda):
    front.set_objects(TWO)
    front.decide(3)
    front.claims.lose_sight()
    assert await keda.active(keda.ref(**CALL, engine="vllm")) is True
    for ref in (keda.ref(**CALL, engine="tgi"), keda.ref("new", "ai", engine="vllm")):
        code, details = await keda.refusal(keda.active(ref))
        assert code is grpc.StatusCode.UNAVAILABLE
        assert details.startswith("the Kubernetes API does not answer Tidegate; when it last did: ai/")
    front.set_objects(TWO)
    code, _ = await keda.refusal(keda.active(keda.ref("new", "ai", engine="vllm")))
    assert code is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("after", "code"),
    [
        ([], grpc.StatusCode.PERMISSION_DENIED),
        ([scaled("chat", trigger(engine="sglang"))], grpc.StatusCode.PERMISSION_DENIED),
        ([scaled("chat", trigger(engine="vllm"), maximum=0)], grpc.StatusCode.INVALID_ARGUMENT),
    ],
    ids=["deleted", "changed", "broken"],
)
async def test_stream_ends_when_its_object_no_longer_matches(front, keda, after, code):
    front.set_objects(TWO)
    front.decide(1)
    stream = keda.stub.StreamIsActive(keda.ref(**CALL, engine="vllm"), timeout=PATIENCE_S)
    assert await pushed(stream) is True
    front.set_objects(*after)
    assert await stream.code() is code


async def test_stream_survives_a_new_registry_with_the_same_object(front, keda):
    front.set_objects(TWO)
    front.decide(0)
    stream = keda.stub.StreamIsActive(keda.ref(**CALL, engine="vllm"), timeout=PATIENCE_S)
    assert await pushed(stream) is False
    turn = front.claims.turn("ai", "chat")
    front.set_objects(scaled("other", trigger(engine="vllm")), TWO)
    assert not turn.over
    front.claims.lose_sight()
    front.decide(2)
    assert await pushed(stream) is True


async def test_stream_follows_its_trigger_to_another_key(front, keda):
    front.set_objects(scaled("chat", trigger(engine="sglang"), trigger(engine="vllm")))
    second = WorkloadKey("ai", "chat", "1")
    front.decide(1, second)
    stream = keda.stub.StreamIsActive(keda.ref(**CALL, engine="vllm"), timeout=PATIENCE_S)
    assert await pushed(stream) is True
    front.set_objects(scaled("chat", trigger(engine="vllm")))
    front.decide(0)
    assert await pushed(stream) is False


async def test_stream_of_an_authorized_undecided_workload_waits(front, keda):
    front.set_objects(TWO)
    stream = keda.stub.StreamIsActive(keda.ref(**CALL, engine="vllm"), timeout=PATIENCE_S)
    await keda.refusal(keda.active(keda.ref(**CALL, engine="vllm")))
    front.decide(0)
    assert await pushed(stream) is False


async def test_stream_authorized_before_the_workload_exists_gets_unavailable(front, keda):
    front.claims.take(take(CONFIG, [TWO], (), ()))
    stream = keda.stub.StreamIsActive(keda.ref(**CALL, engine="vllm"), timeout=PATIENCE_S)
    code, details = await keda.refusal(stream.read())
    assert (code, details) == (
        grpc.StatusCode.UNAVAILABLE,
        "ai/chat: no decision yet; waiting for readings",
    )


async def test_ended_turn_waits_for_nothing():
    turn = Turn()
    turn.end()
    async with asyncio.timeout(PATIENCE_S):
        await turn.until(asyncio.Event().wait())


async def test_end_of_a_turn_wakes_its_waiters_and_passes_other_timeouts():
    turn = Turn()
    waits = [asyncio.create_task(turn.until(asyncio.Event().wait())) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await turn.until(asyncio.Event().wait())
    assert not turn.over
    turn.end()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*waits)


async def test_flood_of_invented_names_is_refused_and_delays_no_other_call(front, keda):
    front.set_objects(TWO)
    front.decide(3)
    rogue = [keda.ref(f"made-up-{i}", "ai", engine="vllm") for i in range(500)]
    refused = [keda.refusal(keda.stub.StreamIsActive(ref, timeout=PATIENCE_S).read()) for ref in rogue]
    refused += [keda.refusal(keda.active(ref)) for ref in rogue]
    answers = await asyncio.gather(*refused, *(keda.value(keda.ref(**CALL, engine="vllm")) for _ in range(50)))
    assert {code for code, _ in answers[:1000]} == {grpc.StatusCode.PERMISSION_DENIED}
    assert {value.metricValue for value in answers[1000:]} == {3}


async def test_rejected_calls_leave_nothing_in_memory(front):
    front.set_objects(TWO)

    def flood(round_: str) -> None:
        for i in range(2000):
            for name, metadata in ((f"{round_}-{i}", {}), ("chat", {"engine": f"{round_}-{i}"})):
                with contextlib.suppress(Exception):
                    front.claims.authorize("ai", name, metadata)
                front.claims.turn("ai", name)

    flood("before")
    tracemalloc.start()
    try:
        flood("after")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 20_000  # bytes, for 4,000 calls


async def test_metadata_of_64_kibibytes_is_refused_and_the_next_call_is_answered(front, keda):
    front.set_objects(TWO)
    front.decide(3)
    heap = {f"key-{i}": "v" for i in range(4000)}
    code, details = await keda.refusal(keda.active(keda.ref(**CALL, **heap)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details == "ai/chat: metadata: must have at most 64 keys, got 4000"
    code, _ = await keda.refusal(keda.active(keda.ref(**CALL, engine="v" * 64 * 1024)))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await keda.active(keda.ref(**CALL, engine="vllm")) is True


async def test_many_errors_fit_into_one_bounded_message(front, keda):
    metadata = {f"objective.{'x' * 40}{i}": "\x00🦑" * 40 for i in range(60)}
    front.set_objects(scaled("chat", trigger(**metadata)))
    code, details = await keda.refusal(keda.active(keda.ref(**CALL, **metadata)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.isascii()
    assert "more" in details
