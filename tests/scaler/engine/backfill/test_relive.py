"""Windows that are full when the daemon has just begun."""

from dataclasses import replace

import pytest

from exporter.model import Role, Target, WorkloadKey
from scaler.engine.backfill import PastScrape, replay_past
from scaler.engine.decider import Decider
from scaler.policy.columns import Signal, Spec
from scaler.signals.smoothing import HalfLives
from scaler.workloads.spec import WorkloadSpec

CHAT = WorkloadKey("ai", "chat")
# 16 requests a replica; a rise is taken at once, half of a fall after a minute.
PLAN = WorkloadSpec(CHAT, Spec(0, 8, ((Signal.WORK, 16.0),)), HalfLives(up_s=0.0, down_s=60.0))
TIMES = {"interval_s": 5.0, "fresh_intervals": 3.0}


def pod(number):
    return Target(f"promql+http://prometheus/?pod=chat-{number}", "vllm", Role.PODS, CHAT)


@pytest.fixture
def moments(page):
    def make(*running, since=1000.0):
        """A moment every 5 s; each is what runs in each of the pods, None for one that had no page."""
        return [
            PastScrape(
                since + 5.0 * place,
                {
                    pod(number): page.vllm(waiting=0, running=count).encode()
                    for number, count in enumerate(moment)
                    if count is not None
                },
            )
            for place, moment in enumerate(running)
        ]

    return make


@pytest.fixture
def answer(page, samples):
    """`answer(decider, running, at)`: what it says when a page of one pod comes in."""

    def land(decider, running, at):
        decider.listed(CHAT, 1)
        decider.expect(pod(0))
        decider.land(pod(0), samples(page.vllm(waiting=0, running=running), at=at), at, at)
        (decision, *_) = [d for d in decider.sweep(at + 0.1) if d.workload == CHAT]
        return decision.replicas

    return land


def new():
    return Decider([PLAN], **TIMES)


def test_a_fall_before_the_start_is_still_being_smoothed(moments, answer):
    # 100 requests until 1055, then none: a minute later 50 of them still count, 50/16 = 3.1.
    past = moments(*[(60, 40)] * 12, *[(0, 0)] * 12)
    decider = new()
    decider.remember(replay_past(PLAN, past, **TIMES))
    assert answer(decider, 0, at=1120.0) == 4
    assert answer(new(), 0, at=1120.0) == 1


def test_what_was_is_not_told_to_anybody(moments):
    decider = new()
    decider.remember(replay_past(PLAN, moments(*[(60, 40)] * 12), **TIMES))
    (decision,) = decider.sweep(1060.0)
    assert (decision.replicas, str(decision.reason)) == (None, "unknown")


def test_a_moment_in_which_a_pod_has_no_page_counts_the_others(moments, answer):
    # The second pod was gone by then: a list that names one pod is a list of one.
    decider = new()
    decider.remember(replay_past(PLAN, moments(*[(60, 40)] * 6, *[(60, None)] * 18), **TIMES))
    # 90 s after the fall from 100 to 60: 60 + 40/2^1.5 = 74, 74/16 = 4.6.
    assert answer(decider, 60, at=1120.0) == 5


def test_a_page_of_the_past_that_cannot_be_read_costs_that_page(moments, answer):
    past = moments(*[(60, 40)] * 12)
    past[5] = PastScrape(past[5].at, {pod(0): b"<html>", pod(1): b""})
    decider = new()
    decider.remember(replay_past(PLAN, past, **TIMES))
    assert answer(decider, 0, at=1060.0) > 4


def test_another_workloads_past_changes_nothing(moments):
    other = replace(PLAN, workload=WorkloadKey("ai", "other"))
    decider = new()
    decider.remember(replay_past(other, [], **TIMES))
    assert [decision.replicas for decision in decider.sweep(1000.0)] == [None]
