"""The workflows run make targets that exist, with the least permissions; a release has one version everywhere."""

import importlib.util
import io
import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
NEVER = {"actions", "security-events"}  # no step needs them

SPEC = importlib.util.spec_from_file_location("release", ROOT / "tools/release.py")
release = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(release)


def parsed(file):
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    document["on"] = document.pop(True)  # YAML 1.1 reads `on` as true
    return document


def jobs():
    return [
        pytest.param(job, id=f"{file.stem}-{name}") for file in WORKFLOWS for name, job in parsed(file)["jobs"].items()
    ]


AUDIT, CI, RELEASE = WORKFLOWS


def test_there_are_workflows_for_audits_changes_and_tags():
    assert [file.name for file in WORKFLOWS] == ["audit.yml", "ci.yml", "release.yml"]
    assert parsed(RELEASE)["on"] == {"push": {"tags": ["v*.*.*"]}}


def test_dependencies_are_audited_by_schedule_and_when_their_files_change():
    files = {"paths": ["pyproject.toml", "Dockerfile"]}
    assert parsed(AUDIT)["on"] == {
        "schedule": [{"cron": "17 5 * * *"}],
        "push": {"branches": ["main"], **files},
        "pull_request": files,
        "workflow_dispatch": None,
    }
    assert parsed(AUDIT)["jobs"]["audit"]["steps"][-1] == {"run": "make audit"}


@pytest.mark.parametrize("job", jobs())
def test_each_step_runs_one_make_target_that_exists(job):
    for step in job.get("steps", []):
        assert set(step) & {"run", "uses"}
        if "run" in step:
            command = step["run"].split()
            assert command[0] == "make", step["run"]
            assert len(command) == 2
            assert command[1] in TARGETS


@pytest.mark.parametrize("job", jobs())
def test_each_action_is_pinned_by_version(job):
    used = [step["uses"] for step in job.get("steps", []) if "uses" in step]
    assert [each for each in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@(v[0-9]+|release/v[0-9]+)", each)] == []


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_may_only_read_and_a_job_names_what_it_writes(file):
    assert parsed(file)["permissions"] == {"contents": "read"}
    for name, job in parsed(file)["jobs"].items():
        permissions = job.get("permissions", {})
        assert not NEVER & set(permissions)
        publishes = any("push-" in step.get("run", "") or "publish" in str(step) or "deploy" in str(step)
                        for step in job.get("steps", []))  # fmt: skip
        assert ("write" in permissions.values()) == publishes, name


def test_python_versions_are_those_of_the_project():
    matrix = parsed(CI)["jobs"]["test"]["strategy"]["matrix"]["python"]
    (supported,) = re.findall(r"^VERSIONS \?= (.*)$", MAKEFILE, re.MULTILINE)
    assert matrix == supported.split()


def test_nothing_is_published_until_a_maintainer_switches_it_on():
    """Each job that publishes has the condition, or needs a job that has it: a skipped job skips those after it."""
    found = parsed(RELEASE)["jobs"]

    def gated(name):
        needs = found[name].get("needs", [])
        return "TIDEGATE_RELEASE" in found[name].get("if", "") or any(
            gated(each) for each in ([needs] if isinstance(needs, str) else needs)
        )

    assert [name for name, job in found.items() if "write" in job.get("permissions", {}).values() and not gated(name)] \
        == []  # fmt: skip


def test_chart_pulls_the_image_that_the_release_pushes():
    (registry,) = re.findall(r"^REGISTRY \?= (.*)$", MAKEFILE, re.MULTILINE)
    values = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text(encoding="utf-8"))
    assert values["image"]["repository"] == f"{registry}/tidegate"
    assert registry == f"ghcr.io/{release.REPOSITORY.split('/')[-2]}"


def test_every_file_states_one_version():
    found = release.versions()
    assert {"pyproject.toml", "Dockerfile", "deploy/chart/Chart.yaml"} < set(found)
    assert set().union(*found.values()) == {release.version_of_project()}


def test_version_is_written_into_every_file(tmp_path, monkeypatch):
    for name in (*release.versions(), "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    before = set(release.versions())
    monkeypatch.setattr(release, "ROOT", tmp_path)
    release.set_version("1.2.3")
    assert release.versions() == {name: {"1.2.3"} for name in before}
    with pytest.raises(release.BadRelease, match=r"X\.Y\.Z"):
        release.set_version("1.2")


@pytest.fixture
def changelog(tmp_path, monkeypatch):
    """Writes a changelog beside a project of version 1.2.3."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "t"\nversion = "1.2.3"\n')
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return (tmp_path / "CHANGELOG.md").write_text


def test_release_notes_are_the_section_of_the_version(changelog):
    changelog("## [Unreleased]\n\n- later\n\n## [1.2.3] - 2026-12-01\n\n### Added\n\n- this\n\n## [1.2.2]\n- old\n")
    assert release.notes("v1.2.3") == "### Added\n\n- this\n"


def test_tag_of_another_version_and_a_missing_section_are_refused(changelog):
    changelog("# Changelog\n\n## [Unreleased]\n\n- later\n")
    with pytest.raises(release.BadRelease, match="must be that of pyproject"):
        release.notes("v1.2.4")
    with pytest.raises(release.BadRelease, match=r"## \[1\.2\.3\]"):
        release.notes("1.2.3")


def test_image_names_the_missing_engine_in_one_line():
    done = subprocess.run(
        ["make", "--no-print-directory", "image", "ENGINE="],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout.splitlines() == ["make image: no container engine answers (docker, podman)"]


def test_krew_manifest_is_generated_and_names_the_archive():
    manifest = (ROOT / "deploy/kubectl/tidegate.yaml").read_text(encoding="utf-8")
    assert manifest == release.krew_manifest(), "run make generate"
    (platform,) = yaml.safe_load(manifest)["spec"]["platforms"]
    with zipfile.ZipFile(io.BytesIO(release.archive())) as archive:
        assert sorted(archive.namelist()) == ["LICENSE", platform["bin"]]
        assert archive.getinfo(platform["bin"]).external_attr >> 16 == 0o755


def test_kubectl_plugin_runs_its_arguments_in_the_pod(tmp_path):
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    kubectl.chmod(0o755)
    done = subprocess.run(
        [ROOT / "deploy/kubectl/kubectl-tidegate", "explain", "ai/a b"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "TIDEGATE_NAMESPACE": "gate"},
        capture_output=True, text=True, check=True, timeout=30, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "exec", "-i", "--namespace", "gate", "deployment/tidegate", "--container", "tidegate", "--",
        "tidegate", "explain", "ai/a b",
    ]  # fmt: skip
