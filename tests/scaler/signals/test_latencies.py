"""Tests the rates of late first tokens and late tokens, from the histograms of an engine split at the SLO."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.attribution import owners_by_name
from exporter.histogram import Split
from exporter.model import Role, Target, WorkloadKey
from scaler.policy.capacity import WorkRate
from scaler.signals import rates
from scaler.signals.latest import LatestSamples, TargetRules
from scaler.signals.rates import SloSplits
from scaler.signals.slots import WIDTH, WORK_WIDTH, Column
from tests.budget import examples

CHAT = WorkloadKey("ai", "chat")
LATENCIES = slice(Column.RATES + WorkRate.TTFT, WIDTH)


class Engine:
    """One target, response by response. Its time per output token is as its time to first token."""

    def __init__(self):
        self.before, self.now = np.full(WORK_WIDTH, nan), 1.7e9

    def respond(self, split, after=5.0, ttft=2.0):
        """The rates of the time to first token: all, late, at least late, at most late."""
        self.now += after
        values = np.full(WIDTH, nan)
        found = None if split is None else Split(*split)
        splits = SloSplits(ttft, 0.06, found, found)
        rates.of_engine(values, {}, self.before, self.now, splits, lags=False, forgets=False)
        first, second = values[LATENCIES].reshape(2, 4).tolist()
        assert ttft != 2.0 or first == pytest.approx(second, nan_ok=True)
        return first


UNKNOWN = pytest.approx([nan] * 4, nan_ok=True)


@pytest.fixture
def engine():
    return Engine()


def test_counters_of_a_split_become_rates(engine):
    engine.respond((90, 4, 2, 4))
    assert engine.respond((120, 9, 7, 14)) == [10.0, 3.0, 2.0, 4.0]  # of 50 in 5 s: 10 late, 5 likely, 5 likely not


def test_first_response_has_no_rates(engine):
    assert engine.respond((90, 4, 2, 4)) == UNKNOWN


def test_restart_of_the_engine_counts_from_zero_even_if_not_all_counters_have_fallen(engine):
    engine.respond((90, 0, 0, 0))
    assert engine.respond((50, 0, 0, 45)) == [19.0, 9.0, 9.0, 9.0]  # 95 requests since the restart, more than before it


def test_buckets_that_are_missing_in_one_response_are_unknown_twice(engine):
    engine.respond((90, 4, 2, 4))
    assert engine.respond(None) == UNKNOWN
    assert engine.respond((190, 4, 2, 4)) == UNKNOWN
    assert engine.respond((200, 4, 2, 4)) == [2.0, 0.0, 0.0, 0.0]


def test_other_slo_has_no_rates_for_one_response(engine):
    engine.respond((90, 0, 0, 10))
    assert engine.respond((10, 0, 0, 95), ttft=0.5) == UNKNOWN
    assert engine.respond((10, 0, 0, 100), ttft=0.5) == [1.0, 1.0, 1.0, 1.0]


def test_slo_that_was_removed_and_returns_counts_nothing_of_the_time_between(samples):
    latest = LatestSamples([rules((2.5, 0.06))], owners_by_name({CHAT: None}), limit_s=15.0)
    latest.land(pod(0), samples(PAGE.format(served=100, met=100)), 100.0)
    latest.replan([rules(None)], np.array([0]))
    latest.land(pod(0), samples(PAGE.format(served=900, met=100)), 105.0)
    latest.replan([rules((2.5, 0.06))], np.array([0]))
    for at, served in ((110.0, 910), (115.0, 920)):
        latest.land(pod(0), samples(PAGE.format(served=served, met=100)), at)
        assert late(latest, at) == pytest.approx([nan, nan] if at < 115.0 else [2.0, 2.0], nan_ok=True)


def test_engine_without_an_slo_has_no_late_tokens(engine):
    engine.respond(None, ttft=nan)
    assert engine.respond(None, ttft=nan) == UNKNOWN


COUNTS = st.tuples(*[st.integers(0, 1000)] * 3)


@given(st.lists(st.tuples(COUNTS, st.floats(0.5, 30.0)), min_size=1, max_size=8), st.floats(0.0, 1.0))
@settings(max_examples=examples(200))
def test_late_requests_add_up_to_what_the_counters_rose_by(rises, share):
    engine, low, between, late = Engine(), 0, 0, 0
    engine.respond((0, 0, 0, 0))
    summed = np.zeros(4)
    for (more_low, more_between, more_late), after in rises:
        low, between, late = low + more_low, between + more_between, late + more_late
        within = between * share
        found = np.array(engine.respond((low, within, between - within, late), after))
        assert 0.0 <= found[2] <= found[1] + 1e-9 <= found[3] + 2e-9 <= found[0] + 3e-9
        summed += found * after
    expected = (low + between + late, between - between * share + late, late, between + late)
    assert summed == pytest.approx(np.array(expected, dtype=float), rel=1e-6, abs=1e-3)


@given(st.lists(st.tuples(*[st.floats(0.0, 1e18)] * 4), min_size=2, max_size=6))
@settings(max_examples=examples(200))
def test_counters_that_jump_as_they_like_never_make_a_rate_below_zero(splits):
    engine = Engine()
    for split in splits:
        total, estimate, least, most = engine.respond(split)
        assert np.isnan(total) or 0.0 <= least <= estimate <= most <= total * (1.0 + 1e-9)


PAGE = """\
vllm:num_requests_waiting{{model_name="m"}} 0
vllm:num_requests_running{{model_name="m"}} 1
vllm:time_to_first_token_seconds_bucket{{model_name="m",le="2.5"}} {met}
vllm:time_to_first_token_seconds_bucket{{model_name="m",le="5.0"}} {met}
vllm:time_to_first_token_seconds_bucket{{model_name="m",le="+Inf"}} {served}
"""


def pod(number):
    return Target(f"http://10.0.0.{number}:8000/metrics", "vllm", Role.PODS, CHAT)


def late(latest, now):
    return latest.totals(np.array([0]), now).rates[0, [WorkRate.TTFT, WorkRate.TTFT_LATE]].tolist()


def rules(slo):
    return TargetRules(CHAT, pods=True, slo=slo)


def test_late_requests_of_several_targets_add_up_without_those_of_a_stale_one(samples):
    latest = LatestSamples([rules((2.5, 0.06))], owners_by_name({CHAT: None}), limit_s=15.0)
    for at, served in ((100.0, 0), (105.0, 10)):
        for number, missed in ((0, 1), (1, 3)):
            text = PAGE.format(served=served, met=served - missed * served // 10)
            latest.land(pod(number), samples(text), at)
    assert late(latest, 105.0) == pytest.approx([4.0, 0.8])
    latest.land(pod(0), samples(PAGE.format(served=20, met=18)), 119.0)
    assert late(latest, 121.0) == pytest.approx([10 / 14, 1 / 14])  # the other target is 16 s old


def test_slo_that_a_reload_has_changed_splits_from_the_next_response_on(samples):
    latest = LatestSamples([rules((2.5, 0.06))], owners_by_name({CHAT: None}), limit_s=15.0)
    for at, served in ((100.0, 100), (105.0, 110)):
        latest.land(pod(0), samples(PAGE.format(served=served, met=90)), at)
    assert late(latest, 105.0) == pytest.approx([2.0, 2.0])
    latest.replan([rules((5.0, 0.06))], np.array([0]))
    latest.land(pod(0), samples(PAGE.format(served=120, met=90)), 110.0)
    assert late(latest, 110.0) == pytest.approx([nan, nan], nan_ok=True)
    latest.land(pod(0), samples(PAGE.format(served=130, met=90)), 115.0)
    assert late(latest, 115.0) == pytest.approx([2.0, 2.0])
