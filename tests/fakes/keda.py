"""KEDA's calls, in KEDA's order: GetMetricSpec, GetMetrics with the index stripped, IsActive; and StreamIsActive.

Methods take a ScaledObject's document, as KEDA reads it: name, namespace and the metadata of one trigger go into every
call.
"""

import asyncio
import re
from contextlib import asynccontextmanager

import grpc

from scaler.api.keda import externalscaler_pb2 as pb
from scaler.api.keda import externalscaler_pb2_grpc as rpc

from .waiting import SOON_S, meanwhile, until

_INDEX = re.compile(r"^s\d+-")


class Keda:
    def __init__(self, channel=None, *, stub=None):
        self.stub = rpc.ExternalScalerStub(channel) if stub is None else stub

    @staticmethod
    def ref(scaled, index=0):
        metadata, trigger = scaled["metadata"], scaled["spec"]["triggers"][index]
        name, namespace = metadata["name"], metadata["namespace"]
        return pb.ScaledObjectRef(name=name, namespace=namespace, scalerMetadata=trigger["metadata"])

    async def poll(self, scaled, index=0):
        """(replicas, active), as in one round of the scale loop. Raises AioRpcError."""
        ref = self.ref(scaled, index)
        (spec,) = (await self.stub.GetMetricSpec(ref)).metricSpecs
        assert (spec.targetSize, spec.targetSizeFloat) == (1, 1.0)
        in_hpa = f"s{index}-{spec.metricName}"
        request = pb.GetMetricsRequest(scaledObjectRef=ref, metricName=_INDEX.sub("", in_hpa))
        (value,) = (await self.stub.GetMetrics(request)).metricValues
        assert value.metricValue == value.metricValueFloat
        active = (await self.stub.IsActive(ref)).result
        return value.metricValue, active

    async def answer(self, scaled, index=0):
        """(replicas, active), or the gRPC code of the error."""
        try:
            return await self.poll(scaled, index)
        except grpc.aio.AioRpcError as error:
            return error.code()

    async def refusal(self, scaled, index=0):
        """Code and details of a response that must be an error."""
        try:
            got = await self.poll(scaled, index)
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details()
        raise AssertionError(f"response without error: {got}")

    async def until(self, wanted, scaled, index=0):
        """Poll until the response is as wanted; returns it."""
        return await until(lambda: self.answer(scaled, index), lambda answer: answer == wanted)

    @asynccontextmanager
    async def watching(self, scaled, index=0):
        """All different responses while the block runs, each once, in the order of their first occurrence."""
        responses = [await self.answer(scaled, index)]

        async def ask():
            answer = await self.answer(scaled, index)
            if answer not in responses:
                responses.append(answer)

        async with meanwhile(ask):
            yield responses

    @asynccontextmanager
    async def pushes(self, scaled, index=0):
        """`next()`: the next message of StreamIsActive. Open while the block runs."""
        stream = self.stub.StreamIsActive(self.ref(scaled, index))

        async def next_message():
            async with asyncio.timeout(SOON_S):
                return (await stream.read()).result

        try:
            yield next_message
        finally:
            stream.cancel()
