"""Mistakes in a ScaledObject; everything else works."""

import grpc

from scaler.controllers.keda import FallbackSpec

from .conftest import QUICK

INVALID = grpc.StatusCode.INVALID_ARGUMENT


async def test_bad_metadata_is_an_error_for_its_object_alone_and_wakes_it_only_with_a_fallback(
    tenant, page, keda, scaled, tidegate
):
    tenant.service("front", page.epp(held=0, ready=0))
    tenant.deployment("llama")
    settings = {"target": "llama", "minimum": 0, "maximum": 9, "gateway": "front", **QUICK}
    night, neighbour = (tenant.scaled_object(name, **settings) for name in ("night", "neighbour"))
    for each in (night, neighbour):
        await keda.until((0, False), each)
    async with keda.watching(neighbour) as slept:
        mistaken = tenant.scaled_object("night", **settings, keep_wram="1s")
        await tidegate.until_metric(f'tidegate_active{{namespace="{tenant.name}",workload="night"}}', None)
        code, details = await keda.refusal(mistaken)
        assert (code, "keep_warm" in details) == (INVALID, True)
        without, risky = scaled(mistaken, replicas=0), scaled(mistaken, replicas=0, fallback=FallbackSpec(3, 6))
        assert (await without.minutes(10), (await risky.minutes(10))[-1]) == ([], 6)
    assert slept == [(0, False)]
    lines = tidegate.logged("invalid object")
    assert [line for line in lines if f"{tenant.name}/ScaledObject/night: spec.triggers" in line["problem"]]
