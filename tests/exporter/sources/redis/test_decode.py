"""Any reply of Redis is decoded to a page without inventing values."""

import subprocess
import sys
from math import isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.catalog import Reader
from exporter.model import Failure, FailureKind, Quantity
from exporter.sources.redis.decode import ErrorReply, Measurement, decode, decode_second, page, role_failure
from exporter.sources.redis.query import Due, Measure, RedisQuery, Servers, Size, Stream, Way, command_of
from exporter.textformat import parse

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
JOBS = Size("jobs", "list")
SERVERS = Servers(Way.SERVER, (("h", 6379),))


def read(body):
    return Reader("redis_exporter").read(parse(body), 100.0)


@given(st.dictionaries(KEYS, st.integers(0, 10**9), min_size=1), st.booleans())
def test_key_with_any_name_is_a_queue_with_its_count(sizes, in_hand):
    measures = [Measure(key, Size(key, "list")) for key in sizes] + [Measure("\x00", JOBS, in_hand=True)] * in_hand
    body = page(measures, [Measurement(float(size)) for size in sizes.values()] + [Measurement(7.0)] * in_hand, 0)
    samples = read(body)
    waiting = dict(
        zip((each.name for each in samples.subjects), samples.column(Quantity.REQUESTS_WAITING), strict=True)
    )
    assert {key: waiting[key] for key in sizes} == sizes
    total = samples.column(Quantity.REQUESTS_RUNNING).sum()
    assert total == 7.0 if in_hand else isnan(total)
    assert samples.dropped == ()


@given(st.recursive(st.none() | st.integers() | st.binary(max_size=9), lambda inner: st.lists(inner, max_size=6)))
def test_odd_reply_is_unknown_and_never_zero(reply):
    for query in (JOBS, Due("jobs"), Stream("jobs", "g")):
        answer = decode(query, reply)
        if isinstance(answer, Measurement) and (isinstance(query, Stream) or not isinstance(reply, int)):
            assert isnan(answer.waiting)
            assert answer.problem


@pytest.mark.parametrize("fields", [
    [b"name", b"g", b"pending", 2, b"last-delivered-id", b"5-0"],  # Redis before 7
    [b"name", b"g", b"pending", 2, b"last-delivered-id", b"5-0", b"entries-read", None, b"lag", None],
])  # fmt: skip
def test_missing_lag_is_counted_from_the_last_delivered_entry(fields):
    query, reply = Stream("events", "g"), [[b"name", b"other", b"lag", 9, b"pending", 9], fields]
    assert decode(query, reply) == ("XRANGE", "events", "(5-0", "+", "COUNT", "100")
    assert decode_second(query, reply, [[b"6-0", []], [b"7-0", []]]) == Measurement(2.0, 2.0)


def test_queue_of_several_lists_is_unknown_if_one_list_is_unknown():
    measures = RedisQuery(SERVERS, celery=("c",), lists=("d",)).measures()
    body = page(
        measures, [Measurement(1.0), Measurement(1.0), Measurement(nan, problem="c: no"), *[Measurement(1.0)] * 2], 0
    )
    assert body == (
        b'tidegate_redis_waiting{db="db0",key="d"} 1.0\ntidegate_redis_waiting{db="db0",key="c"} nan\n'
    )  # fmt: skip
    assert [each.reason for each in read(body).dropped] == ["tidegate_redis_waiting: no value (NaN)"]


@pytest.mark.parametrize(("role", "must_be_master", "kind"), [
    ([b"master", 10, []], True, None),
    ([b"slave", b"h", 6379, b"connected", 10], False, None),
    ([b"slave", b"h", 6379, b"connected", 10], True, FailureKind.PARTIAL),
    ([b"slave", b"h", 6379, b"sync", 10], False, FailureKind.PARTIAL),
    (ErrorReply("LOADING", "Redis is loading the dataset in memory"), False, FailureKind.PARTIAL),
    (ErrorReply("NOPERM", "this user has no permissions"), False, FailureKind.CREDENTIALS),
    (ErrorReply("NOAUTH", "Authentication required."), False, FailureKind.CREDENTIALS),
    (ErrorReply("ERR", "unknown command 'ROLE'"), False, None),  # a proxy
])  # fmt: skip
def test_role_of_a_server_decides_whether_it_is_read(role, must_be_master, kind):
    failure = role_failure(role, master_wanted=must_be_master)
    assert (failure.kind if isinstance(failure, Failure) else None) == kind


def test_due_entries_are_counted_in_the_units_of_the_scores():
    assert command_of(Due("d", 1000.0), 1.5) == ("ZCOUNT", "d", "-inf", "1500.0")


def test_redis_client_is_imported_only_if_used():
    code = "import sys, scaler.daemon, scaler.engine.loop; assert 'redis' not in sys.modules, 'imported'"
    subprocess.run([sys.executable, "-c", code], check=True)
