"""Engines in sleep mode in the replay: they keep their pod at a part of its price, and a request wakes them."""

import numpy as np
import pytest

from scaler.replay.columns import ASLEEP_S, Trace
from scaler.replay.comparison import Compared, causes, sleep_sentences
from scaler.replay.engine import set_asleep
from scaler.replay.metric_pages import ASLEEP_POD_S, EXISTING, LIVE_POD_S, READY_NOW, SLEEPING, look
from scaler.replay.policies import parse
from scaler.replay.run import run, score
from scaler.replay.servers import PROFILES, ReplaySlo

HOUR = 3600.0


def sleeps(deployment, *, wake_s=2.0, look_s=1.0):
    set_asleep(deployment.world, True, wake_s, look_s)
    return look(deployment.world, deployment.server)


def wakes(deployment, wake_s=2.0):
    set_asleep(deployment.world, False, wake_s, 1.0)


def test_request_wakes_an_engine_that_sleeps_at_the_next_look_at_the_gateway(deployment, server):
    one = deployment(server(), [(50.4, 100, 3)]).scale(1).until(10)
    pages = sleeps(one)
    assert pages[[SLEEPING, READY_NOW, EXISTING]].tolist() == [1.0, 0.0, 1.0]
    one.until(60)
    # Seen at 51.0, awake at 53.0, and then 0.11 s for the prompt.
    assert one.first.tolist() == pytest.approx([53.11])
    assert one.world.numbers[ASLEEP_S] == 51.0 - 10.0
    assert look(one.world, one.server)[[SLEEPING, READY_NOW]].tolist() == [0.0, 1.0]


def test_engine_with_a_request_does_not_sleep(deployment, server):
    two = deployment(server(), [(10.0, 100, 1000)]).scale(2).until(10.5)
    assert sleeps(two)[[SLEEPING, READY_NOW]].tolist() == [1.0, 1.0]


def test_engine_that_is_woken_without_a_request_is_ready_after_its_wake(deployment, server):
    one = deployment(server(), [(90.0, 100, 3)]).scale(1).until(10)
    sleeps(one)
    wakes(one.until(20), wake_s=5.0)
    assert look(one.until(24.9).world, one.server)[READY_NOW] == 0.0
    pages = look(one.until(25).world, one.server)
    assert pages[[READY_NOW, SLEEPING, ASLEEP_POD_S]].tolist() == [1.0, 0.0, 10.0]


def test_time_asleep_of_a_pod_that_is_taken_away_counts(deployment, server):
    one = deployment(server(), [(90.0, 100, 3)]).scale(1).until(10)
    sleeps(one)
    assert look(one.until(30).world, one.server)[ASLEEP_POD_S] == 20.0
    pages = look(one.scale(0).world, one.server)
    assert pages[[ASLEEP_POD_S, EXISTING, LIVE_POD_S]].tolist() == [20.0, 0.0, 0.0]


def each(minutes, count):
    at = 600.0 + 60.0 * minutes * np.arange(count)
    return Trace(f"each {minutes} min", at, np.full(count, 500), np.full(count, 50))


def played(load, policy, profile=PROFILES["A"]):
    return run(load, profile, parse(policy).baseline())


def test_sleeping_replica_costs_its_price_and_all_else_is_as_without_sleep_mode():
    load = each(20, 20)
    course = played(load, "tidegate:asleep=0.1,min=1")
    found, slept = score(course), course.slept
    assert (found.changes, found.cold_starts) == (0, 0)
    assert slept.pod_s == pytest.approx(course.pod_s, rel=0.1)
    assert found.gpu_hours == pytest.approx((course.pod_s - 0.9 * slept.pod_s) / HOUR)
    assert found.gpu_hours < 0.2 * score(played(load, "static:replicas=1")).gpu_hours
    assert slept.wakes == len(slept.naps) == len(load.at)
    # Each waits until a look at the gateway, a wake of 2 s, and for its prompt.
    waits = course.times[1:, 1] - course.times[1:, 0]
    assert ((waits > 2.0) & (waits < 3.1)).all()


def test_requests_that_are_late_by_a_wake_are_no_cold_starts():
    course = played(each(20, 20), "tidegate:asleep=0.1,wake=5,min=1")
    late = causes(course)
    assert late.wake > 0.9
    assert late == (late.wake, 0.0, 0.0, 0.0)
    (sentence,) = sleep_sentences([Compared("tidegate", course)], 2.5)
    saved = 2.5 * 0.9 * course.slept.pod_s / HOUR
    assert f"which count as 10 %: {saved:,.2f} less than ready. They woke 20 times" in sentence


def test_policy_without_sleep_mode_says_nothing_of_it():
    course = played(each(20, 5), "tidegate")
    assert (course.slept, sleep_sentences([Compared("tidegate", course)], 2.5)) == (None, [])
    assert causes(course).wake == score(course).asleep_gpu_hours == 0.0


def test_sleep_that_saves_nothing_is_never_chosen():
    assert played(each(20, 5), "tidegate:asleep=1").slept is None


def test_constant_keep_warm_time_ends_the_sleep():
    course = played(each(60, 12), "tidegate:asleep=0.1,keep-warm=1800")
    # From the second pause on: asleep after seconds, at zero after half an hour.
    lengths = np.diff(course.slept.naps, axis=1)[1:, 0]
    assert ((lengths > 1000.0) & (lengths <= 1860.0)).all()
    assert score(course).cold_starts >= 10


def test_slo_of_the_server_is_what_a_wake_may_use(profile):
    patient = profile(start_s=60.0, slo=ReplaySlo(30.0, 0.0, 10.0, 10.0))
    course = played(each(20, 20), "tidegate:asleep=0.1,wake=20,min=1", patient)
    assert score(course).slo_met_ratio == 1.0
    assert course.slept.wakes > 15
