"""The scenarios: events around a workload that may scale to zero, each run once on a simulated clock.

A scenario is a function that returns its `Stage` at the end; `SCENARIOS` has them by their names in
benchmarks/SCALE-TO-ZERO.md. Seconds count from the start, Monday at midnight. Some scenarios use a longer scrape
interval (`PACE`) than the shipped one: scrapes and ticks then notice events later, and nothing else differs.

Worked example: `ten_minutes_of_loading().score().harm` is (0, 0, 0): no lost request, no wrong sleep, no wrong wake.
"""

from __future__ import annotations

from functools import cache
from random import Random

from exporter.model import Role

from .clockwork import DAY_S, HOUR_S, MINUTE_S
from .gate import CHAT, CONSTANT
from .stage import Stage
from .world import time_of_day

SCENARIOS = {}
PACE = "scrape: {interval: 30s}\n"
QUICKER = "scrape: {interval: 15s}\n"
CALM = {"tick_s": 5.0}  # a tick for each scrape
# Scenarios that compare the cost of keeping warm with the clairvoyant's.
COSTED = set()
NO_GATEWAY = "\n".join(line for line in CONSTANT.splitlines() if "gateway:" not in line)
HURRIED = "    objectives: {work: 4}\n"


def scenario(name, *, costed=False):
    """Registers a scenario, which runs only once even if several tests use it."""

    def add(play):
        SCENARIOS[name] = cache(play)
        if costed:
            COSTED.add(name)
        return SCENARIOS[name]

    return add


@scenario("a model that loads for ten minutes")
def ten_minutes_of_loading():
    stage = Stage(model={"start_s": 600.0}, gate=CALM)
    stage.ask_at(2 * MINUTE_S)
    stage.ask_at(3 * MINUTE_S, patience_s=30.0)
    stage.ask_at(9 * MINUTE_S)
    stage.run_to(HOUR_S)
    return stage


@scenario("a client that gives up during a start of ten minutes")
def client_gives_up():
    stage = Stage(model={"start_s": 590.0}, gate=CALM)
    stage.ask_at(2 * MINUTE_S, patience_s=60.0)
    stage.ask_at(11 * MINUTE_S)
    stage.run_to(HOUR_S)
    return stage


@scenario("a start that never ends, and its client gives up")
def a_start_that_hangs():
    stage = Stage(model={"start_s": 30 * DAY_S}, gate=CALM)
    stage.ask_at(2 * MINUTE_S, patience_s=120.0)
    stage.run_to(2 * HOUR_S)
    return stage


@scenario("dcgm-exporter restarts during a batch job without requests")
def exporter_restarts():
    stage = Stage(model={"wanted": 1}, gpus=True, gate=CALM)
    stage.at(2 * MINUTE_S, lambda: stage.model.run_job(40 * MINUTE_S))
    stage.silence(Role.GPUS, 20 * MINUTE_S, 20 * MINUTE_S + 40.0)
    stage.at(20 * MINUTE_S + 40.0, stage.node.restart)
    stage.run_to(HOUR_S)
    return stage


@scenario("Prometheus is down for two hours, the workload awake")
def blind_and_awake():
    stage = Stage(QUICKER + CONSTANT, model={"wanted": 1}, gate={"tick_s": 15.0})
    for minute in range(0, 4 * 60, 4):
        stage.ask_at(minute * MINUTE_S + 7.0)
    for role in (Role.PODS, Role.GATEWAY):
        stage.silence(role, HOUR_S, 3 * HOUR_S)
    stage.run_to(5 * HOUR_S)
    return stage


@scenario("Prometheus is down for two hours, the workload at zero")
def blind_and_asleep():
    stage = Stage(QUICKER + CONSTANT, gate={"tick_s": 15.0})
    for role in (Role.PODS, Role.GATEWAY):
        stage.silence(role, HOUR_S, 3 * HOUR_S)
    stage.ask_at(3 * HOUR_S + 30 * MINUTE_S)
    stage.run_to(5 * HOUR_S)
    return stage


@scenario("the same with a request meanwhile, `on_blind: wake`")
def blind_and_woken():
    stage = Stage(QUICKER + CONSTANT + "    on_blind: wake\n", gate={"tick_s": 15.0})
    stage.judge.expected = lambda decision: str(decision.reason) == "held"
    for role in (Role.PODS, Role.GATEWAY):
        stage.silence(role, HOUR_S, 3 * HOUR_S)
    stage.ask_at(2 * HOUR_S)
    stage.run_to(5 * HOUR_S)
    return stage


def _burst(stage, since, until, every_s=1.0, service_s=30.0):
    """A request every `every_s` between these seconds."""
    for number in range(int((until - since) / every_s)):
        stage.ask_at(since + number * every_s, service_s)


def _killed_in_a_burst(**gate):
    stage = Stage(CONSTANT + HURRIED, model={"slots": 8}, gate={**CALM, **gate})
    _burst(stage, 60.0, 15 * MINUTE_S)
    stage.at(8 * MINUTE_S + 2.0, lambda: stage.kill(20.0))
    stage.run_to(40 * MINUTE_S)
    return stage


@scenario("the daemon is killed in a burst, without a checkpoint")
def killed_in_a_burst():
    return _killed_in_a_burst()


@scenario("the daemon is killed in a burst, with a checkpoint")
def killed_in_a_burst_and_restored():
    return _killed_in_a_burst(checkpoints=True)


def _killed_at_zero(**gate):
    stage = Stage(gate=gate)
    stage.at(5 * MINUTE_S, lambda: stage.kill(20.0))  # and no request comes
    stage.at(20 * MINUTE_S, lambda: stage.kill(20.0))
    stage.ask_at(20 * MINUTE_S + 10.0)  # while there is no process
    stage.at(20 * MINUTE_S + 50.0, lambda: stage.kill(20.0))  # while the first replica loads
    stage.run_to(40 * MINUTE_S)
    return stage


@scenario("the daemon is killed at zero, and again while a replica loads")
def killed_at_zero():
    return _killed_at_zero()


@scenario("the same with a checkpoint")
def killed_at_zero_and_restored():
    return _killed_at_zero(checkpoints=True)


def _every_seven_minutes(keep_warm):
    stage = Stage(f"{QUICKER}{CHAT}    keep_warm: {keep_warm}\n", gate={"tick_s": 15.0})
    for turn in range(int(DAY_S / (7 * MINUTE_S))):
        stage.ask_at(turn * 7 * MINUTE_S + 30.0)
    stage.run_to(DAY_S + HOUR_S)
    return stage


@scenario("a day with one request every 7 minutes, `keep_warm: 5m`", costed=True)
def every_seven_minutes():
    return _every_seven_minutes("5m")


@scenario("the same, `keep_warm: auto`", costed=True)
def every_seven_minutes_learned():
    return _every_seven_minutes("auto")


def _nightly_batch(keep_warm, days):
    stage = Stage(f"{PACE}{CHAT}{HURRIED}    keep_warm: {keep_warm}\n", model={"slots": 4}, gate={"tick_s": 30.0})
    for day in range(days):
        for number in range(120):
            stage.ask_at(time_of_day(day, 1.0) + number * 0.5, service_s=60.0)
    stage.run_to(days * DAY_S)
    return stage


@scenario("a nightly batch at 01:00 for a week, `keep_warm: 5m`", costed=True)
def nightly_batch():
    return _nightly_batch("5m", days=7)


@scenario("a nightly batch at 01:00 for two weeks, `keep_warm: auto`", costed=True)
def nightly_batch_learned():
    return _nightly_batch("auto", days=14)


def _office_hours(keep_warm, days):
    """Monday to Friday, 08:00 to 17:30 with an hour off at noon: a request every 150 s on average."""
    stage, chance = Stage(f"{PACE}{CHAT}    keep_warm: {keep_warm}\n", gate={"tick_s": 30.0}), Random(7)
    for day in range(days):
        if day % 7 >= 5:
            continue
        at = time_of_day(day, 8.0)
        while at < time_of_day(day, 17.5):
            at += chance.expovariate(1.0 / 150.0)
            if not 12.0 <= (at % DAY_S) / HOUR_S < 13.0:
                stage.ask_at(at, service_s=chance.uniform(2.0, 40.0))
    stage.run_to(days * DAY_S)
    return stage


@scenario("office hours for a week, `keep_warm: 5m`", costed=True)
def office_hours():
    return _office_hours("5m", days=7)


@scenario("office hours for two weeks, `keep_warm: auto`", costed=True)
def office_hours_learned():
    return _office_hours("auto", days=14)


@scenario("health probes every 10 s all night")
def probed_all_night():
    stage = Stage(QUICKER + CONSTANT, model={"wanted": 1}, gate={"tick_s": 15.0})
    stage.clock.every(10.0, stage.model.probe, first_s=4.0)
    stage.ask_at(10 * MINUTE_S)
    stage.ask_at(8 * HOUR_S)
    stage.run_to(9 * HOUR_S)
    return stage


@scenario("a schedule's floor in the morning, and the first request an hour later")
def scheduled_morning():
    stage = Stage(
        QUICKER + CONSTANT + "    schedules: [{start: 0 8 * * *, duration: 2h, zone: UTC, floor: 1}]\n",
        gate={"tick_s": 15.0},
    )
    stage.clock.rest_s = 60.0
    stage.ask_at(time_of_day(0, 9.0))
    stage.run_to(11 * HOUR_S)
    return stage


@scenario("no wake source, found at zero, started by hand")
def found_at_zero():
    stage = Stage(NO_GATEWAY, gate={"gateways": False, **CALM})
    # KEDA may take back a manually started replica until Tidegate has counted it: half a second and a tick of 5 s.
    stage.at(HOUR_S + 6.0, lambda: stage.model.scale(1))
    stage.ask_at(HOUR_S + 10 * MINUTE_S)
    stage.run_to(1.5 * HOUR_S)
    return stage


@scenario("no wake source, found awake")
def found_awake():
    stage = Stage(NO_GATEWAY, model={"wanted": 1}, gate={"gateways": False, **CALM})
    stage.ask_at(10 * MINUTE_S)
    stage.run_to(HOUR_S)
    return stage


@scenario("no node has room for two hours after the wake-up")
def stock_out():
    stage = Stage(gate={"tick_s": 5.0})
    stage.model.no_room_until = stage.begin + 3 * HOUR_S
    stage.ask_at(HOUR_S)
    stage.ask_at(HOUR_S + 10 * MINUTE_S)
    stage.run_to(4 * HOUR_S)
    return stage


@scenario("the same, and the first client gives up")
def stock_out_without_patience():
    stage = Stage(gate={"tick_s": 5.0})
    stage.model.no_room_until = stage.begin + 3 * HOUR_S
    stage.ask_at(HOUR_S, patience_s=5 * MINUTE_S)
    stage.ask_at(2.5 * HOUR_S)
    stage.run_to(4 * HOUR_S)
    return stage
