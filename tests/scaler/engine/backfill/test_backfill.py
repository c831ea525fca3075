"""Tests the backfill: windows are full right after a start."""

from dataclasses import replace

import pytest

from exporter.model import Role, Target, WorkloadKey
from scaler.engine.backfill import PastScrape, replay_past
from scaler.engine.decider import Decider
from scaler.policy.columns import Signal, Spec
from scaler.signals.smoothing import HalfLives
from scaler.workloads.spec import WorkloadSpec

CHAT = WorkloadKey("ai", "chat")
# 16 requests a replica; a rise applies at once, half of a fall after a minute.
PLAN = WorkloadSpec(CHAT, Spec(0, 8, ((Signal.WORK, 16.0),)), HalfLives(up_s=0.0, down_s=60.0))
TIMES = {"interval_s": 5.0, "fresh_intervals": 3.0}


def pod(number):
    return Target(f"promql+http://prometheus/?pod=chat-{number}", "vllm", Role.PODS, CHAT)


@pytest.fixture
def moments(page):
    def make(*running, since=1000.0):
        """One moment every 5 s: the running requests of each pod; None is a pod without a target."""
        return [
            PastScrape(
                since + 5.0 * index,
                {
                    pod(number): page.vllm(waiting=0, running=count).encode()
                    for number, count in enumerate(moment)
                    if count is not None
                },
            )
            for index, moment in enumerate(running)
        ]

    return make


@pytest.fixture
def land_and_decide(page, samples):
    """`land_and_decide(decider, running, at)`: the replicas decided after a scrape of one pod."""

    def land(decider, running, at):
        decider.listed(CHAT, 1)
        decider.expect(pod(0))
        decider.land(pod(0), samples(page.vllm(waiting=0, running=running), at=at), at, at)
        changed = [*decider.sweep(at + 0.1), *decider.renew(9)]
        (decision, *_) = [d for d in changed if d.workload == CHAT]
        return decision.replicas

    return land


def new():
    return Decider([PLAN], **TIMES)


def test_fall_before_the_start_is_still_smoothed(moments, land_and_decide):
    # 100 requests until 1055, then none: a minute later 50 of them still count, 50/16 = 3.1.
    past = moments(*[(60, 40)] * 12, *[(0, 0)] * 12)
    decider = new()
    decider.remember(replay_past(PLAN, past, **TIMES))
    assert land_and_decide(decider, 0, at=1120.0) == 4
    assert land_and_decide(new(), 0, at=1120.0) == 1


def test_past_values_are_not_published(moments):
    decider = new()
    decider.remember(replay_past(PLAN, moments(*[(60, 40)] * 12), **TIMES))
    (decision,) = decider.sweep(1060.0)
    assert (decision.replicas, str(decision.reason)) == (None, "unknown")


def test_moment_without_a_target_of_one_pod_counts_the_others(moments, land_and_decide):
    # The second pod was gone by then, so the list of pods has one entry.
    decider = new()
    decider.remember(replay_past(PLAN, moments(*[(60, 40)] * 6, *[(60, None)] * 18), **TIMES))
    # 90 s after the fall from 100 to 60: 60 + 40/2^1.5 = 74, 74/16 = 4.6.
    assert land_and_decide(decider, 60, at=1120.0) == 5


def test_unreadable_scrape_of_the_past_loses_only_that_scrape(moments, land_and_decide):
    past = moments(*[(60, 40)] * 12)
    past[5] = PastScrape(past[5].at, {pod(0): b"<html>", pod(1): b""})
    decider = new()
    decider.remember(replay_past(PLAN, past, **TIMES))
    assert land_and_decide(decider, 0, at=1060.0) > 4


def test_past_of_another_workload_changes_nothing(moments):
    other = replace(PLAN, workload=WorkloadKey("ai", "other"))
    decider = new()
    decider.remember(replay_past(other, [], **TIMES))
    assert [decision.replicas for decision in decider.sweep(1000.0)] == [None]
