"""What KEDA is told, over a real connection."""

import asyncio

import grpc
import pytest

from exporter.model import WorkloadKey
from scaler.api.keda.externalscaler_pb2 import GetMetricsRequest, MetricSpec, ScaledObjectRef
from scaler.model import Reason

SPEC = MetricSpec(metricName="tidegate-replicas", targetSize=1, targetSizeFloat=1.0)


async def test_keda_polls_in_its_order_and_hears_one_story(board, keda):
    board.decide(3)
    (spec,) = (await keda.stub.GetMetricSpec(keda.ref())).metricSpecs
    value = await keda.value(keda.ref(), spec.metricName)
    assert (value.metricName, value.metricValue, value.metricValueFloat) == ("tidegate-replicas", 3, 3.0)
    assert await keda.active(keda.ref()) is True


async def test_a_workload_asleep_is_zero_and_inactive(board, keda):
    board.decide(0, reason=Reason.ASLEEP)
    value = await keda.value(keda.ref())
    assert (value.metricValue, value.metricValueFloat) == (0, 0.0)
    assert await keda.active(keda.ref()) is False


@pytest.mark.parametrize(("replicas", "active"), [(2, True), (0, False)])
async def test_a_held_decision_answers_as_it_was_decided(board, keda, replicas, active):
    board.decide(replicas, reason=Reason.HELD, held_since=900.0)
    assert (await keda.value(keda.ref())).metricValue == replicas
    assert await keda.active(keda.ref()) is active


@pytest.mark.parametrize(
    "ref",
    [
        ScaledObjectRef(),
        ScaledObjectRef(name="chat", namespace="team-a"),
        ScaledObjectRef(name="nobody", namespace="nowhere"),
        ScaledObjectRef(name="chat", namespace="team-a", scalerMetadata={"wrokload": "../x"}),
        ScaledObjectRef(name="Ünknown/", namespace="", scalerMetadata={"k" * 1000: "v" * 60_000}),
    ],
    ids=["empty", "undecided", "unknown", "bad metadata", "odd"],
)
async def test_get_metric_spec_is_the_same_for_all_callers(board, keda, ref):
    board.put(WorkloadKey("team-a", "chat"), None)
    assert list((await keda.stub.GetMetricSpec(ref)).metricSpecs) == [SPEC]


async def test_an_unknown_workload_is_not_found_and_says_what_to_do(keda):
    for answer in (keda.value(keda.ref()), keda.active(keda.ref())):
        code, words = await keda.refusal(answer)
        assert code is grpc.StatusCode.NOT_FOUND
        assert words.startswith("team-a/chat: no such workload. Add it to Tidegate's configuration")


async def test_a_workload_that_is_not_decided_yet_is_unavailable_not_zero(board, keda):
    board.put(WorkloadKey("team-a", "chat"), None)
    for answer in (keda.value(keda.ref()), keda.active(keda.ref())):
        code, words = await keda.refusal(answer)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert words == "team-a/chat: no decision yet; waiting for readings"


async def test_an_unknown_decision_says_why_how_long_and_what_is_stale(board, keda):
    board.unknown(stale=["gateway:team-a/chat:http://gw/metrics", "gpus:http://node-1:9400/metrics"])
    board.now += 312.4
    for answer in (keda.value(keda.ref()), keda.active(keda.ref())):
        code, words = await keda.refusal(answer)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert words == (
            "team-a/chat: unknown for 312 s (unknown); no fresh readings from "
            "'gateway:team-a/chat:http://gw/metrics', 'gpus:http://node-1:9400/metrics'"
        )


async def test_an_answer_that_was_held_first_has_been_unknown_since_its_readings_were_lost(board, keda):
    board.unknown(held_since=board.now - 300.0)
    board.now += 5.0
    _, words = await keda.refusal(keda.active(keda.ref()))
    assert words == "team-a/chat: unknown for 305 s (unknown)"


async def test_a_thousand_stale_sources_still_fit_into_an_error(board, keda):
    board.unknown(stale=[f"gpus:http://{'n' * 200}-{i}/" for i in range(1000)])
    code, words = await keda.refusal(keda.active(keda.ref()))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert words.endswith("and 995 more")


async def test_get_metrics_and_is_active_carry_the_reason(board, keda):
    board.decide(1, reason=Reason.WARM)
    request = GetMetricsRequest(scaledObjectRef=keda.ref(), metricName="tidegate-replicas")
    for call in (keda.stub.GetMetrics(request), keda.stub.IsActive(keda.ref())):
        await call
        assert (await call.trailing_metadata())["tidegate-reason"] == "warm"


async def test_an_error_carries_the_reason_too(board, keda):
    board.unknown()
    call = keda.stub.IsActive(keda.ref())
    await keda.refusal(call)
    assert (await call.trailing_metadata())["tidegate-reason"] == "unknown"


@pytest.mark.parametrize("name", ["tidegate-replicas", "s0-tidegate-replicas", "s12-tidegate-replicas"])
async def test_our_metric_is_answered_with_and_without_the_hpas_prefix(board, keda, name):
    board.decide(4)
    value = await keda.value(keda.ref(), name)
    assert (value.metricName, value.metricValue) == ("tidegate-replicas", 4)


@pytest.mark.parametrize(
    "name", ["", "queue", "s0-", "S0-tidegate-replicas", "s-tidegate-replicas", "tidegate-replicas\n"]
)
async def test_another_metric_is_refused_by_name(board, keda, name):
    board.decide(4)
    code, words = await keda.refusal(keda.value(keda.ref(), name))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert words == f"metricName: must be tidegate-replicas, got {name!r}"


async def test_metadata_names_another_workload_of_the_same_namespace(board, keda):
    board.decide(1)
    board.decide(7, workload=WorkloadKey("team-a", "llama"))
    board.decide(9, workload=WorkloadKey("team-b", "llama"))
    assert (await keda.value(keda.ref(workload="llama"))).metricValue == 7


async def test_bad_metadata_is_an_error_of_its_tenant_alone(board, keda):
    board.decide(2)
    good, bad = keda.ref(), keda.ref(wrokload="chat")
    answers = await asyncio.gather(*(keda.value(ref) for ref in (good, bad) * 20), return_exceptions=True)
    assert [value.metricValue for value in answers[::2]] == [2] * 20
    assert {error.code() for error in answers[1::2]} == {grpc.StatusCode.INVALID_ARGUMENT}
    assert answers[1].details() == "metadata.wrokload: unknown key; did you mean 'workload'? Known: workload"


async def test_metadata_without_measure_is_an_error_not_a_crash(board, keda):
    board.decide(2)
    heap = {f"ключ-{i}-\x00\n🦑": "ü" * 50 for i in range(300)}
    code, words = await keda.refusal(keda.active(keda.ref(**heap)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert words.isascii()
    assert len(words) < 300
    assert await keda.active(keda.ref()) is True


async def test_a_burst_of_four_thousand_calls_is_answered_whole(board, keda):
    board.decide(5)
    ref = keda.ref()
    values = await asyncio.gather(*(keda.value(ref) for _ in range(4000)))
    assert {value.metricValue for value in values} == {5}
