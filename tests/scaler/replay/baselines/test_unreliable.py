"""Tests that a replay can delay and lose the metrics that Tidegate reads."""

import numpy as np
import pytest

from scaler.replay.baselines.unreliable import Unreliable
from scaler.replay.columns import FIRSTS, Trace
from scaler.replay.metric_pages import READY_NOW, RUNNING
from scaler.replay.policies import parse
from scaler.replay.run import run
from scaler.replay.servers import PROFILES
from scaler.replay.traces import load

SERVER = PROFILES["A"]


class Recorder:
    """A scaler that records what it reads. readings: (second, requests arrived, running, first tokens, ready pods)."""

    name, every_s, pushes, target = "recorder", 5.0, True, 1.0

    def __init__(self):
        self.readings = []

    def hear(self, observation):
        pages, counts = observation.pages, observation.world.counts
        self.readings.append(
            (observation.now, observation.arrived, float(pages[RUNNING]), int(counts[FIRSTS]), int(pages[READY_NOW]))
        )

    def value(self):
        return 1.0

    def active(self):
        return True


class Plays:
    """Two scalers that read the same load, one of them unreliably; a script scales."""

    name, every_s, first = "both", 5.0, 1

    def __init__(self, script, late_s, lost):
        self._script, self.true, self.read = script, Recorder(), Recorder()
        self._unreliable = Unreliable(self.read, late_s, lost)

    def step(self, observation):
        self.true.hear(observation)
        self._unreliable.hear(observation)
        return self._script.step(observation)


def busy_load():
    return load("flash:peak=10,at=5m,for=20m", None, 3).load


@pytest.mark.parametrize("late_s", [0.0, 5.0, 15.0])
def test_late_readings_are_those_of_so_many_seconds_ago_with_the_pods_of_now(scripted, late_s):
    plays = Plays(scripted({200.0: 3, 900.0: 1}, first=1), late_s, 0.0)
    run(busy_load(), SERVER, plays)

    true = {at: metrics for at, *metrics in plays.true.readings}
    assert [at for at, *_ in plays.read.readings] == [at for at in true if at >= late_s]
    for at, *metrics, ready in plays.read.readings:
        assert metrics == true[at - late_s][:-1]
        assert ready == true[at][-1]
    assert len({ready for *_, ready in plays.read.readings}) > 1


def test_one_reading_in_twenty_is_lost_the_same_ones_in_each_run(scripted):
    def readings():
        plays = Plays(scripted({}, first=1), 0.0, 0.05)
        run(busy_load(), SERVER, plays)
        assert set(plays.read.readings) < set(plays.true.readings)
        return plays.read.readings, len(plays.true.readings)

    (some, count), (again, _) = readings(), readings()
    assert some == again
    assert 1.0 - len(some) / count == pytest.approx(0.05, abs=0.04)


class Watched:
    """A baseline whose estimates of the arriving work are kept."""

    def __init__(self, baseline):
        self._baseline, self.work = baseline, []
        self.name, self.every_s, self.first = baseline.name, baseline.every_s, baseline.first

    def step(self, observation):
        replicas = self._baseline.step(observation)
        self.work.append(self._baseline.explain().work)
        return replicas


def test_work_that_arrives_while_readings_are_lost_is_counted_at_its_rate():
    # Counters of two intervals, divided by the time of one, would double the work.
    at = np.arange(0.0, 1800.0, 0.05)
    traffic = Trace("even", at, np.full(len(at), 500), np.full(len(at), 100))

    def work(policy):
        watched = Watched(parse(policy).baseline())
        run(traffic, SERVER, watched)
        return np.nanmean(watched.work[120:360])

    assert work("tidegate:min=1,lost=0.5") == pytest.approx(work("tidegate:min=1"), rel=0.02)


def test_replicas_for_a_rise_are_ordered_as_much_later_as_readings_are_late():
    at = np.sort(np.concatenate([np.arange(0.0, 3600.0), np.arange(1800.0, 3600.0, 1 / 9)]))
    traffic = Trace("rise", at, np.full(len(at), 1000), np.full(len(at), 200))

    def first_rise_s(policy):
        orders = run(traffic, SERVER, parse(policy).baseline()).orders
        return next(order.at for order in orders if order.after > order.before and order.at > 1200.0)

    assert first_rise_s("tidegate:late=60") - first_rise_s("tidegate") == pytest.approx(60.0, abs=15.0)


def test_workload_with_every_reading_lost_keeps_its_replicas():
    course = run(busy_load(), SERVER, parse("tidegate:lost=1").baseline())
    assert course.orders == ()
