"""Targets of pods, Services and exporters: which are listed, and that they stay the same from look to look."""

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
def tell(cluster):
    def tell_it(*documents, type="MODIFIED"):  # noqa: A002
        for document in documents:
            cluster.apply(BY_KIND[document["kind"]], type, document, T0)

    return tell_it


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


async def test_before_the_first_look_nothing_is_known(pods):
    assert pods.listing() is None
    assert pods.owner == CHAT


async def test_a_target_that_is_not_heard_of_yet_is_not_one_without_pods(pods, tell):
    assert await listing(pods) is None
    tell(api.stateful_set("chat"))
    assert await listing(pods) == Listing(())
    tell(api.stateful_set("chat"), type="DELETED")
    assert await listing(pods) is None


async def test_no_pods_are_an_empty_list_and_unknown_pods_are_none(pods, cluster, tell):
    tell(api.stateful_set("chat"))
    assert await listing(pods) == Listing(())
    cluster.mark_lost(PODS, T0)
    assert await listing(pods, T0 + BLIND_S) == Listing(())
    assert await listing(pods, T0 + BLIND_S + 1) is None
    cluster.mark_current(PODS, T0 + 100)
    assert await listing(pods, T0 + 1000) == Listing(())


async def test_each_ready_pod_is_a_target_that_knows_its_pod(pods, tell):
    tell(member("chat-1", "10.0.0.2"), member("chat-0", "10.0.0.1"))
    assert Listing((page("10.0.0.1", "chat-0"), page("10.0.0.2", "chat-1"))) == await listing(pods)


async def test_a_pod_that_has_never_been_ready_is_not_asked_even_if_it_leaves(pods, tell):
    tell(member("chat-0", ready=False), member("chat-1", address=None), member("chat-2", ready=False, leaving=True))
    assert Listing(()) == await listing(pods)


async def test_a_pod_that_leaves_is_activity_and_not_capacity_and_stays_the_same_target(pods, tell):
    tell(member("chat-0"))
    (before,) = (await listing(pods)).targets
    for how in ({"leaving": True}, {"leaving": True, "ready": False}):
        tell(member("chat-0", **how))
        found = await listing(pods)
        assert Listing((before,), frozenset({before})) == found
        assert found.due == 0
    tell(member("chat-0"))
    assert Listing((before,)) == await listing(pods)


async def test_a_pod_that_has_ceased_to_be_ready_still_has_requests_and_must_answer(pods, tell):
    tell(member("chat-0"))
    (before,) = (await listing(pods)).targets
    tell(member("chat-0", ready=False))
    assert Listing((before,)) == await listing(pods)


async def test_a_pod_whose_engine_begins_anew_loads_and_is_not_asked(pods, tell):
    tell(member("chat-0"))
    crashed = {"containerStatuses": [{"name": "server", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
    tell(member("chat-0", ready=False, status=crashed))
    assert Listing(()) == await listing(pods)


async def test_a_new_pod_with_an_old_ones_address_is_another_target(pods, tell):
    tell(member("chat-0"))
    old = await listing(pods)
    tell(member("chat-0"), type="DELETED")
    tell(member("chat-1"))
    new = await listing(pods)
    assert old.targets[0].url == new.targets[0].url
    assert old.targets != new.targets


@pytest.mark.parametrize("network", [{}, {"spec": {"hostNetwork": True}}], ids=["own", "host"])
async def test_of_two_pods_at_one_address_the_ready_one_is_asked(pods, tell, network):
    tell(member("chat-0"), member("chat-1", **network))
    tell(member("chat-1", ready=False, **network), member("chat-0", **network))
    assert Listing((page("10.0.0.1", "chat-0"),)) == await listing(pods)


async def test_a_pod_on_its_nodes_network_shares_its_address_with_others_and_is_asked_all_the_same(pods, tell):
    host = {"spec": {"hostNetwork": True}}
    tell(
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


def piece(name, *addresses, family="IPv4", **more):
    return api.endpoint_slice(
        name, service="gateway", addresses=addresses, ports={"metrics": 90}, family=family, **more
    )


async def test_a_services_targets_are_its_ready_endpoints(service, tell, cluster):
    assert service.listing() is None
    assert Listing(()) == await listing(service)
    tell(*(api.pod(f"gateway-{number}", address=f"10.0.0.{number}") for number in (1, 2, 9)))
    tell(piece("gateway-1", "10.0.0.2", unready=["10.0.0.9"]), piece("gateway-2", "10.0.0.1"))
    assert [target.url for target in (await listing(service)).targets] == ["http://10.0.0.1:90/", "http://10.0.0.2:90/"]
    assert (service.owner, (await listing(service)).leaving) == (CHAT, frozenset())
    cluster.mark_lost(SLICES, T0)
    assert await listing(service, T0 + BLIND_S + 1) is None


async def test_an_address_that_is_no_pods_of_the_namespace_is_never_asked(service, tell):
    tell(api.pod("gateway-1", address="10.0.0.1"), api.pod("theirs", "other", address="10.0.0.2"))
    tell(piece("gateway-1", "10.0.0.1", "10.0.0.2", "169.254.169.254", "127.0.0.1"))
    assert [target.url for target in (await listing(service)).targets] == ["http://10.0.0.1:90/"]


async def test_a_pod_of_a_dual_stack_service_counts_once(service, tell):
    tell(*(api.pod(f"six-{number}", address=f"fd00::{number}") for number in (1, 2)))
    tell(piece("gateway-6", "fd00::1", "fd00::2", family="IPv6"))
    assert len((await listing(service)).targets) == 2
    tell(*(api.pod(f"four-{number}", address=f"10.0.0.{number}") for number in (1, 2)))
    tell(piece("gateway-4", "10.0.0.1", "10.0.0.2"))
    assert [target.url for target in (await listing(service)).targets] == ["http://10.0.0.1:90/", "http://10.0.0.2:90/"]


@pytest.fixture
def gpus(cluster):
    return GpuExporterTargets(cluster, lambda address, port: Target(f"http://{address}:{port}/", "dcgm", Role.GPUS))


HELM, OPERATOR = {"app.kubernetes.io/name": "dcgm-exporter"}, {"app": "nvidia-dcgm-exporter"}


def exporter(name, number, labels, node=None, **more):
    node = node or f"node-{number}"
    return api.pod(name, "gpu", address=f"10.1.0.{number}", labels=labels, node=node, **more)


async def test_every_node_with_an_exporter_is_asked_at_its_port(gpus, tell, cluster):
    assert gpus.listing() is None
    tell(
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


async def test_two_exporters_on_one_node_tell_of_the_same_gpus_and_one_is_asked(gpus, tell):
    tell(exporter("a-helm", 1, HELM, node="n"), exporter("b-operator", 2, OPERATOR, node="n"))
    assert [target.url for target in (await listing(gpus)).targets] == ["http://10.1.0.1:9400/"]
    tell(exporter("a-helm", 1, HELM, node="n", ready=False))
    assert [target.url for target in (await listing(gpus)).targets] == ["http://10.1.0.2:9400/"]


async def test_an_exporter_that_restarts_is_missed_and_not_forgotten(gpus, tell):
    tell(exporter("old", 1, HELM, node="n"))
    (old,) = (await listing(gpus)).targets
    tell(exporter("old", 1, HELM, node="n"), type="DELETED")
    assert Listing((old,)) == await listing(gpus, T0 + 10)
    tell(exporter("new", 2, HELM, node="n", ready=False))
    assert Listing((old,)) == await listing(gpus, T0 + 20)
    tell(exporter("new", 2, HELM, node="n"))
    (new,) = (await listing(gpus, T0 + 30)).targets
    assert (new.pod, new.url) == (PodKey("gpu", "new"), "http://10.1.0.2:9400/")


async def test_an_exporter_that_does_not_come_back_is_forgotten_with_its_node(gpus, tell):
    tell(exporter("old", 1, HELM, node="n"), exporter("stays", 2, HELM, node="m"))
    both = await listing(gpus)
    tell(exporter("old", 1, HELM, node="n"), type="DELETED")
    assert set(both.targets) == set((await listing(gpus, T0 + EXPORTER_MISSED_S)).targets)
    assert [target.pod.pod for target in (await listing(gpus, T0 + EXPORTER_MISSED_S + 1)).targets] == ["stays"]


async def test_only_exporters_of_the_namespaces_that_are_believed_are_asked(cluster, tell):
    tell(exporter("real", 1, HELM))
    tell(api.pod("forged", "tenant", address="10.1.0.9", labels=HELM, node="node-1"))

    def target_at(address, port):
        return Target(f"http://{address}:{port}/", "dcgm", Role.GPUS)

    believed = GpuExporterTargets(cluster, target_at, frozenset({"gpu"}))
    assert [target.pod.pod for target in (await listing(believed)).targets] == ["real"]
