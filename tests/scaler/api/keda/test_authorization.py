"""A call is believed only as far as the watched ScaledObject says the same."""

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
from tests.scaler.workloads.objects import scaled, trigger

CHAT = WorkloadKey("ai", "chat")
DECODE = WorkloadKey("ai", "chat", "decode")
SEEN = Workload(namespace="ai", name="seen", engine="vllm", pods=Endpoint(dns="seen.ai.svc"), mode="observe")
CONFIG = Config(kubernetes=Kubernetes(), workloads=(SEEN,))
PATIENCE_S = 20


class Front:
    """Tidegate as KEDA meets it: what the cluster says and what is decided, given by the test."""

    def __init__(self) -> None:
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
        )

    def says(self, *objects) -> None:
        census = take(CONFIG, objects, (), ())
        self.publisher.keep_only((workload.key for workload in census.workloads), 1000.0)
        self.claims.take(census)

    def decide(self, replicas, workload=CHAT) -> None:
        self.publisher.publish([Decision(workload, replicas, replicas > 0, Reason.SERVING, 1000.0)], 1000.0)


@pytest.fixture
async def front():
    front = Front()
    front.port = await front.server.start()
    yield front
    await front.server.drain(PATIENCE_S)


@pytest.fixture
async def keda(front, asking):
    async with grpc.aio.insecure_channel(f"127.0.0.1:{front.port}") as channel:
        yield asking(channel, front)


async def pushed(stream) -> bool:
    message = await stream.read()
    assert message is not grpc.aio.EOF, (await stream.code(), await stream.details())
    return message.result


CALL = {"name": "chat", "namespace": "ai"}
NOT_YOURS = "no watched ScaledObject or ScaledJob has an external trigger with this metadata."
TWO = scaled("chat", trigger(engine="vllm"), trigger(name="decode", engine="sglang"))


async def test_polls_and_hpa_syncs_ask_three_things_in_order_and_hear_one_story(front, keda):
    front.says(TWO)
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
    assert front.calls == ["GetMetricSpec", "GetMetrics", "IsActive"] * 6  # the stream is open: it counts at its end


async def test_round_robin_over_two_tidegates_hears_the_same_from_both(asking):
    fronts = Front(), Front()
    ports = [await front.server.start() for front in fronts]
    for front in fronts:
        front.says(TWO)
        front.decide(4)
    policy = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})
    address = "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports)
    async with grpc.aio.insecure_channel(address, options=[("grpc.service_config", policy)]) as channel:
        keda = asking(channel, fronts[0])
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
    ("called", "code", "words"),
    [
        ({"name": "made-up", "engine": "vllm"}, grpc.StatusCode.PERMISSION_DENIED, f"ai/made-up: {NOT_YOURS}"),
        ({"namespace": "other", "engine": "vllm"}, grpc.StatusCode.PERMISSION_DENIED, f"other/chat: {NOT_YOURS}"),
        ({"name": "cpu"}, grpc.StatusCode.PERMISSION_DENIED, f"ai/cpu: {NOT_YOURS}"),
        ({"engine": "vllm", "keep_warm": "1s"}, grpc.StatusCode.PERMISSION_DENIED, f"ai/chat: {NOT_YOURS}"),
        ({"workload": "seen"}, grpc.StatusCode.PERMISSION_DENIED, f"ai/chat: {NOT_YOURS}"),
        (
            {"name": "bad", "engine": "vllm", "keep_warm": "soon", "kep": "1"},
            grpc.StatusCode.INVALID_ARGUMENT,
            "metadata.keep_warm: must be a duration such as 500ms, 5s, 2m or 1h30m, or auto, got 'soon'; metadata.kep:",
        ),
        (
            {"name": "watched", "workload": "seen"},
            grpc.StatusCode.FAILED_PRECONDITION,
            "ai/seen: only observed (`mode: observe`)",
        ),
        ({"name": "lost", "workload": "gone"}, grpc.StatusCode.NOT_FOUND, "ai/gone: no such workload. Add it to"),
        ({"name": "new", "engine": "vllm"}, grpc.StatusCode.UNAVAILABLE, "ai/new: no decision yet"),
    ],
)
async def test_a_refused_caller_gets_the_cause_and_its_metric_spec(front, keda, called, code, words):
    front.says(
        TWO,
        scaled("cpu", trigger(type="cpu")),
        scaled("bad", trigger(engine="vllm", keep_warm="soon", kep="1")),
        scaled("watched", trigger(workload="seen")),
        scaled("lost", trigger(workload="gone")),
        scaled("new", trigger(engine="vllm")),
    )
    front.decide(3)
    front.decide(3, SEEN.key)
    ref = keda.ref(**{**CALL, **called})
    for answer in (keda.value(ref), keda.active(ref)):
        heard, sentence = await keda.refusal(answer)
        assert heard is code
        assert sentence.startswith(words)
    assert len((await keda.stub.GetMetricSpec(ref)).metricSpecs) == 1
    if code is not grpc.StatusCode.UNAVAILABLE:  # undecided: a stream waits
        assert await keda.stub.StreamIsActive(ref, timeout=PATIENCE_S).code() is code


async def test_what_differs_is_logged_once_in_ten_minutes_and_never_sent(front, keda):
    front.says(TWO)
    for _ in range(3):
        _, sentence = await keda.refusal(keda.active(keda.ref(**CALL, engine="tgi")))
        assert "tgi" not in sentence
        assert "vllm" not in sentence
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


async def test_made_up_names_do_not_fill_the_log(front, keda):
    front.says(TWO)
    await asyncio.gather(*(keda.refusal(keda.active(keda.ref(f"made-up-{i}", "ai"))) for i in range(300)))
    assert len(front.logged) == 64


async def test_before_the_cluster_has_been_listed_every_call_is_unavailable(keda):
    code, words = await keda.refusal(keda.active(keda.ref(**CALL, engine="vllm")))
    assert (code, words) == (grpc.StatusCode.UNAVAILABLE, "the cluster's ScaledObjects have not been listed yet")


async def test_while_the_cluster_does_not_answer_known_callers_stay_authorized_and_others_get_unavailable(front, keda):
    front.says(TWO)
    front.decide(3)
    front.claims.lose_sight()
    assert await keda.active(keda.ref(**CALL, engine="vllm")) is True
    for ref in (keda.ref(**CALL, engine="tgi"), keda.ref("new", "ai", engine="vllm")):
        code, words = await keda.refusal(keda.active(ref))
        assert code is grpc.StatusCode.UNAVAILABLE
        assert words.startswith("the Kubernetes API does not answer Tidegate; when it last did: ai/")
    front.says(TWO)
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
async def test_a_stream_ends_when_its_object_no_longer_says_the_same(front, keda, after, code):
    front.says(TWO)
    front.decide(1)
    stream = keda.stub.StreamIsActive(keda.ref(**CALL, engine="vllm"), timeout=PATIENCE_S)
    assert await pushed(stream) is True
    front.says(*after)
    assert await stream.code() is code


async def test_a_stream_survives_a_census_that_says_the_same_of_its_object(front, keda):
    front.says(TWO)
    front.decide(0)
    stream = keda.stub.StreamIsActive(keda.ref(**CALL, engine="vllm"), timeout=PATIENCE_S)
    assert await pushed(stream) is False
    turn = front.claims.turn("ai", "chat")
    front.says(scaled("other", trigger(engine="vllm")), TWO)
    assert not turn.over
    front.claims.lose_sight()
    front.decide(2)
    assert await pushed(stream) is True


async def test_a_stream_follows_its_trigger_to_another_key(front, keda):
    front.says(scaled("chat", trigger(engine="sglang"), trigger(engine="vllm")))
    second = WorkloadKey("ai", "chat", "1")
    front.decide(1, second)
    stream = keda.stub.StreamIsActive(keda.ref(**CALL, engine="vllm"), timeout=PATIENCE_S)
    assert await pushed(stream) is True
    front.says(scaled("chat", trigger(engine="vllm")))
    front.decide(0)
    assert await pushed(stream) is False


async def test_a_stream_of_an_authorized_undecided_workload_waits(front, keda):
    front.says(TWO)
    stream = keda.stub.StreamIsActive(keda.ref(**CALL, engine="vllm"), timeout=PATIENCE_S)
    await keda.refusal(keda.active(keda.ref(**CALL, engine="vllm")))
    front.decide(0)
    assert await pushed(stream) is False


async def test_a_stream_that_is_authorized_before_the_workload_exists_gets_unavailable(front, keda):
    front.claims.take(take(CONFIG, [TWO], (), ()))
    stream = keda.stub.StreamIsActive(keda.ref(**CALL, engine="vllm"), timeout=PATIENCE_S)
    code, words = await keda.refusal(stream.read())
    assert (code, words) == (
        grpc.StatusCode.UNAVAILABLE,
        "ai/chat: no decision yet; waiting for readings",
    )


async def test_a_turn_that_is_over_waits_for_nothing():
    turn = Turn()
    turn.end()
    async with asyncio.timeout(PATIENCE_S):
        await turn.until(asyncio.Event().wait())


async def test_the_end_of_a_turn_wakes_its_waiters_and_passes_other_timeouts():
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


async def test_a_flood_of_invented_names_is_refused_and_delays_no_other_call(front, keda):
    front.says(TWO)
    front.decide(3)
    rogue = [keda.ref(f"made-up-{i}", "ai", engine="vllm") for i in range(500)]
    refused = [keda.refusal(keda.stub.StreamIsActive(ref, timeout=PATIENCE_S).read()) for ref in rogue]
    refused += [keda.refusal(keda.active(ref)) for ref in rogue]
    answers = await asyncio.gather(*refused, *(keda.value(keda.ref(**CALL, engine="vllm")) for _ in range(50)))
    assert {code for code, _ in answers[:1000]} == {grpc.StatusCode.PERMISSION_DENIED}
    assert {value.metricValue for value in answers[1000:]} == {3}


async def test_nothing_is_stored_of_rejected_calls(front):
    front.says(TWO)

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
    assert kept < 20_000  # bytes, of 4,000 calls


async def test_metadata_of_64_kibibytes_is_refused_and_the_next_call_is_answered(front, keda):
    front.says(TWO)
    front.decide(3)
    heap = {f"key-{i}": "v" for i in range(4000)}
    code, words = await keda.refusal(keda.active(keda.ref(**CALL, **heap)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert words == "ai/chat: metadata: must have at most 64 keys, got 4000"
    code, _ = await keda.refusal(keda.active(keda.ref(**CALL, engine="v" * 64 * 1024)))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await keda.active(keda.ref(**CALL, engine="vllm")) is True


async def test_everything_that_is_wrong_fits_into_one_error(front, keda):
    words = {f"objective.{'x' * 40}{i}": "\x00🦑" * 40 for i in range(60)}
    front.says(scaled("chat", trigger(**words)))
    code, sentence = await keda.refusal(keda.active(keda.ref(**CALL, **words)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence.isascii()
    assert "more" in sentence
