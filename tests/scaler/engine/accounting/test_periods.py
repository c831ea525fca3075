"""Tests days and months of the ledger: an unknown one is a gap, and no GPU-second is lost at a midnight."""

from datetime import UTC, datetime

import numpy as np
import pytest

from exporter.model import WorkloadKey
from scaler.columns import State
from scaler.engine.account_periods import (
    DAYS,
    MONTHS,
    day_number,
    month_begin,
    month_name,
    month_number,
    read_month,
)
from scaler.engine.accounting import FleetGpus, GpuUse, Ledger
from scaler.engine.checkpoint_format import pack, unpack
from tests.scaler.engine.accounting.test_ledger import enter, moment

HOUR, DAY = 3600.0, 86400.0
ROW = np.array([0])
STATES = ("serving", "idle_warm", "loading", "unknown")


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def ledger():
    return Ledger(1, gap_s=2 * HOUR)


def day(books, text):
    """GPU-hours of the states that have any, by name; None of an unknown day."""
    found = books.periods.day(day_number(at(text)), books.kept)
    if np.isnan(found.gpu_seconds).all():
        return None
    hours = zip(STATES, (found.gpu_seconds[0] / HOUR).tolist(), strict=True)
    return {state: round(hour, 3) for state, hour in hours if hour}


def month(books, text, of="gpu_seconds"):
    found = books.periods.month(read_month(text), books.kept)[of][0]
    return float(np.sum(found)) / (HOUR if of == "gpu_seconds" else 1.0)


def run(books, begin, hours, **sweep):
    """A sweep at the beginning of each hour, and one at the end."""
    for hour in range(hours + 1):
        enter(books, at(begin) + hour * HOUR, moment(**sweep))


def test_days_and_the_month_hold_what_was_entered_in_them():
    books = ledger()
    run(books, "2026-11-01 00:00", 48, hour=2.0)
    run(books, "2026-11-03 00:00", 12, state=GpuUse.IDLE_WARM, gpus=4.0)
    assert day(books, "2026-11-01") == {"serving": 8 * 24.0}
    assert day(books, "2026-11-02") == {"serving": 8 * 24.0}
    assert day(books, "2026-11-03") == {"idle_warm": 4 * 12.0}
    assert month(books, "2026-11") == pytest.approx(8 * 48 + 4 * 12)
    assert month(books, "2026-11", "cost") == pytest.approx(2.0 * 8 * 48)
    assert books.periods.day(day_number(at("2026-11-02")), books.kept).cost.tolist() == [2.0 * 8 * 24]


def test_time_over_midnight_is_divided_between_its_days_and_months():
    """From 23:15 to 00:45: 45 minutes each."""
    books = ledger()
    for minutes in (-45.0, 45.0, 60.0):
        enter(books, at("2026-12-01 00:00") + 60.0 * minutes)
    assert day(books, "2026-11-30") == {"serving": 6.0}
    assert day(books, "2026-12-01") == {"serving": 8.0}
    assert (month(books, "2026-11"), month(books, "2026-12")) == pytest.approx((6.0, 8.0))


def test_restart_of_three_days_is_unknown_time_of_each_day():
    books = ledger()
    run(books, "2026-11-01 00:00", 24)
    run(books, "2026-11-04 12:00", 12)
    assert [day(books, f"2026-11-0{number}") for number in range(1, 5)] == [
        {"serving": 192.0}, {"unknown": 192.0}, {"unknown": 192.0}, {"serving": 96.0, "unknown": 96.0},
    ]  # fmt: skip


def test_days_without_a_sweep_or_known_gpus_are_gaps_and_not_zero():
    books = ledger()
    run(books, "2026-11-05 00:00", 24)
    run(books, "2026-11-06 00:00", 24, gpus=np.nan)
    run(books, "2026-11-07 00:00", 24, gpus=0.0)
    run(books, "2026-11-08 00:00", 1)
    assert day(books, "2026-11-04") is None, "before the first sweep"
    assert day(books, "2026-11-06") is None, "GPUs unknown"
    assert day(books, "2026-11-07") == {}, "known to hold none"
    assert day(books, "2026-11-09") is None, "not yet"
    assert np.isnan(month(books, "2026-10"))
    assert month(books, "2026-11") == pytest.approx(8 * 24 + 8)


def test_gap_of_more_than_30_days_leaves_the_days_before_unknown():
    books = ledger()
    run(books, "2026-09-01 00:00", 24)
    enter(books, at("2026-10-21 00:00"))
    enter(books, at("2026-10-21 01:00"))
    assert day(books, "2026-09-01") == {"serving": 192.0}
    assert day(books, "2026-09-10") is None
    assert day(books, "2026-09-21") == {"unknown": 192.0}
    assert month(books, "2026-09") + month(books, "2026-10") == pytest.approx(8 * 24 * 31 + 8)


def test_quantity_that_was_never_known_in_a_month_is_unknown_in_it():
    books = ledger()
    run(books, "2026-10-31 00:00", 24, watts=100.0, hour=2.0)
    run(books, "2026-11-01 00:00", 24)
    assert month(books, "2026-10", "joules") == pytest.approx(100.0 * DAY)
    assert np.isnan([month(books, "2026-11", name) for name in ("joules", "cost", "priced", "prompt")]).all()
    assert month(books, "2026-11", "wakes") == 0.0


def test_kept_periods_are_bounded():
    books = ledger()
    for number in range(MONTHS + 3):
        begin = month_begin(month_number(at("2026-01-01")) + number)
        enter(books, begin)
        enter(books, begin + HOUR)
    names = [month_name(number) for number in books.periods.kept_months()]
    assert names == [f"2026-0{number}" for number in range(3, 10)]
    assert np.isnan(month(books, "2026-02"))
    begin = at("2026-10-01")
    for number in range(DAYS + 2):
        enter(books, begin + number * DAY)
        enter(books, begin + number * DAY + HOUR)
    oldest = day_number(begin) + 1
    found = [np.isnan(books.periods.day(oldest + back, books.kept).cost).all() for back in (-1, 0)]
    assert found == [True, True], "no price"
    assert np.isnan(books.periods.day(oldest - 1, books.kept).gpu_seconds).all()
    assert not np.isnan(books.periods.day(oldest, books.kept).gpu_seconds).any()


@pytest.mark.parametrize(("back", "kept"), [(60.0, True), (40 * DAY, False)], ids=["over midnight", "a month"])
def test_clock_set_back_over_midnight_keeps_the_days(back, kept):
    books = ledger()
    run(books, "2026-11-01 00:00", 24)
    now = at("2026-11-02 00:00")
    enter(books, now - back)
    enter(books, now - back + 10.0)
    assert (day(books, "2026-11-01") is not None) is kept
    if kept:
        run(books, "2026-11-02 00:00", 24)
        assert day(books, "2026-11-01") == {"serving": 192.0}
        assert day(books, "2026-11-02") == {"serving": pytest.approx(192.0, abs=0.2)}


def restored(books, now, drop=()):
    columns = {name: column for name, column in books.columns().items() if not name.startswith(tuple(drop or ("-",)))}
    state = unpack(pack(State(now, (WorkloadKey("ai", "chat"),), columns)))
    later = Ledger(1, gap_s=2 * HOUR)
    later.take(state.columns, ROW, ROW)
    return later


def test_days_and_months_survive_a_restart_and_go_on():
    books = ledger()
    run(books, "2026-10-31 00:00", 36)
    later = restored(books, at("2026-11-01 12:00"))
    for each in (books, later):
        enter(each, at("2026-11-01 13:00"))
    assert [day(each, "2026-10-31") for each in (books, later)] == [{"serving": 192.0}] * 2
    assert [day(each, "2026-11-01") for each in (books, later)] == [{"serving": 104.0}] * 2
    assert month(later, "2026-11") == pytest.approx(104.0)


def test_state_of_an_older_version_begins_its_month_with_the_restart():
    books = ledger()
    run(books, "2026-11-01 00:00", 48)
    later = restored(books, at("2026-11-03"), drop=("accounts.days", "accounts.months", "accounts.periods"))
    run(later, "2026-11-03 00:00", 12)
    assert later.kept.gpu_seconds.sum() / HOUR == pytest.approx(8 * 60)
    assert month(later, "2026-11") == pytest.approx(8 * 12)
    assert later.periods.since.tolist() == [at("2026-11-03")]


@pytest.mark.parametrize(("name", "value"), [
    ("accounts.months.begun", 1e14), ("accounts.months.begun", -1.0), ("accounts.months.present", -5.0),
    ("accounts.months.present", 1e12), ("accounts.months.finished", -1.0), ("accounts.months.finished", 1e30),
])  # fmt: skip
def test_restored_period_that_cannot_have_been_entered_is_unknown(name, value):
    books = ledger()
    run(books, "2026-10-31 00:00", 36)
    books.columns()[name][...] = value
    later = restored(books, at("2026-11-01 12:00"))
    assert np.isnan(month(later, "2026-10"))
    enter(later, at("2026-11-01 13:00"))
    assert month(later, "2026-11") in (pytest.approx(8.0), pytest.approx(8 * 13.0))


def test_months_of_the_nodes_are_reconciled_after_a_restart():
    books = ledger()
    for hour in range(48 + 1):
        now = at("2026-10-31 00:00") + hour * HOUR
        books.enter_fleet(FleetGpus(16.0, 32.0), now, leads=True)
        enter(books, now, moment(gpus=8.0))
    later = restored(books, at("2026-11-02"))
    for each in (books, later):
        total, free, cost, _ = each.node_months.month(read_month("2026-10"), each.fleet_kept[1:])
        assert (total / HOUR, cost) == pytest.approx((16 * 24.0, 32 * 24.0))
        assert total == pytest.approx(free + month(each, "2026-10") * HOUR + 8 * HOUR, rel=0.03), "one sweep before"
        assert each.node_months.month(read_month("2026-11"), each.fleet_kept[1:])[0] == pytest.approx(16 * DAY)


@pytest.mark.parametrize("text", ["2026-13", "2026-1", "1969-12", "11-2026", "2026-11-01", "ai/chat", ""])
def test_what_is_no_month_is_refused(text):
    with pytest.raises(ValueError, match="must be a month as 2026-11, got"):
        read_month(text)
    assert month_name(read_month("2026-11")) == "2026-11"
    assert month_begin(read_month("2027-01")) == at("2027-01-01")


def test_days_and_months_of_a_workload_take_a_bounded_number_of_bytes():
    columns = Ledger(1, gap_s=2 * HOUR).periods.columns()
    assert sum(np.prod(column.shape[1:]) * column.itemsize for column in columns.values()) == 2_209
