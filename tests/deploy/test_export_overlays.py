"""`tidegate export` as a DaemonSet and as a sidecar: its rights, its settings, and the pods that get it."""

import os

import pytest
import yaml

from scaler.config.agent import NAMESPACE, NODE_IP, NODE_NAME, POD, parse_export
from tests.deploy.shared import DEPLOY, the

OVERLAY = DEPLOY / "kustomize" / "overlays" / "export-daemonset"
COMPONENT = DEPLOY / "kustomize" / "components" / "export-sidecar"
# Kubernetes' schemas have native sidecars from 1.28 on; they are on by default from 1.29 on.
OLDER = "1.27"


@pytest.fixture
def beside(kustomized, tmp_path):
    """`beside(kind, labels)`: the objects of an engine with those labels, and of the component."""

    def build(kind, labels):
        engine = {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": "chat", "labels": labels},
            "spec": {
                "selector": {"matchLabels": {"app": "chat"}},
                "template": {
                    "metadata": {"labels": {"app": "chat"}},
                    "spec": {"containers": [{"name": "vllm", "image": "vllm"}]},
                },
            },
        }
        if kind == "StatefulSet":
            engine["spec"]["serviceName"] = "chat"
        component = os.path.relpath(COMPONENT, tmp_path.resolve())
        (tmp_path / "engine.yaml").write_text(yaml.safe_dump(engine))
        (tmp_path / "kustomization.yaml").write_text(
            yaml.safe_dump({"namespace": "ai", "resources": ["engine.yaml"], "components": [component]})
        )
        return kustomized(tmp_path)

    return build


def settings(things, pod, container):
    """The container's configuration, as parsed with its environment."""
    (volume,) = [each for each in pod["volumes"] if "configMap" in each]
    (mount,) = container["volumeMounts"]
    assert (mount["name"], mount["readOnly"]) == (volume["name"], True)
    assert container["args"] == ["export", f"--config={mount['mountPath']}/config.yaml"]
    text = the(things, "ConfigMap", volume["configMap"]["name"])["data"]["config.yaml"]
    fields = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]}
    config, warnings = parse_export(text, "config.yaml", fields)
    assert warnings == []
    return config, fields


def restricted(pod, container):
    """The restricted Pod Security Standard, set in the pod or the container; and no host access."""
    security = pod.get("securityContext", {}) | container["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] == security["runAsGroup"] == 65532
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & set(pod)
    assert not any("hostPort" in port for port in container["ports"])
    assert [volume for volume in pod["volumes"] if "configMap" not in volume] == []
    assert container["resources"]["limits"]["memory"] == "96Mi"


def test_each_node_with_gpus_has_one_target_of_the_exporter(kustomized, problems_of):
    things = kustomized(OVERLAY)
    assert [problem for thing in things for problem in problems_of(thing)] == []
    pod = the(things, "DaemonSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    config, fields = settings(things, pod, container)
    assert fields == {NODE_IP: "status.hostIP", NODE_NAME: "spec.nodeName"}
    assert (config.gpus.node_port, config.gpus.of, config.engines) == (9400, "node", ())
    assert pod["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert pod["automountServiceAccountToken"] is False
    restricted(pod, container)


def test_service_has_the_target_of_every_node(kustomized):
    things = kustomized(OVERLAY)
    service, daemons = the(things, "Service")["spec"], the(things, "DaemonSet")["spec"]
    (container,) = daemons["template"]["spec"]["containers"]
    (port,) = service["ports"]
    assert service["clusterIP"] == "None"
    assert service["selector"].items() <= daemons["template"]["metadata"]["labels"].items()
    assert {"name": port["targetPort"], "containerPort": port["port"]} in container["ports"]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_engine_with_the_label_gets_a_sidecar_that_outlives_it(beside, problems_of, kind):
    things = beside(kind, {"tidegate.dev/export": "sidecar"})
    problems = [problem for thing in things for problem in problems_of(thing)]
    assert [problem for problem in problems if not (problem.startswith(OLDER) and "restartPolicy" in problem)] == []
    pod = the(things, kind)["spec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    assert [container["name"] for container in pod["containers"]] == ["vllm"]
    assert sidecar["restartPolicy"] == "Always"
    # A readiness probe would take its engine out of the Service.
    assert "readinessProbe" not in sidecar
    restricted(pod, sidecar)
    config, fields = settings(things, pod, sidecar)
    assert fields == {NODE_IP: "status.hostIP", NAMESPACE: "metadata.namespace", POD: "metadata.name"}
    assert (config.gpus.of, [engine.kind for engine in config.engines]) == ("pod", ["vllm"])


def test_engine_without_the_label_is_unchanged(beside):
    assert "initContainers" not in the(beside("Deployment", {}), "Deployment")["spec"]["template"]["spec"]
