"""Tests one replica, step by step: every number here is computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from scaler.replay.columns import ALIVE, POD_S
from scaler.replay.metric_pages import (
    AT_GATE,
    BUSY_S,
    EXISTING,
    LIVE_POD_S,
    READY_NOW,
    RUNNING,
    TOKENS_GENERATED,
    WAITING,
    WANTED,
    look,
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
