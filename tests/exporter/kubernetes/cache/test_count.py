"""The cache counts the desired, ready and pending replicas of a target."""

import pytest

from exporter.kubernetes.resources import DEPLOYMENTS, PODS
from exporter.model import ReplicaCount
from tests.fakes import objects as api

from .conftest import BLIND_S, T0

GROUP, WORKER = "leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/worker-index"
SIZE = "leaderworkerset.sigs.k8s.io/size"


def pods(*states):
    """Returns pods of StatefulSet s: "r" ready, "l" loading, "p" pending without a node, "i" pending while its image
    is pulled, "-" terminating and ready, "x" failed.
    """
    how = {
        "r": {},
        "l": {"ready": False},
        "p": {"node": None},
        "i": {"ready": False, "phase": "Pending"},
        "-": {"leaving": True},
        "x": {"ready": False, "phase": "Failed"},
    }
    return [api.pod(f"s-{n}", owner=("StatefulSet", "s"), **how[state]) for n, state in enumerate(states)]


@pytest.mark.parametrize(
    ("desired", "states", "ready", "pending"),
    [
        (0, "", 0, 0),
        (3, "", 0, 0),
        (2, "rr", 2, 0),
        (3, "rlp", 1, 1),
        (3, "rpi", 1, 2),
        (1, "r-", 1, 0),
        (1, "rx", 1, 0),
        (1, "rr-", 2, 0),  # a rollout with maxSurge
    ],
)
def test_pod_is_a_replica_until_it_terminates(apply, ref, desired, states, ready, pending):
    cluster = apply(api.stateful_set("s", replicas=desired), *pods(*states))
    existing = sum(state not in "-x" for state in states)
    count = ReplicaCount(desired, ready, T0, pending, 0, existing, leaving=states.count("-"))
    assert count == cluster.count(ref("StatefulSet", "s"), T0)


def test_time_of_a_count_is_that_of_its_oldest_resource(apply, ref):
    cluster = apply(api.deployment("chat", replicas=2))
    for at in (T0 + 5, T0 + 7):
        cluster.mark_current(DEPLOYMENTS, at)
    cluster.mark_current(PODS, T0 + 6)
    assert cluster.count(ref("Deployment", "chat"), T0 + 8).at == T0  # ReplicaSets were current last at T0


def test_count_of_a_missing_target_is_unknown_and_not_zero(apply, ref):
    cluster = apply(api.scaled_job("batch"), api.replicaset("r"))
    for target in (ref("Deployment", "ghost"), ref("ScaledJob", "batch"), ref("ReplicaSet", "r"), ref("Fleet", "f")):
        assert cluster.count(target, T0) is None


def test_count_is_unknown_while_a_resource_is_unknown(apply, ref):
    cluster = apply(api.deployment("chat"))
    cluster.mark_lost(DEPLOYMENTS, T0)
    assert cluster.count(ref("Deployment", "chat"), T0 + BLIND_S) is not None
    assert cluster.count(ref("Deployment", "chat"), T0 + BLIND_S + 1) is None


def group(number, *workers, leader=True, size=3, **more):
    """Yields a group of LeaderWorkerSet big. workers: whether each is ready."""

    def member(name, index, ready, owner):
        return api.pod(
            name,
            owner=owner,
            ready=ready,
            labels={GROUP: str(number), WORKER: str(index)},
            metadata={"annotations": {SIZE: str(size)} if size else {}},
            **more,
        )

    yield member(f"big-{number}", 0, leader, ("StatefulSet", "big"))
    yield api.stateful_set(f"big-{number}", owner=("Pod", f"big-{number}"))
    for index, ready in enumerate(workers, start=1):
        yield member(f"big-{number}-{index}", index, ready, ("StatefulSet", f"big-{number}"))


@pytest.fixture
def groups(apply):
    def apply_with_set(*documents, replicas=1):
        return apply(
            api.leader_worker_set("big", replicas=replicas, size=3),
            api.stateful_set("big", owner=("LeaderWorkerSet", "big")),
            *documents,
        )

    return apply_with_set


@pytest.mark.parametrize(
    ("members", "ready"),
    [
        (group(0, True, True), 1),
        (group(0, True, False), 0),
        (group(0, True), 0),  # all existing pods are ready, but one is missing (LeaderReady)
        (group(0, True, True, leader=False), 0),
        (group(0, True, True, leaving=True), 0),
        (group(0, True, size=None), 1),  # the size of the group is not given
        (group(0, True, False, size=None), 0),
        ((document for number in (0, 1) for document in group(number, True, True)), 2),
    ],
)
def test_group_is_a_ready_replica_if_all_its_pods_are_ready(groups, ref, members, ready):
    assert ready == groups(*members).count(ref("LeaderWorkerSet", "big"), T0).ready


def test_group_without_a_leader_is_no_replica(groups, ref):
    leader, *rest = group(0, True, True, size=2)
    assert groups(leader, *rest).count(ref("LeaderWorkerSet", "big"), T0).ready == 1
    leader["metadata"]["deletionTimestamp"] = "2026-11-01T11:00:30Z"
    assert groups(leader, *rest).count(ref("LeaderWorkerSet", "big"), T0).ready == 0


def test_pod_of_no_group_makes_no_replica(groups, ref):
    stray = api.pod("stray", owner=("StatefulSet", "big"), node=None)
    assert ReplicaCount(1, 1, T0, 0, 0, 1) == groups(*group(0, True, True), stray).count(
        ref("LeaderWorkerSet", "big"), T0
    )


def test_incomplete_group_is_one_pending_replica(groups, ref):
    cluster = groups(*group(0, True, True), *group(1, False, False, leader=False, phase="Pending"), replicas=2)
    assert ReplicaCount(2, 1, T0, 1, 0, 2) == cluster.count(ref("LeaderWorkerSet", "big"), T0)


def test_only_the_leader_of_a_group_takes_requests(groups, ref, names):
    cluster = groups(*group(0, True, True))
    assert names(cluster.leaders_of(ref("LeaderWorkerSet", "big"), T0)) == ["big-0"]
    assert names(cluster.pods_of(ref("LeaderWorkerSet", "big"), T0)) == ["big-0", "big-0-1", "big-0-2"]


def service(part, replicas):
    name = f"llm-{part}"
    yield api.deployment(name, replicas=replicas, owner=("InferenceService", "llm"))
    yield api.replicaset(f"{name}-7d", owner=("Deployment", name))
    for number in range(replicas):
        yield api.pod(f"{name}-7d-{number}", owner=("ReplicaSet", f"{name}-7d"))


def test_count_of_an_inference_service_is_that_of_its_predictor(apply, ref, names):
    cluster = apply(
        api.inference_service("llm"),
        *service("predictor", 2),
        *service("predictor-worker", 4),
        *service("transformer", 3),
    )
    target = ref("InferenceService", "llm")
    assert ReplicaCount(2, 2, T0, 0, 0, 2) == cluster.count(target, T0)
    assert names(cluster.leaders_of(target, T0)) == ["llm-predictor-7d-0", "llm-predictor-7d-1"]
    assert len(cluster.pods_of(target, T0)) == 9


def test_replica_of_an_inference_set_is_a_workspace_and_its_first_pod_is_scraped(apply, ref, names):
    def replica(name, nodes):
        yield api.workspace(name, owner=("InferenceSet", "llm"))
        yield api.stateful_set(name, replicas=nodes, owner=("Workspace", name))
        for number in range(nodes):
            yield api.pod(f"{name}-{number}", owner=("StatefulSet", name))

    cluster = apply(api.inference_set("llm", replicas=3), *replica("llm-a", 2), *replica("llm-b", 2))
    target = ref("InferenceSet", "llm")
    assert ReplicaCount(3, 2, T0, 0, 0, 2) == cluster.count(target, T0)
    assert names(cluster.leaders_of(target, T0)) == ["llm-a-0", "llm-b-0"]
    assert len(cluster.pods_of(target, T0)) == 4


def test_inference_service_without_a_predictor_deployment_is_not_counted(apply, ref):
    assert apply(api.inference_service("llm")).count(ref("InferenceService", "llm"), T0) is None


def test_gpus_of_a_replica_are_those_of_all_its_running_pods(apply, ref):
    group = {"leaderworkerset.sigs.k8s.io/group-index": "0"}
    leader, worker = ({**group, "leaderworkerset.sigs.k8s.io/worker-index": index} for index in ("0", "1"))
    cluster = apply(
        api.leader_worker_set("s", replicas=1),
        api.stateful_set("s", owner=("LeaderWorkerSet", "s")),
        api.pod("s-0", owner=("StatefulSet", "s"), labels=leader, gpus=8),
        api.stateful_set("s-0", owner=("Pod", "s-0")),
        api.pod("s-0-1", owner=("StatefulSet", "s-0"), labels=worker, gpus=8, address="10.0.0.8"),
        api.pod("s-0-2", owner=("StatefulSet", "s-0"), labels=worker, gpus=8, node=None),
    )
    assert cluster.count(ref("LeaderWorkerSet", "s"), T0).gpus == 16
