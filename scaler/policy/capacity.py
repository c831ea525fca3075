"""Learns what one replica can do and what a request takes, from the engine's own counters. Pure.

The estimates of all workloads are one table with a row for each and a column for each `Estimate`; `sizing` makes
replicas of them. A decode step takes `step * (1 + factor * f)` seconds: `f` is what is in it, at the price of
`PER_SEQUENCE`, `PER_CONTEXT_TOKEN` and `PER_PROMPT_TOKEN`, which are shares of an empty step. `step` and `factor` are
fitted to the mean time between tokens.

Worked example: an empty step of 10 ms, `itl: 50ms`, requests of 500 prompt and 200 output tokens: a request takes
0.0435 s for its prompt and 0.022 s for its tokens, a replica has room for 1 - 10/40 = 0.75 s of work in each second, so
a request takes 0.087 replica-seconds.
"""

from __future__ import annotations

from enum import IntEnum, unique
from math import exp, expm1
from typing import NamedTuple

import numpy as np

from exporter.model import Floats
from scaler.columns import Mask
from scaler.jit import part


@unique
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
    COMPUTED = 5  # tokens read that no cache had; of an engine that does not tell them apart, all tokens read
    GAPS = 6  # times between two tokens
    GAP_SECONDS = 7  # sequence-seconds
    TTFT = 8  # first tokens, as the histogram counts them
    TTFT_LATE = 9
    TTFT_LATE_LEAST = 10
    TTFT_LATE_MOST = 11
    TPOT = 12  # times per output token: finished requests, or of some engines times between two tokens
    TPOT_LATE = 13
    TPOT_LATE_LEAST = 14
    TPOT_LATE_MOST = 15


@unique
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
    PROMPT_READ = 12  # … computed prompt tokens
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
    SLOWER = 31  # SLOW, once more over SLOW_S: as far behind it as it is behind a steady rise
    COLD = 32  # of REQUESTS: missed at cold starts, decayed; NaN: no replica has been missing yet
    WHOLE = 33  # whole replicas of the held size
    FELL_AT = 34  # POSIX seconds when they fell, if they have not risen since
    REVERSALS = 35  # of the last hours, decayed: rises soon after a fall
    CACHED_SUM = 36  # those of PROMPT_SUM that a cache had
    PEAKS = 37  # the largest size of each of the last PEAK_COUNT parts of the hold, newest first


PEAK_COUNT = 12
WIDTH = Estimate.PEAKS + PEAK_COUNT
# POSIX seconds; NaN: never.
MOMENTS = [
    Estimate.AT, Estimate.LATE_AT, Estimate.ABSENT_AT, Estimate.BURST_AT, Estimate.PEAKS_FROM, Estimate.FELL_AT,
]  # fmt: skip

# Shares of an empty step, from roofline profiles of two servers (docs/explanation/sizing.md).
PER_SEQUENCE, PER_CONTEXT_TOKEN, PER_PROMPT_TOKEN = 1 / 118, 4e-6, 1 / 115
# What is assumed before the first request: an empty step of 15 ms, prompts of 500 tokens, outputs of 200.
STEP_S, PROMPT_TOKENS, OUTPUT_TOKENS, KV_SHARE = 0.015, 500.0, 200.0, 0.001
# A request that runs has made this share of its output on average: long ones are in the batch for longer.
CONTEXT_OF_OUTPUT = 0.6
TARGET = 0.8  # of the inter-token latency of the SLO: its mean must stay below, so that 99 % of the requests meet it
FULL_PREFILL = 0.9  # of a replica's time; above it the queue of prompts grows without bound
LEAST_ROOM = 0.1  # for an SLO that one request alone does not meet
ARRIVAL_S = 10.0  # time constant of arriving prompts
MEAN_OF, PRIOR_REQUESTS = 200.0, 5.0  # requests over which means are taken; those that the assumptions count for
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
    lead: float = 1.0  # times the lag of the work over SLOW_S, which a steady rise makes; added to it
    headroom: float = 0.7  # standard deviations of random arrivals, at a start-up time of USUAL_START_S
    drift: float = 0.1  # times the square root of the work: how far its rate moves within a start-up time
    shortest_peak_s: float = 1.0  # that the headroom is for, where outputs are short; ARRIVAL_S: all outputs are long
    headroom_power: float = 0.25  # of the start-up time over USUAL_START_S
    backlog_of_ttft: float = 0.5  # of the TTFT of the SLO: a longer queue counts; inf: none counts
    backlog_times: float = 1.25  # the work, at most, for what drains a queue
    backlog_more: float = 1.5  # replicas more than that, at most; inf: no bound
    rounded_down: float = 0.15  # replicas: rounding up, by half a replica on average, is headroom too
    rounded_stretch: float = 0.25  # of the error budget: nothing is rounded down any more
    hold_starts: float = 4.0  # start-up times for which the largest size counts, within the two bounds
    shortest_hold_s: float = 300.0
    longest_hold_s: float = 1800.0
    reversals_a_day: float = 10.0  # with more of them the hold is longer; inf: it is not
    sharpest: float = 0.1  # weight of a sample for the empty step: 1 / (sharpest + f)**2; inf: it is not learned
    lowest_factor: float = 0.4
    highest_factor: float = 2.5
    stretch: float = 3.0  # times the headroom more, if the error budget needs it
    least_budget: float = 0.003  # of the requests, however many missed at cold starts; BUDGET: those have one apart
    burst_margin: float = 1.3  # times the most work of a burst; the next one may be higher
    burst_share: float = 0.1  # of the requests of the last hours: fewer that are late are no burst; inf: no guard


DEFAULTS = SizingConstants()


_UNKNOWN_AT_FIRST = [*MOMENTS, Estimate.WORK, Estimate.SIZE, Estimate.COLD]
_DIVISORS = [Estimate.PROMPTS, Estimate.OUTPUTS, Estimate.STEP_WEIGHT, Estimate.FACTOR_WEIGHT, Estimate.STEP_SUM]
_AMOUNTS = [
    Estimate.PROMPT_SUM, Estimate.OUTPUT_SUM, Estimate.WORK, Estimate.SIZE, Estimate.UNREAD, Estimate.REQUESTS,
    Estimate.QUEUE, Estimate.SPELL_S, Estimate.SPELL_LATE, Estimate.SPELL_PEAK, Estimate.BURST,
    Estimate.COLD, Estimate.WHOLE, Estimate.REVERSALS, Estimate.CACHED_SUM,
]  # fmt: skip


def blank(rows: int) -> Floats:
    """Estimates of workloads without traffic so far, shape (rows, WIDTH)."""
    estimates = np.zeros((rows, WIDTH))
    estimates[:, _UNKNOWN_AT_FIRST] = np.nan
    estimates[:, Estimate.PROMPT_SUM], estimates[:, Estimate.PROMPTS] = PRIOR_REQUESTS * PROMPT_TOKENS, PRIOR_REQUESTS
    estimates[:, Estimate.OUTPUT_SUM], estimates[:, Estimate.OUTPUTS] = PRIOR_REQUESTS * OUTPUT_TOKENS, PRIOR_REQUESTS
    estimates[:, Estimate.KV_PER_REQUEST] = KV_SHARE
    estimates[:, Estimate.STEP_SUM], estimates[:, Estimate.STEP_WEIGHT] = STEP_PRIOR * STEP_S, STEP_PRIOR
    estimates[:, Estimate.FACTOR_SUM] = estimates[:, Estimate.FACTOR_WEIGHT] = FACTOR_PRIOR
    return estimates


@part
def counted(value: float) -> float:
    return 0.0 if np.isnan(value) else max(value, 0.0)


@part
def empty_step(estimates: Floats, i: int) -> float:
    """Seconds of a decode step with nothing in it."""
    return estimates[i, Estimate.STEP_SUM] / estimates[i, Estimate.STEP_WEIGHT]


@part
def factor(estimates: Floats, i: int, constants: SizingConstants) -> float:
    """How much more the content of a step costs on this server than the priors say."""
    fitted = estimates[i, Estimate.FACTOR_SUM] / estimates[i, Estimate.FACTOR_WEIGHT]
    return min(max(fitted, constants.lowest_factor), constants.highest_factor)


@part
def prompt_tokens(estimates: Floats, i: int) -> float:
    """Prompt tokens of a request, the mean."""
    return estimates[i, Estimate.PROMPT_SUM] / estimates[i, Estimate.PROMPTS]


@part
def computed_tokens(estimates: Floats, i: int) -> float:
    """Prompt tokens of a request that no cache had, the mean."""
    computed = estimates[i, Estimate.PROMPT_SUM] - estimates[i, Estimate.CACHED_SUM]
    return max(computed, 0.0) / estimates[i, Estimate.PROMPTS]


@part
def output_tokens(estimates: Floats, i: int) -> float:
    """Output tokens of a request, the mean."""
    return estimates[i, Estimate.OUTPUT_SUM] / estimates[i, Estimate.OUTPUTS]


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
def learn_requests(
    estimates: Floats, i: int, rates: Floats, running: float, kv_used: float, ready: float, dt: float
) -> None:
    """The mean prompt, the mean output, and how much of a KV cache a request fills."""
    firsts, finished = counted(rates[i, WorkRate.FIRST_TOKENS]) * dt, counted(rates[i, WorkRate.FINISHED]) * dt
    read, computed = counted(rates[i, WorkRate.PROMPT]), counted(rates[i, WorkRate.COMPUTED])
    prompts = estimates[i, Estimate.PROMPTS] + firsts
    _add_to_mean(estimates, i, Estimate.PROMPT_SUM, Estimate.PROMPTS, read * dt, firsts)
    cached = estimates[i, Estimate.CACHED_SUM] + max(read - computed, 0.0) * dt
    estimates[i, Estimate.CACHED_SUM] = cached * min(MEAN_OF / prompts, 1.0)
    # Over hundreds of requests, the tokens made and the tokens of those that finished are the same.
    _add_to_mean(
        estimates, i, Estimate.OUTPUT_SUM, Estimate.OUTPUTS, counted(rates[i, WorkRate.GENERATED]) * dt, finished
    )
    if running >= 1.0 and kv_used > 0.0 and ready > 0.0:
        part_of = min(0.01 * dt, 1.0)  # scrape intervals of minutes must not overshoot
        estimates[i, Estimate.KV_PER_REQUEST] += part_of * (
            kv_used * ready / running - estimates[i, Estimate.KV_PER_REQUEST]
        )


@part
def learn_capacity(
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
    estimates[i, Estimate.GAPS] = kept * estimates[i, Estimate.GAPS] + counted(rates[i, WorkRate.GAPS]) * dt
    estimates[i, Estimate.GAP_SECONDS] = (
        kept * estimates[i, Estimate.GAP_SECONDS] + counted(rates[i, WorkRate.GAP_SECONDS]) * dt
    )
    estimates[i, Estimate.PROMPT_READ] = (
        kept * estimates[i, Estimate.PROMPT_READ] + counted(rates[i, WorkRate.COMPUTED]) * dt
    )
    estimates[i, Estimate.REPLICA_SECONDS] = kept * estimates[i, Estimate.REPLICA_SECONDS] + ready * dt
    gaps, seconds = estimates[i, Estimate.GAPS], estimates[i, Estimate.GAP_SECONDS]
    if not ready > 0.0 or not rates[i, WorkRate.GAPS] >= FEWEST_GAPS:
        return
    measured = seconds / gaps
    if waiting > CROWDED * ready or measured > SLOWEST * itl or not measured >= FASTEST_S:
        return
    sequences = seconds / estimates[i, Estimate.REPLICA_SECONDS]
    steps = gaps / max(sequences / -expm1(-sequences), 1.0)
    content = (1.0 + sequences) * (PER_SEQUENCE + PER_CONTEXT_TOKEN * _context(estimates, i))
    content += PER_PROMPT_TOKEN * estimates[i, Estimate.PROMPT_READ] / max(steps, 1.0)
    weight = min(1.0, rates[i, WorkRate.GAPS] / 40.0) * dt / 5.0
    forgotten = exp(-FORGOTTEN_PER_S * dt)
    # The error of a sample grows with what is in the step.
    sharp = weight / (constants.sharpest + content) ** 2
    estimates[i, Estimate.STEP_SUM] = forgotten * estimates[i, Estimate.STEP_SUM] + sharp * measured / (
        1.0 + content * factor(estimates, i, constants)
    )
    estimates[i, Estimate.STEP_WEIGHT] = forgotten * estimates[i, Estimate.STEP_WEIGHT] + sharp
    more = min(max(measured / empty_step(estimates, i) - 1.0, -0.5), 5.0 * content)
    back = (1.0 - forgotten) * FACTOR_PRIOR  # the prior is not forgotten
    estimates[i, Estimate.FACTOR_SUM] = forgotten * estimates[i, Estimate.FACTOR_SUM] + weight * more * content + back
    estimates[i, Estimate.FACTOR_WEIGHT] = (
        forgotten * estimates[i, Estimate.FACTOR_WEIGHT] + weight * content * content + back
    )


@part
def room(estimates: Floats, i: int, itl: float) -> float:
    """Seconds of work that a replica does in a second while its steps keep the SLO."""
    return max(LEAST_ROOM, 1.0 - empty_step(estimates, i) / (TARGET * itl))


@part
def prompt_token_s(estimates: Floats, i: int, constants: SizingConstants) -> float:
    return PER_PROMPT_TOKEN * empty_step(estimates, i) * factor(estimates, i, constants)


@part
def output_token_s(estimates: Floats, i: int, constants: SizingConstants) -> float:
    content = PER_SEQUENCE + PER_CONTEXT_TOKEN * _context(estimates, i)
    return content * empty_step(estimates, i) * factor(estimates, i, constants)


@part
def request_replica_s(estimates: Floats, i: int, itl: float, constants: SizingConstants) -> float:
    """Replica-seconds that one request takes."""
    prefill = computed_tokens(estimates, i) * prompt_token_s(estimates, i, constants)
    decode = output_tokens(estimates, i) * output_token_s(estimates, i, constants)
    return max(prefill / FULL_PREFILL, (prefill + decode) / room(estimates, i, itl))


def made_sound(estimates: Floats) -> Floats:
    """The same estimates, blank where this version could not have written them: they may come from another one."""
    may_be_unknown = np.zeros(WIDTH, dtype=np.bool_)
    may_be_unknown[_UNKNOWN_AT_FIRST] = True
    # NaN compares as False.
    sound: Mask = np.all((np.abs(estimates) <= LARGEST) | (may_be_unknown & np.isnan(estimates)), axis=1)
    sound &= np.all(estimates[:, _DIVISORS] >= SMALLEST, axis=1)
    sound &= ~np.any(estimates[:, _AMOUNTS] < 0.0, axis=1)
    sound &= (estimates[:, Estimate.STRETCH] >= 0.0) & (estimates[:, Estimate.STRETCH] <= 1.0)
    return np.where(sound[:, None], estimates, blank(len(estimates)))
