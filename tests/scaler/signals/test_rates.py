"""Tests the rates of counters: from one response of a target to the next, and added up over the targets."""

from __future__ import annotations

from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.attribution import owners_by_name
from exporter.model import Quantity, Role, Target, WorkloadKey
from scaler.policy.capacity import WorkRate
from scaler.signals import rates
from scaler.signals.latest import LatestSamples, TargetRules
from scaler.signals.slots import WIDTH, WORK_WIDTH, Column
from tests.budget import examples

CHAT = WorkloadKey("ai", "chat")
GATEWAY = Target("http://gateway:9090/metrics", "epp", Role.GATEWAY, CHAT)
START = 1.7e9

COUNTERS = {
    "finished": (WorkRate.FINISHED, Quantity.REQUESTS_FINISHED),
    "first_tokens": (WorkRate.FIRST_TOKENS, Quantity.FIRST_TOKENS),
    "prompt": (WorkRate.PROMPT, Quantity.TOKENS_PROMPT),
    "generated": (WorkRate.GENERATED, Quantity.TOKENS_GENERATED),
    "gaps": (WorkRate.GAPS, Quantity.ITL_COUNT),
    "gap_seconds": (WorkRate.GAP_SECONDS, Quantity.ITL_SECONDS),
}


class Engine:
    """One target, response by response. lags: its requests in hand are older than its counters. forgets: it does not
    count those that their clients leave.
    """

    lags = forgets = False

    def __init__(self):
        self.before, self.now = np.full(WORK_WIDTH, nan), START

    def respond(self, after=5.0, *, waiting=0.0, running=0.0, failed=None, without=(), **counters):
        """The values of its slot. Counters that are not given are 0. without: those it does not expose."""
        self.now += after
        sums = {each: counters.get(name, 0.0) for name, (_, each) in COUNTERS.items() if name not in without}
        if "computed" in counters:
            sums[Quantity.TOKENS_COMPUTED] = counters["computed"]
        if failed is not None:
            sums[Quantity.REQUESTS_FAILED] = failed
        values = np.full(WIDTH, nan)
        values[[Column.WAITING, Column.RUNNING]] = waiting, running
        rates.of_engine(values, sums, self.before, self.now, lags=self.lags, forgets=self.forgets)
        return values


def rate(values, which):
    return float(values[Column.RATES + which])


@pytest.fixture
def engine():
    return Engine()


def test_worked_example_of_the_module(engine):
    engine.respond(waiting=1.0, running=5.0, finished=100.0)
    values = engine.respond(5.0, waiting=2.0, running=8.0, finished=110.0)
    assert rate(values, WorkRate.ARRIVED) == pytest.approx(2.8)


@pytest.mark.parametrize("name", COUNTERS)
def test_counter_becomes_its_rise_per_second(engine, name):
    engine.respond(**{name: 1000.0})
    assert rate(engine.respond(4.0, **{name: 1010.0}), COUNTERS[name][0]) == 2.5
    assert rate(engine.respond(8.0, **{name: 1010.0}), COUNTERS[name][0]) == 0.0


def test_first_response_has_no_rates(engine):
    values = engine.respond(finished=7.0, generated=100.0, running=3.0)
    assert np.isnan(values[Column.RATES :]).all()
    assert values[Column.UNCOUNTED] == 0.0


@pytest.mark.parametrize("name", COUNTERS)
def test_counter_that_has_fallen_was_restarted_at_zero(engine, name):
    engine.respond(**{name: 1000.0})
    assert rate(engine.respond(5.0, **{name: 20.0}), COUNTERS[name][0]) == 4.0


def test_restarted_engine_shows_no_burst_of_arrivals(engine):
    engine.respond(finished=1000.0, running=10.0)
    values = engine.respond(5.0, finished=2.0, running=4.0)
    # 2 finished since the restart and 4 in hand; the 10 before it are lost: they left without an end.
    assert rate(values, WorkRate.ARRIVED) == pytest.approx((2 + 4 - 10) / 5)
    values = engine.respond(5.0, finished=6.0, running=4.0)
    assert rate(values, WorkRate.ARRIVED) == pytest.approx(4 / 5)


def test_requests_that_failed_have_arrived_as_well(engine):
    engine.respond(finished=10.0, failed=1.0, waiting=5.0)
    assert rate(engine.respond(5.0, finished=10.0, failed=6.0), WorkRate.ARRIVED) == 0.0
    assert rate(engine.respond(5.0, finished=15.0, failed=11.0), WorkRate.ARRIVED) == 2.0


def test_arrivals_are_first_tokens_and_those_that_wait_where_requests_in_hand_are_older_than_counters(engine):
    engine.lags = True
    engine.respond(finished=10.0, first_tokens=12.0, waiting=1.0, running=2.0)
    values = engine.respond(5.0, finished=20.0, first_tokens=27.0, waiting=1.0, running=2.0)
    assert rate(values, WorkRate.ARRIVED) == 3.0
    values = engine.respond(5.0, finished=20.0, first_tokens=27.0, waiting=11.0, running=7.0)  # refreshed
    assert rate(values, WorkRate.ARRIVED) == 2.0


def test_requests_that_their_clients_leave_have_arrived_where_the_engine_counts_only_their_first_tokens(engine):
    engine.forgets = True
    engine.respond(finished=10.0, first_tokens=12.0, waiting=1.0, running=2.0)
    # The clients of both running ones leave; the one that waited runs and has its first token, and two more wait.
    values = engine.respond(5.0, finished=10.0, first_tokens=13.0, waiting=2.0, running=1.0)
    assert rate(values, WorkRate.ARRIVED) == pytest.approx(2 / 5)
    assert rate(values, WorkRate.FINISHED) == pytest.approx(2 / 5)
    # One finishes, and two prompts are read. That hides those that were left until both have their first token.
    values = engine.respond(5.0, finished=11.0, first_tokens=13.0, waiting=0.0, running=2.0)
    assert rate(values, WorkRate.ARRIVED) == pytest.approx(-1 / 5)
    values = engine.respond(5.0, finished=11.0, first_tokens=15.0, waiting=0.0, running=2.0)
    assert rate(values, WorkRate.ARRIVED) == pytest.approx(1 / 5)
    # A restarted engine begins at 0.
    values = engine.respond(5.0, finished=2.0, first_tokens=3.0, waiting=0.0, running=1.0)
    assert rate(values, WorkRate.FINISHED) == pytest.approx(2 / 5)


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.lists(st.sampled_from(["arrive", "read", "finish", "leave", "reject"]), max_size=12), min_size=1, max_size=12
    )
)
def test_arrivals_of_an_engine_that_forgets_are_those_that_came_except_whose_prompt_is_read(history):
    engine = Engine()
    engine.forgets = True
    came = finished = rejected = firsts = unread = running = waiting = 0
    engine.respond(failed=0.0)
    total = 0.0
    for events in [*history, ["read"] * 200]:
        for event in events:
            match event:
                case "arrive":
                    came, waiting = came + 1, waiting + 1
                case "read" if unread:
                    firsts, unread = firsts + 1, unread - 1
                case "read" if waiting:
                    waiting, running, unread = waiting - 1, running + 1, unread + 1
                case "finish" if running > unread:
                    finished, running = finished + 1, running - 1
                case "leave" if running > unread:
                    running -= 1
                case "reject":
                    came, rejected = came + 1, rejected + 1
        page = {"waiting": waiting, "running": running, "failed": rejected}
        values = engine.respond(1.0, **page, finished=finished, first_tokens=firsts)
        total += rate(values, WorkRate.ARRIVED)
        assert came - unread <= round(total, 6) <= came
    assert round(total, 6) == came


def test_second_response_of_the_same_moment_has_no_rates(engine):
    engine.respond(finished=10.0)
    assert np.isnan(engine.respond(0.0, finished=12.0)[Column.RATES :]).all()
    assert rate(engine.respond(5.0, finished=17.0), WorkRate.FINISHED) == 1.0


def test_clock_set_back_has_no_rates_once(engine):
    engine.respond(finished=10.0)
    assert np.isnan(engine.respond(-3600.0, finished=12.0)[Column.RATES :]).all()
    assert rate(engine.respond(5.0, finished=17.0), WorkRate.FINISHED) == 1.0


OF_REQUESTS = (WorkRate.ARRIVED, WorkRate.FINISHED)


@pytest.mark.parametrize("name", ["generated", "finished", "first_tokens", "prompt"])
def test_engine_without_a_counter_of_requests_or_tokens_is_uncounted_and_has_only_times_between_tokens(engine, name):
    engine.respond(without=[name], running=3.0)
    values = engine.respond(without=[name], running=3.0, gaps=50.0, gap_seconds=1.0)
    assert values[Column.UNCOUNTED] == 1.0
    assert all(isnan(rate(values, which)) for which in range(WorkRate.GAPS) if which not in OF_REQUESTS)
    assert (rate(values, WorkRate.GAPS), rate(values, WorkRate.GAP_SECONDS)) == (10.0, 0.2)


@pytest.mark.parametrize("name", ["generated", "first_tokens", "prompt"])
def test_requests_are_counted_where_tokens_are_not(engine, name):
    engine.respond(without=[name], waiting=1.0, running=3.0, finished=100.0)
    values = engine.respond(without=[name], waiting=2.0, running=4.0, finished=110.0)
    assert [rate(values, which) for which in OF_REQUESTS] == pytest.approx([2.4, 2.0])


@pytest.mark.parametrize("missing", [{"waiting": nan}, {"running": nan}, {"without": ["generated", "finished"]}])
def test_requests_are_not_counted_without_those_in_hand_and_those_that_finished(engine, missing):
    usual = {"without": ["generated"], "finished": 100.0, "running": 3.0, **missing}
    engine.respond(**usual)
    values = engine.respond(**usual)
    assert all(isnan(rate(values, which)) for which in OF_REQUESTS)


@pytest.mark.parametrize("name", ["gaps", "gap_seconds"])
def test_engine_without_times_between_tokens_counts_the_rest(engine, name):
    engine.respond(without=[name], generated=0.0)
    values = engine.respond(without=[name], generated=50.0)
    assert (values[Column.UNCOUNTED], rate(values, WorkRate.GENERATED)) == (0.0, 10.0)
    assert isnan(rate(values, WorkRate.GAPS))
    assert isnan(rate(values, WorkRate.GAP_SECONDS))


def test_tokens_that_a_cache_had_are_not_computed(engine):
    engine.respond(computed=0.0)
    values = engine.respond(prompt=500.0, computed=50.0)
    assert (rate(values, WorkRate.PROMPT), rate(values, WorkRate.COMPUTED)) == (100.0, 10.0)


def test_all_prompt_tokens_count_as_computed_while_the_computed_ones_are_unknown(engine):
    engine.respond()
    assert rate(engine.respond(prompt=500.0), WorkRate.COMPUTED) == 100.0
    # The first response that has them shows no rise yet, and their whole count is none.
    assert rate(engine.respond(prompt=1000.0, computed=900.0), WorkRate.COMPUTED) == 100.0
    assert rate(engine.respond(prompt=1500.0, computed=950.0), WorkRate.COMPUTED) == 10.0
    assert rate(engine.respond(prompt=2000.0), WorkRate.COMPUTED) == 100.0


@pytest.mark.parametrize("name", COUNTERS)
def test_counter_that_is_missing_in_one_response_is_unknown_twice_and_loses_no_later_rise(engine, name):
    which = COUNTERS[name][0]
    engine.respond(**{name: 100.0})
    assert isnan(rate(engine.respond(without=[name]), which))
    values = engine.respond(**{name: 900.0})
    assert isnan(rate(values, which))
    # What is known of the others would change the means: a request without its tokens.
    assert np.isnan(values[Column.RATES :]).all() == (which < WorkRate.GAPS)
    assert rate(engine.respond(**{name: 950.0}), which) == 10.0


MOVES = st.lists(
    st.tuples(st.floats(0.5, 60.0), st.integers(0, 30), st.floats(0.0, 1.0), st.floats(0.0, 1.0)), min_size=1
)


@given(MOVES)
@settings(max_examples=examples(200))
def test_arrivals_are_finished_requests_and_the_change_of_those_in_hand(moves):
    engine, waiting, running, finished = Engine(), 0, 0, 0
    engine.respond()
    counted = arrived = 0.0
    for after, come, started, ended in moves:
        arrived += come
        start, end = int(started * (waiting + come)), int(ended * running)
        waiting, running, finished = waiting + come - start, running + start - end, finished + end
        values = engine.respond(after, waiting=waiting, running=running, finished=finished)
        counted += rate(values, WorkRate.ARRIVED) * after
    # A moment as POSIX seconds is good for 0.2 us.
    assert counted == pytest.approx(arrived, rel=1e-5, abs=1e-4)


@pytest.fixture
def latest():
    sources = [TargetRules(CHAT, pods=True)]
    return LatestSamples(sources, owners_by_name({CHAT: None}), limit_s=15.0)


def pod(number):
    return Target(f"http://10.0.0.{number}:8000/metrics", "vllm", Role.PODS, CHAT)


def totals(latest, now):
    return latest.totals(np.array([0]), now)


def test_gateway_holds_requests_that_arrive(latest, samples, page):
    latest.land(GATEWAY, samples(page.epp(held=0, ready=0)), 100.0)
    latest.land(GATEWAY, samples(page.epp(held=10, ready=0)), 105.0)
    assert totals(latest, 105.0).rates[0, WorkRate.ARRIVED] == 2.0
    assert np.isnan(totals(latest, 105.0).rates[0, WorkRate.GENERATED])


def test_request_that_a_gateway_passes_on_has_arrived_once(latest, samples, page):
    counted = {"finished": 0, "tokens": 0, "first_tokens": 0, "prompt": 0}
    for at, held, running in ((100.0, 0, 0), (105.0, 10, 0), (110.0, 0, 10), (115.0, 0, 10)):
        latest.land(GATEWAY, samples(page.epp(held=held, ready=1)), at)
        latest.land(pod(0), samples(page.vllm(waiting=0, running=running, **counted)), at)
        arrived = totals(latest, at).rates[0, WorkRate.ARRIVED]
        assert arrived == {100.0: pytest.approx(nan, nan_ok=True), 105.0: 2.0, 110.0: 0.0, 115.0: 0.0}[at]


def test_engine_without_token_counters_makes_its_workload_uncounted(latest, samples, page):
    latest.land(
        pod(0), samples(page.vllm(waiting=0, running=1, finished=1, tokens=10, first_tokens=1, prompt=1)), 100.0
    )
    assert totals(latest, 100.0).uncounted.tolist() == [0.0]
    latest.land(pod(1), samples(page.vllm(waiting=0, running=1, finished=1)), 100.0)
    assert totals(latest, 100.0).uncounted.tolist() == [1.0]


def test_target_that_does_not_answer_has_no_rates_once_it_is_stale(latest, samples, page):
    for at, finished in ((100.0, 0), (105.0, 10)):
        for number in (0, 1):
            counted = page.vllm(
                waiting=0, running=0, finished=finished, tokens=10 * finished, first_tokens=finished, prompt=1
            )
            latest.land(pod(number), samples(counted), at)
    assert totals(latest, 120.0).rates[0, WorkRate.FINISHED] == 4.0
    latest.land(
        pod(0), samples(page.vllm(waiting=0, running=0, finished=20, tokens=200, first_tokens=20, prompt=1)), 121.0
    )
    assert totals(latest, 121.0).rates[0, WorkRate.FINISHED] == pytest.approx(10 / 16)


def test_target_that_returns_under_the_same_address_begins_anew(latest, samples, page):
    counted = page.vllm(waiting=0, running=3, finished=5, tokens=50, first_tokens=5, prompt=1)
    latest.land(pod(0), samples(counted), 100.0)
    latest.retire(pod(0))
    latest.land(pod(0), samples(counted), 105.0)
    assert np.isnan(totals(latest, 105.0).rates).all()


@given(
    st.lists(st.integers(0, 49), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)), min_size=2, max_size=8),
)
@settings(max_examples=examples(25))
def test_sum_over_pods_scraped_at_different_moments_is_exact_on_the_mean(samples, page, offsets, turns):
    """The integral of the summed rates over time is what the counters rose by, whenever each pod is scraped."""
    latest = LatestSamples([TargetRules(CHAT, pods=True)], owners_by_name({CHAT: None}), limit_s=15.0)
    # Each pod at its tenth of a second, every 5 s, and once more with the same numbers, so that the last rise counts.
    turns = [*turns, (0, turns[-1][1])]
    responses = sorted(
        (50 * turn + offset, turn, number) for number, offset in enumerate(offsets) for turn in range(len(turns))
    )
    rises = np.cumsum([rise for rise, _ in turns])
    finished = arrived = 0.0
    before = 0
    for tenths, turn, number in responses:
        now, passed = before / 10, (tenths - before) / 10
        summed = totals(latest, now).rates[0]
        finished += np.nan_to_num(summed[WorkRate.FINISHED]) * passed
        arrived += np.nan_to_num(summed[WorkRate.ARRIVED]) * passed
        page_now = page.vllm(
            waiting=0, running=turns[turn][1], finished=int(rises[turn]), tokens=0, first_tokens=0, prompt=0
        )
        latest.land(pod(number), samples(page_now), tenths / 10)
        before = tenths
    rise = int(rises[-1] - rises[0])
    assert finished == pytest.approx(len(offsets) * rise, abs=1e-4)
    in_hand = turns[-1][1] - turns[0][1]
    assert arrived == pytest.approx(len(offsets) * (rise + in_hand), abs=1e-4)
