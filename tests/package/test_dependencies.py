"""An SBOM without a dependency fails, and so does an audit that audited nothing.

`make sbom` and `make audit` run CycloneDX and pip-audit; these tests read what such tools write, without them.
"""

import importlib.util
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("dependencies", ROOT / "tools/dependencies.py")
dependencies = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(dependencies)

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def component(name):
    version = distribution(name).version
    return {
        "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}", "licenses": [{"license": {"id": "MIT"}}]
    }  # fmt: skip


@pytest.fixture
def sbom():
    """A CycloneDX document of the runtime dependencies, as installed here."""
    return {"components": [component(name) for name in sorted(dependencies.runtime_dependencies())]}


@pytest.fixture
def report(sbom):
    """A clean report of pip-audit for the same environment."""
    return {"dependencies": [{**each, "vulns": []} for each in sbom["components"]]}


def refused(call, *arguments):
    with pytest.raises(dependencies.BadDependencies) as raised:
        call(*arguments)
    return str(raised.value).splitlines()


def test_sbom_lists_every_dependency_of_the_image(sbom):
    assert dependencies.checked_sbom(sbom) == sbom
    assert {"aiohttp", "numba", "nvidia-ml-py", "pyyaml", "redis"} < dependencies.runtime_dependencies()


def test_sbom_is_of_what_the_dockerfile_installs():
    (extra,) = re.findall(r'"\.\[(\w+)\]"', (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    assert extra == dependencies.IMAGE_EXTRA
    assert f"install --quiet '.[{extra}]'" in MAKEFILE


@pytest.mark.parametrize("place", range(len(dependencies.runtime_dependencies())))
def test_sbom_without_a_dependency_is_refused(sbom, place):
    name = sbom["components"].pop(place)["name"]
    assert refused(dependencies.checked_sbom, sbom) == [f"{name}: missing in the SBOM"]


@pytest.mark.parametrize("key", ["version", "licenses", "purl"])
def test_component_without_version_or_licence_is_refused(sbom, key):
    sbom["components"].append({**component("rich"), "name": "more", key: None})
    assert refused(dependencies.checked_sbom, sbom) == [f"more: has no {key} in the SBOM"]


def test_licence_that_a_package_does_not_state_is_added(sbom):
    protobuf = next(each for each in sbom["components"] if each["name"] == "protobuf")
    del protobuf["licenses"]
    dependencies.checked_sbom(sbom)
    assert protobuf["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]


def test_clean_audit_says_how_many_distributions_it_covers(sbom, report):
    count = len(sbom["components"])
    assert dependencies.check_audit(report, sbom) == f"{count} distributions audited, no known vulnerability"


def test_vulnerability_is_named_with_the_version_that_fixes_it(sbom, report):
    report["dependencies"][0] = {"name": "aiohttp", "version": distribution("aiohttp").version, "vulns": [
        {"id": "PYSEC-1", "fix_versions": ["99.1"]}, {"id": "PYSEC-2", "fix_versions": []},
    ]}  # fmt: skip
    installed = distribution("aiohttp").version
    assert refused(dependencies.check_audit, report, sbom) == [
        f"aiohttp {installed}: PYSEC-1: fixed in 99.1", f"aiohttp {installed}: PYSEC-2: fixed in no version yet"
    ]  # fmt: skip


def test_audit_without_an_answer_of_the_database_is_no_clean_audit(sbom):
    """pip-audit exits 0 in the first case: "No known vulnerabilities found"."""
    skipped = {"dependencies": [{"name": each["name"], "skip_reason": "not found"} for each in sbom["components"]]}
    for nothing in (skipped, {"dependencies": []}, None):
        first, *_, last = refused(dependencies.check_audit, nothing, sbom, "dist/a.json")
        assert first.startswith("NOT AUDITED: the vulnerability database did not answer for any package")
        assert "dist/a.json" in last


def test_distribution_that_was_not_audited_is_named(sbom, report):
    report["dependencies"][0] = {"name": "aiohttp", "skip_reason": "not found"}
    report["dependencies"][1]["version"] = "0.0.1"  # of another environment
    (second,) = sbom["components"][1:2]
    assert refused(dependencies.check_audit, report, sbom) == [
        f"aiohttp {distribution('aiohttp').version}: NOT AUDITED: not found",
        f"{second['name']} {second['version']}: NOT AUDITED: absent from the report",
    ]


def test_command_fails_with_the_reason_and_no_traceback(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "tools/dependencies.py", "sbom", tmp_path / "missing.json"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("make sbom: aiohttp: missing in the SBOM\n")


def test_release_publishes_the_sbom():
    assert re.search(r"^publish: .*\bsbom$", MAKEFILE, re.MULTILINE)
    assert "$(SBOM) deploy/kubectl" in MAKEFILE
