"""StreamIsActive pushes changes of `active` to KEDA. The next push proves that there was none before it."""

import asyncio
import contextlib

import grpc
import pytest

from exporter.model import WorkloadKey
from scaler.model import Reason
from tests.scaler.api.keda.conftest import pushed

CHAT = WorkloadKey("team-a", "chat")


@pytest.fixture
async def listen(keda):
    """Opens StreamIsActive; `await stream.read()` is the next push."""

    def opened(ref=None):
        return keda.stub.StreamIsActive(ref or keda.ref(), timeout=60)

    return opened


@pytest.mark.parametrize("replicas", [0, 3])
async def test_current_state_is_pushed_on_connect(board, listen, replicas):
    board.decide(replicas)
    assert await pushed(listen()) is (replicas > 0)


async def test_only_changes_of_active_are_pushed(board, listen):
    board.decide(0, reason=Reason.ASLEEP)
    stream = listen()
    assert await pushed(stream) is False
    await board.until(board.decide(0, reason=Reason.HELD))
    board.decide(1)
    assert await pushed(stream) is True
    await board.until(board.decide(2))
    await board.until(board.decide(5, reason=Reason.CAPPED))
    board.decide(0)
    assert await pushed(stream) is False


@pytest.mark.parametrize("active", [True, False])
async def test_unknown_state_is_not_pushed(board, listen, active):
    board.put(CHAT, None)
    stream = listen()
    await board.until(None)
    await board.until(board.unknown(active=not active))
    board.decide(int(active))
    assert await pushed(stream) is active


async def test_active_workload_that_becomes_unknown_is_not_pushed(board, listen):
    board.decide(1)
    stream = listen()
    assert await pushed(stream) is True
    await board.until(board.unknown())
    await board.until(board.decide(2))
    board.decide(0)
    assert await pushed(stream) is False


async def test_invalid_metadata_and_unknown_workloads_are_errors_at_once(keda, listen):
    for ref, code in (
        (keda.ref(workload="team-b/chat"), grpc.StatusCode.INVALID_ARGUMENT),
        (keda.ref(), grpc.StatusCode.NOT_FOUND),
    ):
        assert await listen(ref).code() is code


async def test_stream_of_a_removed_workload_ends_with_not_found(board, listen):
    board.decide(1)
    stream = listen()
    assert await pushed(stream) is True
    board.forget(CHAT)
    assert await stream.code() is grpc.StatusCode.NOT_FOUND


async def test_disconnected_client_leaves_no_task_behind(board, keda, listen):
    decision = board.decide(1)
    assert await keda.active(keda.ref())  # from here on, the tasks of the server and of the connection exist
    before = asyncio.all_tasks()
    streams = [listen() for _ in range(20)]
    for stream in streams:
        assert await pushed(stream) is True
    await board.until(*[decision] * 20)
    for stream in streams:
        stream.cancel()
    await board.until()
    async with asyncio.timeout(60.0):
        while len(asyncio.all_tasks()) > len(before):
            await asyncio.wait(asyncio.all_tasks() - before, return_when=asyncio.FIRST_COMPLETED)
    assert [call[:2] for call in keda.observed if call[0] == "StreamIsActive"] == [("StreamIsActive", "CANCELLED")] * 20


async def test_two_streams_of_one_workload_both_get_the_push(board, listen):
    board.decide(0)
    first, second = listen(), listen()
    assert [await pushed(first), await pushed(second)] == [False, False]
    board.decide(1)
    assert [await pushed(first), await pushed(second)] == [True, True]


async def test_stream_of_metric_specs_sends_them_once_and_ends_with_the_server(keda):
    stream = keda.stub.StreamMetricSpec(keda.ref(wrokload="chat"), timeout=60)
    assert await stream.read() == await keda.stub.GetMetricSpec(keda.ref())
    await keda.server.drain(20)
    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK


async def test_shutdown_ends_every_stream_with_ok(board, keda, listen):
    decided, undecided = keda.ref(), keda.ref(name="new")
    decision = board.decide(1)
    board.put(WorkloadKey("team-a", "new"), None)
    streams = [listen(decided), listen(undecided)]
    assert await pushed(streams[0]) is True
    await board.until(decision, None)
    await keda.server.drain(20)
    assert [await stream.code() for stream in streams] == [grpc.StatusCode.OK] * 2
    assert [call[:2] for call in keda.observed] == [("StreamIsActive", "OK")] * 2


async def test_push_in_progress_arrives_before_the_shutdown_ends_its_stream(board, keda, listen):
    board.put(CHAT, None)
    stream = listen()
    await board.until(None)
    board.decide(1)
    # The stream wakes before the drain's second step: its message is on its way when the streams are ended.
    async with asyncio.timeout(60.0):
        await keda.server.drain(60)  # a call that cannot finish would use the whole grace period
    assert await pushed(stream) is True
    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK


async def test_streams_that_open_during_a_shutdown_do_not_delay_it(board, keda, listen):
    async def end(stream) -> grpc.StatusCode:
        with contextlib.suppress(grpc.aio.AioRpcError):
            assert await stream.read() is grpc.aio.EOF
        return await stream.code()

    board.put(CHAT, None)
    streams = [listen() for _ in range(200)]
    ends = [asyncio.create_task(end(stream)) for stream in streams]
    async with asyncio.timeout(60.0):
        while not board.listening:
            await board.turn.wait()
        await keda.server.drain(60)
    codes = set(await asyncio.gather(*ends))
    # gRPC cancels a call that arrived but was not yet picked up (grpc/grpc#41785).
    assert grpc.StatusCode.OK in codes
    assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE}
