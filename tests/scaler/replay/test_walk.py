"""Tests the walk through a load along a plan: a fork continues like the whole, and its results equal a simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from scaler.replay.clairvoyant import follow, slo_limits, wanted
from scaler.replay.columns import AT, DONE, FIRST, ReplayWorld, ServerColumns, Trace
from scaler.replay.engine import advance
from scaler.replay.run import AFTERWARDS_S
from scaler.replay.servers import A, ReplaySlo, ServerProfile
from scaler.replay.walk import (
    BIN_S,
    Blocks,
    PodTimeline,
    broken_at_this_pace,
    broken_for_good,
    fork,
    play,
    pod_seconds,
    walk,
)

LESS, MORE = -1, 1
SLOTS = 64
# Four sequences at once and a small cache: few requests already cause queues, full batches and held requests.
SMALL = ServerProfile(
    "small", ServerColumns(0.05, 0.01, 1e-6, 500.0, 64, 4, 900.0, 0), 30.0, 2, ReplaySlo(2.0, 0.002, 0.5, 0.08)
)


def world(load, profile=SMALL):
    return ReplayWorld.of(load.at, load.prompt, load.output, SLOTS, profile.server.batch)


def course(load, ready, profile=SMALL):
    orders = max(1, int(np.ceil(load.span_s / BIN_S)))
    return PodTimeline(wanted(ready, profile.start_s), np.array([profile.start_s]), orders)


def blocks(ready, width, step, price, felt=8, todo=None):
    count = -(-len(ready) // width)
    todo = np.arange(count) if todo is None else np.array(todo, dtype=np.int64)
    return Blocks(todo, width, step, price, SMALL.gpus, felt, np.full(count, np.nan))


def walked(load, ready, tried):
    """The walk along a plan: the resulting plan, the number of changed blocks, the times of requests, pod seconds."""
    present, plan, along = world(load), ready.copy(), course(load, ready)
    changed, pod_s = walk(
        present, world(load), world(load), SMALL.server, slo_limits(load, SMALL, 0), plan, along,
        int(np.ceil(SMALL.start_s / BIN_S)), tried, load.span_s,
    )  # fmt: skip
    np.testing.assert_array_equal(along.pods, wanted(plan, SMALL.start_s))
    if changed:
        advance(present, SMALL.server, load.span_s + AFTERWARDS_S)
    return plan, changed, present.request_times, pod_s


def broken(load, times):
    first, rest = times[:, FIRST] - times[:, AT], times[:, DONE] - times[:, FIRST]
    return int((~SMALL.slo.kept(first, rest, load.prompt, load.output)).sum())


@some.composite
def loads(draw):
    """Bursts and silences over about ten minutes."""
    rng = np.random.default_rng(draw(some.integers(0, 2**32 - 1)))
    count = draw(some.integers(2, 150))
    gaps = rng.exponential(draw(some.sampled_from((0.5, 3.0, 8.0))), count) * rng.choice((0.2, 1.0, 9.0), count)
    at = np.cumsum(gaps)
    return Trace("any", at, rng.integers(1, 400, count), rng.integers(1, 120, count))


@some.composite
def loads_and_plans(draw):
    load = draw(loads())
    bins = int(load.span_s // BIN_S) + 1
    rng = np.random.default_rng(draw(some.integers(0, 2**32 - 1)))
    runs = rng.integers(0, 5, bins)
    return load, np.where(rng.random(bins) < 0.3, runs, np.roll(runs, 1)).astype(np.int64)


@settings(max_examples=60, deadline=None)
@given(case=loads_and_plans(), where=some.floats(0.0, 1.0), before=some.floats(0.0, 1.0))
def test_fork_continues_like_its_source(case, where, before):
    load, ready = case
    along, start = course(load, ready), int(where * len(ready))
    source, target = world(load), world(load)
    # The target was used before: nothing of that may be left.
    play(target, SMALL.server, course(load, ready[::-1].copy()), 0, before * load.span_s)
    play(source, SMALL.server, along, 0, start * BIN_S)
    unfinished = np.flatnonzero(np.isnan(source.request_times[:, DONE]))
    oldest = int(unfinished[0]) if len(unfinished) else len(load.at)

    fork(source, target, oldest)
    for before_and_after in zip(source[:2], target[:2], strict=True):  # times and counts of requests
        np.testing.assert_array_equal(*(column[oldest:] for column in before_and_after))
    for one in (source, target):
        play(one, SMALL.server, along, start, load.span_s + AFTERWARDS_S)

    np.testing.assert_array_equal(source.request_times[oldest:], target.request_times[oldest:])
    assert pod_seconds(source) == pod_seconds(target)
    np.testing.assert_array_equal(source.counts, target.counts)


def test_fork_keeps_no_queue_of_its_previous_use():
    crowd = Trace("crowd", np.linspace(0.0, 300.0, 151), np.full(151, 50), np.full(151, 20))
    no_pods, some_pods = np.zeros(21, np.int64), np.repeat([0, 2, 0, 2], [3, 5, 7, 6])
    source, target = world(crowd), world(crowd)
    play(target, SMALL.server, course(crowd, no_pods), 0, 300.0)  # all requests wait at the gateway, in order

    fork(source, target, 0)
    for one in (source, target):
        play(one, SMALL.server, course(crowd, some_pods), 0, AFTERWARDS_S)

    np.testing.assert_array_equal(source.request_counts, target.request_counts)
    np.testing.assert_array_equal(source.request_times, target.request_times)


@settings(max_examples=60, deadline=None)
@given(
    case=loads_and_plans(),
    width=some.sampled_from((1, 3, 10)),
    step=some.sampled_from((LESS, MORE)),
    price=some.sampled_from((0.5, 10.0, 500.0)),
    felt=some.integers(0, 8),
)
def test_results_of_a_walk_equal_those_of_a_whole_simulation(case, width, step, price, felt):
    load, ready = case
    plan, changed, times, pod_s = walked(load, ready, blocks(ready, width, step, price, felt))

    whole, whole_s = follow(load, SMALL, plan)
    if changed:
        np.testing.assert_array_equal(times, whole)
        assert pod_s == pytest.approx(whole_s, abs=1e-6)
    else:
        np.testing.assert_array_equal(plan, ready)


@settings(max_examples=60, deadline=None)
@given(case=loads_and_plans(), where=some.floats(0.0, 0.999), step=some.sampled_from((LESS, MORE)))
def test_block_is_changed_by_its_cost_and_misses_in_a_whole_simulation(case, where, step):
    load, ready = with_an_hour_after(*case)
    index = int(where * len(case[1]))
    # Compared until all requests are done, and at a price at which it is not given up before.
    tried = blocks(ready, 1, step, 1e-9 if step == LESS else 1e9, felt=len(ready), todo=[index])
    plan, changed, _, _ = walked(load, ready, tried)

    other = ready.copy()
    other[index] = max(0, other[index] + step)
    (times, pod_s), (times_then, pod_s_then) = follow(load, SMALL, ready), follow(load, SMALL, other)
    cost, worse = (pod_s_then - pod_s) * SMALL.gpus, broken(load, times_then) - broken(load, times)
    assert changed == (step == LESS and cost < 0.0) + (step == MORE and worse < 0)
    np.testing.assert_array_equal(plan, other if changed else ready)
    if changed and worse:
        assert tried.flip[index] == pytest.approx(max(0.0, -cost / worse), abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(case=loads_and_plans(), price=some.sampled_from((1.0, 30.0)), step=some.sampled_from((LESS, MORE)))
def test_each_block_is_judged_after_the_changes_of_the_blocks_before_it(case, price, step):
    load, ready = with_an_hour_after(*case)
    todo = range(0, len(case[1]) // 2, 2)
    together = blocks(ready, 2, step, price, felt=len(ready), todo=todo)
    plan, _, _, _ = walked(load, ready, together)

    for index in todo:
        alone = blocks(ready, 2, step, price, felt=len(ready), todo=[index])
        ready, _, _, _ = walked(load, ready, alone)
        assert alone.flip[index] == pytest.approx(together.flip[index], abs=1e-6)
    np.testing.assert_array_equal(plan, ready)


def with_an_hour_after(load, ready):
    """Appends an hour in which one replica finishes everything, so that no request is open at the end."""
    at = np.append(load.at, load.span_s + 3600.0)
    longer = Trace("any", at, np.append(load.prompt, 1), np.append(load.output, 1))
    return longer, np.append(ready, np.ones(int(at[-1] // BIN_S) + 1 - len(ready), np.int64))


def test_walk_removes_replicas_without_use():
    quiet = Trace("quiet", np.arange(40) * 15.0, np.full(40, 10), np.full(40, 5))
    ready = np.full(40, 2, np.int64)
    plan, changed, times, pod_s = walked(quiet, ready, blocks(ready, 10, LESS, 50.0))

    assert (plan.tolist(), changed) == ([1] * 40, 4)
    assert pod_s == pytest.approx(quiet.span_s)
    assert broken(quiet, times) == 0


def test_walk_adds_missing_replicas_a_start_up_time_ahead_and_only_there():
    crowd = np.sort(np.concatenate([np.arange(0.0, 600.0, 15.0), 300.0 + np.arange(20) / 1.4]))
    load = Trace("crowd", crowd, np.full(len(crowd), 100), np.full(len(crowd), 20))
    ready = np.ones(40, np.int64)
    tried = blocks(ready, 2, MORE, 500.0)
    plan, changed, _, _ = walked(load, ready, tried)

    assert changed >= 1
    assert set(np.flatnonzero(plan > 1)) <= set(range(18, 26))
    assert plan[20:22].tolist() == [2, 2]
    assert tried.flip[5] == np.inf, "another replica saves nothing at any price where no SLO is missed"


def test_response_that_falls_behind_its_pace_counts_before_it_is_late():
    # One token per 0.05 + 0.01 s alone, 0.1 s in a batch of five: 0.5 s + 0.08 s per token is not met for long.
    server = SMALL.server._replace(batch=8, per_sequence=0.01, prompt_rate=1e9, kv_tokens=1e9, per_token=0.0)
    slow = replace(SMALL, server=server)
    load = Trace("slow", np.zeros(5), np.ones(5, np.int64), np.full(5, 100))
    one, progress = world(load, slow), slo_limits(load, slow, 0)
    play(one, server, course(load, np.ones(1, np.int64), slow), 0, 1.0)
    early = broken_at_this_pace(one, server, progress, 0), broken_for_good(one, progress, 0)
    play(one, server, course(load, np.ones(1, np.int64), slow), 1, 7.0)
    late = broken_at_this_pace(one, server, progress, 0), broken_for_good(one, progress, 0)
    play(one, server, course(load, np.ones(1, np.int64), slow), 1, 9.0)
    over = broken_at_this_pace(one, server, progress, 0), broken_for_good(one, progress, 0)

    # After 1 s some 10 tokens: 0.9 s of 0.5 + 0.8 s. After 7 s 70 of them: 6.9 s of 6.1 s. After 8.5 s it is too late.
    assert (early, late, over) == ((0, 0), (5, 0), (5, 5))


def test_requests_of_the_first_minutes_are_not_scored():
    load = Trace("late", np.array([0.0, 1.0]), np.ones(2, np.int64), np.ones(2, np.int64))
    one = world(load)
    play(one, SMALL.server, course(load, np.zeros(1, np.int64)), 0, 60.0)

    assert broken_for_good(one, slo_limits(load, SMALL, 0), 0) == 2
    assert broken_for_good(one, slo_limits(load, SMALL, 1), 0) == 1
    assert A.slo.share < 1.0
