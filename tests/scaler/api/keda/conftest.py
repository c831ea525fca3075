"""Runs the real gRPC server over loopback in front of a Board in memory, and calls it as KEDA does."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from exporter.model import WorkloadKey
from scaler.api.keda.authorization import CallAuthorizer, ConfiguredWorkloads
from scaler.api.keda.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.api.keda.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.api.keda.server import KedaServer, create
from scaler.api.keda.servicer import METRIC
from scaler.model import Decision, Evidence, Reason

CHAT = WorkloadKey("team-a", "chat")
PATIENCE_S = 60.0  # never waited for: only says which await hung


class Board:
    """Implements the servicer's `Decisions`, and lets a test wait until streams have received an entry or have ended.

    claims: authorizes calls for the workloads of the entries, all of them in mode `act`.
    """

    def __init__(self) -> None:
        self.entries: dict[WorkloadKey, Decision | None] = {}
        self.now = 1000.0
        self.listening: list[Decision | None] = []  # the entry that each waiting stream received last
        self.claims = CallAuthorizer()
        self.claims.take(ConfiguredWorkloads({}))
        self.turn = asyncio.Event()  # set when anything above changes
        self.newer: Decision | None = None  # what a renewal of the evidence publishes

    def decide(self, replicas, *, reason=Reason.SERVING, workload=CHAT, **more) -> Decision:
        """replicas None is unknown; more: fields of Decision."""
        more.setdefault("active", replicas is None or replicas > 0)
        decision = Decision(workload, replicas, reason=reason, decided_at=more.pop("decided_at", self.now), **more)
        self.put(workload, decision)
        return decision

    def unknown(self, stale=(), **more) -> Decision:
        return self.decide(None, reason=Reason.UNKNOWN, evidence=Evidence(stale=tuple(stale)), **more)

    def put(self, workload, decision) -> None:
        self.entries[workload] = decision
        self._claim()
        self._wake()

    def forget(self, workload) -> None:
        del self.entries[workload]
        self._claim()
        self._wake()

    async def until(self, *entries) -> None:
        """Waits until exactly these entries, in any order, are those that the open streams received last."""
        async with asyncio.timeout(PATIENCE_S):
            while sorted(map(id, self.listening)) != sorted(map(id, entries)):
                await self.turn.wait()

    async def renew(self) -> None:
        if self.newer is not None:
            self.put(self.newer.workload, self.newer)

    def get(self, workload) -> Decision | None:
        return self.entries.get(workload)

    def knows(self, workload) -> bool:
        return workload in self.entries

    async def changed(self, workload, last) -> Decision | None:
        if self.entries.get(workload) is last:
            self.listening.append(last)
            self._wake()
            try:
                while self.entries.get(workload) is last and workload in self.entries:
                    await self.turn.wait()
            finally:
                del self.listening[next(i for i, entry in enumerate(self.listening) if entry is last)]
                self._wake()
        return self.entries.get(workload)

    def _claim(self) -> None:
        acting: dict[str, dict[str, bool]] = {}
        for workload in self.entries:
            acting.setdefault(workload.namespace, {})[workload.name] = True
        self.claims.take(ConfiguredWorkloads(acting))

    def _wake(self) -> None:
        self.turn.set()
        self.turn = asyncio.Event()


async def pushed(stream) -> bool:
    """The next push of a stream."""
    message = await stream.read()
    assert message is not grpc.aio.EOF, (await stream.code(), await stream.details())
    return message.result


@dataclass
class Keda:
    """Calls the server as KEDA does."""

    server: KedaServer
    port: int
    channel: grpc.aio.Channel
    observed: list[tuple[str, str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stub = ExternalScalerStub(self.channel)

    def ref(self, name="chat", namespace="team-a", **metadata: str) -> ScaledObjectRef:
        return ScaledObjectRef(
            name=name, namespace=namespace, scalerMetadata={"scalerAddress": "tidegate:6000", **metadata}
        )

    async def value(self, ref: ScaledObjectRef, metric=METRIC) -> Any:
        call = self.stub.GetMetrics(GetMetricsRequest(scaledObjectRef=ref, metricName=metric), timeout=PATIENCE_S)
        (value,) = (await call).metricValues
        return value

    async def active(self, ref: ScaledObjectRef) -> bool:
        return (await self.stub.IsActive(ref, timeout=PATIENCE_S)).result

    async def refusal(self, call) -> tuple[grpc.StatusCode, str]:
        """Returns the status code and the details of a call that must fail."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        return caught.value.code(), caught.value.details()


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
async def keda(board):
    observed: list[tuple[str, str, float]] = []
    server = create(
        board,
        claims=board.claims,
        address="127.0.0.1:0",
        tls=None,
        now=lambda: board.now,
        observe=lambda *call: observed.append(call),
        patience_s=0.0,
    )
    port = await server.start()
    server.set_ready(True)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Keda(server, port, channel, observed)
    await server.drain(PATIENCE_S)


@pytest.fixture
def keda_for():
    """`keda_for(channel, front)`: KEDA on this channel to the server of `front`."""
    return lambda channel, front: Keda(front.server, 0, channel)
