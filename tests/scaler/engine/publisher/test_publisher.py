"""One Board, one writer, any number of waiting readers: each reader gets every change once."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.engine.publisher import Publisher
from scaler.model import Decision, Evidence, Reason

PATIENCE_S = 60.0  # never reached: it only shows which await blocks
NAMES = ("a", "b", "c")


async def settled():
    """Runs every task that can continue."""
    for _ in range(5):
        await asyncio.sleep(0)


class Reader:
    """Follows one workload from now on, as a stream does."""

    def __init__(self, publisher, key):
        self.decisions, self.ended = [publisher.get(key)], False
        self.task = asyncio.create_task(self._follow(publisher, key))

    async def _follow(self, publisher, key):
        while (entry := await publisher.changed(key, self.decisions[-1])) is not None:
            self.decisions.append(entry)
        self.ended = True


def test_empty_board_has_configured_workloads_without_decisions(key):
    publisher = Publisher([key("a")])
    assert publisher.knows(key("a"))
    assert not publisher.knows(key("b"))
    assert publisher.get(key("a")) is None
    assert (publisher.board.version, dict(publisher.board.decisions)) == (0, {})


def test_publishing_replaces_the_board_and_never_changes_one(key, decide):
    publisher = Publisher([key("a"), key("b")])
    publisher.publish([decide("a", 1)], at=1.0)
    before = publisher.board
    publisher.publish([decide("b", 2)], at=2.0)
    assert [before.version, publisher.board.version] == [1, 2]
    assert before.get(key("b")) is None
    assert publisher.board.get(key("a")) is before.get(key("a"))
    with pytest.raises(TypeError):
        publisher.board.decisions[key("a")] = None


def test_restarted_workload_has_no_decision_until_it_is_decided(key, decide):
    publisher = Publisher([key("a"), key("b")])
    first = decide("b", 2)
    publisher.publish([decide("a", 1), first], at=1.0)
    publisher.keep_only([key("a"), key("b")], at=1.0, begun=[key("a")])
    assert (publisher.get(key("a")), publisher.get(key("b"))) == (None, first)
    assert publisher.local.decisions == publisher.board.decisions == {key("b"): first}
    assert publisher.knows(key("a"))


def test_sweep_without_changes_moves_the_time_and_not_the_version(key, decide):
    publisher = Publisher([key("a")])
    publisher.publish([decide("a", 1)], at=1.0)
    publisher.publish([], at=2.0)
    assert (publisher.board.version, publisher.board.at) == (1, 2.0)


async def test_reader_gets_each_change_of_its_workload_once(key, decide):
    publisher = Publisher([key("a"), key("b")])
    reader = Reader(publisher, key("a"))
    first, second, other = decide("a", 1), decide("a", 2), decide("b", 9)
    for entry in (first, other, second, other):
        publisher.publish([entry], at=1.0)
        await settled()
    assert reader.decisions == [None, first, second]
    publisher.publish([], at=2.0)
    await settled()
    assert reader.decisions == [None, first, second]
    reader.task.cancel()


async def test_change_before_the_wait_is_returned_at_once(key, decide):
    publisher = Publisher([key("a")])
    publisher.publish([decide("a", 1)], at=1.0)
    latest = decide("a", 2)
    publisher.publish([latest], at=2.0)
    async with asyncio.timeout(PATIENCE_S):
        assert await publisher.changed(key("a"), None) is latest


async def test_unconfigured_workload_is_not_waited_for(key):
    async with asyncio.timeout(PATIENCE_S):
        assert await Publisher([]).changed(key("a"), None) is None


async def test_new_configuration_ends_only_the_wait_for_removed_workloads(key, decide):
    publisher = Publisher([key("a"), key("b")])
    stays = decide("b", 1)
    publisher.publish([decide("a", 1), stays], at=1.0)
    gone, still = Reader(publisher, key("a")), Reader(publisher, key("b"))
    await settled()
    publisher.keep_only([key("b"), key("c")], at=2.0)
    await settled()
    assert gone.ended
    assert not still.ended
    assert still.decisions == [stays]
    assert dict(publisher.board.decisions) == {key("b"): stays}
    assert publisher.knows(key("c"))
    assert not publisher.knows(key("a"))
    still.task.cancel()


async def test_wait_for_a_first_decision_ends_when_its_workload_is_removed(key):
    publisher = Publisher([key("a")])
    reader = Reader(publisher, key("a"))
    await settled()
    publisher.keep_only([], at=1.0)
    await settled()
    assert reader.ended


def test_late_decision_of_a_removed_workload_is_not_published(key, decide):
    # A scrape of the old configuration may still land while the new one begins.
    publisher = Publisher([key("a"), key("b")])
    publisher.keep_only([key("b")], at=1.0)
    publisher.publish([decide("a", 3), decide("b", 1)], at=2.0)
    assert list(publisher.board.decisions) == [key("b")]


def test_giving_up_publishes_errors_and_keeps_the_time_of_the_board(key, decide):
    publisher = Publisher([key("a"), key("b"), key("c")])
    never = decide("c", None)
    goes = replace(decide("b", 0), evidence=Evidence(replicas_wanted=1))  # KEDA has not scaled it to zero yet
    publisher.publish([decide("a", 3), goes, never], at=100.0)
    publisher.give_up(at=500.0)
    for name in "ab":
        entry = publisher.get(key(name))
        assert (entry.replicas, entry.active, entry.reason) == (None, True, Reason.UNKNOWN)
        assert entry.decided_at == 500.0
    assert publisher.get(key("c")) is never, "a decision that is already an error stays the same object"
    assert publisher.board.at == 100.0, "the age of the Board makes it an error"
    version = publisher.board.version
    publisher.give_up(at=501.0)
    assert publisher.board.version == version, "published once"


@pytest.mark.parametrize("wanted", [0, None])
def test_giving_up_keeps_a_sleeping_workload_asleep_for_kedas_fallback(key, decide, wanted):
    publisher = Publisher([key("a")])
    publisher.publish([replace(decide("a", 0), evidence=Evidence(replicas_wanted=wanted))], at=100.0)
    publisher.give_up(at=500.0)
    entry = publisher.get(key("a"))
    assert (entry.replicas, entry.active, entry.reason) == (0, False, Reason.HELD)
    assert (entry.held_since, entry.decided_at) == (100.0, 500.0)
    publisher.give_up(at=501.0)
    assert publisher.get(key("a")) is entry, "published once"


async def test_giving_up_notifies_waiting_readers(key, decide):
    publisher = Publisher([key("a")])
    publisher.publish([decide("a", 3)], at=1.0)
    reader = Reader(publisher, key("a"))
    await settled()
    publisher.give_up(at=500.0)
    await settled()
    assert [entry.replicas for entry in reader.decisions] == [3, None]
    reader.task.cancel()


def test_cancelled_reader_does_not_stop_the_others(key, decide):
    async def scene():
        publisher = Publisher([key("a")])
        leaves, stays = Reader(publisher, key("a")), Reader(publisher, key("a"))
        await settled()
        leaves.task.cancel()
        await settled()
        entry = decide("a", 1)
        publisher.publish([entry], at=1.0)
        await settled()
        assert stays.decisions == [None, entry]
        stays.task.cancel()

    asyncio.run(scene())


acts = st.one_of(
    st.tuples(st.just("publish"), st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from([0, 1, 2])), max_size=3)),
    st.tuples(st.just("join"), st.sampled_from(NAMES)),
    st.tuples(st.just("yield"), st.integers(1, 3)),
    st.tuples(st.just("give up"), st.none()),
    st.tuples(st.just("keep"), st.sets(st.sampled_from(NAMES))),
)


class Play:
    """Carries out actions and records the published decisions of every workload in order."""

    def __init__(self):
        self.publisher = Publisher(WorkloadKey("ai", name) for name in NAMES)
        self.configured, self.readers, self.published = set(NAMES), [], {name: [None] for name in NAMES}

    async def act(self, act, what):
        match act:
            case "publish":
                self.publisher.publish([entry(name, replicas) for name, replicas in dict(what).items()], at=1.0)
            case "join" if what in self.configured:
                self.readers.append((what, Reader(self.publisher, WorkloadKey("ai", what))))
            case "yield":
                for _ in range(what):
                    await asyncio.sleep(0)
            case "give up":
                self.publisher.give_up(at=2.0)
            case "keep":
                self.configured &= what
                self.publisher.keep_only([WorkloadKey("ai", name) for name in self.configured], at=3.0)
        for name in self.configured:
            present = self.publisher.get(WorkloadKey("ai", name))
            if present is not self.published[name][-1]:
                self.published[name].append(present)

    def check(self, name, reader):
        received = [identity(each) for each in reader.decisions]
        assert is_part_of(received, [identity(each) for each in self.published[name]])
        assert all(one != two for one, two in pairwise(received)), "received twice"
        assert reader.ended == (name not in self.configured)
        if name in self.configured:
            assert reader.decisions[-1] is self.publisher.get(WorkloadKey("ai", name)), "the last decision is missing"


@settings(max_examples=150, deadline=None)
@given(acts=st.lists(acts, max_size=25))
def test_readers_get_a_subsequence_of_published_decisions_in_any_order_of_events(acts):
    async def play():
        scene = Play()
        for act, what in acts:
            await scene.act(act, what)
        await settled()
        for name, reader in scene.readers:
            scene.check(name, reader)
            reader.task.cancel()
        await settled()

    asyncio.run(play())


def entry(name, replicas):
    reason = Reason.SERVING if replicas else Reason.ASLEEP
    return Decision(WorkloadKey("ai", name), replicas, active=replicas > 0, reason=reason, decided_at=1.0)


def identity(entry):
    return None if entry is None else id(entry)


def is_part_of(part, whole):
    rest = iter(whole)
    return all(any(each == other for other in rest) for each in part)
