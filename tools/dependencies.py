"""Lists what the image installs (an SBOM) and checks it for known vulnerabilities (an audit), in dist/.

Both read an environment that is installed as the Dockerfile installs it, and use the tools of PyPA and CycloneDX. This
file checks what those tools wrote: an SBOM without a dependency, and an audit that audited nothing, fail. pip-audit
itself says "No known vulnerabilities found" and exits 0 if the database answers 404 to every name, as a mirror does.

    python tools/dependencies.py sbom dist/tidegate-0.1.0.cdx.json   # adds licences that packages do not state
    python tools/dependencies.py audit dist/audit.json dist/tidegate-0.1.0.cdx.json

Worked example: if pip-audit could not look up numpy, `audit` fails with "numpy 2.4.1: NOT AUDITED: Dependency not found
on PyPI ...".
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
IMAGE_EXTRA = "nvml"  # of the Dockerfile

# Packages whose metadata names the licence in words that CycloneDX does not know.
LICENCES = {"protobuf": "BSD-3-Clause"}  # https://github.com/protocolbuffers/protobuf/blob/main/LICENSE

UNREACHABLE = """\
NOT AUDITED: the vulnerability database did not answer for any package. Nothing is known to be safe.
pip-audit asks https://pypi.org/pypi/NAME/VERSION/json. Run `make audit` where that host is reachable, or audit {sbom}
with a scanner that has its database on the machine, such as `grype sbom:{sbom}` or `trivy sbom {sbom}`."""


class BadDependencies(Exception):  # noqa: N818  a finding about the dependencies
    """args[0]: lines for the terminal."""


def normalised(name: str) -> str:
    """The name of a distribution as PEP 503 compares it: `PyYAML` is `pyyaml`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def runtime_dependencies() -> set[str]:
    """The distributions that the image installs directly, with normalised names."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    required = [*project["dependencies"], *project["optional-dependencies"][IMAGE_EXTRA]]
    return {normalised(re.split(r"[^A-Za-z0-9._-]", each, maxsplit=1)[0]) for each in required}


def checked_sbom(document: dict[str, Any]) -> dict[str, Any]:
    """A CycloneDX document with the licences of LICENCES. Raises BadDependencies if it is not complete."""
    components = {normalised(each["name"]): each for each in document.get("components", [])}
    for name, licence in LICENCES.items():
        if name in components:
            components[name].setdefault("licenses", [{"license": {"id": licence}}])
    problems = [f"{name}: missing in the SBOM" for name in sorted(runtime_dependencies() - set(components))]
    for name, each in sorted(components.items()):
        problems += [
            f"{name}: has no {key} in the SBOM" for key in ("version", "licenses", "purl") if not each.get(key)
        ]
    if problems:
        raise BadDependencies("\n".join(problems))
    return document


def check_audit(report: dict[str, Any] | None, document: dict[str, Any], sbom: str = "the SBOM") -> str:
    """One line about a pip-audit report that is clean. Raises BadDependencies: each vulnerability, each gap.

    report: None if pip-audit wrote none. document: the SBOM of the same environment.
    """
    audited = {normalised(each["name"]): each for each in (report or {}).get("dependencies", [])}
    expected = {normalised(each["name"]): each["version"] for each in document["components"]}
    found = {name: each for name, each in audited.items() if each.get("version") == expected.get(name)}
    if not expected.keys() & found.keys():
        raise BadDependencies(UNREACHABLE.format(sbom=sbom))
    problems = [
        f"{name} {expected[name]}: NOT AUDITED: {audited.get(name, {}).get('skip_reason', 'absent from the report')}"
        for name in sorted(expected.keys() - found.keys())
    ]
    for name, each in sorted(found.items()):
        for flaw in each["vulns"]:
            fixed = ", ".join(flaw.get("fix_versions", [])) or "no version yet"
            problems.append(f"{name} {each['version']}: {flaw['id']}: fixed in {fixed}")
    if problems:
        raise BadDependencies("\n".join(problems))
    return f"{len(expected)} distributions audited, no known vulnerability"


def read(file: str) -> Any:
    """The JSON of a file, or None if there is no such file or it is empty."""
    path = Path(file)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return json.loads(text) if text.strip() else None


def main(arguments: list[str]) -> str:
    """The output of a command. Raises BadDependencies."""
    match arguments:
        case ["sbom", sbom]:
            document = checked_sbom(read(sbom) or {})
            Path(sbom).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            return f"{sbom}: {len(document['components'])} distributions"
        case ["audit", report, sbom]:
            return check_audit(read(report), checked_sbom(read(sbom) or {}), sbom)
    raise BadDependencies("usage: dependencies.py sbom SBOM | audit REPORT SBOM")


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))  # noqa: T201
    except BadDependencies as bad:
        sys.exit(f"make {(sys.argv[1:] or ['sbom'])[0]}: {bad}")
