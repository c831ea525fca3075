"""Computes the replicas that arriving work needs under an SLO, with a capacity learned from the engine itself. Pure.

Demand is the rate at which work arrives, not the requests in hand: a queue says how late it is, not how much comes.

1. **Work of a request.** A decode step takes `step * (1 + f)` seconds. `f` is what is in the step: sequences, tokens of
   their contexts and prompt tokens, each at the price of `PER_SEQUENCE`, `PER_CONTEXT_TOKEN` and `PER_PROMPT_TOKEN`.
   These are shares of the empty step, so they need no model size and no GPU: on Llama-3-8B on one A100 and on
   Llama-3-70B on four, steps of 11.5 and 24 ms, they are within 50 % of each other.
2. **Capacity.** `step` and a factor on `f` are fitted to the engine's mean time between tokens. A replica whose steps
   may take `TARGET * itl` has room for `1 - step / (TARGET * itl)` seconds of work in each second.
3. **Arriving work** `x`, in replicas: the work of the requests that arrive per second, over that room.
4. **Size**: the work that lasts, and one standard deviation of random arrivals; more where starts take long. Requests
   without a first token add what drains them within one start. The largest of the last `hold_starts` start-up times
   counts, so that replicas do not end and start again for the same work.
5. **Error budget**: requests that miss the SLO while work is late widen the headroom, until no more miss than may.
6. **Burst guard**: after a burst that was over before a new replica could be ready, replicas for the next one stay for
   `MEMORY_S`.

The constants of rules that can be switched off are an argument, `SizingConstants`: a replay measures what each rule is
worth. The daemon passes `DEFAULTS`.

Worked example: an empty step of 10 ms, `itl: 50ms`, two requests per second of 500 prompt and 200 output tokens: a
request takes 0.0435 s for its prompt and 0.022 s for its tokens, so 0.13 s of work arrive per second. The room is
1 - 10/40 = 0.75, x is 0.174 replicas, and a request takes 0.087 replica-seconds. The deviation of arrivals within 10 s
is sqrt(0.174 * 0.087 / 10) = 0.039. With starts of 75 s the size is 0.174 + sqrt((0.7 * 0.039)**2 + 0.15**2 * 0.174) =
0.24: one replica.
"""

from __future__ import annotations

from enum import IntEnum
from math import exp, expm1
from typing import NamedTuple

import numpy as np
from numba import typeof, types

from exporter.model import Floats
from scaler.columns import Mask
from scaler.jit import FLOATS, NUMBER, kernel, part


class WorkRate(IntEnum):
    """The columns of what the engines' counters say per second, summed over the targets of a workload.

    A sequence-second is one second of one request between two of its tokens. A late first token, or time per output
    token, is above the SLO: by interpolation between the bounds of the engine's buckets, and by these bounds alone.
    """

    ARRIVED = 0  # requests
    FIRST_TOKENS = 1  # requests whose prompt was read
    FINISHED = 2  # requests
    PROMPT = 3  # tokens read
    GENERATED = 4  # tokens
    GAPS = 5  # times between two tokens
    GAP_SECONDS = 6  # sequence-seconds
    TTFT = 7  # first tokens, as the histogram counts them
    TTFT_LATE = 8
    TTFT_LATE_LEAST = 9
    TTFT_LATE_MOST = 10
    TPOT = 11  # times per output token: finished requests, or of some engines times between two tokens
    TPOT_LATE = 12
    TPOT_LATE_LEAST = 13
    TPOT_LATE_MOST = 14


class Estimate(IntEnum):
    """The columns of a workload's estimates: WIDTH floats, part of a checkpoint. NaN: none yet."""

    AT = 0  # POSIX seconds of the last update
    PROMPT_SUM = 1  # tokens of the last requests whose prompt was read
    PROMPTS = 2  # … and how many these are
    OUTPUT_SUM = 3  # tokens of the last finished requests
    OUTPUTS = 4  # … and how many these are
    KV_PER_REQUEST = 5  # KV caches that one running request fills
    STEP_SUM = 6  # of the empty step: weighted seconds
    STEP_WEIGHT = 7  # … and their weight
    FACTOR_SUM = 8  # of the factor on the content of a step
    FACTOR_WEIGHT = 9
    GAPS = 10  # of the last minute: times between two tokens
    GAP_SECONDS = 11  # … sequence-seconds
    PROMPT_READ = 12  # … prompt tokens
    REPLICA_SECONDS = 13  # … ready replicas times seconds
    PREFILL = 14  # replica-seconds of prompts that arrive per second, smoothed
    DECODE = 15  # replica-seconds of output that arrive per second, smoothed
    WORK = 16  # x: replicas of arriving work
    SIZE = 17  # replicas that the workload needs, unrounded
    SLOW = 18  # replicas of arriving work over SLOW_S
    UNREAD = 19  # requests without a first token
    REQUESTS = 20  # of the last hours, decayed
    STRETCH = 21  # of the headroom by the error budget: 0 none, 1 all of it
    LATE_AT = 22  # POSIX seconds when work was last late
    ABSENT_AT = 23  # POSIX seconds when no replica was ready last
    QUEUE = 24  # replica-seconds that would wait without the burst guard
    SPELL_S = 25  # of the present spell with a queue: seconds with more work than replicas
    SPELL_LATE = 26  # … requests that would miss the SLO
    SPELL_PEAK = 27  # … the most work
    BURST = 28  # the most work of the bursts that are remembered
    BURST_AT = 29  # POSIX seconds when the last of them ended
    PEAKS_FROM = 30  # POSIX seconds when the newest of the peaks began
    PEAKS = 31  # the largest size of each of the last PEAK_COUNT parts of the hold, newest first


PEAK_COUNT = 12
WIDTH = int(Estimate.PEAKS) + PEAK_COUNT

# Shares of an empty step, from roofline profiles of two servers (docs/explanation/sizing.md).
PER_SEQUENCE, PER_CONTEXT_TOKEN, PER_PROMPT_TOKEN = 1 / 118, 4e-6, 1 / 115
# What is assumed before the first request: an empty step of 15 ms, prompts of 500 tokens, outputs of 200.
STEP_S, PROMPT_TOKENS, OUTPUT_TOKENS, KV_SHARE = 0.015, 500.0, 200.0, 0.001
# A request that runs has made this share of its output on average: long ones are in the batch for longer.
CONTEXT_OF_OUTPUT = 0.6
TARGET = 0.8  # of the inter-token latency of the SLO: its mean must stay below, so that 99 % of the requests meet it
FULL_PREFILL = 0.9  # of a replica's time; above it the queue of prompts grows without bound
LEAST_ROOM = 0.1  # for an SLO that one request alone does not meet
USUAL_START_S = 75.0
UNLEARNED_START_S = 120.0  # before a start was measured: an image on the node and some ten gigabytes of weights
ARRIVAL_S = 10.0  # time constant of arriving prompts
MEAN_OF, PRIOR_REQUESTS = 200.0, 5.0  # requests over which means are taken; those that the assumptions count for
SLOW_S = 60.0  # time constant of work that lasts
# Error budget and bursts.
BUDGET = 0.009  # of the requests may miss the SLO: a tenth below the 1 % that is allowed
BUDGET_GAIN = 3.0  # stretch per share of the requests of MEMORY_S that missed beyond the budget
MEMORY_S = 7200.0  # time constant of the requests that misses are compared with, and for which a burst is remembered
FEWEST_REQUESTS = 100.0  # of MEMORY_S: with fewer a few misses would be many
LATE_ITL = 0.9  # of the SLO: steps that are slower on average are late
LATE_S = 60.0  # after work was late, misses count for so long
ABSENT_STARTS = (
    3.0  # start-up times after a cold start for which misses do not count: replicas come as fast as they can
)
# Learning the capacity.
WINDOW_S = 60.0  # samples are means over this time
FEWEST_GAPS = 4.0  # tokens per second below which a sample says nothing
FORGOTTEN_PER_S = 1e-4  # of a sample's weight: half after two hours
STEP_PRIOR, FACTOR_PRIOR = 0.1, 5.0  # weights of STEP_S and of a factor of 1
CROWDED = 2.0  # waiting requests per replica above which steps say nothing of capacity
LARGEST = 1e12  # of a restored estimate
SMALLEST = 1e-9  # of one that is a divisor
FASTEST_S = 1e-4  # between two tokens; a shorter time is that of a counter that stands still
SLOWEST = 1.3  # times the SLO: replicas that are overloaded differ among themselves


class SizingConstants(NamedTuple):
    """The constants of the rules that a replay can switch off, such as `DEFAULTS._replace(headroom=0.0)`; floats."""

    full_kv: float = 0.95  # of the KV cache: above it engines preempt requests; inf: the cache limits nothing
    longest_residence_s: float = 30.0  # time constant of decode work: half a request's time in the batch, at most this
    noise: float = 2.0  # standard deviations of random arrivals by which a rise of seconds is not believed
    headroom: float = 0.7  # standard deviations of random arrivals, at a start-up time of USUAL_START_S
    drift: float = 0.15  # times the square root of the work: how far its rate moves within a start-up time
    headroom_power: float = 0.25  # of the start-up time over USUAL_START_S
    backlog_of_ttft: float = 0.5  # of the TTFT of the SLO: a longer queue counts; inf: none counts
    hold_starts: float = 6.0  # start-up times for which the largest size counts, within the two bounds
    shortest_hold_s: float = 300.0
    longest_hold_s: float = 1800.0
    sharpest: float = 0.1  # weight of a sample for the empty step: 1 / (sharpest + f)**2; inf: it is not learned
    lowest_factor: float = 0.4
    highest_factor: float = 2.5
    stretch: float = 3.0  # times the headroom more, if the error budget needs it
    burst_margin: float = 1.3  # times the most work of a burst; the next one may be higher
    burst_share: float = 0.1  # of the requests of the last hours: fewer that are late are no burst; inf: no guard


DEFAULTS = SizingConstants()

_PEAKS = int(Estimate.PEAKS)
_AT, _KV = int(Estimate.AT), int(Estimate.KV_PER_REQUEST)
_PROMPT_SUM, _PROMPTS = int(Estimate.PROMPT_SUM), int(Estimate.PROMPTS)
_OUTPUT_SUM, _OUTPUTS = int(Estimate.OUTPUT_SUM), int(Estimate.OUTPUTS)
_STEP_SUM, _STEP_WEIGHT = int(Estimate.STEP_SUM), int(Estimate.STEP_WEIGHT)
_FACTOR_SUM, _FACTOR_WEIGHT = int(Estimate.FACTOR_SUM), int(Estimate.FACTOR_WEIGHT)
_GAPS, _GAP_SECONDS = int(Estimate.GAPS), int(Estimate.GAP_SECONDS)
_PROMPT_READ, _REPLICA_SECONDS = int(Estimate.PROMPT_READ), int(Estimate.REPLICA_SECONDS)
_PREFILL, _DECODE, _WORK, _SIZE = (
    int(Estimate.PREFILL), int(Estimate.DECODE), int(Estimate.WORK), int(Estimate.SIZE),
)  # fmt: skip
_PEAKS_FROM, _SLOW, _UNREAD = int(Estimate.PEAKS_FROM), int(Estimate.SLOW), int(Estimate.UNREAD)
_REQUESTS, _STRETCH = int(Estimate.REQUESTS), int(Estimate.STRETCH)
_LATE_AT, _ABSENT_AT = int(Estimate.LATE_AT), int(Estimate.ABSENT_AT)
_QUEUE, _SPELL_S, _SPELL_LATE = int(Estimate.QUEUE), int(Estimate.SPELL_S), int(Estimate.SPELL_LATE)
_SPELL_PEAK, _BURST, _BURST_AT = int(Estimate.SPELL_PEAK), int(Estimate.BURST), int(Estimate.BURST_AT)
_MOMENTS = [_AT, _LATE_AT, _ABSENT_AT, _BURST_AT, _PEAKS_FROM]
_ARRIVED, _FIRSTS, _FINISHED = int(WorkRate.ARRIVED), int(WorkRate.FIRST_TOKENS), int(WorkRate.FINISHED)
_READ, _GENERATED = int(WorkRate.PROMPT), int(WorkRate.GENERATED)
_RATE_GAPS, _RATE_GAP_SECONDS = int(WorkRate.GAPS), int(WorkRate.GAP_SECONDS)


def blank(rows: int) -> Floats:
    """Estimates of workloads without traffic so far, shape (rows, WIDTH)."""
    estimates = np.zeros((rows, WIDTH))
    estimates[:, [*_MOMENTS, _WORK, _SIZE]] = np.nan
    estimates[:, _PROMPT_SUM], estimates[:, _PROMPTS] = PRIOR_REQUESTS * PROMPT_TOKENS, PRIOR_REQUESTS
    estimates[:, _OUTPUT_SUM], estimates[:, _OUTPUTS] = PRIOR_REQUESTS * OUTPUT_TOKENS, PRIOR_REQUESTS
    estimates[:, _KV] = KV_SHARE
    estimates[:, _STEP_SUM], estimates[:, _STEP_WEIGHT] = STEP_PRIOR * STEP_S, STEP_PRIOR
    estimates[:, _FACTOR_SUM] = estimates[:, _FACTOR_WEIGHT] = FACTOR_PRIOR
    return estimates


@part
def _counted(value: float) -> float:
    return 0.0 if np.isnan(value) else max(value, 0.0)


@part
def empty_step(estimates: Floats, i: int) -> float:
    """Seconds of a decode step with nothing in it."""
    return estimates[i, _STEP_SUM] / estimates[i, _STEP_WEIGHT]


@part
def factor(estimates: Floats, i: int, constants: SizingConstants) -> float:
    """How much more the content of a step costs on this server than the priors say."""
    fitted = estimates[i, _FACTOR_SUM] / estimates[i, _FACTOR_WEIGHT]
    return min(max(fitted, constants.lowest_factor), constants.highest_factor)


@part
def prompt_tokens(estimates: Floats, i: int) -> float:
    """Prompt tokens of a request, the mean."""
    return estimates[i, _PROMPT_SUM] / estimates[i, _PROMPTS]


@part
def output_tokens(estimates: Floats, i: int) -> float:
    """Output tokens of a request, the mean."""
    return estimates[i, _OUTPUT_SUM] / estimates[i, _OUTPUTS]


@part
def _context(estimates: Floats, i: int) -> float:
    """Tokens in the context of a request that runs."""
    return prompt_tokens(estimates, i) + CONTEXT_OF_OUTPUT * output_tokens(estimates, i)


@part
def _add_to_mean(estimates: Floats, i: int, total: int, count: int, amount: float, number: float) -> None:
    """Adds to a sum and its number, and forgets what is older than MEAN_OF requests."""
    estimates[i, total] += amount
    estimates[i, count] += number
    if estimates[i, count] > MEAN_OF:
        kept = MEAN_OF / estimates[i, count]
        estimates[i, total] *= kept
        estimates[i, count] *= kept


@part
def _learn_requests(
    estimates: Floats, i: int, rates: Floats, running: float, kv_used: float, ready: float, dt: float
) -> None:
    """The mean prompt, the mean output, and how much of a KV cache a request fills."""
    firsts, finished = _counted(rates[i, _FIRSTS]) * dt, _counted(rates[i, _FINISHED]) * dt
    _add_to_mean(estimates, i, _PROMPT_SUM, _PROMPTS, _counted(rates[i, _READ]) * dt, firsts)
    # Over hundreds of requests, the tokens made and the tokens of those that finished are the same.
    _add_to_mean(estimates, i, _OUTPUT_SUM, _OUTPUTS, _counted(rates[i, _GENERATED]) * dt, finished)
    if running >= 1.0 and kv_used > 0.0 and ready > 0.0:
        part_of = min(0.01 * dt, 1.0)  # scrape intervals of minutes must not overshoot
        estimates[i, _KV] += part_of * (kv_used * ready / running - estimates[i, _KV])


@part
def _learn_capacity(
    estimates: Floats,
    i: int,
    rates: Floats,
    waiting: float,
    ready: float,
    itl: float,
    dt: float,
    constants: SizingConstants,
) -> None:
    """Fits the empty step and the factor to the mean time between tokens of the last minute.

    A token sees one sequence more in its step than the time-weighted mean, as an arrival sees the others (PASTA); and
    replicas without a sequence make no step.
    """
    kept = exp(-dt / WINDOW_S)
    estimates[i, _GAPS] = kept * estimates[i, _GAPS] + _counted(rates[i, _RATE_GAPS]) * dt
    estimates[i, _GAP_SECONDS] = kept * estimates[i, _GAP_SECONDS] + _counted(rates[i, _RATE_GAP_SECONDS]) * dt
    estimates[i, _PROMPT_READ] = kept * estimates[i, _PROMPT_READ] + _counted(rates[i, _READ]) * dt
    estimates[i, _REPLICA_SECONDS] = kept * estimates[i, _REPLICA_SECONDS] + ready * dt
    gaps, seconds = estimates[i, _GAPS], estimates[i, _GAP_SECONDS]
    if not ready > 0.0 or not rates[i, _RATE_GAPS] >= FEWEST_GAPS:
        return
    measured = seconds / gaps
    if waiting > CROWDED * ready or measured > SLOWEST * itl or not measured >= FASTEST_S:
        return
    sequences = seconds / estimates[i, _REPLICA_SECONDS]
    steps = gaps / max(sequences / -expm1(-sequences), 1.0)
    content = (1.0 + sequences) * (PER_SEQUENCE + PER_CONTEXT_TOKEN * _context(estimates, i))
    content += PER_PROMPT_TOKEN * estimates[i, _PROMPT_READ] / max(steps, 1.0)
    weight = min(1.0, rates[i, _RATE_GAPS] / 40.0) * dt / 5.0
    forgotten = exp(-FORGOTTEN_PER_S * dt)
    # The error of a sample grows with what is in the step.
    sharp = weight / (constants.sharpest + content) ** 2
    estimates[i, _STEP_SUM] = forgotten * estimates[i, _STEP_SUM] + sharp * measured / (
        1.0 + content * factor(estimates, i, constants)
    )
    estimates[i, _STEP_WEIGHT] = forgotten * estimates[i, _STEP_WEIGHT] + sharp
    more = min(max(measured / empty_step(estimates, i) - 1.0, -0.5), 5.0 * content)
    back = (1.0 - forgotten) * FACTOR_PRIOR  # the prior is not forgotten
    estimates[i, _FACTOR_SUM] = forgotten * estimates[i, _FACTOR_SUM] + weight * more * content + back
    estimates[i, _FACTOR_WEIGHT] = forgotten * estimates[i, _FACTOR_WEIGHT] + weight * content * content + back


@part
def room(estimates: Floats, i: int, itl: float) -> float:
    """Seconds of work that a replica does in a second while its steps keep the SLO."""
    return max(LEAST_ROOM, 1.0 - empty_step(estimates, i) / (TARGET * itl))


@part
def _prompt_token_s(estimates: Floats, i: int, constants: SizingConstants) -> float:
    return PER_PROMPT_TOKEN * empty_step(estimates, i) * factor(estimates, i, constants)


@part
def _output_token_s(estimates: Floats, i: int, constants: SizingConstants) -> float:
    content = PER_SEQUENCE + PER_CONTEXT_TOKEN * _context(estimates, i)
    return content * empty_step(estimates, i) * factor(estimates, i, constants)


@part
def request_replica_s(estimates: Floats, i: int, itl: float, constants: SizingConstants) -> float:
    """Replica-seconds that one request takes."""
    prefill = prompt_tokens(estimates, i) * _prompt_token_s(estimates, i, constants)
    decode = output_tokens(estimates, i) * _output_token_s(estimates, i, constants)
    return max(prefill / FULL_PREFILL, (prefill + decode) / room(estimates, i, itl))


@part
def _arriving(estimates: Floats, i: int, rates: Floats, itl: float, dt: float, constants: SizingConstants) -> float:
    """Replicas of arriving work; updates the smoothed prefill and decode work."""
    # A target that is read earlier than another may show a request as gone before the other shows it as come: the
    # rate is below 0 for a moment, and right on the mean.
    arrived, there = rates[i, _ARRIVED], room(estimates, i, itl)
    # Prompts that were read, and those that arrived meanwhile, at the mean.
    unread = arrived - _counted(rates[i, _FIRSTS])
    prefill = (_counted(rates[i, _READ]) + unread * prompt_tokens(estimates, i)) * _prompt_token_s(
        estimates, i, constants
    )
    output_s = arrived * output_tokens(estimates, i)
    # Requests stay for their output at the speed of the SLO: so many KV caches are full with them.
    caches = output_s * TARGET * itl * estimates[i, _KV] / constants.full_kv
    decode = max(output_s * _output_token_s(estimates, i, constants), there * caches - prefill)
    residence = min(max(0.5 * itl * output_tokens(estimates, i), ARRIVAL_S), constants.longest_residence_s)
    estimates[i, _PREFILL] += -expm1(-dt / ARRIVAL_S) * (prefill - estimates[i, _PREFILL])
    estimates[i, _DECODE] += -expm1(-dt / residence) * (decode - estimates[i, _DECODE])
    prefill, decode = estimates[i, _PREFILL], estimates[i, _DECODE]
    return max(prefill / FULL_PREFILL, (prefill + decode) / there, 0.0)


@part
def _largest(estimates: Floats, i: int, size: float, hold: float, now: float) -> float:
    """The largest size of the last `hold` seconds, in PEAK_COUNT - 1 whole parts and the present one."""
    part_s = hold / (PEAK_COUNT - 1)
    began = estimates[i, _PEAKS_FROM]
    if np.isnan(began) or began > now:  # the clock was set back
        estimates[i, _PEAKS_FROM] = now
        for position in range(PEAK_COUNT):
            estimates[i, _PEAKS + position] = 0.0
    elif now - began >= part_s:
        passed = min(int((now - began) / part_s), PEAK_COUNT)
        for position in range(PEAK_COUNT - 1, -1, -1):
            kept = position >= passed
            estimates[i, _PEAKS + position] = estimates[i, _PEAKS + position - passed] if kept else 0.0
        estimates[i, _PEAKS_FROM] = now if passed == PEAK_COUNT else began + passed * part_s
    estimates[i, _PEAKS] = max(estimates[i, _PEAKS], size)
    largest = size
    for position in range(PEAK_COUNT):
        largest = max(largest, estimates[i, _PEAKS + position])
    return largest


@part
def _count_unread(estimates: Floats, i: int, rates: Floats, waiting: float, running: float, dt: float) -> None:
    """Counts the requests without a first token: an engine counts one whose prompt is being read as running.

    A request that ends without a first token is never subtracted, so the count is never above the requests in hand.
    """
    unread = estimates[i, _UNREAD] + (_counted(rates[i, _ARRIVED]) - _counted(rates[i, _FIRSTS])) * dt
    estimates[i, _UNREAD] = min(max(unread, waiting), waiting + running)


@part
def _spread(work: float, request_s: float) -> float:
    """Standard deviation of arriving work, in replicas, averaged with a time constant of ARRIVAL_S.

    Requests that arrive at random with exponential work: the variance of such a mean is rate * 2 * request_s**2 /
    (2 * ARRIVAL_S) (Campbell's theorem), and the rate is work / request_s.
    """
    return np.sqrt(work * request_s / ARRIVAL_S)


@part
def _lasting(estimates: Floats, i: int, spread: float, constants: SizingConstants) -> float:
    """The arriving work without the peaks that random arrivals make within seconds."""
    work = estimates[i, _WORK]
    return max(min(work, estimates[i, _SLOW]), work - constants.noise * spread, 0.0)


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

    backlog: replica-seconds of the requests without a first token.
    """
    work = estimates[i, _WORK]
    if not ready > 0.0 or not backlog > constants.backlog_of_ttft * ttft * ready:
        return size
    backlog += max(work - ready, 0.0) * start
    return max(size, min(work + backlog / start, 2.0 * max(work, 1.0) + 2.0))


@part
def _follow_budget(
    estimates: Floats, i: int, arrived: float, misses: float, late: bool, ready: float, start: float, now: float
) -> None:
    """Integral control: misses beyond the budget stretch the headroom, and fewer release it.

    A miss counts only while work is late: one that a long prompt makes would not be met by more replicas either.
    misses: NaN if they are not measured.
    """
    if late:
        estimates[i, _LATE_AT] = now
    if not ready > 0.0 or np.isnan(estimates[i, _ABSENT_AT]):
        estimates[i, _ABSENT_AT] = now
    if np.isnan(misses):
        return
    is_late = now - estimates[i, _LATE_AT] <= LATE_S  # not so where it is NaN
    starts = now - estimates[i, _ABSENT_AT] <= ABSENT_STARTS * start
    counted = misses if is_late and not starts else 0.0
    beyond = (counted - BUDGET * arrived) / max(estimates[i, _REQUESTS], FEWEST_REQUESTS)
    estimates[i, _STRETCH] = min(max(estimates[i, _STRETCH] + BUDGET_GAIN * beyond, 0.0), 1.0)


@part
def _remembered(estimates: Floats, i: int, now: float, constants: SizingConstants) -> float:
    """Replicas that stay for the next burst."""
    # A moment after `now` is of a clock that was set back.
    recent = 0.0 <= now - estimates[i, _BURST_AT] < MEMORY_S
    return constants.burst_margin * estimates[i, _BURST] if recent else 0.0


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
    over within a start-up time; what lasts longer is served by new replicas. raw: replicas of work that arrived since
    the last update. arrived: requests.
    """
    replicas = min(np.ceil(size), ready)
    if replicas > 0.0:
        estimates[i, _QUEUE] = max(0.0, estimates[i, _QUEUE] + (raw - replicas) * dt)
        if estimates[i, _QUEUE] > 0.0:
            estimates[i, _SPELL_S] += dt if raw > replicas else 0.0
            estimates[i, _SPELL_PEAK] = max(estimates[i, _SPELL_PEAK], estimates[i, _WORK])
            estimates[i, _SPELL_LATE] += arrived if estimates[i, _QUEUE] > ttft * replicas else 0.0
        else:
            many = constants.burst_share * max(estimates[i, _REQUESTS], FEWEST_REQUESTS)
            if estimates[i, _SPELL_S] < start and estimates[i, _SPELL_LATE] > many:
                earlier = estimates[i, _BURST] if 0.0 <= now - estimates[i, _BURST_AT] < MEMORY_S else 0.0
                estimates[i, _BURST] = max(earlier, estimates[i, _SPELL_PEAK])
                estimates[i, _BURST_AT] = now
            estimates[i, _SPELL_S] = estimates[i, _SPELL_LATE] = estimates[i, _SPELL_PEAK] = 0.0
    return max(size, _remembered(estimates, i, now, constants))


_COLUMNS = types.Array(types.float64, 2, "C")
_CONSTANTS = typeof(DEFAULTS)


@kernel(types.void(_COLUMNS, _COLUMNS, *8 * (FLOATS,), NUMBER, NUMBER, _CONSTANTS))
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
        unknown = np.isnan(rates[i, _ARRIVED]) or np.isnan(rates[i, _FIRSTS]) or np.isnan(rates[i, _FINISHED])
        if np.isnan(itl[i]) or unknown or np.isnan(rates[i, _READ]) or np.isnan(rates[i, _GENERATED]):
            continue
        dt = now - estimates[i, _AT]
        estimates[i, _AT] = now
        if not dt > 0.0:
            continue
        replicas, known_s = _counted(ready[i]), min(dt, longest)  # the rates hold no longer
        _learn_requests(estimates, i, rates, _counted(running[i]), _counted(kv_used[i]), replicas, known_s)
        _count_unread(estimates, i, rates, _counted(waiting[i]), _counted(running[i]), known_s)
        unread = estimates[i, _UNREAD]
        _learn_capacity(estimates, i, rates, unread, replicas, itl[i], known_s, constants)
        estimates[i, _WORK] = _arriving(estimates, i, rates, itl[i], dt, constants)
        request_s = request_replica_s(estimates, i, itl[i], constants)
        arrived = rates[i, _ARRIVED] * known_s
        raw = rates[i, _ARRIVED] * request_s
        estimates[i, _SLOW] += -expm1(-dt / SLOW_S) * (raw - estimates[i, _SLOW])
        estimates[i, _REQUESTS] = max(exp(-dt / MEMORY_S) * estimates[i, _REQUESTS] + arrived, 0.0)
        backlog = unread * request_s
        late = backlog > constants.backlog_of_ttft * ttft[i] * replicas
        late = late or estimates[i, _GAP_SECONDS] > LATE_ITL * itl[i] * estimates[i, _GAPS]
        _follow_budget(estimates, i, arrived, misses[i], late, replicas, start[i], now)
        spread = _spread(estimates[i, _WORK], request_s)
        lasting = _lasting(estimates, i, spread, constants)
        headroom = np.sqrt((constants.headroom * spread) ** 2 + constants.drift**2 * lasting)
        headroom *= (start[i] / USUAL_START_S) ** constants.headroom_power
        size = lasting + headroom * (1.0 + constants.stretch * estimates[i, _STRETCH])
        size = _with_backlog(estimates, i, size, backlog, replicas, ttft[i], start[i], constants)
        hold = min(max(constants.hold_starts * start[i], constants.shortest_hold_s), constants.longest_hold_s)
        size = _largest(estimates, i, size, hold, now)
        estimates[i, _SIZE] = _guard(
            estimates, i, size, raw, arrived, replicas, ttft[i], start[i], known_s, now, constants
        )


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


@kernel(types.void(_COLUMNS, FLOATS, NUMBER, types.Array(types.float64, 2, "C")))
def _capacity(estimates: Floats, itl: Floats, now: float, shown: Floats) -> None:
    for i in range(estimates.shape[0]):
        if estimates[i, _OUTPUTS] > PRIOR_REQUESTS and not np.isnan(itl[i]):
            shown[0, i] = request_replica_s(estimates, i, itl[i], DEFAULTS)
            shown[1, i] = empty_step(estimates, i)
            shown[2, i] = 1.0 + DEFAULTS.stretch * estimates[i, _STRETCH]
            shown[3, i] = _remembered(estimates, i, now, DEFAULTS)


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


def made_sound(estimates: Floats) -> Floats:
    """The same estimates, blank where this version could not have written them: they may come from another one."""
    may_be_unknown = np.zeros(WIDTH, dtype=np.bool_)
    may_be_unknown[[*_MOMENTS, _WORK, _SIZE]] = True
    # NaN compares as False.
    sound: Mask = np.all((np.abs(estimates) <= LARGEST) | (may_be_unknown & np.isnan(estimates)), axis=1)
    sound &= np.all(estimates[:, [_PROMPTS, _OUTPUTS, _STEP_WEIGHT, _FACTOR_WEIGHT, _STEP_SUM]] >= SMALLEST, axis=1)
    sound &= ~np.any(estimates[:, [_WORK, _SIZE, _UNREAD, _REQUESTS, *range(_QUEUE, _BURST + 1)]] < 0.0, axis=1)
    sound &= (estimates[:, _STRETCH] >= 0.0) & (estimates[:, _STRETCH] <= 1.0)
    return np.where(sound[:, None], estimates, blank(len(estimates)))
