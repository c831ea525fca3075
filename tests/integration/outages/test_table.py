"""Each row of the tables in docs/explanation/outages.md has its tests, and each test of this folder has its row."""

import re
from pathlib import Path

from .rows import TESTS

FOLDER = Path(__file__).parents[2]
PAGE = (FOLDER.parent / "docs/explanation/outages.md").read_text(encoding="utf-8")
DEFINED = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)
NAMES = [name for rows in TESTS.values() for names in rows.values() for name in names]


def first_cells(section):
    """The first cell of each row of a section's tables, without the heads."""
    tables = [table.splitlines() for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)]
    return [row.strip("| ").split(" | ")[0] for table in tables for row in table[2:]]


def defined(files):
    return [name for file in files for name in DEFINED.findall(file.read_text(encoding="utf-8"))]


def test_each_row_of_the_document_has_tests_and_no_other_row_exists():
    sections = dict(section.split("\n", 1) for section in PAGE.split("\n## ")[1:])
    shown = {heading: cells for heading, text in sections.items() if (cells := first_cells(text))}
    assert shown == {heading: list(rows) for heading, rows in TESTS.items()}
    assert [cell for rows in TESTS.values() for cell, names in rows.items() if not names] == []


def test_each_test_that_a_row_names_exists():
    existing = set(defined(FOLDER.rglob("test_*.py")))
    assert [name for name in NAMES if name not in existing] == []


def test_each_test_of_an_outage_has_its_row():
    tests_here = defined(file for file in Path(__file__).parent.glob("test_*.py") if file != Path(__file__))
    assert [name for name in tests_here if name not in NAMES] == []
