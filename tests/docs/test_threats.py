"""Every threat of docs/reference/security.md is answered by tests that exist."""

import re

import pytest

from tests.docs.pages import ROOT, text_of

PAGE = text_of(ROOT / "docs/reference/security.md")
ROW = re.compile(r"^\| ([^|]+) \| (`test_[^|]+) \|$", re.MULTILINE)
THREATS = ROW.findall(PAGE.partition("## Threats")[2])


@pytest.fixture(scope="module")
def written():
    """The names of all tests."""
    files = (ROOT / "tests").rglob("test_*.py")
    return {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))}


@pytest.mark.parametrize(("threat", "tests"), THREATS, ids=[threat for threat, _ in THREATS])
def test_every_threat_has_a_test(threat, tests, written):
    assert set(re.findall(r"`(\w+)`", tests)) <= written


def test_table_of_threats_is_read():
    assert len(THREATS) > 10
