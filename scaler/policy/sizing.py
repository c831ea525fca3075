"""Computes the replicas that arriving work needs under an SLO, with a capacity learned from the engine itself. Pure.

Demand is the rate at which work arrives, not the requests in hand: a queue says how late it is, not how much comes.

1. **Arriving work**, in replicas: the replica-seconds of the requests that arrive per second (`capacity`).
2. **Size**: the work that lasts, and headroom for random arrivals and a rate that moves; more where starts take long.
   A small part of a replica is rounded down, because rounding up is headroom too. Requests without a first token add
   what drains them within one start. The largest of the last `hold_starts` start-up times counts, so that replicas do
   not end and start again for the same work; longer if they did so more often than they may.
3. **Error budget**: requests that miss the SLO, beyond the share that may, widen the headroom. Misses at cold starts
   come out of the same share.
4. **Burst guard**: after a burst that was over before a new replica could be ready, replicas for the next one stay for
   `MEMORY_S`.

The constants of rules that can be switched off are an argument, `SizingConstants`: a replay measures what each rule is
worth. The daemon passes `DEFAULTS`.

Worked example: two requests per second of 0.087 replica-seconds (`capacity`) are 0.174 replicas. The deviation of
arrivals within 10 s is sqrt(0.174 * 0.087 / 10) = 0.039. With starts of 75 s the size is
0.174 + sqrt((0.7 * 0.039)**2 + 0.1**2 * 0.174) = 0.22: one replica.
"""

from __future__ import annotations

from math import exp, expm1
from typing import NamedTuple

import numpy as np
from numba import typeof, types

from exporter.model import Floats
from scaler.jit import FLOATS, NUMBER, in_place_kernel, part
from scaler.model import USUAL_START_S

from .attainment import BUDGET
from .capacity import (
    ARRIVAL_S,
    DEFAULTS,
    FULL_PREFILL,
    PEAK_COUNT,
    PRIOR_REQUESTS,
    TARGET,
    Estimate,
    SizingConstants,
    WorkRate,
    computed_tokens,
    counted,
    empty_step,
    learn_capacity,
    learn_requests,
    output_token_s,
    output_tokens,
    prompt_token_s,
    request_replica_s,
    room,
)

UNLEARNED_START_S = 120.0  # before a start was measured: an image on the node and some ten gigabytes of weights
SLOW_S = 60.0  # time constant of work that lasts
# Of a part of the hold: several together are whole seconds, which the rounding of POSIX seconds must not miss.
DUST = 1e-6
LEAST_WORK = 1e-6  # replicas; less is what rounding leaves of past work, and its root, the headroom, is more
# Error budget and bursts.
BUDGET_GAIN = 3.0  # stretch per share of the requests of MEMORY_S that missed beyond the budget
MEMORY_S = 7200.0  # time constant of the requests that misses are compared with, and for which a burst is remembered
FEWEST_REQUESTS = 100.0  # of MEMORY_S: with fewer a few misses would be many
LATE_ITL = 0.9  # of the SLO: steps that are slower on average are late
LATE_S = 60.0  # after work was late, misses count for so long
# Reversals of whole sizes: a rise within REVERSED_S of a fall.
REVERSED_S = 300.0
REVERSALS_S = 21600.0  # time constant of their number
REVERSAL_BAND = 0.2  # replicas by which a size must fall below a whole number, as by the default `scale_down_band`
MOST_HOLD = 2.0  # times as long, at most
DAY_S = 86400.0
# Start-up times after a cold start for which misses do not count: replicas come as fast as they can.
ABSENT_STARTS = 3.0


@part
def _arriving(estimates: Floats, i: int, rates: Floats, itl: float, dt: float, constants: SizingConstants) -> float:
    """Replicas of arriving work; updates the smoothed prefill and decode work."""
    # A target that is read earlier than another may show a request as gone before the other shows it as come: the
    # rate is below 0 for a moment, and right on the mean.
    arrived, there = rates[i, WorkRate.ARRIVED], room(estimates, i, itl)
    # Prompts that were computed, and those that arrived meanwhile, at the mean.
    unread = arrived - counted(rates[i, WorkRate.FIRST_TOKENS])
    prefill = (counted(rates[i, WorkRate.COMPUTED]) + unread * computed_tokens(estimates, i)) * prompt_token_s(
        estimates, i, constants
    )
    output_s = arrived * output_tokens(estimates, i)
    # Requests stay for their output at the speed of the SLO: so many KV caches are full with them.
    caches = output_s * TARGET * itl * estimates[i, Estimate.KV_PER_REQUEST] / constants.full_kv
    decode = max(output_s * output_token_s(estimates, i, constants), there * caches - prefill)
    residence = min(max(0.5 * itl * output_tokens(estimates, i), ARRIVAL_S), constants.longest_residence_s)
    estimates[i, Estimate.PREFILL] += -expm1(-dt / ARRIVAL_S) * (prefill - estimates[i, Estimate.PREFILL])
    estimates[i, Estimate.DECODE] += -expm1(-dt / residence) * (decode - estimates[i, Estimate.DECODE])
    prefill, decode = estimates[i, Estimate.PREFILL], estimates[i, Estimate.DECODE]
    work = max(prefill / FULL_PREFILL, (prefill + decode) / there)
    return work if work > LEAST_WORK else 0.0


@part
def _largest(estimates: Floats, i: int, size: float, hold: float, now: float) -> float:
    """The largest size of the last `hold` seconds, in PEAK_COUNT - 1 whole parts and the present one."""
    part_s = hold / (PEAK_COUNT - 1)
    began = estimates[i, Estimate.PEAKS_FROM]
    if np.isnan(began) or began > now:  # the clock was set back
        estimates[i, Estimate.PEAKS_FROM] = now
        for position in range(PEAK_COUNT):
            estimates[i, Estimate.PEAKS + position] = 0.0
    elif now - began >= part_s * (1.0 - DUST):
        passed = min(int((now - began) / part_s + DUST), PEAK_COUNT)
        for position in range(PEAK_COUNT - 1, -1, -1):
            kept = position >= passed
            estimates[i, Estimate.PEAKS + position] = estimates[i, Estimate.PEAKS + position - passed] if kept else 0.0
        estimates[i, Estimate.PEAKS_FROM] = now if passed == PEAK_COUNT else began + passed * part_s
    estimates[i, Estimate.PEAKS] = max(estimates[i, Estimate.PEAKS], size)
    largest = size
    for position in range(PEAK_COUNT):
        largest = max(largest, estimates[i, Estimate.PEAKS + position])
    return largest


@part
def _hold_s(estimates: Floats, i: int, start: float, constants: SizingConstants) -> float:
    """Seconds for which the largest size counts: longer if sizes have reversed more often than they may."""
    hold = min(max(constants.hold_starts * start, constants.shortest_hold_s), constants.longest_hold_s)
    often = estimates[i, Estimate.REVERSALS] / (constants.reversals_a_day * REVERSALS_S / DAY_S)
    return min(hold * min(max(often, 1.0), MOST_HOLD), constants.longest_hold_s)


@part
def _count_reversals(estimates: Floats, i: int, size: float, dt: float, now: float) -> None:
    """Counts the rises of the held size, in whole replicas, that follow a fall within REVERSED_S."""
    estimates[i, Estimate.REVERSALS] *= exp(-dt / REVERSALS_S)
    before, after = estimates[i, Estimate.WHOLE], np.ceil(size)
    if after > before:
        # A fall after `now` is of a clock that was set back; NaN compares as False.
        estimates[i, Estimate.REVERSALS] += 1.0 if 0.0 <= now - estimates[i, Estimate.FELL_AT] <= REVERSED_S else 0.0
        estimates[i, Estimate.FELL_AT], estimates[i, Estimate.WHOLE] = np.nan, after
    elif np.ceil(size + REVERSAL_BAND) < before:
        estimates[i, Estimate.FELL_AT], estimates[i, Estimate.WHOLE] = now, np.ceil(size + REVERSAL_BAND)


@part
def _rounded_down(size: float, stretch: float, constants: SizingConstants) -> float:
    """The size less `rounded_down`, but not below one replica; a size up to one replica stays as it is.

    Rounding up adds half a replica on average, which is headroom too. The more the error budget widens the headroom,
    the less is subtracted.
    """
    left = max(0.0, 1.0 - stretch / constants.rounded_stretch)
    return max(size - constants.rounded_down * left, min(size, 1.0))


@part
def _count_unread(estimates: Floats, i: int, rates: Floats, waiting: float, running: float, dt: float) -> None:
    """Counts the requests without a first token: an engine counts one whose prompt is being read as running.

    A request that ends without a first token is never subtracted, so the count is never above the requests in hand.
    """
    arrived, read = counted(rates[i, WorkRate.ARRIVED]), counted(rates[i, WorkRate.FIRST_TOKENS])
    unread = estimates[i, Estimate.UNREAD] + (arrived - read) * dt
    estimates[i, Estimate.UNREAD] = min(max(unread, waiting), waiting + running)


@part
def _spread(work: float, request_s: float, mean_s: float) -> float:
    """Standard deviation of arriving work, in replicas, averaged with a time constant of `mean_s`.

    Requests that arrive at random with exponential work: the variance of such a mean is rate * 2 * request_s**2 /
    (2 * mean_s) (Campbell's theorem), and the rate is work / request_s.
    """
    return np.sqrt(work * request_s / mean_s)


@part
def _shortest_late_peak(estimates: Floats, i: int, itl: float, constants: SizingConstants) -> float:
    """Seconds of the shortest peak of arrivals that makes requests late.

    The SLO limits the mean time between the tokens of a request, so a request averages what lasts less than its output.
    """
    return min(max(itl * output_tokens(estimates, i), constants.shortest_peak_s), ARRIVAL_S)


@part
def _lasting(estimates: Floats, i: int, spread: float, constants: SizingConstants) -> float:
    """The arriving work without the peaks that random arrivals make within seconds.

    A mean over SLOW_S is that many seconds behind a steady rise, and so is its own mean behind it: their difference is
    the lag (R. G. Brown, Smoothing, Forecasting and Prediction, 1963: double exponential smoothing).
    """
    work, slow = estimates[i, Estimate.WORK], estimates[i, Estimate.SLOW]
    level = slow + constants.lead * (slow - estimates[i, Estimate.SLOWER])
    return max(min(work, level), work - constants.noise * spread, 0.0)


@part
def _with_backlog(
    estimates: Floats,
    i: int,
    size: float,
    backlog: float,
    ready: float,
    ttft: float,
    start: float,
    constants: SizingConstants,
) -> float:
    """The size that also drains the queue, and what arrives before new replicas are ready, within one start.

    Replicas that were ordered a moment ago drain it too, but are not counted: the queue grows until they are ready, and
    what it adds is held. Hence the bound.
    backlog: replica-seconds of the requests without a first token. ready: replicas, NaN unknown. While the first one
    starts none is ready: what arrives until then waits for it.
    """
    work = estimates[i, Estimate.WORK]
    if not backlog > constants.backlog_of_ttft * ttft * ready:  # so too if a factor is unknown
        return size
    backlog += max(work - ready, 0.0) * start
    return max(size, min(work + backlog / start, constants.backlog_times * max(work, 1.0) + constants.backlog_more))


@part
def _left_of_budget(estimates: Floats, i: int, constants: SizingConstants) -> float:
    """The share of the requests that may miss while work is late: what cold starts leave of BUDGET."""
    cold = counted(estimates[i, Estimate.COLD]) / max(estimates[i, Estimate.REQUESTS], FEWEST_REQUESTS)
    return max(BUDGET - cold, constants.least_budget)


@part
def _follow_budget(
    estimates: Floats,
    i: int,
    arrived: float,
    misses: float,
    late: bool,
    ready: float,
    start: float,
    dt: float,
    now: float,
    constants: SizingConstants,
) -> None:
    """Integral control: misses beyond the budget stretch the headroom, and fewer release it.

    A miss counts only while work is late: one that a long prompt makes would not be met by more replicas either. One at
    a cold start would be met by a longer keep-warm time alone, so it takes from the budget instead.
    misses: NaN if they are not measured. dt: seconds since the last update.
    """
    estimates[i, Estimate.COLD] *= exp(-dt / MEMORY_S)
    if late:
        estimates[i, Estimate.LATE_AT] = now
    if not ready > 0.0:
        estimates[i, Estimate.COLD] = counted(estimates[i, Estimate.COLD])
    if not ready > 0.0 or np.isnan(estimates[i, Estimate.ABSENT_AT]):
        estimates[i, Estimate.ABSENT_AT] = now
    if np.isnan(misses):
        return
    is_late = now - estimates[i, Estimate.LATE_AT] <= LATE_S  # not so where it is NaN
    starts = now - estimates[i, Estimate.ABSENT_AT] <= ABSENT_STARTS * start
    if starts:
        estimates[i, Estimate.COLD] += misses
    late_misses = misses if is_late and not starts else 0.0
    beyond = late_misses - _left_of_budget(estimates, i, constants) * arrived
    beyond /= max(estimates[i, Estimate.REQUESTS], FEWEST_REQUESTS)
    estimates[i, Estimate.STRETCH] = min(max(estimates[i, Estimate.STRETCH] + BUDGET_GAIN * beyond, 0.0), 1.0)


@part
def _recent_burst(estimates: Floats, i: int, now: float) -> float:
    """The most work of the bursts of MEMORY_S, in replicas; 0 without one."""
    # A moment after `now` is of a clock that was set back.
    is_recent = 0.0 <= now - estimates[i, Estimate.BURST_AT] < MEMORY_S
    return estimates[i, Estimate.BURST] if is_recent else 0.0


@part
def burst_replicas(estimates: Floats, i: int, now: float, constants: SizingConstants) -> float:
    """Replicas that stay for a burst like those of MEMORY_S; 0 without one."""
    return constants.burst_margin * _recent_burst(estimates, i, now)


@part
def _guard(
    estimates: Floats,
    i: int,
    size: float,
    raw: float,
    arrived: float,
    ready: float,
    ttft: float,
    start: float,
    dt: float,
    now: float,
    constants: SizingConstants,
) -> float:
    """The size with what stays for the next burst.

    A burst is judged by the queue that would be there without the guard, or the guard would end its own reason. It is
    over within a start-up time, work and queue; what lasts longer is served by new replicas, and so is what arrived
    while none was ready. raw: replicas of work that arrived since the last update. arrived: requests. ready: replicas,
    NaN unknown.
    """
    replicas = min(np.ceil(size), counted(ready))
    if replicas > 0.0 or ready == 0.0:
        estimates[i, Estimate.QUEUE] = max(0.0, estimates[i, Estimate.QUEUE] + (raw - replicas) * dt)
        if estimates[i, Estimate.QUEUE] > 0.0:
            if raw > replicas:
                least = start if ready == 0.0 else 0.0
                estimates[i, Estimate.SPELL_S] = max(estimates[i, Estimate.SPELL_S] + dt, least)
            estimates[i, Estimate.SPELL_PEAK] = max(estimates[i, Estimate.SPELL_PEAK], estimates[i, Estimate.WORK])
            estimates[i, Estimate.SPELL_LATE] += arrived if estimates[i, Estimate.QUEUE] > ttft * replicas else 0.0
        else:
            many = constants.burst_share * max(estimates[i, Estimate.REQUESTS], FEWEST_REQUESTS)
            if estimates[i, Estimate.SPELL_S] < start and estimates[i, Estimate.SPELL_LATE] > many:
                most = max(_recent_burst(estimates, i, now), estimates[i, Estimate.SPELL_PEAK])
                estimates[i, Estimate.BURST] = most
                estimates[i, Estimate.BURST_AT] = now
            estimates[i, Estimate.SPELL_S] = estimates[i, Estimate.SPELL_LATE] = estimates[i, Estimate.SPELL_PEAK] = 0.0
    return max(size, burst_replicas(estimates, i, now, constants))


@part
def _has_rates(rates: Floats, i: int) -> bool:
    """Whether the rates without which there is no size are known."""
    for column in range(WorkRate.GAPS):  # noqa: SIM110 - any() is slower in a kernel
        if np.isnan(rates[i, column]):
            return False
    return True


class ArrivingWork(NamedTuple):
    """The work that arrives at one workload, and how its headroom is chosen.

    requests:  since the last update.
    raw:       replicas of work that these are.
    request_s: replica-seconds of one request.
    backlog:   replica-seconds of the requests without a first token.
    peak_s:    seconds of the shortest peak that makes requests late.
    stretch:   of the headroom: 0 none, 1 all of it.
    """

    requests: float
    raw: float
    request_s: float
    backlog: float
    peak_s: float
    stretch: float


@part
def count_arrivals(estimates: Floats, i: int, requests: float, raw: float, dt: float) -> None:
    """Adds requests, and the work that they are in replicas, to the means over minutes and hours."""
    estimates[i, Estimate.SLOW] += -expm1(-dt / SLOW_S) * (raw - estimates[i, Estimate.SLOW])
    estimates[i, Estimate.SLOWER] += -expm1(-dt / SLOW_S) * (
        estimates[i, Estimate.SLOW] - estimates[i, Estimate.SLOWER]
    )
    estimates[i, Estimate.REQUESTS] = max(exp(-dt / MEMORY_S) * estimates[i, Estimate.REQUESTS] + requests, 0.0)


@part
def size_arrivals(
    estimates: Floats,
    i: int,
    arrivals: ArrivingWork,
    ready: float,
    ttft: float,
    start: float,
    dt: float,
    known_s: float,
    now: float,
    constants: SizingConstants,
) -> None:
    """Writes the size that follows from the arriving work: headroom, rounding, backlog, hold and burst guard.

    ready: replicas, NaN unknown. dt: seconds since the last update; known_s: of these, those of which the rates are.
    """
    work, request_s = estimates[i, Estimate.WORK], arrivals.request_s
    lasting = _lasting(estimates, i, _spread(work, request_s, ARRIVAL_S), constants)
    spread = _spread(work, request_s, arrivals.peak_s)
    headroom = np.sqrt((constants.headroom * spread) ** 2 + constants.drift**2 * lasting)
    headroom *= (start / USUAL_START_S) ** constants.headroom_power
    size = lasting + headroom * (1.0 + constants.stretch * arrivals.stretch)
    size = _rounded_down(size, arrivals.stretch, constants)
    size = _with_backlog(estimates, i, size, arrivals.backlog, ready, ttft, start, constants)
    hold = _hold_s(estimates, i, start, constants)
    if ready == 0.0 and not (arrivals.requests > 0.0 or arrivals.backlog > 0.0):
        estimates[i, Estimate.PEAKS_FROM] = np.nan  # no replica is there that could be held
    size = _largest(estimates, i, size, hold, now)
    _count_reversals(estimates, i, size, dt, now)
    estimates[i, Estimate.SIZE] = _guard(
        estimates, i, size, arrivals.raw, arrivals.requests, ready, ttft, start, known_s, now, constants
    )


_COLUMNS = types.Array(types.float64, 2, "C")
_CONSTANTS = typeof(DEFAULTS)


@in_place_kernel(types.void(_COLUMNS, _COLUMNS, *8 * (FLOATS,), NUMBER, NUMBER, _CONSTANTS))
def _update(
    estimates: Floats,
    rates: Floats,
    waiting: Floats,
    running: Floats,
    kv_used: Floats,
    ready: Floats,
    ttft: Floats,
    itl: Floats,
    start: Floats,
    misses: Floats,
    longest: float,
    now: float,
    constants: SizingConstants,
) -> None:
    for i in range(estimates.shape[0]):
        if np.isnan(itl[i]) or not _has_rates(rates, i):
            continue
        dt = now - estimates[i, Estimate.AT]
        estimates[i, Estimate.AT] = now
        if not dt > 0.0:
            continue
        replicas, known_s = counted(ready[i]), min(dt, longest)  # the rates hold no longer
        learn_requests(estimates, i, rates, counted(running[i]), counted(kv_used[i]), replicas, known_s)
        _count_unread(estimates, i, rates, counted(waiting[i]), counted(running[i]), known_s)
        unread = estimates[i, Estimate.UNREAD]
        learn_capacity(estimates, i, rates, unread, replicas, itl[i], known_s, constants)
        estimates[i, Estimate.WORK] = _arriving(estimates, i, rates, itl[i], dt, constants)
        request_s = request_replica_s(estimates, i, itl[i], constants)
        arrived = rates[i, WorkRate.ARRIVED] * known_s
        raw = rates[i, WorkRate.ARRIVED] * request_s
        count_arrivals(estimates, i, arrived, raw, dt)
        backlog = unread * request_s
        late = backlog > constants.backlog_of_ttft * ttft[i] * replicas
        late = late or estimates[i, Estimate.GAP_SECONDS] > LATE_ITL * itl[i] * estimates[i, Estimate.GAPS]
        _follow_budget(estimates, i, arrived, misses[i], late, replicas, start[i], dt, now, constants)
        peak_s = _shortest_late_peak(estimates, i, itl[i], constants)
        arrivals = ArrivingWork(arrived, raw, request_s, backlog, peak_s, estimates[i, Estimate.STRETCH])
        size_arrivals(estimates, i, arrivals, ready[i], ttft[i], start[i], dt, known_s, now, constants)


class Capacity(NamedTuple):
    """What is shown of the estimates, shape (rows,); NaN without an SLO and before the first request.

    request_replica_s: replica-seconds that one request takes.
    step_s:            seconds of a decode step with nothing in it.
    headroom_times:    what the error budget multiplies the headroom by, 1 or more.
    burst_replicas:    those that stay for a burst; 0 if none is remembered.
    """

    request_replica_s: Floats
    step_s: Floats
    headroom_times: Floats
    burst_replicas: Floats


@in_place_kernel(types.void(_COLUMNS, FLOATS, NUMBER, types.Array(types.float64, 2, "C")))
def _capacity(estimates: Floats, itl: Floats, now: float, shown: Floats) -> None:
    for i in range(estimates.shape[0]):
        if estimates[i, Estimate.OUTPUTS] > PRIOR_REQUESTS and not np.isnan(itl[i]):
            shown[0, i] = request_replica_s(estimates, i, itl[i], DEFAULTS)
            shown[1, i] = empty_step(estimates, i)
            shown[2, i] = 1.0 + DEFAULTS.stretch * estimates[i, Estimate.STRETCH]
            shown[3, i] = burst_replicas(estimates, i, now, DEFAULTS)


def capacity(estimates: Floats, itl: Floats, now: float) -> Capacity:
    """estimates: shape (rows, WIDTH). itl: of the SLO, seconds, shape (rows,). now: POSIX seconds."""
    shown = np.full((len(Capacity._fields), len(itl)), np.nan)
    _capacity(estimates, itl, now, shown)
    return Capacity(*shown)


class SloColumns(NamedTuple):
    """The SLO of each workload, shape (rows,), seconds. ttft, itl: NaN for a workload without an SLO."""

    ttft: Floats
    itl: Floats


class SizingInputs(NamedTuple):
    """What sizing reads of each workload at one moment, shape (rows,) but for rates.

    rates:   shape (rows, len(WorkRate)), per second; NaN: not known now, and the estimates stay as they are.
    waiting: requests that wait, at the engines and at the gateway.
    running: requests in the engines, prompts being read included.
    kv_used: mean ratio over the replicas.
    ready:   replicas.
    start:   seconds that a start takes.
    misses:  requests that missed the SLO since the last update; NaN: not measured.
    """

    rates: Floats
    waiting: Floats
    running: Floats
    kv_used: Floats
    ready: Floats
    start: Floats
    misses: Floats


def update(
    estimates: Floats,
    slos: SloColumns,
    inputs: SizingInputs,
    now: float,
    longest_s: float,
    constants: SizingConstants = DEFAULTS,
) -> None:
    """Updates the estimates of all workloads in place.

    estimates: shape (rows, WIDTH). now: POSIX seconds. longest_s: the rates hold for so many seconds at most.
    """
    rates, waiting, running, kv_used, ready, start, misses = inputs
    columns = (rates, waiting, running, kv_used, ready, slos.ttft, slos.itl, start, misses)
    _update(estimates, *columns, longest_s, now, constants)
