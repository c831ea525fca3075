"""Outages of KEDA: of its operator, which scales to zero and back, or of its metrics server, which serves the HPA."""

import pytest

from .conftest import QUICK


@pytest.fixture
async def night(tenant, page, keda):
    """A sleeping workload: its Deployment, its gateway's target, and its ScaledObject."""
    front = tenant.service("front", page.epp(held=0, ready=0))
    llama = tenant.deployment("llama")
    document = tenant.scaled_object("night", target="llama", minimum=0, maximum=9, gateway="front", **QUICK)
    await keda.until((0, False), document)
    return llama, front, document


async def test_nothing_scales_without_kedas_operator_and_its_first_poll_wakes_waiting_workloads(
    night, page, keda, scaled
):
    llama, front, document = night
    sleeper, busy = scaled(document, replicas=0, deployment=llama), scaled(document, replicas=5)
    front.body = page.epp(held=20, ready=0)
    await keda.until((2, True), document)
    # The metrics server calls the operator, so the HPA gets no metric either; and no operator receives the push.
    assert [await each.minutes_of_nothing(60) for each in (sleeper, busy)] == [[], []]
    assert await sleeper.minutes(1) == [1, 2]


async def test_sleeping_workload_wakes_to_one_replica_without_kedas_metrics_server(night, page, keda, scaled):
    llama, front, document = night
    sleeper = scaled(document, replicas=0, deployment=llama)
    front.body = page.epp(held=20, ready=0)
    await keda.until((2, True), document)
    async with keda.pushes(document) as pushed:
        sleeper.pushed(await pushed())
    # Two are published, but the step from one to two is the HPA's, which has no metric.
    assert (sleeper.orders, await sleeper.minutes_of_polls(10)) == ([1], [])

    llama.pod(page.vllm(waiting=0, running=0))
    front.body = page.epp(held=0, ready=1)
    await keda.until((0, False), document)
    assert await sleeper.minutes_of_polls(6) == [0]
