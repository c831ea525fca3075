"""grpc.health.v1: SERVING while the daemon says it is ready, NOT_SERVING before and while it drains.

Two names have a state, the same one: KEDA's service and the empty name, which is the whole server (what a kubelet's
grpc probe asks by default). grpcio-health-checking has a servicer too; its state can only be set from a coroutine.
"""
# ruff: noqa: N802 - the methods are named by the contract

from __future__ import annotations

import asyncio

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer

from .servicer import Context


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
