"""Compares the cost of keep-warm rules over recorded loads: constants, the break-even, the learned rule, and an oracle;
and of the learned rule with sleep mode, where a replica asleep costs a part of its price and wakes in seconds.

    python benchmarks/keepwarm.py LOAD... [--start 75] [--gpu-hour 2.5] [--waiting-hour 30] [--gpus 1] [--wake 2]

LOAD is any argument of `tidegate replay`. One replica serves all requests at once, each as fast as an idle server of
the profile in benchmarks/QUALITY.md (A): 0.5 s, its prompt at 12,000 tokens/s, 14 ms per token of output. Only rests
have a cost: GPU time without work, starts, and the client that waits for a start. For each rest the rule has learned
from the earlier ones.

Worked example: `python benchmarks/keepwarm.py traces/sg_office_14d.npz` prints a table of ten rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from report import Row, table

from exporter.model import Floats
from scaler.policy.columns import Spec, Specs
from scaler.policy.estimators import keep_warm as reckon
from scaler.policy.estimators.idle_time import Gaps, IdleEnds
from scaler.policy.estimators.keep_warm import IdlePlan, KeepWarm, KeepWarmRules, Stakes
from scaler.policy.estimators.sleep_plan import SleepConfig, SleepPlans, SleepRules
from scaler.replay.columns import Trace
from scaler.replay.traces import load

HOUR = 3600.0
CONSTANTS = {"5 min": 300.0, "20 min": 1200.0, "1 h": HOUR}
LOWEST, HIGHEST = 60.0, 4 * HOUR  # the defaults of keep_warm_min and keep_warm_max
SHARES = (1.0, 0.5, 0.1)
ONE = np.array([0])
# Nine of ten starts take at most this multiple of the usual time.
SLOW = 1.2


class Rests(NamedTuple):
    """lengths: seconds. ended: seconds since the load began."""

    lengths: Floats
    ended: Floats


def rests_of(trace: Trace) -> Rests:
    took = 0.5 + trace.prompt / 12_000 + trace.output * 0.014
    over = np.maximum.accumulate(trace.at + took)
    lengths = trace.at[1:] - over[:-1]
    rested = lengths > 0.0
    return Rests(lengths[rested], trace.at[1:][rested])


def learned(rests: Rests, stakes: Stakes) -> IdlePlan:
    """The learned schedule at each rest."""
    rules = KeepWarmRules(np.array([True]), *(np.array([seconds]) for seconds in (300.0, LOWEST, HIGHEST)))
    gaps, keep_warm = Gaps(1), KeepWarm(rules)
    no_rests = IdleEnds(np.array([], dtype=np.int64), np.array([]))
    keep_warm.learn(no_rests, gaps, stakes, 0.0)
    met = np.empty((len(rests.lengths), 3))
    for index, (length, now) in enumerate(zip(rests.lengths, rests.ended, strict=True)):
        met[index] = np.concatenate(keep_warm.schedule)
        one = np.array([length])
        gaps.histograms.add(ONE, one, now)
        keep_warm.learn(IdleEnds(ONE, one), gaps, stakes, now)
    return IdlePlan(*met.T)


class Slept(NamedTuple):
    """The learned rule with sleep mode. asleep_s: seconds asleep in each rest. woke: whether a wake ended it."""

    schedule: IdlePlan
    asleep_s: Floats
    woke: Floats


def with_sleep(rests: Rests, stakes: Stakes, share: float, wake_s: float) -> Slept:
    """share: of the price, asleep. wake_s: of each wake, seconds."""
    rules = KeepWarmRules(np.array([True]), *(np.array([seconds]) for seconds in (300.0, LOWEST, HIGHEST)))
    sleep = SleepPlans(SleepRules.stack([SleepConfig(share, None, 15.0, None)]), rules, Specs.stack([Spec(0, 8, ())]))
    gaps, keep_warm = Gaps(1), KeepWarm(rules)
    sleep.wakes.learn(0, wake_s)
    ended, now = IdleEnds(np.array([], dtype=np.int64), np.array([])), 0.0
    met, afters = np.empty((len(rests.lengths), 3)), np.empty(len(rests.lengths))
    for index, length in enumerate(rests.lengths):
        keep_warm.learn(ended, gaps, sleep.learn(ended, gaps, stakes, now), now)
        met[index], afters[index] = np.concatenate(keep_warm.schedule), sleep.plan.after[0]
        ended, now = IdleEnds(ONE, np.array([length])), float(rests.ended[index])
        gaps.histograms.add(ONE, ended.lengths, now)
    schedule = IdlePlan(*met.T)
    until = np.minimum(rests.lengths, schedule.keep_warm)
    asleep_s = np.nan_to_num(np.maximum(until - afters, 0.0))
    return Slept(schedule, asleep_s, (asleep_s > 0.0) & (rests.lengths <= schedule.keep_warm))


def sleep_row(rests: Rests, stakes: Stakes, gpus: float, share: float, wake_s: float) -> Row:
    slept = with_sleep(rests, stakes, share, wake_s)
    saved_s = slept.asleep_s * (1.0 - share) - slept.woke * wake_s
    waited = reckon.waited_seconds(rests.lengths, slept.schedule, stakes) + slept.woke * wake_s
    up = reckon.up_seconds(rests.lengths, slept.schedule, stakes) - saved_s
    cost = (up * stakes.idle + waited * stakes.waiting).sum()
    return {
        "rule": f"learned, with sleep mode at {share:.0%} of the price",
        "GPU-hours": gpus * up.sum() / HOUR,
        "cold starts": int((waited > wake_s).sum()),
        "waited min": waited.sum() / 60.0,
        "cost": cost,
        "regret": f"{100 * (cost / reckon.clairvoyant(rests.lengths, stakes).sum() - 1):.0f} %",
    }


def best_constant(rests: Rests, stakes: Stakes) -> float:
    """The cheapest of 400 constants from 10 s to a day."""
    tried = np.geomspace(10.0, 24 * HOUR, 400)
    costs = [reckon.cost(rests.lengths, reckon.kept_warm(np.array(one)), stakes).sum() for one in tried]
    return float(tried[int(np.argmin(costs))])


def rows(rests: Rests, stakes: Stakes, gpus: float, wake_s: float) -> Iterator[Row]:
    knew = reckon.clairvoyant(rests.lengths, stakes)
    hindsight = best_constant(rests, stakes)
    rules = {name: reckon.kept_warm(np.array(one)) for name, one in CONSTANTS.items()}
    rules["break-even"] = reckon.kept_warm(reckon.break_even(stakes))
    rules["learned"] = learned(rests, stakes)
    rules[f"best constant in hindsight ({hindsight:.0f} s)"] = reckon.kept_warm(np.array(hindsight))
    rules["clairvoyant: warm, or asleep at once"] = reckon.kept_warm(
        np.where(rests.lengths * stakes.idle <= reckon.start_cost(stakes), np.inf, 0.0)
    )
    for name, rule in rules.items():
        waited = reckon.waited_seconds(rests.lengths, rule, stakes)
        cost = reckon.cost(rests.lengths, rule, stakes).sum()
        yield {
            "rule": name,
            "GPU-hours": gpus * reckon.up_seconds(rests.lengths, rule, stakes).sum() / HOUR,
            "cold starts": int((waited > 0).sum()),
            "waited min": waited.sum() / 60.0,
            "cost": cost,
            "regret": f"{100 * (cost / knew.sum() - 1):.0f} %",
        }
    for share in SHARES:
        yield sleep_row(rests, stakes, gpus, share, wake_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", nargs="+", metavar="LOAD")
    for name, default in (("start", 75.0), ("gpu-hour", 2.5), ("waiting-hour", 30.0), ("gpus", 1.0), ("wake", 2.0)):
        parser.add_argument(f"--{name}", type=float, default=default)
    given = parser.parse_args()
    idle, waiting = given.gpu_hour / HOUR * given.gpus, given.waiting_hour / HOUR
    stakes = Stakes(*(np.array([one]) for one in (given.start, SLOW * given.start, idle, waiting)))
    for name in given.loads:
        print(f"\n{name}\n\n{table(list(rows(rests_of(load(name).load), stakes, given.gpus, given.wake)))}")


if __name__ == "__main__":
    main()
