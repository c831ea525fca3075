"""A leader's decision is repeated only where the configuration here could have led to it."""

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
def test_answers_outside_the_bounds_are_refused(follower, decision, allowed):
    assert follower(minimum=2, maximum=8).could_answer(decision) is allowed


def test_zero_is_repeated_only_where_it_may_be_an_answer(follower):
    assert follower(minimum=0).could_answer(decided(0))
    assert follower(minimum=1, sleeps=True).could_answer(decided(0))
    assert not follower(minimum=0, sleeps=False).could_answer(decided(0))
    assert follower(minimum=1, jobs=True).could_answer(decided(0)), "a frozen one starts no Job"


def test_mode_of_the_leader_does_not_replace_the_own(follower):
    assert not follower(observed=True).could_answer(decided(4))
    assert follower(observed=True).could_answer(decided(4, observed=True))


def test_every_own_answer_could_be_an_answer(scene, plan, pod, gateway, page):
    """Through load past the maximum, rounding past the tolerance, idleness, zero, staleness and errors."""
    stage, engine, front = (
        scene(plan(gateway=True, keep_warm=30.0, hold=60.0, about={"tolerance": 0.3})),
        pod(),
        gateway(),
    )
    stage.has(pods=[engine], gateway=front, wanted=3)
    seen = set()
    for waiting in (0, 10, 50, 60, 70, 1000, 0):
        stage.rounds(10, {engine: page.vllm(waiting=waiting, running=0), front: page.epp(held=0, ready=1)})
        seen.add(stage.answer()[0])
        assert stage.decider.could_answer(stage.decision())
    for _ in range(40):
        stage.rounds(5, {engine: page.vllm(waiting=0, running=0), front: page.epp(held=0, ready=1)})
        assert stage.decider.could_answer(stage.decision())
        seen.add(stage.answer()[0])
    stage.rounds(30, {engine: page.vllm(waiting=1000, running=0), front: page.epp(held=0, ready=1)})
    for _ in range(20):
        stage.sweep(after=10.0)
        assert stage.decider.could_answer(stage.decision())
        seen.add(stage.answer()[0])
    assert {0, 8, None} <= seen


def test_memory_of_a_leader_outside_the_bounds_is_not_held(scene, plan, follower):
    stage = scene(plan(maximum=500, hold=60.0))
    stage.counted(wanted=3)
    memory = stage.decider.share(None, stage.now)
    memory.columns["memory.replicas"][0], memory.columns["memory.active"][0] = 400.0, True
    memory.columns["memory.reason"][0] = 0
    own = follower(maximum=8)
    own.follow_state(memory, stage.now)
    stage.decider = own
    stage.counted(wanted=3)
    stage.sweep()
    assert stage.answer()[0] == 3, "what the cluster has is held"
