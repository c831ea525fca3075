"""A workload that is not idle says why: the first reason of its activity."""

import pytest

from scaler.policy.trace import GPU, GRACE, IDLE, LOADS, REQUESTS, UNPROVEN

ASLEEP = {"pods": 0, "wanted": 0.0, "ready": 0.0}
STARTING = {"pods": 0, "wanted": 1.0, "ready": 0.0, "existing": 1.0}
READY = {"pods": 1, "wanted": 1.0, "ready": 1.0}
GRACE_S = 100.0


@pytest.fixture
def woken(chat, fresh):
    """It was woken a moment ago, and has a start-up grace of 100 s."""
    chat.overrides = {"lease": GRACE_S}
    chat.step(**fresh(**ASLEEP))
    chat.step(after=1.0, **fresh(held=1, **ASLEEP))
    return chat


@pytest.mark.parametrize("place", ["waiting", "running", "held"])
def test_request_anywhere_is_the_first_reason(woken, fresh, place):
    assert woken.trace(**fresh(**{place: 1}, busiest_gpu=0.9, **STARTING)).activity == REQUESTS


def test_incomplete_readings_prove_nothing_even_if_a_gpu_works(woken, fresh):
    assert woken.trace(**fresh(busiest_gpu=0.9, **READY) | {"pods_fresh": 0}).activity == UNPROVEN


def test_gpu_that_works_is_named_before_the_start(woken, fresh):
    assert woken.trace(**fresh(busiest_gpu=0.9, **READY)).activity == GPU


def test_start_up_grace_ends_after_its_seconds(woken, fresh):
    assert woken.trace(after=GRACE_S - 1.0, **fresh(**ASLEEP)).activity == GRACE
    assert woken.trace(after=GRACE_S, **fresh(**ASLEEP)).activity == IDLE


def test_replica_that_loads_without_a_wake_is_no_idle_one(chat, fresh):
    chat.step(**fresh(running=1, **READY))
    assert chat.trace(**fresh(**READY)).activity == IDLE
    assert chat.trace(**fresh(**READY) | {"wanted": 2.0}).activity == LOADS
