"""A caller cannot exhaust memory or calls of other callers, and KEDA's operator is never refused."""

import asyncio
import struct
from contextlib import asynccontextmanager

import grpc
import pytest

from scaler.api.keda.authorization import CallAuthorizer
from scaler.api.keda.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.api.keda.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.api.keda.interceptor import GrpcLimits
from scaler.api.keda.server import create
from scaler.api.keda.servicer import CALLS_BESIDE, CALLS_PER_TRIGGER, METRIC, Quota, RateLimitedLog, address
from scaler.config import Config, Kubernetes
from scaler.engine.publisher import Publisher
from scaler.model import Decision, Reason
from scaler.workloads import take
from scaler.workloads.caller_check import MOST_BYTES
from tests.scaler.workloads.objects import scaled, trigger

PATIENCE_S = 60.0
IS_ACTIVE = "/externalscaler.ExternalScaler/IsActive"


@pytest.fixture
def front():
    """`async with front(names, limits) as (port, logged)`: a server for a cluster with these ScaledObjects."""

    @asynccontextmanager
    async def running(names=("chat",), limits=None):
        publisher, claims, logged = Publisher(()), CallAuthorizer(), []
        registry = take(
            Config(kubernetes=Kubernetes()), [scaled(name, trigger(engine="vllm")) for name in names], (), ()
        )
        publisher.keep_only((workload.key for workload in registry.workloads), 0.0)
        claims.take(registry)
        publisher.publish([Decision(each.key, 2, True, Reason.SERVING, 0.0) for each in registry.workloads], 0.0)
        server = create(
            publisher,
            claims=claims,
            address="127.0.0.1:0",
            tls=None,
            now=lambda: 0.0,
            warn=lambda event, **fields: logged.append({"event": event, **fields}),
            limits=limits or GrpcLimits(),
        )
        port = await server.start()
        try:
            yield port, logged
        finally:
            await server.drain(PATIENCE_S)

    return running


@asynccontextmanager
async def caller(port, source="127.0.0.1"):
    """Yields the stub of a client at this address, which reaches the server through a separate relay."""

    async def pump(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    async def relay(reader, writer):
        there = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as channel:
        yield ExternalScalerStub(channel)
    server.close()


def ref(name="chat"):
    return ScaledObjectRef(name=name, namespace="ai", scalerMetadata={"engine": "vllm"})


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("ipv4:10.0.0.5:43122", "10.0.0.5"),
        ("ipv6:%5B::1%5D:57574", "::1"),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", "fe80::1%eth0"),
        ("unix:", "unix"),
    ],
)
def test_calls_are_counted_by_address_without_port(peer, expected):
    assert address(peer) == expected


@pytest.mark.parametrize(("triggers", "quota"), [(0, 256), (1, 260), (1000, 4256)])
def test_quota_grows_with_the_known_triggers(triggers, quota):
    counted = Quota(lambda: triggers, RateLimitedLog(lambda: 0.0, lambda _event, **_fields: None))
    assert [counted.enter("10.0.0.5") for _ in range(quota)] == [None] * quota
    assert f"10.0.0.5 has too many calls open: must be at most {quota} " in counted.enter("10.0.0.5")
    assert counted.enter("10.0.0.6") is None


def test_no_quota_applies_before_the_triggers_are_known():
    counted = Quota(lambda: None, RateLimitedLog(lambda: 0.0, lambda _event, **_fields: None))
    assert {counted.enter("10.0.0.5") for _ in range(10_000)} == {None}


async def test_endless_streams_are_refused_only_to_their_address(front):
    quota = CALLS_PER_TRIGGER + CALLS_BESIDE
    async with front() as (port, logged), caller(port, "127.0.0.2") as rogue, caller(port) as keda:
        streams = [rogue.StreamIsActive(ref()) for _ in range(quota)]
        assert {(await stream.read()).result for stream in streams} == {True}
        for call in (rogue.StreamIsActive(ref()).read(), rogue.IsActive(ref()), rogue.GetMetricSpec(ref())):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert refused.value.details().startswith("127.0.0.2 has too many calls open: must be at most 260 (4 for")
        assert (await keda.IsActive(ref())).result is True
        assert logged == [{"event": "peer over call quota", "peer": "127.0.0.2", "quota": quota, "suppressed": 0}]
        streams[0].cancel()
        await until_answered(rogue)


async def until_answered(stub):
    """Calls until the server has noticed that the client cancelled a stream."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await stub.IsActive(ref())
            except grpc.aio.AioRpcError as refused:
                assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # noqa: PT017
                await asyncio.sleep(0)


async def test_keda_with_hundreds_of_push_triggers_on_one_connection_is_never_refused(front):
    names = [f"chat-{i}" for i in range(400)]  # 1,600 calls at once: six times the quota of an empty cluster
    async with front(names) as (port, logged), caller(port) as keda:
        pushes = [keda.StreamIsActive(ref(name)) for name in names]
        specs = [keda.StreamMetricSpec(ref(name)) for name in names]
        assert {(await stream.read()).result for stream in pushes} == {True}
        assert {len((await stream.read()).metricSpecs) for stream in specs} == {1}
        polls = [keda.GetMetrics(GetMetricsRequest(scaledObjectRef=ref(name), metricName=METRIC)) for name in names]
        syncs = [keda.IsActive(ref(name)) for name in names]
        assert {answer.metricValues[0].metricValue for answer in await asyncio.gather(*polls)} == {2}
        assert {answer.result for answer in await asyncio.gather(*syncs)} == {True}
    assert logged == []


async def test_call_whose_message_does_not_arrive_is_ended(front):
    never = asyncio.Event()

    async def no_message():
        await never.wait()
        yield b""

    async with front(limits=GrpcLimits(receive_s=0.1)) as (port, _):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            for _ in range(2):  # the second time after all of the first have ended
                calls = [channel.stream_unary(IS_ACTIVE)(no_message(), timeout=PATIENCE_S) for _ in range(100)]
                ends = {(await call.code(), await call.details()) for call in calls}
                assert ends == {(grpc.StatusCode.DEADLINE_EXCEEDED, "message: must arrive within 0.1 s")}
                assert (await ExternalScalerStub(channel).IsActive(ref())).result is True
        never.set()


async def test_missing_or_malformed_message_is_an_invalid_argument(front, caplog):
    async with front() as (port, _), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for messages in ([], [b"\xff\xff\xff"]):
            call = channel.stream_unary(IS_ACTIVE)(iter(messages))
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "Traceback" not in caplog.text


async def test_message_announced_too_large_is_refused_before_it_is_sent(front):
    """The client announces 4 MiB and sends one byte; the server ends the stream at once."""
    async with front(limits=GrpcLimits(receive_s=1000.0)) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b""))
        writer.write(frame(HEADERS, END_HEADERS, 1, headers(IS_ACTIVE)))
        writer.write(frame(DATA, 0, 1, struct.pack(">BI", 0, 4 * 1024 * 1024) + b"\0"))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                head = await reader.readexactly(9)
                kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
                await reader.readexactly(int.from_bytes(head[:3], "big"))
                if stream == 1 and (kind == RST_STREAM or (kind == HEADERS and flags & END_STREAM)):
                    break
        writer.close()


DATA, HEADERS, RST_STREAM, SETTINGS = 0, 1, 3, 4  # kinds of HTTP/2 frames, RFC 9113
END_STREAM, END_HEADERS = 1, 4


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def headers(path):
    """Returns literal fields without Huffman coding (RFC 7541, 6.2.2)."""
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers"}
    fields["content-type"] = "application/grpc"
    return b"".join(
        b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )


def test_largest_accepted_trigger_fits_into_a_message():
    """A message has up to MOST_BYTES of metadata, and as much again for the keys that KEDA adds."""
    metadata = {f"{i}": "v" * (MOST_BYTES // 64 - 2) for i in range(64)}
    keda = {"scalerAddress": "a" * 253, "caCert": "c" * (MOST_BYTES - 2048)}
    message = ScaledObjectRef(name="n" * 253, namespace="n" * 63, scalerMetadata={**metadata, **keda})
    assert MOST_BYTES < message.ByteSize() <= GrpcLimits().message_bytes
