"""The rights of the pod: none on its node, and in the cluster only those it uses."""

import os

import pytest
import yaml

from exporter.kubernetes.resources import RESOURCES, SHARED
from tests.deploy.shared import DEPLOY, ci_values, the

# Exactly these: test_metrics_api.py has their bindings.
OF_THE_METRICS_API = {
    f"tidegate-tidegate-{name}" for name in ("auth-delegator", "auth-reader", "api-services", "metrics-reader")
}


def allowed(rules):
    return {(group, name, verb) for rule in rules for group in rule["apiGroups"]
            for name in rule["resources"] for verb in rule["verbs"]}  # fmt: skip


def required(namespaced):
    watched = {(each.group, each.name, verb) for each in RESOURCES
            if each.namespaced in namespaced for verb in ("list", "watch")}  # fmt: skip
    return watched | EVENTS if True in namespaced else watched


EVENTS = {("events.k8s.io", "events", verb) for verb in ("create", "patch")}


@pytest.mark.parametrize("values", ci_values())
def test_pod_passes_the_restricted_standard_on_a_read_only_root(render, values):
    pod = the(render(values), "Deployment")["spec"]["template"]["spec"]
    security = pod["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] == security["runAsGroup"] == 65532
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & set(pod)
    for container in pod["containers"] + pod.get("initContainers", []):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not any("hostPort" in port for port in container["ports"])
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"]["cpu"]
    kinds = {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}
    assert [volume for volume in pod["volumes"] if not kinds & set(volume)] == []


@pytest.mark.parametrize("values", ci_values())
def test_all_writes_go_to_volumes_and_only_the_state_outlives_the_pod(render, values):
    pod = the(render(values), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    writable = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    kinds = {volume["name"]: volume for volume in pod["volumes"]}
    assert writable == {"tmp": "/tmp", "state": "/var/lib/tidegate"}
    assert kinds["tmp"]["emptyDir"]["sizeLimit"]
    claimed = values.get("state", {}).get("volume") == "persistentVolumeClaim"
    assert claimed or kinds["state"]["emptyDir"]["sizeLimit"]
    env = {one["name"] for one in container.get("env", ())}
    assert "NUMBA_CACHE_DIR" not in env  # the image's own, with the compiled kernels


@pytest.mark.parametrize("values", ci_values())
def test_no_role_has_a_wildcard_secrets_or_write_verbs_except_for_events(render, values):
    roles = {each["metadata"]["name"]: each for each in render(values) if each["kind"] in {"Role", "ClusterRole"}}
    # The autoscaler's role is not the pod's, and one role gets objects by name: see test_metrics_api.py. Replicas write
    # their own Lease: see test_replicas.py.
    roles = {name: role for name, role in roles.items() if not name.endswith("-peers")}
    roles.pop("tidegate-tidegate-metrics-reader", None)
    roles.pop("tidegate-tidegate-api-services", None)
    rights = {right for role in roles.values() for right in allowed(role["rules"])} - EVENTS
    assert {verb for *_, verb in rights} <= {"list", "watch"}
    assert not [right for right in rights if "*" in right or right[1] in {"secrets", "configmaps"}]


def test_cluster_role_has_the_required_rights_only(render):
    things = render()
    assert allowed(the(things, "ClusterRole")["rules"]) == required({True, False})
    assert [each for each in things if each["kind"] == "Role"] == []


def test_events_off_removes_the_right_to_write_them(render):
    values = {"config": {"kubernetes": {"events": False}}}
    assert allowed(the(render(values), "ClusterRole")["rules"]) == required({True, False}) - EVENTS
    values = {"config": {"kubernetes": {"events": False, "namespaces": ["ai"]}}}
    assert allowed(the(render(values), "Role")["rules"]) == required({True}) - EVENTS


def test_only_shared_gpus_add_the_right_to_read_quotas(render, kustomized, tmp_path):
    quotas = {(each.group, each.name, verb) for each in SHARED for verb in ("list", "watch")}
    for sharing in ({}, {"growth": {"nvidia.com/gpu": 8}}):
        things = render({"config": {"kubernetes": {}, "sharing": sharing}})
        assert allowed(the(things, "ClusterRole")["rules"]) == required({True, False}) | quotas
    folder = os.path.relpath(DEPLOY / "kustomize", tmp_path.resolve())
    text = {"resources": [f"{folder}/base"], "components": [f"{folder}/components/sharing"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(text), encoding="utf-8")
    assert allowed(the(kustomized(tmp_path), "ClusterRole")["rules"]) == required({True, False}) | quotas


def test_namespaces_limit_the_rights_to_them_and_to_nodes(render):
    things = render({"config": {"kubernetes": {"namespaces": ["ai", "research"]}}})
    roles = {each["metadata"]["namespace"]: allowed(each["rules"]) for each in things if each["kind"] == "Role"}
    assert roles == dict.fromkeys(["ai", "research"], required({True}))
    assert allowed(the(things, "ClusterRole")["rules"]) == required({False})
    bound = {each["metadata"]["namespace"]: each for each in things if each["kind"] == "RoleBinding"}
    assert set(bound) == {"ai", "research"}
    account = {"kind": "ServiceAccount", "name": "tidegate", "namespace": "tidegate"}
    assert [each["subjects"] for each in bound.values()] == [[account], [account]]


@pytest.mark.parametrize("values", ci_values())
def test_every_binding_except_those_of_the_metrics_api_names_a_role_and_the_account_of_the_release(render, values):
    things = render(values)
    roles = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in things
             if each["kind"] in {"Role", "ClusterRole"}}  # fmt: skip
    pod = the(things, "Deployment")["spec"]["template"]["spec"]
    for each in (one for one in things if one["kind"] in {"RoleBinding", "ClusterRoleBinding"}):
        if each["metadata"]["name"] in OF_THE_METRICS_API:
            continue
        named = (each["roleRef"]["kind"], each["metadata"].get("namespace"), each["roleRef"]["name"])
        assert named in roles
        (subject,) = each["subjects"]
        assert (subject["name"], subject["namespace"]) == (pod["serviceAccountName"], "tidegate")


def test_token_is_mounted_only_with_access_to_the_api_server(render):
    def mounts(values):
        return the(render(values), "Deployment")["spec"]["template"]["spec"]["automountServiceAccountToken"]

    assert mounts({}) is True
    assert mounts({"config": {"kubernetes": None}}) is False
    assert the(render(), "ServiceAccount")["automountServiceAccountToken"] is False


def test_roles_are_off_without_access_to_the_api_server(render):
    kinds = {each["kind"] for each in render({"config": {"kubernetes": None}})}
    assert not {kind for kind in kinds if "Role" in kind}


def test_network_policy_allows_keda_and_prometheus(render):
    things = render({"networkPolicy": {"enabled": True}})
    keda, monitoring = the(things, "NetworkPolicy")["spec"]["ingress"]
    (peer,) = keda["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "keda"}
    assert peer["podSelector"]["matchLabels"] == {"app": "keda-operator"}
    assert keda["ports"] == [{"port": "grpc", "protocol": "TCP"}]
    assert monitoring["ports"] == [{"port": "http", "protocol": "TCP"}]
    assert the(things, "NetworkPolicy")["spec"]["policyTypes"] == ["Ingress"]


def test_grpc_is_not_reachable_in_hpa_mode(render):
    things = render({"mode": "hpa", "networkPolicy": {"enabled": True}})
    assert [port["name"] for port in the(things, "Service")["spec"]["ports"]] == ["http"]
    ports = [port["port"] for rule in the(things, "NetworkPolicy")["spec"]["ingress"] for port in rule["ports"]]
    assert ports == ["http"]
    assert not [each for each in things if each["kind"] in {"Secret", "ClusterTriggerAuthentication"}]
