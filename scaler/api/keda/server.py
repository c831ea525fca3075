"""Listens for KEDA: the external scaler, its health and reflection, with or without TLS.

`create` builds the server inside the running loop, `start` binds, `set_ready` sets the health, `drain` ends it:
NOT_SERVING, every open stream ended with OK (KEDA reopens such a stream after 2 s, and backs off up to 60 s from an
error), then calls in progress get `grace_s` to finish.

A call that Python had not picked up when `stop` begins, or that crosses the GOAWAY, ends CANCELLED, not UNAVAILABLE:
gRPC's core drops pending calls as it shuts down, and offers Python no GOAWAY before that (grpc/grpc#41785, open;
measured with grpcio 1.85.1: 20 drains under 20 pollers of 5 polls/s each, 11 calls, none of which reached an
interceptor). It costs KEDA nothing: it repeats a call at once after any error, by then on another connection.

    server = create(publisher, claims=claims, address="0.0.0.0:6000", tls=None, now=clock.now)
    port = await server.start()
    server.set_ready(True)
    …
    await server.drain(grace_s=5)

`check_answers` calls the server of its own process as KEDA does: through gRPC's threads and the event loop. It uses a
socket of its own, because with mutual TLS the listener wants a client certificate, and the daemon has none.

grpc.health.v1 has two names with the same state: KEDA's service, and the empty name of the whole server, which a
kubelet's grpc probe uses by default. The state of grpcio-health-checking's servicer can only be set from a coroutine.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer, HealthStub, add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2_grpc import add_ServerReflectionServicer_to_server

from scaler.engine.publisher import Publisher
from scaler.tls import ProblemListener, TlsFiles

from .authorization import CallAuthorizer
from .externalscaler_pb2_grpc import add_ExternalScalerServicer_to_server
from .interceptor import SETTLE_S, CallInterceptor, GrpcLimits, Observe
from .servicer import PATIENCE_S, Context, Patience, Quota, RateLimitedLog, Servicer, Warn
from .tls import Rotation

SERVICE: Final = "externalscaler.ExternalScaler"
HEALTH: Final = "grpc.health.v1.Health"
# A check begins CHECK_PAUSE_S after an answer, or CHECK_S after one that is missed began, which is its timeout. An
# answer from memory takes about a millisecond. Two checks in a row are missed 1.5 + 2 x 0.75 = 3 s after the last
# answer at the latest. A check costs 1.7 ms of CPU, gRPC's threads included.
CHECK_PAUSE_S: Final = 1.5
CHECK_S: Final = 0.75
# Any other code comes from the server itself.
_NO_ANSWER: Final = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


def _options(limits: GrpcLimits) -> tuple[tuple[str, int], ...]:
    return (
        # By default a second server shares the port in silence, and the kernel deals connections to both.
        ("grpc.so_reuseport", 0),
        # Calls that arrived and that Python has not picked up yet. From 1,000 on gRPC cancels some, from 3,000 on all:
        # of a burst of 4,000 a third came back CANCELLED.
        ("grpc.server.max_pending_requests", limits.calls),
        ("grpc.server.max_pending_requests_hard_limit", limits.calls),
        ("grpc.max_receive_message_length", limits.message_bytes),
        # KEDA sends no keepalive. Without ours the streams of an operator on a lost node stay open forever.
        ("grpc.keepalive_time_ms", round(limits.ping_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(limits.pong_s * 1000)),
        # Without this one gRPC waits 60 s for the answer, whatever the keepalive's own timeout says.
        ("grpc.http2.ping_timeout_ms", round(limits.pong_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # The client opens another connection, and then this one takes no new calls. It ends with its last stream, and
        # a stream has the same age. Without a bound on the wait gRPC would break the streams, and KEDA backs off.
        ("grpc.max_connection_age_ms", round(limits.age_s * 1000)),
    )


@dataclass(frozen=True)
class KedaServer:
    """A gRPC server. Made by `create`."""

    address: str
    _server: grpc.aio.Server
    _interceptor: CallInterceptor
    _health: GrpcHealth
    _credentials: grpc.ServerCredentials | None
    _check_socket: str

    async def start(self) -> int:
        """Binds and answers, NOT_SERVING at first. Returns the port. Raises OSError that names the address."""
        try:
            if self._credentials is None:
                port = self._server.add_insecure_port(self.address)
            else:
                port = self._server.add_secure_port(self.address, self._credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self.address}: {_why_not(self.address) or error}") from error
        self._server.add_insecure_port(self._check_socket)
        await self._server.start()
        return port

    def set_ready(self, ready: bool) -> None:
        """Sets SERVING or NOT_SERVING, for load balancers. Calls are answered in both."""
        self._health.turn(ready)

    async def check_answers(self, missed: Callable[[int], None]) -> None:
        """Calls the server until it is cancelled. missed: gets the number of checks in a row without an answer."""
        await check_answers(self._check_socket, missed)

    async def drain(self, grace_s: float) -> None:
        """Ends the server. grace_s: seconds for calls in progress; with 0, streams cannot be ended with OK.

        A call can be lost in gRPC as the server stops: no handler ever runs for it, and `stop` waits for it through the
        whole grace (grpcio 1.85.3: one of about 100 shutdowns that met 200 new streams). So once no handler runs, gRPC
        has `SETTLE_S` to end by itself, and then cancels what is left.
        """
        self.set_ready(False)
        await self._interceptor.settle()  # health watches send NOT_SERVING before their streams end
        self._interceptor.end_streams()
        stopping = asyncio.create_task(self._server.stop(grace_s), name="keda drain")
        idle = asyncio.create_task(self._interceptor.idle(), name="keda calls in progress")
        try:
            await asyncio.wait({stopping, idle}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({stopping}, timeout=SETTLE_S)  # the last responses are sent
            if not stopping.done():
                await self._server.stop(None)
        finally:
            idle.cancel()
        await stopping


def create(
    publisher: Publisher,
    *,
    claims: CallAuthorizer,
    address: str,
    tls: TlsFiles | None,
    now: Callable[[], float],
    observe: Observe = lambda _method, _code, _seconds: None,
    on_tls_problem: ProblemListener = lambda _problem: None,
    warn: Warn = lambda _event, **_fields: None,
    limits: GrpcLimits = GrpcLimits(),  # noqa: B008 - frozen
    patience_s: float = PATIENCE_S,
) -> KedaServer:
    """Builds the server; call it in the running loop. Raises BadTlsFiles.

    now:            POSIX seconds.
    observe:        called for every call that ended.
    on_tls_problem: called in the loop when files cannot serve after a rotation, and with None once they can.
    warn:           writes a log line about refused calls: an event and its fields.
    patience_s:     how long a call waits for its object or decision before it is refused.
    """
    loop = asyncio.get_running_loop()
    refusals = RateLimitedLog(now, warn)
    interceptor = CallInterceptor(observe, Quota(lambda: claims.triggers, refusals), limits)
    health = GrpcHealth(SERVICE)
    servicer = Servicer(publisher, claims, now, refusals, Patience(patience_s, now))
    add_ExternalScalerServicer_to_server(servicer, interceptor)  # type: ignore[no-untyped-call]  # generated
    add_HealthServicer_to_server(health, interceptor)
    reflects = reflection.aio.ReflectionServicer((SERVICE, HEALTH, reflection.SERVICE_NAME))
    add_ServerReflectionServicer_to_server(reflects, interceptor)
    server = grpc.aio.server(handlers=(interceptor,), options=_options(limits), maximum_concurrent_rpcs=limits.calls)
    credentials = None
    if tls is not None:
        # gRPC fetches certificates on a thread of its own; `on_tls_problem` is called in the loop.
        credentials = Rotation(tls, lambda problem: _in_loop(loop, on_tls_problem, problem)).credentials()
    return KedaServer(address, server, interceptor, health, credentials, check_socket())


def _in_loop(loop: asyncio.AbstractEventLoop, listener: ProblemListener, problem: str | None) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(listener, problem)


def _why_not(address: str) -> str | None:
    """Why an address cannot be bound. gRPC writes that to stderr alone, so this binds it again."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        return error.strerror
    return None


# ruff: noqa: N802 - the methods are named by the contract


class GrpcHealth(HealthServicer):  # type: ignore[misc]  # the base has no types
    """Answers grpc.health.v1."""

    def __init__(self, service: str) -> None:
        self._services = ("", service)
        self._status = HealthCheckResponse.NOT_SERVING
        self._turned = asyncio.Event()  # of this state; the next state has its own

    def turn(self, serving: bool) -> None:
        self._status = HealthCheckResponse.SERVING if serving else HealthCheckResponse.NOT_SERVING
        self._turned.set()
        self._turned = asyncio.Event()

    async def Check(self, request: HealthCheckRequest, context: Context) -> HealthCheckResponse:
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return HealthCheckResponse(status=self._status)

    async def Watch(self, request: HealthCheckRequest, context: Context) -> None:
        sent = None
        while True:
            turned = self._turned
            exists = request.service in self._services
            status = self._status if exists else HealthCheckResponse.SERVICE_UNKNOWN
            if status != sent:
                sent = status
                await context.write(HealthCheckResponse(status=status))
            await turned.wait()


def check_socket() -> str:
    """A new address for `check_answers`. On Linux it is no file: a killed process leaves nothing behind."""
    name = f"tidegate-{os.getpid()}-{secrets.token_hex(8)}"
    if sys.platform == "linux":
        return f"unix-abstract:{name}"
    return f"unix:{tempfile.mkdtemp(prefix='tidegate-')}/{name}"


async def check_answers(target: str, missed: Callable[[int], None]) -> None:
    """Checks the server until cancelled. missed: gets the number of checks in a row without an answer, 0 after one."""
    misses, wait_s, now = 0, CHECK_PAUSE_S, asyncio.get_running_loop().time
    async with grpc.aio.insecure_channel(target) as channel:
        health = HealthStub(channel)
        while True:
            await asyncio.sleep(wait_s)
            began = now()
            answered = await _answered(health)
            misses = 0 if answered else misses + 1
            missed(misses)
            wait_s = CHECK_PAUSE_S if answered else began + CHECK_S - now()


async def _answered(health: HealthStub) -> bool:
    try:
        async with asyncio.timeout(CHECK_S):
            await health.Check(HealthCheckRequest())
    except TimeoutError:
        return False
    except grpc.aio.AioRpcError as error:
        return error.code() not in _NO_ANSWER
    return True
