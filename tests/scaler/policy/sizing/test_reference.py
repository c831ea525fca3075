"""Compares the kernel with its plain-Python reference over random histories."""

from __future__ import annotations

from math import inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy import capacity, sizing
from scaler.policy.capacity import (
    DEFAULTS,
    Estimate,
    SizingConstants,
    WorkRate,
)
from scaler.policy.sizing import (
    SizingInputs,
    SloColumns,
)
from tests.budget import examples
from tests.scaler.policy.sizing import reference_sizing

START = 1.7e9  # POSIX seconds, so that floats have the precision of production

SLOS = st.tuples(st.floats(0.01, 60.0), st.floats(0.001, 1.0) | st.sampled_from([0.05, 0.06]))
STEPS_S = st.sampled_from([1.0, 5.0, 15.0]) | st.floats(-100.0, 5000.0)
UNKNOWN = st.just(nan)
REQUESTS = st.floats(-5.0, 50.0) | st.just(0.0)
AMOUNTS = (*([REQUESTS] * 3), *(st.floats(0.0, largest) for largest in (1e5, 1e4, 1e5, 1e4, 500.0)))
# Most responses have all counters, some lack one.
RATES = (
    st.tuples(*AMOUNTS) | st.tuples(*AMOUNTS[:6], UNKNOWN, UNKNOWN) | st.tuples(*(each | UNKNOWN for each in AMOUNTS))
)
MOMENTS = st.tuples(
    STEPS_S,
    RATES,
    st.integers(0, 200).map(float) | UNKNOWN,
    st.integers(0, 200).map(float) | UNKNOWN,
    st.floats(0.0, 1.0) | UNKNOWN,
    st.integers(0, 40).map(float) | UNKNOWN,
    st.floats(1.0, 1800.0),
    st.floats(0.0, 200.0) | UNKNOWN,
)

# What the reference calls the columns of the estimates.
NAMES = {
    Estimate.WORK: lambda each: each.work,
    Estimate.SIZE: lambda each: each.size,
    Estimate.KV_PER_REQUEST: lambda each: each.kv,
    Estimate.PREFILL: lambda each: each.prefill,
    Estimate.DECODE: lambda each: each.decode,
    Estimate.PROMPT_SUM: lambda each: each.prompt.total,
    Estimate.CACHED_SUM: lambda each: each.cached.total,
    Estimate.OUTPUT_SUM: lambda each: each.output.total,
    Estimate.STEP_SUM: lambda each: each.step_sum,
    Estimate.STEP_WEIGHT: lambda each: each.step_weight,
    Estimate.FACTOR_SUM: lambda each: each.factor_sum,
    Estimate.FACTOR_WEIGHT: lambda each: each.factor_weight,
    Estimate.REPLICA_SECONDS: lambda each: each.replica_seconds,
    Estimate.SLOW: lambda each: each.slow,
    Estimate.SLOWER: lambda each: each.slower,
    Estimate.UNREAD: lambda each: each.unread,
    Estimate.REQUESTS: lambda each: each.requests,
    Estimate.STRETCH: lambda each: each.budget.stretch,
    Estimate.COLD: lambda each: each.budget.cold,
    Estimate.REVERSALS: lambda each: each.reversals.count,
    Estimate.WHOLE: lambda each: each.reversals.whole,
    Estimate.QUEUE: lambda each: each.bursts.queue,
    Estimate.BURST: lambda each: each.bursts.most,
}


# Each constant at its default or at a value that switches its rule off.
CONSTANTS = st.builds(
    SizingConstants,
    full_kv=st.sampled_from([DEFAULTS.full_kv, inf]),
    longest_residence_s=st.sampled_from([DEFAULTS.longest_residence_s, 10.0]),
    noise=st.sampled_from([DEFAULTS.noise, 0.0]),
    lead=st.sampled_from([DEFAULTS.lead, 0.0]),
    headroom=st.sampled_from([DEFAULTS.headroom, 0.0]),
    drift=st.sampled_from([DEFAULTS.drift, 0.0]),
    stretch=st.sampled_from([DEFAULTS.stretch, 0.0]),
    least_budget=st.sampled_from([DEFAULTS.least_budget, 0.009]),
    burst_margin=st.just(DEFAULTS.burst_margin),
    burst_share=st.sampled_from([DEFAULTS.burst_share, 0.0, inf]),
    shortest_peak_s=st.sampled_from([DEFAULTS.shortest_peak_s, 10.0]),
    headroom_power=st.sampled_from([DEFAULTS.headroom_power, 0.0]),
    backlog_of_ttft=st.sampled_from([DEFAULTS.backlog_of_ttft, inf]),
    backlog_times=st.sampled_from([DEFAULTS.backlog_times, 0.0]),
    backlog_more=st.sampled_from([DEFAULTS.backlog_more, inf]),
    rounded_down=st.sampled_from([DEFAULTS.rounded_down, 0.0]),
    rounded_stretch=st.sampled_from([DEFAULTS.rounded_stretch, 1.0]),
    hold_starts=st.sampled_from([DEFAULTS.hold_starts, 2.0]),
    reversals_a_day=st.sampled_from([DEFAULTS.reversals_a_day, 0.1, inf]),
    shortest_hold_s=st.sampled_from([DEFAULTS.shortest_hold_s, 1.0]),
    longest_hold_s=st.sampled_from([DEFAULTS.longest_hold_s, 1.0]),
    sharpest=st.sampled_from([DEFAULTS.sharpest, inf]),
    lowest_factor=st.sampled_from([DEFAULTS.lowest_factor, 1.0]),
    highest_factor=st.sampled_from([DEFAULTS.highest_factor, 1.0]),
)


@given(SLOS, st.lists(MOMENTS, min_size=1, max_size=12), st.just(DEFAULTS) | CONSTANTS)
@settings(max_examples=examples(300))
def test_kernel_equals_the_reference(slo, moments, constants):
    estimates, reference, now = capacity.blank(1), reference_sizing.Sizing(constants), START
    slos = SloColumns(*(np.array([each]) for each in slo))
    for step, rates, waiting, running, kv_used, ready, start, misses in moments:
        now += step
        columns = (np.array([each]) for each in (waiting, running, kv_used, ready, start, misses))
        counted = np.full((1, len(WorkRate)), nan)
        counted[0, : len(rates)] = rates
        sizing.update(estimates, slos, SizingInputs(counted, *columns), now, 15.0, constants)
        reference.update(rates, waiting, running, kv_used, ready, *slo, start, misses, 15.0, now)
        for estimate, of in NAMES.items():
            assert estimates[0, estimate] == pytest.approx(of(reference), rel=1e-9, abs=1e-9, nan_ok=True), estimate


def test_columns_of_the_reference_are_in_the_order_of_the_kernel():
    assert [rate.name for rate in WorkRate][:8] == [
        "ARRIVED", "FIRST_TOKENS", "FINISHED", "PROMPT", "GENERATED", "COMPUTED", "GAPS", "GAP_SECONDS",
    ]  # fmt: skip
    assert isnan(reference_sizing.Sizing().size)
