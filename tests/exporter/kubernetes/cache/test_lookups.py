"""The cache finds endpoints, exporters, pods that were ready, and the pod of an address."""

import pytest

from exporter.kubernetes.cache import ServiceEndpoint
from exporter.kubernetes.index import page_port
from exporter.kubernetes.resources import PODS
from exporter.model import PodKey
from tests.fakes import objects as api

from .conftest import T0, delete_from


def test_endpoints_of_a_service_are_those_of_all_its_slices_without_duplicates(apply):
    cluster = apply(
        api.endpoint_slice("g-1", service="g", addresses=["10.0.0.2", "10.0.0.1"], ports={"metrics": 9090}),
        api.endpoint_slice("g-2", service="g", addresses=["10.0.0.2"], unready=["10.0.0.3"], ports={"metrics": 9090}),
        api.endpoint_slice("h-1", service="h", addresses=["10.0.0.9"]),
    )
    expected = (ServiceEndpoint("10.0.0.1", {"metrics": 9090}), ServiceEndpoint("10.0.0.2", {"metrics": 9090}))
    assert expected == cluster.endpoints("ai", "g", T0)
    assert cluster.endpoints("ai", "absent", T0) == ()


def test_exporters_of_the_helm_chart_and_of_the_operator_are_found(apply, names):
    helm = {"app.kubernetes.io/name": "dcgm-exporter"}
    cluster = apply(
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


def test_past_readiness_is_stored_until_the_pod_is_deleted(apply):
    cluster = apply(api.pod("chat-0", ready=False))
    assert not may_have_requests(cluster)
    apply(api.pod("chat-0"))
    apply(api.pod("chat-0", ready=False))
    assert may_have_requests(cluster)
    delete_from(cluster, api.pod("chat-0"))
    apply(api.pod("chat-0", ready=False))
    assert not may_have_requests(cluster)


def test_new_pod_with_an_old_name_has_not_been_ready(apply):
    assert not may_have_requests(apply(api.pod("chat-0"), api.pod("chat-0", ready=False, metadata={"uid": "new"})))


def once_ready(state):
    """Returns a pod that became unready at 11:00, with this container state."""
    pod = api.pod("chat-0", ready=False)
    pod["status"]["conditions"][-1]["lastTransitionTime"] = "2026-11-01T11:00:00Z"
    pod["status"]["containerStatuses"] = [{"name": "server", "state": state}]
    return pod


def test_readiness_before_the_first_list_is_read_from_the_pod(apply):
    assert may_have_requests(apply(once_ready({"running": {"startedAt": "2026-11-01T10:00:05Z"}})))


@pytest.mark.parametrize(
    "state",
    [
        {"running": {"startedAt": "2026-11-01T11:00:20Z"}},
        {"waiting": {"reason": "CrashLoopBackOff"}},
        {"terminated": {"exitCode": 137}},
    ],
)
def test_pod_with_a_restarted_engine_has_no_requests(apply, state):
    apply(api.pod("chat-0"))
    assert not may_have_requests(apply(once_ready(state)))


def test_address_is_a_pods_only_in_its_namespace(apply):
    cluster = apply(api.pod("chat-0"), api.pod("host", address="10.9.0.1", spec={"hostNetwork": True}))
    assert [cluster.is_pod_of("ai", address) for address in ("10.0.0.7", "10.9.0.1", "169.254.169.254")] == [
        True, True, False,
    ]  # fmt: skip
    assert not cluster.is_pod_of("other", "10.0.0.7")
    assert not cluster.is_pod_of("other", "10.9.0.1")


def test_address_belongs_to_the_ready_pod_or_else_to_the_younger(apply):
    old = {"metadata": {"creationTimestamp": "2026-11-01T09:00:00Z"}}
    cluster = apply(
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
    delete_from(cluster, api.pod("heir"), api.pod("strong"))
    assert has(cluster, "dead")
    assert has(cluster, "weak")


def has(cluster, name):
    return cluster.has_its_address(cluster.pod(PodKey("ai", name)))


def test_objects_are_listed_in_order(apply):
    cluster = apply(
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


def test_deleted_objects_leave_nothing_behind(apply):
    documents = [
        api.pod("s-0", owner=("StatefulSet", "s"), labels={"app": "nvidia-dcgm-exporter"}),
        api.stateful_set("s"),
        api.replicaset("r", owner=("Deployment", "d")),
        api.endpoint_slice("g-1", service="g", addresses=["10.0.0.1"]),
        api.node(),
    ]
    cluster = apply(*documents)
    delete_from(cluster, *documents)
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
