"""Discovery lists the targets of pods, Services and exporters, and keeps a target the same between refreshes."""

import pytest

from exporter.discovery import Listing
from exporter.discovery.kubernetes import EXPORTER_MISSED_S, GpuExporterTargets, PodTargets, ServiceTargets
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import PODS, RESOURCES, SLICES
from exporter.model import PodKey, Role, Target, WorkloadKey
from tests.fakes import objects as api

CHAT, SET = WorkloadKey("ai", "chat"), Ref("ai", "StatefulSet", "chat")
T0, BLIND_S = 1000.0, 60.0
BY_KIND = {resource.kind: resource for resource in RESOURCES}


@pytest.fixture
def cluster():
    cluster = Cluster(blind_s=BLIND_S)
    for resource in RESOURCES:
        cluster.replace(resource, None, [], T0)
    return cluster


@pytest.fixture
def apply(cluster):
    def apply_all(*documents, type="MODIFIED"):  # noqa: A002
        for document in documents:
            cluster.apply(BY_KIND[document["kind"]], type, document, T0)

    return apply_all


def page(address, pod=None):
    return Target(f"http://{address}:8000/metrics", "vllm", Role.PODS, CHAT, pod=pod and PodKey("ai", pod))


@pytest.fixture
def pods(cluster):
    return PodTargets(cluster, SET, page, CHAT)


def member(name, address="10.0.0.1", **more):
    return api.pod(name, owner=("StatefulSet", "chat"), address=address, **more)


async def listing(targets, now=T0):
    await targets.refresh(now)
    return targets.listing()


async def test_list_is_unknown_before_the_first_refresh(pods):
    assert pods.listing() is None
    assert pods.owner == CHAT


async def test_list_of_an_unknown_scale_target_is_unknown_and_not_empty(pods, apply):
    assert await listing(pods) is None
    apply(api.stateful_set("chat"))
    assert await listing(pods) == Listing(())
    apply(api.stateful_set("chat"), type="DELETED")
    assert await listing(pods) is None


async def test_list_is_empty_without_pods_and_unknown_after_a_long_silence(pods, cluster, apply):
    apply(api.stateful_set("chat"))
    assert await listing(pods) == Listing(())
    cluster.mark_lost(PODS, T0)
    assert await listing(pods, T0 + BLIND_S) == Listing(())
    assert await listing(pods, T0 + BLIND_S + 1) is None
    cluster.mark_current(PODS, T0 + 100)
    assert await listing(pods, T0 + 1000) == Listing(())


async def test_ready_pod_is_a_target_with_its_pod_key(pods, apply):
    apply(member("chat-1", "10.0.0.2"), member("chat-0", "10.0.0.1"))
    assert Listing((page("10.0.0.1", "chat-0"), page("10.0.0.2", "chat-1"))) == await listing(pods)


async def test_pod_that_was_never_ready_is_no_target_even_if_it_terminates(pods, apply):
    apply(member("chat-0", ready=False), member("chat-1", address=None), member("chat-2", ready=False, leaving=True))
    assert Listing(()) == await listing(pods)


async def test_terminating_pod_stays_the_same_target_and_counts_as_leaving(pods, apply):
    apply(member("chat-0"))
    (before,) = (await listing(pods)).targets
    for how in ({"leaving": True}, {"leaving": True, "ready": False}):
        apply(member("chat-0", **how))
        found = await listing(pods)
        assert Listing((before,), frozenset({before})) == found
        assert found.due == 0
    apply(member("chat-0"))
    assert Listing((before,)) == await listing(pods)


async def test_pod_that_became_unready_stays_a_target(pods, apply):
    apply(member("chat-0"))
    (before,) = (await listing(pods)).targets
    apply(member("chat-0", ready=False))
    assert Listing((before,)) == await listing(pods)


async def test_pod_with_a_restarting_engine_is_no_target(pods, apply):
    apply(member("chat-0"))
    crashed = {"containerStatuses": [{"name": "server", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
    apply(member("chat-0", ready=False, status=crashed))
    assert Listing(()) == await listing(pods)


async def test_new_pod_with_an_old_ones_address_is_another_target(pods, apply):
    apply(member("chat-0"))
    old = await listing(pods)
    apply(member("chat-0"), type="DELETED")
    apply(member("chat-1"))
    new = await listing(pods)
    assert old.targets[0].url == new.targets[0].url
    assert old.targets != new.targets


@pytest.mark.parametrize("network", [{}, {"spec": {"hostNetwork": True}}], ids=["own", "host"])
async def test_ready_one_of_two_pods_at_one_address_is_the_target(pods, apply, network):
    apply(member("chat-0"), member("chat-1", **network))
    apply(member("chat-1", ready=False, **network), member("chat-0", **network))
    assert Listing((page("10.0.0.1", "chat-0"),)) == await listing(pods)


async def test_host_network_pod_with_a_shared_address_is_a_target(pods, apply):
    host = {"spec": {"hostNetwork": True}}
    apply(
        member("chat-0", **host),
        member("chat-0", ready=False, **host),
        api.pod("node-exporter-x", **host, address="10.0.0.1"),
    )
    assert Listing((page("10.0.0.1", "chat-0"),)) == await listing(pods)


@pytest.fixture
def service(cluster):
    def target_at(address, ports):
        return Target(f"http://{address}:{ports['metrics']}/", "epp", Role.GATEWAY, CHAT)

    return ServiceTargets(cluster, "ai", "gateway", target_at, CHAT)


def endpoint_slice(name, *addresses, family="IPv4", **more):
    return api.endpoint_slice(
        name, service="gateway", addresses=addresses, ports={"metrics": 90}, family=family, **more
    )


async def test_targets_of_a_service_are_its_ready_endpoints(service, apply, cluster):
    assert service.listing() is None
    assert Listing(()) == await listing(service)
    apply(*(api.pod(f"gateway-{number}", address=f"10.0.0.{number}") for number in (1, 2, 9)))
    apply(endpoint_slice("gateway-1", "10.0.0.2", unready=["10.0.0.9"]), endpoint_slice("gateway-2", "10.0.0.1"))
    assert [target.url for target in (await listing(service)).targets] == ["http://10.0.0.1:90/", "http://10.0.0.2:90/"]
    assert (service.owner, (await listing(service)).leaving) == (CHAT, frozenset())
    cluster.mark_lost(SLICES, T0)
    assert await listing(service, T0 + BLIND_S + 1) is None


async def test_endpoint_that_is_no_pod_of_the_namespace_is_no_target(service, apply):
    apply(api.pod("gateway-1", address="10.0.0.1"), api.pod("theirs", "other", address="10.0.0.2"))
    apply(endpoint_slice("gateway-1", "10.0.0.1", "10.0.0.2", "169.254.169.254", "127.0.0.1"))
    assert [target.url for target in (await listing(service)).targets] == ["http://10.0.0.1:90/"]


async def test_pod_of_a_dual_stack_service_counts_once(service, apply):
    apply(*(api.pod(f"six-{number}", address=f"fd00::{number}") for number in (1, 2)))
    apply(endpoint_slice("gateway-6", "fd00::1", "fd00::2", family="IPv6"))
    assert len((await listing(service)).targets) == 2
    apply(*(api.pod(f"four-{number}", address=f"10.0.0.{number}") for number in (1, 2)))
    apply(endpoint_slice("gateway-4", "10.0.0.1", "10.0.0.2"))
    assert [target.url for target in (await listing(service)).targets] == ["http://10.0.0.1:90/", "http://10.0.0.2:90/"]


@pytest.fixture
def gpus(cluster):
    return GpuExporterTargets(cluster, lambda address, port: Target(f"http://{address}:{port}/", "dcgm", Role.GPUS))


HELM, OPERATOR = {"app.kubernetes.io/name": "dcgm-exporter"}, {"app": "nvidia-dcgm-exporter"}


def exporter(name, number, labels, node=None, **more):
    node = node or f"node-{number}"
    return api.pod(name, "gpu", address=f"10.1.0.{number}", labels=labels, node=node, **more)


async def test_exporter_of_every_node_is_a_target_at_its_port(gpus, apply, cluster):
    assert gpus.listing() is None
    apply(
        exporter("helm", 1, HELM, ports={"metrics": 9401}),
        exporter("operator", 2, OPERATOR, ports={"gpu-metrics": 9402}),
        exporter("bare", 3, OPERATOR),
        exporter("starts", 4, HELM, ready=False),
        exporter("goes", 5, HELM, leaving=True),
    )
    urls = [target.url for target in (await listing(gpus)).targets]
    assert urls == ["http://10.1.0.3:9400/", "http://10.1.0.1:9401/", "http://10.1.0.2:9402/"]
    assert [PodKey("gpu", "bare")] == [target.pod for target in gpus.listing().targets][:1]
    assert gpus.owner is None
    cluster.mark_lost(PODS, T0)
    assert await listing(gpus, T0 + BLIND_S + 1) is None


async def test_only_one_of_two_exporters_on_a_node_is_a_target(gpus, apply):
    apply(exporter("a-helm", 1, HELM, node="n"), exporter("b-operator", 2, OPERATOR, node="n"))
    assert [target.url for target in (await listing(gpus)).targets] == ["http://10.1.0.1:9400/"]
    apply(exporter("a-helm", 1, HELM, node="n", ready=False))
    assert [target.url for target in (await listing(gpus)).targets] == ["http://10.1.0.2:9400/"]


async def test_restarting_exporter_stays_a_target(gpus, apply):
    apply(exporter("old", 1, HELM, node="n"))
    (old,) = (await listing(gpus)).targets
    apply(exporter("old", 1, HELM, node="n"), type="DELETED")
    assert Listing((old,)) == await listing(gpus, T0 + 10)
    apply(exporter("new", 2, HELM, node="n", ready=False))
    assert Listing((old,)) == await listing(gpus, T0 + 20)
    apply(exporter("new", 2, HELM, node="n"))
    (new,) = (await listing(gpus, T0 + 30)).targets
    assert (new.pod, new.url) == (PodKey("gpu", "new"), "http://10.1.0.2:9400/")


async def test_exporter_that_does_not_return_is_dropped(gpus, apply):
    apply(exporter("old", 1, HELM, node="n"), exporter("stays", 2, HELM, node="m"))
    both = await listing(gpus)
    apply(exporter("old", 1, HELM, node="n"), type="DELETED")
    assert set(both.targets) == set((await listing(gpus, T0 + EXPORTER_MISSED_S)).targets)
    assert [target.pod.pod for target in (await listing(gpus, T0 + EXPORTER_MISSED_S + 1)).targets] == ["stays"]


async def test_only_exporters_of_trusted_namespaces_are_targets(cluster, apply):
    apply(exporter("real", 1, HELM))
    apply(api.pod("forged", "tenant", address="10.1.0.9", labels=HELM, node="node-1"))

    def target_at(address, port):
        return Target(f"http://{address}:{port}/", "dcgm", Role.GPUS)

    trusted = GpuExporterTargets(cluster, target_at, frozenset({"gpu"}))
    assert [target.pod.pod for target in (await listing(trusted)).targets] == ["real"]
