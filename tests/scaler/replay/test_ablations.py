"""Tests that each part of the policy can be switched off, and that nothing else changes with it."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from scaler.policy import capacity, sizing
from scaler.policy.capacity import (
    DEFAULTS,
    Estimate,
)
from scaler.policy.service_time import RequestTime
from scaler.policy.sizing import (
    SizingInputs,
    SloColumns,
)
from scaler.replay.ablations import KEEP_WARM, PARTS, TOKENS, constants_without
from scaler.replay.columns import Trace
from scaler.replay.policies import parse, without_each_part
from scaler.replay.run import run, score
from scaler.replay.servers import PROFILES

LONG_OUTPUT, SHORT_OUTPUT = 1200.0, 20.0  # tokens
LONGER = "longer-hold"
QUIET = 95  # updates: three starts of 150 s, after which misses count


def sizes(constants, output=LONG_OUTPUT, turns=60):
    """The sizes of a workload whose history needs every part but that for short outputs: outputs that fill the KV
    cache, a slow server, and starts of 150 s. It begins with four reversals and a cold start. Once misses count: slow
    steps with misses, a queue on one replica, a burst of 10 s, then nothing.
    """
    estimates = capacity.blank(1)
    estimates[0, Estimate.REVERSALS] = 4.0
    slos, found = SloColumns(np.array([2.0]), np.array([0.05])), []
    for turn in range(QUIET + turns):
        slow, queue, burst = QUIET <= turn < QUIET + 8, QUIET + 8 <= turn < QUIET + 12, QUIET + 12 <= turn < QUIET + 14
        requests = 15.0 if burst else 1.5 if turn < QUIET + 12 else 0.0
        gap_s = 0.1 if slow else 0.03
        rates = requests * np.array([[1.0, 1.0, 1.0, 500.0, output, 500.0, output, output * gap_s]])
        waiting, ready = (100.0 if queue else 0.0), (0.0 if turn == 1 else 1.0)
        misses = 3.0 if slow or turn == 1 else 0.0
        # The queue is gone when the burst comes.
        running = 20.0 if turn < QUIET + 12 else 0.0
        columns = (np.array([each]) for each in (waiting, running, 0.9, ready, 150.0, misses))
        sizing.update(estimates, slos, SizingInputs(rates, *columns), 5.0 * turn, 15.0, constants)
        found.append(float(estimates[0, Estimate.SIZE]))
    return np.array(found[1:])


@pytest.mark.parametrize("part", [part for part in PARTS if part not in (KEEP_WARM, LONGER, TOKENS)])
def test_size_without_a_part_is_another_one(part):
    output = SHORT_OUTPUT if part == "short-outputs" else LONG_OUTPUT
    without = sizes(PARTS[part], output)
    assert np.isfinite(without).all()
    assert np.abs(without - sizes(DEFAULTS, output)).max() > 1e-3


def switched_off(part):
    return {name for name, value in PARTS[part]._asdict().items() if value != getattr(DEFAULTS, name)}


def test_each_part_switches_off_constants_that_no_other_part_has():
    changed = [switched_off(part) for part in PARTS if part not in (KEEP_WARM, TOKENS)]
    # The factor would learn what the step may not.
    factor = switched_off("learned-factor")
    assert switched_off("learned-capacity") == factor | {"sharpest"}
    assert all(changed)
    assert sum(map(len, changed)) == len(set.union(*changed)) + len(factor)
    assert constants_without("nothing") == PARTS[KEEP_WARM] == PARTS[TOKENS] == DEFAULTS


def test_size_without_a_hold_falls_with_its_work():
    # Without the guard, which keeps replicas for the next burst.
    held, free = (sizes(constants._replace(burst_share=inf)) for constants in (DEFAULTS, PARTS["hold"]))
    assert free[-1] < 0.5 * held[-1] == 0.5 * held.max()


def test_workload_without_learned_keep_warm_sleeps_after_five_minutes_however_often_it_is_woken():
    at = 600.0 + 600.0 * np.arange(30)
    load = Trace("each 10 min", at, np.full(30, 500), np.full(30, 50))
    learned, constant = (
        score(run(load, PROFILES["A"], parse(policy).baseline()))
        for policy in ("tidegate", f"tidegate:without={KEEP_WARM}")
    )
    assert constant.cold_starts >= 28
    assert learned.cold_starts < 10


def test_setting_is_replayed_as_it_is_and_without_each_part():
    settings = without_each_part(parse("tidegate:max=64"))
    assert [one.name for one in settings] == ["tidegate:max=64", *(f"tidegate:max=64,without={part}" for part in PARTS)]
    assert {one.baseline().every_s for one in settings} == {5.0}


def test_scrape_interval_of_the_policy_is_that_of_its_looks():
    assert parse("tidegate:work=16,scrape=15").baseline().every_s == 15.0
    with pytest.raises(ValueError, match="scrape must be at least 1"):
        parse("tidegate:scrape=0.5")


def test_part_is_switched_off_in_a_replay(load):
    steady = load("onoff:rate=6,on=10m,off=2m,for=2h")
    with_hold, without = (
        score(run(steady, PROFILES["A"], parse(policy).baseline())) for policy in ("tidegate", "tidegate:without=hold")
    )
    assert without.changes > with_hold.changes
    assert without.gpu_hours < with_hold.gpu_hours


def test_load_without_counters_of_tokens_is_sized_by_the_time_of_its_requests(load):
    baseline = parse(f"tidegate:without={TOKENS}").baseline()
    run(load("onoff:rate=6,on=10m,off=2m,for=1h"), PROFILES["A"], baseline)
    scaler = baseline._scaler
    assert scaler._times[0, RequestTime.REQUESTS] > 100.0
    assert scaler._sizes[0, Estimate.OUTPUTS] == capacity.PRIOR_REQUESTS
    assert scaler._sizes[0, Estimate.SIZE] > 0.0


def test_size_without_the_longer_hold_falls_earlier():
    # 600 s after the burst, not 1.6 times that: four reversals are more than the 2.5 that six hours may have.
    longer, usual = (sizes(constants._replace(burst_share=inf), turns=170) for constants in (DEFAULTS, PARTS[LONGER]))
    assert usual[-1] < 0.5 * longer[-1] == 0.5 * longer.max()
