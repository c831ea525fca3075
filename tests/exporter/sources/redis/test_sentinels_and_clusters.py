"""A real failover behind real sentinels, and a real cluster of three masters."""

import asyncio
import subprocess
from contextlib import suppress
from math import isnan

import pytest
from redis.exceptions import MovedError

from exporter.model import Credentials, Failure, FailureKind
from exporter.sources.redis import Servers, Stream, Way

SENTINEL = """
sentinel monitor mymaster 127.0.0.1 {port} 2
sentinel down-after-milliseconds mymaster 500
sentinel failover-timeout mymaster 2000
sentinel resolve-hostnames no
"""


@pytest.fixture
async def watched(launch):
    """(master, replica, sentinels): sentinels that know of each other and of the replica."""
    master = await launch()
    replica = await launch("--replicaof", "127.0.0.1", str(master.port), "--repl-diskless-sync-delay", "0")
    sentinels = [await launch(sentinel=True, config=SENTINEL.format(port=master.port)) for _ in range(3)]
    async with asyncio.timeout(60):
        for each in sentinels:
            while True:
                state = (await each.client.sentinel_masters())["mymaster"]
                if state["num-other-sentinels"] == 2 and state["num-slaves"] == 1:
                    break
                await asyncio.sleep(0.1)
    return master, replica, sentinels


def behind(sentinels, master="mymaster"):
    return Servers(Way.SENTINEL, tuple(("127.0.0.1", each.port) for each in sentinels), master=master)


async def test_failover_is_followed_and_nobody_says_zero_meanwhile(watched, ask, until, asking):
    master, replica, sentinels = watched
    servers = behind(sentinels)
    await master.client.rpush("jobs", "a", "b")
    await master.client.wait(1, 5000)
    asking.timeout_s = 2.0

    async def jobs():
        return await ask(0, servers=servers, lists=("jobs",))

    assert (await jobs())["jobs"][0] == 2.0
    master.hang()
    await until(jobs, lambda found: isinstance(found, Failure))
    seen = await until(jobs, lambda found: isinstance(found, dict))
    assert seen[-1]["jobs"][0] == 2.0
    assert (await replica.client.role())[0] == b"master"
    # The deposed one returns with what it had, and is not believed.
    await replica.client.delete("jobs")
    master.wake()
    assert (await jobs())["jobs"][0] == 0.0
    # One sentinel that hangs is outvoted.
    sentinels[0].hang()
    assert (await jobs())["jobs"][0] == 0.0
    for each in sentinels[1:]:
        each.stop()
    failure = await until(jobs, lambda found: isinstance(found, Failure))
    assert failure[-1].kind is FailureKind.REFUSED
    assert "no sentinel answers" in failure[-1].detail


async def test_master_that_no_sentinel_knows_is_told(watched, ask):
    _, _, sentinels = watched
    failure = await ask(0, servers=behind(sentinels, "other"), lists=("jobs",))
    assert failure == Failure(FailureKind.UNREADABLE, "the sentinels know no master called other")


async def test_whoever_the_sentinels_call_master_must_call_himself_so(launch, ask, until):
    """Between a failover and its end they may still name the one that has been deposed."""
    master = await launch()
    deposed = await launch()
    sentinel = await launch(sentinel=True, config=SENTINEL.format(port=deposed.port))
    await deposed.client.execute_command("CONFIG", "SET", "replica-priority", "0")
    assert (await ask(0, servers=behind([sentinel]), lists=("jobs",)))["jobs"][0] == 0.0
    await deposed.client.execute_command("REPLICAOF", "127.0.0.1", str(master.port))
    # A replica that follows its master is believed where nobody calls it one.
    await until(lambda: ask(deposed.port, lists=("jobs",)), lambda found: isinstance(found, dict))
    failure = await ask(0, servers=behind([sentinel]), lists=("jobs",))
    assert failure.kind is FailureKind.PARTIAL
    assert failure.detail.endswith("the server is a replica, and the sentinels call it the master")


@pytest.fixture
async def cluster(launch, debian_tool):
    nodes = [
        await launch("--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
                     "--cluster-require-full-coverage", "no", "--save", "")
        for _ in range(3)
    ]  # fmt: skip
    addresses = [f"127.0.0.1:{each.port}" for each in nodes]
    await asyncio.to_thread(
        subprocess.run,
        [debian_tool("redis-cli", "redis-tools"), "--cluster", "create", *addresses, "--cluster-yes"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    async with asyncio.timeout(60):
        for each in nodes:
            while b"cluster_state:ok" not in await each.client.execute_command("CLUSTER", "INFO"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    return nodes


# Slots 3053, 16258 and 7598 of 16384: one key on each of three masters that share them evenly.
KEYS = ("bar", "other-1", "jobs")


def of(nodes):
    return Servers(Way.CLUSTER, tuple(("127.0.0.1", each.port) for each in nodes))


async def fill(nodes, key):
    """Push to whoever owns the key."""
    for each in nodes:
        with suppress(MovedError):  # it is another's
            await each.client.rpush(key, "a")
            return each
    raise AssertionError(key)


async def test_keys_of_every_node_of_a_cluster_are_counted_whichever_was_named(cluster, ask):
    owners = {key: await fill(cluster, key) for key in KEYS}
    assert len({id(owner) for owner in owners.values()}) > 1
    counts = await ask(0, servers=of(cluster[:1]), lists=KEYS, streams=(Stream("events", "workers"),))
    assert {name: waiting for name, (waiting, _) in counts.items()} == {
        **dict.fromkeys(KEYS, 1.0), "events/workers": 0.0,
    }  # fmt: skip


async def test_node_that_hangs_costs_its_own_keys(cluster, ask, asking):
    owners = {key: await fill(cluster, key) for key in KEYS}
    servers = of(cluster)
    await ask(0, servers=servers, lists=KEYS)
    asking.timeout_s = 2.0
    hung = owners[KEYS[0]]
    hung.hang()
    counts = await ask(0, servers=servers, lists=KEYS)
    assert {name for name, (waiting, _) in counts.items() if isnan(waiting)} == {
        key for key, owner in owners.items() if owner is hung
    }  # fmt: skip
    assert any("no answer within" in trouble for _, problems in asking.published for trouble in problems)


async def test_slot_that_moves_is_followed(cluster, ask, debian_tool):
    owners = {key: await fill(cluster, key) for key in KEYS}
    servers = of(cluster)
    before = await ask(0, servers=servers, lists=KEYS)
    source = owners["jobs"]
    target = next(each for each in cluster if each is not source)
    ids = {id(each): (await each.client.execute_command("CLUSTER", "MYID")).decode() for each in cluster}
    slot = await source.client.execute_command("CLUSTER", "KEYSLOT", "jobs")
    await target.client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[id(source)])
    await source.client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[id(target)])
    await source.client.execute_command("MIGRATE", "127.0.0.1", target.port, "jobs", 0, 5000)
    # On its way the key is here or there: that is not known, and not zero.
    assert isnan((await ask(0, servers=servers, lists=KEYS))["jobs"][0])
    for each in (target, source):
        await each.client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[id(target)])
    assert repr(await ask(0, servers=servers, lists=KEYS)) == repr(before)


async def test_cluster_that_nobody_answers_for_is_a_failure(ask, ports):
    servers = Servers(Way.CLUSTER, (("127.0.0.1", ports(1)[0]),), access=Credentials())
    failure = await ask(0, servers=servers, lists=KEYS)
    assert failure.kind is FailureKind.REFUSED
    assert "Connection refused" in failure.detail


async def test_sentinels_may_want_another_password_than_the_servers(launch, ask, tmp_path):
    master = await launch("--requirepass", "of-servers", client={"password": "of-servers"})
    config = f"{SENTINEL.format(port=master.port)}sentinel auth-pass mymaster of-servers\nrequirepass of-sentinels\n"
    sentinel = await launch(sentinel=True, config=config, client={"password": "of-sentinels"})

    def access(secret):
        (tmp_path / secret).write_text(secret)
        return Credentials(username="default", password_file=str(tmp_path / secret))

    where = {"addresses": (("127.0.0.1", sentinel.port),), "master": "mymaster", "access": access("of-servers")}
    own = Servers(Way.SENTINEL, sentinel_access=access("of-sentinels"), **where)
    assert (await ask(0, servers=own, lists=("jobs",)))["jobs"][0] == 0.0
    failure = await ask(0, servers=Servers(Way.SENTINEL, sentinel_access=where["access"], **where), lists=("jobs",))
    assert "WRONGPASS" in failure.detail
    assert "of-servers" not in failure.detail
