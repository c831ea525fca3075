"""A replica that follows answers with the leader's Board and keeps its own for when that is gone."""

import asyncio

import pytest

from scaler.engine.publisher import Publisher


@pytest.fixture
def publisher(key, decide):
    """Two workloads, of which it has decided 1 and 2 itself."""
    made = Publisher([key("a"), key("b")])
    made.publish([decide("a", 1), decide("b", 2)], at=10.0)
    return made


def replicas(publisher):
    return {workload.name: decision.replicas for workload, decision in publisher.board.decisions.items()}


def test_answers_are_the_leaders_whatever_is_decided_here(publisher, key, decide):
    publisher.follow({key("a"): decide("a", 5), key("b"): decide("b", 6)}, at=11.0)
    assert (replicas(publisher), publisher.board.at, publisher.following) == ({"a": 5, "b": 6}, 11.0, True)
    publisher.publish([decide("a", 9)], at=12.0)
    assert (replicas(publisher), publisher.board.at) == ({"a": 5, "b": 6}, 11.0)
    assert (publisher.local.get(key("a")).replicas, publisher.local.at) == (9, 12.0)


def test_alone_again_answers_are_what_was_decided_here_last(publisher, key, decide):
    publisher.follow({key("a"): decide("a", 5), key("b"): decide("b", 6)}, at=11.0)
    publisher.publish([decide("a", 9)], at=12.0)
    publisher.alone()
    assert (replicas(publisher), publisher.board.at, publisher.following) == ({"a": 9, "b": 2}, 12.0, False)


def test_of_whom_the_leader_says_nothing_the_own_entry_stands(publisher, key, decide):
    publisher.follow({key("a"): decide("a", 5), key("stranger"): decide("stranger", 7)}, at=11.0)
    assert replicas(publisher) == {"a": 5, "b": 2}
    publisher.publish([decide("b", 3)], at=12.0)
    assert replicas(publisher) == {"a": 5, "b": 3}
    publisher.follow({}, at=13.0)
    assert replicas(publisher) == {"a": 1, "b": 3}


def test_whom_a_new_configuration_knows_is_answered_from_the_leaders_board_at_once(publisher, key, decide):
    publisher.follow({key(name): decide(name, 5) for name in "abc"}, at=11.0)
    publisher.keep_only([key("b"), key("c")], at=12.0)
    assert replicas(publisher) == {"b": 5, "c": 5}


def test_giving_up_here_takes_nothing_from_the_leaders_word(publisher, key, decide):
    publisher.follow({key("a"): decide("a", 5), key("b"): decide("b", 6)}, at=11.0)
    publisher.give_up(at=500.0)
    assert replicas(publisher) == {"a": 5, "b": 6}
    publisher.alone()
    assert replicas(publisher) == {"a": None, "b": None}


def test_the_version_rises_with_every_change_of_an_answer_and_with_nothing_else(publisher, key, decide):
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


async def test_readers_are_told_when_the_answer_becomes_the_leaders_and_when_it_is_not_any_more(publisher, key, decide):
    seen = publisher.get(key("a"))
    for act, answer in ((lambda: publisher.follow({key("a"): decide("a", 5)}, at=11.0), 5), (publisher.alone, 1)):
        waiting = asyncio.create_task(publisher.changed(key("a"), seen))
        await asyncio.sleep(0)
        act()
        async with asyncio.timeout(20):
            seen = await waiting
        assert seen.replicas == answer


async def test_a_sweep_that_finds_nothing_new_is_a_beat_all_the_same(publisher):
    waiting = asyncio.create_task(publisher.decided())
    await asyncio.sleep(0)
    publisher.publish([], at=11.0)
    async with asyncio.timeout(20):
        await waiting


@pytest.fixture
def at_most(publisher):
    """`at_most(5)`: entries of more replicas are refused from now on."""

    def refuse(most):
        publisher.admits = lambda decision: decision.replicas <= most

    return refuse


def test_refused_entry_of_the_leader_leaves_the_own_decision(publisher, key, decide, at_most):
    at_most(5)
    publisher.follow({key("a"): decide("a", 500), key("b"): decide("b", 5)}, at=11.0)
    assert replicas(publisher) == {"a": 1, "b": 5}
    publisher.publish([decide("a", 2), decide("b", 3)], at=12.0)
    assert replicas(publisher) == {"a": 2, "b": 5}, "the own decision goes on"
    publisher.follow({key("a"): decide("a", 4), key("b"): decide("b", 6)}, at=13.0)
    assert replicas(publisher) == {"a": 4, "b": 3}


def test_new_bounds_are_applied_to_what_the_leader_has_said(publisher, key, decide, at_most):
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


def test_new_bounds_of_one_workload_are_applied_to_its_entry_of_the_leader_alone(publisher, key, decide):
    asked = []
    publisher.admits = lambda decision: not asked.append(decision.workload) and decision.replicas <= most
    most = 9
    publisher.follow({key("a"): decide("a", 5), key("b"): decide("b", 6)}, at=11.0)
    asked.clear()
    most = 5
    publisher.judge_again([key("b")])
    assert (replicas(publisher), set(asked)) == ({"a": 5, "b": 2}, {key("b")})
    publisher.alone()
    publisher.judge_again([key("a")])
    assert replicas(publisher) == {"a": 1, "b": 2}
