"""One replica as the daemon sees it: its role, when it may answer for the first time, and what costs it nothing."""

import asyncio
from contextlib import asynccontextmanager

import pytest
import structlog

from exporter.kubernetes.leases import Lease
from exporter.kubernetes.protocol import ApiFailure
from scaler.config import Address, Peers
from scaler.engine.publisher import Publisher
from scaler.ha.replica import LISTEN_S, HaRole, Replica

PATIENCE_S = 20.0  # never waited for: only says which await hung


@pytest.fixture
def replica(pki, leases, world, decision):
    """`async with replica("b") as one:` that takes part; `one.publisher` is its own."""

    @asynccontextmanager
    async def running(name, learned=None):
        files = pki.files(name)
        settings = Peers(
            address=Address("127.0.0.1", 0),
            certificate=files.certificate,
            key=files.key,
            ca=files.ca,
            server_name="tidegate.tidegate.svc",
            lease="tidegate.tidegate",
        )
        publisher = Publisher([decision("chat", 1).workload])
        one = Replica(
            settings,
            publisher,
            tick_s=1.0,
            clock=Turning(world),
            environment={"POD_NAME": name},
            memory=lambda workloads: lambda: b"what is remembered",
            learned=learned or nothing,
            told=lambda problem: None,
        )
        one.publisher = publisher
        await one.start()
        task = asyncio.create_task(one.run(leases))
        try:
            yield one
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await one.stop()

    return running


class Turning:
    """A clock of the world; who sleeps lets everybody else go on."""

    def __init__(self, world):
        self._world = world

    def now(self):
        return self._world.now

    async def sleep(self, seconds):
        await asyncio.sleep(0.001)


async def nothing(memory, offset_s):
    pass


async def until(true):
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if true():
                return
            await asyncio.sleep(0.001)


def sweep(one, world, replicas, decision):
    one.publisher.publish([decision("chat", replicas, world.now)], at=world.now)
    one.tick(world.now)


async def test_the_first_to_have_swept_leads_and_the_second_follows(replica, world, decision):
    async with replica("a") as one, replica("b") as other:
        assert one.role(world.now) is HaRole.ALONE
        sweep(one, world, 3, decision)
        await until(lambda: one.role(world.now) is HaRole.LEADER)
        sweep(other, world, 7, decision)
        await until(lambda: other.role(world.now) is HaRole.FOLLOWER)
        assert other.publisher.get(decision("chat", 1).workload).replicas == 3
        assert (one.board_age_s(world.now), other.board_age_s(world.now)) == (None, 0.0)
        # Whose answer it repeats is where the leader is asked; who leads repeats nobody.
        assert (one.repeats, other.repeats) == (None, one._campaign._election.address)


async def test_a_replica_that_has_not_swept_stands_for_nothing(replica, world, leases):
    async with replica("a") as one:
        await until(lambda: one._campaign is not None and one._campaign.looked)
        assert (leases.writes, one.settled(world.now)) == ([], False)


async def test_nobody_is_asked_before_there_is_anybody_to_remember_what_is_told(replica, world, decision):
    taken = []

    async def take(memory, offset_s):
        taken.append(memory)

    async with replica("a") as leader, replica("b", learned=take) as new:
        sweep(leader, world, 3, decision)
        await until(lambda: leader.role(world.now) is HaRole.LEADER)
        await until(lambda: new._campaign is not None and new._campaign.leader() is not None)
        assert (taken, new.settled(world.now)) == ([], False)
        sweep(new, world, 7, decision)
        await until(lambda: new.settled(world.now))
        assert taken == [b"what is remembered"], "it is remembered before anything is answered"


async def test_a_new_replica_waits_for_the_leaders_word_before_it_answers(replica, world, leases, decision):
    async with replica("a") as leader:
        sweep(leader, world, 3, decision)
        await until(lambda: leader.role(world.now) is HaRole.LEADER)
        assert leader.settled(world.now)
        async with replica("b") as new:
            sweep(new, world, None, decision)
            await until(lambda: new.settled(world.now))
            assert new.publisher.get(decision("chat", 1).workload).replicas == 3


async def test_a_leader_that_is_not_heard_keeps_nobody_waiting_for_long(replica, world, leases, decision):
    leases.lease_now = await leases.write_lease("tidegate", "tidegate", dead())
    async with replica("b") as new:
        sweep(new, world, 7, decision)
        await until(lambda: new.failures)
        assert not new.settled(world.now)
        world.now += LISTEN_S
        assert new.settled(world.now)


async def test_an_api_server_that_does_not_answer_keeps_nobody_waiting_for_long(replica, world, leases, decision):
    leases.trouble = ApiFailure(None, "get lease: no answer")
    async with replica("b") as new:
        sweep(new, world, 7, decision)
        assert not new.settled(world.now)
        world.now += LISTEN_S
        assert new.settled(world.now)


async def test_a_new_replica_that_remembers_nothing_lets_others_take_what_was_given_back(
    replica, world, leases, decision
):
    await leases.write_lease("tidegate", "tidegate", dead()._replace(holder=""))
    async with replica("b") as new:
        sweep(new, world, 7, decision)
        looks = leases.looks
        await until(lambda: leases.looks > looks + 3)
        assert leases.writes == [""]
        world.now += 15.0
        await until(lambda: new.role(world.now) is HaRole.LEADER)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ValueError("byte 0: a state must begin with TIDEGATE"), "byte 0: a state must begin with TIDEGATE"),
        (OverflowError("a bug"), "OverflowError('a bug')"),
    ],
    ids=["torn", "bug"],
)
async def test_a_memory_that_cannot_be_read_costs_itself_and_is_said_once(replica, world, decision, error, problem):
    async def torn(memory, offset_s):
        raise error

    with structlog.testing.capture_logs() as logged:
        async with replica("a") as one, replica("b", learned=torn) as other:
            sweep(one, world, 3, decision)
            await until(lambda: one.role(world.now) is HaRole.LEADER)
            sweep(other, world, 7, decision)
            for replicas in (4, 5, 6):
                sweep(one, world, replicas, decision)
                await until(
                    lambda wanted=replicas: (
                        other.publisher.board.decisions
                        and other.publisher.get(decision("chat", 1).workload).replicas == wanted
                    )
                )
    said = [each for each in logged if "memory" in each["event"]]
    assert [each["problem"] for each in said] == [problem]
    assert other.failures["memory"] >= 3


def dead():
    """A Lease of somebody who is not there any more."""
    return Lease("gone_1", "127.0.0.1:1", 15.0, 1.0, 1.0)
