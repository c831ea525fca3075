"""The stories: what befalls a workload that may go to zero, each played once on a clock wound by hand.

A story is a function that returns its `Stage` when it is over; `STORIES` has them by the name that docs/zero.md shows.
Seconds are counted from its beginning, Monday at midnight. Where a story is played at a coarser pace (`PACE`) than the
shipped one, it says so: a scrape and a tick then see less, and nothing else is different.

Worked example: `ten_minutes_of_loading().score().harm` is (0, 0, 0): no request lost, no wrong sleep, no wrong wake.
"""

from __future__ import annotations

from functools import cache
from random import Random

from exporter.model import Role

from .clockwork import DAY_S, HOUR_S, MINUTE_S
from .gate import CHAT
from .stage import Stage
from .world import time_of_day

STORIES = {}
PACE = "scrape: {interval: 30s}\n"
NO_GATEWAY = "\n".join(line for line in CHAT.splitlines() if "gateway:" not in line)
HURRIED = CHAT + "    objectives: {work: 4}\n"


def story(name):
    """Played once, however many ask how it ended."""

    def add(play):
        STORIES[name] = cache(play)
        return STORIES[name]

    return add


@story("a model that loads for ten minutes")
def ten_minutes_of_loading():
    stage = Stage(model={"start_s": 600.0})
    stage.ask_at(2 * MINUTE_S)
    stage.ask_at(3 * MINUTE_S, patience_s=30.0)
    stage.ask_at(9 * MINUTE_S)
    stage.run_to(HOUR_S)
    return stage


@story("a client that gives up while it loads, for ten minutes")
def nobody_waits_any_more():
    stage = Stage(model={"start_s": 590.0})
    stage.ask_at(2 * MINUTE_S, patience_s=60.0)
    stage.ask_at(11 * MINUTE_S)
    stage.run_to(HOUR_S)
    return stage


@story("a start that never ends, and its client gives up")
def a_start_that_hangs():
    stage = Stage(model={"start_s": 30 * DAY_S})
    stage.ask_at(2 * MINUTE_S, patience_s=120.0)
    stage.run_to(2 * HOUR_S)
    return stage


@story("dcgm-exporter restarts during a batch job without requests")
def exporter_restarts():
    stage = Stage(model={"wanted": 1}, gpus=True)
    stage.at(2 * MINUTE_S, lambda: stage.model.run_job(40 * MINUTE_S))
    stage.silence(Role.GPUS, 20 * MINUTE_S, 20 * MINUTE_S + 40.0)
    stage.at(20 * MINUTE_S + 40.0, stage.node.restart)
    stage.run_to(HOUR_S)
    return stage


@story("Prometheus is down overnight, the workload awake")
def blind_and_awake():
    stage = Stage(model={"wanted": 1}, gate={"tick_s": 5.0})
    for minute in range(0, 12 * 60, 4):
        stage.ask_at(minute * MINUTE_S + 7.0)
    for role in (Role.PODS, Role.GATEWAY):
        stage.silence(role, HOUR_S, 10 * HOUR_S)
    stage.run_to(13 * HOUR_S)
    return stage


@story("Prometheus is down overnight, the workload at zero")
def blind_and_asleep():
    stage = Stage(gate={"tick_s": 5.0})
    for role in (Role.PODS, Role.GATEWAY):
        stage.silence(role, HOUR_S, 10 * HOUR_S)
    stage.ask_at(10 * HOUR_S + 30 * MINUTE_S)
    stage.run_to(12 * HOUR_S)
    return stage


@story("the same, and somebody asks at night: `on_blind: wake`")
def blind_and_woken():
    stage = Stage(CHAT + "    on_blind: wake\n", gate={"tick_s": 5.0})
    stage.judge.expected = lambda decision: str(decision.reason) == "held"
    for role in (Role.PODS, Role.GATEWAY):
        stage.silence(role, HOUR_S, 10 * HOUR_S)
    stage.ask_at(5 * HOUR_S)
    stage.run_to(12 * HOUR_S)
    return stage


def _burst(stage, since, until, every_s=1.0, service_s=30.0):
    """A request each `every_s` between these seconds."""
    for number in range(int((until - since) / every_s)):
        stage.ask_at(since + number * every_s, service_s)


def _killed_in_a_burst(**gate):
    stage = Stage(HURRIED, model={"slots": 8}, gate=gate)
    _burst(stage, 60.0, 15 * MINUTE_S)
    stage.at(8 * MINUTE_S + 2.0, lambda: stage.kill(20.0))
    stage.run_to(40 * MINUTE_S)
    return stage


@story("the daemon is killed in a burst and remembers nothing")
def killed_in_a_burst():
    return _killed_in_a_burst()


@story("the daemon is killed in a burst and has its snapshot")
def killed_in_a_burst_and_restored():
    return _killed_in_a_burst(snapshots=True)


def _killed_at_zero(**gate):
    stage = Stage(gate=gate)
    stage.at(5 * MINUTE_S, lambda: stage.kill(20.0))  # and nobody asks
    stage.at(20 * MINUTE_S, lambda: stage.kill(20.0))
    stage.ask_at(20 * MINUTE_S + 10.0)  # while there is no process
    stage.at(20 * MINUTE_S + 50.0, lambda: stage.kill(20.0))  # while the first replica loads
    stage.run_to(40 * MINUTE_S)
    return stage


@story("the daemon is killed at zero, and again while a replica loads")
def killed_at_zero():
    return _killed_at_zero()


@story("the same with its snapshot")
def killed_at_zero_and_restored():
    return _killed_at_zero(snapshots=True)


@story("one request every 7 minutes for a day, keep_warm: 5m")
def every_seven_minutes():
    stage = Stage("scrape: {interval: 15s}\n" + CHAT + "    keep_warm: 5m\n", gate={"tick_s": 5.0})
    for turn in range(int(DAY_S / (7 * MINUTE_S))):
        stage.ask_at(turn * 7 * MINUTE_S + 30.0)
    stage.run_to(DAY_S + HOUR_S)
    return stage


@story("a nightly batch at 01:00 for two weeks")
def nightly_batch():
    stage = Stage(PACE + HURRIED, model={"slots": 4}, gate={"tick_s": 10.0})
    for day in range(14):
        for number in range(120):
            stage.ask_at(time_of_day(day, 1.0) + number * 0.5, service_s=60.0)
    stage.run_to(14 * DAY_S)
    return stage


@story("office hours for two weeks")
def office_hours():
    stage, chance = Stage(PACE + CHAT, gate={"tick_s": 30.0}), Random(7)
    for day in range(14):
        if day % 7 >= 5:
            continue
        at = time_of_day(day, 8.0)
        while at < time_of_day(day, 17.5):
            at += chance.expovariate(1.0 / 150.0)
            if not 12.0 <= (at % DAY_S) / HOUR_S < 12.75:
                stage.ask_at(at, service_s=chance.uniform(2.0, 40.0))
    stage.run_to(14 * DAY_S)
    return stage


@story("no waker, found at zero; a person starts it")
def found_at_zero():
    stage = Stage(NO_GATEWAY, gate={"gateways": False})
    # A person's replica is KEDA's to take back until Tidegate has seen it: half a second and a tick.
    stage.at(HOUR_S + 4.0, lambda: stage.model.scale(1))
    stage.ask_at(HOUR_S + 10 * MINUTE_S)
    stage.run_to(3 * HOUR_S)
    return stage


@story("no waker, found awake")
def found_awake():
    stage = Stage(NO_GATEWAY, model={"wanted": 1}, gate={"gateways": False})
    stage.ask_at(10 * MINUTE_S)
    stage.run_to(2 * HOUR_S)
    return stage


@story("no room for two hours at the morning's wake")
def stock_out():
    stage = Stage()
    stage.model.no_room_until = stage.begin + 3 * HOUR_S
    stage.ask_at(HOUR_S)
    stage.ask_at(HOUR_S + 10 * MINUTE_S)
    stage.run_to(4 * HOUR_S)
    return stage


@story("the same, and nobody has so much patience")
def stock_out_without_patience():
    stage = Stage()
    stage.model.no_room_until = stage.begin + 3 * HOUR_S
    stage.ask_at(HOUR_S, patience_s=5 * MINUTE_S)
    stage.ask_at(2.5 * HOUR_S)
    stage.run_to(4 * HOUR_S)
    return stage
