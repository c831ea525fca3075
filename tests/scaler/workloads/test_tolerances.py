"""Whose word holds for the smallest change that an HPA does not drop."""

from dataclasses import replace

from exporter.kubernetes.objects import Behavior, BehaviorRules, Ref
from exporter.model import WorkloadKey
from scaler.workloads.targets import plans
from tests.scaler.workloads.objects import configured, deployment, hpa, scaled, trigger

CHAT = WorkloadKey("ai", "chat")
OURS = Ref("ai", "ScaledObject", "chat")


def says(tolerance):
    return Behavior(up=BehaviorRules(tolerance=tolerance), down=BehaviorRules(window_s=30.0))


def object_(tolerance, **more):
    return replace(scaled("chat", trigger(engine="vllm", **more)), behavior=says(tolerance))


def hpa_of_keda(tolerance=None):
    made = hpa("chat", owner=OURS)
    return made if tolerance is None else replace(made, behavior=says(tolerance))


def test_the_scaled_objects_word_holds_while_its_hpa_is_not_seen(cluster):
    assert dict(cluster().take(object_(0.05)).tolerances) == {CHAT: 0.05}


def test_an_hpa_that_is_seen_has_the_word(cluster):
    assert dict(cluster().take(object_(0.05), hpa_of_keda(0.0)).tolerances) == {CHAT: 0.0}


def test_a_tolerance_that_the_cluster_left_out_is_not_believed(cluster):
    # Before Kubernetes 1.35 KEDA hands it on and the API server drops it: the HPA has the cluster's 10 %.
    assert dict(cluster().take(object_(0.0), hpa_of_keda()).tolerances) == {}


def test_an_hpa_without_keda_is_heard_too(cluster):
    census = cluster().take(deployment(engine="vllm"), replace(hpa(), behavior=says(0.02)))
    assert dict(census.tolerances) == {CHAT: 0.02}


def test_a_configured_workload_hears_of_the_hpa_of_what_it_scales(cluster):
    place = cluster(configured())
    named = replace(scaled("s", trigger(workload="chat"), target=Ref("ai", "Deployment", "chat")), behavior=says(0.03))
    assert dict(place.take(named).tolerances) == {CHAT: 0.03}
    assert dict(cluster(configured()).take(replace(hpa("other"), behavior=says(0.5))).tolerances) == {}


def test_where_nobody_says_one_the_configuration_holds(cluster):
    place = cluster(configured("static", hpa_tolerance=0.3))
    exact = replace(scaled("exact", trigger(engine="vllm", hpa_tolerance="0.2")), behavior=says(0.0))
    census = place.take(scaled("code", trigger(engine="vllm", hpa_tolerance="0.2")), object_(None), exact)
    made = plans(place.config, census.workloads, tolerances=census.tolerances)
    assert {plan.workload.name: plan.tolerance for plan in made} == {
        "static": 0.3,
        "code": 0.2,
        "chat": 0.1,
        "exact": 0.0,
    }
