"""Health checks are not counted as requests."""

import pytest

from exporter.catalog.kind import is_probe
from exporter.model import Quantity, Queue


@pytest.mark.parametrize("path", [
    "/health", "/healthz", "/livez", "/readyz", "/metrics", "/ping", "/v2/health/live", "/v2/health/ready",
    "/-/healthz", "/health/liveliness", "/v1/health/ready", "/chat/Healthz", "/healthz/", "/healthz?verbose=1",
    "/v2/models/llama/ready",
])  # fmt: skip
@pytest.mark.parametrize("label", ["path", "route", "handler", "endpoint", "http_route"])
def test_health_check_is_detected_by_the_last_part_of_its_path(label, path):
    assert is_probe({label: path, "code": "200"})


@pytest.mark.parametrize("path", [
    "/v1/completions", "/", "", "health", "/v1/models/health:predict", "/v2/models/health/infer", "/healthcare",
    "/v1/pings", "/status", "/chat", "none",
])  # fmt: skip
def test_other_path_is_no_probe(path):
    assert not is_probe({"path": path})


def test_other_label_is_no_path():
    assert not is_probe({"model_name": "/health", "pod": "/ready"})


def column(samples, name, quantity):
    return samples.column(quantity)[samples.subjects.index(Queue(name))]


def test_probes_of_the_http_add_on_are_not_counted(samples):
    samples_ = samples("""
        interceptor_request_count_total{host="chat",method="GET",path="/healthz",code="200"} 900
        interceptor_request_count_total{host="chat",method="POST",path="/v1/completions",code="200"} 5
        interceptor_request_concurrency{host="chat",route_name="chat"} 0
    """, "http_addon")  # fmt: skip
    assert column(samples_, "chat", Quantity.REQUESTS_FINISHED) == 5


def test_probes_of_litellm_are_not_counted(samples):
    text = """
        litellm_in_flight_requests 1
        litellm_proxy_total_requests_metric_total{route="/health/liveliness"} 900
    """
    samples_ = samples(text, "litellm")
    assert Quantity.REQUESTS_FINISHED not in samples_.quantities
    samples_ = samples(text + 'litellm_proxy_total_requests_metric_total{route="/chat/completions"} 7\n', "litellm")
    assert samples_.column(Quantity.REQUESTS_FINISHED).tolist() == [7]


def test_waiting_requests_are_never_excluded_by_name(samples):
    samples_ = samples(
        """
        ray_serve_deployment_queued_queries{deployment="d",application="",route="/health"} 3
        ray_serve_deployment_request_counter_total{deployment="d",application="",route="/health"} 90
    """,
        "ray_serve",
    )
    assert (column(samples_, "d", Quantity.REQUESTS_WAITING), Quantity.REQUESTS_FINISHED in samples_.quantities) == (
        3,
        False,
    )
