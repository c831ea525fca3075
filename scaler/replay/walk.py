"""A walk through a load along a plan, that changes the plan where it pays: each block of time is tried from a fork of
the world as it is just before, and played only as far as what the block does is felt.

Three worlds with the same load. `present` stands where the block's first pod would be ordered and has walked there
under the plan as it is by now; `base` goes on from there under that plan, and `tried` under the plan with the block
changed. At the same moment both are asked how many requests missed the SLO and what their pods have cost; if the
change pays, `base` goes on from where `tried` stands. So each block is judged in the very world that the blocks before
it made, and when the walk is through, `present` has played the whole plan: what it cost and kept is no estimate.

The kernels are compiled at their first call: only a search for a plan needs them.

Worked example: two replicas in each of 40 bins and requests for one: a walk in blocks of 10 bins with step -1 takes
one away in all four, and simulates each bin three times and what comes within `felt` of a block once more.
"""

from __future__ import annotations

from math import inf, nan
from typing import NamedTuple

import numpy as np

from exporter.model import Floats
from scaler.jit import lazy_kernel, part

from .columns import (
    ALIVE,
    ARRIVED,
    AT,
    BEGAN,
    CONTEXT,
    CREATED,
    DECODE,
    DECODING,
    DOING,
    DONE,
    FINISHED,
    FIRST,
    FREE,
    LEFT,
    NEXT,
    NONE,
    NOW,
    PHASE,
    POD_S,
    PROMPT,
    REPLICA_COUNTS,
    REPLICA_NUMBERS,
    REQUEST_COUNTS,
    REQUEST_TIMES,
    RUN,
    STEPS,
    Ints,
    ReplayWorld,
    ServerColumns,
    steps_within,
)
from .engine import advance, scale

BIN_S = 15.0
FELT_TIMES = 8  # so many times `felt` after a block, at the most, is waited for two worlds to be alike again
CHECK_BINS = 2  # between two looks at whether a block has broken too much already


class SloLimits(NamedTuple):
    """The SLO of each request. first, rest: shape (requests,), seconds until its first token, and from there to
    its last. per_token: seconds of `rest` that each token is worth. begins: the first request that is judged.
    """

    first: Floats
    rest: Floats
    per_token: float
    begins: int


class PodTimeline(NamedTuple):
    """How pods come and go. pods: shape (bins,), ordered in each bin. starts: shape (1,), seconds until one is ready.
    orders: bins in which anything is ordered; after the last arrival nothing is.
    """

    pods: Ints
    starts: Floats
    orders: int


class Blocks(NamedTuple):
    """The changes to try. todo: shape (blocks,), places of the blocks in order. width: of a block, bins. step: replicas
    more. price: GPU-seconds that a met request is worth. gpus: of a replica. felt: bins after a block.
    flip: shape (all blocks,), to be filled: the price at which the block's change begins, or ceases, to pay.
    """

    todo: Ints
    width: int
    step: int
    price: float
    gpus: int
    felt: int
    flip: Floats


@lazy_kernel
def fork(source: ReplayWorld, target: ReplayWorld, oldest: int) -> None:
    """`target` stands where `source` does. oldest: no request before it is unfinished in `source`; what `target` says
    of those is left as it was.
    """
    for index in range(target.counts[ALIVE]):
        target.replica_counts[target.order[index], PHASE] = FREE
    for index in range(source.counts[ALIVE]):
        slot = source.order[index]
        target.order[index] = slot
        for column in range(REPLICA_NUMBERS):
            target.replicas[slot, column] = source.replicas[slot, column]
        for column in range(REPLICA_COUNTS):
            target.replica_counts[slot, column] = source.replica_counts[slot, column]
        for sequence in range(source.replica_counts[slot, DECODING]):
            target.heap[slot, sequence, 0] = source.heap[slot, sequence, 0]
            target.heap[slot, sequence, 1] = source.heap[slot, sequence, 1]
    arrived = source.counts[ARRIVED]
    for request in range(oldest, arrived):
        for column in range(REQUEST_TIMES):
            target.request_times[request, column] = source.request_times[request, column]
        for column in range(REQUEST_COUNTS):
            target.request_counts[request, column] = source.request_counts[request, column]
    for request in range(arrived, target.counts[ARRIVED]):
        target.request_times[request, FIRST] = target.request_times[request, DONE] = np.nan
        target.request_counts[request, LEFT] = target.request_counts[request, PROMPT]
        target.request_counts[request, NEXT] = NONE
    target.numbers[:] = source.numbers
    target.counts[:] = source.counts


@lazy_kernel
def play(world: ReplayWorld, server: ServerColumns, course: PodTimeline, bin_: int, until: float) -> None:
    """On from the beginning of a bin, before its order, to a moment; what would be ordered at that moment is not."""
    while bin_ < course.orders and bin_ * BIN_S < until:
        if bin_ == 0:
            scale(world, course.pods[0], np.zeros(1))  # they are there when the load begins
        elif course.pods[bin_] != course.pods[bin_ - 1]:
            advance(world, server, bin_ * BIN_S)
            scale(world, course.pods[bin_], course.starts)
        bin_ += 1
    advance(world, server, until)


@lazy_kernel
def pod_seconds(world: ReplayWorld) -> float:
    """Pod-seconds of all pods so far."""
    seconds = world.numbers[POD_S]
    for index in range(world.counts[ALIVE]):
        seconds += world.numbers[NOW] - world.replicas[world.order[index], CREATED]
    return float(seconds)


@lazy_kernel
def broken_for_good(world: ReplayWorld, limits: SloLimits, oldest: int) -> int:
    """SLO misses that are certain by now, of the requests from `oldest` on."""
    now, broken = world.numbers[NOW], 0
    for request in range(max(oldest, limits.begins), world.counts[ARRIVED]):
        times = world.request_times[request]
        first = times[FIRST]
        if np.isnan(first):
            broken += now - times[AT] > limits.first[request]
        elif first - times[AT] > limits.first[request]:
            broken += 1
        elif np.isnan(times[DONE]):
            broken += now - first > limits.rest[request]
        else:
            broken += times[DONE] - first > limits.rest[request]
    return broken


@lazy_kernel
def broken_at_this_pace(world: ReplayWorld, server: ServerColumns, limits: SloLimits, oldest: int) -> int:
    """Those, and of the answers under way those that took longer so far than their tokens so far may."""
    now, behind = world.numbers[NOW], 0
    for index in range(world.counts[ALIVE]):
        slot = world.order[index]
        mine = world.replica_counts[slot]
        ended = mine[STEPS]
        if mine[DOING] == DECODE:
            passed = now - world.replicas[slot, BEGAN]
            ended += steps_within(server, mine[DECODING], world.replicas[slot, CONTEXT], mine[RUN], passed)
        for sequence in range(mine[DECODING]):
            request = world.heap[slot, sequence, 1]
            if request < limits.begins:
                continue
            times, whole = world.request_times[request], limits.rest[request]
            if times[FIRST] - times[AT] > limits.first[request] or now - times[FIRST] > whole:
                continue  # counted there
            left = world.heap[slot, sequence, 0] - ended
            behind += now - times[FIRST] > whole - limits.per_token * left
    return behind + broken_for_good(world, limits, oldest)


@part
def _change(plan: Ints, trial: Ints, pods: Ints, blocks: Blocks, ahead: int, start: int, end: int) -> tuple[int, int]:
    """The block's change into `trial` and its `pods`. The bins from and to which other pods are ordered; equal if none
    are.
    """
    for index in range(start, end):
        trial[index] = max(plan[index] + blocks.step, 0)
    since, until = end, end
    for index in range(max(0, start - ahead), end):
        most = 0
        for later in range(index, min(index + ahead + 1, plan.shape[0])):
            most = max(most, trial[later])
        if most != pods[index]:
            if since == end:
                since = index
            until = index + 1
            pods[index] = most
    return (since, until) if since < end else (end, end)


@part
def _unfinished(world: ReplayWorld) -> int:
    return int(world.counts[ARRIVED] - world.counts[FINISHED])


@part
def _is_felt(base: ReplayWorld, tried: ReplayWorld) -> bool:
    """Do as many more, or fewer, requests wait for their end as chance does not make?"""
    here, there = _unfinished(base), _unfinished(tried)
    return abs(here - there) > 1 + min(here, there) // 32


@part
def _flips_at(cost: float, broken: int) -> float:
    """The price at which a change that costs so much and breaks so many more is worth as much as it costs."""
    if broken > 0:
        return max(0.0, -cost / broken)
    return max(0.0, cost / -broken) if broken < 0 else inf


@part
def _hopeless(blocks: Blocks, more_s: float, worse: int) -> bool:
    """Is it known, before all is, that the change does not pay? worse: additional SLO misses, at least."""
    return blocks.price * worse > -more_s


@part
def _pays(
    base: ReplayWorld,
    tried: ReplayWorld,
    server: ServerColumns,
    limits: SloLimits,
    course: PodTimeline,
    other: PodTimeline,
    blocks: Blocks,
    block: int,
    since: int,
    then: int,
    more_s: float,
    oldest: int,
    span_s: float,
) -> tuple[bool, int]:
    """Both worlds on to bin `then`, and further as long as the change is felt; `base` is there already.

    Whether the change pays, and the bin where both stand, or only `base` if it was given up.
    """
    before = broken_at_this_pace(base, server, limits, oldest)
    if blocks.step > 0 and _hopeless(blocks, more_s, -before):  # not even if it saved them all
        blocks.flip[block] = more_s / before if before else inf
        return False, then
    index, last = since, then + FELT_TIMES * blocks.felt
    while True:
        while index < then:
            further = min(then, index + CHECK_BINS)
            play(tried, server, other, index, min(further * BIN_S, span_s))
            index = further
            worse = broken_for_good(tried, limits, oldest) - before
            if blocks.step < 0 and _hopeless(blocks, more_s, worse):
                blocks.flip[block] = -more_s / worse
                return False, then
        if then >= last or then * BIN_S >= span_s or not _is_felt(base, tried):
            break
        play(base, server, course, then, min((then + blocks.felt) * BIN_S, span_s))
        then += blocks.felt
        before = broken_at_this_pace(base, server, limits, oldest)
    worse = broken_at_this_pace(tried, server, limits, oldest) - before
    cost = (pod_seconds(tried) - pod_seconds(base)) * blocks.gpus
    blocks.flip[block] = _flips_at(cost, worse)
    return cost + blocks.price * worse < 0.0, then


@lazy_kernel
def walk(
    present: ReplayWorld,
    base: ReplayWorld,
    tried: ReplayWorld,
    server: ServerColumns,
    limits: SloLimits,
    plan: Ints,
    course: PodTimeline,
    ahead: int,
    blocks: Blocks,
    span_s: float,
) -> tuple[int, float]:
    """Walk to the last arrival at `span_s`. present: a world before its first request; base, tried: any two others.

    plan: shape (bins,), ready in each, and `course` what is ordered for it `ahead` bins before; both are changed.
    Returns how many blocks were changed, and the seconds of pods; `present` stands at the end. NaN if none was.
    """
    trial, pods = plan.copy(), course.pods.copy()
    other = PodTimeline(pods, course.starts, course.orders)
    changed, here, oldest, base_at = 0, 0, 0, -1
    for block in blocks.todo:
        start = block * blocks.width
        end = min(start + blocks.width, plan.shape[0])
        since, until = _change(plan, trial, pods, blocks, ahead, start, end)
        if since == until:
            trial[start:end] = plan[start:end]
            blocks.flip[block] = 0.0 if blocks.step < 0 else inf
            continue
        play(present, server, course, here, since * BIN_S)
        here = since
        while oldest < present.counts[ARRIVED] and not np.isnan(present.request_times[oldest, DONE]):
            oldest += 1
        if base_at < since:
            fork(present, base, oldest)
            base_at = since
        then = max(base_at, end + blocks.felt)
        play(base, server, course, base_at, min(then * BIN_S, span_s))
        fork(present, tried, oldest)
        more_s = float((pods[since:until] - course.pods[since:until]).sum()) * BIN_S * blocks.gpus
        pays, base_at = _pays(
            base, tried, server, limits, course, other, blocks, block, since, then, more_s, oldest, span_s
        )  # fmt: skip
        if pays:
            changed += 1
            plan[start:end] = trial[start:end]
            course.pods[since:until] = pods[since:until]
            fork(tried, base, oldest)
        else:
            trial[start:end] = plan[start:end]
            pods[since:until] = course.pods[since:until]
    if changed == 0:
        return 0, nan
    play(present, server, course, here, span_s)
    return changed, pod_seconds(present)
