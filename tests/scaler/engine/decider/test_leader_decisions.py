"""Tests that a follower repeats a leader's decision only if its own configuration allows it."""

import pytest

from scaler.engine.decider import Decider
from scaler.model import Decision, Reason
from tests.scaler.engine.decider.conftest import CHAT


def decided(replicas, published=None, **more):
    return Decision(CHAT, replicas, replicas != 0, Reason.SERVING, 1000.0, published=published, **more)


@pytest.fixture
def follower(plan):
    def make(tolerance=0.1, observed=False, **spec):
        about = {"tolerance": tolerance, "observed": observed}
        return Decider([plan(about=about, **spec)], interval_s=5.0, fresh_intervals=3.0)

    return make


@pytest.mark.parametrize(
    ("decision", "allowed"),
    [
        (decided(2), True),
        (decided(8), True),
        (decided(8, published=9), True),
        (decided(None), True),
        (decided(1), False),
        (decided(9), False),
        (decided(500), False),
        (decided(8, published=11), False),
        (decided(0), False),
        (decided(4, observed=True), False),
    ],
    ids=lambda each: f"{each.replicas}-{each.published}-{each.observed}" if isinstance(each, Decision) else str(each),
)
def test_decision_outside_the_bounds_is_refused(follower, decision, allowed):
    assert follower(minimum=2, maximum=8).could_answer(decision) is allowed


def test_zero_is_repeated_only_if_the_configuration_allows_it(follower):
    assert follower(minimum=0).could_answer(decided(0))
    assert follower(minimum=1, sleeps=True).could_answer(decided(0))
    assert not follower(minimum=0, sleeps=False).could_answer(decided(0))
    assert follower(minimum=1, jobs=True).could_answer(decided(0)), "a frozen workload starts no Job"


def test_mode_of_the_leader_does_not_replace_the_mode_of_the_follower(follower):
    assert not follower(observed=True).could_answer(decided(4))
    assert follower(observed=True).could_answer(decided(4, observed=True))


def test_every_decision_of_this_configuration_is_allowed(scene, plan, pod, gateway, page):
    """Covers load past the maximum, rounding past the tolerance, idleness, zero, staleness and errors."""
    stage, engine, front = (
        scene(plan(gateway=True, keep_warm=30.0, hold=60.0, about={"tolerance": 0.3})),
        pod(),
        gateway(),
    )
    stage.has(pods=[engine], gateway=front, wanted=3)
    replicas = set()
    for waiting in (0, 10, 50, 60, 70, 1000, 0):
        stage.rounds(10, {engine: page.vllm(waiting=waiting, running=0), front: page.epp(held=0, ready=1)})
        replicas.add(stage.outcome()[0])
        assert stage.decider.could_answer(stage.decision())
    for _ in range(40):
        stage.rounds(5, {engine: page.vllm(waiting=0, running=0), front: page.epp(held=0, ready=1)})
        assert stage.decider.could_answer(stage.decision())
        replicas.add(stage.outcome()[0])
    stage.rounds(30, {engine: page.vllm(waiting=1000, running=0), front: page.epp(held=0, ready=1)})
    for _ in range(20):
        stage.sweep(after=10.0)
        assert stage.decider.could_answer(stage.decision())
        replicas.add(stage.outcome()[0])
    assert {0, 8, None} <= replicas


def test_leader_state_outside_the_bounds_is_not_held(scene, plan, follower):
    stage = scene(plan(maximum=500, hold=60.0))
    stage.counted(wanted=3)
    memory = stage.decider.share(None, stage.now)
    memory.columns["memory.replicas"][0], memory.columns["memory.active"][0] = 400.0, True
    memory.columns["memory.reason"][0] = 0
    decider = follower(maximum=8)
    decider.follow_state(memory, stage.now)
    stage.decider = decider
    stage.counted(wanted=3)
    stage.sweep()
    assert stage.outcome()[0] == 3, "the replicas in the cluster are held"
