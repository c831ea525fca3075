"""Smaller questions: endpoints, exporters, readiness that has passed, addresses that were given away."""

import pytest

from exporter.kubernetes.cache import ServiceEndpoint
from exporter.kubernetes.index import page_port
from exporter.kubernetes.resources import PODS
from exporter.model import PodKey
from tests.fakes import objects as api

from .conftest import T0, forget


def test_a_services_endpoints_are_those_of_all_its_slices_each_once(told):
    cluster = told(
        api.endpoint_slice("g-1", service="g", addresses=["10.0.0.2", "10.0.0.1"], ports={"metrics": 9090}),
        api.endpoint_slice("g-2", service="g", addresses=["10.0.0.2"], unready=["10.0.0.3"], ports={"metrics": 9090}),
        api.endpoint_slice("h-1", service="h", addresses=["10.0.0.9"]),
    )
    expected = (ServiceEndpoint("10.0.0.1", {"metrics": 9090}), ServiceEndpoint("10.0.0.2", {"metrics": 9090}))
    assert expected == cluster.endpoints("ai", "g", T0)
    assert cluster.endpoints("ai", "nobody", T0) == ()


def test_exporters_are_found_as_either_installation_calls_them(told, names):
    helm = {"app.kubernetes.io/name": "dcgm-exporter"}
    cluster = told(
        api.pod("helm", labels=helm, ports={"metrics": 9401}),
        api.pod("operator", labels={"app": "nvidia-dcgm-exporter"}, ports={"gpu-metrics": 9402}),
        api.pod("bare", labels=helm, ready=False),
        api.pod("done", labels=helm, ready=False, phase="Failed"),
        api.pod("server", labels={"app": "dcgm-exporter"}),
    )
    assert names(cluster.gpu_exporters(T0)) == ["bare", "helm", "operator"]
    assert [page_port(pod) for pod in cluster.gpu_exporters(T0)] == [9400, 9401, 9402]


def may_have_requests(cluster):
    return cluster.may_have_requests(cluster.pod(PodKey("ai", "chat-0")))


def test_readiness_that_has_passed_is_remembered_and_forgotten_with_the_pod(told):
    cluster = told(api.pod("chat-0", ready=False))
    assert not may_have_requests(cluster)
    told(api.pod("chat-0"))
    told(api.pod("chat-0", ready=False))
    assert may_have_requests(cluster)
    forget(cluster, api.pod("chat-0"))
    told(api.pod("chat-0", ready=False))
    assert not may_have_requests(cluster)


def test_a_new_pod_of_an_old_name_has_not_been_ready(told):
    assert not may_have_requests(told(api.pod("chat-0"), api.pod("chat-0", ready=False, metadata={"uid": "new"})))


def once_ready(state):
    """A pod that ceased to be ready at 11:00, and the state of its container."""
    pod = api.pod("chat-0", ready=False)
    pod["status"]["conditions"][-1]["lastTransitionTime"] = "2026-11-01T11:00:00Z"
    pod["status"]["containerStatuses"] = [{"name": "server", "state": state}]
    return pod


def test_readiness_that_passed_before_we_looked_is_read_from_the_pod(told):
    assert may_have_requests(told(once_ready({"running": {"startedAt": "2026-11-01T10:00:05Z"}})))


@pytest.mark.parametrize(
    "state",
    [
        {"running": {"startedAt": "2026-11-01T11:00:20Z"}},
        {"waiting": {"reason": "CrashLoopBackOff"}},
        {"terminated": {"exitCode": 137}},
    ],
)
def test_a_pod_whose_engine_begins_anew_has_lost_its_requests_and_loads(told, state):
    told(api.pod("chat-0"))
    assert not may_have_requests(told(once_ready(state)))


def test_an_address_is_a_pods_of_its_namespace_alone(told):
    cluster = told(api.pod("chat-0"), api.pod("host", address="10.9.0.1", spec={"hostNetwork": True}))
    assert [cluster.is_pod_of("ai", address) for address in ("10.0.0.7", "10.9.0.1", "169.254.169.254")] == [
        True, True, False,
    ]  # fmt: skip
    assert not cluster.is_pod_of("other", "10.0.0.7")
    assert not cluster.is_pod_of("other", "10.9.0.1")


def test_an_address_belongs_to_the_ready_pod_and_else_to_the_younger(told):
    old = {"metadata": {"creationTimestamp": "2026-11-01T09:00:00Z"}}
    cluster = told(
        api.pod("dead", address="10.0.0.1", ready=False, **old),
        api.pod("heir", address="10.0.0.1", ready=False),
        api.pod("strong", address="10.0.0.2", **old),
        api.pod("weak", address="10.0.0.2", ready=False),
        api.pod("host", address="10.0.0.2", ready=False, spec={"hostNetwork": True}),
        api.pod("loner", address="10.0.0.3", ready=False, **old),
        api.pod("done", address="10.0.0.3", ready=False, phase="Succeeded"),
        api.pod("host-2", address="10.0.0.3", spec={"hostNetwork": True}),
        api.pod("none", address=None),
    )
    names = ("dead", "heir", "strong", "weak", "host", "loner", "none")
    assert {"heir", "strong", "host", "loner"} == {name for name in names if has(cluster, name)}
    forget(cluster, api.pod("heir"), api.pod("strong"))
    assert has(cluster, "dead")
    assert has(cluster, "weak")


def has(cluster, name):
    return cluster.has_its_address(cluster.pod(PodKey("ai", name)))


def test_what_there_is_is_listed_in_order(told):
    cluster = told(
        api.node("n2"),
        api.node("n1"),
        api.hpa("b", target="b"),
        api.hpa("a", target="a"),
        api.scaled_object("b"),
        api.scaled_job("a"),
        api.stateful_set("a"),
        api.deployment("b"),
    )
    assert [node.name for node in cluster.nodes()] == ["n1", "n2"]
    assert [hpa.ref.name for hpa in cluster.hpas()] == ["a", "b"]
    assert [scaled.ref.kind for scaled in cluster.scaled_objects()] == ["ScaledJob", "ScaledObject"]
    assert [scalable.ref.kind for scalable in cluster.scalables()] == ["Deployment", "StatefulSet"]


def test_nothing_is_kept_of_what_is_gone(told):
    documents = [
        api.pod("s-0", owner=("StatefulSet", "s"), labels={"app": "nvidia-dcgm-exporter"}),
        api.stateful_set("s"),
        api.replicaset("r", owner=("Deployment", "d")),
        api.endpoint_slice("g-1", service="g", addresses=["10.0.0.1"]),
        api.node(),
    ]
    cluster = told(*documents)
    forget(cluster, *documents)
    records = cluster._records
    assert not any(records._tables.values())
    assert not records._pods_at
    assert not records._slices_at
    assert not records._slices
    assert not records._exporters
    assert not records._once_ready
    assert not records.chains._owned
    cluster.replace(PODS, None, documents[:1], T0)
    cluster.mark_absent(PODS, T0)
    assert not records._tables["Pod"]
