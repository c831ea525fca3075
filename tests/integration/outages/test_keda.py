"""KEDA is what is gone: its operator, which takes to zero and back, or its metrics server, which the HPA asks."""

import pytest

from .conftest import QUICK


@pytest.fixture
async def night(place, page, keda):
    """One that sleeps: its Deployment, its gateway's page, and its ScaledObject."""
    front = place.service("front", page.epp(held=0, ready=0))
    llama = place.deployment("llama")
    document = place.scaled_object("night", target="llama", minimum=0, maximum=9, gateway="front", **QUICK)
    await keda.until((0, False), document)
    return llama, front, document


async def test_without_kedas_operator_nobody_moves_and_the_first_poll_of_the_next_one_wakes_who_waited(
    night, page, keda, scaled
):
    llama, front, document = night
    sleeper, busy = scaled(document, replicas=0, deployment=llama), scaled(document, replicas=5)
    front.text = page.epp(held=20, ready=0)
    await keda.until((2, True), document)
    # The metrics server asks the operator, so the HPA hears nothing either; and nobody hears the push.
    assert [await each.minutes_of_nothing(60) for each in (sleeper, busy)] == [[], []]
    assert await sleeper.minutes(1) == [1, 2]


async def test_without_kedas_metrics_server_a_sleeper_is_woken_to_one_and_no_further_and_sleeps_again(
    night, page, keda, scaled
):
    llama, front, document = night
    sleeper = scaled(document, replicas=0, deployment=llama)
    front.text = page.epp(held=20, ready=0)
    await keda.until((2, True), document)
    async with keda.pushes(document) as pushed:
        sleeper.pushed(await pushed())
    # Two are asked for, and the HPA, whose part that is, does not hear of it.
    assert (sleeper.orders, await sleeper.minutes_of_polls(10)) == ([1], [])

    llama.pod(page.vllm(waiting=0, running=0))
    front.text = page.epp(held=0, ready=1)
    await keda.until((0, False), document)
    assert await sleeper.minutes_of_polls(6) == [0]
