"""The chart as rendered by Helm's own engine, and objects as validated by Kubernetes' own schemas."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.deploy.shared import CHART, module, objects

CRDS = Path(__file__).parent / "crds"
# The oldest Kubernetes of Chart.yaml, and the newest with available schemas.
VERSIONS = ("1.27.0", "1.37.0")


@cache  # a fifth of a second of CPU each, and many tests have the same values
def rendered_files(values, name, namespace):
    """The text of each rendered file. values: as JSON."""
    helm = module("helm_python", "helm-python-sdk")
    with helm.Chart.load(CHART) as chart:
        return chart.render(json.loads(values), name=name, namespace=namespace)


@cache  # it reads the schemas of a whole version for every object, and most values of the chart have the same objects
def strict_problems(text, version):
    """The errors of an object, given as JSON, in one version of Kubernetes."""
    kubernetes, thing = module("kubernetes_validate", "kubernetes-validate"), json.loads(text)
    try:
        kubernetes.validate(thing, version, strict=True)
    except (kubernetes.ValidationError, kubernetes.SchemaNotFoundError) as error:
        return [f"{version}: {thing['kind']} {thing['metadata']['name']}: {error.message}"]
    return []


@pytest.fixture
def refused(request):
    """The error types of a rejected chart."""
    helm = module("helm_python", "helm-python-sdk")
    return (helm.HelmRenderError, helm.HelmValuesError)


@pytest.fixture
def render(request):
    """`render(values, name="tidegate", namespace="tidegate")`: the chart's objects. `render.notes(...)`: its NOTES.

    The same values are rendered once. `render.anew(...)` renders them again, with new certificates, as an upgrade does.
    """
    module("helm_python", "helm-python-sdk")

    def files(values, name, namespace):
        return rendered_files(json.dumps(values or {}), name, namespace)

    def things(texts):
        return [each for file, text in texts.items() if not file.endswith(".txt") for each in objects(text)]

    def rendered(values=None, name="tidegate", namespace="tidegate"):
        return things(files(values, name, namespace))

    def anew(values=None, name="tidegate", namespace="tidegate"):
        return things(rendered_files.__wrapped__(json.dumps(values or {}), name, namespace))

    def notes(values=None, name="tidegate", namespace="tidegate"):
        return next(text for file, text in files(values, name, namespace).items() if file.endswith("NOTES.txt"))

    rendered.notes, rendered.anew = notes, anew
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
    module("kubernetes_validate", "kubernetes-validate")
    jsonschema = module("jsonschema", "jsonschema")

    def problems(thing):
        file = CRDS / f"{thing['kind'].lower()}.json"
        group = thing["apiVersion"].rpartition("/")[0]
        if file.exists() and group not in {"", "apps", "autoscaling"}:
            schema = json.loads(file.read_text(encoding="utf-8"))
            found = jsonschema.Draft202012Validator(schema).iter_errors(thing)
            return [
                f"{thing['kind']} {thing['metadata']['name']}: {error.json_path}: {error.message}" for error in found
            ]
        text = json.dumps(thing, sort_keys=True)
        return [problem for version in VERSIONS for problem in strict_problems(text, version)]

    return problems
