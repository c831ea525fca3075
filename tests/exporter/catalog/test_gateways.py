"""Queues of Ray Serve and EPP."""

from math import isnan

from exporter.catalog import KINDS
from exporter.model import Quantity, Queue

Q = Quantity

RAY = """
    # HELP ray_serve_deployment_queued_queries
    ray_serve_deployment_queued_queries{application="app",deployment="LLM",handle="h1",WorkerId="w1"} 6
    ray_serve_deployment_queued_queries{application="app",deployment="LLM",handle="h2",WorkerId="w2"} 10
    ray_serve_num_ongoing_requests_at_replicas{application="app",deployment="LLM",handle="h1"} 7
    ray_serve_replica_processing_queries{application="app",deployment="LLM",replica="r1"} 1
    ray_serve_replica_processing_queries{application="app",deployment="LLM",replica="r2"} 2
    ray_serve_num_ongoing_http_requests{node_ip_address="10.0.0.1"} 24
    ray_serve_deployment_request_counter_total{application="app",deployment="LLM",replica="r1",route="/"} 30
    ray_serve_deployment_request_counter{application="app",deployment="LLM",replica="r1",route="/"} 30
    ray_serve_deployment_error_counter_total{application="app",deployment="LLM",replica="r1",route="/"} 2
    """


def test_rays_handles_and_replicas_are_added_up_once(read, cell):
    samples = read(RAY)
    assert samples.kind == "ray_serve"
    assert samples.subjects == (Queue("LLM"),)
    assert cell(samples, "LLM", Q.REQUESTS_WAITING) == 16.0
    assert cell(samples, "LLM", Q.REQUESTS_RUNNING) == 7.0
    assert cell(samples, "LLM", Q.REQUESTS_FAILED) == 2.0


def test_larger_count_of_rays_running_requests_counts(read, cell):
    """Handles count what they have sent, replicas what they work on at the moment of their report."""
    busier = RAY.replace('replica="r2"} 2', 'replica="r2"} 9')
    assert cell(read(busier), "LLM", Q.REQUESTS_RUNNING) == 10.0
    unreadable = RAY.replace('replica="r2"} 2', 'replica="r2"} NaN')
    assert cell(read(unreadable), "LLM", Q.REQUESTS_RUNNING) == 7.0
    replicas_only = "\n".join(line for line in RAY.splitlines() if "ongoing_requests_at" not in line)
    assert cell(read(replicas_only), "LLM", Q.REQUESTS_RUNNING) == 3.0


def test_rays_counter_is_not_its_twin_gauge(read, cell):
    assert cell(read(RAY), "LLM", Q.REQUESTS_FINISHED) == 30.0
    gauge_only = "\n".join(line for line in RAY.splitlines() if "_counter_total" not in line)
    assert isnan(cell(read(gauge_only), "LLM", Q.REQUESTS_FINISHED))


def test_without_replicas_rays_handles_say_what_runs(read, cell):
    without = "\n".join(line for line in RAY.splitlines() if "processing" not in line)
    assert cell(read(without), "LLM", Q.REQUESTS_RUNNING) == 7.0


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


def test_pools_averages_are_multiplied_by_its_ready_pods(read, cell):
    samples = read(EPP)
    assert samples.kind == "epp"
    assert KINDS[samples.kind].repeats_engines
    assert cell(samples, "p", Q.REQUESTS_WAITING) == 2.0
    assert cell(samples, "p", Q.REQUESTS_RUNNING) == 32.0
    assert cell(samples, "p", Q.REPLICAS_READY) == 4.0
    assert cell(samples, "p", Q.KV_CACHE_USED) == 0.25


def test_what_the_gateway_holds_is_summed_over_flows_and_kept_apart(read, cell):
    assert cell(read(EPP), "p", Q.REQUESTS_HELD) == 7.0


def test_no_flow_control_queue_is_unknown_and_not_empty(read, cell):
    without = "\n".join(line for line in EPP.splitlines() if "flow_control" not in line)
    assert isnan(cell(read(without), "p", Q.REQUESTS_HELD))


def test_without_ready_pods_the_queues_of_each_pod_are_added_up(read, cell):
    without = "\n".join(line for line in EPP.splitlines() if "ready" not in line)
    samples = read(without + '\n    inference_pool_per_pod_queue_size{name="p",model_server_pod="b"} 1\n')
    assert cell(samples, "p", Q.REQUESTS_WAITING) == 10.0
    assert isnan(cell(samples, "p", Q.REQUESTS_RUNNING))


def test_average_alone_is_no_total(read, cell):
    assert isnan(cell(read('inference_pool_average_queue_size{name="p1"} 0.4\n'), "p1", Q.REQUESTS_WAITING))


def test_with_no_pod_ready_an_average_is_of_nobody_and_only_what_the_gateway_holds_counts(read, cell):
    none_ready = "\n".join(
        line.replace("} 4", "} 0") if "ready_pods" in line else line.replace("} 0.5", "} 0")
        for line in EPP.splitlines()
    )
    samples = read(none_ready)
    assert cell(samples, "p", Q.REPLICAS_READY) == 0.0
    assert isnan(cell(samples, "p", Q.REQUESTS_WAITING))
    assert isnan(cell(samples, "p", Q.REQUESTS_RUNNING))
    assert cell(samples, "p", Q.REQUESTS_HELD) == 7.0


def test_what_a_picker_refuses_is_activity_of_the_only_pool(read, cell):
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


def test_without_an_average_the_picker_knows_what_it_has_let_through(read, cell):
    page = 'llm_d_epp_ready_endpoints{{name="p"}} {}\nllm_d_epp_request_running{{model_name="m"}} 12\n'
    assert cell(read(page.format(4)), "p", Q.REQUESTS_RUNNING) == 12.0
    assert isnan(cell(read(page.format(0)), "p", Q.REQUESTS_RUNNING))
