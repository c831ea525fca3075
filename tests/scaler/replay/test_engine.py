"""Tests one replica, step by step: every number here is computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from scaler.replay.columns import (
    ALIVE,
    FINISHED,
    FINISHED_TOKENS,
    FIRSTS,
    POD_S,
    READ_TOKENS,
    TPOT,
    TPOT_BOUNDS,
    TTFT,
    TTFT_BOUNDS,
)
from scaler.replay.metric_pages import (
    AT_GATE,
    BUSY_S,
    DECODED_S,
    EXISTING,
    LIVE_POD_S,
    READY_NOW,
    RUNNING,
    TOKENS_GENERATED,
    WAITING,
    WANTED,
    look,
    request_seconds,
)


def test_single_request_takes_its_prompt_and_then_a_step_per_token(deployment, server):
    one = deployment(server(), [(5.0, 100, 3)]).scale(1).until(10)

    # 0.01 s for the step and 100/1000 s for the prompt, then two more tokens.
    assert one.first == pytest.approx([5.11])
    assert one.done == pytest.approx([5.13])


def test_request_that_arrives_within_a_step_joins_at_its_end(deployment, server):
    two = deployment(server(), [(0.0, 100, 100), (0.115, 50, 1)]).scale(1).until(10)

    # The first decodes from 0.11 on in steps of 0.01: the step in progress at 0.115 ends at 0.12. Then the prompt of
    # the second is read: 0.01 + 0.05, at the end of which both have a token.
    assert two.first == pytest.approx([0.11, 0.18])
    # Of the first's 99 decode steps one took 0.06 and the others 0.01.
    assert two.done == pytest.approx([0.11 + 98 * 0.01 + 0.06, 0.18])


def test_each_step_costs_more_with_every_token_of_context(deployment, server):
    one = deployment(server(step=0.0, per_token=1e-3, prompt_rate=1e12), [(0.0, 10, 4)]).scale(1).until(10)

    # The first token makes a context of 11; the three steps after it read 11, 12 and 13 tokens.
    assert one.done - one.first == pytest.approx([0.036])


def test_long_prompt_is_read_in_chunks_beside_decoding(deployment, server):
    both = deployment(server(chunk=101), [(0.0, 100, 50), (0.195, 200, 1)]).scale(1).until(10)

    # It joins at 0.2. Beside one decoding sequence 100 tokens fit into a chunk: two steps of 0.01 + 0.1.
    assert both.first[1] == pytest.approx(0.2 + 0.22)


def test_full_batch_delays_the_next_request_until_a_sequence_ends(deployment, server):
    pair = deployment(server(batch=1, prompt_rate=1e12), [(0.0, 1, 10), (0.01, 1, 10)]).scale(1).until(10)

    assert pair.done[0] == pytest.approx(0.1)
    assert pair.first[1] == pytest.approx(0.11)


def test_full_cache_delays_the_next_request_and_one_too_large_for_it_is_served_alone(deployment, server):
    pair = deployment(server(kv=100, prompt_rate=1e12), [(0.0, 90, 5), (0.01, 200, 1), (0.01, 1, 1)]).scale(1).until(10)

    assert pair.done[0] == pytest.approx(0.05)
    assert pair.first[1] == pytest.approx(0.06)
    assert pair.first[2] == pytest.approx(0.07)


def test_gateway_holds_requests_while_no_pod_is_ready(deployment, server):
    cold = deployment(server(prompt_rate=1e12), [(1.0, 1, 1), (2.0, 1, 1)]).scale(1, start_s=30.0)

    observation = look(cold.until(10).world, cold.server)
    assert (observation[AT_GATE], observation[WAITING], observation[READY_NOW], observation[EXISTING]) == (
        2.0,
        0.0,
        0.0,
        1.0,
    )
    cold.until(40)
    assert cold.first == pytest.approx([30.01, 30.01])


def test_request_goes_to_the_fewest_waiting_prompt_tokens_and_then_the_fewest_requests(deployment, server):
    spread = deployment(server(), [(0.0, 1000, 1), (0.1, 10, 500), (2.0, 10, 1)]).scale(2).until(3)

    # The second goes to the idle replica at once; the third, with no prompt being read, to the one without work.
    assert spread.first == pytest.approx([1.01, 0.12, 2.02])


def test_draining_replica_ends_its_work_and_takes_no_more(deployment, server):
    pair = (
        deployment(server(prompt_rate=1e12), [(0.0, 1, 1000), (0.0, 1, 1000), (5.0, 1, 1)]).scale(2).until(4).scale(1)
    )

    assert (look(pair.world, pair.server)[WANTED], look(pair.world, pair.server)[EXISTING]) == (1.0, 2.0)
    pair.until(20)
    assert pair.done[:2] == pytest.approx([10.0, 10.0], abs=0.02)
    assert pair.world.counts[ALIVE] == 1
    assert pair.world.numbers[POD_S] == pytest.approx(10.0)  # from its creation to the end of its drain


def test_pods_that_are_not_ready_are_removed_first_and_at_once(deployment, server):
    grown = deployment(server(), []).scale(1).until(1).scale(3, start_s=60.0).until(10).scale(1)

    assert look(grown.world, grown.server)[[READY_NOW, EXISTING]].tolist() == [1.0, 1.0]
    assert grown.world.numbers[POD_S] == pytest.approx(18.0)


def test_observation_within_a_run_is_complete_up_to_now(deployment, server):
    one = deployment(server(prompt_rate=1e12), [(1.0, 1, 101)]).scale(1).until(1.505)

    observation = look(one.world, one.server)
    assert observation[RUNNING] == 1.0
    assert observation[BUSY_S] == pytest.approx(0.505)
    assert observation[TOKENS_GENERATED] == 50.0
    assert observation[LIVE_POD_S] == pytest.approx(1.505)


def test_pulling_workers_take_one_job_each_and_the_rest_waits_at_the_gateway(deployment, server):
    jobs = [(0.0, 1, 10)] * 3
    pool = deployment(server(step=1.0, prompt_rate=1e12, slots=1), jobs).scale(2).until(5)

    assert look(pool.world, pool.server)[[RUNNING, AT_GATE]].tolist() == [2.0, 1.0]
    pool.until(30)
    assert pool.done == pytest.approx([10.0, 10.0, 20.0])


def test_observation_interval_changes_nothing(deployment, server):
    rng = np.random.default_rng(3)
    load = list(
        zip(np.sort(rng.uniform(0, 50, 400)), rng.integers(1, 500, 400), rng.integers(1, 200, 400), strict=True)
    )
    real = server(0.01, 1e-4, 1e-7, 5000.0, batch=8, kv=4000)
    whole = deployment(real, load).scale(3).until(500)
    parts = deployment(real, load).scale(3)
    for at in np.arange(0.0, 500.0, 0.37):
        parts.until(at)
    parts.until(500)

    np.testing.assert_array_equal(whole.done, parts.done)


@pytest.fixture
def random_load():
    rng = np.random.default_rng(7)
    return list(
        zip(np.sort(rng.uniform(0, 50, 400)), rng.integers(1, 500, 400), rng.integers(1, 200, 400), strict=True)
    )


@pytest.fixture
def real(server):
    """A replica on which everything costs: sequences, contexts, prompts; with a batch and a cache that fill."""
    return server(0.01, 1e-4, 1e-7, 5000.0, batch=8, kv=4000)


def test_counters_have_every_request_once(deployment, real, random_load):
    served = deployment(real, random_load).scale(3).until(500)

    prompts, outputs = (sum(int(each[column]) for each in random_load) for column in (1, 2))
    counts = served.world.counts
    assert counts[[FIRSTS, FINISHED]].tolist() == [400, 400]
    assert counts[[READ_TOKENS, FINISHED_TOKENS]].tolist() == [prompts, outputs]
    assert look(served.world, real)[TOKENS_GENERATED] == outputs


@pytest.mark.parametrize("until", [0.0, 3.0, 20.0, 45.0, 500.0])
def test_histograms_count_each_request_once_in_the_bucket_of_its_time(deployment, real, random_load, until):
    served = deployment(real, random_load).scale(3).until(until)

    first = (served.first - served.at)[~np.isnan(served.first)]
    output = np.array([each[2] for each in random_load])
    done = ~np.isnan(served.done) & (output > 1)  # one token has no time per further token
    rest = (served.done - served.first)[done] / (output[done] - 1)
    for histogram, bounds, values in ((TTFT, TTFT_BOUNDS, first), (TPOT, TPOT_BOUNDS, rest)):
        counted = served.world.histograms[histogram]
        # A value on a bound is in the bucket below it, as `le` says.
        expected = np.bincount(np.searchsorted(bounds, values, side="left"), minlength=len(counted))
        np.testing.assert_array_equal(counted, expected)
        assert counted.sum() == len(values)
    assert len(first) == served.world.counts[FIRSTS]


def test_value_on_a_bound_and_above_all_bounds_have_their_buckets(deployment, server):
    # The first tokens come after 0.25 s, on the bound, and after 3,000 s, above the last.
    slow = deployment(server(step=0.25, prompt_rate=1e300), [(0.0, 1, 1)]).scale(1).until(10)
    cold = deployment(server(prompt_rate=1e12), [(0.0, 1, 1)]).scale(1, start_s=3000.0).until(4000)

    assert np.flatnonzero(slow.world.histograms[TTFT]).tolist() == [TTFT_BOUNDS.index(0.25)]
    assert np.flatnonzero(cold.world.histograms[TTFT]).tolist() == [len(TTFT_BOUNDS)]


def test_time_between_tokens_of_a_lone_sequence_is_its_step(deployment, server):
    one = deployment(server(step=0.02, prompt_rate=1e12), [(1.0, 1, 101)]).scale(1)

    for until, tokens in ((1.03, 1), (2.01, 50), (2.51, 75), (10.0, 101)):
        pages = look(one.until(until).world, one.server)
        assert pages[TOKENS_GENERATED] == tokens
        assert pages[DECODED_S] == pytest.approx((tokens - 1) * 0.02)


def test_two_sequences_within_a_run_have_a_step_of_time_each(deployment, server):
    # First tokens at 1.02 and 1.04, as the second request joins a step later; at 2.01 they have 49 and 48 more.
    two = deployment(server(step=0.02, prompt_rate=1e12), [(1.0, 1, 101), (1.0, 1, 101)]).scale(1).until(2.01)

    pages = look(two.world, two.server)
    assert pages[TOKENS_GENERATED] - two.world.counts[FIRSTS] == 97
    assert pages[DECODED_S] == pytest.approx(97 * 0.02)


def test_time_between_tokens_grows_with_the_context_as_the_steps_do(deployment, server):
    one = deployment(server(step=0.0, per_token=1e-3, prompt_rate=1e12), [(0.0, 10, 4)]).scale(1).until(10)

    assert look(one.world, one.server)[DECODED_S] == pytest.approx(0.011 + 0.012 + 0.013)


def test_time_between_tokens_is_that_of_all_sequences_from_their_first_to_their_last_token(
    deployment, real, random_load
):
    served = deployment(real, random_load).scale(3).until(500)

    assert look(served.world, real)[DECODED_S] == pytest.approx(float((served.done - served.first).sum()))


def test_time_between_tokens_never_falls_whenever_it_is_looked_at(deployment, real, random_load):
    served, before = deployment(real, random_load).scale(3), (0.0, 0.0)
    for at in np.arange(0.0, 90.0, 0.29):
        pages = look(served.until(at).world, real)
        now = pages[TOKENS_GENERATED], pages[DECODED_S]
        assert now >= before
        assert now[1] >= before[1] - 1e-9
        before = now


def test_request_seconds_are_the_integral_of_the_requests_in_hand(deployment, server):
    # The first is served from 5.0 to 5.13, the second from 20.0 to 20.13 on another replica that is drained at 20.05.
    pair = deployment(server(), [(5.0, 100, 3), (20.0, 100, 3)]).scale(1)
    for at, expected in ((5.0, 0.0), (5.05, 0.05), (5.12, 0.12), (10.0, 0.13), (20.05, 0.18)):
        assert request_seconds(pair.until(at).world) == pytest.approx(expected)
    pair.scale(0)
    assert request_seconds(pair.until(20.1).world) == pytest.approx(0.18), "a draining pod is not counted"
    assert request_seconds(pair.until(30.0).world) == pytest.approx(0.18)


def test_request_seconds_include_the_gateway_and_stand_still_without_requests(deployment, server):
    pair = deployment(server(), [(1.0, 100, 3), (3.0, 100, 3)])
    assert request_seconds(pair.until(4.0).world) == pytest.approx(3.0 + 1.0)
    pair.scale(1)  # both prompts are read in one step of 0.21 s, and then there are two steps
    after = request_seconds(pair.until(10.0).world)
    assert after == pytest.approx(4.0 + 2 * 0.23)
    assert request_seconds(pair.until(1e6).world) == after, "exactly: a rest of rounding would be traffic"
