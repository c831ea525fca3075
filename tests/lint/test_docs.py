"""What the documents show to be copied is clean: no error, no warning."""

import re
from pathlib import Path

import pytest

from scaler.config.manifests import is_manifest
from scaler.lint.files import check_files

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^( *)```yaml\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# These show on purpose what is wrong, or what somebody comes from.
WRONG_ON_PURPOSE = {"migration.md", "troubleshooting.md"}
SHOWN = [
    (file.relative_to(ROOT), place, "\n".join(line[len(indent):] for line in body.splitlines()))
    for file in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if file.name not in WRONG_ON_PURPOSE
    for place, (indent, body) in enumerate(BLOCK.findall(file.read_text(encoding="utf-8"))) if is_manifest(body)
]  # fmt: skip


@pytest.mark.parametrize(("file", "place", "text"), SHOWN, ids=[f"{file.name}-{place}" for file, place, _ in SHOWN])
def test_a_manifest_in_the_documents_is_clean(file, place, text, tmp_path):
    (tmp_path / file.name).write_text(text)
    problems = check_files([str(tmp_path / file.name)]).problems
    assert [str(problem) for problem in problems if problem.severity != "info"] == []


def test_there_are_manifests_in_the_documents():
    assert len(SHOWN) > 5
