"""What must hold of the metrics API's listener."""

import pytest

from scaler.config import ConfigErrors, parse

FILES = "certificate: tls.crt, key: tls.key"


def said(api, rest="kubernetes: {}"):
    text = f"listen: {{metrics_api: {{{FILES}, {api}}}}}\n{rest}"
    try:
        problems = parse(text, "c.yaml")[1]
    except ConfigErrors as errors:
        problems = errors.problems
    return [(problem.severity, problem.key, problem.message) for problem in problems]


def test_with_a_cluster_and_a_group_there_is_nothing_to_say():
    assert said("external: true") == said("custom: true") == []


def test_without_a_cluster_nobody_says_who_asks():
    bound = "needs kubernetes: the API server authenticates callers"
    assert said("external: true", "gpus: [{dns: a}]") == [("error", "listen.metrics_api", bound)]


def test_a_listener_that_serves_nothing_is_said():
    bound = "serves nothing: neither external nor custom is true"
    assert said("external: false") == [("warning", "listen.metrics_api", bound)]


@pytest.mark.parametrize(
    ("address", "other"), [("0.0.0.0:8080", "http (0.0.0.0:8080)"), ("127.0.0.1:6000", "grpc (0.0.0.0:6000)")]
)
def test_its_port_is_nobody_elses(address, other):
    bound = f'must be another port than listen.{other}, got "{address}"'
    assert said(f'custom: true, address: "{address}"') == [("error", "listen.metrics_api.address", bound)]


def test_the_same_port_on_two_addresses_is_two():
    api = f'metrics_api: {{{FILES}, custom: true, address: "10.0.0.1:8443"}}'
    text = f'listen: {{http: "127.0.0.1:8443", {api}}}\nkubernetes: {{}}'
    assert parse(text, "c.yaml")[1] == []


@pytest.mark.parametrize("name", ["tidegate", "tidegate.tidegate.svc", "Tidegate.tidegate", "tidegate:8443"])
def test_its_own_service_is_named_with_its_namespace(name):
    bound = f'must be NAME.NAMESPACE of a Service such as tidegate.tidegate, got "{name}"'
    assert said(f'custom: true, service: "{name}"') == [("error", "listen.metrics_api.service", bound)]
    assert said("custom: true, service: tidegate.tidegate") == []
