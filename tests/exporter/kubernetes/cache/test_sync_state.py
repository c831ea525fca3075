"""A resource is known from its first full list until a silence is too long."""

from exporter.kubernetes.cache import MANY, Cluster
from exporter.kubernetes.resources import DEPLOYMENTS, NODES, PODS, REPLICASETS, ROLLOUTS, SLICES
from exporter.model import PodKey
from tests.fakes import objects as api

from .conftest import BLIND_S, T0, apply_to


def test_nothing_is_known_before_the_first_full_list(ref):
    cluster = Cluster(blind_s=BLIND_S)
    apply_to(cluster, api.pod("chat-1", owner=("ReplicaSet", "chat-7d")))
    assert not cluster.synced(PODS, T0)
    assert cluster.pods_of(ref("ReplicaSet", "chat-7d"), T0) is None
    assert cluster.count(ref("Deployment", "chat"), T0) is None
    assert cluster.gpu_exporters(T0) is None
    assert cluster.endpoints("ai", "gateway", T0) is None


def test_pods_of_a_target_are_unknown_until_the_kinds_between_are_listed(ref):
    cluster = Cluster(blind_s=BLIND_S)
    cluster.replace(PODS, None, [], T0)
    assert cluster.pods_of(ref("Deployment", "chat"), T0) is None
    cluster.replace(REPLICASETS, None, [], T0)
    assert cluster.pods_of(ref("Deployment", "chat"), T0) == ()
    assert cluster.pods_of(ref("StatefulSet", "chat"), T0) is None


def test_list_is_taken_in_parts_and_no_pod_of_it_is_known_before_its_end(ref):
    cluster, target = Cluster(blind_s=BLIND_S), ref("ReplicaSet", "chat-7d")
    pods = [api.pod(f"chat-{n}", owner=("ReplicaSet", "chat-7d")) for n in range(2 * MANY + 1)]
    parts = cluster.replacing(PODS, None, cluster.parse(PODS, pods), T0)
    for _ in range(3):
        next(parts)
        assert not cluster.synced(PODS, T0)
        assert cluster.pods_of(target, T0) is None
    assert next(parts, None) is None
    assert len(cluster.pods_of(target, T0)) == 2 * MANY + 1


def test_list_removes_what_is_gone_after_all_that_is_new(ref):
    cluster, target = Cluster(blind_s=BLIND_S), ref("ReplicaSet", "chat-7d")
    old, new = ([api.pod(f"{name}-{n}", owner=("ReplicaSet", "chat-7d")) for n in range(3)] for name in "ab")
    cluster.replace(PODS, None, old, T0)
    parts = cluster.replacing(PODS, None, cluster.parse(PODS, new), T0)
    next(parts)
    assert len(cluster.pods_of(target, T0)) == 6
    assert next(parts, None) is None
    assert [pod.key.pod for pod in cluster.pods_of(target, T0)] == ["b-0", "b-1", "b-2"]


def test_count_is_expected_until_all_its_resources_are_listed(ref):
    cluster, target = Cluster(blind_s=BLIND_S), ref("Deployment", "chat")
    for resource in (PODS, REPLICASETS, DEPLOYMENTS):
        assert cluster.will_count(target, T0)
        cluster.replace(resource, None, [], T0)
    assert cluster.count(target, T0) is None
    assert not cluster.will_count(target, T0), "the target does not exist"
    assert not cluster.will_count(ref("Fleet", "chat"), T0), "replicas of that kind are never counted"
    cluster.mark_lost(DEPLOYMENTS, T0)
    assert cluster.will_count(target, T0 + BLIND_S + 1)


def test_pods_of_an_unwatched_kind_are_known_if_all_kinds_between_are_listed(cluster, ref):
    assert cluster.pods_of(ref("Fleet", "chat"), T0) == ()
    cluster.mark_lost(REPLICASETS, T0)
    assert cluster.pods_of(ref("Fleet", "chat"), T0 + BLIND_S + 1) is None


def test_resource_is_unknown_only_after_a_long_silence(cluster, ref):
    target = ref("Deployment", "chat")
    cluster.mark_lost(PODS, T0 + 10)
    cluster.mark_lost(PODS, T0 + 50)  # still the same silence
    assert cluster.pods_of(target, T0 + 10 + BLIND_S) == ()
    assert cluster.pods_of(target, T0 + 11 + BLIND_S) is None
    cluster.mark_current(PODS, T0 + 100)
    assert cluster.pods_of(target, T0 + 1000) == ()


def test_event_ends_the_silence(cluster):
    cluster.mark_lost(PODS, T0)
    apply_to(cluster, api.pod("chat-1"), now=T0 + 30)
    assert cluster.synced(PODS, T0 + 1000)


def test_resource_that_becomes_known_again_changes_the_registry(cluster):
    cluster.mark_lost(PODS, T0)
    cluster.mark_current(PODS, T0 + 1)
    assert not cluster.take_changes().registry  # it was known throughout
    cluster.mark_lost(PODS, T0 + 2)
    cluster.mark_current(PODS, T0 + 3 + BLIND_S)
    assert cluster.take_changes().registry


def test_every_watched_namespace_must_be_listed():
    cluster = Cluster(["ai", "ml"], blind_s=BLIND_S)
    cluster.replace(PODS, "ai", [], T0)
    assert not cluster.synced(PODS, T0)
    cluster.replace(PODS, "ml", [], T0)
    assert cluster.synced(PODS, T0)
    cluster.replace(NODES, None, [], T0)
    assert cluster.synced(NODES, T0)


def test_unwatched_namespace_is_unknown(ref):
    cluster = Cluster(["ai"], blind_s=BLIND_S)
    for resource in (PODS, REPLICASETS, SLICES):
        cluster.replace(resource, "ai", [], T0)
    assert cluster.pods_of(ref("Deployment", "chat"), T0) == ()
    assert cluster.pods_of(ref("Deployment", "chat", "ml"), T0) is None
    assert cluster.endpoints("ml", "gateway", T0) is None


def test_lost_namespace_is_unknown_and_no_other_is(ref):
    cluster = Cluster(["ai", "ml"], blind_s=BLIND_S)
    for resource in (PODS, REPLICASETS, SLICES):
        for namespace in ("ai", "ml"):
            cluster.replace(resource, namespace, [], T0)
    cluster.mark_lost(PODS, T0, "ml")
    late = T0 + BLIND_S + 1
    assert cluster.pods_of(ref("Deployment", "chat", "ml"), late) is None
    assert cluster.pods_of(ref("Deployment", "chat"), late) == ()
    assert (cluster.synced(PODS, late), cluster.synced(PODS, late, "ai")) == (False, True)
    apply_to(cluster, api.pod("chat-1"), now=late)  # of ai: says nothing of ml
    assert not cluster.synced(PODS, late, "ml")
    cluster.mark_current(PODS, late, "ml")
    assert cluster.synced(PODS, late)


def test_kind_is_settled_where_it_is_not_refused():
    cluster = Cluster(["ai", "ml"], blind_s=BLIND_S)
    cluster.mark_refused(PODS, T0, "ml")
    assert not cluster.settled(PODS, T0), "ai is not listed yet"
    cluster.replace(PODS, "ai", [], T0)
    assert (cluster.settled(PODS, T0), cluster.synced(PODS, T0)) == (True, False)
    cluster.mark_lost(PODS, T0, "ai")
    assert not cluster.settled(PODS, T0 + BLIND_S + 1), "an API server that does not answer is no refusal"
    cluster.replace(PODS, "ml", [], T0 + 1)
    cluster.mark_current(PODS, T0 + 1)
    assert cluster.synced(PODS, T0 + BLIND_S + 1)


def test_refusal_of_all_namespaces_settles_nothing():
    cluster = Cluster(blind_s=BLIND_S)
    cluster.mark_refused(PODS, T0)
    assert not cluster.settled(PODS, T0)


def test_list_of_one_namespace_does_not_affect_another(names, ref):
    cluster = Cluster(["ai", "ml"], blind_s=BLIND_S)
    cluster.replace(PODS, "ai", [api.pod("s-0", owner=("StatefulSet", "s"))], T0)
    cluster.replace(PODS, "ml", [api.pod("s-0", "ml", owner=("StatefulSet", "s"))], T0)
    cluster.replace(PODS, "ml", [], T0)
    assert cluster.pod(PodKey("ml", "s-0")) is None
    assert cluster.pod(PodKey("ai", "s-0")) is not None


def test_absent_kind_is_known_and_empty(ref):
    cluster = Cluster(["ai", "ml"], blind_s=BLIND_S)
    cluster.replace(ROLLOUTS, "ai", [api.rollout("chat")], T0)
    assert not cluster.synced(ROLLOUTS, T0)
    cluster.mark_absent(ROLLOUTS, T0)
    assert cluster.synced(ROLLOUTS, T0)
    assert cluster.scalables() == ()
    cluster.replace(ROLLOUTS, "ml", [api.rollout("chat", "ml")], T0)
    assert [scalable.ref.namespace for scalable in cluster.scalables()] == ["ml"]


def test_unreadable_object_keeps_its_last_state_and_affects_no_other(cluster, ref):
    bad = api.pod("chat-1", spec={"containers": 7})
    good = api.pod("chat-2")
    cluster.replace(PODS, None, [api.pod("chat-1"), good], T0)
    cluster.replace(PODS, None, [bad, good, {"metadata": {}}, None], T0)
    assert cluster.pod(PodKey("ai", "chat-1")) is not None
    assert cluster.pod(PodKey("ai", "chat-2")) is not None
    assert cluster.malformed == {"pods": 3}
    cluster.apply(PODS, "MODIFIED", bad, T0)
    assert cluster.malformed == {"pods": 4}
    cluster.apply(PODS, "DELETED", bad, T0)  # a deletion needs only the name
    assert cluster.pod(PodKey("ai", "chat-1")) is None
    assert cluster.malformed == {"pods": 4}
    assert cluster.synced(PODS, T0)
