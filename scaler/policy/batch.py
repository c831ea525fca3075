"""Computes the replicas of which every job in a queue starts within a time of its arrival. Pure.

1. **Service rate**, jobs per second of a busy replica. While jobs wait, all ready replicas are busy, so the length of
   the queue changes by `arrivals - service rate * replicas` per second. A Kalman filter fits both: the arrival rate may
   move within minutes, the service rate within a day. A counter of finished jobs measures the departures themselves.
2. **Deadlines.** Snapshots of the queue tell how many of the jobs that waited some time ago still do: jobs start in the
   order of their arrival. Replicas must start each of these groups before its deadline. The ready ones start jobs from
   now on, those that start after the rest of their start, and new ones after a whole start.
3. **Stream**: no fewer replicas than the arrival rate keeps busy, rounded down; the queue shows the rest.
4. **Hold**: fewer replicas count after `hold_starts` start-up times in which they would have been enough, so that no
   replica ends that would have paid for its next start; and after one job's time where running jobs are not visible.
   Reversals beyond `FREE_REVERSALS` lengthen it.

Until `FEWEST` jobs have left a queue in front of busy replicas, the service rate is unknown: one replica for two jobs
shows it, and each job gets its own as soon as half of the time until new replicas must be ordered has passed.

Worked example: 100 jobs arrive at one ready replica with 0.1 jobs per second, and starts take 60 s. Of a `start_within`
of 300 s 0.8 * 300 = 240 s count. The replica starts 24 jobs less one standard deviation, 19; a new one starts
0.1 * (240 - 60) = 18. So 1 + 81 / 18 = 5.5: six replicas.
"""

from __future__ import annotations

from enum import IntEnum, unique
from math import exp, expm1
from typing import NamedTuple

import numpy as np
from numba import typeof, types

from exporter.model import Floats
from scaler.columns import Mask
from scaler.jit import FLOATS, NUMBER, in_place_kernel, part

from .capacity import counted

FEWEST = 4.0  # departures of one measurement: their spread is a half
SUSPECT = 3.0  # standard deviations: a rise beyond is a burst of arrivals, a fall beyond counts as so much
ARRIVALS_MOVE_S = 600.0  # time in which the arrival rate may change by as much as replicas start
SERVICE_MOVES_S = 86_400.0  # … and the service rate by itself
FIRST_ERROR = 0.5  # relative standard deviation of the first service rate, besides that of its count
LONGEST_WINDOW_S = 3600.0
REVERSAL_S = 300.0  # a change that takes back the last one within this time is a reversal
REVERSALS_OF_S = 21_600.0  # time constant of their count
FREE_REVERSALS = 4.0  # at 16 a day
MOST_DOUBLINGS = 5.0
SHORT_JOB_S = 30.0  # a pod that ends has so long for its job: Kubernetes' terminationGracePeriodSeconds
SLOTS = 8  # snapshots of the queue within `start_within`
LARGEST = 1e12  # of a restored estimate
DUST = 1e-6  # replicas: 0.3 / 0.1 is below 3


@unique
class JobEstimate(IntEnum):
    """The columns of a queue's estimates: WIDTH floats, part of a checkpoint. NaN: none yet."""

    AT = 0  # POSIX seconds of the last update
    READY = 1  # replicas at the last update
    FINISHED = 2  # the counter at the last update
    WAITING = 3  # jobs, when they changed last
    IS_BUSY = 4  # 1 if so many waited then that all ready replicas are busy, else 0
    SPAN_S = 5  # since WAITING changed: seconds
    SPAN_BUSY = 6  # … replica-seconds
    SPAN_PICKUPS = 7  # … jobs that replicas took when they became ready
    WINDOW_S = 8  # of the measurement under way: seconds
    WINDOW_BUSY = 9  # … replica-seconds
    WINDOW_RISE = 10  # … jobs by which the queue rose, and those that new replicas took
    WINDOW_FINISHED = 11  # … jobs by the counter; NaN: there is none
    SINCE_S = 12  # seconds since the last measurement
    ARRIVALS = 13  # jobs per second
    SERVICE = 14  # jobs per second of a busy replica
    VAR_ARRIVALS = 15
    COVARIANCE = 16
    VAR_SERVICE = 17
    STREAM = 18  # jobs per second that arrive, as far as that is known without a queue
    AT_A_TIME = 19  # jobs that a busy replica has taken
    STARTING = 20  # replicas that are wanted and not ready
    START_LEFT = 21  # seconds until they are, the mean
    NEED = 22  # replicas that would be enough now
    SIZE = 23  # replicas that the workload needs, with the hold
    LOWER_FROM = 24  # POSIX seconds since when fewer would be enough
    LOWER = 25  # … and how many, at most
    ROSE_AT = 26  # POSIX seconds when the size rose last; NaN: it fell since
    FELL_AT = 27  # … when it fell last; NaN: it rose since
    REVERSALS = 28  # of the last hours: changes of the size that took back another one soon
    TAKEN_AT = 29  # POSIX seconds of the newest snapshot
    SNAPSHOTS = 30  # jobs of each snapshot that still wait, newest first


WIDTH = JobEstimate.SNAPSHOTS + SLOTS
_MOMENTS = [
    JobEstimate.AT, JobEstimate.LOWER_FROM, JobEstimate.TAKEN_AT, JobEstimate.ROSE_AT, JobEstimate.FELL_AT,
]  # fmt: skip
_UNKNOWN_AT_FIRST = [
    *_MOMENTS, JobEstimate.WAITING, JobEstimate.READY, JobEstimate.WINDOW_FINISHED, JobEstimate.FINISHED,
    JobEstimate.SERVICE, JobEstimate.NEED, JobEstimate.SIZE,
]  # fmt: skip
_SIGNED = [JobEstimate.WINDOW_RISE, JobEstimate.COVARIANCE]


class BatchConstants(NamedTuple):
    """The constants that a replay may vary; floats."""

    target: float = 0.8  # of `start_within`: the rest is for snapshots and readings that are late
    noise: float = 1.0  # standard deviations by which jobs start later than on average
    hold_starts: float = 1.0  # start-up times
    shortest_hold_s: float = 60.0
    longest_hold_s: float = 1800.0


DEFAULTS = BatchConstants()


def blank(rows: int) -> Floats:
    """Estimates of workloads without jobs so far, shape (rows, WIDTH)."""
    estimates = np.zeros((rows, WIDTH))
    estimates[:, _UNKNOWN_AT_FIRST] = np.nan
    estimates[:, JobEstimate.AT_A_TIME] = 1.0
    return estimates


def made_sound(estimates: Floats) -> Floats:
    """The same estimates, blank where this version could not have written them: they may come from another one."""
    may_be_unknown = np.zeros(WIDTH, dtype=np.bool_)
    may_be_unknown[_UNKNOWN_AT_FIRST] = True
    amounts = np.ones(WIDTH, dtype=np.bool_)
    amounts[_SIGNED] = False
    # NaN compares as False.
    sound: Mask = np.all((np.abs(estimates) <= LARGEST) | (may_be_unknown & np.isnan(estimates)), axis=1)
    sound &= ~np.any(amounts & (estimates < 0.0), axis=1)
    sound &= ~(estimates[:, JobEstimate.SERVICE] == 0.0) & (estimates[:, JobEstimate.AT_A_TIME] >= 1.0)
    return np.where(sound[:, None], estimates, blank(len(estimates)))


@part
def _begin_window(estimates: Floats, i: int) -> None:
    estimates[i, JobEstimate.WINDOW_S] = estimates[i, JobEstimate.WINDOW_BUSY] = 0.0
    estimates[i, JobEstimate.WINDOW_RISE] = 0.0
    estimates[i, JobEstimate.WINDOW_FINISHED] = np.nan


@part
def _begin_span(estimates: Floats, i: int) -> None:
    estimates[i, JobEstimate.SPAN_S] = estimates[i, JobEstimate.SPAN_BUSY] = 0.0
    estimates[i, JobEstimate.SPAN_PICKUPS] = 0.0


@part
def _fit(estimates: Floats, i: int, seconds: float, busy: float, value: float, variance: float) -> None:
    """One measurement of the filter: `value` is `seconds` * arrival rate + `busy` * service rate, and an error."""
    arrivals, service = estimates[i, JobEstimate.ARRIVALS], estimates[i, JobEstimate.SERVICE]
    va, cov, vs = (
        estimates[i, JobEstimate.VAR_ARRIVALS],
        estimates[i, JobEstimate.COVARIANCE],
        estimates[i, JobEstimate.VAR_SERVICE],
    )
    error = value - seconds * arrivals - busy * service
    to_arrivals, to_service = va * seconds + cov * busy, cov * seconds + vs * busy
    spread = seconds * to_arrivals + busy * to_service + variance
    if not spread > 0.0:
        return
    largest = SUSPECT * np.sqrt(spread)
    if error > largest and seconds > 0.0:
        # A burst says nothing about the service. Should the rate have risen for good, the next one fits.
        estimates[i, JobEstimate.VAR_ARRIVALS] = va + (error / seconds) ** 2
        return
    error = max(min(error, largest), -largest)
    arrivals += to_arrivals / spread * error
    service_after = service + to_service / spread * error
    va -= to_arrivals * to_arrivals / spread
    cov -= to_arrivals * to_service / spread
    vs -= to_service * to_service / spread
    if arrivals < 0.0:  # what cannot have arrived has been served
        service_after += cov / va * -arrivals if va > 0.0 else 0.0
        arrivals = 0.0
    estimates[i, JobEstimate.ARRIVALS] = estimates[i, JobEstimate.STREAM] = arrivals
    # A single measurement halves or doubles it at most.
    estimates[i, JobEstimate.SERVICE] = min(max(service_after, 0.5 * service), 2.0 * service)
    estimates[i, JobEstimate.VAR_ARRIVALS], estimates[i, JobEstimate.VAR_SERVICE] = max(va, 0.0), max(vs, 0.0)
    estimates[i, JobEstimate.COVARIANCE] = cov


@part
def _measure(estimates: Floats, i: int, is_settled: bool) -> None:
    """Ends the measurement under way if it has enough departures. is_settled: no replica starts."""
    seconds, busy = estimates[i, JobEstimate.WINDOW_S], estimates[i, JobEstimate.WINDOW_BUSY]
    rise, finished = estimates[i, JobEstimate.WINDOW_RISE], estimates[i, JobEstimate.WINDOW_FINISHED]
    service = estimates[i, JobEstimate.SERVICE]
    has_counter = not np.isnan(finished)
    if np.isnan(service):
        left = finished if has_counter else -rise
        if left >= FEWEST and busy > 0.0 and is_settled:
            service = left / busy
            estimates[i, JobEstimate.SERVICE] = service
            estimates[i, JobEstimate.VAR_SERVICE] = service**2 * (1.0 / left + FIRST_ERROR**2)
            estimates[i, JobEstimate.ARRIVALS] = max(rise + left, 0.0) / seconds
            estimates[i, JobEstimate.VAR_ARRIVALS] = (0.5 * service * busy / seconds) ** 2
            estimates[i, JobEstimate.COVARIANCE] = 0.0
            _begin_window(estimates, i)
        elif not has_counter and rise > 0.0:  # a fall is measured from its top
            _begin_window(estimates, i)
        return
    if not (service * busy >= FEWEST or seconds >= LONGEST_WINDOW_S):
        return
    arrivals = estimates[i, JobEstimate.ARRIVALS]
    flow = arrivals + service * busy / seconds
    estimates[i, JobEstimate.VAR_ARRIVALS] += flow**2 * min(estimates[i, JobEstimate.SINCE_S] / ARRIVALS_MOVE_S, 1.0)
    estimates[i, JobEstimate.VAR_SERVICE] += service**2 * min(estimates[i, JobEstimate.SINCE_S] / SERVICE_MOVES_S, 1.0)
    if has_counter:
        _fit(estimates, i, 0.0, busy, finished, service * busy)
        _fit(estimates, i, seconds, 0.0, max(rise + finished, 0.0), max(arrivals * seconds, 1.0))
    else:
        _fit(estimates, i, seconds, -busy, rise, arrivals * seconds + service * busy)
    estimates[i, JobEstimate.SINCE_S] = 0.0
    _begin_window(estimates, i)


@part
def _end_span(estimates: Floats, i: int, waiting: float, ready: float, longest: float, is_settled: bool) -> float:
    """Adds the time since the queue changed to the measurement. Returns the jobs that have left meanwhile."""
    before, seconds = estimates[i, JobEstimate.WAITING], estimates[i, JobEstimate.SPAN_S]
    busy, pickups = estimates[i, JobEstimate.SPAN_BUSY], estimates[i, JobEstimate.SPAN_PICKUPS]
    estimates[i, JobEstimate.WAITING] = waiting
    _begin_span(estimates, i)
    if estimates[i, JobEstimate.IS_BUSY] > 0.0:
        estimates[i, JobEstimate.WINDOW_S] += seconds
        estimates[i, JobEstimate.WINDOW_BUSY] += busy
        estimates[i, JobEstimate.WINDOW_RISE] += waiting - before + pickups
        _measure(estimates, i, is_settled)
    service = estimates[i, JobEstimate.SERVICE]
    # Whether the queue may have been empty is asked at the begin: to ask it at the end would leave out what fell.
    lasts = waiting >= service * ready * longest
    if np.isnan(service):  # a queue that changes seldom is one of long jobs
        lasts = waiting >= ready or seconds >= longest
    estimates[i, JobEstimate.IS_BUSY] = 1.0 if waiting > 0.0 and lasts else 0.0
    fall = max(before - waiting, 0.0)
    return fall if np.isnan(service) else min(service * busy + pickups, before) if before > 0.0 else 0.0


@part
def _hold_times(estimates: Floats, i: int) -> float:
    """What the reversals of the last hours multiply the hold by."""
    return 2.0 ** min(max(estimates[i, JobEstimate.REVERSALS] - FREE_REVERSALS, 0.0), MOST_DOUBLINGS)


@part
def _follow(
    estimates: Floats,
    i: int,
    waiting: float,
    running: float,
    finished: float,
    ready: float,
    starting: float,
    within: float,
    dt: float,
    longest: float,
) -> None:
    """Takes one reading. starting: replicas that a node has begun to run and that are not ready."""
    at_a_time = estimates[i, JobEstimate.AT_A_TIME]
    replicas_before = estimates[i, JobEstimate.READY]
    estimates[i, JobEstimate.READY] = ready
    service = estimates[i, JobEstimate.SERVICE]
    if waiting == 0.0 and not np.isnan(service):
        # Without a queue the rate is that of the running jobs; if they are not visible, it is probed from above.
        busy = 0.0 if np.isnan(running) else min(running / at_a_time, ready)
        stream = estimates[i, JobEstimate.STREAM]
        slow = _hold_times(estimates, i) if np.isnan(running) else 1.0
        estimates[i, JobEstimate.STREAM] = stream - expm1(-dt / (within * slow)) * (busy * service - stream)
    if dt > longest or np.isnan(estimates[i, JobEstimate.WAITING]) or np.isnan(replicas_before):
        # Readings were missing: what the queue did meanwhile is not known.
        _begin_window(estimates, i)
        _begin_span(estimates, i)
        estimates[i, JobEstimate.IS_BUSY] = 0.0
        estimates[i, JobEstimate.WAITING], estimates[i, JobEstimate.FINISHED] = waiting, finished
        for slot in range(SLOTS):
            position = JobEstimate.SNAPSHOTS + slot
            estimates[i, position] = min(estimates[i, position], waiting)
        return
    # An idle replica takes jobs at once, which is no service.
    fresh = at_a_time * max(ready - replicas_before, 0.0)
    had_queue = estimates[i, JobEstimate.IS_BUSY] > 0.0
    estimates[i, JobEstimate.SPAN_S] += dt
    estimates[i, JobEstimate.SINCE_S] += dt
    estimates[i, JobEstimate.SPAN_BUSY] += min(replicas_before, ready) * dt
    estimates[i, JobEstimate.SPAN_PICKUPS] += fresh
    ended = finished - estimates[i, JobEstimate.FINISHED]
    estimates[i, JobEstimate.FINISHED] = finished
    if had_queue and ended >= 0.0:
        estimates[i, JobEstimate.WINDOW_FINISHED] = counted(estimates[i, JobEstimate.WINDOW_FINISHED]) + ended
    elif had_queue:  # unknown, or the counter began anew
        estimates[i, JobEstimate.WINDOW_FINISHED] = np.nan
    left = 0.0
    if waiting != estimates[i, JobEstimate.WAITING] or estimates[i, JobEstimate.SPAN_S] >= longest:
        left = _end_span(estimates, i, waiting, ready, longest, starting <= 0.0)
    for slot in range(SLOTS):
        position = JobEstimate.SNAPSHOTS + slot
        estimates[i, position] = min(max(estimates[i, position] - left, 0.0), waiting)
    if waiting > 0.0 and ready > 0.0 and starting <= 0.0 and not np.isnan(running):
        share = -expm1(-dt / ARRIVALS_MOVE_S)
        estimates[i, JobEstimate.AT_A_TIME] = max(at_a_time + share * (running / ready - at_a_time), 1.0)


@part
def _age(estimates: Floats, i: int, waiting: float, within: float, now: float) -> None:
    """Takes a snapshot of the queue, SLOTS within `start_within`."""
    slot_s = within / SLOTS
    taken_at = estimates[i, JobEstimate.TAKEN_AT]
    passed = 0.0 if now < taken_at else (now - taken_at) / slot_s
    if np.isnan(taken_at) or now < taken_at or passed >= 1.0:
        many = SLOTS if np.isnan(taken_at) or now < taken_at else int(min(passed, SLOTS))
        for slot in range(SLOTS - 1, -1, -1):
            position = JobEstimate.SNAPSHOTS + slot
            # What was not read meanwhile may have arrived just now.
            estimates[i, position] = estimates[i, position - many] if slot >= many else 0.0
        estimates[i, JobEstimate.SNAPSHOTS] = waiting
        estimates[i, JobEstimate.TAKEN_AT] = now if many == SLOTS else taken_at + many * slot_s


@part
def _by_deadline(
    jobs: float,
    left: float,
    service: float,
    at_a_time: float,
    ready: float,
    starting: float,
    start_left: float,
    start: float,
    noise: float,
) -> float:
    """Replicas that start the first `jobs` of the queue within `left` seconds.

    If no new replica is ready by then, they start within two start-up times.
    """
    if not left > start:
        left = 2.0 * start
    by_ready = ready * left
    there = service * (by_ready + starting * max(left - start_left, 0.0))
    if starting > 0.0:
        there = max(there, service * by_ready + at_a_time * starting)
    there = max(there - noise * np.sqrt(there), 0.0)
    if jobs > there:
        return ready + starting + (jobs - there) / max(at_a_time, service * (left - start))
    # The least for which that holds, of ready ones: n with n - noise * sqrt(n) jobs.
    root = 0.5 * (noise + np.sqrt(noise * noise + 4.0 * jobs))
    return min(root * root / (service * left), ready + starting)


@part
def _needed(
    estimates: Floats,
    i: int,
    waiting: float,
    running: float,
    ready: float,
    starting: float,
    within: float,
    start: float,
    now: float,
    constants: BatchConstants,
) -> float:
    """Replicas for the deadlines, the stream, and the running jobs that are visible."""
    service, at_a_time = estimates[i, JobEstimate.SERVICE], estimates[i, JobEstimate.AT_A_TIME]
    start_left, noise = estimates[i, JobEstimate.START_LEFT], constants.noise
    limit = constants.target * within
    need = 0.0
    if waiting > 0.0:
        need = _by_deadline(waiting, limit, service, at_a_time, ready, starting, start_left, start, noise)
        for slot in range(SLOTS):
            jobs = estimates[i, JobEstimate.SNAPSHOTS + slot]
            if not jobs > 0.0:
                continue
            left = limit - (now - estimates[i, JobEstimate.TAKEN_AT]) - slot * within / SLOTS
            need = max(need, _by_deadline(jobs, left, service, at_a_time, ready, starting, start_left, start, noise))
    need = max(need, np.floor(estimates[i, JobEstimate.STREAM] / service + DUST))
    if at_a_time / service > SHORT_JOB_S:
        need = max(need, min(counted(running) / at_a_time, ready))
    return need


@part
def _unlearned(
    estimates: Floats,
    i: int,
    waiting: float,
    running: float,
    ready: float,
    starting: float,
    within: float,
    left: float,
    now: float,
) -> float:
    """Replicas while the service rate is unknown: one for two jobs, whose second ones show the rate; and one for each
    job as soon as half of the time has passed until new ones must be ordered, `left` seconds after its arrival.
    """
    if not waiting > 0.0:
        return min(counted(running), ready)
    late = 0.5 * left
    is_late = late <= 0.0
    for slot in range(SLOTS):
        age = now - estimates[i, JobEstimate.TAKEN_AT] + slot * within / SLOTS
        is_late = is_late or (estimates[i, JobEstimate.SNAPSHOTS + slot] > 0.0 and age >= late)
    if is_late:
        return ready + waiting
    return max(ready + starting, 0.5 * (ready + waiting))


@part
def _start(estimates: Floats, i: int, starting: float, start: float, dt: float) -> None:
    """Follows how long the replicas that start still take, in the mean."""
    before = estimates[i, JobEstimate.STARTING]
    left = max(estimates[i, JobEstimate.START_LEFT] - dt, 0.0)
    if starting > before:
        left = (left * before + start * (starting - before)) / starting
    estimates[i, JobEstimate.START_LEFT], estimates[i, JobEstimate.STARTING] = left, starting


@part
def _hold(estimates: Floats, i: int, need: float, hold: float, dt: float, now: float) -> None:
    """The size falls after `hold` seconds in which fewer would have been enough, to the most of these.

    Reversals beyond FREE_REVERSALS of the last hours double the hold, each.
    """
    estimates[i, JobEstimate.REVERSALS] *= exp(-dt / REVERSALS_OF_S)
    times = _hold_times(estimates, i)
    size, since = estimates[i, JobEstimate.SIZE], estimates[i, JobEstimate.LOWER_FROM]
    if not need < size or dt >= hold * times:  # so too at first, and after a gap that is as long
        estimates[i, JobEstimate.SIZE] = need
        estimates[i, JobEstimate.LOWER_FROM] = np.nan
        if np.ceil(need) > np.ceil(size):
            estimates[i, JobEstimate.REVERSALS] += now - estimates[i, JobEstimate.FELL_AT] <= REVERSAL_S
            estimates[i, JobEstimate.ROSE_AT], estimates[i, JobEstimate.FELL_AT] = now, np.nan
    elif np.isnan(since) or now < since:
        estimates[i, JobEstimate.LOWER_FROM], estimates[i, JobEstimate.LOWER] = now, need
    else:
        lower = max(estimates[i, JobEstimate.LOWER], need)
        estimates[i, JobEstimate.LOWER] = lower
        if now - since >= hold * times:
            estimates[i, JobEstimate.SIZE] = lower
            estimates[i, JobEstimate.LOWER_FROM] = np.nan
            if np.ceil(lower) < np.ceil(size):
                estimates[i, JobEstimate.REVERSALS] += now - estimates[i, JobEstimate.ROSE_AT] <= REVERSAL_S
                estimates[i, JobEstimate.FELL_AT], estimates[i, JobEstimate.ROSE_AT] = now, np.nan


_COLUMNS = types.Array(types.float64, 2, "C")


@in_place_kernel(types.void(_COLUMNS, *8 * (FLOATS,), NUMBER, NUMBER, typeof(DEFAULTS)))
def _update(
    estimates: Floats,
    within: Floats,
    waiting: Floats,
    running: Floats,
    finished: Floats,
    ready: Floats,
    wanted: Floats,
    pending: Floats,
    start: Floats,
    longest: float,
    now: float,
    constants: BatchConstants,
) -> None:
    for i in range(estimates.shape[0]):
        if not within[i] > 0.0 or np.isnan(waiting[i]) or np.isnan(ready[i]):
            continue
        dt = now - estimates[i, JobEstimate.AT]
        if dt == 0.0:
            continue
        estimates[i, JobEstimate.AT] = now
        coming = max(counted(wanted[i]) - ready[i], 0.0)
        starting = max(coming - counted(pending[i]), 0.0)
        dt = dt if dt > 0.0 else 2.0 * longest  # a clock that was set back, or the first reading
        _follow(estimates, i, waiting[i], running[i], finished[i], ready[i], starting, within[i], dt, longest)
        _age(estimates, i, waiting[i], within[i], now)
        _start(estimates, i, coming, start[i], dt)
        service = estimates[i, JobEstimate.SERVICE]
        if np.isnan(service):
            left = constants.target * within[i] - start[i]
            need = _unlearned(estimates, i, waiting[i], running[i], ready[i], coming, within[i], left, now)
        else:
            need = _needed(estimates, i, waiting[i], running[i], ready[i], coming, within[i], start[i], now, constants)
        hold = max(constants.hold_starts * start[i], constants.shortest_hold_s)
        if np.isnan(running[i]) and not np.isnan(service):
            hold = max(hold, estimates[i, JobEstimate.AT_A_TIME] / service)
        estimates[i, JobEstimate.NEED] = need
        _hold(estimates, i, need, min(hold, constants.longest_hold_s), dt, now)


class BatchInputs(NamedTuple):
    """What sizing reads of each queue at one moment, shape (rows,); NaN unknown.

    waiting:  jobs in the queue. running: jobs that replicas have taken. finished: jobs, a counter.
    ready, wanted, pending: replicas: ready, wanted, and those that no node has begun to run.
    start:    seconds that a start takes.
    """

    waiting: Floats
    running: Floats
    finished: Floats
    ready: Floats
    wanted: Floats
    pending: Floats
    start: Floats


def update(
    estimates: Floats,
    within: Floats,
    inputs: BatchInputs,
    now: float,
    longest_s: float,
    constants: BatchConstants = DEFAULTS,
) -> None:
    """Updates the estimates of all workloads in place.

    estimates: shape (rows, WIDTH). within: seconds within which a job must start, shape (rows,); NaN: no such SLO.
    now: POSIX seconds. longest_s: a reading holds for so many seconds at most.
    """
    _update(estimates, within, *inputs, longest_s, now, constants)
