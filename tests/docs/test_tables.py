"""Every row of a table has as many cells as its head: an extra cell is not shown, a missing one shifts the others."""

import re

from tests.docs.pages import PAGES, prose

TABLE = re.compile(r"(?:^ *\|.*\n)+", re.MULTILINE)
BAR = re.compile(r"(?<!\\)\|")


def uneven(page):
    for table in TABLE.findall(prose(page)):
        head, *rows = table.splitlines()
        yield from (row for row in rows if len(BAR.findall(row)) != len(BAR.findall(head)))


def test_every_row_has_as_many_cells_as_its_head():
    assert {page: rows for page in PAGES if (rows := list(uneven(page)))} == {}


def test_every_table_has_a_line_under_its_head():
    lines = [(page, table.splitlines()[1:2]) for page in PAGES for table in TABLE.findall(prose(page))]

    assert [each for each in lines if not re.fullmatch(r" *\|(?: *:?-+:? *\|)+ *", "".join(each[1]))] == []
