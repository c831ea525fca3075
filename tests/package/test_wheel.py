"""The content of the wheel, and the import contracts."""

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scaler.config.rules import RULES

ROOT = Path(__file__).parents[2]
MODULES = [
    path
    for package in ("exporter", "scaler")
    for path in sorted((ROOT / package).rglob("*.py"))
    if "_pb2" not in path.name  # generated
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        yield archive


def test_wheel_has_the_two_packages_and_nothing_else(wheel):
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"exporter", "scaler"}
    assert "exporter/py.typed" in wheel.namelist()
    assert {"scaler/api/keda/externalscaler_pb2.py", "scaler/report/gpus.yaml"} <= set(wheel.namelist())
    page = {f"scaler/api/http/page/{path.name}" for path in (ROOT / "scaler/api/http/page").iterdir()}
    assert len(page) > 10
    assert page <= set(wheel.namelist())


def test_wheel_has_the_page_of_each_rule(wheel):
    pages = {name.removeprefix("scaler/lint/pages/") for name in wheel.namelist() if "/lint/pages/TG" in name}
    assert pages == {rule.page for rule in RULES.values()}


def test_the_wheel_installs_one_command(wheel):
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert wheel.read(entry_points).decode().split() == ["[console_scripts]", "tidegate", "=", "scaler.cli:main"]


def test_packages_import_in_one_direction():
    linted = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert linted.returncode == 0, linted.stdout
    assert "0 broken" in linted.stdout


def test_every_module_has_a_docstring():
    assert [path for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_readme_names_existing_targets_and_commands():
    readme = (ROOT / "README.md").read_text()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(re.findall(r"make ([a-z]+)`?\b", readme)) - {"and"} <= set(targets)
    from scaler.cli import main  # noqa: PLC0415

    assert set(re.findall(r"tidegate (run|demo|read|check|schema|version|top|explain)\b", readme)) <= set(main.commands)


def test_every_link_in_the_documents_has_a_target():
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#\s]+)", document.read_text()):
            if not link.startswith(("http:", "https:")):
                assert (document.parent / link).exists(), f"{document.name}: {link}"
