"""The parts together, on a fake clock: weeks of a workload in a second."""

import numpy as np
import pytest

from exporter.cluster.objects import Pod
from exporter.model import PodKey
from scaler.learned import Learned, Rates, Rules

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
TICK = 30.0
HOURLY = Rates(gpu=2.5 / HOUR, waiting=30.0 / HOUR)


def rules(*, learns=(True,)):
    count = len(learns)
    every = [np.full(count, seconds) for seconds in (300.0, 60.0, 4 * HOUR)]
    return Rules(np.array(learns), *every)


def pod(**more):
    return Pod(PodKey("ai", "chat-a"), "uid", created_at=0.0, node="n", scheduled_at=0.0, **more)


class Played:
    """One workload that is asked every 30 s whether it has demand."""

    def __init__(self, gpus=1.0):
        self.learned, self.gpus, self.now = Learned(rules(), HOURLY), np.array([gpus]), 0.0

    def started(self, seconds):
        self.learned.starts.told(0, [pod()], waiting=False, now=self.now)
        self.learned.starts.told(0, [pod(ready=True, was_ready=True, ready_at=seconds)], waiting=False, now=seconds)
        return self

    def __call__(self, seconds, *, busy=False, known=True):
        """What happens so long, and the fraction of it in which it was held up in advance."""
        ticks = round(seconds / TICK)
        held = 0
        for _ in range(ticks):
            self.now += TICK
            nothing = np.array([np.nan])
            self.learned.observe(np.array([busy]), nothing, np.array([known]), self.gpus, self.now)
            held += bool(self.learned.in_advance(self.now)[0])
        return held / ticks

    @property
    def window(self):
        return float(self.learned.window(self.now)[0])


@pytest.fixture
def played():
    return Played()


def test_a_workload_of_which_nothing_is_known_has_the_constant(played):
    played(DAY)
    assert played.window == 300.0


def test_the_break_even_follows_the_start_and_the_gpus_of_a_replica():
    # 70.8 to 75.3 s are one bucket: 75.3 * (1 + 12) on one GPU, 75.3 * (1 + 3) on four.
    one, four = Played(gpus=1.0).started(72.0), Played(gpus=4.0).started(72.0)
    unknown = Played(gpus=np.nan).started(72.0)
    for each in (one, four, unknown):
        each(TICK)
    assert [round(each.window) for each in (one, four, unknown)] == [979, 301, 979]


def test_weeks_of_office_hours_end_in_a_start_before_the_return(played):
    # Nine minutes of work at each full hour from eight to six, nights between: as sg_office_14d of our traces.
    played.started(72.0)
    for _ in range(7):
        for _ in range(10):
            played(9 * MINUTE, busy=True)
            held = played(51 * MINUTE)
        played(13 * HOUR)
        played(9 * MINUTE, busy=True)
    assert 0.02 < held < 0.25
    # In the night it is tried once, and given up, and not kept warm again for what the day taught.
    played(45 * MINUTE)
    assert not played.learned.in_advance(played.now)[0]
    assert played(30 * MINUTE) > 0.1
    assert played.window == 60.0
    assert played(12 * HOUR) == 0.0


def test_a_start_in_advance_is_no_return(played):
    # Held up in advance it loads, and is ready: no demand, so the rest goes on and is counted once, in full.
    played.started(72.0)
    for _ in range(20):
        played(9 * MINUTE, busy=True)
        played(51 * MINUTE)
    before = float(played.learned.gaps.histograms.weight(played.now)[0])
    played(TICK, busy=True)
    after = float(played.learned.gaps.histograms.weight(played.now)[0])
    assert after - before == pytest.approx(1.0, abs=0.01)


def test_what_is_not_known_moves_nothing(played):
    played.started(72.0)
    played(HOUR)
    since = played.learned.gaps.idle_since.copy()
    played(4 * MINUTE, busy=True, known=False)
    assert played.learned.gaps.idle_since.tolist() == since.tolist()


def test_all_that_was_learned_survives_in_columns_of_one_slot_per_workload(played):
    played.started(72.0)
    for _ in range(12):
        played(9 * MINUTE, busy=True)
        played(51 * MINUTE)
    columns = played.learned.columns()
    assert all(len(column) == 1 for column in columns.values())
    new = Learned(rules(learns=(True, True, False)), HOURLY)
    new.take({name: column.copy() for name, column in columns.items()}, np.array([1, 2]), np.array([0, 0]))
    assert new.window(played.now).tolist() == [300.0, played.window, 300.0]
    assert np.isnan(new.starts.times.p50).tolist() == [True, False, False]
    for name, column in new.columns().items():
        np.testing.assert_array_equal(column[1], columns[name][0], err_msg=name)


def test_columns_of_another_version_harm_nobody(played):
    played.started(72.0)(TICK)
    before = {name: column.copy() for name, column in played.learned.columns().items()}
    row = np.array([0])
    played.learned.take({}, row, row)
    strange = {name: np.zeros((1, 3, 3)) for name in ("gaps.weights", "coldstarts.whole.weights", "keepwarm.account")}
    played.learned.take({**strange, "of.the.future": np.zeros(1)}, row, row)
    for name, column in played.learned.columns().items():
        np.testing.assert_array_equal(column, before[name], err_msg=name)
