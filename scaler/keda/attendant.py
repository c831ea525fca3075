"""Goes with every call: times it, and ends the open streams with OK when the server drains.

KEDA reopens a stream that ended with OK after 2 s, and backs off up to 60 s from any other end. A stream is ended
where it waits for something to say, never inside a message: a call whose message was cut off on its way cannot be
finished any more, and would keep the drain waiting for its whole grace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc

from .servicer import Context

# (method, gRPC code, seconds). A stream counts once, when it ends, with the time it was open.
Observe: TypeAlias = Callable[[str, str, float], None]


SETTLE_S, LOOK_S = 0.5, 0.001


class Attendant(grpc.aio.ServerInterceptor):
    def __init__(self, observe: Observe) -> None:
        self._observe = observe
        self._open: set[asyncio.Task[Any]] = set()  # all streams
        self._waiting: set[asyncio.Task[Any]] = set()  # those with nothing to say just now
        self._ending = False

    async def settle(self) -> None:
        """Until every stream has said what there is to say, or a client has not taken it for too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await asyncio.sleep(0)  # who waits for a turn that has come wakes first
                while self._open - self._waiting:  # noqa: ASYNC110 - once, and for half a second at the most
                    await asyncio.sleep(LOOK_S)

    def end_streams(self) -> None:
        """For good: a stream that comes later is ended at once."""
        self._ending = True
        for task in self._waiting:
            task.cancel()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method.rpartition("/")[2]
        if handler is None or handler.request_streaming:  # no such method; reflection, which the client ends
            return handler
        serialisers = handler.request_deserializer, handler.response_serializer
        if handler.response_streaming:
            stream = self._timed(method, self._ended(handler.unary_stream))
            return grpc.unary_stream_rpc_method_handler(stream, *serialisers)
        return grpc.unary_unary_rpc_method_handler(self._timed(method, handler.unary_unary), *serialisers)

    def _timed(self, method: str, behaviour: Any) -> Any:
        async def call(request: Any, context: Context) -> Any:
            started = time.perf_counter()
            code = grpc.StatusCode.UNKNOWN  # what gRPC makes of any other exception
            try:
                response = await behaviour(request, context)
                code = grpc.StatusCode.OK
            except grpc.aio.AbortError:
                code = context.code()
                raise
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            finally:
                self._observe(method, code.name, time.perf_counter() - started)
            return response

        return call

    def _ended(self, behaviour: Any) -> Callable[[Any, Context], Awaitable[None]]:
        """The same stream, ended with OK in its next pause once the server drains."""

        async def stream(request: Any, context: Context) -> None:
            task = asyncio.current_task()
            if task is None or self._ending:
                return
            self._open.add(task)
            self._waiting.add(task)
            try:
                await behaviour(request, _Stream(context, self, task))
            except asyncio.CancelledError:
                if not self._ending:
                    raise  # the client went away
                task.uncancel()  # it was us; to return is to end it with OK
            finally:
                self._open.discard(task)
                self._waiting.discard(task)

        return stream

    async def say(self, task: asyncio.Task[Any], words: Awaitable[None]) -> None:
        self._waiting.discard(task)
        await words
        if self._ending:
            raise asyncio.CancelledError
        self._waiting.add(task)


@dataclass(frozen=True, slots=True)
class _Stream:
    """The context of a stream, which lets the attendant know while something is being said."""

    context: Context
    attendant: Attendant
    task: asyncio.Task[Any]

    async def write(self, message: Any) -> None:
        await self.attendant.say(self.task, self.context.write(message))

    async def abort(self, code: grpc.StatusCode, words: str = "", trailer: tuple[tuple[str, str], ...] = ()) -> None:
        await self.attendant.say(self.task, self.context.abort(code, words, trailer))
