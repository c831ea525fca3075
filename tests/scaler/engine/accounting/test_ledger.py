"""Tests the ledger: no time is lost or entered twice, and an unobserved time is unknown."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.columns import State as Remembered
from scaler.columns import translated
from scaler.engine.accounting import STATES, AccountedSweep, GpuUse, Ledger
from scaler.engine.checkpoint_format import pack, unpack

GAP_S = 10.0
ROWS = np.array([0])
NOTHING = np.full((1, 3), np.nan)
BY_STATE = {state: index for index, state in enumerate(STATES)}


def moment(
    state=GpuUse.SERVING, gpus=8.0, each=8.0, apart=np.nan, queued=0.0, wanted=1.0, hour=np.nan, watts=np.nan, most=4.0
):
    held = np.zeros((1, len(STATES)))
    held[0, BY_STATE[state]] = gpus
    columns = ([value] for value in (each, queued, np.nan, apart, wanted, np.nan, hour, watts, most))
    code = np.array([BY_STATE[state]])
    return AccountedSweep(
        code, held, *(np.array(column) for column in columns), counts=np.array([True]), spared=np.zeros(1)
    )


def enter(books, at, sweep=None, counted=NOTHING, *, leads=True):
    books.enter(moment() if sweep is None else sweep, counted, at, leads=leads)


def by_state(values):
    return {str(state): value for state, value in zip(STATES, values[0].tolist(), strict=True) if value}


def test_state_of_a_sweep_lasts_until_the_next_sweep():
    books = Ledger(1, GAP_S)
    enter(books, 100.0, moment(GpuUse.LOADING))
    enter(books, 104.0, moment(GpuUse.SERVING, gpus=16.0))
    enter(books, 105.0, moment(GpuUse.IDLE_WARM))
    assert by_state(books.kept.state_seconds) == {"loading": 4.0, "serving": 1.0}
    assert by_state(books.kept.gpu_seconds) == {"loading": 32.0, "serving": 16.0}


def test_unobserved_time_is_unknown_and_neither_zero_nor_idle():
    books = Ledger(1, GAP_S)
    enter(books, 100.0, moment(GpuUse.IDLE_WARM))
    enter(books, 3700.0, moment(GpuUse.IDLE_WARM))
    assert by_state(books.kept.state_seconds) == {"unknown": 3600.0}
    assert by_state(books.kept.gpu_seconds) == {"unknown": 8.0 * 3600.0}


def test_clock_set_back_adds_no_time():
    books = Ledger(1, GAP_S)
    enter(books, 100.0)
    enter(books, 105.0)
    enter(books, 50.0)
    enter(books, 55.0)
    assert by_state(books.kept.state_seconds) == {"serving": 10.0}


def test_clock_jump_of_half_a_century_adds_a_month_at_most():
    books = Ledger(1, GAP_S)
    enter(books, 100.0)
    enter(books, 1.79e9)
    enter(books, 1.79e9 + 5.0)
    assert by_state(books.kept.state_seconds) == {"unknown": 2_592_000.0, "serving": 5.0}
    assert by_state(books.shown.gpu_seconds) == {"unknown": 8.0 * 2_592_000.0, "serving": 40.0}


def test_unknown_gpus_are_not_counted_as_zero():
    books = Ledger(1, GAP_S)
    unknown = moment()._replace(gpus=np.full((1, len(STATES)), np.nan))
    enter(books, 100.0, unknown)
    enter(books, 105.0, unknown)
    assert np.isnan(books.kept.gpu_seconds).all()
    assert by_state(books.kept.state_seconds) == {"serving": 5.0}
    enter(books, 110.0)
    enter(books, 111.0)
    assert by_state(books.kept.gpu_seconds) == {"serving": 8.0}


def test_sleep_and_wake_are_counted_once_each():
    books = Ledger(1, GAP_S)
    for at, wanted in enumerate([1.0, 1.0, 0.0, 0.0, 2.0, np.nan, 1.0, 0.0]):
        enter(books, 100.0 + at, moment(wanted=wanted))
    assert (books.kept.wakes.tolist(), books.kept.sleeps.tolist()) == ([1.0], [2.0])


def test_request_counters_are_unknown_until_a_target_exposes_them():
    books = Ledger(1, GAP_S)
    enter(books, 100.0)
    assert np.isnan(books.kept.requests).all()
    enter(books, 101.0, counted=np.array([[0.0, np.nan, 5.0]]))
    enter(books, 102.0, counted=np.array([[2.0, np.nan, np.nan]]))
    assert [column.tolist()[0] for column in (books.kept.requests, books.kept.generated)] == [2.0, 5.0]
    assert np.isnan(books.kept.prompt).all()


class TestShadow:
    def test_replicas_above_the_decision_are_saved_gpu_seconds(self):
        books = Ledger(1, GAP_S)
        enter(books, 100.0, moment(apart=-3.0))
        enter(books, 110.0)
        assert (books.kept.saved.tolist(), books.kept.added.tolist()) == ([240.0], [0.0])
        assert (books.kept.fewer.tolist(), books.kept.more.tolist()) == ([10.0], [0.0])

    def test_only_the_queue_while_the_decision_is_higher_is_counted(self):
        books = Ledger(1, GAP_S)
        enter(books, 100.0, moment(apart=1.0, queued=6.0))
        enter(books, 105.0, moment(apart=0.0, queued=9.0))
        enter(books, 110.0, moment(apart=-1.0, queued=9.0))
        enter(books, 115.0)
        assert books.kept.queued.tolist() == [30.0]
        assert (books.kept.shadow.tolist(), books.kept.added.tolist()) == ([15.0], [40.0])

    def test_unknown_queue_is_not_counted_as_empty(self):
        books = Ledger(1, GAP_S)
        enter(books, 100.0, moment(apart=1.0, queued=np.nan))
        enter(books, 105.0)
        assert np.isnan(books.kept.queued).all()

    def test_unobserved_time_and_active_mode_are_not_compared(self):
        books = Ledger(1, GAP_S)
        enter(books, 100.0, moment(apart=-3.0))
        enter(books, 200.0)
        enter(books, 205.0)
        assert books.kept.shadow.tolist() == [0.0]
        assert np.isnan(books.kept.saved).all()


STATE = st.sampled_from(STATES)
STEP = st.one_of(st.floats(-30.0, 30.0), st.floats(0.01, 1e6))
MOMENTS = st.lists(
    st.tuples(STEP, STATE, st.sampled_from([0.0, 1.0, 8.0]), st.sampled_from([np.nan, -2.0, 0.0, 1.0])),
    min_size=1, max_size=30,
)  # fmt: skip


def played(books, story, at=1000.0):
    for step, state, gpus, apart in story:
        at += step
        enter(books, at, moment(state, gpus=gpus, apart=apart, queued=1.0))
    return at


@given(MOMENTS)
def test_seconds_of_all_states_add_up_to_the_elapsed_time(story):
    books = Ledger(1, GAP_S)
    at = played(books, story[:1])
    passed, last = 0.0, at
    for step, *_ in story[1:]:
        passed, last = passed + max(0.0, (last + step) - last), last + step
    played(books, story[1:], at)
    assert books.kept.state_seconds.sum() == pytest.approx(passed)
    # Moments of this story always have known GPUs in one state; the GPU seconds of an unknown time count too.
    assert np.nan_to_num(books.kept.gpu_seconds).min() >= 0.0


@given(MOMENTS)
def test_no_interval_both_saves_and_adds_and_no_counter_falls(story):
    books, at = Ledger(1, GAP_S), 1000.0
    for each in story:
        before = [np.nan_to_num(column).copy() for column in books.kept]
        at = played(books, [each], at)
        rise = [np.nan_to_num(after) - was for after, was in zip(books.kept, before, strict=True)]
        assert all((risen >= 0.0).all() for risen in rise)
        sums = dict(zip(books.kept._fields, rise, strict=True))
        assert not (sums["saved"].any() and sums["added"].any())
        assert not (sums["more"].any() and sums["fewer"].any())


def checkpoint(books, at):
    return unpack(pack(Remembered(at, (WorkloadKey("ai", "chat"),), books.columns()).copied()))


@given(MOMENTS, MOMENTS, st.floats(GAP_S + 0.01, 1e5))
def test_restart_adds_only_the_gap(story, rest, away_s):
    whole, first, second = Ledger(1, GAP_S), Ledger(1, GAP_S), Ledger(1, GAP_S)
    at = played(whole, story)
    played(first, story)
    second.take(checkpoint(first, at).columns, ROWS, ROWS)
    rest = [(away_s, *rest[0][1:]), *rest[1:]]
    played(whole, rest, at)
    played(second, rest, at)
    for one, other in zip(whole.kept, second.kept, strict=True):
        np.testing.assert_array_equal(one, other)


def test_exported_counters_restart_with_the_process_and_survive_a_reload():
    first, second, third = Ledger(1, GAP_S), Ledger(1, GAP_S), Ledger(1, GAP_S)
    enter(first, 100.0)
    enter(first, 105.0)
    second.take(checkpoint(first, 105.0).columns, ROWS, ROWS)  # after a restart
    enter(second, 108.0)
    assert by_state(second.kept.gpu_seconds) == {"serving": 64.0}
    assert by_state(second.shown.gpu_seconds) == {"serving": 24.0}
    third.take(second.columns(), ROWS, ROWS)  # after a reload
    third.go_on(second, ROWS, ROWS)
    enter(third, 110.0)
    assert by_state(third.shown.gpu_seconds) == {"serving": 40.0}


def test_sum_over_two_replicas_counts_every_second_once():
    one, other = Ledger(1, GAP_S), Ledger(1, GAP_S)
    for at in range(100, 120):
        enter(one, float(at), leads=at < 110)
        enter(other, float(at), leads=at >= 110)
    assert one.kept.gpu_seconds.sum() == other.kept.gpu_seconds.sum() == 8.0 * 19
    assert one.shown.gpu_seconds[0, 0] + other.shown.gpu_seconds[0, 0] == 8.0 * 19


def test_follower_adopts_the_longer_ledger_and_never_decreases_its_own():
    old, young = Ledger(1, GAP_S), Ledger(1, GAP_S)
    for at in range(0, 2000, 10):
        enter(old, float(at))
    enter(young, 1000.0)
    enter(young, 1990.0)
    # The clock of `young` is 0.2 s ahead, so the adopted ledger begins 0.2 s later there.
    young.take(translated(checkpoint(old, 1990.0), 0.2).columns, ROWS, ROWS)
    assert young.kept.gpu_seconds.sum() == old.kept.gpu_seconds.sum() == 8.0 * 1990
    enter(young, 1995.0)
    enter(old, 1994.0)
    old.take(checkpoint(young, 1995.0).columns, ROWS, ROWS)
    assert old.kept.gpu_seconds.sum() == 8.0 * 1994
    young.take(translated(checkpoint(old, 1994.0), -5.0).columns, ROWS, ROWS)
    assert young.kept.gpu_seconds.sum() == pytest.approx(8.0 * 1994.8)


def test_state_of_a_newer_version_is_unknown():
    books, newer = Ledger(1, GAP_S), Ledger(1, GAP_S)
    enter(newer, 100.0, moment()._replace(state=np.array([len(STATES) + 3])))
    books.take(newer.columns(), ROWS, ROWS)
    enter(books, 105.0)
    assert by_state(books.kept.state_seconds) == {"unknown": 5.0}
