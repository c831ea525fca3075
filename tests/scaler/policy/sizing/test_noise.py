"""Tests that random arrivals of seconds do not add replicas, and that work that lasts does."""

from __future__ import annotations

from math import exp, inf

import numpy as np
import pytest

from scaler.policy.capacity import (
    ARRIVAL_S,
    DEFAULTS,
    Estimate,
)
from tests.scaler.policy.sizing.reference_sizing import whole

# Of 500 prompt and 200 output tokens at steps of 15 ms and a room of 1 - 15/40: 0.157 replica-seconds.
REQUEST_S = 0.015 * (500 / 115 + 200 * (1 / 118 + 4e-6 * 620)) / 0.625
# The size is the work that lasts, and one deviation of random arrivals.
LASTING = DEFAULTS._replace(headroom=0.0, drift=0.0, burst_share=inf, rounded_down=0.0)
ONE_DEVIATION = LASTING._replace(headroom=1.0, noise=inf)


def after_a_spike(chat, rates, requests, times=1.6):
    """Replicas before and after 5 s with `times` as many requests."""
    before = chat.during(600.0, rates(requests, gaps=0.0), ready=1000.0)[-1]
    return before, chat.after(5.0, rates(times * requests, gaps=0.0), ready=1000.0)


def test_spike_of_seconds_at_a_low_rate_adds_no_replica(sized, rates):
    before, after = after_a_spike(sized(), rates, 5.0)
    # Of 0.79 replicas of work; the spike makes it 0.97.
    assert (whole(before), whole(after)) == (1, 1)


def test_same_spike_at_a_large_rate_counts_at_once(sized, rates):
    chat = sized(constants=LASTING)
    before, after = after_a_spike(chat, rates, 500.0)
    # Of 79 replicas of work; two deviations of 97 are sqrt(97 * 0.157 / 10) * 2 = 2.5, a seventh of the rise.
    rise = chat[Estimate.WORK] - before
    assert rise > 15.0
    assert after - before == pytest.approx(rise - 2.5, abs=0.1)


@pytest.mark.parametrize("requests", [0.5, 5.0, 50.0, 500.0])
def test_sudden_rise_counts_in_full_after_a_minute_and_no_more_afterwards(sized, rates, requests):
    chat = sized(constants=LASTING)
    before = chat.during(600.0, rates(requests, gaps=0.0))[-1]
    rise = 0.6 * requests * REQUEST_S
    # The mean over a minute, and its lag: 1 - (1 - u) / e**u after u minutes, or all but two deviations.
    half = chat.during(30.0, rates(1.6 * requests, gaps=0.0))[-1]
    deviations = 2.0 * (1.6 * requests * REQUEST_S * REQUEST_S / ARRIVAL_S) ** 0.5
    assert half - before == pytest.approx(max((1.0 - 0.5 * exp(-0.5)) * rise, rise - deviations), rel=0.07)
    sizes = chat.during(270.0, rates(1.6 * requests, gaps=0.0))
    assert np.allclose(np.array(sizes[30:]) - before, rise, rtol=0.01)


def lag_of_steady_rise(chat, rates):
    """Of the size behind the work, in replicas, after twenty minutes of one more replica every ten."""
    for second in range(1200):
        size = chat.after(1.0, rates(1.0 + second / 600.0 / REQUEST_S, gaps=0.0))
    return chat[Estimate.WORK] - size


def test_steady_rise_counts_in_full_though_seconds_do_not(sized, rates):
    assert lag_of_steady_rise(sized(constants=LASTING), rates) == pytest.approx(0.0, abs=0.005)
    # A mean over a minute is a minute behind, and the work some 10 s of that: a replica every ten minutes makes 0.08.
    assert lag_of_steady_rise(sized(constants=LASTING._replace(lead=0.0)), rates) == pytest.approx(0.083, abs=0.005)


def test_fall_counts_at_once_but_for_the_hold(sized, rates):
    chat = sized(constants=LASTING._replace(shortest_hold_s=1.0, longest_hold_s=1.0))
    chat.during(600.0, rates(10.0, gaps=0.0))
    size = chat.during(30.0, rates(1.0, gaps=0.0))[-1]
    assert size == pytest.approx(chat[Estimate.WORK])
    assert size < 0.3 * 10.0 * REQUEST_S


@pytest.mark.parametrize(("requests", "output"), [(0.5, 200.0), (5.0, 200.0), (5.0, 1000.0), (50.0, 200.0)])
def test_spread_is_that_of_random_arrivals_with_exponential_work(sized, rates, requests, output):
    chat = sized(constants=ONE_DEVIATION)
    size = chat.during(3600.0, rates(requests, output=output, gaps=0.0))[-1]
    work, spread = chat[Estimate.WORK], size - chat[Estimate.WORK]
    # A day of seconds: requests arrive at random, each with exponential work; so many together have gamma work.
    rng, request_s, kept = np.random.default_rng(17), work / requests, exp(-1.0 / ARRIVAL_S)
    arrived = rng.poisson(requests, 86_400)
    amounts = rng.gamma(np.maximum(arrived, 1), request_s) * (arrived > 0)
    mean, means = work, []
    for amount in amounts.tolist():
        mean += (1.0 - kept) * (amount - mean)
        means.append(mean)
    assert np.mean(means) == pytest.approx(work, rel=0.03)
    assert np.std(means) == pytest.approx(spread, rel=0.1)
    assert spread == pytest.approx((work * request_s / ARRIVAL_S) ** 0.5, rel=1e-3)


@pytest.mark.parametrize(("output", "peak_s"), [(4.0, 1.0), (60.0, 3.0), (400.0, ARRIVAL_S)])
def test_headroom_covers_peaks_as_short_as_the_time_of_an_output_and_at_least_a_second(sized, rates, output, peak_s):
    # At the 50 ms of the SLO 60 tokens take 3 s: a peak of 3 s delays all tokens of a request, not a few of many.
    chat = sized(constants=ONE_DEVIATION)
    size = chat.during(3600.0, rates(5.0, output=output, gaps=0.0))[-1]
    work = chat[Estimate.WORK]
    assert size - work == pytest.approx((work * (work / 5.0) / peak_s) ** 0.5, rel=1e-3)


def test_headroom_adds_random_arrivals_and_drift_as_independent_errors(sized, rates):
    chat = sized(start=150.0)
    size = chat.during(3600.0, rates(5.0, gaps=0.0))[-1]
    work = 5.0 * REQUEST_S
    spread = (work * REQUEST_S / ARRIVAL_S) ** 0.5
    assert size == pytest.approx(work + 2.0**0.25 * ((0.7 * spread) ** 2 + 0.1**2 * work) ** 0.5, rel=1e-3)
