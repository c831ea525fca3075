"""Engines that answer 500, hang, or say nothing: their replicas stay, whatever KEDA and the HPA could do at once."""

import time

import pytest

from .conftest import HOLD_S
from .place import QUICK
from .waiting import until

COOLDOWN_S = 30
BAD = ("error", "hang", "nothing")


@pytest.fixture
def three(place, page):
    """Three workloads of 3 replicas, one for each way to be bad, behind one gateway with a queue of its own each."""
    front = place.gateway("front", queues(page))
    for name in BAD:
        engine = model(page, name)
        place.deployment(name, engine, requests=40, replicas=3)
        words = {"gateway": "front", "model": name, **QUICK, "smoothing.up": "0s"}
        place.scaled_object(name, minimum=0, maximum=9, cooldown=COOLDOWN_S, **words)
    for name in BAD:
        until(lambda name=name: replicas_decided(place, name), lambda decided: decided == 3)
        place.until_replicas(name, 3)
    return front


def model(page, name):
    return lambda **numbers: page.vllm(**numbers, model=name)


def queues(page, **held):
    return "".join(page.epp(held=held.get(name, 0), ready=3, pool=name) for name in BAD)


def replicas_decided(place, name):
    entry = place.tidegate.decision(place.name, name)
    return entry and entry["replicas"]


def test_bad_sources_scale_nothing_down_and_with_the_gateway_alive_more_load_still_raises(place, page, three):
    begun = time.monotonic()
    for name in BAD:
        place.has(name, behaviour=name)
    for name in BAD:
        until(lambda name=name: reason(place, name), lambda why: why == "held", within=HOLD_S / 2)
    # 90 requests that the gateway itself holds are 5.6 replicas' worth by themselves.
    three.text = queues(page, error=90, hang=90, nothing=90)
    for name in BAD:
        until(lambda name=name: place.replicas(name), lambda n: n == 6, within=HOLD_S, seen=lambda: place.seen("hang"))
    three.text = queues(page)

    # Beyond what is held it is an error, and that takes nothing down either, for longer than the cooldown.
    for name in BAD:
        until(lambda name=name: reason(place, name), lambda why: why == "unknown", within=2 * HOLD_S)
    seen = {name: place.replicas(name) for name in BAD}
    assert seen == dict.fromkeys(BAD, 6), f"after {time.monotonic() - begun:.0f} s"
    over = time.monotonic() + COOLDOWN_S + 15
    while time.monotonic() < over:
        assert {name: place.replicas(name) for name in BAD} == seen, place.seen("error")
        time.sleep(0.5)

    # And when they answer again, they are followed again.
    for name in BAD:
        place.has(name, behaviour="ok")
    for name in BAD:
        place.until_replicas(name, 3)


def reason(place, name):
    entry = place.tidegate.decision(place.name, name)
    return entry and entry["reason"]
