"""Queues are read from vLLM, SGLang, Triton and llama.cpp."""

from math import isnan, nan

import pytest

from exporter.model import Gpu, Quantity, Queue

Q = Quantity

VLLM_V1 = """
    vllm:num_requests_running{engine="0",model_name="m"} 5.0
    vllm:num_requests_running{engine="1",model_name="m"} 7.0
    vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
    vllm:num_requests_waiting{engine="1",model_name="m"} 4.0
    vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 1.0
    vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 1.0
    vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 1.0
    vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="discard_all"} 0.0
    vllm:engine_sleep_state{engine="1",model_name="m",sleep_state="awake"} 0.0
    vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
    vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
    vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.9
    vllm:prompt_tokens_total{engine="0",model_name="m"} 100.0
    vllm:prompt_tokens_created{engine="0",model_name="m"} 1.7740114612876017e+09
    vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_compute"} 30.0
    vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_cache_hit"} 65.0
    vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="external_kv_transfer"} 5.0
    vllm:prompt_tokens_by_source_created{engine="0",model_name="m",source="local_compute"} 1.7740114612876017e+09
    vllm:prompt_tokens_by_source_total{engine="1",model_name="m",source="local_compute"} 2.0
    vllm:prompt_tokens_cached_total{engine="0",model_name="m"} 70.0
    vllm:generation_tokens_total{engine="0",model_name="m"} 50.0
    vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 10.0
    vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 2.0
    vllm:request_success_total{engine="1",finished_reason="abort",model_name="m"} 1.0
    vllm:request_success_created{engine="0",finished_reason="stop",model_name="m"} 1.7740114612876968e+09
    vllm:admission_rejections_total{model_name="m",reason="max_num_queued_reqs"} 6.0
    vllm:admission_rejections_total{model_name="m",reason="max_num_queued_tokens"} 1.0
    vllm:admission_rejections_created{model_name="m",reason="max_num_queued_reqs"} 1.7740114612876968e+09
    """


def test_engines_of_vllm_add_up(read, cell):
    samples = read(VLLM_V1)
    assert samples.kind == "vllm"
    assert samples.subjects == (Queue("m"),)
    assert cell(samples, "m", Q.REQUESTS_RUNNING) == 12.0
    assert cell(samples, "m", Q.TOKENS_PROMPT) == 100.0
    assert cell(samples, "m", Q.TOKENS_GENERATED) == 50.0


def test_computed_prompt_tokens_of_vllm_are_those_that_came_from_no_cache(read, cell):
    assert cell(read(VLLM_V1), "m", Q.TOKENS_COMPUTED) == 32.0


@pytest.mark.parametrize("gone", ["prompt_tokens_by_source_total", "local_compute"])
def test_computed_prompt_tokens_of_vllm_are_unknown_without_their_series(read, cell, gone):
    """Before 0.16 there is no such family. With other sources alone, it is unknown how many were computed."""
    samples = read("\n".join(line for line in VLLM_V1.splitlines() if gone not in line))
    assert isnan(cell(samples, "m", Q.TOKENS_COMPUTED))
    assert cell(samples, "m", Q.TOKENS_PROMPT) == 100.0


def test_waiting_by_reason_of_vllm_is_not_added_to_waiting(read, cell):
    assert cell(read(VLLM_V1), "m", Q.REQUESTS_WAITING) == 6.0


def test_finished_requests_of_vllm_are_summed_without_creation_times(read, cell):
    assert cell(read(VLLM_V1), "m", Q.REQUESTS_FINISHED) == 13.0


def test_requests_that_vllm_refuses_for_its_full_queue_have_failed(read, cell):
    assert cell(read(VLLM_V1), "m", Q.REQUESTS_FAILED) == 7.0


def test_cache_use_of_vllm_is_the_mean_over_engines_of_the_newer_name(read, cell):
    assert cell(read(VLLM_V1), "m", Q.KV_CACHE_USED) == 0.5


def test_target_with_a_sleeping_engine_is_asleep(read, cell):
    assert cell(read(VLLM_V1), "m", Q.ENGINE_AWAKE) == 0.0
    assert cell(read(VLLM_V1.replace("} 0.0", "} 1.0")), "m", Q.ENGINE_AWAKE) == 1.0


def test_engine_with_an_invalid_value_makes_the_sum_unknown(read, cell):
    samples = read(VLLM_V1.replace('waiting{engine="1",model_name="m"} 4.0', 'waiting{engine="1",model_name="m"} NaN'))
    assert isnan(cell(samples, "m", Q.REQUESTS_WAITING))
    assert cell(samples, "m", Q.REQUESTS_RUNNING) == 12.0


def test_vllm_v0_has_no_engines_and_an_older_name(read, cell):
    samples = read(
        """
        vllm:num_requests_running{model_name="facebook/opt-125m"} 1.0
        vllm:num_requests_waiting{model_name="facebook/opt-125m"} 3.0
        vllm:gpu_cache_usage_perc{model_name="facebook/opt-125m"} 0.5
        vllm:cpu_cache_usage_perc{model_name="facebook/opt-125m"} 0.1
        """
    )
    assert cell(samples, "facebook/opt-125m", Q.REQUESTS_WAITING) == 3.0
    assert cell(samples, "facebook/opt-125m", Q.KV_CACHE_USED) == 0.5
    assert isnan(cell(samples, "facebook/opt-125m", Q.REQUESTS_FINISHED))
    assert isnan(cell(samples, "facebook/opt-125m", Q.ENGINE_AWAKE))


def test_two_models_of_one_server_are_two_queues(read, cell):
    samples = read('vllm:num_requests_waiting{model_name="a"} 1\nvllm:num_requests_waiting{model_name="b"} 2\n')
    assert samples.subjects == (Queue("a"), Queue("b"))
    assert cell(samples, "b", Q.REQUESTS_WAITING) == 2.0


RAY_VLLM = """
    ray_vllm:num_requests_waiting{engine="0",model_name="m",ReplicaId="r1",WorkerId="w1",SessionName="s"} 2
    ray_vllm:num_requests_waiting{engine="0",model_name="m",ReplicaId="r2",WorkerId="w2",SessionName="s"} 3
    ray_vllm:num_requests_running{engine="0",model_name="m",ReplicaId="r1",WorkerId="w1",SessionName="s"} 4
    ray_vllm:kv_cache_usage_perc{engine="0",model_name="m",ReplicaId="r1",WorkerId="w1",SessionName="s"} 0.5
    ray_vllm:request_success_total{engine="0",finished_reason="stop",model_name="m",ReplicaId="r1",WorkerId="w1"} 7
    ray_vllm:request_success{engine="0",finished_reason="stop",model_name="m",ReplicaId="r1",WorkerId="w1"} 7
    ray_vllm:generation_tokens_total{engine="0",model_name="m",ReplicaId="r1",WorkerId="w1"} 50
    ray_vllm:time_to_first_token_seconds_count{engine="0",model_name="m",ReplicaId="r1",WorkerId="w1"} 7
    ray_node_gpus_utilization{GpuIndex="0",ip="10.0.0.1"} 90
    """


@pytest.mark.parametrize("prefix", ["ray_vllm:", "ray_vllm_"])
def test_workers_of_vllm_on_ray_add_up(read, cell, prefix):
    samples = read(RAY_VLLM.replace("ray_vllm:", prefix))
    assert samples.kind == "ray_vllm"
    assert samples.subjects == (Queue("m"),)
    assert cell(samples, "m", Q.REQUESTS_WAITING) == 5.0
    assert cell(samples, "m", Q.REQUESTS_RUNNING) == 4.0
    assert cell(samples, "m", Q.KV_CACHE_USED) == 0.5
    assert cell(samples, "m", Q.REQUESTS_FINISHED) == 7.0
    assert cell(samples, "m", Q.TOKENS_GENERATED) == 50.0


def test_sglang_counts_each_engine_once_and_every_dp_rank(read, cell):
    samples = read(
        """
        sglang:num_queue_reqs{model_name="m",engine_type="unified",tp_rank="0",pp_rank="0",dp_rank="0"} 2.0
        sglang:num_queue_reqs{model_name="m",engine_type="unified",tp_rank="1",pp_rank="0",dp_rank="0"} 2.0
        sglang:num_queue_reqs{model_name="m",engine_type="unified",tp_rank="0",pp_rank="1",dp_rank="0"} 2.0
        sglang:num_queue_reqs{model_name="m",engine_type="unified",tp_rank="0",pp_rank="0",dp_rank="1"} 3.0
        sglang:token_usage{model_name="m",engine_type="unified",tp_rank="0",pp_rank="0",dp_rank="0"} 0.2
        sglang:token_usage{model_name="m",engine_type="unified",tp_rank="1",pp_rank="0",dp_rank="0"} 0.9
        sglang:token_usage{model_name="m",engine_type="unified",tp_rank="0",pp_rank="0",dp_rank="1"} 0.4
        sglang:num_requests_total{model_name="m"} 40
        sglang:num_aborted_requests_total{model_name="m"} 4
        """
    )
    assert samples.kind == "sglang"
    assert cell(samples, "m", Q.REQUESTS_WAITING) == 5.0
    assert cell(samples, "m", Q.KV_CACHE_USED) == pytest.approx((0.9 + 0.4) / 2)
    assert cell(samples, "m", Q.REQUESTS_FINISHED) == 40.0
    assert cell(samples, "m", Q.REQUESTS_FAILED) == 4.0


def test_computed_prompt_tokens_of_sglang_are_those_that_came_from_no_cache(read, cell):
    page = """
        sglang:num_running_reqs{model_name="m",tp_rank="0"} 1
        sglang:prompt_tokens_total{model_name="m",is_streaming="false"} 500.0
        sglang:prompt_tokens_total{model_name="m",is_streaming="true"} 1500.0
        sglang:cached_tokens_total{model_name="m",cache_source="device"} 1200.0
        sglang:cached_tokens_total{model_name="m",cache_source="host"} 100.0
    """
    uncached = """
        sglang:uncached_prompt_tokens_histogram_sum{model_name="m"} 700.0
        sglang:uncached_prompt_tokens_histogram_count{model_name="m"} 4.0
    """
    samples = read(page + uncached)
    assert cell(samples, "m", Q.TOKENS_PROMPT) == 2000.0
    assert cell(samples, "m", Q.TOKENS_COMPUTED) == 700.0
    assert isnan(cell(read(page), "m", Q.TOKENS_COMPUTED))  # an older one


def test_old_sglang_has_its_model_in_the_label_name(read):
    assert read('sglang:num_queue_reqs{name="google/gemma-2-9b-it"} 2826\n').subjects == (
        Queue("google/gemma-2-9b-it"),
    )


def test_data_parallel_attention_of_sglang_is_read_from_other_tensor_ranks(read, cell):
    samples = read(
        """
        sglang:num_running_reqs{model_name="m",tp_rank="0",dp_rank="0"} 2.0
        sglang:num_running_reqs{model_name="m",tp_rank="4",dp_rank="1"} 3.0
        """
    )
    assert cell(samples, "m", Q.REQUESTS_RUNNING) == 5.0


def test_largest_value_of_disagreeing_sglang_ranks_counts(read, cell):
    """Each rank has a scheduler and reports at other times; a rank that is late reports too little."""
    samples = read(
        """
        sglang:num_running_reqs{model_name="m",tp_rank="0"} 3
        sglang:num_running_reqs{model_name="m",tp_rank="1"} 11
        sglang:num_queue_reqs{model_name="m",tp_rank="0",pp_rank="0"} 0
        sglang:num_queue_reqs{model_name="m",tp_rank="0",pp_rank="1"} 2
        """
    )
    assert cell(samples, "m", Q.REQUESTS_RUNNING) == 11.0
    assert cell(samples, "m", Q.REQUESTS_WAITING) == 2.0


def test_largest_of_each_of_sglangs_engines_is_added_to_the_others(read, cell):
    samples = read(
        """
        sglang:num_queue_reqs{model_name="m",tp_rank="0",dp_rank="0"} 2
        sglang:num_queue_reqs{model_name="m",tp_rank="1",dp_rank="0"} 5
        sglang:num_queue_reqs{model_name="m",tp_rank="2",dp_rank="1"} 4
        sglang:num_queue_reqs{model_name="m",tp_rank="3",dp_rank="1"} 1
        sglang:num_grammar_queue_reqs{model_name="m",tp_rank="0",dp_rank="1"} 10
        sglang:num_grammar_queue_reqs{model_name="m",tp_rank="1",dp_rank="1"} 0
        sglang:token_usage{model_name="m",tp_rank="0",dp_rank="0"} 0.2
        sglang:token_usage{model_name="m",tp_rank="1",dp_rank="0"} 0.4
        sglang:token_usage{model_name="m",tp_rank="2",dp_rank="1"} 0.6
        sglang:num_queue_reqs{model_name="n",tp_rank="0",dp_rank="1"} 7
        """
    )
    assert cell(samples, "m", Q.REQUESTS_WAITING) == 5.0 + 4.0 + 10.0
    assert cell(samples, "m", Q.KV_CACHE_USED) == pytest.approx(0.5)
    assert cell(samples, "n", Q.REQUESTS_WAITING) == 7.0


def test_series_that_sglang_splits_by_a_custom_label_add_up(read, cell):
    """`--tokenizer-metrics-allowed-custom-labels`: the counters of two tenants are no copies."""
    tenants = "".join(f'sglang:num_requests_total{{model_name="m",tenant="t{n}"}} {n}\n' for n in range(100))
    ranks = (
        'sglang:num_running_reqs{model_name="m",tp_rank="0"} 3\nsglang:num_running_reqs{model_name="m",tp_rank="1"} 3\n'
    )
    samples = read(tenants + ranks)
    assert cell(samples, "m", Q.REQUESTS_FINISHED) == sum(range(100))
    assert cell(samples, "m", Q.REQUESTS_RUNNING) == 3.0


def test_waiting_of_an_sglang_engine_is_unknown_if_none_of_its_ranks_is_valid(read, cell):
    one = 'sglang:num_queue_reqs{model_name="m",tp_rank="0",dp_rank="0"} 2\n'
    other = 'sglang:num_queue_reqs{{model_name="m",tp_rank="{}",dp_rank="1"}} {}\n'
    assert isnan(cell(read(one + other.format(1, "NaN")), "m", Q.REQUESTS_WAITING))
    assert cell(read(one + other.format(1, "NaN") + other.format(2, 3)), "m", Q.REQUESTS_WAITING) == 5.0


def test_priorities_of_sglang_are_not_added_to_their_total(read, cell):
    samples = read(
        """
        sglang:num_queue_reqs{model_name="m",tp_rank="0",priority=""} 7.0
        sglang:num_queue_reqs{model_name="m",tp_rank="0",priority="1"} 3.0
        sglang:num_queue_reqs{model_name="m",tp_rank="0",priority="None"} 4.0
        """
    )
    assert cell(samples, "m", Q.REQUESTS_WAITING) == 7.0


def test_priorities_of_sglang_without_their_total_are_unknown(read, cell):
    samples = read('sglang:num_queue_reqs{model_name="m",priority="1"} 3.0\n')
    assert samples.subjects == (Queue("m"),)
    assert isnan(cell(samples, "m", Q.REQUESTS_WAITING))


def test_separate_prefill_and_decode_queues_of_sglang_are_waiting(read, cell):
    samples = read(
        """
        sglang:num_queue_reqs{model_name="m"} 1
        sglang:num_grammar_queue_reqs{model_name="m"} 2
        sglang:num_prefill_bootstrap_queue_reqs{model_name="m"} 4
        sglang:num_prefill_prealloc_queue_reqs{model_name="m"} 4
        sglang:num_prefill_inflight_queue_reqs{model_name="m"} 8
        sglang:num_decode_prealloc_queue_reqs{model_name="m"} 16
        sglang:num_decode_transfer_queue_reqs{model_name="m"} 32
        """
    )
    assert cell(samples, "m", Q.REQUESTS_WAITING) == 63.0


TRITON = """
    nv_inference_request_success{model="a",version="1"} 10
    nv_inference_request_success{model="a",version="2"} 5
    nv_inference_request_success{model="b",version="1"} 0
    nv_inference_request_failure{model="a",version="1",reason="REJECTED"} 2
    nv_inference_request_failure{model="a",version="1",reason="BACKEND"} 1
    nv_inference_queue_duration_us{model="a",version="1"} 145
    nv_inference_pending_request_count{model="a",version="1"} 3
    nv_inference_pending_request_count{model="a",version="2"} 4
    nv_inference_pending_request_count{model="b",version="1"} 0
    nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5
    nv_gpu_power_usage{gpu_uuid="GPU-1"} 32.09
    nv_gpu_power_limit{gpu_uuid="GPU-1"} 70
    nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 16106127360
    nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 266338304
    nv_cpu_utilization 0
    """


def test_models_of_triton_are_queues_and_their_versions_add_up(read, cell):
    samples = read(TRITON)
    assert samples.kind == "triton"
    assert samples.subjects == (Queue("a"), Queue("b"), Gpu("GPU-1"))
    assert cell(samples, "a", Q.REQUESTS_WAITING) == 7.0
    assert cell(samples, "a", Q.REQUESTS_FINISHED) == 15.0
    assert cell(samples, "a", Q.REQUESTS_FAILED) == 3.0
    assert cell(samples, "b", Q.REQUESTS_WAITING) == 0.0
    assert isnan(cell(samples, "a", Q.REQUESTS_RUNNING))


def test_gpu_gauges_of_triton_are_ratios_and_bytes(read, cell):
    samples = read(TRITON)
    assert cell(samples, "GPU-1", Q.GPU_UTILIZATION) == 0.5
    assert cell(samples, "GPU-1", Q.GPU_POWER) == 32.09
    assert cell(samples, "GPU-1", Q.GPU_MEMORY_USED) == 266338304.0
    assert cell(samples, "GPU-1", Q.GPU_MEMORY_TOTAL) == 16106127360.0


def test_gpu_at_zero_percent_and_zero_watts_is_a_failed_read(read, cell):
    failed = read(TRITON.replace("} 0.5", "} 0").replace("32.09", "0"))
    assert isnan(cell(failed, "GPU-1", Q.GPU_UTILIZATION))
    assert isnan(cell(failed, "GPU-1", Q.GPU_POWER))
    idle = read(TRITON.replace("} 0.5", "} 0"))
    assert cell(idle, "GPU-1", Q.GPU_UTILIZATION) == 0.0


def test_old_triton_has_an_unknown_queue(read, cell):
    old = "\n".join(line for line in TRITON.splitlines() if "pending" not in line)
    assert isnan(cell(read(old), "a", Q.REQUESTS_WAITING))


def test_tensorrt_llm_backend_of_triton_has_its_rows(read, cell):
    samples = read(
        """
        nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 3
        nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="context",version="1"} 1
        nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 4
        nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
        nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 7
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.6
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 2000
        nv_inference_pending_request_count{model="tensorrt_llm",version="1"} 2
        nv_inference_pending_request_count{model="ensemble",version="1"} 0
        """
    )
    assert cell(samples, "tensorrt_llm", Q.REQUESTS_WAITING) == 5.0  # 2 before the backend, 3 in it
    assert cell(samples, "tensorrt_llm", Q.REQUESTS_RUNNING) == 4.0
    assert cell(samples, "tensorrt_llm", Q.KV_CACHE_USED) == 0.6
    assert cell(samples, "ensemble", Q.REQUESTS_WAITING) == 0.0


def test_vllm_backend_of_triton_counts_for_tritons_models(read, cell):
    samples = read(
        TRITON
        + """
    vllm:prompt_tokens_total{model="a",version="1"} 10
    vllm:generation_tokens_total{model="a",version="1"} 16
    vllm:time_to_first_token_seconds_count{model="a",version="1"} 1
    vllm:time_per_output_token_seconds_count{model="a",version="1"} 15
    vllm:time_per_output_token_seconds_sum{model="a",version="1"} 0.045
    """
    )
    assert samples.kind == "triton"
    assert cell(samples, "a", Q.TOKENS_PROMPT) == 10.0
    assert cell(samples, "a", Q.FIRST_TOKENS) == 1.0
    assert cell(samples, "a", Q.ITL_COUNT) == 15.0
    assert cell(samples, "a", Q.ITL_SECONDS) == 0.045
    assert cell(samples, "a", Q.REQUESTS_FINISHED) == 15.0
    assert isnan(cell(samples, "a", Q.REQUESTS_RUNNING))


def test_llamacpp_has_one_queue_and_no_labels(read, cell):
    samples = read(
        """
        llamacpp:requests_processing 2
        llamacpp:requests_deferred 5
        llamacpp:prompt_tokens_total 33065
        llamacpp:tokens_predicted_total 7801
        llamacpp:predicted_tokens_seconds 12.5
        """
    )
    assert samples.kind == "llamacpp"
    assert samples.subjects == (Queue("default"),)
    assert cell(samples, "default", Q.REQUESTS_WAITING) == 5.0
    assert cell(samples, "default", Q.REQUESTS_RUNNING) == 2.0
    assert cell(samples, "default", Q.TOKENS_GENERATED) == 7801.0
    assert isnan(cell(samples, "default", Q.REQUESTS_FINISHED))
    assert isnan(cell(samples, "default", Q.KV_CACHE_USED))


def test_llamacpp_router_names_its_models(read):
    samples = read('llamacpp:requests_deferred{model="x"} 5\nllamacpp:requests_deferred{model="y"} 1\n')
    assert samples.subjects == (Queue("x"), Queue("y"))


def test_text_of_real_servers_is_read(read, cell):
    """Trailing commas, spaces, blank HELP, TYPE after its samples or naming another family."""
    samples = read(
        """
        # HELP vllm:num_requests_waiting
        vllm:num_requests_waiting{ model_name = "m", } 3
        # TYPE vllm:num_requests_waiting counter
        # TYPE vllm:something_else histogram
        """
    )
    assert cell(samples, "m", Q.REQUESTS_WAITING) == 3.0


@pytest.mark.parametrize(
    ("queued", "served", "also"),
    [
        ("vllm:request_queue_time_seconds", "vllm:request_inference_time_seconds", "vllm:prompt_tokens_total"),
        (
            "ray_vllm_request_queue_time_seconds",
            "ray_vllm_request_inference_time_seconds",
            "ray_vllm_prompt_tokens_total",
        ),
        ("request_queue_time_seconds", "request_inference_time_seconds", "num_request_max"),
        ("sglang:queue_time_seconds", None, "sglang:prompt_tokens_total"),
        (
            "lmdeploy:request_queue_time_seconds",
            "lmdeploy:request_inference_time_seconds",
            "lmdeploy:prompt_tokens_total",
        ),
        ("trtllm_request_queue_time_seconds", "trtllm_request_inference_time_seconds", "trtllm_prompt_tokens_total"),
        ("tgi_request_queue_duration", "tgi_request_inference_duration", "tgi_request_success"),
        ("te_request_queue_duration", "te_request_inference_duration", "te_request_success"),
    ],
)
def test_times_in_queue_and_service_are_counts_and_sums_of_histograms(read, cell, queued, served, also):
    histograms = [(queued, 4, 2.5)] + ([] if served is None else [(served, 4, 30.0)])
    lines = [f'{name}_{ending}{{model_name="m"}} {value}\n' for name, *pair in histograms
             for ending, value in zip(("count", "sum"), pair, strict=True)]  # fmt: skip
    samples = read("".join(lines) + f'{also}{{model_name="m"}} 1\n')
    assert [cell(samples, "m", each) for each in (Q.QUEUED_COUNT, Q.QUEUED_SECONDS)] == [4.0, 2.5]
    times = [cell(samples, "m", each) for each in (Q.SERVED_COUNT, Q.SERVED_SECONDS)]
    assert times == ([4.0, 30.0] if served else pytest.approx([nan, nan], nan_ok=True))


def test_durations_of_triton_are_microseconds_of_successful_requests(read, cell):
    samples = read(
        """
        nv_inference_request_success{model="m",version="1"} 4
        nv_inference_queue_duration_us{model="m",version="1"} 2500000
        nv_inference_compute_input_duration_us{model="m",version="1"} 1000000
        nv_inference_compute_infer_duration_us{model="m",version="1"} 28000000
        nv_inference_compute_output_duration_us{model="m",version="1"} 1000000
        """
    )
    quantities = (Q.QUEUED_COUNT, Q.QUEUED_SECONDS, Q.SERVED_COUNT, Q.SERVED_SECONDS)
    assert [cell(samples, "m", each) for each in quantities] == [4.0, 2.5, 4.0, 30.0]


@pytest.mark.parametrize("name", ["vllm:num_preemptions_total", "sglang:num_retracted_requests_total"])
def test_preemptions_are_counted(read, cell, name):
    samples = read(f'{name}{{model_name="m"}} 7\n{name.partition(":")[0]}:prompt_tokens_total{{model_name="m"}} 1\n')
    assert cell(samples, "m", Q.PREEMPTIONS) == 7.0
