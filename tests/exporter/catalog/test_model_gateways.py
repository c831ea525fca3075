"""Queues are read from production-stack's router, Dynamo's frontend, SMG and Envoy AI Gateway."""

from math import isnan

import pytest

from exporter.catalog import KINDS
from exporter.model import Quantity, Queue, Role
from scaler.signals.queues import WakeSource
from scaler.signals.queues import read as read_queues

Q = Quantity

ROUTER = """
    # TYPE vllm:num_requests_running gauge
    vllm:num_requests_running{server="http://10.0.0.1:8000"} 3.0
    vllm:num_requests_running{server="http://10.0.0.2:8000"} 4.0
    # HELP vllm:num_requests_waiting Number of waiting requests
    # TYPE vllm:num_requests_waiting gauge
    vllm:gpu_prefix_cache_hit_rate{server="http://10.0.0.1:8000"} 0.5
    vllm:current_qps{server="http://10.0.0.1:8000"} 0.25
    vllm:avg_decoding_length{server="http://10.0.0.1:8000"} -1.0
    vllm:num_prefill_requests{server="http://10.0.0.1:8000"} 1.0
    vllm:num_decoding_requests{server="http://10.0.0.1:8000"} 2.0
    vllm:num_incoming_requests_total{model="m"} 40.0
    vllm:num_incoming_requests_total{model="other"} 2.0
    vllm:num_incoming_requests_created{model="m"} 1.78e+09
    vllm:healthy_pods_total{server="http://10.0.0.1:8000"} 1.0
    vllm:healthy_pods_total{server="http://10.0.0.2:8000"} 1.0
    vllm:avg_latency{server="http://10.0.0.1:8000"} -1.0
    vllm:num_requests_swapped{server="http://10.0.0.1:8000"} 0.0
    vllm:input_tokens_total{model="m",server="http://10.0.0.1:8000"} 900.0
    vllm:output_tokens_total{model="m",server="http://10.0.0.1:8000"} 300.0
    vllm:request_latency_seconds_count{model="m",server="http://10.0.0.1:8000",status="success"} 30.0
    router_cpu_usage_percent 3.5
    """
ROUTER_AT_ZERO = """
    vllm:num_incoming_requests_total{model="m"} 40.0
    router_cpu_usage_percent 3.5
    router_memory_usage_percent 30.5
    """


def test_router_of_production_stack_has_the_requests_in_flight_of_all_servers(read, cell):
    samples = read(ROUTER)
    assert samples.kind == "production_stack"
    assert samples.subjects == (Queue("default"),)
    assert cell(samples, "default", Q.REQUESTS_RUNNING) == 7.0
    assert isnan(cell(samples, "default", Q.REQUESTS_WAITING))
    assert cell(samples, "default", Q.REQUESTS_FINISHED) == 42.0
    assert cell(samples, "default", Q.TOKENS_GENERATED) == 300.0


def test_router_without_servers_is_detected_and_has_no_rows(read):
    samples = read("router_cpu_usage_percent 3.5\nrouter_disk_usage_percent 1\n")
    assert (samples.kind, samples.subjects) == ("production_stack", ())


@pytest.mark.parametrize("kind", ["production_stack", "dynamo", "smg", "envoy_ai_gateway"])
def test_requests_in_flight_of_a_gateway_repeat_those_of_its_engines(kind):
    assert KINDS[kind].repeats_engines


def test_router_without_servers_shows_the_next_request_by_its_count(read):
    reading = read_queues(read(ROUTER_AT_ZERO), Role.GATEWAY, None, 0.0, pods=True)
    assert reading.wake_source is WakeSource.REFUSALS
    assert reading.arrivals
    samples = read("router_cpu_usage_percent 3.5\n")
    assert read_queues(samples, Role.GATEWAY, None, 0.0, pods=True).wake_source is WakeSource.NOTHING


DYNAMO = """
    dynamo_frontend_disconnected_clients 0
    dynamo_frontend_inflight_requests{model="m"} 10
    dynamo_frontend_queued_requests{model="m"} 7
    dynamo_frontend_active_requests{model="m"} 10
    dynamo_frontend_requests_started_total{endpoint="chat_completions",model="m",request_type="stream"} 60
    dynamo_frontend_requests_total{endpoint="chat_completions",error_type="",model="m",request_type="stream",status="success"} 40
    dynamo_frontend_requests_total{endpoint="completions",error_type="",model="m",request_type="unary",status="success"} 5
    dynamo_frontend_requests_total{endpoint="completions",error_type="overload",model="m",request_type="unary",status="error"} 2
    dynamo_frontend_input_sequence_tokens_sum{model="m"} 5000
    dynamo_frontend_output_sequence_tokens_sum{model="m"} 800
    dynamo_frontend_output_tokens_total{model="m"} 900
    dynamo_frontend_model_total_kv_blocks{model="m"} 4096
    dynamo_frontend_worker_active_decode_blocks{worker_id="7",dp_rank="0",worker_type="decode"} 12
    """  # noqa: E501 - as they are


def test_queued_requests_of_dynamo_are_among_those_in_flight(read, cell):
    samples = read(DYNAMO)
    assert samples.kind == "dynamo"
    assert samples.subjects == (Queue("m"),)
    assert cell(samples, "m", Q.REQUESTS_WAITING) == 7.0
    assert cell(samples, "m", Q.REQUESTS_RUNNING) == 3.0
    assert cell(samples, "m", Q.REQUESTS_FINISHED) == 45.0
    assert cell(samples, "m", Q.REQUESTS_FAILED) == 2.0
    assert cell(samples, "m", Q.TOKENS_PROMPT) == 5000.0
    assert cell(samples, "m", Q.TOKENS_GENERATED) == 900.0


@pytest.mark.parametrize(("in_flight", "queued"), [(10, 7), (7, 10), (3, 0), (0, 2)])
def test_requests_of_dynamo_are_never_fewer_than_either_gauge(read, cell, in_flight, queued):
    samples = read(
        f'dynamo_frontend_inflight_requests{{model="m"}} {in_flight}\n'
        f'dynamo_frontend_queued_requests{{model="m"}} {queued}\n'
    )
    in_hand = cell(samples, "m", Q.REQUESTS_WAITING) + cell(samples, "m", Q.REQUESTS_RUNNING)
    assert in_hand == max(in_flight, queued)


def test_requests_of_dynamo_with_one_gauge_are_those_of_that_gauge(read, cell):
    samples = read('dynamo_frontend_inflight_requests{model="m"} 4\n')
    assert cell(samples, "m", Q.REQUESTS_RUNNING) == 4.0
    assert isnan(cell(samples, "m", Q.REQUESTS_WAITING))


UNKNOWN = 'dynamo_frontend_requests_total{error_type="not_found",model="unknown_model",status="error"} 3\n'


def test_dynamo_request_without_a_worker_belongs_to_the_only_model(read, cell):
    samples = read(DYNAMO + UNKNOWN)
    assert samples.subjects == (Queue("m"),)
    assert cell(samples, "m", Q.REQUESTS_FAILED) == 5.0
    reading = read_queues(samples, Role.GATEWAY, "m", 0.0, pods=True)
    assert (reading.wake_source, reading.arrivals) == (WakeSource.REFUSALS, False)


def test_dynamo_request_without_a_worker_belongs_to_no_model_if_there_are_two(read, cell):
    samples = read(DYNAMO + DYNAMO.replace('model="m"', 'model="n"') + UNKNOWN)
    assert samples.subjects == (Queue("m"), Queue("n"), Queue("unknown_model"))
    assert cell(samples, "m", Q.REQUESTS_FAILED) == 2.0


def test_dynamo_without_an_error_has_failed_no_request_and_can_wake(read, cell):
    """Dynamo exposes a counter's series after its first increment, so there is none without an error."""
    page = "\n".join(line for line in DYNAMO.splitlines() if 'status="error"' not in line)
    assert cell(read(page), "m", Q.REQUESTS_FAILED) == 0.0
    assert isnan(cell(read(page.replace("} 40", "} NaN")), "m", Q.REQUESTS_FAILED))
    assert Q.REQUESTS_FAILED not in read('dynamo_frontend_inflight_requests{model="m"} 4\n').quantities


SMG = """
    smg_http_requests_total{method="POST",path="/v1/chat/completions"} 60
    smg_http_connections_active 2
    smg_http_responses_total{status_code="200",error_code=""} 45
    smg_http_responses_total{status_code="503",error_code=""} 900
    smg_http_responses_total{status_code="400",error_code="invalid_request"} 6
    smg_router_requests_total{router_type="http",backend_type="regular",connection_mode="http",model="m",endpoint="chat",streaming="true"} 50
    smg_router_request_duration_seconds_bucket{router_type="http",model="m",endpoint="chat",le="+Inf"} 40
    smg_router_request_duration_seconds_count{router_type="http",backend_type="regular",connection_mode="http",model="m",endpoint="chat"} 40
    smg_worker_requests_active{worker="http://10.0.0.1:30000"} 3
    smg_worker_requests_active{worker="http://10.0.0.2:30000"} 5
    smg_worker_health{worker="http://10.0.0.1:30000"} 1
    smg_admission_queue_depth 4
    smg_admission_inflight 8
    smg_engine_running_requests{worker="http://10.0.0.1:30000",model="m",dp_rank="0"} 3
    """  # noqa: E501 - as they are


def test_smg_has_running_requests_of_its_workers_and_holds_those_without_admission(read, cell):
    samples = read(SMG)
    assert samples.kind == "smg"
    assert samples.subjects == (Queue("default"),)
    assert cell(samples, "default", Q.REQUESTS_RUNNING) == 8.0
    assert cell(samples, "default", Q.REQUESTS_HELD) == 4.0
    assert cell(samples, "default", Q.REQUESTS_FINISHED) == 40.0


def test_refusals_of_smg_are_counted_by_their_code_without_probes(read, cell):
    assert cell(read(SMG), "default", Q.REQUESTS_FAILED) == 0.0
    refused = SMG + 'smg_http_responses_total{status_code="503",error_code="no_available_workers"} 2\n'
    assert cell(read(refused), "default", Q.REQUESTS_FAILED) == 2.0
    reading = read_queues(read(SMG), Role.GATEWAY, None, 0.0, pods=True)
    assert (reading.wake_source, reading.arrivals) == (WakeSource.REFUSALS, False)


AI_GATEWAY = """
    gen_ai_server_request_duration_seconds_bucket{gen_ai_operation_name="chat",gen_ai_request_model="m",le="+Inf"} 12
    gen_ai_server_request_duration_seconds_count{gen_ai_operation_name="chat",gen_ai_original_model="alias",gen_ai_provider_name="openai",gen_ai_request_model="m",gen_ai_response_model="m"} 12
    gen_ai_server_request_duration_seconds_count{error_type="_OTHER",gen_ai_operation_name="chat",gen_ai_original_model="alias",gen_ai_provider_name="openai",gen_ai_request_model="m",gen_ai_response_model="unknown"} 3
    gen_ai_client_token_usage_sum{gen_ai_request_model="m",gen_ai_token_type="input"} 100
    gen_ai_client_token_usage_sum{gen_ai_request_model="m",gen_ai_token_type="cached_input"} 60
    gen_ai_client_token_usage_sum{gen_ai_request_model="m",gen_ai_token_type="output"} 40
    gen_ai_client_token_usage_count{gen_ai_request_model="m",gen_ai_token_type="input"} 12
    """  # noqa: E501 - as they are


def test_envoy_ai_gateway_has_requests_and_tokens_and_no_queue(read, cell):
    samples = read(AI_GATEWAY)
    assert samples.kind == "envoy_ai_gateway"
    assert samples.subjects == (Queue("m"),)
    assert cell(samples, "m", Q.REQUESTS_FINISHED) == 12.0
    assert cell(samples, "m", Q.REQUESTS_FAILED) == 3.0
    assert cell(samples, "m", Q.TOKENS_PROMPT) == 100.0
    assert cell(samples, "m", Q.TOKENS_GENERATED) == 40.0
    assert isnan(cell(samples, "m", Q.REQUESTS_RUNNING))
    assert read_queues(samples, Role.GATEWAY, None, 0.0, pods=True).wake_source is WakeSource.NOTHING
