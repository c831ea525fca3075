"""Checks Redis queues in a configuration."""

import pytest

from exporter.model import Credentials
from scaler.config import Redis, Running, parse
from scaler.workloads.targets import redis_query

URL = "must be a URL such as redis://redis.batch.svc:6379/0, or rediss:// for TLS"
NODE = "must be a URL such as redis://redis-0.redis:6379, without a database, or rediss://"


def check_redis(check, keys, rest=""):
    return check(f"workloads: [{{namespace: ai, name: c, gateway: {{redis: {{{keys}}}{rest}}}}}]")


@pytest.mark.parametrize(("value", "expected"), [
    ("http://h", URL), ("redis:///0", URL), ("redis://h/a", URL), ("redis://h:0", f"{URL}, its port from 1 to 65535"),
    ("redis://h:99999", f"{URL}, its port from 1 to 65535"), ("redis://h?db=1", URL), ("7", URL),
    ("redis://u:p@h", "must not carry a user or a password: they go into access.basic"),
])  # fmt: skip
def test_redis_url_has_a_host_a_database_and_no_secret(check, value, expected):
    (line,) = check_redis(check, f"url: '{value}', lists: [jobs]")
    assert line.startswith(f"c.yaml:1:61: workloads.0.gateway.redis.url: {expected}, got ")


def test_cluster_node_has_no_database(check):
    (line,) = check_redis(check, "cluster: [redis://h/1], lists: [jobs]")
    assert NODE in line


@pytest.mark.parametrize(("keys", "expected"), [
    ("url: redis://h, lists: [a]", []),
    ("lists: [a]", [": must have one of url, sentinels, cluster: it locates the servers"]),
    ("url: redis://h, cluster: [redis://h], lists: [a]",
     [": must have only one of url, sentinels, cluster: url and cluster are given"]),
    ("sentinels: [redis://s], lists: [a]",
     [".master: must be given with sentinels: they watch masters by name"]),
    ("url: redis://h, master: m, lists: [a]", [".master: goes with sentinels: url needs none"]),
    ("url: redis://h, db: 1, lists: [a]", [".db: goes with sentinels: write it into url"]),
    ("cluster: [redis://h], db: 1, lists: [a]", [".db: goes with sentinels: cluster needs none"]),
    ("cluster: [redis://h, rediss://i], lists: [a]",
     [".cluster.1: must have the scheme of cluster.0: either all nodes use TLS or none, got rediss://i"]),
    ("cluster: [redis://h, redis://h], lists: [a]", [".cluster.1: must be another node than cluster.0, got redis://h"]),
    ("url: redis://h",
     [": must have one of lists, celery, sorted_sets, delayed, streams: the queues to count"]),
    ("url: redis://h, running: {lists: [a]}",
     [": must have one of lists, celery, sorted_sets, delayed, streams: the queues to count"]),
    ("url: redis://h, lists: [a, b, a]",
     [".lists.2: must be another queue than lists.0: it would be counted twice, got a"]),
    ("url: redis://h, lists: [a], celery: [a]",
     [".celery.0: must be another queue than lists.0: it would be counted twice, got a"]),
    ("url: redis://h, lists: [e], streams: [{key: e, group: w}, {key: e, group: v}, {key: e, group: w}]",
     [".streams.2: must be another queue than streams.0: it would be counted twice"]),
    ("url: redis://h, list: [a]", [".list: unknown key; did you mean lists?"]),
])  # fmt: skip
def test_redis_has_one_connection_and_distinct_queues(check, keys, expected):
    lines = [line.split("redis", 1)[1] for line in check_redis(check, keys)]
    assert lines[: len(expected)] == expected
    assert bool(lines) == bool(expected)


@pytest.mark.parametrize(("access", "expected"), [
    ("{basic: {username: u, password_file: p}}", None),
    ("{bearer_file: t}", "access.bearer_file: is for HTTP: Redis takes a user and a password (basic)"),
    ("{tls: {ca_file: c}}", "access.tls: is for rediss: the servers are reached over redis"),
])  # fmt: skip
def test_redis_access_is_by_user_and_certificate(check, access, expected):
    lines = check_redis(check, "url: redis://h, lists: [a]", f", access: {access}")
    assert [line.split("gateway.", 1)[1] for line in lines] == ([expected] if expected else [])


@pytest.mark.parametrize(("text", "expected"), [
    ("gpus: [{redis: {url: redis://h, lists: [a]}}]", "gpus.0.redis: is for gateways: "),
    ("workloads: [{engine: vllm, namespace: ai, name: c, pods: {redis: {url: redis://h, lists: [a]}}}]",
     "workloads.0.pods.redis: is for gateways: "),
    ("workloads: [{namespace: ai, name: c, gateway: {kind: epp, redis: {url: redis://h, lists: [a]}}}]",
     "workloads.0.gateway.kind: goes with metrics: Redis has none, got epp"),
    ("workloads: [{namespace: ai, name: c, gateway: {port: 1, redis: {url: redis://h, lists: [a]}}}]",
     "workloads.0.gateway.port: goes with dns, target or service: write it into redis, got 1"),
    ("workloads: [{namespace: ai, name: c, gateway: {url: http://h, redis: {url: redis://h, lists: [a]}}}]",
     "workloads.0.gateway: must have only one of url, urls, dns, service, prometheus, redis: url and redis are given"),
])  # fmt: skip
def test_redis_queue_is_a_gateway_and_not_a_target(check, text, expected):
    assert [line for line in check(text) if expected in line] != []


def test_shared_gateway_may_be_redis_with_queues_of_tenants(check):
    page = "{redis: {url: redis://h, lists: [a]}}"
    text = f"kubernetes: {{}}\ngateways: [{{name: jobs, namespaces: [ai], page: {page}}}]"
    assert check(text) == []


def test_redis_workload_is_sized_by_jobs():
    text = "workloads: [{namespace: ai, name: c, gateway: {redis: {url: redis://h, lists: [a]}}}]"
    (workload,) = parse(text, "c.yaml")[0].workloads
    assert (workload.gateway_kind, workload.work) == ("redis_exporter", 1.0)


def test_redis_configuration_becomes_a_query_url():
    config = Redis(
        url="rediss://[::1]/3", lists=["a"], celery=["c"], sorted_sets=["z"],
        delayed=[{"key": "d", "scores": "milliseconds"}], streams=[{"key": "e", "group": "w"}],
        running=Running(lists=["l"], sets=["s"], hashes=["h"], sorted_sets=["y"]),
    )  # fmt: skip
    query = redis_query(config, None)
    assert query.url == (
        "rediss://[::1]:6379/3?list=a&celery=c&sorted_set=z&delayed_1000=d&stream=e%2Fw"
        "&running_list=l&running_set=s&running_hash=h&running_zset=y"
    )  # fmt: skip
    assert query.servers.tls
    assert query.delayed[0].per_s == 1000.0
    behind = redis_query(Redis(sentinels=["redis://s"], master="m", db=2, lists=["a"]), None)
    assert behind.url == "redis+sentinel://s:26379/m/2?list=a"
    assert behind.servers.sentinel_access == behind.servers.access
    open_sentinels = Redis(sentinels=["redis://s"], master="m", sentinel_access={}, lists=["a"])
    assert redis_query(open_sentinels, Credentials(username="u")).servers.sentinel_access == Credentials()
    assert redis_query(Redis(cluster=["redis://h:7"], lists=["a"]), None).url == "redis+cluster://h:7/0?list=a"
