"""Sizes workloads by the time of a request (Little's law), where engines expose no counters of tokens. Pure.

Requests in hand over requests per second are the time of a request. On a server that shares its time among requests it
is `W = W0 (1 + beta n)` with `n` requests per replica. `W0` is that of the last requests. `beta` is a slope: how much
`ln W` differs between the last minutes and the last hour, over `n` times how much `ln` of the requests per second and
replica differs. Both have the error of `n`, which a fit of `W` to `n` would take for a slope.

A replica is full where a request takes `FULL_STRETCH` times `W0`. From there on `sizing` sizes the arriving work. The
size is written into the same columns of the estimates, so that hold and bursts are one state; the columns of its own
are those of `RequestTime`.

Worked example: 10 requests in hand at 2 requests per second and 2 ready replicas take 10 / 2 = 5 s, at 5 requests per
replica. Before anything is learned each further one makes a request slower by 0.05 + 0.2 = 0.25 of `W0`, so `W0` is
5 / 2.25 = 2.22 s. A replica is full at (3.5 - 1) / 0.25 = 10 requests, each of which takes 3.5 * 2.22 = 7.78 s: a
request takes 0.778 replica-seconds, and 1.56 replicas of work arrive.
"""

from __future__ import annotations

from enum import IntEnum, unique
from math import exp, expm1, log, sqrt
from typing import NamedTuple

import numpy as np
from numba import typeof, types

from exporter.model import Floats
from scaler.columns import Mask
from scaler.jit import FLOATS, NUMBER, in_place_kernel, part

from .capacity import (
    ARRIVAL_S,
    DEFAULTS,
    LARGEST,
    MEAN_OF,
    SMALLEST,
    Estimate,
    SizingConstants,
    counted,
)
from .sizing import LEAST_WORK, ArrivingWork, burst_replicas, count_arrivals, size_arrivals


@unique
class RequestTime(IntEnum):
    """The columns of how long requests take: WIDTH floats, part of a checkpoint. All are 0 at first."""

    IN_HAND = 0  # of the last requests: request-seconds in hand
    REQUESTS = 1  # … requests, the mean of those that arrived and those that finished
    EACH = 2  # … request-seconds in hand per replica
    RATE = 3  # … requests per replica
    SECONDS = 4  # … seconds
    MINUTES_IN_HAND = 5  # the same of the last MINUTES_S, decayed
    MINUTES_REQUESTS = 6
    MINUTES_EACH = 7
    MINUTES_RATE = 8
    MINUTES_SECONDS = 9
    HOUR_IN_HAND = 10  # the same of the last HOUR_S, decayed
    HOUR_REQUESTS = 11
    HOUR_EACH = 12
    HOUR_RATE = 13
    HOUR_SECONDS = 14
    INFORMATION = 15  # of beta: weighted squares of its regressor, without those of the prior
    SLOPE = 16  # … weighted products with ln W
    STUCK = 17  # seconds for which requests have been in hand, without a queue, and none has finished


WIDTH = len(RequestTime)
SUMS = 5  # of the last requests, of the last minutes, and of the last hour

FULL_STRETCH = 3.5  # times W0: a replica is full, and a request as slow as it may be
# Of beta: what each further request per replica adds to the time of a request, as a share of W0.
PRIOR_SLOPE, PRIOR_DEVIATION = 0.05, 0.2
ADDED_DEVIATIONS = 1.0  # added to what is fitted: to underestimate it misses the SLO
FEWEST_FULL, MOST_FULL = 2.0, 80.0  # requests with which a replica is full
MINUTES_S, HOUR_S = 300.0, 3600.0  # time constants of the means whose difference shows the slope
# Variance of ln W: that of random arrivals is 1 / requests; that of all else is as of a deviation of 20 %.
OTHER_VARIANCE = 0.04
SAMPLE_S = 15.0  # that count as one sample, however often is read
FORGOTTEN_SLOPE_PER_S = 1e-5  # of a sample's weight: half after 19 hours, because a model may be replaced
MOST_WAITING = 0.5  # waiting requests per replica above which the time of a request is that of the queue
FEWEST_TIMED = 1.0  # that must have come and gone before a size is known
# Requests of which none finishes for longer say nothing: they hang, or the engine has lost count. One such request for
# an hour would make each of the last 200 longer by 18 s.
STUCK_TIMES, STUCK_S = 3.0, 60.0  # times the time of a request, and s more
TTFT_S = 2.0  # that a request may wait before its queue counts, without an SLO: the default of `slo.ttft`
# Without measured misses the error budget counts as used up.
UNMEASURED_STRETCH = 1.0


def blank(rows: int) -> Floats:
    """Of workloads without traffic so far, shape (rows, WIDTH)."""
    return np.zeros((rows, WIDTH))


def made_sound(times: Floats) -> Floats:
    """The same, blank where this version could not have written them: they may come from another one."""
    sums = np.delete(np.arange(WIDTH), RequestTime.SLOPE)
    # NaN compares as False.
    sound: Mask = np.all(np.abs(times) <= LARGEST, axis=1) & np.all(times[:, sums] >= 0.0, axis=1)
    return np.where(sound[:, None], times, blank(len(times)))


@part
def slope(times: Floats, i: int) -> float:
    """beta: what each further request per replica adds to the time of a request, as a share of W0."""
    prior = PRIOR_DEVIATION**-2
    information = times[i, RequestTime.INFORMATION] + prior
    fitted = (times[i, RequestTime.SLOPE] + prior * PRIOR_SLOPE) / information
    full = FULL_STRETCH - 1.0
    return min(max(fitted + ADDED_DEVIATIONS / sqrt(information), full / MOST_FULL), full / FEWEST_FULL)


@part
def has_time(times: Floats, i: int) -> bool:
    """Whether requests have come and gone, so that their time is known."""
    return times[i, RequestTime.REQUESTS] >= FEWEST_TIMED and times[i, RequestTime.IN_HAND] > SMALLEST


@part
def time_s(times: Floats, i: int) -> float:
    """Seconds that a request takes, by Little's law. Only if `has_time`."""
    return times[i, RequestTime.IN_HAND] / times[i, RequestTime.REQUESTS]


@part
def requests_each(times: Floats, i: int) -> float:
    """Requests in hand per replica, the mean of the last ones."""
    return times[i, RequestTime.EACH] / max(times[i, RequestTime.SECONDS], SMALLEST)


@part
def alone_s(times: Floats, i: int) -> float:
    """W0: seconds that a request takes on a replica without others. Only if `has_time`."""
    return time_s(times, i) / (1.0 + slope(times, i) * requests_each(times, i))


@part
def request_replica_s(times: Floats, i: int) -> float:
    """Replica-seconds that one request takes: the time of one on a full replica over those that are there."""
    return slope(times, i) * alone_s(times, i) / (1.0 - 1.0 / FULL_STRETCH)


@part
def _add(
    times: Floats, i: int, first: int, kept: float, in_hand: float, requests: float, ready: float, dt: float
) -> None:
    """Adds to the sums from the column `first`. A mean per replica is over time: replicas that come change no past."""
    times[i, first] = kept * times[i, first] + in_hand * dt
    times[i, first + 1] = max(kept * times[i, first + 1] + requests, 0.0)
    times[i, first + 2] = kept * times[i, first + 2] + in_hand / ready * dt
    times[i, first + 3] = max(kept * times[i, first + 3] + requests / ready, 0.0)
    times[i, first + 4] = kept * times[i, first + 4] + dt


@part
def _mean(times: Floats, i: int, first: int) -> tuple[float, float, float]:
    """Of the sums from the column `first`: seconds of a request, requests in hand per replica, requests per second and
    replica.
    """
    in_hand, requests, seconds = times[i, first], times[i, first + 1], times[i, first + 4]
    return in_hand / requests, times[i, first + 2] / seconds, times[i, first + 3] / seconds


@part
def _count_stuck(times: Floats, i: int, in_hand: float, finished: float, dt: float) -> None:
    """Adds the last dt seconds to those in which no request in hand has finished; 0 once one has."""
    passes = finished > 0.0 or not in_hand > 0.0
    times[i, RequestTime.STUCK] = 0.0 if passes else min(times[i, RequestTime.STUCK] + dt, LARGEST)


@part
def _is_stuck(times: Floats, i: int) -> bool:
    """Whether no request has finished for so long that those in hand say nothing of the time of a request."""
    longest = STUCK_TIMES * time_s(times, i) + STUCK_S if has_time(times, i) else STUCK_S
    return times[i, RequestTime.STUCK] > longest


@part
def _learn(times: Floats, i: int, in_hand: float, requests: float, ready: float, dt: float) -> None:
    """in_hand, ready: means of the last dt seconds; requests: their number."""
    _add(times, i, RequestTime.IN_HAND, 1.0, in_hand, requests, ready, dt)
    if times[i, RequestTime.REQUESTS] > MEAN_OF:
        kept = MEAN_OF / times[i, RequestTime.REQUESTS]
        for column in range(RequestTime.IN_HAND, RequestTime.IN_HAND + SUMS):
            times[i, column] *= kept
    _add(times, i, RequestTime.MINUTES_IN_HAND, exp(-dt / MINUTES_S), in_hand, requests, ready, dt)
    _add(times, i, RequestTime.HOUR_IN_HAND, exp(-dt / HOUR_S), in_hand, requests, ready, dt)
    forgotten = exp(-FORGOTTEN_SLOPE_PER_S * dt)
    times[i, RequestTime.INFORMATION] *= forgotten
    times[i, RequestTime.SLOPE] *= forgotten
    for column in range(RequestTime.MINUTES_IN_HAND, RequestTime.HOUR_IN_HAND + SUMS):
        if not times[i, column] > SMALLEST:  # the logarithm of nothing
            return
    fast_s, fast_each, fast_rate = _mean(times, i, RequestTime.MINUTES_IN_HAND)
    slow_s, slow_each, slow_rate = _mean(times, i, RequestTime.HOUR_IN_HAND)
    regressor = sqrt(fast_each * slow_each) * log(fast_rate / slow_rate)
    weight = min(dt / SAMPLE_S, 1.0) / (1.0 / times[i, RequestTime.MINUTES_REQUESTS] + OTHER_VARIANCE)
    times[i, RequestTime.INFORMATION] += weight * regressor**2
    times[i, RequestTime.SLOPE] += weight * regressor * log(fast_s / slow_s)


_COLUMNS = types.Array(types.float64, 2, "C")


@in_place_kernel(
    types.void(
        _COLUMNS, _COLUMNS, types.Array(types.bool_, 1, "C", readonly=True), *7 * (FLOATS,), NUMBER, NUMBER,
        typeof(DEFAULTS),
    )
)  # fmt: skip
def _update(
    times: Floats,
    estimates: Floats,
    chosen: Mask,
    arrived: Floats,
    finished: Floats,
    in_hand: Floats,
    waiting: Floats,
    ready: Floats,
    ttft: Floats,
    start: Floats,
    longest: float,
    now: float,
    constants: SizingConstants,
) -> None:
    for i in range(times.shape[0]):
        if not chosen[i] or np.isnan(arrived[i] + finished[i] + in_hand[i]):
            continue
        dt = now - estimates[i, Estimate.AT]
        estimates[i, Estimate.AT] = now
        if not dt > 0.0:
            continue
        known_s = min(dt, longest)  # the rates hold no longer
        queue = counted(waiting[i])
        # A request that is in hand has arrived and not finished: its mean counts it by half.
        requests = 0.5 * (arrived[i] + finished[i]) * known_s
        if ready[i] > 0.0 and queue <= MOST_WAITING * ready[i]:
            _count_stuck(times, i, in_hand[i], finished[i], known_s)
            # Before a first request has finished, those in hand have no time yet.
            begun = times[i, RequestTime.SECONDS] > 0.0 or finished[i] > 0.0
            if begun and not _is_stuck(times, i):
                _learn(times, i, in_hand[i], requests, ready[i], known_s)
        if not has_time(times, i):
            continue
        request_s = request_replica_s(times, i)
        raw = arrived[i] * request_s
        came = arrived[i] * known_s
        residence = min(max(0.5 * time_s(times, i), ARRIVAL_S), constants.longest_residence_s)
        before = counted(estimates[i, Estimate.WORK])
        work = before - expm1(-dt / residence) * (raw - before)
        estimates[i, Estimate.WORK] = work if work > LEAST_WORK else 0.0
        count_arrivals(estimates, i, came, raw, dt)
        may_wait = TTFT_S if np.isnan(ttft[i]) else ttft[i]
        arrivals = ArrivingWork(came, raw, request_s, queue * request_s, ARRIVAL_S, UNMEASURED_STRETCH)
        size_arrivals(estimates, i, arrivals, ready[i], may_wait, start[i], dt, known_s, now, constants)


class RequestTimes(NamedTuple):
    """The time of a request and what follows from it, shape (rows,); NaN before a first request has finished.

    request_s:         seconds that a request takes, the mean of the last ones.
    replica_requests:  requests in hand per replica meanwhile.
    request_slowdown:  what each further one adds to the time, as a share of that of one alone.
    replica_full:      requests with which a replica is full.
    request_replica_s: replica-seconds that one request takes.
    burst_replicas:    those that stay for a burst; 0 if none is remembered.
    """

    request_s: Floats
    replica_requests: Floats
    request_slowdown: Floats
    replica_full: Floats
    request_replica_s: Floats
    burst_replicas: Floats


@in_place_kernel(types.void(_COLUMNS, _COLUMNS, NUMBER, _COLUMNS))
def _shown(times: Floats, estimates: Floats, now: float, shown: Floats) -> None:
    for i in range(times.shape[0]):
        if has_time(times, i):
            shown[0, i], shown[1, i], shown[2, i] = time_s(times, i), requests_each(times, i), slope(times, i)
            shown[3, i], shown[4, i] = (FULL_STRETCH - 1.0) / slope(times, i), request_replica_s(times, i)
            shown[5, i] = burst_replicas(estimates, i, now, DEFAULTS)


def request_times(times: Floats, estimates: Floats, now: float) -> RequestTimes:
    """times: shape (rows, WIDTH). estimates: shape (rows, capacity.WIDTH). now: POSIX seconds."""
    shown = np.full((len(RequestTimes._fields), len(times)), np.nan)
    _shown(times, estimates, now, shown)
    return RequestTimes(*shown)


class TimeInputs(NamedTuple):
    """What is read of each workload at one moment, shape (rows,).

    arrived, finished: requests per second; NaN: not known now, and nothing changes.
    in_hand: requests that wait or run, wherever they are; NaN: the same.
    waiting: those that wait, at the engines and at the gateway.
    ready:   replicas.
    ttft:    seconds that a request may wait; NaN: TTFT_S.
    start:   seconds that a start takes.
    """

    arrived: Floats
    finished: Floats
    in_hand: Floats
    waiting: Floats
    ready: Floats
    ttft: Floats
    start: Floats


def update(
    times: Floats,
    estimates: Floats,
    chosen: Mask,
    inputs: TimeInputs,
    now: float,
    longest_s: float,
    constants: SizingConstants = DEFAULTS,
) -> None:
    """Updates the times of the chosen workloads, and their sizes among the estimates, in place.

    times: shape (rows, WIDTH). estimates: shape (rows, capacity.WIDTH). now: POSIX seconds. longest_s: the rates hold
    for so many seconds at most.
    """
    _update(times, estimates, chosen, *inputs, longest_s, now, constants)
