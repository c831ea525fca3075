"""The gRPC server reports its health, bounds the age of connections, and drains."""

import asyncio
import contextlib
import signal
import sys

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from scaler.api.keda.externalscaler_pb2 import DESCRIPTOR
from scaler.api.keda.interceptor import GrpcLimits
from scaler.api.keda.server import create
from tests.scaler.api.keda.conftest import Keda

KEDA_KEYS = "externalscaler.ExternalScaler"
SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


async def health(channel, service) -> int:
    return (await HealthStub(channel).Check(HealthCheckRequest(service=service))).status


async def test_health_follows_set_ready_and_calls_are_answered_either_way(board, keda):
    board.decide(1)
    for ready, status in ((True, SERVING), (False, NOT_SERVING), (True, SERVING)):
        keda.server.set_ready(ready)
        assert [await health(keda.channel, service) for service in ("", KEDA_KEYS)] == [status] * 2
        assert (await keda.value(keda.ref())).metricValue == 1


async def test_server_is_not_serving_until_set_ready(board):
    server = create(board, claims=board.claims, address="127.0.0.1:0", tls=None, now=lambda: 0.0)
    port = await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert await health(channel, "") == NOT_SERVING
    await server.drain(20)


async def test_health_of_an_unknown_service_is_not_found(keda):
    code, _ = await keda.refusal(health(keda.channel, "absent"))
    assert code is grpc.StatusCode.NOT_FOUND


async def test_health_watch_gets_changes_and_ends_with_ok(keda):
    watch = HealthStub(keda.channel).Watch(HealthCheckRequest(service=KEDA_KEYS), timeout=60)
    assert (await watch.read()).status == SERVING
    keda.server.set_ready(True)
    assert (
        await health(keda.channel, KEDA_KEYS) == SERVING
    )  # by now the watch has processed the call that changed nothing
    keda.server.set_ready(False)
    assert (await watch.read()).status == NOT_SERVING
    keda.server.set_ready(True)
    assert (await watch.read()).status == SERVING
    await keda.server.drain(20)
    assert (await watch.read()).status == NOT_SERVING
    assert await watch.read() is grpc.aio.EOF
    assert await watch.code() is grpc.StatusCode.OK


async def test_reflection_lists_the_services_and_returns_the_proto(keda):
    async def requests():
        yield ServerReflectionRequest(list_services="")
        yield ServerReflectionRequest(file_containing_symbol=KEDA_KEYS)

    listed, found = [answer async for answer in ServerReflectionStub(keda.channel).ServerReflectionInfo(requests())]
    names = {service.name for service in listed.list_services_response.service}
    assert names == {KEDA_KEYS, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    assert list(found.file_descriptor_response.file_descriptor_proto) == [DESCRIPTOR.serialized_pb]


async def test_port_in_use_is_an_error_with_the_address(board, keda):
    address = f"127.0.0.1:{keda.port}"
    second = create(board, claims=board.claims, address=address, tls=None, now=lambda: 0.0)
    with pytest.raises(OSError, match=f"cannot listen on {address}: Address already in use"):
        await second.start()


async def test_drained_server_accepts_no_calls(board, keda):
    board.decide(1)
    assert await keda.active(keda.ref()) is True
    await keda.server.drain(20)
    code, _ = await keda.refusal(keda.active(keda.ref()))
    assert code is grpc.StatusCode.UNAVAILABLE
    await keda.server.drain(20)  # a second signal changes nothing


async def test_every_call_is_observed_with_its_method_and_code(board, keda):
    board.decide(1)
    await keda.value(keda.ref())
    await keda.active(keda.ref())
    await keda.refusal(keda.active(keda.ref(name="absent")))
    await keda.refusal(keda.value(keda.ref(), "queue"))
    await keda.server.drain(20)  # a client gets an error before the server has finished the call
    assert [call[:2] for call in keda.observed] == [
        ("GetMetrics", "OK"),
        ("IsActive", "OK"),
        ("IsActive", "NOT_FOUND"),
        ("GetMetrics", "INVALID_ARGUMENT"),
    ]
    assert all(0 <= seconds < 20 for _, _, seconds in keda.observed)


async def test_unknown_method_is_unimplemented(keda):
    call = keda.channel.unary_unary(f"/{KEDA_KEYS}/Nothing")
    code, _ = await keda.refusal(call(b""))
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert keda.observed == []


async def test_malformed_message_fails_only_that_call(board, keda):
    board.decide(1)
    call = keda.channel.unary_unary(f"/{KEDA_KEYS}/IsActive")
    await keda.refusal(call(b"\xff\xff\xff"))
    assert await keda.active(keda.ref()) is True


async def test_drain_answers_or_refuses_each_open_call(board, keda):
    board.decide(2)
    calls = [asyncio.create_task(keda.value(keda.ref())) for _ in range(50)]
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    await keda.server.drain(20)
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [outcome.code() for outcome in outcomes if isinstance(outcome, grpc.aio.AioRpcError)]
    answered = [outcome.metricValue for outcome in outcomes if not isinstance(outcome, grpc.aio.AioRpcError)]
    assert set(answered) == {2}
    # gRPC cancels a call that arrived but was not yet picked up (grpc/grpc#41785).
    assert set(refused) <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


@pytest.fixture
async def short_lived(board):
    """A server whose connections and streams end after 0.2 s, and the connections that a relay opens to it."""
    server = create(
        board, claims=board.claims, address="127.0.0.1:0", tls=None, now=lambda: 0.0, limits=GrpcLimits(age_s=0.2)
    )
    port = await server.start()
    connections = []

    async def pump(reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def relay(reader, writer):
        there = await asyncio.open_connection("127.0.0.1", port)
        connections.append(there)
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    proxy = await asyncio.start_server(relay, "127.0.0.1", 0)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}") as channel:
        yield Keda(server, 0, channel), connections
    proxy.close()
    await server.drain(20)


async def test_connection_is_replaced_at_its_maximum_age_and_no_call_fails(board, short_lived):
    board.decide(1)
    keda, connections = short_lived
    async with asyncio.timeout(60.0):
        while len(connections) < 4:
            assert await keda.active(keda.ref()) is True


async def test_stream_ends_with_ok_at_its_maximum_age(board, short_lived):
    # After OK, KEDA opens the stream again without a back-off.
    decision = board.decide(1)
    keda, _ = short_lived
    for _ in range(3):
        stream = keda.stub.StreamIsActive(keda.ref(), timeout=60)
        pushes = [message.result async for message in stream]
        assert pushes in ([True], []), "the push is immediate, unless the stream took 0.2 s to open"
        assert await stream.code() is grpc.StatusCode.OK
    await board.until()
    assert board.get(decision.workload) is decision


async def test_stream_of_a_stopped_client_ends(board):
    """The kernel still acknowledges packets; only a missing ping reply shows the stop. gRPC's default is 60 s."""
    ended = asyncio.Event()
    limits = GrpcLimits(ping_s=1.0, pong_s=1.0)
    server = create(
        board,
        claims=board.claims,
        address="127.0.0.1:0",
        tls=None,
        now=lambda: 0.0,
        observe=lambda *_call: ended.set(),
        limits=limits,
    )
    port = await server.start()
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STOPPED_CLIENT, str(port), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(40):
        assert await client.stdout.readline() == b"open\n"
        client.send_signal(signal.SIGSTOP)
        await ended.wait()
    client.kill()
    await client.wait()
    await server.drain(20)


STOPPED_CLIENT = """
import sys, grpc
from scaler.api.keda.externalscaler_pb2 import ScaledObjectRef
from scaler.api.keda.externalscaler_pb2_grpc import ExternalScalerStub
channel = grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}")
for _ in ExternalScalerStub(channel).StreamMetricSpec(ScaledObjectRef(name="chat", namespace="ai")):
    print("open", flush=True)
"""


async def test_checks_count_consecutive_misses(board):
    server = create(board, claims=board.claims, address="127.0.0.1:0", tls=None, now=lambda: 0.0)
    await server.start()
    misses: asyncio.Queue[int] = asyncio.Queue()
    checks = asyncio.create_task(server.check_answers(misses.put_nowait))
    async with asyncio.timeout(60.0):
        while await misses.get():
            pass
        await server.drain(0)
        while await misses.get() < 3:
            pass
    checks.cancel()


async def test_check_socket_answers_only_health_checks(board):
    """The socket has no TLS, so it must answer no other call."""
    board.decide(1)
    server = create(board, claims=board.claims, address="127.0.0.1:0", tls=None, now=lambda: 0.0)
    await server.start()
    async with grpc.aio.insecure_channel(server._check_socket) as channel:
        keda = Keda(server, 0, channel)
        assert await health(channel, "") == NOT_SERVING
        for call in (keda.active(keda.ref()), keda.stub.StreamIsActive(keda.ref()).read()):
            assert (await keda.refusal(call))[0] is grpc.StatusCode.PERMISSION_DENIED
        reflected = ServerReflectionStub(channel).ServerReflectionInfo(iter([ServerReflectionRequest()]))
        assert await reflected.code() is grpc.StatusCode.PERMISSION_DENIED
    await server.drain(20)
