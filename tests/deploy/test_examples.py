"""Tidegate, KEDA and Kubernetes accept the examples."""

import pytest
import yaml

from scaler.lint.run import check_files
from tests.deploy.shared import DEPLOY, LOADER, objects

EXAMPLES = sorted((DEPLOY / "examples").glob("*.yaml"))
HIGHEST_DOWN_WINDOW_S = 60
WITH_KEDA = [file for file in EXAMPLES if not file.stem.endswith("-hpa")]


def scaled(things):
    return [each for each in things if each["kind"] in {"ScaledObject", "HorizontalPodAutoscaler"}]


@pytest.fixture(params=EXAMPLES, ids=lambda file: file.stem)
def example(request):
    return objects(request.param.read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_tidegate_accepts_every_example(file):
    report = check_files([str(file)])
    assert [str(problem) for problem in report.problems] == []
    assert scaled(objects(file.read_text(encoding="utf-8")))


def test_kubernetes_and_keda_accept_every_example(example, problems_of):
    things = [without_tolerance(each) for each in example]
    assert [problem for thing in things for problem in problems_of(thing)] == []


def without_tolerance(thing):
    """An HPA's `tolerance` needs Kubernetes 1.35, as the comment beside it explains."""
    if thing["kind"] == "HorizontalPodAutoscaler":
        for direction in thing["spec"]["behavior"].values():
            assert direction.pop("tolerance") == "0"
    return thing


def test_tidegate_smooths_and_the_hpa_does_not(example):
    for each in scaled(example):
        advanced = each["spec"].get("advanced", {}).get("horizontalPodAutoscalerConfig", each["spec"])
        behavior = advanced["behavior"]
        assert behavior["scaleUp"] == {"stabilizationWindowSeconds": 0, "tolerance": "0"}
        assert 0 < behavior["scaleDown"]["stabilizationWindowSeconds"] <= HIGHEST_DOWN_WINDOW_S
        assert [policy["type"] for policy in behavior["scaleDown"]["policies"]] == ["Percent"]


def test_workload_that_may_go_to_zero_has_a_wake_source_and_tidegates_keep_warm(example):
    for each in (one for one in example if one["kind"] == "ScaledObject" and one["spec"]["minReplicaCount"] == 0):
        (trigger,) = each["spec"]["triggers"]
        assert trigger["type"] == "external-push"
        assert "gateway" in trigger["metadata"]
        assert each["spec"]["cooldownPeriod"] <= HIGHEST_DOWN_WINDOW_S


def test_scale_target_has_no_replicas(example):
    targets = {each["spec"]["scaleTargetRef"]["name"] for each in scaled(example)}
    deployments = {each["metadata"]["name"]: each["spec"] for each in example if each["kind"] == "Deployment"}
    assert targets <= set(deployments)
    assert [name for name in targets if "replicas" in deployments[name]] == []


def test_every_trigger_uses_kedas_certificate(example):
    for each in (one for one in example if one["kind"] == "ScaledObject"):
        for trigger in each["spec"]["triggers"]:
            assert trigger["authenticationRef"] == {"kind": "ClusterTriggerAuthentication", "name": "tidegate"}
            assert trigger["metadata"]["scalerAddress"] == "tidegate.tidegate.svc:6000"


def by_name(things, kind):
    return {each["metadata"]["name"]: each for each in things if each["kind"] == kind}


@pytest.mark.parametrize("file", WITH_KEDA, ids=lambda file: file.stem)
def test_each_example_has_a_variant_without_keda_that_differs_in_nothing_else(file):
    keda = objects(file.read_text(encoding="utf-8"))
    hpa = objects(file.with_name(f"{file.stem}-hpa.yaml").read_text(encoding="utf-8"))
    autoscalers, scaled_objects = by_name(hpa, "HorizontalPodAutoscaler"), by_name(keda, "ScaledObject")
    assert set(autoscalers) == set(scaled_objects)
    annotations = {}
    for name, deployment in by_name(hpa, "Deployment").items():
        annotations[name] = deployment["metadata"].pop("annotations", {})
        assert deployment == by_name(keda, "Deployment")[name]
    for name, scaled_object in scaled_objects.items():
        spec, by_keda = autoscalers[name]["spec"], scaled_object["spec"]
        assert (spec["minReplicas"], spec["maxReplicas"]) == (by_keda["minReplicaCount"], by_keda["maxReplicaCount"])
        (trigger,) = by_keda["triggers"]
        expected = {
            f"tidegate.dev/{word}": value for word, value in trigger["metadata"].items() if word != "scalerAddress"
        }
        assert annotations[spec["scaleTargetRef"]["name"]] == expected


def test_plain_hpa_uses_the_metric_of_its_own_workload(example):
    for each in (one for one in example if one["kind"] == "HorizontalPodAutoscaler"):
        (metric,) = each["spec"]["metrics"]
        selector = {"matchLabels": {"workload": each["spec"]["scaleTargetRef"]["name"]}}
        assert metric["external"] == {
            "metric": {"name": "tidegate-replicas", "selector": selector},
            "target": {"type": "AverageValue", "averageValue": "1"},
        }


def test_kube_prometheus_stack_selects_the_monitor_the_rules_and_the_dashboards(render):
    file = DEPLOY / "examples/install/kube-prometheus-stack-values.yaml"
    things = render(yaml.load(file.read_text(encoding="utf-8"), LOADER))
    labels = {each["kind"]: each["metadata"]["labels"] for each in things}
    for kind in ("PodMonitor", "PrometheusRule"):
        assert labels[kind]["release"] == "kube-prometheus-stack"
    boards = [each for each in things if each["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert {each["kind"] for each in boards} == {"ConfigMap"}
