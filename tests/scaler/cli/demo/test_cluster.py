"""The simulated pods, GPUs and gateway keep their invariants under any scaling."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.cli.demo.cluster import DemoSlo, SimulatedCluster, meets
from scaler.cli.demo.engine import Completion, EngineProfile, Request


def cluster(**changes) -> SimulatedCluster:
    return SimulatedCluster("chat", seed=1, now=0.0, **changes)


def send(target: SimulatedCluster, number: int, at: float, prompt: int = 1000, output: int = 50) -> None:
    target.submit(Request(number, at, prompt, output), at)


def test_zero_replicas_hold_requests_until_the_first_is_ready():
    world = cluster(startup_s=75.0)
    for number in range(5):
        send(world, number, float(number))
    assert len(world.held) == 5
    world.scale(1, 5.0)
    world.advance(79.9)
    assert (len(world.held), len(world.loading), len(world.ready)) == (5, 1, 0)
    world.advance(80.0)
    assert (len(world.held), len(world.loading), len(world.ready)) == (0, 0, 1)
    assert len(world.advance(200.0)) == 5
    assert world.tally.woken_at - world.tally.held_at_zero_at == 5.0


def test_gateway_is_first_come_first_served():
    world = cluster()
    for number in range(20):
        send(world, number, 0.1 * number, prompt=500, output=1)
    world.scale(1, 3.0)
    assert [answer.request.number for answer in world.advance(500.0)] == list(range(20))


def test_request_goes_to_the_replica_with_the_fewest_prompt_tokens():
    world = cluster(startup_s=0.0)
    world.scale(2, 0.0)
    world.advance(0.0)
    for number, prompt in enumerate((4000, 10, 10, 10)):
        send(world, number, 0.0, prompt=prompt)
    assert sorted(pod.engine.unfinished for pod in world.ready) == [1, 3]


def test_newest_pods_drain_first_and_lose_no_request():
    world = cluster(startup_s=10.0)
    world.scale(2, 0.0)
    world.scale(3, 5.0)
    world.advance(20.0)
    oldest = [pod.name for pod in world.ready[:1]]
    for number in range(30):
        send(world, number, 20.0, output=400)
    world.scale(1, 21.0)
    assert [pod.name for pod in world.ready] == oldest
    assert len(world.draining) == 2
    send(world, 30, 22.0)
    answered = world.advance(500.0)
    assert len(answered) == 31
    assert (world.in_system, len(world.replicas)) == (0, 1)


def test_unneeded_loading_pod_is_removed_at_once():
    world = cluster(startup_s=75.0)
    world.scale(3, 0.0)
    world.scale(0, 30.0)
    assert world.replicas == []
    assert world.gpu_seconds() == 90.0


def test_gpu_seconds_end_with_the_last_completion_of_a_drain():
    world = cluster(startup_s=0.0)
    world.scale(1, 0.0)
    world.advance(0.0)
    send(world, 0, 10.0, output=300)
    world.scale(0, 11.0)
    (answer,) = world.advance(300.0)
    assert answer.finished_at > 11.0
    assert world.gpu_seconds() == pytest.approx(answer.finished_at)


def test_pods_without_a_free_gpu_wait_for_one():
    world = cluster(gpus=2, startup_s=10.0)
    world.scale(3, 0.0)
    assert len(world.replicas) == 2
    world.advance(10.0)
    send(world, 0, 10.0, output=400)
    send(world, 1, 10.0, output=400)
    world.scale(1, 10.5)
    world.scale(2, 11.0)  # the second GPU is still draining
    assert len(world.loading) == 0
    world.advance(20.0)  # free since 14.8 s; assigned at the next advance
    assert len(world.loading) == 1
    world.advance(30.0)
    assert len(world.ready) == 2
    assert {pod.gpu for pod in world.replicas} == {0, 1}


def test_pods_have_names_of_a_deployment():
    world = cluster()
    world.scale(8, 0.0)
    names = [pod.name for pod in world.replicas]
    assert len(set(names)) == 8
    for name in names:
        assert re.fullmatch(r"chat-7f9c6d5b8d-[bcdfghjklmnpqrstvwxz2456789]{5}", name)


def test_slo_counts_from_arrival_and_gives_long_prompts_more_time():
    def answer(prompt: int, first_s: float, decode_s: float) -> Completion:
        return Completion(Request(0, 100.0, prompt, 10), 100.0, 100.0 + first_s, 100.0 + first_s + decode_s)

    # 2 s + 2 · 6000/12000 = 3 s for the first token; 0.5 s + 10 · 60 ms = 1.1 s for the rest.
    assert meets(DemoSlo(), EngineProfile(), answer(6000, 2.99, 1.09))
    assert not meets(DemoSlo(), EngineProfile(), answer(6000, 3.01, 1.09))
    assert not meets(DemoSlo(), EngineProfile(), answer(6000, 2.99, 1.11))


EVENTS = st.lists(
    st.tuples(st.floats(0.0, 30.0), st.one_of(st.none(), st.integers(0, 6)), st.integers(1, 5000), st.integers(1, 300)),
    max_size=40,
)


@settings(max_examples=50, deadline=None)
@given(EVENTS, st.integers(1, 5))
def test_every_request_is_answered_or_in_the_system(events, gpus):
    world, now, number, answers = cluster(gpus=gpus, startup_s=20.0), 0.0, 0, 0
    for gap_s, scale, prompt, output in events:
        now += gap_s
        if scale is None:
            answers += len(world.submit(Request(number, now, prompt, output), now))
            number += 1
        else:
            answers += len(world.scale(scale, now))
        assert number == world.tally.sent == world.tally.answered + world.in_system
        assert world.tally.answered == answers
        assert len({pod.gpu for pod in world.replicas}) == len(world.replicas) <= gpus
        if world.ready:
            assert not world.held
    answers += len(world.scale(1, now + 1.0))
    answers += len(world.advance(now + 1e5))
    assert answers == number
    assert world.in_system == 0
