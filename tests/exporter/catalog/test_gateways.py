"""Queues are read from Ray Serve and EPP."""

from math import isnan

from exporter.catalog import KINDS
from exporter.model import Quantity, Queue

Q = Quantity

# Of Ray 2.60, shortened: the nodes of a proxy and of two replicas, 4 requests running and 3 queued. Before,
# 7 ended well, 1 with an exception and 1 without its client; 2 found no place in the queue.
RAY_PROXY = """
    # TYPE ray_serve_deployment_queued_queries gauge
    ray_serve_deployment_queued_queries{WorkerId="3f",application="app",deployment="LLM",handle="h1"} 3
    ray_serve_num_ongoing_requests_at_replicas{WorkerId="3f",application="app",deployment="LLM",handle="h1"} 4
    ray_serve_num_ongoing_http_requests{WorkerId="3f",node_ip_address="10.0.0.1"} 7
    ray_serve_num_router_requests_total{WorkerId="3f",application="app",deployment="LLM",route="/"} 16
    ray_serve_num_deployment_http_error_requests_total{application="app",deployment="LLM",error_code="499",route="/"} 1
    ray_serve_num_deployment_http_error_requests_total{application="app",deployment="LLM",error_code="500",route="/"} 1
    ray_serve_num_deployment_http_error_requests_total{application="app",deployment="LLM",error_code="503",route="/"} 2
    ray_serve_num_http_error_requests_total{application="app",error_code="503",route="/"} 2
    ray_serve_num_deployment_http_error_requests_total{application="",deployment="",error_code="503",route="/r"} 5
    """
RAY_REPLICAS = """
    # TYPE ray_serve_replica_processing_queries gauge
    ray_serve_replica_processing_queries{WorkerId="fd",application="app",deployment="LLM",replica="r1"} 2
    ray_serve_replica_processing_queries{WorkerId="03",application="app",deployment="LLM",replica="r2"} 2
    ray_serve_deployment_request_counter_total{application="app",deployment="LLM",replica="r1",route="/"} 3
    ray_serve_deployment_request_counter_total{application="app",deployment="LLM",replica="r2",route="/"} 4
    ray_serve_deployment_error_counter_total{application="app",deployment="LLM",exception_type="RuntimeError"} 1
    ray_serve_deployment_error_counter_total{application="app",deployment="LLM",exception_type="CancelledError"} 1
    """


def test_request_that_a_replica_of_ray_processes_is_open_in_its_handle_and_running_in_its_replica(read, cell):
    proxy, replicas = read(RAY_PROXY), read(RAY_REPLICAS)
    assert proxy.kind == replicas.kind == "ray_serve"
    assert proxy.subjects == replicas.subjects == (Queue("LLM"),)
    assert cell(proxy, "LLM", Q.REQUESTS_WAITING) == 3.0
    assert cell(proxy, "LLM", Q.REQUESTS_OPEN) == cell(replicas, "LLM", Q.REQUESTS_RUNNING) == 4.0
    assert isnan(cell(proxy, "LLM", Q.REQUESTS_RUNNING))
    assert isnan(cell(replicas, "LLM", Q.REQUESTS_OPEN))


def test_request_that_no_replica_of_ray_got_is_failed_and_one_that_failed_there_is_not_counted_twice(read, cell):
    assert cell(read(RAY_PROXY), "LLM", Q.REQUESTS_FAILED) == 2.0
    assert cell(read(RAY_REPLICAS), "LLM", Q.REQUESTS_FAILED) == 2.0
    assert cell(read(RAY_REPLICAS), "LLM", Q.REQUESTS_FINISHED) == 7.0
    calls = RAY_PROXY.replace("_http_error", "_grpc_error").replace('"503"', '"RESOURCE_EXHAUSTED"')
    assert cell(read(calls), "LLM", Q.REQUESTS_FAILED) == 2.0


def test_handles_of_ray_add_up(read, cell):
    other = RAY_PROXY.replace('handle="h1"', 'handle="h2"').replace("3f", "4e")
    samples = read(RAY_PROXY + other)
    assert cell(samples, "LLM", Q.REQUESTS_WAITING) == 6.0
    assert cell(samples, "LLM", Q.REQUESTS_OPEN) == 8.0


def test_counter_of_ray_is_not_the_gauge_of_the_same_name(read, cell):
    """Early versions expose both."""
    gauge = 'ray_serve_deployment_request_counter{application="app",deployment="LLM",replica="r1",route="/"} 3\n'
    assert cell(read(RAY_REPLICAS + gauge), "LLM", Q.REQUESTS_FINISHED) == 7.0
    assert isnan(cell(read(RAY_PROXY + gauge), "LLM", Q.REQUESTS_FINISHED))


def test_deployment_is_named_with_its_application_only_if_two_have_its_name(read):
    samples = read(
        """
        ray_serve_deployment_queued_queries{application="one",deployment="LLM",handle="h1"} 1
        ray_serve_deployment_queued_queries{application="two",deployment="LLM",handle="h2"} 2
        ray_serve_deployment_queued_queries{application="two",deployment="Embed",handle="h3"} 3
        """
    )
    assert samples.subjects == (Queue("one/LLM"), Queue("two/LLM"), Queue("Embed"))


EPP = """
    inference_pool_average_queue_size{name="p"} 0.5
    inference_pool_average_running_requests{name="p"} 8
    inference_pool_average_kv_cache_utilization{name="p"} 0.25
    inference_pool_ready_pods{name="p"} 4
    inference_pool_per_pod_queue_size{name="p",model_server_pod="a"} 9
    inference_extension_flow_control_queue_size{fairness_id="x",priority="0",inference_pool="p"} 3
    inference_extension_flow_control_queue_size{fairness_id="y",priority="-1",inference_pool="p"} 4
    """


def test_averages_of_a_pool_are_multiplied_by_its_ready_pods(read, cell):
    samples = read(EPP)
    assert samples.kind == "epp"
    assert KINDS[samples.kind].repeats_engines
    assert cell(samples, "p", Q.REQUESTS_WAITING) == 2.0
    assert cell(samples, "p", Q.REQUESTS_RUNNING) == 32.0
    assert cell(samples, "p", Q.REPLICAS_READY) == 4.0
    assert cell(samples, "p", Q.KV_CACHE_USED) == 0.25


def test_requests_held_by_the_gateway_are_summed_over_flows(read, cell):
    assert cell(read(EPP), "p", Q.REQUESTS_HELD) == 7.0


def test_no_flow_control_queue_is_unknown_and_not_empty(read, cell):
    without = "\n".join(line for line in EPP.splitlines() if "flow_control" not in line)
    assert isnan(cell(read(without), "p", Q.REQUESTS_HELD))


def test_queues_of_the_pods_add_up_without_a_number_of_ready_pods(read, cell):
    without = "\n".join(line for line in EPP.splitlines() if "ready" not in line)
    samples = read(without + '\n    inference_pool_per_pod_queue_size{name="p",model_server_pod="b"} 1\n')
    assert cell(samples, "p", Q.REQUESTS_WAITING) == 10.0
    assert isnan(cell(samples, "p", Q.REQUESTS_RUNNING))


def test_average_alone_is_no_total(read, cell):
    assert isnan(cell(read('inference_pool_average_queue_size{name="p1"} 0.4\n'), "p1", Q.REQUESTS_WAITING))


def test_only_held_requests_count_with_no_ready_pod(read, cell):
    none_ready = "\n".join(
        line.replace("} 4", "} 0") if "ready_pods" in line else line.replace("} 0.5", "} 0")
        for line in EPP.splitlines()
    )
    samples = read(none_ready)
    assert cell(samples, "p", Q.REPLICAS_READY) == 0.0
    assert isnan(cell(samples, "p", Q.REQUESTS_WAITING))
    assert isnan(cell(samples, "p", Q.REQUESTS_RUNNING))
    assert cell(samples, "p", Q.REQUESTS_HELD) == 7.0


def test_requests_refused_by_epp_are_failed_requests_of_the_only_pool(read, cell):
    samples = read(
        """
        llm_d_epp_ready_endpoints{name="p"} 0
        llm_d_epp_request_error_total{error_code="ServiceUnavailable",model_name="m",target_model_name="m"} 40
        inference_objective_request_error_total{error_code="ServiceUnavailable",model_name="m"} 40
        """
    )
    assert samples.subjects == (Queue("p"),)
    assert cell(samples, "p", Q.REQUESTS_FAILED) == 40.0


def test_epp_with_old_and_new_names_is_counted_once(read, cell):
    samples = read(
        EPP
        + """
    llm_d_epp_average_queue_size{name="p"} 0.5
    llm_d_epp_ready_endpoints{name="p"} 4
    llm_d_epp_flow_control_queue_size{fairness_id="x",priority="0",inference_pool="p"} 3
    llm_d_epp_flow_control_queue_size{fairness_id="y",priority="-1",inference_pool="p"} 4
    """
    )
    assert cell(samples, "p", Q.REQUESTS_WAITING) == 2.0
    assert cell(samples, "p", Q.REQUESTS_HELD) == 7.0
    assert cell(samples, "p", Q.REPLICAS_READY) == 4.0


def test_flow_without_a_pool_name_belongs_to_the_only_pool(read, cell):
    samples = read('llm_d_epp_ready_endpoints{name="p"} 1\nllm_d_epp_flow_control_queue_size{priority="-10"} 6\n')
    assert samples.subjects == (Queue("p"),)
    assert cell(samples, "p", Q.REQUESTS_HELD) == 6.0


def test_running_requests_without_an_average_are_those_that_epp_admitted(read, cell):
    page = 'llm_d_epp_ready_endpoints{{name="p"}} {}\nllm_d_epp_request_running{{model_name="m"}} {}\n'
    assert cell(read(page.format(4, 12)), "p", Q.REQUESTS_RUNNING) == 12.0
    assert isnan(cell(read(page.format(0, 0)), "p", Q.REQUESTS_RUNNING))


# What llm-d's EPP 0.10.0 printed of these families, with both sets of names, in the order of its life: no request yet;
# one held without a pod; one running at a pod; one running at a pod whose metrics it could not read; the pod is gone.
NO_REQUEST = """
    inference_extension_flow_control_pool_saturation{inference_pool="chat"} 1
    inference_extension_info{build_ref="",commit=""} 1
    inference_pool_ready_pods{name="chat"} 0
    llm_d_epp_flow_control_pool_saturation{inference_pool="chat"} 1
    llm_d_epp_info{build_ref="",commit=""} 1
    llm_d_epp_ready_endpoints{name="chat"} 0
    """
FLOW = 'fairness_id="default-flow",inference_pool="chat",model_name="chat",priority="0",target_model_name="chat"'
HELD = f"""
    inference_extension_flow_control_queue_size{{{FLOW}}} 1
    inference_pool_ready_pods{{name="chat"}} 0
    llm_d_epp_flow_control_queue_size{{{FLOW}}} 1
    llm_d_epp_ready_endpoints{{name="chat"}} 0
    """
ADMITTED = """
    inference_objective_request_total{model_name="chat",priority="0",target_model_name="chat"} 1
    inference_objective_running_requests{model_name="chat"} 1
    llm_d_epp_request_running{fairness_id="default-flow",model_name="chat",priority="0",target_model_name="chat"} 1
    llm_d_epp_request_total{fairness_id="default-flow",model_name="chat",priority="0",target_model_name="chat"} 1
    """
AVERAGES = """
    inference_pool_average_kv_cache_utilization{name="chat"} 0.25
    inference_pool_average_queue_size{name="chat"} 2
    inference_pool_average_running_requests{name="chat"} 3
    llm_d_epp_average_kv_cache_utilization{name="chat"} 0.25
    llm_d_epp_average_queue_size{name="chat"} 2
    llm_d_epp_average_running_requests{name="chat"} 3
    llm_d_epp_std_dev_queue_size{name="chat"} 0
    """
PER_POD = """
    inference_pool_per_pod_queue_size{model_server_pod="chat-0-rank-0",name="chat"} 2
    llm_d_epp_per_endpoint_queue_size{model_server_endpoint="chat-0-rank-0",name="chat"} 2
    """
EMPTY = HELD.replace("} 1", "} 0")
RUNNING = EMPTY.replace('{name="chat"} 0', '{name="chat"} 1') + ADMITTED + AVERAGES + PER_POD
BLIND = EMPTY + ADMITTED
GONE = EMPTY + ADMITTED.replace("} 1", "} 0") + AVERAGES


def test_epp_without_a_request_shows_no_queue(read, cell):
    samples = read(NO_REQUEST)
    assert (samples.kind, samples.subjects) == ("epp", (Queue("chat"),))
    assert cell(samples, "chat", Q.REPLICAS_READY) == 0.0
    assert isnan(cell(samples, "chat", Q.REQUESTS_HELD))


def test_request_held_by_epp_is_counted_once_under_both_names(read, cell):
    samples = read(HELD)
    assert samples.subjects == (Queue("chat"),)
    assert cell(samples, "chat", Q.REQUESTS_HELD) == 1.0


def test_epp_with_a_pod_shows_the_requests_of_its_engine(read, cell):
    samples = read(RUNNING)
    assert cell(samples, "chat", Q.REQUESTS_HELD) == 0.0
    assert cell(samples, "chat", Q.REQUESTS_WAITING) == 2.0
    assert cell(samples, "chat", Q.REQUESTS_RUNNING) == 3.0
    assert cell(samples, "chat", Q.KV_CACHE_USED) == 0.25


def test_request_that_epp_has_let_through_runs_although_it_reads_no_pods_metrics(read, cell):
    samples = read(BLIND)
    assert cell(samples, "chat", Q.REPLICAS_READY) == 0.0
    assert cell(samples, "chat", Q.REQUESTS_RUNNING) == 1.0


def test_averages_of_pods_that_are_gone_are_unknown(read, cell):
    """EPP prints the last ones until a pod is ready again."""
    samples = read(GONE)
    for quantity in (Q.REQUESTS_WAITING, Q.REQUESTS_RUNNING, Q.KV_CACHE_USED):
        assert isnan(cell(samples, "chat", quantity))
    assert cell(samples, "chat", Q.REQUESTS_HELD) == 0.0
