"""Tests that the capacity of a replica is learned from the counters of the engine, by a server with known steps."""

from __future__ import annotations

from math import exp
from typing import NamedTuple

import numpy as np
import pytest

from scaler.policy import capacity
from scaler.policy.capacity import (
    PER_CONTEXT_TOKEN,
    PER_PROMPT_TOKEN,
    PER_SEQUENCE,
    STEP_S,
    Estimate,
)

HOUR_S, DAY_S = 3600.0, 86_400.0


class Server(NamedTuple):
    """One replica: a step takes `step * (1 + factor * content)` seconds. Prompts of 500 and outputs of 200 tokens."""

    step: float = STEP_S
    factor: float = 1.0
    prompt: float = 500.0
    output: float = 200.0

    @property
    def token_content(self):
        return PER_SEQUENCE + PER_CONTEXT_TOKEN * (self.prompt + 0.6 * self.output)

    def gap_s(self, requests):
        """Seconds between two tokens at so many requests per second, and the sequences in the batch at the mean.

        Solved by iteration: sequences are arrivals times residence (Little), and residence is tokens times gaps.
        """
        gap = self.step
        for _ in range(1000):
            sequences = requests * (self.output - 1.0) * gap
            # Steps per second of a replica with a Poisson number of sequences: none while it has none.
            steps = (1.0 - exp(-sequences)) / gap
            content = (1.0 + sequences) * self.token_content
            content += PER_PROMPT_TOKEN * requests * self.prompt / max(steps, 1e-9)
            gap += 0.5 * (self.step * (1.0 + self.factor * content) - gap)
        return gap, requests * (self.output - 1.0) * gap

    def traffic(self, rates, requests):
        """The rates of all counters at so many requests per second."""
        _, sequences = self.gap_s(requests)
        return rates(requests, self.prompt, self.output, sequences=sequences)


def learned(sized, rates, server, loads, itl=0.2, seconds=HOUR_S, each_s=300.0):
    """A workload on one replica of the server, at these loads in turn."""
    chat, turns = sized(itl=itl), round(seconds / each_s)
    for turn in range(turns):
        chat.during(each_s, server.traffic(rates, loads[turn % len(loads)]))
    return chat


LOADS = {"low": (0.4, 0.6, 1.0), "varied": (0.5, 2.0, 4.0, 1.0), "high": (3.0, 4.0, 5.0)}


@pytest.mark.parametrize("loads", LOADS.values(), ids=LOADS)
@pytest.mark.parametrize("speed", [0.75, 1.0, 1.25])
def test_step_that_is_a_quarter_slower_or_faster_is_learned_within_an_hour(sized, rates, speed, loads):
    server = Server(step=speed * STEP_S)
    chat = learned(sized, rates, server, loads)
    # What the size depends on: the step at these loads, as far as prices of its content are as assumed.
    assert chat.step_s == pytest.approx(server.step, rel=0.06)


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.6])
def test_price_of_the_content_is_learned_from_varied_loads_within_a_day(sized, rates, factor):
    server = Server(step=0.012, factor=factor)
    chat = learned(sized, rates, server, (0.5, 1.0, 2.0, 3.5), seconds=DAY_S, each_s=1200.0)
    assert chat.step_s == pytest.approx(server.step, rel=0.05)
    assert chat.factor == pytest.approx(factor, rel=0.15)


def test_more_replicas_are_needed_on_the_slower_server(sized, rates):
    works = [
        learned(sized, rates, Server(step=speed * STEP_S), LOADS["varied"], itl=0.06)[Estimate.WORK]
        for speed in (0.75, 1.0, 1.25)
    ]
    assert works == sorted(works)
    assert works[2] > 1.4 * works[0]


def test_sum_of_several_replicas_teaches_the_same_as_one(sized, rates):
    server = Server(step=0.012)
    one, eight = sized(itl=0.2), sized(itl=0.2)
    for requests in (0.5, 2.0, 4.0, 1.0) * 3:
        traffic = server.traffic(rates, requests)
        one.during(300.0, traffic, ready=1.0)
        eight.during(300.0, 8.0 * traffic, ready=8.0)
    assert eight.step_s == pytest.approx(one.step_s, rel=0.02)
    assert eight[Estimate.WORK] == pytest.approx(8 * one[Estimate.WORK], rel=0.05)


CAPACITY = [Estimate.STEP_SUM, Estimate.STEP_WEIGHT, Estimate.FACTOR_SUM, Estimate.FACTOR_WEIGHT]


@pytest.mark.parametrize(
    ("inputs", "more"),
    [
        ({"waiting": 7.0, "ready": 3.0}, {}),  # above CROWDED per replica
        ({"ready": 0.0}, {}),
        ({}, {"gaps": 3.9}),  # fewer tokens than say anything
        ({}, {"gaps": 100.0, "gap_seconds": 100 * 0.066}),  # above SLOWEST times the SLO
        ({}, {"gaps": 100.0, "gap_seconds": 0.0}),  # a counter that stands still
    ],
)
def test_sample_of_an_overloaded_or_idle_server_changes_no_capacity(sized, rates, inputs, more):
    chat = sized(itl=0.05)
    before = chat.estimates[0, CAPACITY].copy()
    traffic = rates(2.0, sequences=10.0, **more)
    assert np.isfinite(chat.during(300.0, traffic, **inputs)).all()
    np.testing.assert_array_equal(chat.estimates[0, CAPACITY], before)


def test_sample_at_these_bounds_does_change_the_capacity(sized, rates):
    chat = sized(itl=0.05)
    before = chat.estimates[0, CAPACITY].copy()
    chat.after(5.0, rates(2.0, gaps=100.0, sequences=100 * 0.064), waiting=6.0, ready=3.0)
    assert (chat.estimates[0, CAPACITY] != before).all()


def test_capacity_that_was_learned_is_kept_through_a_night_without_traffic(sized, rates):
    server = Server(step=1.25 * STEP_S)
    chat = learned(sized, rates, server, LOADS["varied"])
    step, factor = chat.step_s, chat.factor
    chat.during(10 * HOUR_S, rates(0.0), every=60.0)
    assert (chat.step_s, chat.factor) == (step, factor)


def test_means_of_prompts_and_outputs_follow_the_last_two_hundred_requests(sized, rates):
    chat = sized()
    chat.during(600.0, rates(2.0, prompt=3000.0, output=50.0, gaps=0.0))
    prompt = chat[Estimate.PROMPT_SUM] / chat[Estimate.PROMPTS]
    output = chat[Estimate.OUTPUT_SUM] / chat[Estimate.OUTPUTS]
    assert (prompt, output) == (pytest.approx(3000.0, rel=0.01), pytest.approx(50.0, rel=0.02))
    assert chat[Estimate.PROMPTS] <= capacity.MEAN_OF
