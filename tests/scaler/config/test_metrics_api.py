"""Checks the configuration of the metrics API's listener."""

import pytest

from scaler.config import ConfigErrors, parse

FILES = "certificate: tls.crt, key: tls.key"


def check(api, rest="kubernetes: {}"):
    text = f"listen: {{metrics_api: {{{FILES}, {api}}}}}\n{rest}"
    try:
        problems = parse(text, "c.yaml")[1]
    except ConfigErrors as errors:
        problems = errors.problems
    return [(problem.severity, problem.key, problem.message) for problem in problems]


def test_listener_with_cluster_and_api_group_gives_no_problem():
    assert check("external: true") == check("custom: true") == []


def test_listener_without_kubernetes_is_an_error():
    bound = "needs kubernetes: the API server authenticates callers"
    assert check("external: true", "gpus: [{dns: a}]") == [("error", "listen.metrics_api", bound)]


def test_listener_without_api_group_is_a_warning():
    bound = "serves nothing: neither external nor custom is true"
    assert check("external: false") == [("warning", "listen.metrics_api", bound)]


@pytest.mark.parametrize(
    ("address", "other"), [("0.0.0.0:8080", "http (0.0.0.0:8080)"), ("127.0.0.1:6000", "grpc (0.0.0.0:6000)")]
)
def test_port_must_differ_from_the_other_listeners(address, other):
    bound = f'must be another port than listen.{other}, got "{address}"'
    assert check(f'custom: true, address: "{address}"') == [("error", "listen.metrics_api.address", bound)]


def test_same_port_on_different_addresses_is_allowed():
    api = f'metrics_api: {{{FILES}, custom: true, address: "10.0.0.1:8443"}}'
    text = f'listen: {{http: "127.0.0.1:8443", {api}}}\nkubernetes: {{}}'
    assert parse(text, "c.yaml")[1] == []


@pytest.mark.parametrize("name", ["tidegate", "tidegate.tidegate.svc", "Tidegate.tidegate", "tidegate:8443"])
def test_service_must_be_given_with_its_namespace(name):
    bound = f'must be NAME.NAMESPACE of a Service such as tidegate.tidegate, got "{name}"'
    assert check(f'custom: true, service: "{name}"') == [("error", "listen.metrics_api.service", bound)]
    assert check("custom: true, service: tidegate.tidegate") == []
