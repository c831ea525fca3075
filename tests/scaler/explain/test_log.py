"""The decision log has rings of one size, which survive new lists of workloads and configurations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.engine.decision_log import ENTRY_BYTES, FEWEST, MOST, TOGETHER_S, WIDTH, DecisionLog, blank
from scaler.policy.columns import Signal, Spec
from scaler.workloads.spec import WorkloadSpec


def plan(name, maximum=8):
    return WorkloadSpec(WorkloadKey("ai", name), Spec(0, maximum, ((Signal.WORK, 16.0),)))


def plans(*names):
    return [plan(name) for name in names]


def noted(log, at, rows, replicas=1.0):
    """Writes an entry for these rows at that time."""
    rows = np.array(rows, dtype=np.int64)
    given = blank(len(rows))
    given.when.at[:] = at
    given.verdicts.replicas[:] = replicas
    given.verdicts.reason[:] = 0
    log.note(rows, given, np.ones(len(rows), dtype=np.bool_))


def times(log, row):
    return log.past(row).times.tolist()


class TestRing:
    def test_entries_are_read_back_oldest_first(self):
        log = DecisionLog(plans("a", "b"), 2**20)
        for at in (10.0, 20.0, 30.0):
            noted(log, at, [1])
        assert (times(log, 0), times(log, 1)) == ([], [10.0, 20.0, 30.0])

    def test_oldest_entries_are_overwritten(self):
        log = DecisionLog(plans("a"), 1)
        assert log.depth == FEWEST
        for at in range(100):
            noted(log, float(at), [0])
        assert times(log, 0) == [float(at) for at in range(100 - FEWEST, 100)]

    def test_every_column_is_read_back_unchanged(self):
        log = DecisionLog(plans("a"), 2**20)
        given = blank(1)
        for number, column in enumerate(column for part in given for column in part):
            column[...] = number % 2 if column.dtype == np.bool_ else number
        log.note(np.array([0]), given, np.array([True]))
        back = log.past(0).entry(0).given
        for part, wanted in zip(back, given, strict=True):
            for column, same in zip(part, wanted, strict=True):
                assert (column.dtype, column.tolist()) == (same.dtype, same.tolist())

    def test_entry_at_a_time_is_the_last_one_before_it(self):
        log = DecisionLog(plans("a"), 2**20)
        for at in (10.0, 20.0, 30.0):
            noted(log, at, [0])
        past = log.past(0)
        assert [past.at(moment).at for moment in (9.0, 10.0, 19.9, 20.0, 99.0)] == [10.0, 10.0, 10.0, 20.0, 30.0]

    def test_workload_without_entries_has_no_explanation(self):
        past = DecisionLog(plans("a"), 2**20).past(0)
        assert (len(past), past.at(10.0)) == (0, None)


class TestDepth:
    @pytest.mark.parametrize(
        ("workloads", "depth", "every_s"),
        [
            (1, MOST, 15.0),
            (70, MOST, 15.0),  # 64 MiB / (86 x 536 bytes) = 1456
            (1000, 110, 7200 / 110),  # 64 MiB / (1133 x 536 bytes) = 110.5
            (10_000, FEWEST, 450.0),
        ],
    )
    def test_budget_is_shared_by_all(self, workloads, depth, every_s):
        assert ENTRY_BYTES == 536
        log = DecisionLog([plan("a")] * workloads, 64 * 2**20)
        assert (log.depth, log.every_s) == (depth, pytest.approx(every_s))

    def test_workload_that_changes_often_costs_no_other_an_entry(self):
        log = DecisionLog(plans("quiet", "restless"), 1)
        noted(log, 1.0, [0])
        for at in range(10_000):
            noted(log, float(at), [1])
        assert times(log, 0) == [1.0]

    def test_budget_of_0_keeps_no_entries(self):
        log = DecisionLog(plans("a"), 0)
        noted(log, 10.0, [0])
        assert (log.due(np.array([0]), 10.0).any(), times(log, 0), log.past(0).at(10.0)) == (False, [], None)
        assert len(log.charted(np.array([0])).of(0)) == 0


class TestDue:
    def test_unchanged_workload_has_one_entry_per_period(self):
        log, counts = DecisionLog(plans("a", "b", "c"), 2**20), [0, 0, 0]
        for second in range(3000):
            due = log.due(np.arange(3), 1000.0 + second)
            noted(log, 1000.0 + second, np.flatnonzero(due))
            counts = [count + int(one) for count, one in zip(counts, due, strict=True)]
        every = log.every_s
        # The first entry is at once, whatever its turn; from then on there is one in every while.
        assert all(abs(count - 1 - 3000 / every) <= 1 for count in counts)

    def test_entries_of_a_fleet_are_spread_over_ticks(self):
        log = DecisionLog([plan("a")] * 600, 64 * 2**20)
        noted(log, 0.0, np.arange(600))
        most = 0
        for second in range(1, 200):
            due = np.flatnonzero(log.due(np.arange(600), float(second)))
            noted(log, float(second), due)
            most = max(most, len(due))
        assert most <= 2 * 600 * TOGETHER_S / log.every_s

    def test_entries_continue_after_the_clock_was_set_back(self):
        log = DecisionLog(plans("a"), 2**20)
        noted(log, 10_000.0, [0])
        assert log.due(np.array([0]), 5_000.0).all()


class TestLists:
    def test_entries_survive_a_new_list_of_workloads(self):
        before = DecisionLog(plans("a", "b", "c"), 2**20)
        for row in range(3):
            noted(before, 10.0 + row, [row])
        after = DecisionLog(plans("c", "new", "a"), 2**20)
        after.adopt(before, np.array([0, 2]), np.array([2, 0]))
        assert [times(after, row) for row in range(3)] == [[12.0], [], [10.0]]
        assert times(before, 0) == []
        for row in range(3):
            noted(after, 20.0 + row, [row])
        assert [times(after, row) for row in range(3)] == [[12.0, 20.0], [21.0], [10.0, 22.0]]

    def test_reused_slot_begins_empty(self):
        before = DecisionLog(plans("a"), 2**20)
        noted(before, 10.0, [0])
        none = np.array([], dtype=np.int64)
        after = DecisionLog(plans("b"), 2**20)
        after.adopt(before, none, none)
        assert times(after, 0) == []

    def test_entries_move_to_a_larger_log(self):
        before = DecisionLog(plans("a"), 2**20)
        for at in range(2000):
            noted(before, float(at), [0])
        after = DecisionLog(plans("a", *(f"b{number}" for number in range(50))), 2**20)
        after.adopt(before, np.array([0]), np.array([0]))
        assert after.depth < before.depth or before.depth == 0
        assert times(after, 0) == [float(at) for at in range(2000 - after.depth, 2000)]
        noted(after, 2000.0, [0])
        assert times(after, 0)[-2:] == [1999.0, 2000.0]

    def test_entry_has_the_plan_of_its_time(self):
        log = DecisionLog([plan("a", maximum=4)], 2**20)
        noted(log, 1.0, [0])
        for maximum in (5, 6):  # nothing was decided with the first of them
            after = DecisionLog([plan("a", maximum=maximum)], 2**20)
            after.adopt(log, np.array([0]), np.array([0]))
            log = after
        noted(log, 2.0, [0])
        past = log.past(0)
        assert [past.entry(index).plan.spec.maximum for index in range(2)] == [4, 6]
        assert len(past.plans) == 2

    def test_plans_without_an_entry_are_dropped(self):
        log = DecisionLog([plan("a", maximum=1)], 1)
        for maximum in range(2, 200):
            noted(log, float(maximum), [0])
            after = DecisionLog([plan("a", maximum=maximum)], 1)
            after.adopt(log, np.array([0]), np.array([0]))
            log = after
        past = log.past(0)
        assert len(past.plans) <= FEWEST + 1
        assert [past.entry(index).plan.spec.maximum for index in range(FEWEST)] == list(range(183, 199))

    @given(data=st.data())
    @settings(max_examples=50)
    def test_each_workload_keeps_its_own_entries(self, data):
        names = st.lists(st.sampled_from("abcdefgh"), unique=True)
        budget = st.sampled_from([1, 40 * ENTRY_BYTES * FEWEST])
        log, kept, now, own = DecisionLog([], 1), {}, 0.0, []
        for _ in range(data.draw(st.integers(1, 8))):
            others, own = own, data.draw(names)
            after = DecisionLog(plans(*own), data.draw(budget))
            both = [name for name in own if name in others]
            rows, theirs = (np.array([each.index(name) for name in both], dtype=np.int64) for each in (own, others))
            after.adopt(log, rows, theirs)
            log, kept = after, {name: kept.get(name, []) for name in own}
            for _ in range(data.draw(st.integers(0, 30)) if own else 0):
                now += 1.0
                row = data.draw(st.integers(0, len(own) - 1))
                noted(log, now, [row])
                kept[own[row]].append(now)
            for row, name in enumerate(own):
                got = times(log, row)
                assert got == kept[name][-len(got) :] if got else not kept[name]
                assert len(got) >= min(FEWEST, len(kept[name]))


def test_charts_have_each_workloads_entries_oldest_first():
    log = DecisionLog(plans("a", "b"), 1)
    for at in range(20):
        noted(log, float(at), [0], replicas=at)
    noted(log, 5.0, [1], replicas=7)
    charts = log.charted(np.array([1, 0]))
    noted(log, 99.0, [0])  # what was copied stays as it was
    ((at, *_, replicas, _, _, _, _, _, _),) = charts.of(0)
    assert (at, replicas) == (5.0, 7.0)
    assert charts.of(1)[:, 0].tolist() == [float(at) for at in range(20 - FEWEST, 20)]


def test_row_of_the_log_is_as_wide_as_its_columns():
    assert sum(column.size for part in blank(1) for column in part) == WIDTH
