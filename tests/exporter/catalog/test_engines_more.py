"""Queues are read from the other inference engines."""

import textwrap
from math import isnan

import pytest

from exporter.model import Quantity, Queue

Q = Quantity

TGI = """
    # TYPE tgi_request_success counter
    tgi_request_success 109
    tgi_request_count 111
    tgi_request_failure{err="validation"} 2
    tgi_request_failure{err="overloaded"} 5
    tgi_batch_inference_count{method="decode"} 1509
    tgi_queue_size 7
    tgi_batch_current_size 4
    tgi_batch_current_max_tokens 2048
    tgi_request_input_length_bucket{le="10.22"} 109
    tgi_request_input_length_sum 662
    tgi_request_generated_tokens_sum 8123
    tgi_request_queue_duration_sum 12.5
    """


def test_tgi_has_no_labels_and_one_queue(read, cell):
    samples = read(TGI)
    assert samples.kind == "tgi"
    assert samples.subjects == (Queue("default"),)
    assert cell(samples, "default", Q.REQUESTS_WAITING) == 7.0
    assert cell(samples, "default", Q.REQUESTS_RUNNING) == 4.0
    assert cell(samples, "default", Q.REQUESTS_FINISHED) == 109.0
    assert cell(samples, "default", Q.TOKENS_PROMPT) == 662.0
    assert cell(samples, "default", Q.TOKENS_GENERATED) == 8123.0


def test_time_per_token_of_tgi_includes_the_prompt_and_is_no_latency_of_an_slo(read):
    name = "tgi_request_mean_time_per_token_duration"
    times = "".join(f'{name}_bucket{{le="{bound}"}} 109\n' for bound in ("0.0656", "0.0985", "+Inf"))
    samples = read(f"{textwrap.dedent(TGI)}{times}{name}_sum 4.5\n{name}_count 109\n")
    assert samples.kind == "tgi"
    assert not samples.histograms.parts


def test_refused_requests_of_tgi_are_failed_requests(read, cell):
    assert cell(read(TGI), "default", Q.REQUESTS_FAILED) == 7.0


def test_fresh_tgi_without_gauges_has_an_unknown_queue(read, cell):
    samples = read("tgi_request_count 1\ntgi_request_success 0\n")
    assert isnan(cell(samples, "default", Q.REQUESTS_WAITING))
    assert isnan(cell(samples, "default", Q.REQUESTS_RUNNING))


def test_tei_has_waiting_and_no_running_requests(read, cell):
    samples = read(
        """
        te_request_success{method="single"} 1
        te_request_success{method="batch"} 2
        te_request_failure{err="overloaded"} 3
        te_request_input_length_sum 40
        te_embed_count 1
        te_queue_size 3
        te_batch_next_size_bucket{le="1"} 2
        te_batch_next_size_count 2
        """
    )
    assert samples.kind == "tei"
    assert cell(samples, "default", Q.REQUESTS_WAITING) == 3.0
    assert isnan(cell(samples, "default", Q.REQUESTS_RUNNING))
    assert cell(samples, "default", Q.TOKENS_PROMPT) == 40.0
    assert cell(samples, "default", Q.REQUESTS_FINISHED) == 3.0
    assert cell(samples, "default", Q.REQUESTS_FAILED) == 3.0


def test_trtllm_serve_is_read_with_its_prefix(read, cell):
    samples = read(
        """
        trtllm_num_requests_running{model_name="m",engine_type="trtllm"} 3
        trtllm_num_requests_waiting{model_name="m",engine_type="trtllm"} 1
        trtllm_max_num_active_requests{model_name="m",engine_type="trtllm"} 64
        trtllm_num_paused_requests{model_name="m",engine_type="trtllm"} 2
        trtllm_kv_cache_utilization{model_name="m",engine_type="trtllm"} 0.62
        trtllm_kv_cache_hit_rate{model_name="m",engine_type="trtllm"} 0.38
        trtllm_request_success_total{model_name="m",engine_type="trtllm",finished_reason="stop"} 95
        trtllm_request_success_total{model_name="m",engine_type="trtllm",finished_reason="length"} 5
        trtllm_prompt_tokens_total{model_name="m",engine_type="trtllm"} 700
        trtllm_generation_tokens_total{model_name="m",engine_type="trtllm"} 1000
        """
    )
    assert samples.kind == "trtllm"
    assert cell(samples, "m", Q.REQUESTS_WAITING) == 1.0
    assert cell(samples, "m", Q.REQUESTS_RUNNING) == 3.0
    assert cell(samples, "m", Q.KV_CACHE_USED) == 0.62
    assert cell(samples, "m", Q.REQUESTS_FINISHED) == 100.0
    assert cell(samples, "m", Q.TOKENS_PROMPT) == 700.0
    assert cell(samples, "m", Q.TOKENS_GENERATED) == 1000.0


NIM = """
    process_resident_memory_bytes 1.0463768576e+010
    num_requests_running{model_name="meta/llama"} 1.0
    num_requests_waiting{model_name="meta/llama"} 2.0
    num_request_max{model_name="meta/llama"} 64.0
    gpu_cache_usage_perc{model_name="meta/llama"} 0.25
    prompt_tokens_total{model_name="meta/llama"} 109.0
    generation_tokens_total{model_name="meta/llama"} 174.0
    request_finish_total{finished_reason="length",model_name="meta/llama"} 5.0
    request_success_total{model_name="meta/llama"} 5.0
    request_failure_total{model_name="meta/llama"} 1.0
    """


def test_nim_is_detected_without_a_prefix(read, cell):
    samples = read(NIM)
    assert samples.kind == "nim"
    assert cell(samples, "meta/llama", Q.REQUESTS_WAITING) == 2.0
    assert cell(samples, "meta/llama", Q.REQUESTS_RUNNING) == 1.0
    assert cell(samples, "meta/llama", Q.KV_CACHE_USED) == 0.25
    assert cell(samples, "meta/llama", Q.REQUESTS_FINISHED) == 5.0
    assert cell(samples, "meta/llama", Q.REQUESTS_FAILED) == 1.0
    assert cell(samples, "meta/llama", Q.TOKENS_PROMPT) == 109.0
    assert cell(samples, "meta/llama", Q.TOKENS_GENERATED) == 174.0


def test_nim_with_vllm_names_is_read_as_vllm_and_as_nim(read, cell):
    page = """
        num_request_max{model_name="m"} 1024.0
        vllm:num_requests_running{engine="0",model_name="m"} 3.0
        vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
        """
    assert read(page).kind == "vllm"
    for kind in ("auto", "nim"):
        assert cell(read(page, kind), "m", Q.REQUESTS_WAITING) == 2.0


def test_two_queues_of_lmdeploy_add_up_without_routed_requests(read, cell):
    samples = read(
        """
        lmdeploy:num_requests_waiting{model_name="m",engine="0"} 2.0
        lmdeploy:num_requests_waiting{model_name="m",engine="1"} 1.0
        lmdeploy:num_api_requests_waiting{model_name="m",engine="0"} 3.0
        lmdeploy:num_api_requests_routed{model_name="m",engine="0"} 9.0
        lmdeploy:num_requests_running{model_name="m",engine="0"} 6.0
        lmdeploy:request_success_total{model_name="m",engine="0",finished_reason="stop"} 8.0
        lmdeploy:prompt_tokens_total{model_name="m",engine="0"} 70.0
        lmdeploy:generation_tokens_total{model_name="m",engine="0"} 90.0
        lmdeploy:gpu_cache_usage_perc{model_name="m",engine="0"} 0.5
        lmdeploy:gpu_cache_usage_perc{model_name="m",engine="1"} 0.7
        """
    )
    assert samples.kind == "lmdeploy"
    assert cell(samples, "m", Q.REQUESTS_WAITING) == 6.0
    assert cell(samples, "m", Q.REQUESTS_RUNNING) == 6.0
    assert cell(samples, "m", Q.KV_CACHE_USED) == pytest.approx(0.6)
    assert cell(samples, "m", Q.REQUESTS_FINISHED) == 8.0
    assert cell(samples, "m", Q.TOKENS_PROMPT) == 70.0
    assert cell(samples, "m", Q.TOKENS_GENERATED) == 90.0


def test_time_counters_of_torchserve_are_no_queue(read, cell):
    samples = read(
        """
        QueueTime{Level="Host",Hostname="h",} 12.0
        Requests2XX{Level="Host",Hostname="h",} 8.0
        ts_inference_requests_total{model_name="resnet18",model_version="default",hostname="h",} 3.0
        ts_inference_latency_microseconds{model_name="resnet18",model_version="default",hostname="h",} 290371.129
        ts_queue_latency_microseconds{model_name="resnet18",model_version="default",hostname="h",} 365.21
        """
    )
    assert samples.kind == "torchserve"
    assert samples.quantities == (Q.REQUESTS_FINISHED,)
    assert cell(samples, "resnet18", Q.REQUESTS_FINISHED) == 3.0


def test_kserves_model_server_has_only_finished_requests(read, cell):
    samples = read(
        """
        request_predict_seconds_bucket{le="10.0",model_name="iris"} 17.0
        request_predict_seconds_count{model_name="iris"} 17.0
        request_predict_seconds_sum{model_name="iris"} 0.05
        request_predict_seconds_created{model_name="iris"} 1.78e+09
        """
    )
    assert samples.kind == "kserve"
    assert samples.quantities == (Q.REQUESTS_FINISHED,)
    assert cell(samples, "iris", Q.REQUESTS_FINISHED) == 17.0
