"""Queues are read from Envoy, LiteLLM, Knative and KEDA's HTTP interceptor."""

from math import isnan

import pytest

from exporter.catalog import KINDS
from exporter.model import Quantity, Queue

Q = Quantity

ENVOY = """
    # TYPE envoy_cluster_upstream_rq_active gauge
    envoy_cluster_upstream_rq_active{envoy_cluster_name="chat"} 5
    envoy_cluster_upstream_rq_active{envoy_cluster_name="mail"} 0
    envoy_cluster_upstream_rq_active{envoy_cluster_name="xds_cluster"} 1
    envoy_cluster_upstream_rq_pending_active{envoy_cluster_name="chat"} 3
    envoy_cluster_upstream_rq_pending_active{envoy_cluster_name="mail"} 0
    envoy_cluster_upstream_rq_pending_active{envoy_cluster_name="xds_cluster"} 0
    envoy_cluster_upstream_rq_pending_overflow{envoy_cluster_name="chat"} 2
    envoy_cluster_upstream_cx_none_healthy{envoy_cluster_name="chat"} 7
    envoy_cluster_upstream_rq_completed{envoy_cluster_name="chat"} 100
    envoy_cluster_upstream_rq_total{envoy_cluster_name="chat"} 105
    envoy_cluster_membership_healthy{envoy_cluster_name="chat"} 0
    envoy_server_live{} 1
    """


def test_envoy_requests_without_a_connection_are_held_and_others_run(read, cell):
    samples = read(ENVOY)
    assert samples.kind == "envoy"
    assert cell(samples, "chat", Q.REQUESTS_HELD) == 3.0
    assert cell(samples, "chat", Q.REQUESTS_RUNNING) == 5.0
    assert cell(samples, "chat", Q.REQUESTS_FINISHED) == 100.0


def test_requests_that_envoy_refuses_are_failed_requests(read, cell):
    assert cell(read(ENVOY), "chat", Q.REQUESTS_FAILED) == 9.0


def test_streams_of_envoy_to_its_control_plane_are_not_counted(read):
    assert read(ENVOY).subjects == (Queue("chat"), Queue("mail"))


def active(**clusters):
    return "".join(
        f'envoy_cluster_upstream_rq_active{{envoy_cluster_name="{name}"}} {value}\n' for name, value in clusters.items()
    )


@pytest.mark.parametrize(
    "clusters",
    [
        {"consul-dataplane": 1, "prometheus_backend": 1, "self_admin": 1},
        {"local_agent": 1, "prometheus_backend": 1, "self_admin": 1},
        {"xds-grpc": 1, "sds-grpc": 1, "agent": 1, "prometheus_stats": 1, "datadog_agent": 1},
        {"xds_cluster": 1, "prometheus_stats": 1, "wasm_cluster": 1, "otel_metric_sink_0": 1, "otel_metric_sink_1": 1},
        {"projectcontour_contour_8001": 1, "projectcontour_envoy-admin_9001": 1},
    ],
    ids=["consul-dataplane", "consul", "istio", "envoy-gateway", "contour"],
)
def test_clusters_of_envoys_bootstrap_are_not_counted(read, clusters):
    samples = read(active(**clusters, chat=2))
    assert samples.subjects == (Queue("chat"),)
    assert samples.column(Q.REQUESTS_RUNNING).tolist() == [2.0]


def test_application_with_the_name_of_istios_agent_is_counted_without_istio(read):
    assert read(active(agent=2, otel_metric_sink=1)).subjects == (Queue("agent"), Queue("otel_metric_sink"))


def test_cluster_label_of_istio_is_read(read, cell):
    samples = read('envoy_cluster_upstream_rq_active{cluster_name="outbound|80||chat.ai.svc.cluster.local"} 4\n')
    assert cell(samples, "outbound|80||chat.ai.svc.cluster.local", Q.REQUESTS_RUNNING) == 4.0


def test_envoy_without_cluster_metrics_has_no_queue(read):
    samples = read("envoy_server_live 1\nenvoy_http_downstream_rq_active 4\n")
    assert samples.kind == "envoy"
    assert samples.subjects == ()


LITELLM = """
    # HELP litellm_in_flight_requests In flight
    # TYPE litellm_in_flight_requests gauge
    litellm_in_flight_requests 1
    # TYPE litellm_proxy_total_requests_metric_total counter
    """
LITELLM_FAILED = """
    # TYPE litellm_proxy_failed_requests_metric_total counter
    """


def test_counter_that_litellm_only_declares_is_zero_until_a_request_fails(read, cell):
    fresh = read(LITELLM + LITELLM_FAILED)
    assert (cell(fresh, "default", Q.REQUESTS_FAILED), cell(fresh, "default", Q.REQUESTS_FINISHED)) == (0.0, 0.0)
    line = 'litellm_proxy_failed_requests_metric_total{route="/v1/completions",exception_status="500"} 1\n'
    assert cell(read(LITELLM + LITELLM_FAILED + line), "default", Q.REQUESTS_FAILED) == 1.0


def test_counter_that_litellm_does_not_declare_or_that_is_unreadable_is_unknown_and_not_zero(read, cell):
    assert isnan(cell(read(LITELLM), "default", Q.REQUESTS_FAILED))
    for invalid in ("x", "NaN", "-1"):
        line = f'litellm_proxy_failed_requests_metric_total{{exception_status="500"}} {invalid}\n'
        assert isnan(cell(read(LITELLM + LITELLM_FAILED + line), "default", Q.REQUESTS_FAILED)), invalid


def test_requests_in_flight_of_litellm_are_summed_over_workers_and_not_split_by_model(read, cell):
    samples = read(
        """
        litellm_in_flight_requests{pid="11"} 2
        litellm_in_flight_requests{pid="12"} 3
        litellm_proxy_total_requests_metric_total{requested_model="a",status_code="200"} 5
        litellm_proxy_total_requests_metric_total{requested_model="b",status_code="500"} 2
        litellm_proxy_total_requests_metric_created{requested_model="a",status_code="200"} 1.78e+09
        litellm_proxy_failed_requests_metric_total{requested_model="b",exception_status="500"} 2
        litellm_redis_latency_bucket{le="1"} 4
        """
    )
    assert samples.kind == "litellm"
    assert samples.subjects == (Queue("default"),)
    assert cell(samples, "default", Q.REQUESTS_RUNNING) == 5.0
    assert cell(samples, "default", Q.REQUESTS_FINISHED) == 7.0
    assert cell(samples, "default", Q.REQUESTS_FAILED) == 2.0
    assert isnan(cell(samples, "default", Q.REQUESTS_WAITING))


def test_activator_holds_requests_that_wait_for_a_pod(read, cell):
    samples = read(
        """
        kn_revision_request_queued{k8s_namespace_name="ai",kn_revision_name="chat-00001"} 4
        kn_revision_request_active{k8s_namespace_name="ai",kn_revision_name="chat-00001"} 2
        kn_revision_request_concurrency{k8s_namespace_name="ai",kn_revision_name="chat-00001"} 6
        """
    )
    assert samples.kind == "knative"
    assert cell(samples, "ai/chat-00001", Q.REQUESTS_HELD) == 4.0
    assert cell(samples, "ai/chat-00001", Q.REQUESTS_RUNNING) == 2.0


def test_revisions_of_one_name_in_two_namespaces_are_two(read):
    line = 'kn_revision_request_queued{{k8s_namespace_name="{}",kn_revision_name="chat-00001"}} 4\n'
    assert read(line.format("ai") + line.format("test")).subjects == (Queue("ai/chat-00001"), Queue("test/chat-00001"))


def test_old_activator_has_one_count_of_waiting_and_running(read, cell):
    samples = read(
        """
        activator_request_concurrency{namespace_name="ai",revision_name="chat-00001"} 3
        activator_request_count{namespace_name="ai",revision_name="chat-00001",response_code="200"} 8
        """
    )
    assert samples.kind == "knative"
    assert cell(samples, "ai/chat-00001", Q.REQUESTS_RUNNING) == 3.0
    assert cell(samples, "ai/chat-00001", Q.REQUESTS_FINISHED) == 8.0
    assert isnan(cell(samples, "ai/chat-00001", Q.REQUESTS_HELD))


@pytest.mark.parametrize(
    ("depth", "count"),
    [
        ("kn_serving_queue_depth", "kn_serving_invocation_duration_seconds_count"),
        ("revision_queue_depth", "revision_app_request_count"),
        ("queue_proxy_queue_depth", "queue_proxy_app_request_count_total"),
    ],
)
def test_last_depth_of_queue_proxy_is_no_queue(read, cell, depth, count):
    samples = read(f'{depth}{{revision_name="chat-00001"}} 1\n{count}{{revision_name="chat-00001"}} 40\n')
    assert samples.kind == "knative"
    assert samples.quantities == (Q.REQUESTS_FINISHED,)
    assert cell(samples, "chat-00001", Q.REQUESTS_FINISHED) == 40.0


def test_interceptor_counts_a_request_from_arrival_to_response(read, cell):
    samples = read(
        """
        interceptor_request_concurrency{route_name="chat",route_namespace="ai"} 5
        interceptor_request_count_total{code="200",method="GET",route_name="chat",route_namespace="ai"} 30
        interceptor_request_count_total{code="502",method="GET",route_name="chat",route_namespace="ai"} 2
        """
    )
    assert samples.kind == "http_addon"
    assert cell(samples, "ai/chat", Q.REQUESTS_RUNNING) == 5.0
    assert cell(samples, "ai/chat", Q.REQUESTS_FINISHED) == 32.0


def test_route_has_its_namespace_whether_or_not_another_has_its_name(read):
    line = 'interceptor_request_concurrency{{route_name="chat",route_namespace="{}"}} 1\n'
    assert read(line.format("ai")).subjects == (Queue("ai/chat"),)
    assert read(line.format("ai") + line.format("test")).subjects == (Queue("ai/chat"), Queue("test/chat"))


def test_interceptor_without_a_request_since_its_start_shows_no_route(read):
    samples = read('target_info{service_name="keda-http-interceptor",service_version="HEAD"} 1\n', kind="http_addon")
    assert samples.subjects == ()


def test_older_interceptor_has_one_queue_for_each_host(read, cell):
    samples = read(
        """
        interceptor_pending_request_count{host="chat.example",otel_scope_name="keda-interceptor-proxy"} 10
        interceptor_request_count_total{code="200",host="chat.example",method="get",path="/"} 3
        """
    )
    assert cell(samples, "chat.example", Q.REQUESTS_RUNNING) == 10.0


def test_proxy_repeats_the_requests_of_its_engines():
    assert all(KINDS[kind].repeats_engines for kind in ("envoy", "litellm", "knative", "http_addon", "epp"))
