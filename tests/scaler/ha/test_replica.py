"""One replica as the daemon uses it: its role, when it becomes ready, and which failures are harmless."""

import asyncio
from contextlib import asynccontextmanager

import pytest
import structlog

from exporter.kubernetes.leases import Lease
from exporter.kubernetes.protocol import ApiFailure
from scaler.config import Address, Peers
from scaler.engine.publisher import Publisher
from scaler.ha.replica import LISTEN_S, HaRole, Replica

PATIENCE_S = 60.0  # never waited for: only says which await hung


@pytest.fixture
def replica(pki, leases, world, decision):
    """`async with replica("b") as one:` a running replica; `one.publisher` is its publisher."""

    @asynccontextmanager
    async def running(name, on_state=None):
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
            clock=YieldingClock(world),
            environment={"POD_NAME": name},
            state=lambda workloads: lambda: b"the state",
            on_state=on_state or ignore_state,
            on_tls_problem=lambda problem: None,
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


class YieldingClock:
    """Shows the time of `world`. A sleep lets all other tasks run."""

    def __init__(self, world):
        self._world = world

    def now(self):
        return self._world.now

    async def sleep(self, seconds):
        await asyncio.sleep(0.001)


async def ignore_state(state, offset_s):
    pass


async def until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.001)


def sweep(one, world, replicas, decision):
    one.publisher.publish([decision("chat", replicas, world.now)], at=world.now)
    one.tick(world.now)


async def test_first_replica_with_a_tick_leads_and_the_second_follows(replica, world, decision):
    async with replica("a") as one, replica("b") as other:
        assert one.role(world.now) is HaRole.ALONE
        sweep(one, world, 3, decision)
        await until(lambda: one.role(world.now) is HaRole.LEADER)
        sweep(other, world, 7, decision)
        await until(lambda: other.role(world.now) is HaRole.FOLLOWER)
        assert other.publisher.get(decision("chat", 1).workload).replicas == 3
        assert (one.board_age_s(world.now), other.board_age_s(world.now)) == (None, 0.0)
        # A follower names the leader's address; the leader names none.
        assert (one.followed_address, other.followed_address) == (None, one._elector._election.address)


async def test_replica_without_a_tick_does_not_take_the_lease(replica, world, leases):
    async with replica("a") as one:
        await until(lambda: one._elector is not None and one._elector.has_read)
        assert (leases.writes, one.settled(world.now)) == ([], False)


async def test_replica_without_a_tick_does_not_poll_the_leader(replica, world, decision):
    states = []

    async def take(state, offset_s):
        states.append(state)

    async with replica("a") as leader, replica("b", on_state=take) as new:
        sweep(leader, world, 3, decision)
        await until(lambda: leader.role(world.now) is HaRole.LEADER)
        await until(lambda: new._elector is not None and new._elector.leader() is not None)
        assert (states, new.settled(world.now)) == ([], False)
        sweep(new, world, 7, decision)
        await until(lambda: new.settled(world.now))
        assert states == [b"the state"], "the state must arrive before the first decision"


async def test_new_replica_waits_for_the_leaders_board_before_it_settles(replica, world, leases, decision):
    async with replica("a") as leader:
        sweep(leader, world, 3, decision)
        await until(lambda: leader.role(world.now) is HaRole.LEADER)
        assert leader.settled(world.now)
        async with replica("b") as new:
            sweep(new, world, None, decision)
            await until(lambda: new.settled(world.now))
            assert new.publisher.get(decision("chat", 1).workload).replicas == 3


async def test_unreachable_leader_delays_readiness_by_at_most_five_seconds(replica, world, leases, decision):
    leases.lease_now = await leases.write_lease("tidegate", "tidegate", expired_lease())
    async with replica("b") as new:
        sweep(new, world, 7, decision)
        await until(lambda: new.failures)
        assert not new.settled(world.now)
        world.now += LISTEN_S
        assert new.settled(world.now)


async def test_unreachable_api_server_delays_readiness_by_at_most_five_seconds(replica, world, leases, decision):
    leases.failure = ApiFailure(None, "get lease: no answer")
    async with replica("b") as new:
        sweep(new, world, 7, decision)
        assert not new.settled(world.now)
        world.now += LISTEN_S
        assert new.settled(world.now)


async def test_new_replica_without_state_leaves_a_released_lease_to_others(replica, world, leases, decision):
    await leases.write_lease("tidegate", "tidegate", expired_lease()._replace(holder=""))
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
async def test_unreadable_state_costs_only_itself_and_is_logged_once(replica, world, decision, error, problem):
    async def torn(state, offset_s):
        raise error

    with structlog.testing.capture_logs() as logged:
        async with replica("a") as one, replica("b", on_state=torn) as other:
            sweep(one, world, 3, decision)
            await until(lambda: one.role(world.now) is HaRole.LEADER)
            sweep(other, world, 7, decision)
            for replicas in (4, 5, 6):
                sweep(one, world, replicas, decision)
                await until(
                    lambda expected=replicas: (
                        other.publisher.board.decisions
                        and other.publisher.get(decision("chat", 1).workload).replicas == expected
                    )
                )
    logged_events = [each for each in logged if each["event"] == "leader state unreadable"]
    assert [each["problem"] for each in logged_events] == [problem]
    assert other.failures["memory"] >= 3


def expired_lease():
    """Returns a Lease whose holder no longer exists."""
    return Lease("gone_1", "127.0.0.1:1", 15.0, 1.0, 1.0)
