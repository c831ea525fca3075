"""Chooses between ready, asleep and zero for idle workloads: by expected cost, then by the present proofs. Pure.

An engine in sleep mode keeps its pod, and has its weights in the memory of the host: a state between 1 and 0. It costs
a part of the price of its GPUs, and wakes in seconds where a start takes minutes. A pause passes through the states in
the order ready, asleep, zero, at two times: `after`, and the keep-warm time. With the price `idle` of a second ready,
`asleep` of a second asleep, and `wake` and `start` of one wake and of one start, a pause of length X costs

    idle * min(X, after) + asleep * (min(X, zero) - min(X, after))      the states that it passed
    + wake if after < X <= zero, + start if X > zero                    how it ends

so its mean is a sum of two parts, one of each time, and both are minimised by themselves where the first is earlier:

    F(after) = (idle - asleep) * E min(X, after) + wake * P(X > after)
    G(zero)  = asleep * E min(X, zero) + (start - wake) * P(X > zero)

The expectation is over the pauses that keep-warm has recorded. Before there are enough of them the times are those at
which each state has cost as much as the next: the lower envelope of the three lines, which is at most twice as
expensive as a decision that knows the length of the pause (S. Irani, S. Shukla, R. Gupta, "Online strategies for
dynamic power management in systems with multiple power-saving states", ACM TECS 2003). Keep-warm chooses the time of
zero, with its own credit (`estimators.keep_warm`), at the prices of this split.

An engine that keeps its GPU for itself costs as much asleep as ready: F then has no minimum, and it never sleeps.

`decide_tiers` follows the plan. Sleep needs every proof of idleness that zero needs, and something that shows the next
request. Unknown is never asleep, and wakes nobody: without readings a state stays. What sleeps is woken by demand, by a
floor, or by its group, at once; neither the clock nor a price wakes it, because a wake without a request is a cost
without a use. A busy GPU is no demand here: to copy the weights out and back is work of the GPU. An engine that others
have put to sleep or woken is taken as found. One that Tidegate's own calls keep asleep is woken if the configuration
takes its sleep mode or its calls away: nobody else would wake it for a request.

Worked example: a second ready costs 1, asleep 0.1, a wake of 2 s 26, a start of 75 s 975. By the envelope it sleeps
after 26 / 0.9 = 29 s, and is at zero after (975 - 26) / 0.1 = 9490 s; without sleep mode it would be after 975 s.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import typeof, types

from exporter.model import Floats
from scaler.jit import FLOATS, NUMBER, in_place_kernel, kernel, part

from .columns import NOT_YET, WARM, Bools, Ints

# The states of a workload with sleep mode; `NOT_YET` without it.
READY, ASLEEP, ZERO = range(3)
TIERS = ("ready", "asleep", "zero")

# As for keep-warm: with fewer pauses that were long enough to matter the envelope decides.
YOUNG = 10.0

_TABLE = types.Array(types.float64, 2, "C", readonly=True)
_RESULT = types.Array(types.float64, 2, "C")


class TierCosts(NamedTuple):
    """Prices of the states, shape (rows,): money per second ready and asleep, and of one wake and one start."""

    idle: Floats
    asleep: Floats
    wake: Floats
    start: Floats


class TierBounds(NamedTuple):
    """Bounds, shape (rows,), in seconds.

    earliest: of sleep. zero_from, zero_until: of the time of zero; equal if it is configured, infinite if it never is.
    """

    earliest: Floats
    zero_from: Floats
    zero_until: Floats


class TierPlan(NamedTuple):
    """When a pause leads to sleep, shape (rows,).

    after: seconds idle; NaN if sleep does not pay.
    ready, asleep, zero: mean money for a pause that stays ready, sleeps to its end, and is never asleep but goes to
           zero; NaN before enough pauses are recorded.
    """

    after: Floats
    ready: Floats
    asleep: Floats
    zero: Floats


def plan(shares: Floats, weight: Floats, edges: Floats, costs: TierCosts, bounds: TierBounds) -> TierPlan:
    """The plan of the least expected cost.

    shares: shape (rows, buckets), the part of the pauses in each bucket; NaN without pauses. weight: their number.
    edges:  where buckets begin, seconds, shape (buckets,).
    """
    out = np.empty((len(weight), len(TierPlan._fields)))
    _plan_all(np.ascontiguousarray(np.nan_to_num(shares)), weight, edges, *costs, *bounds, out)
    return TierPlan(*np.ascontiguousarray(out.T))


@part
def _bucket(edges: Floats, time: float) -> int:
    return max(int(np.searchsorted(edges, time, side="right")) - 1, 0)


@part
def _part(mass: Floats, length: Floats, edges: Floats, time: float, second: float, end: float) -> float:
    """The mean of `second` money per second until `time`, and of `end` for the pauses that are longer."""
    if np.isinf(time):
        return second * length[-1]
    bucket = _bucket(edges, time)
    longer = 1.0 - mass[bucket]
    return second * (length[bucket] + time * longer) + longer * end


@kernel(types.void(_TABLE, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, _RESULT))
def _plan_all(
    shares: Floats,
    weight: Floats,
    edges: Floats,
    idle: Floats,
    asleep: Floats,
    wake: Floats,
    start: Floats,
    earliest: Floats,
    zero_from: Floats,
    zero_until: Floats,
    out: Floats,
) -> None:
    buckets = edges.shape[0]
    # The part of the pauses below each edge, and their length together, by the middles of the buckets.
    mass, length = np.empty(buckets + 1), np.empty(buckets + 1)
    for i in range(weight.shape[0]):
        mass[0], length[0] = 0.0, 0.0
        for k in range(buckets):
            middle = (edges[k] + edges[k + 1]) / 2.0 if k + 1 < buckets else edges[k]
            mass[k + 1], length[k + 1] = mass[k] + shares[i, k], length[k] + shares[i, k] * middle
        saved, after, never = idle[i] - asleep[i], np.nan, np.isinf(zero_until[i])
        out[i, 1] = out[i, 2] = out[i, 3] = np.nan
        recorded = weight[i] * (1.0 - mass[_bucket(edges, earliest[i])]) >= YOUNG
        if not recorded:
            envelope = max(wake[i] / saved, earliest[i]) if saved > 0.0 else np.inf
            by_zero = np.inf if never else min(max((start[i] - wake[i]) / asleep[i], zero_from[i]), zero_until[i])
            out[i, 0] = envelope if envelope < by_zero else np.nan
            continue
        # Downwards: the best time of zero from each edge on, and with it the best time of sleep before it.
        best, plain, sleep_only, least = np.inf, np.inf, np.inf, np.inf
        if never:
            least = asleep[i] * length[buckets]
            plain = idle[i] * length[buckets]
        for k in range(buckets - 1, -1, -1):
            sleep = max(edges[k], earliest[i])
            if not never:
                zero = min(max(edges[k], zero_from[i]), zero_until[i])
                least = min(least, _part(mass, length, edges, zero, asleep[i], start[i] - wake[i]))
                plain = min(plain, _part(mass, length, edges, zero, idle[i], start[i]))
            cost = _part(mass, length, edges, sleep, saved, wake[i])
            sleep_only = min(sleep_only, cost + asleep[i] * length[buckets])
            # A tie is for the later sleep: it is the smaller change.
            if sleep < zero_until[i] and cost + least < best:
                best, after = cost + least, sleep
        out[i, 0] = after if best < plain and saved > 0.0 else np.nan
        out[i, 1], out[i, 2], out[i, 3] = idle[i] * length[buckets], sleep_only, plain


class TierInputs(NamedTuple):
    """The inputs of a decision of the states, shape (rows,). Times in POSIX seconds; NaN unknown.

    enabled:    it has sleep mode. calls: Tidegate itself calls its engines.
    after:      seconds idle before sleep; NaN never. earliest: the least that is ever waited for.
    replicas, active, reason: the decision.
    idle_since: proven idle since.
    active_at:  the last rise of a counter, or rejected request.
    in_hand:    requests that are known; 0 if none is.
    shows_next: a fresh gateway would show a request, at zero and in front of engines that sleep.
    engines, sleeping: pods that must answer and do, and those of them with an engine in sleep mode.
    wanted_up:  a floor or its group wants it ready. stays_up: a brake lets nothing be taken away.
    """

    enabled: Bools
    calls: Bools
    after: Floats
    earliest: Floats
    replicas: Floats
    active: Bools
    reason: Ints
    idle_since: Floats
    active_at: Floats
    in_hand: Floats
    shows_next: Bools
    engines: Floats
    sleeping: Floats
    wanted_up: Bools
    stays_up: Bools


class TierMemory(NamedTuple):
    """The states, shape (rows,); part of a checkpoint.

    tier:  READY, ASLEEP, ZERO, or NOT_YET.
    since: POSIX seconds.
    slept: all of its engines were found asleep since then.
    wakes: its engines are to be woken.
    owed:  Tidegate's own calls keep its engines asleep: it owes them a wake.
    """

    tier: Ints
    since: Floats
    slept: Bools
    wakes: Bools
    owed: Bools

    @classmethod
    def blank(cls, rows: int) -> TierMemory:
        return cls(
            np.full(rows, NOT_YET, dtype=np.int64),
            np.full(rows, np.nan),
            *np.zeros((3, rows), dtype=np.bool_),
        )


@part
def _next_tier(inputs: TierInputs, i: int, tier: int, since: float, slept: bool, now: float, raise_only: bool) -> int:
    """The state of workload `i`. tier, since, slept: those before. raise_only: for an arrival between two sweeps."""
    found_asleep = inputs.engines[i] > 0.0 and inputs.sleeping[i] >= inputs.engines[i]
    called = inputs.in_hand[i] > 0.0 or inputs.wanted_up[i]
    if inputs.replicas[i] == 0.0 and not inputs.active[i]:
        return (READY if tier == ASLEEP and called else tier) if raise_only else ZERO
    if tier == ASLEEP:
        woken = slept and inputs.engines[i] > 0.0 and inputs.sleeping[i] < inputs.engines[i]
        return READY if called or woken or inputs.active_at[i] > since else ASLEEP
    if raise_only or called or tier == ZERO:
        return READY
    if tier == NOT_YET and found_asleep:
        return ASLEEP
    kept = inputs.replicas[i] >= 1.0 and inputs.reason[i] == WARM
    if not kept or np.isnan(inputs.idle_since[i]) or not inputs.shows_next[i]:
        return READY
    if inputs.stays_up[i] or not inputs.engines[i] > 0.0 or np.isnan(inputs.sleeping[i]):
        return READY
    # After a wake or a start it is kept ready for as long as after a request.
    rested = now - (inputs.idle_since[i] if np.isnan(since) else max(inputs.idle_since[i], since))
    if found_asleep and rested >= inputs.earliest[i]:
        return ASLEEP
    return ASLEEP if rested >= inputs.after[i] else READY


def _blank_inputs() -> TierInputs:
    kinds = {
        "enabled": bool,
        "calls": bool,
        "active": bool,
        "shows_next": bool,
        "wanted_up": bool,
        "stays_up": bool,
        "reason": int,
    }
    return TierInputs(**{name: np.zeros(0, dtype=kinds.get(name, float)) for name in TierInputs._fields})


@in_place_kernel(types.void(typeof(_blank_inputs()), typeof(TierMemory.blank(0)), NUMBER, types.bool_))
def _decide_all(inputs: TierInputs, memory: TierMemory, now: float, raise_only: bool) -> None:
    for i in range(memory.tier.shape[0]):
        before = memory.tier[i]
        sleeps, awake = inputs.sleeping[i] > 0.0, inputs.engines[i] > 0.0 and inputs.sleeping[i] == 0.0
        memory.owed[i] = memory.owed[i] and not awake
        # Nobody else would wake for a request what Tidegate does not call any more.
        abandoned = memory.owed[i] and not inputs.calls[i] and sleeps
        if not inputs.enabled[i]:
            memory.tier[i], memory.since[i], memory.slept[i], memory.wakes[i] = NOT_YET, np.nan, False, abandoned
            continue
        tier = _next_tier(inputs, i, before, memory.since[i], memory.slept[i], now, raise_only)
        called = inputs.in_hand[i] > 0.0 or inputs.wanted_up[i] or inputs.active_at[i] > memory.since[i]
        if tier != before:
            # A state that is found is as old as the idle time before it is known to be: since ever.
            memory.since[i] = np.nan if before == NOT_YET and tier == READY else now
            memory.slept[i] = False
        # What wakes by itself is left alone: nobody called it.
        memory.wakes[i] = (tier == READY and sleeps and (memory.wakes[i] or called)) or abandoned
        memory.owed[i] = memory.owed[i] or (tier == ASLEEP and inputs.calls[i])
        if tier == ASLEEP and inputs.engines[i] > 0.0 and inputs.sleeping[i] >= inputs.engines[i]:
            memory.slept[i] = True
        memory.tier[i] = tier


def decide_tiers(inputs: TierInputs, memory: TierMemory, now: float, *, raise_only: bool = False) -> TierMemory:
    """The states at `now`, POSIX seconds. raise_only: none becomes a lower one."""
    after = TierMemory._make(column.copy() for column in memory)
    _decide_all(TierInputs._make(np.ascontiguousarray(column) for column in inputs), after, now, raise_only)
    return after
