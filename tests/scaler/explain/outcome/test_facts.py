"""Facts are the cluster's objects that act on a workload; /metrics and explain show them."""

from types import MappingProxyType

import pytest
from prometheus_client import CollectorRegistry

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import HPAS, PODS, RESOURCES
from exporter.model import WorkloadKey
from scaler.api.http.collectors import OutcomeCollector
from scaler.config import Config, Kubernetes, Workload
from scaler.explain.outcome import ClusterView, controller_step
from scaler.explain.outcome_inputs import shown, survey
from scaler.explain.rows import Placement
from scaler.model import Board, Decision, Reason
from scaler.workloads import take
from tests.fakes import objects as api

NOW = 1000.0
CHAT, CODE, LAB = (WorkloadKey("ai", name) for name in ("chat", "code", "lab"))
METRIC = {
    "type": "External",
    "external": {"metric": {"name": "s0-tidegate-replicas"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}
FAILED = {"type": "ScalingActive", "status": "False", "reason": "FailedGetExternalMetric", "message": "no such host"}


def scaled(name, **more):
    return api.scaled_object(name, triggers=[api.trigger(engine="vllm")], minimum=1, **more)


def hpa(name, owner=None, **status):
    owner = ("ScaledObject", name) if owner is None else None
    return api.hpa(f"keda-hpa-{name}", target=name, owner=owner, spec={"metrics": [METRIC]}, status=status)


@pytest.fixture
def view_of():
    """Returns a view of a cluster with these objects, with chat at 2, code at 5 and lab at 1 on the Board."""

    def of(*documents, unlisted=(), config=None):
        cluster = Cluster(blind_s=60.0)
        for resource in RESOURCES:
            if resource not in unlisted:
                mine = [each for each in documents if each["kind"] == resource.kind]
                cluster.replace(resource, None, mine, NOW)
        config = config or Config(kubernetes=Kubernetes())
        registry = take(config, cluster.scaled_objects(), cluster.scalables(), cluster.hpas())
        decisions = {
            key: Decision(key, replicas, active=True, reason=Reason.SERVING, decided_at=NOW - 900.0)
            for key, replicas in ((CHAT, 2), (CODE, 5), (LAB, 1))
        }
        return ClusterView(lambda: Board(1, NOW, MappingProxyType(decisions)), lambda: registry, cluster, lambda: NOW)

    return of


def surveyed(view):
    return survey(view.registry().workloads, view.registry(), shown(view.cluster, NOW))


def codes(view):
    return {each.decision.workload: str(each.outcome.code) for each in view.all()()}


def test_each_workload_has_the_objects_that_act_on_it(view_of):
    view = view_of(
        api.deployment("chat", replicas=2), scaled("chat"), hpa("chat"),
        api.deployment("code", replicas=4), scaled("code"), hpa("code"),
    )  # fmt: skip
    assert codes(view) == {CHAT: "settled", CODE: "up"}
    found = surveyed(view)[CODE]
    assert (found.current, found.scaled.ref.name, found.hpa.ref.name) == (4, "code", "keda-hpa-code")
    assert found.speaks


def test_workload_is_placed_on_the_nodes_of_its_pods(view_of):
    """chat has pods on two nodes, one without a node, and code has none: that is known, and empty."""
    pods = [
        api.pod(f"chat-{name}", owner=("ReplicaSet", "chat-1"), node=node)
        for name, node in (("a", "node-2"), ("b", "node-1"), ("c", "node-2"), ("d", None))
    ]
    view = view_of(
        api.deployment("chat", replicas=4), api.replicaset("chat-1", owner=("Deployment", "chat")), scaled("chat"),
        *pods,
        api.deployment("code", replicas=0), scaled("code"),
    )  # fmt: skip
    assert view.placements() == {
        CHAT: Placement(Ref("ai", "Deployment", "chat"), ("node-1", "node-2")),
        CODE: Placement(Ref("ai", "Deployment", "code"), ()),
    }


def test_nodes_are_unknown_while_pods_are_not_listed(view_of):
    view = view_of(api.deployment("chat", replicas=4), scaled("chat"), unlisted=[PODS])
    assert view.placements() == {CHAT: Placement(Ref("ai", "Deployment", "chat"), None)}


def test_kedas_own_hpa_comes_first(view_of):
    view = view_of(api.deployment("chat", replicas=2), scaled("chat"), hpa("chat"), api.hpa("a", target="chat"))
    assert [each.ref.name for each in surveyed(view)[CHAT].hpas] == ["keda-hpa-chat", "a"]
    assert codes(view) == {CHAT: "two_hpas"}


def test_trigger_that_names_a_configured_workload_acts_on_it(view_of):
    lab = Workload(namespace="ai", name="lab", engine="vllm", pods={"dns": "lab.ai.svc"})
    trigger = api.trigger(workload="lab")
    document = api.scaled_object("gpu-lab", target="chat", triggers=[trigger], minimum=1)
    view = view_of(
        api.deployment("chat", replicas=1), document, config=Config(workloads=(lab,), kubernetes=Kubernetes())
    )
    assert codes(view) == {LAB: "no_hpa"}


def test_scaled_object_replaces_hpas_hidden_by_rbac(view_of):
    view = view_of(api.deployment("chat", replicas=4), scaled("chat"), unlisted=[HPAS])
    assert codes(view) == {CHAT: "down"}
    assert "its HPA cannot be read" in " ".join(view.of(CHAT).sentences)


def test_unknown_workload_has_no_controller_step(view_of):
    view = view_of(api.deployment("chat", replicas=2), scaled("chat"), hpa("chat"))
    assert controller_step(view.of(CHAT))["step"] == "controller"
    assert view.of(CODE) is None  # on the Board, and of no registry


def test_metrics_have_the_hpas_number_conditions_and_outcome(view_of):
    view = view_of(
        api.deployment("chat", replicas=2), scaled("chat"), hpa("chat", desiredReplicas=3, conditions=[FAILED]),
        api.deployment("code", replicas=5), scaled("code"), hpa("code"),
    )  # fmt: skip
    registry = CollectorRegistry()
    registry.register(OutcomeCollector(view.all))

    def value(name, workload, **labels):
        return registry.get_sample_value(name, {"namespace": "ai", "workload": workload, **labels})

    assert value("tidegate_hpa_desired_replicas", "chat") == 3.0
    assert value("tidegate_hpa_desired_replicas", "code") is None
    words = {"type": "ScalingActive", "status": "False", "reason": "FailedGetExternalMetric"}
    assert value("tidegate_hpa_condition", "chat", **words) == 1.0
    assert value("tidegate_controller_outcome", "chat", code="controller_error") == 1.0
    assert value("tidegate_controller_outcome", "code", code="settled") == 1.0


def test_outcome_is_computed_again_only_if_it_changes(view_of):
    view = view_of(
        api.deployment("chat", replicas=2), scaled("chat"), hpa("chat"),
        api.deployment("code", replicas=4), scaled("code"), hpa("code"),
    )  # fmt: skip
    first, second = ({each.decision.workload: each for each in view.all()()} for _ in range(2))
    assert second[CHAT] is first[CHAT]
    assert (first[CODE].outcome.code, second[CODE] is first[CODE]) == ("up", False)
    # A person raises its minimum: that is a change.
    view.cluster.apply(HPAS, "MODIFIED", api.hpa("keda-hpa-chat", target="chat", minimum=3), NOW)
    assert codes(view)[CHAT] == "other_metrics"


def test_metrics_copy_the_cluster_on_collection_and_compute_on_writing(view_of):
    """Ten thousand workloads take a second, in which KEDA would wait."""
    view = view_of(api.deployment("chat", replicas=2), scaled("chat"), hpa("chat"))
    families = list(OutcomeCollector(view.all).collect())
    assert not view._still
    view.cluster.apply(HPAS, "MODIFIED", api.hpa("keda-hpa-chat", target="chat", minimum=3), NOW)
    assert [each.labels["code"] for each in families[-1].samples] == ["settled"]
