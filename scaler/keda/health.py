"""grpc.health.v1: SERVING while the daemon says it is ready, NOT_SERVING before and while it drains; and its client.

`check_answers` calls the server of its own process as KEDA does: through gRPC's threads and the event loop.
It uses a socket of its own, because with mutual TLS the listener wants a client certificate, and the daemon has none.

Two names have a state, the same one: KEDA's service and the empty name, which is the whole server (what a kubelet's
grpc probe asks by default). grpcio-health-checking has a servicer too; its state can only be set from a coroutine.
"""
# ruff: noqa: N802 - the methods are named by the contract

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from typing import Final

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer, HealthStub

from .servicer import Context

# A check begins CHECK_PAUSE_S after the one before it ended, and is missed after CHECK_S. An answer from memory takes
# about a millisecond. Two checks in a row are missed 2 x (0.5 + 0.75) = 2.5 s after the last answer at the latest.
CHECK_PAUSE_S: Final = 0.5
CHECK_S: Final = 0.75

# What the server returns if the call reached it, whatever it thinks of the call.
_NO_ANSWER: Final = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


class Health(HealthServicer):  # type: ignore[misc]  # the base has no types
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
        said = None
        while True:
            turned = self._turned
            known = request.service in self._services
            status = self._status if known else HealthCheckResponse.SERVICE_UNKNOWN
            if status != said:
                said = status
                await context.write(HealthCheckResponse(status=status))
            await turned.wait()


def own_socket() -> str:
    """An address for `check_answers` alone. On Linux it is no file: a killed process leaves nothing behind."""
    name = f"tidegate-{os.getpid()}-{secrets.token_hex(8)}"
    if sys.platform == "linux":
        return f"unix-abstract:{name}"
    return f"unix:{tempfile.mkdtemp(prefix='tidegate-')}/{name}"


async def check_answers(target: str, missed: Callable[[int], None]) -> None:
    """Calls the server again and again. missed: gets the number of checks in a row without an answer, 0 after one."""
    misses = 0
    async with grpc.aio.insecure_channel(target) as channel:
        health = HealthStub(channel)
        while True:
            await asyncio.sleep(CHECK_PAUSE_S)
            misses = 0 if await _answered(health) else misses + 1
            missed(misses)


async def _answered(health: HealthStub) -> bool:
    try:
        async with asyncio.timeout(CHECK_S):
            await health.Check(HealthCheckRequest())
    except TimeoutError:
        return False
    except grpc.aio.AioRpcError as error:
        return error.code() not in _NO_ANSWER
    return True
