"""Tests the histograms of a response: split at a limit, added up over engines, and unknown where they cannot be."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.catalog import KINDS, Reader, selection
from exporter.histogram import NEAR, Latency, LatencyBuckets, LatencyHistograms, Split
from exporter.textformat import Scanner
from tests.budget import examples

TTFT, TPOT = Latency


def one(counts):
    """The histogram with these cumulative counts by bound, of the only subject."""
    buckets = LatencyBuckets(tuple(counts), tuple(range(len(counts))))
    return LatencyHistograms(np.array(list(counts.values()), dtype=float), {TTFT: {0: ((buckets,),)}})


def split(counts, limit):
    return one(counts).split(TTFT, [0], limit)


def test_worked_example_of_the_module():
    assert split({1.0: 90, 2.5: 96, inf: 100}, 2.0) == pytest.approx(Split(90.0, 4.0, 2.0, 4.0))


def test_bound_of_a_bucket_as_limit_needs_no_interpolation():
    assert split({1.0: 90, 2.5: 96, inf: 100}, 2.5) == Split(96.0, 0.0, 0.0, 4.0)


def test_limit_below_the_first_bound_is_between_it_and_zero():
    assert split({1.0: 90, inf: 100}, 0.5) == Split(0.0, 45.0, 45.0, 10.0)


TIMES = st.lists(st.floats(0.0, 100.0), max_size=60)
BOUNDS = st.lists(st.floats(0.01, 90.0), min_size=1, max_size=12, unique=True).map(sorted)


@given(TIMES, BOUNDS, st.floats(0.01, 90.0))
@settings(max_examples=examples(300))
def test_late_observations_are_between_those_surely_late_and_those_possibly_late(times, bounds, limit):
    counts = {bound: sum(time <= bound for time in times) for bound in (*bounds, inf)}
    found = split(counts, limit)
    near = any(limit <= bound <= NEAR * limit for bound in bounds)
    assert (found is not None) == near
    if found is not None:
        late = sum(time > limit for time in times)
        assert found.late <= late <= found.late + found.likely_late + found.likely_within + 1e-9
        assert min(found) >= 0.0
        assert sum(found) == pytest.approx(len(times))


@given(st.lists(st.tuples(TIMES, BOUNDS), min_size=1, max_size=4), st.floats(0.01, 90.0))
@settings(max_examples=examples(100))
def test_histograms_of_several_engines_add_up_or_are_unknown_together(engines, limit):
    values, parts = [], []
    for times, bounds in engines:
        counts = {bound: sum(time <= bound for time in times) for bound in (*bounds, inf)}
        parts.append((LatencyBuckets(tuple(counts), tuple(range(len(values), len(values) + len(counts)))),))
        values += counts.values()
    whole = LatencyHistograms(np.array(values, dtype=float), {TTFT: {0: tuple(parts)}}).split(TTFT, [0], limit)
    alone = [split({b: values[i] for b, i in zip(each.bounds, each.series, strict=True)}, limit) for (each,) in parts]
    if None in alone:
        assert whole is None
    else:
        assert whole == pytest.approx(Split(*map(sum, zip(*alone, strict=True))))


@pytest.mark.parametrize(
    "counts",
    [
        {inf: 100},
        {0.1: 90, inf: 100},
        {100.0: 90, inf: 100},
        {1.0: 90, 2.5: 96},
        {1.0: 97, 2.5: 96, inf: 100},
        {1.0: 90, 2.5: 101, inf: 100},
        {1.0: nan, 2.5: 96, inf: 100},
        {1.0: 90, 2.5: nan, inf: 100},
        {1.0: 90, 2.5: 96, inf: nan},
        {1.0: -1, 2.5: 96, inf: 100},
        {1.0: 90, 2.5: 96, inf: inf},
        {1.0: 90, 2.5: 96, inf: 1e300},
        {},
    ],
)
def test_buckets_that_say_nothing_of_the_limit_or_contradict_each_other_are_unknown(counts):
    assert split(counts, 2.0) is None


def test_subject_without_a_histogram_makes_the_sum_unknown():
    histograms = one({1.0: 90, 2.5: 96, inf: 100})
    assert histograms.split(TTFT, [0, 1], 2.0) is None
    assert histograms.split(TTFT, [], 2.0) is None
    assert histograms.split(TPOT, [0], 2.0) is None


@given(st.lists(st.floats(), min_size=3, max_size=3), st.floats(0.001, 1000.0))
@settings(max_examples=examples(300))
def test_any_values_split_to_counts_or_to_nothing(values, limit):
    found = split(dict(zip((1.0, 2.5, inf), values, strict=True)), limit)
    assert found is None or (min(found) >= 0.0 and sum(found) <= 2e18)


VLLM = """
    vllm:num_requests_running{engine="0",model_name="m"} 1.0
    vllm:num_requests_running{engine="1",model_name="m"} 1.0
    vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="m"} 4.0
    vllm:time_to_first_token_seconds_bucket{engine="0",le="2.5",model_name="m"} 7.0
    vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 9.0
    vllm:time_to_first_token_seconds_bucket{engine="1",le="1.0",model_name="m"} 1.0
    vllm:time_to_first_token_seconds_bucket{engine="1",le="2.5",model_name="m"} 1.0
    vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf",model_name="m"} 2.0
    vllm:inter_token_latency_seconds_bucket{engine="0",le="0.05",model_name="m"} 300.0
    vllm:inter_token_latency_seconds_bucket{engine="0",le="0.075",model_name="m"} 350.0
    vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 400.0
    """
PER_REQUEST = """
    vllm:request_time_per_output_token_seconds_bucket{engine="0",le="0.05",model_name="m"} 6.0
    vllm:request_time_per_output_token_seconds_bucket{engine="0",le="0.075",model_name="m"} 6.0
    vllm:request_time_per_output_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 9.0
    """


def test_histograms_of_data_parallel_engines_add_up(read):
    assert read(VLLM).histograms.split(TTFT, [0], 2.0) == pytest.approx(Split(5.0, 2.0, 1.0, 3.0))


def test_time_per_request_is_preferred_to_the_times_between_tokens(read):
    assert read(VLLM).histograms.split(TPOT, [0], 0.075) == Split(350.0, 0.0, 0.0, 50.0)
    assert read(VLLM + PER_REQUEST).histograms.split(TPOT, [0], 0.075) == Split(6.0, 0.0, 0.0, 3.0)


def test_workers_of_vllm_on_ray_have_histograms_under_both_of_their_names(read):
    for prefix in ("ray_vllm:", "ray_vllm_"):
        found = read(VLLM.replace("vllm:", prefix)).histograms
        assert found.split(TTFT, [0], 2.5) == Split(8.0, 0.0, 0.0, 3.0)


SGLANG = """
    sglang:num_running_reqs{model_name="m",dp_rank="0",tp_rank="0"} 4
    sglang:num_running_reqs{model_name="m",dp_rank="1",tp_rank="0"} 4
    sglang:time_to_first_token_seconds_bucket{model_name="m",dp_rank="0",tp_rank="0",le="2"} 6
    sglang:time_to_first_token_seconds_bucket{model_name="m",dp_rank="0",tp_rank="0",le="+Inf"} 6
    sglang:time_to_first_token_seconds_bucket{model_name="m",dp_rank="0",tp_rank="1",le="2"} 5
    sglang:time_to_first_token_seconds_bucket{model_name="m",dp_rank="0",tp_rank="1",le="+Inf"} 7
    sglang:time_to_first_token_seconds_bucket{model_name="m",dp_rank="1",tp_rank="0",le="2"} 3
    sglang:time_to_first_token_seconds_bucket{model_name="m",dp_rank="1",tp_rank="0",le="+Inf"} 3
    """


def test_of_the_copies_of_an_engines_ranks_the_one_with_the_most_observations_counts(read):
    assert read(SGLANG).histograms.split(TTFT, [0], 2.0) == Split(8.0, 0.0, 0.0, 2.0)


def test_bucket_with_a_bound_that_is_no_number_is_left_out(read):
    broken = VLLM.replace('engine="0",le="1.0"', 'engine="0",le="one"')
    assert read(broken).histograms.split(TTFT, [0], 2.5) == Split(8.0, 0.0, 0.0, 3.0)


def test_hostile_number_of_histograms_is_not_read(read):
    many = "".join(
        f'vllm:time_to_first_token_seconds_bucket{{engine="{engine}",le="{le}",model_name="m"}} 1.0\n'
        for engine in range(100)
        for le in ("2.0", "+Inf")
    )
    samples = read('vllm:num_requests_running{engine="0",model_name="m"} 1.0\n' + many)
    assert samples.histograms.split(TTFT, [0], 2.0) is None


def test_repeat_response_of_the_same_layout_has_the_new_counts(page):
    scanner, reader = Scanner(selection()), Reader("vllm")
    body = VLLM.replace("    ", "").lstrip().encode()
    before = reader.read(scanner.scan(body), 100.0).histograms
    after = reader.read(scanner.scan(body.replace(b"9.0", b"12.0")), 105.0).histograms
    assert before.split(TTFT, [0], 2.5) == Split(8.0, 0.0, 0.0, 3.0)
    assert after.split(TTFT, [0], 2.5) == Split(8.0, 0.0, 0.0, 6.0)


def test_engines_with_a_histogram_of_each_latency_measure_an_slo():
    assert {name for name, kind in KINDS.items() if kind.measures_slo} == {
        "vllm", "sglang", "ray_vllm", "nim", "lmdeploy", "triton", "trtllm",
    }  # fmt: skip
