"""Tests the replicas that arriving work needs: the worked example, and what holds whatever the engines count."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy import capacity, sizing
from scaler.policy.capacity import (
    DEFAULTS,
    Estimate,
    WorkRate,
)
from scaler.policy.sizing import (
    SizingInputs,
    SloColumns,
)
from tests.budget import examples
from tests.scaler.policy.sizing.reference_sizing import whole

MINUTE_S = 60.0
# Rounding takes a part of the size.
UNROUNDED = DEFAULTS._replace(rounded_down=0.0)

AMOUNTS = st.floats(0.0, 1e9) | st.sampled_from([0.0, 1.0, 1e-9])
ANY_RATES = st.tuples(st.floats(-1e6, 1e6), *([AMOUNTS] * (len(WorkRate) - 1))).map(np.array)
ANY_INPUTS = st.fixed_dictionaries(
    {
        "waiting": AMOUNTS | st.just(nan),
        "running": AMOUNTS | st.just(nan),
        "kv_used": st.floats(0.0, 1.0) | st.just(nan),
        "ready": st.integers(0, 10_000).map(float) | st.just(nan),
        "misses": AMOUNTS | st.just(nan),
    }
)
STEPS_S = st.floats(-10.0, 1e6) | st.just(5.0)


def test_worked_example_of_the_module(sized, rates):
    chat = sized(itl=0.05).knows_step(0.010)
    chat.during(10 * MINUTE_S, rates(2.0, prompt=500.0, output=200.0, gaps=0.0))

    # A prompt token takes 10 ms / 115, a token of one sequence 10 ms * (1/118 + 4e-6 * 620).
    prefill, decode = 500 * 0.010 / 115, 200 * 0.010 * (1 / 118 + 4e-6 * 620)
    assert (prefill, decode) == (pytest.approx(0.0435, abs=1e-4), pytest.approx(0.022, abs=1e-4))
    assert chat[Estimate.PREFILL] + chat[Estimate.DECODE] == pytest.approx(2 * (prefill + decode))
    assert chat[Estimate.WORK] == pytest.approx(0.17, abs=0.005)
    # One request takes (0.0435 + 0.022) / 0.75 = 0.087 replica-seconds.
    spread = (0.174 * 0.087 / 10.0) ** 0.5
    assert spread == pytest.approx(0.039, abs=5e-4)
    assert chat[Estimate.SIZE] == pytest.approx(0.174 + ((0.7 * spread) ** 2 + 0.1**2 * 0.174) ** 0.5, abs=0.002)
    assert chat[Estimate.SIZE] == pytest.approx(0.22, abs=0.005)
    assert whole(chat[Estimate.SIZE]) == 1


def test_first_update_has_no_time_before_it_and_no_size(sized):
    assert np.isnan(sized()[Estimate.SIZE])


def test_size_is_for_arriving_work_and_not_for_requests_in_hand(sized, rates):
    few, many = sized(), sized()
    few.during(MINUTE_S, rates(4.0), running=5.0)
    many.during(MINUTE_S, rates(4.0), running=500.0)
    assert few[Estimate.SIZE] == many[Estimate.SIZE]


def test_shorter_inter_token_latency_needs_more_replicas(sized, rates):
    sizes = []
    for itl in (0.2, 0.1, 0.05, 0.03, 0.02):
        chat = sized(itl=itl)
        sizes.append(chat.during(10 * MINUTE_S, rates(8.0, gaps=0.0))[-1])
    assert sizes == sorted(sizes)
    assert sizes[-1] > 1.5 * sizes[0]


def test_slo_below_one_step_has_the_least_room_and_is_not_infinite(sized, rates):
    chat = sized(itl=0.001, constants=UNROUNDED)
    size = chat.during(10 * MINUTE_S, rates(2.0, gaps=0.0))[-1]
    # 2 requests of 0.098 s per second at the least room are 1.96 replicas, of 0.98 replica-seconds each. At this SLO an
    # output takes 0.2 s, so peaks of a second count: the spread is 1.39, and the size
    # 1.96 + sqrt((0.7 * 1.39)**2 + 0.1**2 * 1.96).
    assert capacity.LEAST_ROOM == 0.1
    assert size == pytest.approx(2.94, abs=0.02)


def test_prompts_alone_fill_at_most_nine_tenths_of_a_replica(sized, rates):
    chat = sized(itl=60.0).knows_step(0.0115)
    chat.during(10 * MINUTE_S, rates(1.0, prompt=10_000.0, output=1.0, gaps=0.0))
    # The mean prompt is still mixed with the 5 requests of the prior; the tokens that are read are counted exactly.
    assert chat[Estimate.PREFILL] == pytest.approx(10_000 * 0.0115 / 115, rel=0.02)
    assert chat[Estimate.WORK] >= chat[Estimate.PREFILL] / capacity.FULL_PREFILL


def test_prompts_that_arrived_and_are_not_read_yet_count_at_the_mean(sized, rates):
    read, unread = sized(), sized()
    read.during(MINUTE_S, rates(4.0, gaps=0.0))
    unread.during(MINUTE_S, rates(4.0, gaps=0.0, first_tokens=0.0, prompt=0.0))
    assert unread[Estimate.PREFILL] == pytest.approx(read[Estimate.PREFILL])


def test_full_caches_need_replicas_even_if_compute_does_not(sized, rates):
    roomy, full = sized(), sized()
    roomy.during(30 * MINUTE_S, rates(2.0, output=2000.0, gaps=0.0), running=50.0, kv_used=0.05)
    full.during(30 * MINUTE_S, rates(2.0, output=2000.0, gaps=0.0), running=50.0, kv_used=0.9)
    # 2 requests per second that stay for 2000 tokens of 40 ms are 160; 50 of them fill 0.9 of a cache.
    assert full[Estimate.WORK] == pytest.approx(160 * 0.9 / 50 / DEFAULTS.full_kv, rel=0.1)
    assert full[Estimate.WORK] > 1.5 * roomy[Estimate.WORK]


def test_waiting_requests_add_what_drains_them_within_one_start(sized, rates):
    calm, late = sized(start=75.0), sized(start=75.0)
    calm.during(MINUTE_S, rates(4.0, gaps=0.0), ready=1.0)
    before = late.during(MINUTE_S, rates(4.0, gaps=0.0), ready=1.0)[-1]
    assert before == calm[Estimate.SIZE]
    size = late.after(5.0, rates(4.0, gaps=0.0), waiting=400.0, ready=1.0)
    assert size > before
    # One request takes 0.13 s of 15 ms steps at a room of 0.62 s: 400 take about 64 s, so one replica for 75 s.
    assert size == pytest.approx(late[Estimate.WORK] + 0.85, abs=0.2)


def test_backlog_adds_at_most_a_quarter_of_the_arriving_work_and_one_and_a_half_replicas(sized, rates):
    chat = sized()
    chat.during(MINUTE_S, rates(20.0, gaps=0.0))
    size = chat.after(5.0, rates(20.0, gaps=0.0), waiting=1e6)
    assert size == pytest.approx(1.25 * chat[Estimate.WORK] + 1.5)


@given(st.lists(st.tuples(STEPS_S, ANY_RATES, ANY_INPUTS), min_size=1, max_size=12), st.floats(1.0, 1800.0))
@settings(max_examples=examples(200))
def test_size_is_finite_and_not_negative_whatever_is_counted(sized, moments, start):
    chat = sized(start=start)
    chat.after(5.0, np.zeros(len(WorkRate)))
    for step, rates, inputs in moments:
        assert 0.0 <= chat.after(step, rates, **inputs) < np.inf
        # Only what never was is unknown: work that was late, a burst, a cold start, a fall.
        never = [Estimate.LATE_AT, Estimate.BURST_AT, Estimate.COLD, Estimate.FELL_AT]
        assert np.isfinite(np.delete(chat.estimates, never)).all()
        assert not np.isinf(chat.estimates).any()


@given(st.lists(st.tuples(st.floats(0.1, 1e4), ANY_RATES, ANY_INPUTS), max_size=5), st.data())
@settings(max_examples=examples(100))
def test_unknown_rates_leave_the_estimates_as_they_are(sized, moments, data):
    chat = sized()
    for step, rates, inputs in moments:
        chat.after(step, rates, **inputs)
    before = chat.estimates.copy()
    _, rates, inputs = data.draw(st.tuples(STEPS_S, ANY_RATES, ANY_INPUTS))
    rates = rates.copy()
    rates[data.draw(st.integers(0, WorkRate.GAPS - 1))] = nan
    chat.after(data.draw(STEPS_S), rates, **inputs)
    np.testing.assert_array_equal(chat.estimates, before)


@given(st.lists(st.tuples(st.floats(0.1, 60.0), ANY_RATES, ANY_INPUTS), max_size=5), ANY_RATES, ANY_INPUTS, AMOUNTS)
@settings(max_examples=examples(100))
def test_more_arriving_requests_never_need_fewer_replicas(sized, moments, rates, inputs, more):
    # Without the guard: work that goes on instead of ending within a start is no burst. And of the misses nothing is
    # known now: as many misses of more requests are a smaller share.
    constants, inputs = DEFAULTS._replace(burst_share=inf), {**inputs, "misses": nan}
    few, many = sized(constants=constants), sized(constants=constants)
    for step, each, others in moments:
        few.after(step, each, **others)
        many.after(step, each, **others)
    added = rates.copy()
    added[WorkRate.ARRIVED] += more
    for _ in range(4):
        size = few.after(5.0, rates, **inputs)
        # A millionth of a replica decides nothing: of 0.003 replicas with absurd counters, 1.5e-7 were missing.
        assert many.after(5.0, added, **inputs) >= size * (1.0 - 1e-9) - 1e-6


@pytest.mark.parametrize(("prompt", "output"), [(500.0, 200.0), (4000.0, 50.0), (50.0, 1500.0)])
def test_size_rises_with_the_traffic_and_the_headroom_for_its_spread_becomes_a_smaller_part(
    sized, rates, prompt, output
):
    sizes, headrooms = [], []
    for requests in (0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 200.0):
        chat = sized(constants=UNROUNDED)
        # The mean of prompts and outputs is that of hundreds of requests at each of these rates.
        sizes.append(chat.during(3600.0, rates(requests, prompt, output, gaps=0.0))[-1])
        headrooms.append(sizes[-1] / chat[Estimate.WORK])
    assert sizes == sorted(sizes)
    assert headrooms == sorted(headrooms, reverse=True)
    assert headrooms[-1] < 1.15


@pytest.mark.parametrize("start", [30.0, 75.0, 600.0])
def test_without_traffic_the_size_decays_to_zero_after_the_hold(sized, rates, start):
    chat = sized(start=start)
    # Longer than a start, or it would be a burst.
    busy = chat.during(11 * MINUTE_S, rates(10.0, gaps=0.0))[-1]
    hold = min(max(DEFAULTS.hold_starts * start, DEFAULTS.shortest_hold_s), DEFAULTS.longest_hold_s)
    sizes = chat.during(hold + 10 * MINUTE_S, rates(0.0))
    assert busy > 1.0
    assert min(sizes[: round(hold / 5) - 1]) == busy
    assert sizes[-1] < 0.01
    assert chat[Estimate.WORK] < 1e-6


def test_workload_that_slept_has_no_peak_of_the_day_before(sized, rates):
    chat = sized()
    assert chat.during(10 * MINUTE_S, rates(20.0, gaps=0.0))[-1] > 2.0
    # The daemon updates a workload without a pod every second; a replay skips its sleep.
    assert chat.after(8 * 3600.0, rates(0.0)) < 0.01


def test_ten_thousand_workloads_are_independent_of_each_other():
    rng, rows, moments = np.random.default_rng(11), 10_000, 4
    slos = SloColumns(rng.uniform(0.1, 10.0, rows), np.where(rng.random(rows) < 0.2, nan, rng.uniform(0.01, 0.2, rows)))
    history = []
    for _ in range(moments):
        rates = rng.exponential(10.0, (rows, len(WorkRate))) * [1, 1, 1, 500, 200, 400, 200, 5, *[1] * 8]
        rates[rng.random(rates.shape) < 0.05] = nan
        numbers = rng.exponential((5.0, 20.0, 0.3, 3.0, 100.0, 2.0), (rows, 6)).T.copy()
        history.append(SizingInputs(rates, *numbers))
    together = capacity.blank(rows)
    for turn, inputs in enumerate(history):
        sizing.update(together, slos, inputs, 1000.0 + 5.0 * turn, 15.0)
    for row in rng.choice(rows, 300, replace=False):
        alone, one = capacity.blank(1), slice(row, row + 1)
        for turn, inputs in enumerate(history):
            sizing.update(
                alone,
                SloColumns(*(column[one] for column in slos)),
                SizingInputs(*(np.ascontiguousarray(column[one]) for column in inputs)),
                1000.0 + 5.0 * turn,
                15.0,
            )
        np.testing.assert_array_equal(alone[0], together[row])
    np.testing.assert_array_equal(together[np.isnan(slos.itl)], capacity.blank(int(np.isnan(slos.itl).sum())))


@pytest.mark.parametrize("longest", [15.0, 180.0, 900.0])
def test_kv_cache_of_a_request_stays_between_what_was_assumed_and_what_is_measured(sized, rates, longest):
    chat = sized()
    for _ in range(10):
        chat.after(longest, rates(1.0), running=100.0, kv_used=0.01, longest=longest)
        assert 1e-4 <= chat[Estimate.KV_PER_REQUEST] <= capacity.KV_SHARE
    assert chat[Estimate.KV_PER_REQUEST] == pytest.approx(1e-4, rel=3.0)
