"""Checks the Kubernetes part of a configuration: pods found through the API, shared gateways, dcgm-exporter."""

import pytest

from exporter.model import Credentials
from scaler.config import Config, DcgmExporter, Endpoint, Kubernetes, Replicas, SharedGateway, parse
from scaler.config.endpoint import Access

_KINDS = "Deployment, StatefulSet, LeaderWorkerSet, Rollout, InferenceService, InferenceSet, ScaledJob"
_SERVICE = "must be NAME or NAME.NAMESPACE of a Service such as chat-epp.ai"
_MATCHERS = """must be label matchers such as namespace="ai",pod=~"chat-.*\""""
_API = "must be where the API begins, such as https://prometheus.monitoring.svc:9090, without /api/v1"


def _pods(text, rest=""):
    return f"workloads: [{{engine: vllm, namespace: ai, name: c, pods: {{{text}}}, replicas: {{min: 1}}{rest}}}]"


def _errors(lines):
    return [line for line in lines if ": warning " not in line]


@pytest.mark.parametrize(("value", "expected"), [
    ("chat", "be KIND/NAME such as Deployment/chat, in the workload's own namespace, got chat"),
    ("ai/Deployment/chat",
     "be KIND/NAME such as Deployment/chat, in the workload's own namespace, got ai/Deployment/chat"),
    ("deploy/chat", f"be KIND/NAME, KIND one of {_KINDS} (did you mean Deployment?), got deploy/chat"),
    ("statefulset/chat", f"be KIND/NAME, KIND one of {_KINDS} (did you mean StatefulSet?), got statefulset/chat"),
    ("DaemonSet/chat", f"be KIND/NAME, KIND one of {_KINDS}, got DaemonSet/chat"),
    ("Node/chat", f"be KIND/NAME, KIND one of {_KINDS}, got Node/chat"),
    ("Deployment/Chat",
     "name a Deployment: lower-case letters, digits, '-' and '.', at most 253 characters, got Deployment/Chat"),
    ("7", "be KIND/NAME such as Deployment/chat, in the workload's own namespace, got 7"),
])  # fmt: skip
def test_target_must_be_a_supported_kind_and_a_name(check, value, expected):
    lines = check("kubernetes: {}\n" + _pods(f"target: {value}"))

    assert _errors(lines) == [f"c.yaml:2:67: workloads.0.pods.target: must {expected}"]


@pytest.mark.parametrize(("value", "hint"), [
    ("http://a", ": a URL goes into url"),
    ("a.b.svc", ": a longer DNS name goes into dns"),
    ("a:80", ": its port goes into port"),
    ("A", ""),
])  # fmt: skip
def test_service_is_a_name_with_an_optional_namespace(check, value, hint):
    assert check(f"gpus: [{{service: {value}}}]\nkubernetes: {{}}") == [
        f"c.yaml:1:18: gpus.0.service: {_SERVICE}{hint}, got {value}"
    ]


@pytest.mark.parametrize(("value", "hint"), [
    ('{pod="a"}', ", without braces"),
    ('up{pod="a"}', ", without braces"),
    ('__name__="up"', ", without __name__: the kind determines the metrics"),
    ('pod="a"} or up{b="c"', ", without braces"),
    ("pod=a", ""),
    ("up", ""),
    ('pod="a" pod="b"', ""),
    ('"up",pod="a"', ""),
    ("", ""),
])  # fmt: skip
def test_selector_must_be_label_matchers_without_braces(check, value, hint):
    lines = check(f"gpus: [{{prometheus: {{url: http://p, selector: '{value}'}}}}]")

    assert lines == [f'c.yaml:1:47: gpus.0.prometheus.selector: {_MATCHERS}{hint}, got "{value}"']


@pytest.mark.parametrize("value", [
    'namespace="ai",pod=~"chat-.*"', 'pod=~"chat-.{5}"', "a!='b', c!~`d\\`,", r'a="\"}"', 'a=""',
])  # fmt: skip
def test_selector_accepts_all_matchers_of_prometheus(value):
    assert Config(gpus=[{"prometheus": {"url": "http://p", "selector": value}}]).gpus[0].prometheus.selector == value


@pytest.mark.parametrize("value", ["http://p/api/v1", "http://p/api/v1/query", "http://p?x=y"])
def test_prometheus_url_must_be_the_base_of_the_api(check, value):
    assert check(f"gpus: [{{prometheus: {{url: '{value}'}}}}]") == [
        f'c.yaml:1:27: gpus.0.prometheus.url: {_API}, got "{value}"'
    ]


@pytest.mark.parametrize("value", ["https://p:9090", "https://p/prometheus/", "http://mimir/api"])
def test_prometheus_url_may_have_a_path_prefix(check, value):
    assert check(f"gpus: [{{prometheus: {{url: '{value}'}}}}]") == []


@pytest.mark.parametrize(("text", "expected"), [
    # An endpoint in the wrong place.
    ("kubernetes: {}\n" + _pods("service: chat"),
     "2:68: workloads.0.pods.service: is for gateways: the pods of a workload are found by target or dns, got chat"),
    ("kubernetes: {}\n" + _pods("dns: a", ", gateway: {target: Deployment/epp}"),
     "2:106: workloads.0.gateway.target: is for pods: use service or dns, got Deployment/epp"),
    ("kubernetes: {}\ngpus: [{target: Deployment/x}]",
     "2:17: gpus.0.target: is for pods: use service or dns, got Deployment/x"),
    # Endpoints found through Kubernetes.
    (_pods("target: Deployment/chat"),
     "1:67: workloads.0.pods.target: needs kubernetes, which locates it, got Deployment/chat"),
    ("gpus: [{service: dcgm.gpu}]",
     "1:18: gpus.0.service: needs kubernetes, which locates it, got dcgm.gpu"),
    ("gpus: [{service: dcgm}]\nkubernetes: {}",
     "1:18: gpus.0.service: must be NAME.NAMESPACE: there is no workload with a namespace here, got dcgm"),
    ("kubernetes: {namespaces: [b]}\n" + _pods("target: Deployment/chat"),
     ("2:67: workloads.0.pods.target: must be in a namespace of kubernetes.namespaces, which lacks ai, "
     "got Deployment/chat")),
    ("kubernetes: {namespaces: [ai]}\ngpus: [{service: dcgm.gpu}]",
     "2:18: gpus.0.service: must be in a namespace of kubernetes.namespaces, which lacks gpu, got dcgm.gpu"),
    # Prometheus.
    (_pods("prometheus: {url: http://p}"),
     "1:71: workloads.0.pods.prometheus.selector: must be given: it selects the targets"),
    ("gpus: [{prometheus: {url: http://p}, port: 9400}]",
     "1:44: gpus.0.port: goes with dns, target or service: that server knows its targets, got 9400"),
    ("gpus: [{prometheus: {url: http://p}, access: {tls: {ca_file: c}}}]",
     "1:52: gpus.0.access.tls: is for https: the targets are scraped over http"),
    ("gpus: [{prometheus: {url: http://p}, dns: a}]",
     "1:8: gpus.0: must have only one of url, urls, dns, service, prometheus: dns and prometheus are given"),
    (_pods("prometheus: &p {url: http://p, selector: 'a=\"b\"'}", "").replace("&p ", "").replace(
        "replicas", "gateway: {prometheus: {url: http://p, selector: 'a=\"b\"'}, kind: vllm}, replicas"),
     ("1:117: workloads.0.gateway: must be another target than pods: those are gone at zero and see no request")),
    # The section itself.
    ("kubernetes: {context: prod}",
     "1:23: kubernetes.context: needs kubeconfig: a pod's ServiceAccount has no contexts, got prod"),
    ("kubernetes: {namespaces: [a, b, a]}", "1:33: kubernetes.namespaces.2: must be another name than 0, got a"),
    ("kubernetes: {dcgm_exporter: {access: {tls: {ca_file: c}}}}",
     "1:44: kubernetes.dcgm_exporter.access.tls: is for https: the targets are scraped over http"),
    ("kubernetes: {dcgm_exporter: {access: {bearer_file: t}}}",
     ("1:38: kubernetes.dcgm_exporter.access: needs namespaces: else a tenant that labels a pod receives the "
      "token or password")),
    ("kubernetes: {dcgm_exporter: {namespaces: [x, x]}}",
     "1:46: kubernetes.dcgm_exporter.namespaces.1: must be another name than 0, got x"),
    # Shared gateways.
    ("kubernetes: {}\ngateways: [{name: g, namespaces: [], page: {dns: a}}]",
     "2:34: gateways.0.namespaces: must have at least one item, got a list"),
    ('kubernetes: {}\ngateways: [{name: g, namespaces: [a, "*"], page: {dns: a}}]',
     '2:34: gateways.0.namespaces: must be only ["*"], or names without it: "*" is every namespace'),
    ("kubernetes: {}\ngateways: [{name: g, namespaces: [A], page: {dns: a}}]",
     '2:35: gateways.0.namespaces.0: must be the name of a namespace, or "*" for every one, got A'),
    (("kubernetes: {}\n"
     "gateways: [{name: g, namespaces: [a], page: {dns: a}}, {name: g, namespaces: [b], page: {dns: a}}]"),
     "2:63: gateways.1.name: must be another name than that of gateways.0, got g"),
    ("kubernetes: {}\ngateways: [{name: g, namespaces: [a], page: {service: epp}}]",
     "2:55: gateways.0.page.service: must be NAME.NAMESPACE: there is no workload with a namespace here, got epp"),
    ("kubernetes: {}\ngateways: [{name: g, namespaces: [a], page: {dns: a, kind: dcgm}}]",
     "2:60: gateways.0.page.kind: must see requests, got dcgm"),
    ("kubernetes: {}\ngateways: [{name: g, namespaces: [a]}]", "2:12: gateways.0.page: must be given"),
    ("kubernetes: {}\ngateways: [{name: g, page: {dns: a}}]", "2:12: gateways.0.namespaces: must be given"),
    ("gpus: [{prometheus: {max_age: 1m}}]", "1:21: gpus.0.prometheus.url: must be given"),
    # Freshness and replicas.
    ("gpus: [{dns: a}]\nfreshness: {impute_after: 2m, hold: 1m}",
     "2:27: freshness.impute_after: must be at most hold (1m): after that nothing is imputed, got 2m"),
    (_pods("dns: a").replace("min: 1", "min: 2, idle: 1"),
     "1:93: workloads.0.replicas.idle: must be 0, or be left out, got 1"),
    (_pods("dns: a").replace("min: 1", "min: 2, idle: false"),
     "1:93: workloads.0.replicas.idle: must be 0, or be left out, got false"),
    (_pods("dns: a", ", mode: watch"), "1:94: workloads.0.mode: must be one of act, observe, got watch"),
])  # fmt: skip
def test_conflicting_kubernetes_values_are_reported_at_the_key_to_change(check, text, expected):
    assert _errors(check(text)) == [f"c.yaml:{expected}"]


@pytest.mark.parametrize(
    "text",
    [
        "kubernetes: {}",  # triggers alone are enough
        "kubernetes: {namespaces: [ai]}\n" + _pods("target: LeaderWorkerSet/chat"),
        "kubernetes: {}\n" + _pods("target: Rollout/c", ", gateway: {service: epp}"),
        "kubernetes: {}\n" + _pods("dns: a", ", objectives: {gpu_engine: 0.8}"),  # dcgm-exporter is discovered
        "kubernetes: {kubeconfig: k, context: c}",
        "kubernetes: {dcgm_exporter: {namespaces: [gpu], access: {bearer_file: t}}}",
        "kubernetes: {dcgm_exporter: null}",
        "gpus: [{prometheus: {url: http://p}}]",
        "gpus: [{prometheus: {url: https://p}, access: {tls: {ca_file: c}}}]",
        'kubernetes: {}\ngateways: [{name: g, namespaces: ["*"], page: {prometheus: {url: http://p, selector: a=""}}}]',
        "gpus: [{dns: a}]\nfreshness: {hold: 30s}",  # impute_after of one minute is a default, so it is not checked
        "gpus: [{dns: a}]\nfreshness: {hold: 0}",
    ],
)
def test_compatible_kubernetes_values_give_no_problem(check, text):
    assert check(text) == []


@pytest.mark.parametrize(("text", "expected"), [
    ("kubernetes:\ngpus: [{dns: a}]", "1:12: warning TG090: kubernetes: is disabled by null: {} enables all of it"),
    ("gpus: [{dns: a}]\ngateways: [{name: g, namespaces: [a], page: {dns: a}}]",
     "2:11: warning TG090: gateways: are for triggers and annotations, which kubernetes does not enable"),
    ("kubernetes: {triggers: false, annotations: false}\ngateways: [{name: g, namespaces: [a], page: {dns: a}}]",
     "2:11: warning TG090: gateways: are for triggers and annotations, which kubernetes does not enable"),
    (_pods("dns: a").replace("min: 1", "min: 2, idle: 0"),
     ("1:93: warning TG001: workloads.0.replicas.idle: 0 without a gateway: nothing can wake it, so "
      "replicas.min are kept "
     "(reason no_wake_source)")),
])  # fmt: skip
def test_value_without_its_apparent_effect_is_a_warning(check, text, expected):
    assert check(text) == [f"c.yaml:{expected}"]


def test_unreadable_kubernetes_section_causes_no_other_error(check):
    lines = check("kubernetes: 5\n" + _pods("target: Deployment/chat", ", objectives: {gpu_engine: 0.8}"))

    assert lines == ["c.yaml:1:13: kubernetes: must be a mapping of keys to values, got 5"]


@pytest.mark.parametrize("text", [
    "gpus: [{prometheus: {max_age: 1m}}]", "gateways: [{name: g}]", "gateways: [{name: g, namespaces: [a]}]",
])  # fmt: skip
def test_missing_key_hides_no_other_error(check, text):
    assert "c.yaml:1:19: scrape.timeout: must be at most the scrape interval (5s), got 6s" in check(
        f"scrape: {{timeout: 6s}}\n{text}"
    )


def test_workload_sleeps_with_min_zero_or_idle_zero():
    assert [replicas.sleeps for replicas in (Replicas(), Replicas(min=2), Replicas(min=2, idle=0))] == [
        True, False, True,
    ]  # fmt: skip


def test_dcgm_exporter_is_discovered_unless_gpus_are_configured_or_discovery_is_off():
    search = DcgmExporter(port=9401)
    kubernetes = Kubernetes(dcgm_exporter=search)

    assert Config(kubernetes=kubernetes).gpu_search == search
    assert Config(kubernetes=kubernetes, gpus=(Endpoint(dns="a"),)).gpu_search is None
    assert Config(kubernetes=Kubernetes(dcgm_exporter=None)).gpu_search is None
    assert Config().gpu_search is None


def test_discovered_dcgm_exporter_uses_its_named_port_unless_configured():
    assert DcgmExporter().page_at("10.0.0.7", 9400) == "http://10.0.0.7:9400/metrics"
    assert DcgmExporter(port=9401, path="/m", scheme="https").page_at("fd00::7", 9400) == "https://[fd00::7]:9401/m"
    assert DcgmExporter(access=Access(bearer_file="t")).admission() == Credentials(bearer_file="t")


def test_service_without_namespace_is_in_the_namespace_of_the_workload():
    assert Endpoint(service="epp").service_in("ai") == ("ai", "epp")
    assert Endpoint(service="epp.gateways").service_in("ai") == ("gateways", "epp")
    assert Endpoint(dns="epp").service_in("ai") is None


def test_certificate_of_a_service_address_is_verified_by_the_service_name():
    assert Endpoint(service="epp").admission("ai") == Credentials(server_name="epp.ai.svc")
    assert Endpoint(service="epp.gateways").admission() == Credentials(server_name="epp.gateways.svc")
    assert Endpoint(target="Deployment/chat").admission("ai") == Credentials()


def test_shared_gateway_serves_only_its_namespaces():
    named = SharedGateway(name="g", namespaces=("a", "b"), page=Endpoint(dns="x"))
    shared = SharedGateway(name="g", namespaces=("*",), page=Endpoint(dns="x"))

    assert [gateway.is_for(namespace) for gateway in (named, shared) for namespace in ("b", "c")] == [
        True, False, True, True,
    ]  # fmt: skip


def test_missing_pods_are_imputed_after_the_shorter_of_one_minute_and_hold():
    assert [parse(f"kubernetes: {{}}\nfreshness: {{hold: {hold}}}", "c.yaml")[0].freshness.impute_after
            for hold in ("5m", "30s", "0")] == [60.0, 30.0, 0.0]  # fmt: skip
