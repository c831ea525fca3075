"""kustomize and the chart build the same objects."""

import pytest
import yaml

from scaler.config import parse
from tests.deploy.metrics_values import BOTH
from tests.deploy.shared import DEPLOY, the

KUSTOMIZE = DEPLOY / "kustomize"
# The objects of `tidegate export` are not part of the chart.
OVERLAYS = sorted(
    file for file in KUSTOMIZE.glob("overlays/*/kustomization.yaml") if not file.parent.name.startswith("export")
)
# The corresponding values of the chart.
CERT_MANAGER = {"type": "cert-manager", "certManager": {"issuerRef": {"name": "tidegate-ca"}}}
VALUES = {
    "plain": {"tls": {"type": "none"}},
    "keda-mtls": {"tls": CERT_MANAGER},
    "hpa": BOTH | {"tls": CERT_MANAGER},
    "namespaced": {"tls": {"type": "none"}, "config": {"kubernetes": {"namespaces": ["ai"]}}},
}


def name(file):
    return file.parent.name


@pytest.mark.parametrize("file", OVERLAYS, ids=name)
def test_kubernetes_accepts_every_object_and_tidegate_the_configuration(kustomized, problems_of, file):
    things = kustomized(file.parent)
    assert [problem for thing in things for problem in problems_of(thing)] == []
    _, warnings = parse(the(things, "ConfigMap")["data"]["config.yaml"], "config.yaml")
    assert [str(warning) for warning in warnings] == []


@pytest.mark.parametrize("file", OVERLAYS, ids=name)
def test_overlay_equals_the_chart(kustomized, render, file):
    def bare(things):  # the pod is the one of `helm test`
        return {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): plain(each)
                for each in things if each["kind"] not in {"Namespace", "Pod"}}  # fmt: skip

    assert bare(kustomized(file.parent)) == bare(render(VALUES[name(file)]))


def test_cert_manager_injects_the_ca_of_the_mounted_certificate_into_every_api_service(kustomized):
    things = kustomized(KUSTOMIZE / "overlays" / "hpa")
    certificate = the(things, "Certificate")["metadata"]
    assert [each["metadata"]["annotations"] for each in things if each["kind"] == "APIService"] == [
        {"cert-manager.io/inject-ca-from": f"{certificate['namespace']}/{certificate['name']}"}
    ] * 3
    volumes = the(things, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "tls", "secret": {"secretName": the(things, "Certificate")["spec"]["secretName"]}} in volumes


def plain(thing):
    """Without labels, registry, image tag, and configuration that only repeats defaults."""
    thing = {key: value for key, value in thing.items() if key != "metadata"}
    if thing["kind"] == "Deployment":
        template = thing["spec"]["template"]
        del template["metadata"]
        (container,) = template["spec"]["containers"]
        container["image"] = container["image"].rpartition("/")[2]
        template["spec"]["volumes"].sort(key=lambda volume: volume["name"])
        container["volumeMounts"].sort(key=lambda mount: mount["name"])
    if thing["kind"] == "ConfigMap":
        thing["data"] = parse(thing["data"]["config.yaml"], "config.yaml")[0]
    if "Role" in thing["kind"]:
        thing["rules"] = sorted(yaml.safe_dump(sorted_names(rule)) for rule in thing.get("rules", []))
    return thing


def sorted_names(rule):
    return {key: sorted(names) for key, names in rule.items()}
