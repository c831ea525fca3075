"""The gRPC server answers KEDA's calls over a real connection."""

import asyncio
from dataclasses import replace

import grpc
import pytest

from exporter.model import WorkloadKey
from scaler.api.keda.externalscaler_pb2 import GetMetricsRequest, MetricSpec, ScaledObjectRef
from scaler.model import Evidence, Reason

SPEC = MetricSpec(metricName="tidegate-replicas", targetSize=1, targetSizeFloat=1.0)


async def test_poll_in_kedas_order_gets_consistent_answers(board, keda):
    board.decide(3)
    (spec,) = (await keda.stub.GetMetricSpec(keda.ref())).metricSpecs
    value = await keda.value(keda.ref(), spec.metricName)
    assert (value.metricName, value.metricValue, value.metricValueFloat) == ("tidegate-replicas", 3, 3.0)
    assert await keda.active(keda.ref()) is True


async def test_sleeping_workload_is_zero_and_inactive(board, keda):
    board.decide(0, reason=Reason.ASLEEP)
    value = await keda.value(keda.ref())
    assert (value.metricValue, value.metricValueFloat) == (0, 0.0)
    assert await keda.active(keda.ref()) is False


@pytest.mark.parametrize(("replicas", "active"), [(2, True), (0, False)])
async def test_held_decision_has_the_held_replicas(board, keda, replicas, active):
    board.decide(replicas, reason=Reason.HELD, held_since=900.0)
    assert (await keda.value(keda.ref())).metricValue == replicas
    assert await keda.active(keda.ref()) is active


@pytest.mark.parametrize(
    "ref",
    [
        ScaledObjectRef(),
        ScaledObjectRef(name="chat", namespace="team-a"),
        ScaledObjectRef(name="absent", namespace="nowhere"),
        ScaledObjectRef(name="chat", namespace="team-a", scalerMetadata={"wrokload": "../x"}),
        ScaledObjectRef(name="Ünknown/", namespace="", scalerMetadata={"k" * 1000: "v" * 60_000}),
    ],
    ids=["empty", "undecided", "unknown", "bad metadata", "odd"],
)
async def test_get_metric_spec_is_the_same_for_all_callers(board, keda, ref):
    board.put(WorkloadKey("team-a", "chat"), None)
    assert list((await keda.stub.GetMetricSpec(ref)).metricSpecs) == [SPEC]


async def test_unknown_workload_is_not_found_with_a_remedy(keda):
    for call in (keda.value(keda.ref()), keda.active(keda.ref())):
        code, details = await keda.refusal(call)
        assert code is grpc.StatusCode.NOT_FOUND
        assert details.startswith("team-a/chat: no such workload. Add it to Tidegate's configuration")


async def test_undecided_workload_is_unavailable_and_not_zero(board, keda):
    board.put(WorkloadKey("team-a", "chat"), None)
    for call in (keda.value(keda.ref()), keda.active(keda.ref())):
        code, details = await keda.refusal(call)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert details == "team-a/chat: no decision yet; waiting for readings"


async def test_error_of_an_unknown_decision_has_reason_duration_and_stale_targets(board, keda):
    board.unknown(stale=["gateway:team-a/chat:http://gw/metrics", "gpus:http://node-1:9400/metrics"])
    board.now += 312.4
    for call in (keda.value(keda.ref()), keda.active(keda.ref())):
        code, details = await keda.refusal(call)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert details == (
            "team-a/chat: unknown for 312 s: no fresh readings from "
            "'gateway:team-a/chat:http://gw/metrics', 'gpus:http://node-1:9400/metrics'"
        )


async def test_error_names_the_targets_that_are_silent_now(board, keda):
    entry = board.unknown(stale=["gpus:http://node-1:9400/metrics"])
    board.newer = replace(entry, evidence=Evidence(stale=("gpus:http://node-2:9400/metrics",)))
    _, details = await keda.refusal(keda.value(keda.ref()))
    assert details == "team-a/chat: unknown for 0 s: no fresh readings from 'gpus:http://node-2:9400/metrics'"


async def test_duration_of_unknown_counts_from_the_start_of_the_hold(board, keda):
    board.unknown(held_since=board.now - 300.0)
    board.now += 5.0
    _, details = await keda.refusal(keda.active(keda.ref()))
    assert details == "team-a/chat: unknown for 305 s: not enough readings; see `tidegate explain team-a/chat`"


async def test_error_with_a_thousand_stale_sources_is_truncated(board, keda):
    board.unknown(stale=[f"gpus:http://{'n' * 200}-{i}/" for i in range(1000)])
    code, details = await keda.refusal(keda.active(keda.ref()))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert details.endswith("and 995 more")


async def test_get_metrics_and_is_active_carry_the_reason(board, keda):
    board.decide(1, reason=Reason.WARM)
    request = GetMetricsRequest(scaledObjectRef=keda.ref(), metricName="tidegate-replicas")
    for call in (keda.stub.GetMetrics(request), keda.stub.IsActive(keda.ref())):
        await call
        assert (await call.trailing_metadata())["tidegate-reason"] == "warm"


async def test_error_carries_the_reason(board, keda):
    board.unknown()
    call = keda.stub.IsActive(keda.ref())
    await keda.refusal(call)
    assert (await call.trailing_metadata())["tidegate-reason"] == "unknown"


@pytest.mark.parametrize("name", ["tidegate-replicas", "s0-tidegate-replicas", "s12-tidegate-replicas"])
async def test_metric_name_is_accepted_with_and_without_the_hpas_prefix(board, keda, name):
    board.decide(4)
    value = await keda.value(keda.ref(), name)
    assert (value.metricName, value.metricValue) == ("tidegate-replicas", 4)


@pytest.mark.parametrize(
    "name", ["", "queue", "s0-", "S0-tidegate-replicas", "s-tidegate-replicas", "tidegate-replicas\n"]
)
async def test_other_metric_name_is_refused(board, keda, name):
    board.decide(4)
    code, details = await keda.refusal(keda.value(keda.ref(), name))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details == f"metricName: must be tidegate-replicas, got {name!r}"


async def test_metadata_can_name_another_workload_of_the_same_namespace(board, keda):
    board.decide(1)
    board.decide(7, workload=WorkloadKey("team-a", "llama"))
    board.decide(9, workload=WorkloadKey("team-b", "llama"))
    assert (await keda.value(keda.ref(workload="llama"))).metricValue == 7


async def test_invalid_metadata_fails_only_the_call_that_sent_it(board, keda):
    board.decide(2)
    good, bad = keda.ref(), keda.ref(wrokload="chat")
    answers = await asyncio.gather(*(keda.value(ref) for ref in (good, bad) * 20), return_exceptions=True)
    assert [value.metricValue for value in answers[::2]] == [2] * 20
    assert {error.code() for error in answers[1::2]} == {grpc.StatusCode.INVALID_ARGUMENT}
    assert answers[1].details() == "metadata.wrokload: unknown key; did you mean 'workload'? Known: workload"


async def test_excessive_metadata_is_an_error_and_no_crash(board, keda):
    board.decide(2)
    heap = {f"ключ-{i}-\x00\n🦑": "ü" * 50 for i in range(300)}
    code, details = await keda.refusal(keda.active(keda.ref(**heap)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.isascii()
    assert len(details) < 300
    assert await keda.active(keda.ref()) is True


async def test_all_calls_of_a_burst_of_four_thousand_are_answered(board, keda):
    board.decide(5)
    ref = keda.ref()
    values = await asyncio.gather(*(keda.value(ref) for _ in range(4000)))
    assert {value.metricValue for value in values} == {5}
