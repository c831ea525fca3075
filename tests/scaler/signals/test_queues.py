"""Which requests of a gateway's or an engine's response count, and which of its series show one at zero replicas."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import numpy as np
import pytest

from exporter.model import Gap, GapReason, Quantity, Role
from scaler.signals.queues import Incomplete, WakeSource, has_served, incomplete, read
from scaler.signals.slots import Column

COLUMNS = [Column.WAITING, Column.RUNNING, Column.HELD, Column.IN_FLIGHT, Column.OPEN]
REDIS = 'redis_up 1\nredis_key_size{db="db0",key="jobs"} 5\n'
HTTP_ADDON = 'interceptor_request_concurrency{route_namespace="ai",route_name="chat"} 3\n'
ENVOY = 'envoy_cluster_upstream_rq_active{envoy_cluster_name="chat"} 4\n'
ENVOY_REFUSED = 'envoy_cluster_upstream_cx_none_healthy{envoy_cluster_name="chat"} 0\n'
PRODUCTION_STACK = 'vllm:num_incoming_requests_total{model="m"} 4\n'
LITELLM = "litellm_in_flight_requests 2\nlitellm_proxy_failed_requests_metric_total 0\n"
EPP = (
    'inference_extension_flow_control_queue_size{inference_pool="p"} 2\ninference_pool_ready_pods{name="p"} 2\n'
    'inference_pool_average_queue_size{name="p"} 1\ninference_pool_average_running_requests{name="p"} 3\n'
    'inference_objective_running_requests{model_name="m"} 7\n'
)
EPP_PLAIN = EPP.partition("\n")[2]
EPP_ERRORS = 'inference_objective_request_error_total{model_name="m",error_code="ServiceUnavailable"} 0\n'


def of_gateway(samples, pods=True, queue=None, namespace="ai"):
    return read(samples, Role.GATEWAY, queue, 1000.0, pods=pods, namespace=namespace)


@pytest.mark.parametrize(("kind", "text", "wake_source", "with_pods", "alone"), [
    # Waiting, running, held, in flight, open. Its requests are no others' and stay at zero replicas.
    ("redis_exporter", REDIS, WakeSource.QUEUE, (5, nan, nan, nan, 0), (5, nan, nan, nan, 0)),
    # What waits for a replica and what one works on are one number, and that of the engines is a part of it.
    ("http_addon", HTTP_ADDON, WakeSource.QUEUE, (nan, nan, nan, 3, 3), (nan, 3, nan, nan, 3)),
    # Its own queue stays; what it shows of the engines is gone with them.
    ("epp", EPP, WakeSource.QUEUE, (nan, nan, 2, nan, 7), (2, 6, 2, nan, 7)),
    ("epp", EPP_PLAIN, WakeSource.NOTHING, (nan, nan, nan, nan, 7), (2, 6, nan, nan, 7)),
    ("epp", EPP_PLAIN + EPP_ERRORS, WakeSource.REFUSALS, (nan, nan, nan, nan, 7), (2, 6, nan, nan, 7)),
    # It refuses what finds no replica. What it has passed on, it counts itself.
    ("envoy", ENVOY, WakeSource.NOTHING, (nan, nan, nan, nan, 4), (nan, 4, nan, nan, 4)),
    ("envoy", ENVOY + ENVOY_REFUSED, WakeSource.REFUSALS, (nan, nan, nan, nan, 4), (nan, 4, nan, nan, 4)),
    ("envoy", ENVOY_REFUSED, WakeSource.REFUSALS, (nan, nan, nan, nan, nan), (nan, nan, nan, nan, nan)),
    ("litellm", LITELLM, WakeSource.REFUSALS, (nan, nan, nan, nan, nan), (nan, 2, nan, nan, nan)),
    # It counts all requests as they arrive.
    ("production_stack", PRODUCTION_STACK, WakeSource.REFUSALS, 5 * (nan,), 5 * (nan,)),
    ("vllm", 'vllm:num_requests_waiting{model_name="m"} 1\n', WakeSource.NOTHING, (1, *3 * (nan,), nan), None),
])  # fmt: skip
def test_requests_of_engines_that_are_scraped_themselves_count_once(samples, kind, text, wake_source, with_pods, alone):
    response = samples(text, kind)
    for pods, expected in ((True, with_pods), (False, alone or with_pods)):
        page = of_gateway(response, pods)
        np.testing.assert_equal(page.values[COLUMNS], expected)
        assert (page.wake_source, page.arrivals) == (wake_source, kind == "production_stack")


def test_queue_is_found_by_its_name_in_the_namespace_of_the_workload(samples):
    response = samples(HTTP_ADDON, "http_addon")
    assert of_gateway(response, queue="chat").values[Column.IN_FLIGHT] == 3.0
    for queue, namespace in (("chat", "other"), ("code", "ai")):
        page = of_gateway(response, queue=queue, namespace=namespace)
        assert np.isnan(page.values[Column.RUNNING])
        assert page.wake_source is WakeSource.NOTHING


def gap(quantity, row=0, at_least=nan):
    return Gap(row, quantity, at_least, GapReason.INVALID, "series")


def test_gap_in_what_a_gateway_repeats_counts_only_without_engines(samples):
    repeated, counter = gap(Quantity.REQUESTS_RUNNING, at_least=4.0), gap(Quantity.REQUESTS_FAILED)
    response = replace(samples(ENVOY + ENVOY_REFUSED, "envoy"), gaps=(repeated, counter, gap(repeated.quantity, 9)))
    with_engines, alone = of_gateway(response), of_gateway(response, pods=False)
    assert (with_engines.gaps, with_engines.incomplete) == ((counter,), Incomplete.COUNTERS)
    assert (alone.gaps, alone.incomplete) == ((repeated, counter), Incomplete.COUNTERS | Incomplete.IN_HAND)
    # Of one number that is in flight everything is its own.
    in_flight = replace(samples(HTTP_ADDON, "http_addon"), gaps=(repeated,))
    assert of_gateway(in_flight).incomplete is Incomplete.IN_HAND


def test_incomplete_requests_are_what_is_known_of_them_and_incomplete_counters_are_unknown(samples, page):
    both = page.vllm(waiting=2, finished=7, model="a") + page.vllm(waiting=3, finished=8, model="b")
    whole = samples(both, "vllm")
    values = whole.values.copy()
    values[0] = nan
    gaps = (gap(Quantity.REQUESTS_WAITING, at_least=1.0), gap(Quantity.REQUESTS_FINISHED))
    part = replace(whole, values=values, gaps=gaps)
    for response, waiting, finished in ((whole, 5.0, 15.0), (part, 4.0, nan), (replace(part, gaps=()), nan, nan)):
        sums = read(response, Role.PODS, None, 1000.0, pods=True).sums
        np.testing.assert_equal(
            [sums[Quantity.REQUESTS_WAITING], sums[Quantity.REQUESTS_FINISHED]], [waiting, finished]
        )
    # Nothing of any queue is known.
    values[:] = nan
    none = replace(whole, values=values, gaps=(*gaps, gap(Quantity.REQUESTS_WAITING, 1)))
    assert read(none, Role.PODS, None, 1000.0, pods=True).sums[Quantity.REQUESTS_WAITING] == 1.0


def test_each_quantity_makes_its_group_a_lower_bound():
    groups = {
        Quantity.REQUESTS_HELD: Incomplete.IN_HAND, Quantity.TOKENS_PROMPT: Incomplete.COUNTERS,
        Quantity.KV_CACHE_USED: Incomplete.KV_CACHE, Quantity.REPLICAS_READY: Incomplete.NOTHING,
    }  # fmt: skip
    assert {quantity: incomplete([gap(quantity)]) for quantity in groups} == groups
    assert [group.value for group in groups.values()] == [1, 2, 4, 0]  # bits of a slot
    assert incomplete(map(gap, groups)) == Incomplete.IN_HAND | Incomplete.COUNTERS | Incomplete.KV_CACHE


def test_kv_cache_of_an_engine_is_the_mean_of_its_models_and_one_that_sleeps_is_enough(samples, page):
    def both(**second):
        text = page.vllm(waiting=0, kv=0.2, awake=1, model="a") + page.vllm(waiting=0, model="b", **second)
        return read(samples(text, "vllm"), Role.PODS, None, 1000.0, pods=True).values

    assert both(kv=0.6, awake=1)[[Column.KV_CACHE, Column.SLEEPING]].tolist() == pytest.approx([0.4, 0.0])
    assert both(awake=0)[[Column.KV_CACHE, Column.SLEEPING]].tolist() == pytest.approx([0.2, 1.0])
    awake = read(samples(page.vllm(waiting=0), "vllm"), Role.PODS, None, 1000.0, pods=True).values
    assert np.isnan(awake[[Column.KV_CACHE, Column.SLEEPING]]).all()


def test_engine_has_served_once_it_has_counted_a_token_or_a_finished_request(samples, page):
    for counters, expected in (({}, False), ({"tokens": 0, "finished": 0}, False), ({"tokens": 1}, True),
                               ({"finished": 1}, True)):  # fmt: skip
        assert has_served(samples(page.vllm(waiting=0, **counters), "vllm")) == expected
