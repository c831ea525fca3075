"""The schedule that is chosen is the cheapest affordable one of all, by the cost of each bucket's rest."""

from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy.estimators.histograms import middles
from scaler.policy.estimators.keep_warm import FEWEST, HEAD, MARGIN_S, SLEEP_TO_START, TAILS, YOUNG, Stakes, choose
from tests.budget import examples

EDGES = np.array([0.0, 10.0, 100.0, 400.0, 900.0, 1500.0, 1600.0, 1700.0, 4000.0])


class One:
    """The choice for one workload, in plain Python."""

    def __init__(self, shares, weight, stakes, lowest, highest, budget):
        self.shares, self.weight, self.stakes = shares, weight, stakes
        self.lowest, self.highest, self.budget = lowest, highest, budget
        self.start = stakes.start * (stakes.idle + stakes.waiting)
        self.rule = min(max(self.start / stakes.idle, lowest), highest)

    def below(self, time):
        return sum(share for share, end in zip(self.shares, EDGES[1:], strict=False) if end <= time)

    def reached(self, part):
        """The bucket in which this part of the rests is reached."""
        running = np.cumsum(self.shares)
        return next((bucket for bucket, sum_ in enumerate(running) if sum_ >= part - 1e-9), len(running) - 1)

    def schedules(self):
        yield self.rule, nan, nan
        for window in [self.lowest, self.rule, *(min(max(edge, self.lowest), self.highest) for edge in EDGES)]:
            yield window, nan, nan
            outlast = 1.0 - self.below(window)
            for tail in TAILS:
                ready = EDGES[self.reached(1.0 - outlast + HEAD * outlast)] - MARGIN_S
                last = self.reached(1.0 - outlast + tail * outlast)
                until = EDGES[min(last + 1, len(EDGES) - 1)] + MARGIN_S
                begin = ready - self.stakes.lead
                long_enough = begin - window >= SLEEP_TO_START * self.stakes.lead
                if long_enough and until - begin <= self.highest and outlast * self.weight >= FEWEST:
                    yield window, begin, until

    def regret(self, window, begin, until):
        """The most that a rest costs more than under the rule."""
        plain = self.start if window < self.rule else (window - self.rule) * self.stakes.idle
        return plain + (0.0 if isnan(begin) else (until - begin) * self.stakes.idle)

    def cost(self, window, begin, until):
        return sum(
            share * self._cost_of(rest, end, window, begin, until)
            for share, rest, end in zip(self.shares, middles(EDGES), [*EDGES[1:], np.inf], strict=True)
        )

    def _cost_of(self, rest, end, window, begin, until):
        """A bucket that ends at a time ends before it; one that it is inside of does not."""
        start, _, idle, waiting = self.stakes
        if end <= window:
            return rest * idle
        asleep = window * idle + self.start
        if isnan(begin) or end <= begin:
            return asleep
        ready = begin + start
        if end <= ready:
            return asleep - (start - (ready - rest)) * waiting
        if end <= until:
            return asleep - start * waiting + (rest - ready) * idle
        return asleep + (until - ready + start) * idle

    def least(self):
        """The least cost; that of the rule while too little is known."""
        young = self.weight * (1.0 - self.below(self.lowest)) < YOUNG
        tried = [(self.rule, nan, nan)] if young else self.schedules()
        return min(self.cost(*each) for each in tried if self.regret(*each) <= self.budget)


@st.composite
def workloads(draw):
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kept = chance.random(len(EDGES)) < draw(st.sampled_from((0.2, 0.4, 1.0)))
    shares = chance.random(len(EDGES)) * kept + np.eye(len(EDGES))[chance.integers(len(EDGES))]
    start = draw(st.sampled_from((2.0, 20.0, 75.0)))
    stakes = Stakes(start, start * 1.2, draw(st.sampled_from((0.5, 2.0))), draw(st.sampled_from((0.1, 3.0, 12.0))))
    return One(
        (shares / shares.sum()).tolist(),
        draw(st.sampled_from((6.0, 11.0, 15.0, 200.0))),
        stakes,
        draw(st.sampled_from((0.0, 15.0, 200.0))),
        draw(st.sampled_from((400.0, 1000.0, 1e4))),
        draw(st.sampled_from((0.0, 100.0, 1000.0, 1e6))),
    )


@given(st.lists(workloads(), min_size=1, max_size=3))
@settings(max_examples=examples(150), deadline=None)
def test_choice_is_the_cheapest_that_the_credit_allows(several):
    stakes = Stakes(*(np.array(column) for column in zip(*(each.stakes for each in several), strict=True)))
    lowest, highest, weight, budget = (
        np.array([getattr(each, name) for each in several]) for name in ("lowest", "highest", "weight", "budget")
    )
    shares = np.array([each.shares for each in several])
    chosen = choose(shares, weight, EDGES, stakes, lowest, highest, budget)
    for one, *schedule in zip(several, *(column.tolist() for column in chosen), strict=True):
        assert one.cost(*schedule) == pytest.approx(one.least(), rel=1e-9)
        assert one.regret(*schedule) <= one.budget
