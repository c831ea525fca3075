"""Unknown keys of autoscalers and unknown annotations are named, with the key that was meant (TG096)."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from scaler.lint.checks.keys import TREES
from tests.scaler.lint.manifests import OURS, deployed, hpa, scaled

BEHAVIOR = "behavior: {scaleDown: {stabilizationWindowSeconds: 30}}"
JOB = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledJob
metadata: {namespace: ai, name: batch}
spec:
  jobTargetRef: {template: {spec: {anything: [{goes: here}]}}}
  maxReplicaCount: 8
  triggers: [{type: redis, metadata: {any: key}}]
"""


@pytest.mark.parametrize(("given", "expected"), [
    ("minReplicas: 1", "unknown key: kubectl refuses it, other clients drop it; did you mean minReplicaCount?"),
    ("pollinginterval: 10", "did you mean pollingInterval?"),
    ("cooldownSeconds: 10", "did you mean cooldownPeriod?"),
    ("fallback: {failureThreshold: 3, replica: 2}", "spec.fallback.replica: unknown key"),
    ("behavior: {}", "its place is spec.advanced.horizontalPodAutoscalerConfig.behavior or spec."),
    ("zone: b", "known here: advanced, cooldownPeriod, fallback"),
])  # fmt: skip
def test_unknown_key_of_a_scaled_object_names_the_right_one(given, expected, lint):
    (line,) = [each for each in lint(scaled(spec=given)) if "TG096" in each]
    assert ": error TG096: spec." in line
    assert expected in line


def test_position_is_that_of_the_key(lint):
    (line,) = lint(scaled(spec="pollinginterval: 10"))
    assert line.startswith("0.yaml:10:3: error TG096: spec.pollinginterval:")


def test_items_of_lists_are_checked(lint):
    (line,) = lint(JOB.replace("metadata: {any: key}}", "metadata: {any: key}, authenticationref: {name: a}}"))
    assert "spec.triggers.0.authenticationref: unknown key" in line
    assert "did you mean authenticationRef?" in line


def test_scaled_job_has_its_own_keys(lint, rules_of):
    assert rules_of(JOB) == []
    (line,) = lint(JOB.replace("maxReplicaCount: 8", "maxReplicaCount: 8\n  cooldownPeriod: 30"))
    assert "spec.cooldownPeriod: unknown key" in line


def test_keys_of_keda_are_unknown_in_an_hpa(lint, rules_of):
    assert rules_of(hpa(OURS, behavior=BEHAVIOR)) == []
    (line,) = lint(hpa(OURS, behavior=BEHAVIOR).replace("minReplicas", "minReplicaCount"))
    assert "did you mean minReplicas?" in line
    (line,) = lint(hpa(OURS, behavior=BEHAVIOR.replace("Seconds: 30", "Seconds: 30, selectpolicy: Max")))
    assert "did you mean selectPolicy?" in line


def test_versions_without_a_known_schema_are_not_checked(rules_of):
    text = hpa(OURS, behavior=BEHAVIOR).replace("autoscaling/v2", "autoscaling/v2beta2").replace("minReplicas", "min")
    assert "TG096" not in rules_of(text)


@pytest.mark.parametrize(("annotation", "expected"), [
    ("autoscaling.keda.sh/paused-replica: '2'", "did you mean autoscaling.keda.sh/paused-replicas?"),
    ("autoscaling.keda.sh/zzz: '2'", "known are paused, paused-replicas"),
    ("tidegate.io/brake: freeze", "did you mean tidegate.dev/brake?"),
    ("tidegate/engine: vllm", "did you mean tidegate.dev/engine?"),
    ("tidegate.dev/brakes: freeze", "did you mean tidegate.dev/brake?"),
])  # fmt: skip
def test_annotation_that_nothing_reads_names_the_right_one(annotation, expected, lint):
    text = scaled().replace("name: chat}\nspec", f"name: chat, annotations: {{{annotation}}}}}\nspec")
    (line,) = lint(text)
    assert expected in line


def test_misspelt_key_of_a_workload_names_the_right_one(lint):
    (line,) = lint(deployed(annotations="tidegate.dev/engin: vllm"))
    assert "tidegate.dev/engin: unknown key; did you mean engine?" in line


def test_annotations_of_other_domains_are_not_checked(rules_of):
    text = scaled().replace("name: chat}\nspec", "name: chat, annotations: {tidegate.example.com/owner: me}}\nspec")
    assert rules_of(text) == []


def test_list_that_contains_itself_is_no_recursion(rules_of):
    assert "TG096" not in rules_of(JOB.replace("[{type: redis, metadata: {any: key}}]", "&self [*self, {type: cron}]"))


def kubernetes_tree(folder, name):
    """The keys of a type of Kubernetes, in the form of TREES; label selectors may have any labels."""
    definitions = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))["$defs"]

    def tree(part):
        part = part.get("items", part)
        part = definitions[part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        keys = {key: tree(each) for key, each in part.get("properties", {}).items()}
        return dict.fromkeys(keys) if "matchLabels" in keys else keys or None

    return tree(definitions[name])


@pytest.mark.skipif(find_spec("kubernetes_validate") is None, reason="kubernetes-validate is not installed")
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_keys_of_an_hpa_are_those_of_kubernetes(version):
    import kubernetes_validate  # noqa: PLC0415  optional

    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema/v1.37.0-local"
    spec = TREES[f"autoscaling/{version}", "HorizontalPodAutoscaler"]["spec"]
    assert spec == kubernetes_tree(folder, f"io.k8s.api.autoscaling.{version}.HorizontalPodAutoscalerSpec")
