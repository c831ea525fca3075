"""The chart as rendered by Helm's own engine, and objects as validated by Kubernetes' own schemas."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.shared import CHART, module, objects

CRDS = Path(__file__).parent / "crds"
# The oldest Kubernetes of Chart.yaml, and the newest with available schemas.
VERSIONS = ("1.27.0", "1.37.0")


@pytest.fixture
def refused(request):
    """The error types of a rejected chart."""
    helm = module("helm_python", "helm-python-sdk")
    return (helm.HelmRenderError, helm.HelmValuesError)


@pytest.fixture
def render(request):
    """`render(values, name="tidegate", namespace="tidegate")`: the chart's objects. `render.notes(...)`: its NOTES."""
    helm = module("helm_python", "helm-python-sdk")

    def files(values, name, namespace):
        with helm.Chart.load(CHART) as chart:
            return chart.render(values or {}, name=name, namespace=namespace)

    def rendered(values=None, name="tidegate", namespace="tidegate"):
        texts = files(values, name, namespace).items()
        return [each for file, text in texts if not file.endswith(".txt") for each in objects(text)]

    def notes(values=None, name="tidegate", namespace="tidegate"):
        return next(text for file, text in files(values, name, namespace).items() if file.endswith("NOTES.txt"))

    rendered.notes = notes
    return rendered


@pytest.fixture
def kustomized(request):
    """`kustomized(folder)`: the objects that kubectl builds from it. Package registries have no kubectl: without it the
    test is skipped even if tools are required.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")

    def build(folder):
        done = subprocess.run(
            [kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return objects(done.stdout)

    return build


@pytest.fixture
def problems_of(request):
    """`problems_of(object)`: the errors of Kubernetes' strict validation, in its oldest and its newest version; for
    custom resources those of our own small schemas.
    """
    kubernetes = module("kubernetes_validate", "kubernetes-validate")
    jsonschema = module("jsonschema", "jsonschema")

    def problems(thing):
        file = CRDS / f"{thing['kind'].lower()}.json"
        group, name = thing["apiVersion"].rpartition("/")[0], f"{thing['kind']} {thing['metadata']['name']}"
        if file.exists() and group not in {"", "apps", "autoscaling"}:
            schema = json.loads(file.read_text(encoding="utf-8"))
            found = jsonschema.Draft202012Validator(schema).iter_errors(thing)
            return [
                f"{thing['kind']} {thing['metadata']['name']}: {error.json_path}: {error.message}" for error in found
            ]
        found = []
        for version in VERSIONS:
            try:
                kubernetes.validate(thing, version, strict=True)
            except (kubernetes.ValidationError, kubernetes.SchemaNotFoundError) as error:
                found.append(f"{version}: {name}: {error.message}")
        return found

    return problems
