"""Wraps every call of the gRPC server: admits it, receives its message, times it, and ends streams with OK.

KEDA reopens a stream that ended with OK after 2 s. After an error it waits 4, 8, 16, 32 and then 60 s, and only an end
with OK resets that. So a stream ends with OK in two cases: the server drains, or the stream has reached its age. It is
ended only while it waits. A call that is ended inside a message cannot finish, and the drain would wait for its whole
grace.

Every call is served as one that streams its requests. gRPC reads the message of any other call before Python can refuse
the call, and waits for a half-sent message without limit.

Worked example: a peer sends the first half of a message and stops. Its call counts against the quota of its address
from its headers on, and gets DEADLINE_EXCEEDED after `GrpcLimits.receive_s`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from .servicer import Context, Quota, address

# (method, gRPC code, seconds). A stream counts once, when it ends, with the time it was open.
Observe: TypeAlias = Callable[[str, str, float], None]

SETTLE_S, LOOK_S = 0.5, 0.001
# The daemon's own check of its answers, which comes through a Unix socket.
CHECK_PEER, CHECK_METHOD = "unix", "Check"


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """Bounds of the gRPC server.

    calls:         open calls of all peers. An open stream costs about 27 KiB, so all of them 320 MiB. Past it calls
                   get RESOURCE_EXHAUSTED at once. grpc.max_concurrent_streams would make them wait in the client
                   instead, and KEDA's polls wait without a deadline; so that one stays open.
    message_bytes: of one request. KEDA sends a ScaledObjectRef: a namespace and a name (316 bytes at most) and the
                   metadata of one trigger, as a rule under 1 KiB. Any client that reaches the port can hold this
                   memory: 100 half-sent messages of 4 MiB held 400 MiB.
    receive_s:     seconds from the headers of a call to the end of its message. The message follows in the same packet.
    age_s:         seconds after which a connection is replaced, and a stream ended with OK. A new connection goes
                   through the Service again, finds replicas that were added, and uses the present certificate.
    ping_s:        seconds of silence after which a client is pinged.
    pong_s:        seconds that it has to answer. Then its connection is closed and its streams end.
    """

    calls: int = 12_000
    message_bytes: int = 64 * 1024
    receive_s: float = 10.0
    age_s: float = 600.0
    ping_s: float = 60.0
    pong_s: float = 20.0


class CallInterceptor(grpc.GenericRpcHandler):
    """Wraps the handlers of all methods, and finds them by name.

    The generated functions add servicers to it in place of the server. So gRPC knows no method by name: for each that
    it knows, its asyncio server waits for a call of its own, and every call of any method looks at all of those waits,
    with nine methods for a twelfth of a call's instructions. An interceptor of gRPC's own costs a coroutine more.
    """

    def __init__(self, observe: Observe, quota: Quota, limits: GrpcLimits) -> None:
        self._observe = observe
        self._quota = quota
        self._limits = limits
        self._receiving = _Waits(limits.receive_s)
        self._random = Random()  # noqa: S311 - spreads the ends of streams; it is no secret
        self._wrapped: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}  # by full name
        self._streams: set[_Stream] = set()
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._ending = False

    async def settle(self) -> None:
        """Waits until every stream has sent what it has to send, or `SETTLE_S` is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await asyncio.sleep(0)  # streams with an ended turn wake first
                while not all(stream.waiting for stream in self._streams):  # noqa: ASYNC110 - once, for SETTLE_S at most
                    await asyncio.sleep(LOOK_S)

    async def idle(self) -> None:
        """Waits until no handler runs."""
        await self._idle.wait()

    def end_streams(self) -> None:
        """Ends all streams with OK, and from now on every new one at once."""
        self._ending = True
        for stream in self._streams:
            stream.end()

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Nothing to do: the generated functions also register the same handlers by name, below."""

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        for method, handler in handlers.items():
            self._wrapped[f"/{service}/{method}"] = self._wrap(method, handler)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        return self._wrapped.get(handler_call_details.method)

    def _wrap(self, method: str, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
        serialisers = handler.request_deserializer, handler.response_serializer
        if handler.request_streaming:  # reflection, which the client ends
            return grpc.stream_stream_rpc_method_handler(self._reflection(method, handler.stream_stream), *serialisers)
        if handler.response_streaming:
            stream = self._called(method, self._streamed(handler.unary_stream))
            return grpc.stream_stream_rpc_method_handler(stream, *serialisers)
        return grpc.stream_unary_rpc_method_handler(self._called(method, handler.unary_unary), *serialisers)

    async def _admit(self, method: str, peer: str, context: Context) -> None:
        """Counts the call, until `_leave`. Aborts it if its peer may not make it."""
        refused = self._quota.enter(peer)
        self._calls += 1
        self._idle.clear()
        if refused:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, refused)
        if peer == CHECK_PEER and method != CHECK_METHOD:  # this socket has no TLS
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{method}: not served on this socket")

    def _leave(self, peer: str) -> None:
        self._quota.leave(peer)
        self._calls -= 1
        if not self._calls:
            self._idle.set()

    def _called(self, method: str, behaviour: Any) -> Any:
        async def call(_requests: Any, context: Context) -> Any:
            started = time.perf_counter()
            peer = address(context.peer())
            code = grpc.StatusCode.UNKNOWN  # what gRPC makes of any other exception
            try:
                await self._admit(method, peer, context)
                response = await behaviour(await self._message(context), context)
                code = grpc.StatusCode.OK
            except grpc.aio.AbortError:
                code = context.code()
                raise
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            finally:
                self._leave(peer)
                if peer != CHECK_PEER:
                    self._observe(method, code.name, time.perf_counter() - started)
            return response

        return call

    def _reflection(self, method: str, behaviour: Any) -> Any:
        async def call(requests: Any, context: Context) -> None:
            peer = address(context.peer())
            try:
                await self._admit(method, peer, context)
                async for answer in behaviour(requests, context):
                    await context.write(answer)
            finally:
                self._leave(peer)

        return call

    async def _message(self, context: Context) -> Any:
        """The one message of a call. Aborts the call if it does not arrive, or cannot be decoded."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a call is served by a task")
        self._receiving.begin(task)
        in_time = True
        try:
            try:
                message = await context.read()
            finally:
                in_time = self._receiving.end(task)
        except asyncio.CancelledError:
            if in_time or task.uncancel():
                raise  # the client went away
            bound = self._limits.receive_s
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"message: must arrive within {bound:g} s")
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "message: cannot be decoded")
        if message is grpc.aio.EOF:  # none was sent, or gRPC refused it for its size
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "message: a call must have one, got none")
        return message

    def _streamed(self, behaviour: Any) -> Callable[[Any, Context], Awaitable[None]]:
        """The same stream, ended with OK in its next pause once the server drains or the stream has reached its age."""

        async def call(request: Any, context: Context) -> None:
            task = asyncio.current_task()
            if task is None or self._ending:
                return
            stream = _Stream(context, task)
            self._streams.add(stream)
            # Streams that opened together, after a restart of KEDA, do not end together.
            age_s = self._limits.age_s * self._random.uniform(0.5, 1.0)
            timer = asyncio.get_running_loop().call_later(age_s, stream.end)
            try:
                await behaviour(request, stream)
            except asyncio.CancelledError:
                if not stream.ending:
                    raise  # the client went away
                task.uncancel()  # `end` cancelled it: return ends it with OK
            finally:
                timer.cancel()
                self._streams.discard(stream)

        return call


class _Waits:
    """Cancels tasks that wait for too long. All may wait equally long, so they are over in the order in which they
    began, and one timer is enough: one for each call (`asyncio.timeout`) costs a twentieth of a call's instructions.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._until: dict[asyncio.Task[Any], float] = {}  # by the loop's clock, oldest first
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, task: asyncio.Task[Any]) -> None:
        """From now on this task waits, until `end`."""
        loop = asyncio.get_running_loop()
        self._until[task] = until = loop.time() + self._longest_s
        if self._timer is None:
            self._timer = loop.call_at(until, self._cancel)

    def end(self, task: asyncio.Task[Any]) -> bool:
        """Returns whether the task was in time; else it was cancelled."""
        return self._until.pop(task, None) is not None

    def _cancel(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for task, until in list(self._until.items()):
            if until > loop.time():
                self._timer = loop.call_at(until, self._cancel)
                return
            del self._until[task]
            task.cancel()


class _Stream:
    """The context of a stream, which knows whether the stream waits or sends."""

    __slots__ = ("_context", "_task", "ending", "waiting")

    def __init__(self, context: Context, task: asyncio.Task[Any]) -> None:
        self._context = context
        self._task = task
        self.waiting = True
        self.ending = False

    def end(self) -> None:
        """Ends the stream now if it waits, else after the message that it sends."""
        if not self.ending:
            self.ending = True
            if self.waiting:
                self._task.cancel()

    def peer(self) -> str:
        return self._context.peer()

    async def write(self, message: Any) -> None:
        await self._send(self._context.write(message))

    async def abort(self, code: grpc.StatusCode, message: str = "", trailer: tuple[tuple[str, str], ...] = ()) -> None:
        await self._send(self._context.abort(code, message, trailer))

    async def _send(self, sending: Awaitable[None]) -> None:
        self.waiting = False
        await sending
        if self.ending:
            raise asyncio.CancelledError
        self.waiting = True
