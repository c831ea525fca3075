"""The table of docs/explanation/outages.md: each row is a test that there is, and each test of this folder has its
row."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
TABLE = (TESTS.parent / "docs/explanation/outages.md").read_text(encoding="utf-8")
NAMES = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)


def rows():
    """The cells of each row of those tables that have a column for tests."""
    tables = [table.splitlines() for table in re.findall(r"(?:^\|.*\n)+", TABLE, re.MULTILINE)]
    return [row.strip("| ").split(" | ") for table in tables if table[0].endswith("| test |") for row in table[2:]]


def defined(files):
    return [name for file in files for name in DEFINED.findall(file.read_text(encoding="utf-8"))]


def test_each_row_names_a_test_that_there_is():
    there = set(defined(TESTS.rglob("test_*.py")))
    assert rows()
    assert [row[0] for row in rows() if not NAMES.findall(row[-1])] == []
    assert [name for row in rows() for name in NAMES.findall(row[-1]) if name not in there] == []


def test_each_test_of_an_outage_has_its_row():
    ours = defined(file for file in Path(__file__).parent.glob("test_*.py") if file != Path(__file__))
    named = {name for row in rows() for name in NAMES.findall(row[-1])}
    assert [name for name in ours if name not in named] == []
