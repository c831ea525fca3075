"""Components for any overlay build the same objects as the chart with the corresponding values."""

import os

import pytest
import yaml

from tests.deploy.metrics_values import BOTH
from tests.deploy.shared import DEPLOY, the

KUSTOMIZE = DEPLOY / "kustomize"


@pytest.fixture
def with_component(tmp_path, kustomized):
    """`with_component(name, "plain")`: the objects of that overlay with the component."""

    def build(name, overlay):
        # kustomize accepts no absolute paths.
        folder = os.path.relpath(KUSTOMIZE, tmp_path.resolve())
        text = {"resources": [f"{folder}/overlays/{overlay}"], "components": [f"{folder}/components/{name}"]}
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(text), encoding="utf-8")
        return kustomized(tmp_path)

    return build


@pytest.mark.parametrize("overlay", ["plain", "hpa"])
def test_prometheus_operator_finds_the_pods_and_keeps_their_labels(with_component, render, problems_of, overlay):
    built = the(with_component("monitoring", overlay), "PodMonitor")
    assert problems_of(built) == []
    charts = the(render({"podMonitor": {"enabled": True}}), "PodMonitor")
    assert (built["metadata"]["namespace"], built["spec"]) == ("tidegate", charts["spec"])


@pytest.mark.parametrize("overlay", ["plain", "hpa"])
def test_network_policy_allows_the_clients_of_both_modes_and_selects_the_pod(
    with_component, render, problems_of, overlay
):
    things = with_component("network-policy", overlay)
    built = the(things, "NetworkPolicy")
    assert problems_of(built) == []
    closed = {"networkPolicy": {"enabled": True}}
    several = {"replicas": 2}
    charts = [the(render(values | closed), "NetworkPolicy")["spec"] for values in ({}, BOTH, several)]
    rules = {yaml.safe_dump(rule) for spec in charts for rule in spec["ingress"]}
    assert {yaml.safe_dump(rule) for rule in built["spec"]["ingress"]} == rules
    assert built["spec"]["policyTypes"] == charts[0]["policyTypes"]
    labels = the(things, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert built["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
