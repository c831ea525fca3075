"""Tests the replicas of a queue whose jobs must start within five minutes; a replica starts within one."""

from __future__ import annotations

from math import ceil, exp, nan

import numpy as np
import pytest

from scaler.policy import batch
from scaler.policy.batch import BatchConstants, BatchInputs, JobEstimate

START, WITHIN_S, START_S, SCRAPE_S, LONGEST_S = 1.7e9, 300.0, 60.0, 5.0, 15.0


class World:
    """Jobs of `job_s` seconds, and replicas that are started and ended as they are ordered."""

    def __init__(self, job_s, ready=1, within=WITHIN_S, start=START_S):
        self.job_s, self.within, self.start, self.now = job_s, within, start, START
        self.busy_until = [START] * ready  # of each ready replica
        self.ready_at: list[float] = []  # of each that starts
        self.queue: list[float] = []  # arrivals
        self.waits: list[float] = []
        self.estimates, self.sizes = batch.blank(1), []
        self.is_visible, self.is_read = False, True

    def run(self, seconds, every=0.0):
        """every: seconds between two arrivals; 0: none arrives."""
        end = self.now + seconds
        while self.now < end:
            if every and (self.now - START) % every < 1.0:
                self.queue.append(self.now)
            self.busy_until += [at for at in self.ready_at if at <= self.now]
            self.ready_at = [at for at in self.ready_at if at > self.now]
            for slot, until in enumerate(self.busy_until):
                if until <= self.now and self.queue:
                    self.waits.append(self.now - self.queue.pop(0))
                    self.busy_until[slot] = self.now + self.job_s
            if self.is_read and (self.now - START) % SCRAPE_S == 0.0:
                self.decide()
            self.now += 1.0

    def decide(self):
        ready, wanted = len(self.busy_until), len(self.busy_until) + len(self.ready_at)
        running = float(sum(until > self.now for until in self.busy_until)) if self.is_visible else nan
        readings = (float(len(self.queue)), running, nan, ready, wanted, 0.0, self.start)
        columns = (np.array([float(each)]) for each in readings)
        batch.update(self.estimates, np.array([self.within]), BatchInputs(*columns), self.now, 15.0)
        self.sizes.append(self.size)
        self.ready_at += [self.now + self.start] * (self.size - wanted)
        self.busy_until.sort(reverse=True)
        del self.busy_until[max(self.size, 1) :]

    @property
    def size(self):
        return ceil(self.estimates[0, JobEstimate.SIZE] - 1e-9)

    @property
    def service(self):
        return self.estimates[0, JobEstimate.SERVICE]


def learned(job_s=10.0, **world):
    """A world whose service rate has been learned from one backlog, which is gone."""
    new = World(job_s, **world)
    new.queue = [new.now] * 30
    new.run(900.0)
    assert not new.queue
    new.waits.clear()
    new.sizes.clear()
    return new


def test_service_rate_is_that_at_which_a_queue_falls_per_replica():
    assert learned().service == pytest.approx(0.1, rel=0.25)


def test_every_job_of_a_burst_starts_within_the_slo_with_fewer_replicas_than_jobs():
    world = learned()
    world.queue = [world.now] * 100
    world.run(600.0)
    assert len(world.waits) == 100
    assert max(world.waits) <= WITHIN_S
    assert max(world.sizes) <= 10


def test_replicas_that_start_are_not_ordered_again():
    world = learned()
    world.queue = [world.now] * 100
    world.run(5.0)
    first = world.size
    world.run(START_S)
    assert world.size <= first + 1


def test_jobs_that_keep_coming_start_within_the_slo():
    world = learned()
    world.run(3600.0, every=2.0)  # five replicas of work
    assert max(world.waits) <= WITHIN_S
    assert world.size <= 9


def test_burst_of_arrivals_says_nothing_about_the_service():
    world, before = learned(), 0.0
    world.queue = [world.now] * 20
    world.run(30.0)
    before = world.service
    world.queue += [world.now] * 500
    world.run(10.0)
    assert world.service == pytest.approx(before, rel=0.1)


def test_unknown_service_rate_orders_a_replica_for_two_jobs_then_one_for_each():
    world = World(job_s=1e6)
    world.queue = [world.now] * 9
    world.run(6.0)
    assert world.size == 5  # the ready replica has taken one job, eight wait
    world.run(WITHIN_S)
    assert max(world.sizes) == 9
    assert np.isnan(world.service)
    assert max(world.waits) <= WITHIN_S


def test_missing_reading_leaves_the_size():
    world = learned()
    world.queue = [world.now] * 100
    world.run(5.0)
    before = world.estimates.copy()
    inputs = BatchInputs(*(np.array([each]) for each in (nan, nan, nan, 1.0, 1.0, 0.0, START_S)))
    batch.update(world.estimates, np.array([WITHIN_S]), inputs, world.now, 15.0)
    assert np.array_equal(world.estimates, before, equal_nan=True)


def test_service_rate_is_not_learned_from_a_fall_that_nothing_was_read_of():
    world = learned()
    world.queue = [world.now] * 500
    world.run(5.0)
    before, world.is_read = world.service, False
    world.run(300.0)
    world.is_read = True
    world.run(5.0)
    assert world.service == before


def test_size_falls_only_after_the_hold():
    world = learned()
    world.estimates[0, [JobEstimate.STREAM, JobEstimate.SIZE]] = 0.0, 8.0
    world.run(START_S)
    assert world.size == 8
    world.run(15.0)
    assert world.size == 0


def test_each_reversal_beyond_the_free_ones_doubles_the_hold():
    held = []
    for reversals in (batch.FREE_REVERSALS, batch.FREE_REVERSALS + 2.0):
        world = learned()
        world.estimates[0, [JobEstimate.STREAM, JobEstimate.SIZE]] = 0.0, 8.0
        world.estimates[0, JobEstimate.REVERSALS] = reversals
        begun = world.now
        while world.size == 8:
            world.run(5.0)
        held.append(world.now - begun)
    assert held[1] == pytest.approx(4.0 * held[0], rel=0.15)


@pytest.mark.parametrize(("pause_s", "counted"), [(100.0, 1.0), (400.0, 0.0)])
def test_rise_soon_after_a_fall_is_a_reversal(pause_s, counted):
    world = learned()
    world.estimates[0, [JobEstimate.STREAM, JobEstimate.SIZE, JobEstimate.REVERSALS]] = 0.0, 8.0, 0.0
    while world.size == 8:
        world.run(5.0)
    world.run(pause_s)
    before, world.queue = world.estimates[0, JobEstimate.REVERSALS], [world.now] * 100
    world.run(5.0)
    assert world.estimates[0, JobEstimate.REVERSALS] - before == pytest.approx(counted, abs=0.01)


@pytest.mark.parametrize(("rose_before_s", "counted"), [(100.0, 1.0), (400.0, 0.0)])
def test_fall_soon_after_a_rise_is_a_reversal(rose_before_s, counted):
    world = learned()
    world.estimates[0, [JobEstimate.STREAM, JobEstimate.SIZE, JobEstimate.REVERSALS]] = 0.0, 8.0, 0.0
    world.estimates[0, JobEstimate.ROSE_AT] = world.now - rose_before_s
    while world.size == 8:
        world.run(5.0)
    assert world.estimates[0, JobEstimate.REVERSALS] == pytest.approx(counted, abs=0.01)


def read(estimates, waiting, now=START, *, running=nan, ready=1.0, wanted=0.0, start=START_S, **constants):
    """One reading of a queue without a counter. Returns the replicas that would be enough."""
    inputs = BatchInputs(*(np.array([each]) for each in (waiting, running, nan, ready, wanted, 0.0, start)))
    batch.update(estimates, np.array([WITHIN_S]), inputs, now, LONGEST_S, BatchConstants(**constants))
    return estimates[0, JobEstimate.NEED]


def knowing(job_s, **more):
    """The estimates of a queue whose jobs are known to take so many seconds. more: others, by name."""
    estimates = batch.blank(1)
    for name, value in {"service": 1.0 / job_s, **more}.items():
        estimates[0, JobEstimate[name.upper()]] = value
    return estimates


def test_replica_that_starts_takes_its_first_job_however_long_it_is():
    """Five jobs of half an hour wait. Of a limit of 240 s a ready replica starts 240/1800 of a job, and four that start
    take one each: 5 - 4 - 2/15 jobs are left, for as many replicas more than these five.
    """
    need = read(knowing(1800.0), 5.0, running=1.0, wanted=5.0, noise=0.0)
    assert need == pytest.approx(5.0 + 1.0 - 2.0 / 15.0)


def test_long_jobs_that_run_keep_as_many_replicas_as_carry_them():
    # Eight jobs, two in each replica.
    assert read(knowing(1800.0, at_a_time=2.0), 0.0, running=8.0, ready=8.0) == 4.0


def test_single_job_at_zero_replicas_orders_one():
    assert ceil(read(batch.blank(1), 1.0, ready=0.0)) == 1


@pytest.mark.parametrize(("reversals", "times"), [(4.0, 1.0), (5.0, 2.0), (6.0, 4.0)])
def test_arrivals_that_no_queue_shows_are_forgotten_more_slowly_after_reversals(reversals, times):
    estimates = knowing(10.0, at=START - 10.0, stream=1.0, reversals=reversals)
    read(estimates, 0.0)
    assert estimates[0, JobEstimate.STREAM] == pytest.approx(exp(-10.0 / (times * WITHIN_S)))


@pytest.mark.parametrize(
    ("job_s", "start", "running", "hold_s"),
    [
        (600.0, 20.0, 0.0, 60.0),  # at least a minute
        (600.0, 120.0, 0.0, 120.0),  # a start
        (600.0, 120.0, nan, 600.0),  # a job, if it is not visible whether one runs
        (3600.0, 120.0, nan, 1800.0),  # at most half an hour
    ],
)
def test_size_is_held_for_a_start_or_for_a_job_that_may_run(job_s, start, running, hold_s):
    estimates, now = knowing(job_s, at=START - 5.0, size=8.0), START
    while estimates[0, JobEstimate.SIZE] == 8.0:
        read(estimates, 0.0, now, running=running, ready=8.0, start=start)
        now += 5.0
    assert now - 5.0 - START == hold_s


@pytest.mark.parametrize(
    "queue",
    [
        [8.0, 8.0, 8.0, 8.0, 4.0],  # for 15 s it stays as it is
        [12.0, 10.0, 6.0],  # as many jobs wait as there are replicas
    ],
)
def test_first_service_rate_is_that_of_a_queue_in_front_of_busy_replicas(queue):
    estimates = batch.blank(1)
    for second, waiting in zip(range(0, 100, 5), queue, strict=False):
        assert np.isnan(estimates[0, JobEstimate.SERVICE])
        read(estimates, waiting, START + second, ready=10.0, wanted=10.0)
    # The last 4 jobs have left ten replicas within 5 s.
    assert estimates[0, JobEstimate.SERVICE] == pytest.approx(4.0 / 50.0)


def test_job_that_waits_becomes_one_of_the_oldest_snapshot():
    oldest = JobEstimate.SNAPSHOTS + batch.SLOTS - 1
    estimates, found = knowing(1e9), []
    for second in range(0, 300, 15):
        read(estimates, 5.0, START + second)
        found.append((second, round(estimates[0, oldest], 3)))
    # It is 7/8 of 300 s old: from 262.5 s on.
    assert [waiting for second, waiting in found if second < 262.5] == [0.0] * 18
    assert [waiting for second, waiting in found if second >= 262.5] == [5.0] * 2


def test_replica_whose_long_job_is_visible_is_not_released():
    world = World(job_s=1800.0, ready=8)
    world.is_visible = True
    world.estimates[0, JobEstimate.SERVICE] = 1.0 / 1800.0
    world.queue = [world.now] * 8
    world.run(1700.0)
    assert world.size == 8
    world.run(600.0)
    assert world.size <= 1


def test_jobs_that_no_new_replica_can_start_in_time_start_within_two_starts():
    world = learned()
    world.within = 45.0
    world.queue = [world.now] * 60
    world.run(300.0)
    assert START_S <= max(world.waits) <= 2.0 * START_S + 10.0
    assert max(world.sizes) < 30


def test_unknown_service_rate_and_an_slo_shorter_than_a_start_order_one_replica_for_each_job():
    world = World(job_s=10.0, within=45.0)
    world.queue = [world.now] * 60
    world.run(10.0)
    assert world.size == 60


@pytest.mark.parametrize(
    ("column", "value"),
    [(JobEstimate.SERVICE, -1.0), (JobEstimate.SERVICE, 0.0), (JobEstimate.ARRIVALS, nan), (JobEstimate.SIZE, 1e300)],
)
def test_impossible_restored_estimates_are_reset(column, value):
    estimates = learned().estimates
    assert np.array_equal(batch.made_sound(estimates), estimates, equal_nan=True)
    estimates[0, column] = value
    assert np.array_equal(batch.made_sound(estimates), batch.blank(1), equal_nan=True)


def test_rate_of_one_job_per_second_is_restored():
    assert batch.made_sound(knowing(1.0))[0, JobEstimate.SERVICE] == 1.0
