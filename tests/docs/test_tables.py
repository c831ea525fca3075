"""Every row of a table has as many cells as its head: an extra cell is not shown, a missing one shifts the others."""

import re

import pytest

from tests.docs.pages import PAGES, prose

TABLE = re.compile(r"(?:^ *\|.*\n)+", re.MULTILINE)
BAR = re.compile(r"(?<!\\)\|")


def uneven(page):
    for table in TABLE.findall(prose(page)):
        head, *rows = table.splitlines()
        yield from (row for row in rows if len(BAR.findall(row)) != len(BAR.findall(head)))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_row_has_as_many_cells_as_its_head(page):
    assert list(uneven(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_table_has_a_line_under_its_head(page):
    lines = [table.splitlines()[1:2] for table in TABLE.findall(prose(page))]

    assert [line for line in lines if not re.fullmatch(r" *\|(?: *:?-+:? *\|)+ *", "".join(line))] == []
