"""First tokens and times between tokens are read from the histograms of vLLM and SGLang, by their new or old names."""

from __future__ import annotations

from math import isnan

import pytest

from exporter.catalog import KINDS
from exporter.model import Quantity

Q = Quantity

VLLM = """
    vllm:num_requests_running{engine="0",model_name="m"} 1.0
    vllm:num_requests_running{engine="1",model_name="m"} 1.0
    vllm:time_to_first_token_seconds_bucket{engine="0",le="0.25",model_name="m"} 5.0
    vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 7.0
    vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 7.0
    vllm:time_to_first_token_seconds_count{engine="1",model_name="m"} 3.0
    vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 2.5
    vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 400.0
    vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 400.0
    vllm:inter_token_latency_seconds_count{engine="1",model_name="m"} 100.0
    vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 8.0
    vllm:inter_token_latency_seconds_sum{engine="1",model_name="m"} 2.0
    vllm:request_time_per_output_token_seconds_count{engine="0",model_name="m"} 6.0
    vllm:request_time_per_output_token_seconds_sum{engine="0",model_name="m"} 0.12
    vllm:e2e_request_latency_seconds_count{engine="0",model_name="m"} 6.0
    """

SGLANG = """
    sglang:num_running_reqs{model_name="m",dp_rank="0",tp_rank="0"} 4
    sglang:num_running_reqs{model_name="m",dp_rank="1",tp_rank="0"} 4
    sglang:time_to_first_token_seconds_count{model_name="m",dp_rank="0",tp_rank="0"} 7
    sglang:time_to_first_token_seconds_count{model_name="m",dp_rank="0",tp_rank="1"} 7
    sglang:time_to_first_token_seconds_count{model_name="m",dp_rank="1",tp_rank="0"} 3
    sglang:time_to_first_token_seconds_bucket{model_name="m",dp_rank="1",tp_rank="0",le="+Inf"} 3
    sglang:inter_token_latency_seconds_count{model_name="m",dp_rank="0",tp_rank="0"} 400
    sglang:inter_token_latency_seconds_count{model_name="m",dp_rank="1",tp_rank="0"} 100
    sglang:inter_token_latency_seconds_sum{model_name="m",dp_rank="0",tp_rank="0"} 8
    sglang:inter_token_latency_seconds_sum{model_name="m",dp_rank="1",tp_rank="0"} 2
    """


@pytest.fixture(params=[VLLM, SGLANG], ids=["vllm", "sglang"])
def text(request):
    return request.param


def times(samples, cell):
    return [cell(samples, "m", quantity) for quantity in (Q.FIRST_TOKENS, Q.ITL_COUNT, Q.ITL_SECONDS)]


def test_counts_and_sums_of_the_engines_add_up_and_copies_and_buckets_do_not(read, cell, text):
    assert times(read(text), cell) == [10.0, 500.0, 10.0]


def test_older_name_of_the_times_between_tokens_is_the_same_quantity(read, cell, text):
    old = text.replace(":inter_token_latency_seconds", ":time_per_output_token_seconds")
    assert times(read(old), cell) == [10.0, 500.0, 10.0]


def test_target_with_both_names_counts_each_time_once(read, cell, text):
    both = text + text.replace(":inter_token_latency_seconds", ":time_per_output_token_seconds")
    assert times(read(both), cell)[1:] == [500.0, 10.0]


def test_time_per_request_is_no_time_between_tokens(read, cell):
    without = "\n".join(line for line in VLLM.splitlines() if "inter_token" not in line)
    samples = read(without)
    assert cell(samples, "m", Q.FIRST_TOKENS) == 10.0
    assert all(quantity not in samples.quantities for quantity in (Q.ITL_COUNT, Q.ITL_SECONDS))


def test_count_of_an_engine_that_is_not_a_number_makes_the_sum_unknown(read, cell):
    broken = VLLM.replace(
        'seconds_count{engine="1",model_name="m"} 3.0', 'seconds_count{engine="1",model_name="m"} NaN'
    )
    assert isnan(cell(read(broken), "m", Q.FIRST_TOKENS))


def test_workers_of_vllm_on_ray_have_their_times_as_well(read, cell):
    samples = read(VLLM.replace("vllm:", "ray_vllm:"))
    assert samples.kind == "ray_vllm"
    assert times(samples, cell) == [10.0, 500.0, 10.0]


def test_kinds_that_count_requests_tokens_and_times_between_them_are_sized_by_an_slo():
    assert {name for name, kind in KINDS.items() if kind.sized_by_slo} == {
        "vllm", "sglang", "ray_vllm", "nim", "lmdeploy", "tidegate",
    }  # fmt: skip


def test_kinds_that_count_finished_requests_beside_those_in_hand_are_sized_by_their_time():
    timed = {name for name, kind in KINDS.items() if kind.times_requests and not kind.sized_by_slo}
    assert timed == {"tgi", "triton", "trtllm", "ray_serve", "celery", "dynamo"}  # the last two are no engines


def test_kind_whose_slo_is_only_measured_says_why():
    measured = {name for name, kind in KINDS.items() if kind.measures_slo and not kind.sized_by_slo}
    assert measured == {name for name, kind in KINDS.items() if kind.unsized} == {"triton", "trtllm"}
