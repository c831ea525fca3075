"""More than one replica: what the chart makes then, and what it refuses to make."""

import os
from pathlib import Path

import pytest
import yaml

from scaler.config import parse
from tests.deploy.shared import DEPLOY, the

TWO = {"replicas": 2}


def pod(things):
    return the(things, "Deployment")["spec"]["template"]["spec"]


def listen(things):
    return parse(the(things, "ConfigMap")["data"]["config.yaml"], "config.yaml")[0].listen


@pytest.mark.parametrize("mode", ["keda", "hpa"])
def test_replicas_know_each_other_by_the_certificate_that_is_mounted_and_by_one_lease(render, problems_of, mode):
    things = render(TWO | {"mode": mode}, name="gate", namespace="scaling")
    assert [problem for each in things for problem in problems_of(each)] == []
    peers = listen(things).peers
    assert (peers.lease, peers.server_name) == ("gate-tidegate.scaling", "gate-tidegate.scaling.svc")
    mounts = {mount["mountPath"]: mount["name"] for mount in pod(things)["containers"][0]["volumeMounts"]}
    secret = next(each["secret"] for each in pod(things)["volumes"] if each["name"] == mounts["/etc/tidegate/tls"])
    assert {"tls.crt", "tls.key", "ca.crt"} <= the(things, "Secret", secret["secretName"])["data"].keys()
    folder = {str(Path(file).parent) for file in (peers.certificate, peers.key, peers.ca)}
    assert folder == {"/etc/tidegate/tls"}


def test_a_pod_tells_the_others_its_name_and_address(render):
    environment = {each["name"]: each.get("valueFrom") for each in pod(render(TWO))["containers"][0]["env"]}
    assert environment["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert environment["POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_they_may_read_and_write_their_own_lease_and_no_other(render):
    things = render(TWO, name="gate", namespace="scaling")
    role = the(things, "Role")
    assert role["metadata"]["namespace"] == "scaling"
    rules = [(rule["resources"], rule.get("resourceNames"), rule["verbs"]) for rule in role["rules"]]
    assert rules == [(["leases"], ["gate-tidegate"], ["get", "update"]), (["leases"], None, ["create"])]
    (subject,) = the(things, "RoleBinding")["subjects"]
    assert (subject["name"], subject["namespace"]) == ("gate-tidegate", "scaling")


def test_cert_manager_makes_a_certificate_that_is_good_for_both_ends(render):
    issued = {"tls": {"type": "cert-manager", "certManager": {"issuerRef": {"name": "ca"}}}}
    for values, usage in ((TWO, True), ({}, False)):
        made = the(render(values | issued), "Certificate", "tidegate-tls")
        assert ("client auth" in made["spec"]["usages"]) == usage


def test_they_go_to_different_nodes_where_they_can_unless_somebody_says_otherwise(render):
    (spread,) = pod(render(TWO))["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    own = [spread | {"maxSkew": 2}]
    assert pod(render(TWO | {"topologySpreadConstraints": own}))["topologySpreadConstraints"] == own


def test_the_network_policy_lets_replicas_reach_each_other_and_nobody_else(render):
    policy = the(render(TWO | {"networkPolicy": {"enabled": True}}), "NetworkPolicy")["spec"]
    (rule,) = [rule for rule in policy["ingress"] if {"port": "peers", "protocol": "TCP"} in rule["ports"]]
    assert rule["from"] == [{"podSelector": policy["podSelector"]}]


def test_one_replica_asks_for_no_lease(render):
    things = render()
    assert listen(things).peers is None
    assert [each for each in things if each["kind"] in {"Role", "RoleBinding"}] == []
    assert "POD_IP" not in {each["name"] for each in pod(things)["containers"][0].get("env", ())}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"tls": {"type": "none"}}, "replicas: must be 1 where tls.type is none, got 2"),
        ({"config": {"kubernetes": None}}, "replicas: must be 1 where config.kubernetes is null, got 2"),
    ],
)
def test_replicas_that_could_not_agree_are_refused(render, refused, values, says):
    with pytest.raises(refused, match=says):
        render(TWO | values)


def test_the_kustomize_component_makes_what_the_chart_makes(tmp_path, kustomized, render, problems_of):
    folder = os.path.relpath(DEPLOY / "kustomize", tmp_path.resolve())
    text = {"resources": [f"{folder}/overlays/keda-mtls"], "components": [f"{folder}/components/replicas"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(text), encoding="utf-8")
    made = kustomized(tmp_path)
    issued = {"tls": {"type": "cert-manager", "certManager": {"issuerRef": {"name": "tidegate-ca"}}}}
    charts = render(TWO | issued)
    assert [problem for each in made for problem in problems_of(each)] == []
    assert listen(made) == listen(charts)
    for kind in ("Role", "RoleBinding", "PodDisruptionBudget"):
        for part in ("rules", "subjects", "roleRef", "spec"):
            assert the(made, kind).get(part) == the(charts, kind).get(part)
    assert pod(made)["topologySpreadConstraints"] == pod(charts)["topologySpreadConstraints"]
    assert pod(made)["containers"][0]["env"] == pod(charts)["containers"][0]["env"]


def test_the_components_configuration_is_one_that_tidegate_takes():
    text = (DEPLOY / "kustomize/components/replicas/config.yaml").read_text(encoding="utf-8")
    config, problems = parse(text, "config.yaml")
    assert problems == []
    assert config.listen.peers.lease == "tidegate.tidegate"
