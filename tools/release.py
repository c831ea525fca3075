"""Builds what a release publishes, in dist/, and keeps the version equal wherever a file states it.

A tag `vX.Y.Z` starts the release, and each command fails if the files of that commit have another version: a tag
cannot publish what the commit does not state. `make version VERSION=X.Y.Z` writes the version before the tag.

    python tools/release.py set 0.2.0      # the version in all files of PLACES
    python tools/release.py notes v0.2.0   # dist/notes.md, from the section of CHANGELOG.md
    python tools/release.py chart          # dist/tidegate-0.2.0.tgz, linted and packed by Helm's own engine
    python tools/release.py plugin         # dist/kubectl-tidegate-0.2.0.zip
    python tools/release.py krew           # deploy/kubectl/tidegate.yaml, with the checksum of that archive

Worked example: with version 0.1.0 in pyproject.toml, `notes v0.2.0` fails with "VERSION: must be that of
pyproject.toml, 0.1.0, got 0.2.0".
"""

from __future__ import annotations

import hashlib
import io
import re
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
CHART = ROOT / "deploy/chart"
PLUGIN = ROOT / "deploy/kubectl"
REPOSITORY = "https://github.com/tidegate/tidegate"

# Files that state the version, and the text around it. The chart has the version of what it deploys.
PLACES = {
    "pyproject.toml": r'^version = "{}"$',
    "Dockerfile": r'image\.version="{}"',
    "deploy/chart/Chart.yaml": r"(?:^version: |^appVersion: |image: \S*tidegate:){}$",
    "deploy/examples/install/*.yaml": r"targetRevision: {}$",
    "README.md": r"/tidegate:{}\b",
    "docs/how-to/install.md": r"/tidegate:{}\b",
    "deploy/kustomize/**/*.yaml": r"(?:\bnewTag: |image: \S*tidegate:){}\b",
}
_VERSION = r"[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.]+)?"
_SECTION = re.compile(
    r"^## \[(?P<name>[^\]]+)\].*?\n(?P<body>.*?)(?=^## \[|^\[[^\]]+\]: |\Z)", re.MULTILINE | re.DOTALL
)
_ARCHIVED = (1980, 1, 1, 0, 0, 0)  # the first date of a zip file: the checksum depends on the content alone


class BadRelease(Exception):  # noqa: N818  a bad argument or state of the files
    """args[0]: one line for the terminal."""


def version_of_project() -> str:
    project: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return project


def versions() -> dict[str, set[str]]:
    """The versions that each file of PLACES states."""
    return {
        str(file.relative_to(ROOT)): set(found)
        for pattern, around in PLACES.items()
        for file in sorted(ROOT.glob(pattern))
        if (found := re.findall(around.format(f"({_VERSION})"), file.read_text(encoding="utf-8"), re.MULTILINE))
    }


def set_version(version: str) -> None:
    """Writes the version into all files of PLACES. Raises BadRelease."""
    if not re.fullmatch(_VERSION, version):
        raise BadRelease(f"VERSION: must be X.Y.Z, got {version!r}")
    for pattern, around in PLACES.items():
        for file in ROOT.glob(pattern):
            before = file.read_text(encoding="utf-8")
            text = re.sub(
                around.format(f"(?P<version>{_VERSION})"),
                lambda match: match[0].replace(match["version"], version),
                before,
                flags=re.MULTILINE,
            )
            if text != before:
                file.write_text(text, encoding="utf-8")


def notes(version: str) -> str:
    """The section of the changelog for a tag or version. Raises BadRelease."""
    version = version.removeprefix("v")
    if version != version_of_project():
        raise BadRelease(f"VERSION: must be that of pyproject.toml, {version_of_project()}, got {version}")
    sections = _SECTION.finditer((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    body = next((each["body"].strip() for each in sections if each["name"] == version), "")
    if not body:
        raise BadRelease(f"CHANGELOG.md: must have a section `## [{version}]` that is not empty")
    return f"{body}\n"


def chart() -> Path:
    """The packed chart. Raises BadRelease if Helm's linter finds more than an information."""
    import helm_python  # noqa: PLC0415  Helm's engine, which only this command needs

    for message in helm_python.lint(CHART, namespace="tidegate")["messages"]:
        if message["severity"] > 1:
            raise BadRelease(f"chart: {message['path']}: {message['error']}")
    DIST.mkdir(exist_ok=True)
    return Path(helm_python.package(CHART, destination=DIST))


def archive() -> bytes:
    """The zip file of the kubectl plugin. Stored without compression: zlib's output differs between versions."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as packed:
        for file in (PLUGIN / "kubectl-tidegate", ROOT / "LICENSE"):
            entry = zipfile.ZipInfo(file.name, _ARCHIVED)
            entry.create_system = 3  # Unix, for the permissions
            entry.external_attr = (0o755 if file.parent == PLUGIN else 0o644) << 16
            packed.writestr(entry, file.read_bytes())
    return content.getvalue()


def plugin() -> Path:
    DIST.mkdir(exist_ok=True)
    file = DIST / f"kubectl-tidegate-{version_of_project()}.zip"
    file.write_bytes(archive())
    return file


def krew_manifest() -> str:
    """The manifest of the plugin for krew."""
    version = version_of_project()
    return f"""\
# Generated by `make generate` (tools/release.py krew).
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: tidegate
spec:
  version: v{version}
  homepage: {REPOSITORY}
  shortDescription: Explain and check GPU autoscaling by Tidegate
  description: |
    Runs the commands of Tidegate in its pod: `kubectl tidegate explain NAMESPACE/NAME` prints why a workload has its
    replicas, `top` shows all workloads, `doctor` finds what is missing, `report` sums GPU-hours.
  caveats: |
    It needs the right to create pods/exec in Tidegate's namespace. If that is not `tidegate`, set TIDEGATE_NAMESPACE.
  platforms:
    - selector:
        matchExpressions: [{{key: os, operator: In, values: [linux, darwin]}}]
      uri: {REPOSITORY}/releases/download/v{version}/kubectl-tidegate-{version}.zip
      sha256: {hashlib.sha256(archive()).hexdigest()}
      bin: kubectl-tidegate
"""


def main(arguments: list[str]) -> str:
    """The output of a command. Raises BadRelease."""
    match arguments:
        case ["set", version]:
            set_version(version)
            return f"{version_of_project()}, in {len(versions())} files"
        case ["notes", version]:
            text = notes(version)
            DIST.mkdir(exist_ok=True)
            (DIST / "notes.md").write_text(text, encoding="utf-8")
            return text.rstrip()
        case ["chart"]:
            return str(chart().relative_to(ROOT))
        case ["plugin"]:
            return str(plugin().relative_to(ROOT))
        case ["krew"]:
            (PLUGIN / "tidegate.yaml").write_text(krew_manifest(), encoding="utf-8")
            return "deploy/kubectl/tidegate.yaml"
    raise BadRelease("usage: release.py set VERSION | notes VERSION | chart | plugin | krew")


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))  # noqa: T201
    except BadRelease as bad:
        sys.exit(str(bad))
