"""Every kind of key in a real Redis is counted, or is unknown."""

import asyncio
import time
from math import isnan

from exporter.model import Credentials, Failure, FailureKind
from exporter.sources.redis import Due, RedisQuery, Servers, Stream, Way
from exporter.sources.redis.query import Size

WORKERS = Stream("events", "workers")


def same(expected, actual):
    return repr(expected) == repr(actual)  # NaN is NaN here


async def test_waiting_is_the_length_of_a_list_and_an_absent_list_is_empty(server, ask):
    await server.client.rpush("jobs", "a", "b", "c")
    nan = float("nan")
    assert same({"jobs": (3.0, nan), "later": (0.0, nan)}, await ask(server.port, lists=("jobs", "later")))
    await server.client.delete("jobs")
    assert same({"jobs": (0.0, nan)}, await ask(server.port, lists=("jobs",)))


async def test_celery_queue_is_the_sum_of_its_priorities(server, ask):
    for key in ("celery", "celery\x06\x163", "celery\x06\x166", "celery\x06\x169"):
        await server.client.rpush(key, "task")
    assert (await ask(server.port, celery=("celery",)))["celery"][0] == 4.0


async def test_waiting_is_the_size_of_a_sorted_set_or_the_due_entries_of_a_delayed_one(server, ask):
    now = time.time()
    await server.client.zadd("priorities", {"a": 1, "b": 2})
    await server.client.zadd("delayed", {"past": now - 60, "future": now + 3600})
    await server.client.zadd("delayed_ms", {"past": (now - 60) * 1000, "future": (now + 3600) * 1000})
    counts = await ask(server.port, sorted_sets=("priorities",), delayed=(Due("delayed"), Due("delayed_ms", 1000.0)))
    assert {name: waiting for name, (waiting, _) in counts.items()} == {"priorities": 2, "delayed": 1, "delayed_ms": 1}


async def test_running_keys_count_as_running_and_lists_as_waiting(server, ask):
    await server.client.rpush("jobs", "a", "b")
    await server.client.rpush("doing", "c")
    await server.client.sadd("busy", "d", "e")
    await server.client.hset("unacked", mapping={"f": "1"})
    running = (Size("doing", "list"), Size("busy", "set"), Size("unacked", "hash"), Size("none", "zset"))
    assert await ask(server.port, lists=("jobs",), running=running) == {
        "jobs": (2.0, 0.0), "doing": (0.0, 1.0), "busy": (0.0, 2.0), "unacked": (0.0, 1.0), "none": (0.0, 0.0),
    }  # fmt: skip


async def test_stream_waits_by_its_lag_and_runs_its_unacknowledged_entries(server, ask):
    assert await ask(server.port, streams=(WORKERS,)) == {"events/workers": (0.0, 0.0)}
    await server.client.xgroup_create("events", "workers", mkstream=True)
    for number in range(5):
        await server.client.xadd("events", {"n": number})
    entries = await server.client.xreadgroup("workers", "one", {"events": ">"}, count=2)
    assert await ask(server.port, streams=(WORKERS,)) == {"events/workers": (3.0, 2.0)}
    await server.client.xack("events", "workers", entries[0][1][0][0])
    assert await ask(server.port, streams=(WORKERS,)) == {"events/workers": (3.0, 1.0)}


async def test_lost_lag_is_counted_and_never_zero(server, ask):
    """XDEL of an unread entry makes the lag nil."""
    await server.client.xgroup_create("events", "workers", mkstream=True)
    ids = [await server.client.xadd("events", {"n": number}) for number in range(5)]
    await server.client.xreadgroup("workers", "one", {"events": ">"}, count=1)
    await server.client.xdel("events", ids[3])
    (group,) = await server.client.xinfo_groups("events")
    assert group["lag"] is None
    assert await ask(server.port, streams=(WORKERS,)) == {"events/workers": (3.0, 1.0)}
    for number in range(300):
        await server.client.xadd("events", {"n": number})
    assert await ask(server.port, streams=(WORKERS,)) == {"events/workers": (100.0, 1.0)}


async def test_missing_group_is_a_failure_unless_the_stream_is_empty(server, ask):
    entry = await server.client.xadd("events", {"n": 1})
    failure = await ask(server.port, streams=(WORKERS,))
    assert failure == Failure(
        FailureKind.UNREADABLE,
        "events: the stream has no consumer group workers, so its lag is unknown: XGROUP CREATE creates it",
    )
    await server.client.xdel("events", entry)
    assert await ask(server.port, streams=(WORKERS,)) == {"events/workers": (0.0, 0.0)}


async def test_key_of_a_wrong_type_costs_itself_and_is_reported_once(server, ask, source):
    await server.client.rpush("jobs", "a")
    await server.client.hset("settings", mapping={"a": "1"})
    for _ in range(2):
        counts = await ask(server.port, lists=("jobs", "settings", "later"))
        assert counts["jobs"][0] == 1.0
        assert counts["later"][0] == 0.0
        assert isnan(counts["settings"][0])
    await server.client.delete("settings")
    assert (await ask(server.port, lists=("jobs", "settings", "later")))["settings"][0] == 0.0
    assert [problems for _, problems in source.problems] == [("settings: is a hash, not a list",), ()]


async def test_page_without_any_known_queue_is_a_failure(server, ask):
    await server.client.set("jobs", "text")
    assert await ask(server.port, lists=("jobs",)) == Failure(
        FailureKind.UNREADABLE, "jobs: is a string, not a list"
    )  # fmt: skip
    assert (await ask(server.port, streams=(Stream("jobs", "g"),))).detail == "jobs: is a string, not a stream"


async def test_databases_have_separate_queues(server, ask):
    await server.client.rpush("jobs", "a")
    assert (await ask(server.port, lists=("jobs",), db=3))["jobs"][0] == 0.0
    assert (await ask(server.port, lists=("jobs",)))["jobs"][0] == 1.0
    assert (await ask(server.port, lists=("jobs",), db=99)).detail.endswith("DB index is out of range")


async def test_restart_of_the_server_costs_only_the_queries_during_it(server, ask, until):
    await server.client.rpush("jobs", "a")
    assert (await ask(server.port, lists=("jobs",)))["jobs"][0] == 1.0
    server.stop()
    refused = Failure(FailureKind.REFUSED, f"127.0.0.1:{server.port}: Connection refused")
    results = await until(lambda: ask(server.port, lists=("jobs",)), lambda found: found == refused)
    assert {each.kind for each in results} == {FailureKind.REFUSED}
    await server.start().up()
    assert (await ask(server.port, lists=("jobs",)))["jobs"][0] == 0.0


async def test_connection_closed_by_the_server_is_reopened(server, ask, until):
    """Servers with a `timeout`, and proxies, close idle connections."""
    await ask(server.port, lists=("jobs",))
    (connection,) = [each for each in await server.client.client_list() if each["cmd"] == "llen"]
    await server.client.client_kill_filter(_id=connection["id"])
    await server.client.ping()
    assert (await ask(server.port, lists=("jobs",)))["jobs"][0] == 0.0


async def test_hanging_server_costs_its_page_and_its_late_reply_is_dropped(server, launch, ask, source):
    other = await launch()
    await other.client.rpush("jobs", "a")
    await server.client.rpush("jobs", "b", "c")
    assert (await ask(server.port, lists=("jobs",)))["jobs"][0] == 2.0
    source.timeout_s = 0.3
    server.hang()
    hung = [asyncio.create_task(ask(server.port, lists=(key,))) for key in ("jobs", "more")]
    assert (await ask(other.port, lists=("jobs",)))["jobs"][0] == 1.0
    for each in hung:
        assert await each == Failure(FailureKind.TIMEOUT, "no complete answer within 0.3 s")
    server.wake()
    source.timeout_s = 5.0
    await server.client.rpush("more", "d")
    assert (await ask(server.port, lists=("more",)))["more"][0] == 1.0


async def test_all_pages_of_a_server_share_one_connection(server, ask):
    await asyncio.gather(*(ask(server.port, lists=(f"jobs-{number}",)) for number in range(20)))
    assert len(await server.client.client_list()) == 2  # one of the source and one of the test


async def test_replica_is_read_only_while_it_follows_its_master(server, launch, ask, until):
    replica = await launch("--replicaof", "127.0.0.1", str(server.port))
    await server.client.rpush("jobs", "a")
    await until(lambda: ask(replica.port, lists=("jobs",)), lambda found: isinstance(found, dict) and found["jobs"][0])
    server.stop()
    results = await until(lambda: ask(replica.port, lists=("jobs",)), lambda found: isinstance(found, Failure))
    assert results[-1].kind is FailureKind.PARTIAL
    assert "a replica that has lost its master" in results[-1].detail
    await replica.client.config_set("replica-serve-stale-data", "no")
    results = await until(lambda: ask(replica.port, lists=("jobs",)), lambda found: isinstance(found, Failure))
    assert results[-1].kind is FailureKind.PARTIAL


async def test_loading_server_is_no_empty_queue(launch, ask, until):
    """A key takes 50 ms to load, by `key-load-delay`, an option of Redis' tests."""
    first = await launch()
    await first.client.rpush("jobs", "a")
    for number in range(200):
        await first.client.set(f"key-{number}", "x")
    await first.client.save()
    first.stop()
    first.options = ("--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024")
    first.start()
    results = await until(lambda: ask(first.port, lists=("jobs",)), lambda found: isinstance(found, dict))
    assert results[-1]["jobs"][0] == 1.0
    loading = [each for each in results[:-1] if "LOADING" in each.detail]
    assert [each.kind for each in loading] == [FailureKind.PARTIAL] * len(loading) != []
    assert {each.kind for each in results[:-1]} <= {FailureKind.PARTIAL, FailureKind.REFUSED}


async def test_http_target_is_fetched_by_the_next_source(source):
    failure = await source.pages.fetch("http://127.0.0.1:1/metrics", Credentials())
    assert failure.detail == "not of Redis: http://127.0.0.1:1/metrics"


async def test_queries_of_earlier_configurations_are_dropped(source, monkeypatch):
    monkeypatch.setattr("exporter.sources.redis.client.MAX_QUERIES", 3)
    servers = Servers(Way.SERVER, (("127.0.0.1", 1),))
    targets = [source.pages.target(RedisQuery(servers, lists=(f"q{number}",)), None) for number in range(5)]
    assert [(target.url, target.access) for target in targets[2:]] == list(source.pages._queries)
    refused = await source.pages.fetch(targets[0].url, targets[0].access)
    assert refused.detail.startswith("not of Redis")
