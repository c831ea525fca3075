"""Health checks that a page names are nobody's requests; whatever else it names is somebody's."""

import pytest

from exporter.catalog.kind import is_probe
from exporter.model import Quantity, Queue


@pytest.mark.parametrize("path", [
    "/health", "/healthz", "/livez", "/readyz", "/metrics", "/ping", "/v2/health/live", "/v2/health/ready",
    "/-/healthz", "/health/liveliness", "/v1/health/ready", "/chat/Healthz", "/healthz/", "/healthz?verbose=1",
    "/v2/models/llama/ready",
])  # fmt: skip
@pytest.mark.parametrize("label", ["path", "route", "handler", "endpoint", "http_route"])
def test_a_health_check_is_known_by_the_last_part_of_its_path(label, path):
    assert is_probe({label: path, "code": "200"})


@pytest.mark.parametrize("path", [
    "/v1/completions", "/", "", "health", "/v1/models/health:predict", "/v2/models/health/infer", "/healthcare",
    "/v1/pings", "/status", "/chat", "none",
])  # fmt: skip
def test_any_other_path_is_somebodys(path):
    assert not is_probe({"path": path})


def test_a_label_of_another_name_says_nothing_of_a_path():
    assert not is_probe({"model_name": "/health", "pod": "/ready"})


def column(samples, name, quantity):
    return samples.column(quantity)[samples.subjects.index(Queue(name))]


def test_the_http_add_ons_probes_are_not_counted(samples):
    said = samples("""
        interceptor_request_count_total{host="chat",method="GET",path="/healthz",code="200"} 900
        interceptor_request_count_total{host="chat",method="POST",path="/v1/completions",code="200"} 5
        interceptor_request_concurrency{host="chat",route_name="chat"} 0
    """, "http_addon")  # fmt: skip
    assert column(said, "chat", Quantity.REQUESTS_FINISHED) == 5


def test_litellms_probes_are_not_counted_and_a_page_of_probes_alone_counts_nothing(samples):
    text = """
        litellm_in_flight_requests 1
        litellm_proxy_total_requests_metric_total{route="/health/liveliness"} 900
    """
    said = samples(text, "litellm")
    assert Quantity.REQUESTS_FINISHED not in said.quantities
    said = samples(text + 'litellm_proxy_total_requests_metric_total{route="/chat/completions"} 7\n', "litellm")
    assert said.column(Quantity.REQUESTS_FINISHED).tolist() == [7]


def test_what_waits_is_never_left_out_by_its_name(samples):
    said = samples(
        """
        ray_serve_deployment_queued_queries{deployment="d",application="",route="/health"} 3
        ray_serve_deployment_request_counter_total{deployment="d",application="",route="/health"} 90
    """,
        "ray_serve",
    )
    assert (column(said, "d", Quantity.REQUESTS_WAITING), Quantity.REQUESTS_FINISHED in said.quantities) == (3, False)
