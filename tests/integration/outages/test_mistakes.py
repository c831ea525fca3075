"""Nothing is out of order but what somebody wrote into a ScaledObject."""

import grpc

from scaler.controllers.keda import FallbackSpec

from .conftest import QUICK

INVALID = grpc.StatusCode.INVALID_ARGUMENT


async def test_bad_metadata_is_an_error_for_its_object_alone_and_wakes_it_only_where_that_has_a_fallback(
    place, page, keda, scaled, tidegate
):
    place.service("front", page.epp(held=0, ready=0))
    place.deployment("llama")
    words = {"target": "llama", "minimum": 0, "maximum": 9, "gateway": "front", **QUICK}
    night, neighbour = (place.scaled_object(name, **words) for name in ("night", "neighbour"))
    for each in (night, neighbour):
        await keda.until((0, False), each)
    async with keda.watching(neighbour) as slept:
        mistaken = place.scaled_object("night", **words, keep_wram="1s")
        await tidegate.until_metric(f'tidegate_active{{namespace="{place.name}",workload="night"}}', None)
        code, sentence = await keda.refusal(mistaken)
        assert (code, "keep_warm" in sentence) == (INVALID, True)
        without, risky = scaled(mistaken, replicas=0), scaled(mistaken, replicas=0, fallback=FallbackSpec(3, 6))
        assert (await without.minutes(10), (await risky.minutes(10))[-1]) == ([], 6)
    assert slept == [(0, False)]
    said = tidegate.logged("invalid object")
    assert [line for line in said if f"{place.name}/ScaledObject/night: spec.triggers" in line["problem"]]
