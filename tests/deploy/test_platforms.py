"""The examples for clouds, gateways and platforms: Tidegate accepts each, and each scales an object that exists."""

import pytest
import yaml

from scaler.config import parse
from scaler.lint.run import check_files
from tests.deploy.shared import DEPLOY, LOADER, objects, the

FOLDER = DEPLOY / "examples/platforms"
VALUES = FOLDER / "http-add-on-values.yaml"
EXAMPLES = sorted(file for file in FOLDER.glob("*.yaml") if file != VALUES)
ALL = pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
# What is scaled: the Deployment that a controller makes of its object, by that project's rule, or the object itself.
MADE_BY = {"InferenceService": "{}-predictor", "LLMInferenceService": "{}-kserve", "InferenceSet": "{}"}


def things(file):
    return objects(file.read_text(encoding="utf-8"))


def scaled(file):
    return [each for each in things(file) if each["kind"] == "ScaledObject"]


@pytest.fixture
def configuration(render, tmp_path):
    """The file of the configuration that the chart writes with the values for the HTTP add-on."""
    values = yaml.load(VALUES.read_text(encoding="utf-8"), LOADER)
    file = tmp_path / "config.yaml"
    file.write_text(the(render(values), "ConfigMap")["data"]["config.yaml"])
    return file


@ALL
def test_tidegate_accepts_every_example(file, configuration):
    report = check_files([str(file), str(configuration)])
    assert [str(problem) for problem in report.problems] == []
    assert scaled(file)


@ALL
def test_kubernetes_and_keda_accept_their_objects(file, problems_of):
    known = [each for each in things(file) if each["kind"] in {"ScaledObject", "Deployment", "Service"}]
    assert [problem for each in known for problem in problems_of(each)] == []


@ALL
def test_scale_target_is_in_the_example_or_made_of_an_object_in_it(file):
    found = {each["metadata"]["name"] for each in things(file) if each["kind"] == "Deployment"}
    found |= {
        MADE_BY[each["kind"]].format(each["metadata"]["name"]) for each in things(file) if each["kind"] in MADE_BY
    }
    assert {each["spec"]["scaleTargetRef"]["name"] for each in scaled(file)} == found


@ALL
def test_nothing_but_keda_writes_the_replicas(file):
    for each in things(file):
        assert "replicas" not in each.get("spec", {})
        annotations = each["metadata"].get("annotations", {})
        if each["kind"] == "InferenceService":
            assert annotations["serving.kserve.io/autoscalerClass"] == "external"
        if each["kind"] == "HTTPScaledObject":
            assert annotations["httpscaledobject.keda.sh/skip-scaledobject-creation"] == "true"


@ALL
def test_workload_that_goes_to_zero_has_a_wake_source(file):
    for each in scaled(file):
        (trigger,) = each["spec"]["triggers"]
        assert each["spec"]["minReplicaCount"] == 1 or "gateway" in trigger["metadata"]


@pytest.mark.parametrize("cloud", ["eks", "aks"])
def test_pods_tolerate_the_taint_of_their_node_pool_and_empty_nodes_go(cloud):
    found = things(FOLDER / f"{cloud}.yaml")
    pool, pod = the(found, "NodePool")["spec"], the(found, "Deployment")["spec"]["template"]["spec"]
    (taint,) = pool["template"]["spec"]["taints"]
    assert [each["key"] for each in pod["tolerations"]] == [taint["key"]]
    assert pod["nodeSelector"] == {"karpenter.sh/nodepool": the(found, "NodePool")["metadata"]["name"]}
    assert pool["disruption"]["consolidationPolicy"] == "WhenEmpty"


def test_pods_select_the_compute_class_of_gke():
    found = things(FOLDER / "gke.yaml")
    pod = the(found, "Deployment")["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"cloud.google.com/compute-class": the(found, "ComputeClass")["metadata"]["name"]}


def test_pool_of_llm_d_selects_the_pods_and_names_the_gateway_of_the_trigger():
    found = things(FOLDER / "llm-d.yaml")
    pool, labels = (
        the(found, "InferencePool")["spec"],
        the(found, "Deployment")["spec"]["template"]["metadata"]["labels"],
    )
    assert labels | pool["selector"]["matchLabels"] == labels
    (trigger,) = the(found, "ScaledObject")["spec"]["triggers"]
    assert trigger["metadata"]["gateway"] == pool["endpointPickerRef"]["name"]


@pytest.mark.parametrize("name", ["http-add-on", "http-scaled-object"])
def test_model_is_the_name_of_the_route_and_of_the_engine(name, configuration):
    config, _ = parse(configuration.read_text(), "config.yaml")
    found = things(FOLDER / f"{name}.yaml")
    (trigger,) = the(found, "ScaledObject")["spec"]["triggers"]
    route = next(each for each in found if each["apiVersion"].startswith("http.keda.sh/"))
    (container,) = the(found, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert trigger["metadata"]["gateway"] in {each.name for each in config.gateways}
    assert trigger["metadata"]["model"] == route["metadata"]["name"]
    assert f"--served-model-name={trigger['metadata']['model']}" in container["args"]
