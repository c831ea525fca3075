"""Queues are read through real sentinels, during a failover, and from a real cluster of three masters."""

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
async def replicated(launch):
    """(master, replica, sentinels): sentinels that have discovered each other and the replica."""
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


async def test_failover_is_followed_without_a_zero(replicated, ask, until, source):
    master, replica, sentinels = replicated
    servers = behind(sentinels)
    await master.client.rpush("jobs", "a", "b")
    await master.client.wait(1, 5000)
    source.timeout_s = 2.0

    async def jobs():
        return await ask(0, servers=servers, lists=("jobs",))

    assert (await jobs())["jobs"][0] == 2.0
    master.hang()
    await until(jobs, lambda found: isinstance(found, Failure))
    results = await until(jobs, lambda found: isinstance(found, dict))
    assert results[-1]["jobs"][0] == 2.0
    assert (await replica.client.role())[0] == b"master"
    # The old master returns with its old data and is not read.
    await replica.client.delete("jobs")
    master.wake()
    assert (await jobs())["jobs"][0] == 0.0
    # The other sentinels outvote one that hangs.
    sentinels[0].hang()
    assert (await jobs())["jobs"][0] == 0.0
    for each in sentinels[1:]:
        each.stop()
    failure = await until(jobs, lambda found: isinstance(found, Failure))
    assert failure[-1].kind is FailureKind.REFUSED
    assert "no sentinel answers" in failure[-1].detail


async def test_master_that_no_sentinel_knows_is_a_failure(replicated, ask):
    _, _, sentinels = replicated
    failure = await ask(0, servers=behind(sentinels, "other"), lists=("jobs",))
    assert failure == Failure(FailureKind.UNREADABLE, "the sentinels know no master called other")


async def test_server_that_sentinels_name_as_master_must_have_that_role(launch, ask, until):
    """During a failover, sentinels may still name the old master."""
    master = await launch()
    deposed = await launch()
    sentinel = await launch(sentinel=True, config=SENTINEL.format(port=deposed.port))
    await deposed.client.execute_command("CONFIG", "SET", "replica-priority", "0")
    assert (await ask(0, servers=behind([sentinel]), lists=("jobs",)))["jobs"][0] == 0.0
    await deposed.client.execute_command("REPLICAOF", "127.0.0.1", str(master.port))
    # A replica that follows its master is read if it is addressed directly.
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
    """Pushes to the node that owns the key. Returns that node."""
    for each in nodes:
        with suppress(MovedError):  # another node owns it
            await each.client.rpush(key, "a")
            return each
    raise AssertionError(key)


async def test_keys_of_all_nodes_are_counted_whichever_node_is_configured(cluster, ask):
    owners = {key: await fill(cluster, key) for key in KEYS}
    assert len({id(owner) for owner in owners.values()}) > 1
    counts = await ask(0, servers=of(cluster[:1]), lists=KEYS, streams=(Stream("events", "workers"),))
    assert {name: waiting for name, (waiting, _) in counts.items()} == {
        **dict.fromkeys(KEYS, 1.0), "events/workers": 0.0,
    }  # fmt: skip


async def test_hanging_node_costs_only_its_keys(cluster, ask, source):
    owners = {key: await fill(cluster, key) for key in KEYS}
    servers = of(cluster)
    await ask(0, servers=servers, lists=KEYS)
    source.timeout_s = 2.0
    hung = owners[KEYS[0]]
    hung.hang()
    counts = await ask(0, servers=servers, lists=KEYS)
    assert {name for name, (waiting, _) in counts.items() if isnan(waiting)} == {
        key for key, owner in owners.items() if owner is hung
    }  # fmt: skip
    assert any("no answer within" in problem for _, problems in source.problems for problem in problems)


async def test_moved_slot_is_followed(cluster, ask, debian_tool):
    owners = {key: await fill(cluster, key) for key in KEYS}
    servers = of(cluster)
    before = await ask(0, servers=servers, lists=KEYS)
    old_owner = owners["jobs"]
    target = next(each for each in cluster if each is not old_owner)
    ids = {id(each): (await each.client.execute_command("CLUSTER", "MYID")).decode() for each in cluster}
    slot = await old_owner.client.execute_command("CLUSTER", "KEYSLOT", "jobs")
    await target.client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[id(old_owner)])
    await old_owner.client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[id(target)])
    await old_owner.client.execute_command("MIGRATE", "127.0.0.1", target.port, "jobs", 0, 5000)
    # During the migration the key is unknown, and not zero.
    assert isnan((await ask(0, servers=servers, lists=KEYS))["jobs"][0])
    for each in (target, old_owner):
        await each.client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[id(target)])
    assert repr(await ask(0, servers=servers, lists=KEYS)) == repr(before)


async def test_unreachable_cluster_is_a_failure(ask, ports):
    servers = Servers(Way.CLUSTER, (("127.0.0.1", ports(1)[0]),), access=Credentials())
    failure = await ask(0, servers=servers, lists=KEYS)
    assert failure.kind is FailureKind.REFUSED
    assert "Connection refused" in failure.detail


async def test_sentinels_may_have_another_password_than_the_servers(launch, ask, tmp_path):
    master = await launch("--requirepass", "of-servers", client={"password": "of-servers"})
    config = f"{SENTINEL.format(port=master.port)}sentinel auth-pass mymaster of-servers\nrequirepass of-sentinels\n"
    sentinel = await launch(sentinel=True, config=config, client={"password": "of-sentinels"})

    def access(secret):
        (tmp_path / secret).write_text(secret)
        return Credentials(username="default", password_file=str(tmp_path / secret))

    common = {"addresses": (("127.0.0.1", sentinel.port),), "master": "mymaster", "access": access("of-servers")}
    servers = Servers(Way.SENTINEL, sentinel_access=access("of-sentinels"), **common)
    assert (await ask(0, servers=servers, lists=("jobs",)))["jobs"][0] == 0.0
    failure = await ask(0, servers=Servers(Way.SENTINEL, sentinel_access=common["access"], **common), lists=("jobs",))
    assert "WRONGPASS" in failure.detail
    assert "of-servers" not in failure.detail
