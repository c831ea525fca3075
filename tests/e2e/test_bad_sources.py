"""Engines that respond with 500, hang, or send nothing: replicas stay, even with an HPA that could act at once."""

import time

import pytest

from .release import HOLD_S
from .tenant import QUICK
from .waiting import until

COOLDOWN_S = 30
# Three polls while nothing but errors is answered. Each may meet the HPA's call, and then KEDA up to 2.20.2 takes the
# error for inactive (kedacore/keda#7737): more of them would test KEDA.
POLLING_S = 15
BAD = ("error", "hang", "nothing")


@pytest.fixture
def three(tenant, page):
    """Three workloads of 3 replicas, one per failure, behind one gateway with a separate queue for each."""
    front = tenant.gateway("front", queues(page))
    for name in BAD:
        engine = model(page, name)
        tenant.deployment(name, engine, requests=40, replicas=3)
        metadata = {"gateway": "front", "model": name, **QUICK, "smoothing.up": "0s"}
        tenant.scaled_object(name, minimum=0, maximum=9, polling=POLLING_S, cooldown=COOLDOWN_S, **metadata)
    for name in BAD:
        until(lambda name=name: reason(tenant, name), lambda why: why == "serving")
        tenant.until_replicas(name, 3)
    return front


def model(page, name):
    return lambda **numbers: page.vllm(**numbers, model=name)


def queues(page, **held):
    return "".join(page.epp(held=held.get(name, 0), ready=3, pool=name) for name in BAD)


def test_failing_engines_scale_nothing_down_and_load_at_the_gateway_still_scales_up(tenant, page, three):
    begun = time.monotonic()
    for name in BAD:
        tenant.set_load(name, behaviour=name)
    for name in BAD:
        until(lambda name=name: reason(tenant, name), lambda why: why == "held", within=HOLD_S / 2)
    # 60 requests held by the gateway and 40 in engines that stopped answering need 6.3 replicas.
    three.body = queues(page, error=60, hang=60, nothing=60)
    for name in BAD:
        until(
            lambda name=name: tenant.replicas(name),
            lambda n: n == 7,
            within=HOLD_S,
            describe=lambda name=name: tenant.describe(name),
        )
    three.body = queues(page)

    # After the hold it is an error, which scales nothing down either, for longer than the cooldown.
    for name in BAD:
        until(lambda name=name: reason(tenant, name), lambda why: why == "unknown", within=2 * HOLD_S)
    replicas_before = {name: tenant.replicas(name) for name in BAD}
    assert replicas_before == dict.fromkeys(BAD, 7), f"after {time.monotonic() - begun:.0f} s"
    over = time.monotonic() + COOLDOWN_S + 15
    while time.monotonic() < over:
        assert {name: tenant.replicas(name) for name in BAD} == replicas_before, tenant.describe("error")
        time.sleep(0.5)

    # When the engines respond again, replicas follow again.
    for name in BAD:
        tenant.set_load(name, behaviour="ok")
    for name in BAD:
        tenant.until_replicas(name, 3)


def reason(tenant, name):
    entry = tenant.tidegate.decision(tenant.name, name)
    return entry and entry["reason"]
