"""Tests missing series in a checkpoint: they are restored, bounded, and a damaged table affects only itself."""

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from exporter.catalog.missing_series import MAX_IDENTITY_BYTES, MAX_STORED
from exporter.model import MissingSeries, PodKey, Role, Target, WorkloadKey
from scaler.columns import State, plausible
from scaler.engine.checkpoint_format import pack, unpack
from scaler.signals.open_gaps import FORGOTTEN_AFTER_S, MAX_PENDING, MAX_ROWS, OpenGaps

CHAT, CODE = WorkloadKey("ai", "chat"), WorkloadKey("ai", "code")
ROWS = {CHAT: 0, CODE: 1}
NOW = 1.8e9
NODE = Target("http://node:9400/metrics", "dcgm", Role.GPUS)


def pod(name, owner=CHAT):
    return Target(f"http://{name}:8000/metrics", "vllm", Role.PODS, owner, pod=PodKey("ai", name))


def series(number=0, pods=(), **more):
    fields = {"value": 30.0, "at": NOW - 60.0, "gone_since": nan, "had_mates": True, "process_start": 100.0, **more}
    return MissingSeries(f"series {number}".encode(), pods, **fields)


def no_owner(_pod, _at):
    return ()


def table(gaps, first=0, last=2, row_of=ROWS, owners=no_owner):
    return gaps.table(first, last, row_of, owners)


def restored(table, workloads=(CHAT, CODE), now=NOW):
    """The gaps that another process reads from a table, through its bytes."""
    state = plausible(unpack(pack(State(now, (CHAT, CODE), {}, {"missing": table}))), now)
    gaps = OpenGaps()
    gaps.take(state.tables["missing"], workloads, np.arange(len(workloads)), now)
    return gaps


@pytest.fixture
def gaps():
    open_gaps = OpenGaps()
    open_gaps.land(pod("a"), (series(1), series(22, value=nan, process_start=nan)))
    open_gaps.land(pod("b", CODE), (series(3),))
    return open_gaps


def test_missing_series_are_restored_for_their_target(gaps):
    after = restored(table(gaps))
    found = after.begin(pod("a"))
    assert [each.identity for each in found] == [b"series 1", b"series 22"]
    np.testing.assert_equal(found[0][1:], series(1)[1:])
    np.testing.assert_equal((found[1].value, found[1].process_start), (nan, nan))
    assert [each.identity for each in after.begin(pod("b", CODE))] == [b"series 3"]
    assert after.begin(pod("c")) == after.begin(pod("a", CODE)) == []


def test_nothing_is_written_if_nothing_is_missing(gaps):
    gaps.land(pod("a"), ())
    gaps.retire(pod("b", CODE))
    assert table(gaps) == {}


def test_pending_series_are_written_until_their_target_responds(gaps):
    after = restored(table(gaps))
    for _ in range(3):
        after = restored(table(after), now=NOW + 60.0)
    assert len(after.begin(pod("a"))) == 2
    assert len(table(after)["row"]) == 3, "its reader has begun, and it has not responded"
    after.land(pod("a"), (series(1),))
    assert sorted(table(after)["row"].tolist()) == [0, 1]
    after.land(pod("a"), ())
    assert table(after)["row"].tolist() == [1]


def test_pending_series_of_a_target_that_never_returns_are_dropped_after_a_week(gaps):
    after = restored(table(gaps))
    after = restored(table(after), now=NOW + FORGOTTEN_AFTER_S - 1.0)
    assert len(after.begin(pod("a"))) == 2
    assert restored(table(after), now=NOW + FORGOTTEN_AFTER_S + 1.0).begin(pod("a")) == []


def test_gap_that_is_open_for_a_month_is_restored(gaps):
    gaps.land(pod("a"), (series(1, at=NOW - 30 * 86400.0),))
    assert len(restored(table(gaps)).begin(pod("a"))) == 1


def test_each_part_of_a_checkpoint_has_its_own_workloads(gaps):
    assert [table(gaps, first, first + 1)["row"].tolist() for first in (0, 1)] == [[0, 0], [0]]


def test_series_of_a_gpu_belongs_to_the_workload_of_its_pod():
    gaps = OpenGaps()
    gaps.land(NODE, (series(1, pods=(PodKey("ai", "chat-0"),)), series(2, pods=(PodKey("other", "x"),))))
    found = table(gaps, owners=lambda pod, _: (CODE,) if pod.pod == "chat-0" else ())
    assert found["row"].tolist() == [1]
    assert [each.identity for each in restored(found).begin(NODE)] == [b"series 1"]


def test_target_with_a_reader_gets_its_series_once(gaps):
    written = table(gaps)
    after = OpenGaps()
    after.begin(pod("a"))
    after.take(written, (CHAT, CODE), np.arange(2), NOW)
    ((target, found),) = after.take_due()
    assert (target, len(found), after.take_due()) == (pod("a"), 2, [])
    after.land(pod("a"), (series(1), series(22)))
    after.take(written, (CHAT, CODE), np.arange(2), NOW)
    assert after.take_due() == [], "it has them already"


def test_series_of_absent_workloads_are_not_restored(gaps):
    after = restored(table(gaps), workloads=(CHAT,))
    assert after.begin(pod("b", CODE)) == []


def test_one_workload_with_many_gaps_leaves_space_for_the_others():
    gaps = OpenGaps()
    for number in range(200):
        gaps.land(pod(f"p{number}"), tuple(series(n) for n in range(2 * MAX_STORED)))
    gaps.land(pod("b", CODE), (series(3),))
    found = table(gaps)
    assert (len(found["row"]), found["row"].tolist().count(1)) == (MAX_ROWS, 1)
    assert len(restored(found).begin(pod("p0"))) <= MAX_STORED


def test_rows_take_the_documented_number_of_bytes():
    gaps = OpenGaps()
    gaps.land(pod("a"), (series()._replace(identity=b"x" * MAX_IDENTITY_BYTES),))
    assert sum(column.nbytes for column in table(gaps).values()) <= 1024 + 65


def test_series_of_ever_new_targets_take_bounded_memory():
    after = OpenGaps()
    for start in range(0, MAX_PENDING + MAX_ROWS, MAX_ROWS):
        gaps = OpenGaps()
        for number in range(start, start + MAX_ROWS):
            gaps.land(pod(f"p{number}"), (series(),))
        after.take(table(gaps), (CHAT, CODE), np.arange(2), NOW)
    assert len(after._pending) == MAX_PENDING
    assert after.begin(pod("p0")) == [], "the oldest are dropped first"
    assert len(after.begin(pod(f"p{MAX_PENDING}"))) == 1


def test_reload_keeps_series_pending_since_a_restart(gaps):
    after = OpenGaps()
    after.take(table(restored(table(gaps))), (CHAT, CODE), np.arange(2), inf)
    assert len(after.begin(pod("a"))) == 2


COLUMNS = ["row", "key", "identity", "had_mates", "value", "at", "gone_since", "pending_since", "process_start"]
DAMAGE = st.dictionaries(
    st.sampled_from(COLUMNS[1:]),
    st.sampled_from(["f8", "i8", "u1", "?"]).flatmap(
        lambda dtype: st.sampled_from([(2,), (2, 16), (2, 3), (2, 2000), (2, 0)]).flatmap(
            lambda shape: arrays.arrays(dtype, shape)
        )
    ),
    max_size=3,
)


@settings(deadline=None)
@given(DAMAGE, st.sets(st.sampled_from(COLUMNS), max_size=2), st.floats())
def test_damaged_table_affects_only_itself(damage, lost, number):
    gaps = OpenGaps()
    gaps.land(pod("a"), (series(1), series(2, value=number, at=number, gone_since=number, process_start=number)))
    columns = {name: column for name, column in {**table(gaps), **damage}.items() if name not in lost}
    after = OpenGaps()
    after.take(columns, (CHAT, CODE), np.arange(2), NOW) if "row" in columns else None
    found = after.begin(pod("a"))
    assert len(found) <= 2
    assert all(abs(each.at) < inf and not each.value < 0.0 for each in found)
    table(after)
