"""More than one replica: the objects of the chart, and the values that it rejects."""

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
def test_replicas_share_the_mounted_certificate_and_one_lease(render, problems_of, mode):
    things = render(TWO | {"mode": mode}, name="gate", namespace="scaling")
    assert [problem for each in things for problem in problems_of(each)] == []
    peers = listen(things).peers
    assert (peers.lease, peers.server_name) == ("gate-tidegate.scaling", "gate-tidegate.scaling.svc")
    mounts = {mount["mountPath"]: mount["name"] for mount in pod(things)["containers"][0]["volumeMounts"]}
    secret = next(each["secret"] for each in pod(things)["volumes"] if each["name"] == mounts["/etc/tidegate/tls"])
    assert {"tls.crt", "tls.key", "ca.crt"} <= the(things, "Secret", secret["secretName"])["data"].keys()
    folder = {str(Path(file).parent) for file in (peers.certificate, peers.key, peers.ca)}
    assert folder == {"/etc/tidegate/tls"}


def test_pod_has_its_name_and_address_in_the_environment(render):
    environment = {each["name"]: each.get("valueFrom") for each in pod(render(TWO))["containers"][0]["env"]}
    assert environment["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert environment["POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_replicas_may_write_their_own_lease_only(render):
    things = render(TWO, name="gate", namespace="scaling")
    role = the(things, "Role")
    assert role["metadata"]["namespace"] == "scaling"
    rules = [(rule["resources"], rule.get("resourceNames"), rule["verbs"]) for rule in role["rules"]]
    assert rules == [(["leases"], ["gate-tidegate"], ["get", "update"]), (["leases"], None, ["create"])]
    (subject,) = the(things, "RoleBinding")["subjects"]
    assert (subject["name"], subject["namespace"]) == ("gate-tidegate", "scaling")


def test_certificate_of_cert_manager_is_valid_for_server_and_client(render):
    issued = {"tls": {"type": "cert-manager", "certManager": {"issuerRef": {"name": "ca"}}}}
    for values, usage in ((TWO, True), ({}, False)):
        certificate = the(render(values | issued), "Certificate", "tidegate-tls")
        assert ("client auth" in certificate["spec"]["usages"]) == usage


def test_replicas_spread_over_nodes_unless_configured_otherwise(render):
    (spread,) = pod(render(TWO))["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    constraints = [spread | {"maxSkew": 2}]
    assert pod(render(TWO | {"topologySpreadConstraints": constraints}))["topologySpreadConstraints"] == constraints


def test_network_policy_allows_only_replicas_on_the_peer_port(render):
    policy = the(render(TWO | {"networkPolicy": {"enabled": True}}), "NetworkPolicy")["spec"]
    (rule,) = [rule for rule in policy["ingress"] if {"port": "peers", "protocol": "TCP"} in rule["ports"]]
    assert rule["from"] == [{"podSelector": policy["podSelector"]}]


def test_single_replica_uses_no_lease(render):
    things = render()
    assert listen(things).peers is None
    assert [each for each in things if each["kind"] in {"Role", "RoleBinding"}] == []
    assert "POD_IP" not in {each["name"] for each in pod(things)["containers"][0].get("env", ())}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tls": {"type": "none"}}, "replicas: must be 1 where tls.type is none, got 2"),
        ({"config": {"kubernetes": None}}, "replicas: must be 1 where config.kubernetes is null, got 2"),
    ],
)
def test_invalid_replica_settings_are_refused(render, refused, values, message):
    with pytest.raises(refused, match=message):
        render(TWO | values)


def test_kustomize_component_equals_the_chart(tmp_path, kustomized, render, problems_of):
    folder = os.path.relpath(DEPLOY / "kustomize", tmp_path.resolve())
    text = {"resources": [f"{folder}/overlays/keda-mtls"], "components": [f"{folder}/components/replicas"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(text), encoding="utf-8")
    component = kustomized(tmp_path)
    issued = {"tls": {"type": "cert-manager", "certManager": {"issuerRef": {"name": "tidegate-ca"}}}}
    charts = render(TWO | issued)
    assert [problem for each in component for problem in problems_of(each)] == []
    assert listen(component) == listen(charts)
    for kind in ("Role", "RoleBinding", "PodDisruptionBudget"):
        for part in ("rules", "subjects", "roleRef", "spec"):
            assert the(component, kind).get(part) == the(charts, kind).get(part)
    assert pod(component)["topologySpreadConstraints"] == pod(charts)["topologySpreadConstraints"]
    assert pod(component)["containers"][0]["env"] == pod(charts)["containers"][0]["env"]


def test_tidegate_accepts_the_components_configuration():
    text = (DEPLOY / "kustomize/components/replicas/config.yaml").read_text(encoding="utf-8")
    config, problems = parse(text, "config.yaml")
    assert problems == []
    assert config.listen.peers.lease == "tidegate.tidegate"
