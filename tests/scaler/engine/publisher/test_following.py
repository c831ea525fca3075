"""A follower publishes the leader's Board and keeps its own for the time without a leader."""

import asyncio

import pytest

from scaler.engine.publisher import Publisher


@pytest.fixture
def publisher(key, decide):
    """Two workloads with a local decision of 1 and 2 replicas."""
    publisher = Publisher([key("a"), key("b")])
    publisher.publish([decide("a", 1), decide("b", 2)], at=10.0)
    return publisher


def replicas(publisher):
    return {workload.name: decision.replicas for workload, decision in publisher.board.decisions.items()}


def test_follower_publishes_the_decisions_of_the_leader(publisher, key, decide):
    publisher.follow({key("a"): decide("a", 5), key("b"): decide("b", 6)}, at=11.0)
    assert (replicas(publisher), publisher.board.at, publisher.following) == ({"a": 5, "b": 6}, 11.0, True)
    publisher.publish([decide("a", 9)], at=12.0)
    assert (replicas(publisher), publisher.board.at) == ({"a": 5, "b": 6}, 11.0)
    assert (publisher.local.get(key("a")).replicas, publisher.local.at) == (9, 12.0)


def test_former_follower_publishes_its_last_local_decisions(publisher, key, decide):
    publisher.follow({key("a"): decide("a", 5), key("b"): decide("b", 6)}, at=11.0)
    publisher.publish([decide("a", 9)], at=12.0)
    publisher.alone()
    assert (replicas(publisher), publisher.board.at, publisher.following) == ({"a": 9, "b": 2}, 12.0, False)


def test_workload_that_the_leader_lacks_keeps_its_local_decision(publisher, key, decide):
    publisher.follow({key("a"): decide("a", 5), key("stranger"): decide("stranger", 7)}, at=11.0)
    assert replicas(publisher) == {"a": 5, "b": 2}
    publisher.publish([decide("b", 3)], at=12.0)
    assert replicas(publisher) == {"a": 5, "b": 3}
    publisher.follow({}, at=13.0)
    assert replicas(publisher) == {"a": 1, "b": 3}


def test_new_workload_gets_the_decision_of_the_leader_at_once(publisher, key, decide):
    publisher.follow({key(name): decide(name, 5) for name in "abc"}, at=11.0)
    publisher.keep_only([key("b"), key("c")], at=12.0)
    assert replicas(publisher) == {"b": 5, "c": 5}


def test_local_failure_does_not_affect_decisions_of_the_leader(publisher, key, decide):
    publisher.follow({key("a"): decide("a", 5), key("b"): decide("b", 6)}, at=11.0)
    publisher.give_up(at=500.0)
    assert replicas(publisher) == {"a": 5, "b": 6}
    publisher.alone()
    assert replicas(publisher) == {"a": None, "b": None}


def test_version_rises_with_every_change_of_a_decision_and_only_then(publisher, key, decide):
    led, versions = {key("a"): decide("a", 5), key("b"): decide("b", 6)}, []
    for act in (
        lambda: publisher.follow(led, at=11.0),
        lambda: publisher.follow(led, at=12.0),
        lambda: publisher.publish([decide("a", 7)], at=12.0),
        publisher.alone,
        publisher.alone,
    ):
        act()
        versions.append(publisher.board.version)
    assert versions == [2, 2, 2, 3, 3]


async def test_readers_are_notified_when_following_begins_and_ends(publisher, key, decide):
    latest = publisher.get(key("a"))
    for act, replicas in ((lambda: publisher.follow({key("a"): decide("a", 5)}, at=11.0), 5), (publisher.alone, 1)):
        waiting = asyncio.create_task(publisher.changed(key("a"), latest))
        await asyncio.sleep(0)
        act()
        async with asyncio.timeout(60.0):
            latest = await waiting
        assert latest.replicas == replicas


async def test_sweep_without_changes_is_still_a_heartbeat(publisher):
    waiting = asyncio.create_task(publisher.decided())
    await asyncio.sleep(0)
    publisher.publish([], at=11.0)
    async with asyncio.timeout(60.0):
        await waiting


@pytest.fixture
def at_most(publisher):
    """`at_most(5)`: decisions with more replicas are refused from now on."""

    def refuse(most):
        publisher.admits = lambda decision: decision.replicas <= most

    return refuse


def test_refused_decision_of_the_leader_leaves_the_local_one(publisher, key, decide, at_most):
    at_most(5)
    publisher.follow({key("a"): decide("a", 500), key("b"): decide("b", 5)}, at=11.0)
    assert replicas(publisher) == {"a": 1, "b": 5}
    publisher.publish([decide("a", 2), decide("b", 3)], at=12.0)
    assert replicas(publisher) == {"a": 2, "b": 5}, "the local decision continues"
    publisher.follow({key("a"): decide("a", 4), key("b"): decide("b", 6)}, at=13.0)
    assert replicas(publisher) == {"a": 4, "b": 3}


def test_new_bounds_apply_to_decisions_of_the_leader(publisher, key, decide, at_most):
    led = {key("a"): decide("a", 5), key("b"): decide("b", 6)}
    publisher.follow(led, at=11.0)
    at_most(5)
    publisher.keep_only([key("a"), key("b")], at=12.0)
    assert replicas(publisher) == {"a": 5, "b": 2}
    publisher.follow(led, at=13.0)
    assert replicas(publisher) == {"a": 5, "b": 2}
    at_most(6)
    publisher.follow(led, at=14.0)
    assert replicas(publisher) == {"a": 5, "b": 6}


def test_new_bounds_of_one_workload_apply_to_its_decision_only(publisher, key, decide):
    checked = []
    publisher.admits = lambda decision: not checked.append(decision.workload) and decision.replicas <= most
    most = 9
    publisher.follow({key("a"): decide("a", 5), key("b"): decide("b", 6)}, at=11.0)
    checked.clear()
    most = 5
    publisher.judge_again([key("b")])
    assert (replicas(publisher), set(checked)) == ({"a": 5, "b": 2}, {key("b")})
    publisher.alone()
    publisher.judge_again([key("a")])
    assert replicas(publisher) == {"a": 1, "b": 2}
